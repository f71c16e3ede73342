"""Statuses of requests and of the files of a manifest, and the exceptions that end an ingest.

The exceptions determine the status of a result; they do not end the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from archec.catalogue.model import FilesetManifestFile
from archec.errors import ArchecError
from archec.fileset.model import FilesetPlatformItem


class Status(str, Enum):
    """The status of a result or of a file. docs/fileset.md explains each, with what to do about it."""

    SUCCESS = "success"
    SUCCESS_FILE = "success-file"
    SUCCESS_EXISTING = "success-existing"
    SUCCESS_PARTIAL = "success-partial"
    BAD_REQUEST = "bad-request"
    NO_PLATFORM_MATCH = "no-platform-match"
    NO_STRATEGY_HELPER = "no-strategy-helper"
    PLATFORM_SCOPE = "platform-scope"
    PLATFORM_RESTRICTED = "platform-restricted"
    PLATFORM_404 = "platform-404"
    PLATFORM_GONE = "platform-gone"
    PLATFORM_HTTP_ERROR = "platform-http-error"
    PLATFORM_ERROR = "platform-error"
    EMPTY_MANIFEST = "empty-manifest"
    TOO_LARGE_SIZE = "too-large-size"
    TOO_MANY_FILES = "too-many-files"
    BUDGET = "budget"
    NOT_PROCESSED = "not-processed"
    NO_CAPTURE = "no-capture"
    TERMINAL_BAD_STATUS = "terminal-bad-status"
    REDIRECT_LOOP = "redirect-loop"
    REDIRECTS_EXCEEDED = "redirects-exceeded"
    BAD_REDIRECT = "bad-redirect"
    EMPTY_BLOB = "empty-blob"
    BODY_TOO_LARGE = "body-too-large"
    SKIP_URL_BLOCKLIST = "skip-url-blocklist"
    ROBOTS = "robots"
    BLOCKED_ADDRESS = "blocked-address"
    TIMEOUT = "timeout"
    ERROR_INTERNAL = "error-internal"
    ERROR_STORAGE = "error-storage"
    ERROR_PLATFORM_DOWNLOAD = "error-platform-download"
    ERROR_ARCHIVEORG_UPLOAD = "error-archiveorg-upload"
    BUNDLE_INCOMPLETE = "bundle-incomplete"
    MISMATCH = "mismatch"
    MISMATCH_SIZE = "mismatch-size"
    MISMATCH_MD5 = "mismatch-md5"
    MISMATCH_SHA1 = "mismatch-sha1"
    MISMATCH_SHA256 = "mismatch-sha256"
    UNSAFE_PATH = "unsafe-path"
    SKIPPED_LINK_ONLY = "skipped-link-only"
    EXISTS = "exists"

    def __str__(self) -> str:
        return self.value

    @property
    def is_hit(self) -> bool:
        """Whether a result with this status means that the complete data set is held."""
        return self.value.startswith("success") and self is not Status.SUCCESS_PARTIAL


WHOLE = (Status.SUCCESS, Status.EXISTS)
"""The statuses of files that are held."""


def overall(files: Sequence[FilesetManifestFile], *, single: bool) -> Status:
    """The status of a data set, from those of its files: success if all are held, partial if some are, else that of the
    first file; EMPTY_MANIFEST if no file has a status."""
    held = sum(file.status in WHOLE for file in files)
    if held:
        complete = Status.SUCCESS_FILE if single else Status.SUCCESS
        return complete if held == len(files) else Status.SUCCESS_PARTIAL
    return next((Status(file.status) for file in files if file.status), Status.EMPTY_MANIFEST)


class FilesetProblem(ArchecError):
    """Base class of problems that end an ingest. ``status`` is the status of the result. ``due`` is the tist from which
    another attempt is useful, 0 if unknown. ``platform_id`` identifies the data set; empty if its URL does."""

    status = Status.PLATFORM_ERROR
    due = 0
    platform_id = ""


class PlatformError(FilesetProblem):
    """An answer is not as the platform documents it. The message begins with the path of the field."""


class PlatformHttpError(FilesetProblem):
    """A request to the platform or the landing page failed, or was answered with an error."""

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
    """Access to the data set is restricted. ``due`` is the end of an embargo, ``item`` what is known about it."""

    status = Status.PLATFORM_RESTRICTED

    def __init__(self, message: str, *, due: int = 0, item: FilesetPlatformItem | None = None) -> None:
        super().__init__(message)
        self.due, self.item = due, item


class FilesetPlatformScopeError(FilesetProblem):
    """The request is not for one version of one data set. ``members`` lists what could be requested instead."""

    status = Status.PLATFORM_SCOPE

    def __init__(self, message: str, *, members: Sequence[str | None] = ()) -> None:
        known = [one for one in members if one]
        listed = f": {', '.join(known[:20])}{' ...' if len(known) > 20 else ''}" if known else ""
        super().__init__(message + listed)


class EmptyManifest(FilesetProblem):
    """The data set has no files."""

    status = Status.EMPTY_MANIFEST


class NoPlatformMatch(FilesetProblem):
    """No platform matches the URL."""

    status = Status.NO_PLATFORM_MATCH


class UploadFailed(FilesetProblem):
    """An upload failed, or the item does not have the files that were sent."""

    status = Status.ERROR_ARCHIVEORG_UPLOAD


class BadRequest(FilesetProblem):
    """The request cannot be understood."""

    status = Status.BAD_REQUEST
