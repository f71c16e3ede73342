"""What keeps a data set from being ingested: exceptions that become the status of a result, never that of a command."""

from __future__ import annotations

from collections.abc import Sequence

from archec.errors import ArchecError
from archec.fileset.status import Status


class FilesetProblem(ArchecError):
    """Base of what ends an ingest; ``status`` is that of the result. ``due``: the tist from which on another try is
    worth it, 0 where nothing says so."""

    status = Status.PLATFORM_ERROR
    due = 0


class PlatformError(FilesetProblem):
    """An answer is not as the platform documents it; the message begins with the path of the field."""


class PlatformHttpError(FilesetProblem):
    """The platform does not answer, or with an error."""

    status = Status.PLATFORM_HTTP_ERROR

    def __init__(self, message: str, *, status: Status = Status.PLATFORM_HTTP_ERROR) -> None:
        super().__init__(message)
        self.status = status


class PlatformNotFound(FilesetProblem):
    """The platform has no such data set, or none that is published."""

    status = Status.PLATFORM_404


class PlatformGone(FilesetProblem):
    """The platform has withdrawn the data set."""

    status = Status.PLATFORM_GONE


class PlatformRestrictedError(FilesetProblem):
    """Not everybody may have the data set; ``due`` is the end of an embargo."""

    status = Status.PLATFORM_RESTRICTED

    def __init__(self, message: str, *, due: int = 0) -> None:
        super().__init__(message)
        self.due = due


class FilesetPlatformScopeError(FilesetProblem):
    """What was asked for is not one version of one data set; ``members`` are those that could be asked for."""

    status = Status.PLATFORM_SCOPE

    def __init__(self, message: str, *, members: Sequence[str] = ()) -> None:
        listed = f": {', '.join(members[:20])}{' ...' if len(members) > 20 else ''}" if members else ""
        super().__init__(message + listed)
        self.members = tuple(members)


class EmptyManifest(FilesetProblem):
    """The data set has no files."""

    status = Status.EMPTY_MANIFEST


class NoPlatformMatch(FilesetProblem):
    """The URL is of no platform."""

    status = Status.NO_PLATFORM_MATCH


class UploadFailed(FilesetProblem):
    """An upload failed, or what was sent is not there."""

    status = Status.ERROR_ARCHIVEORG_UPLOAD


class BadRequest(FilesetProblem):
    """The request cannot be understood."""

    status = Status.BAD_REQUEST
