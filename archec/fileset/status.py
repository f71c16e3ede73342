"""Statuses: the result of a request, and of each file of a manifest; with what to do about it.

The exceptions become the status of a result, never that of a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from archec.errors import ArchecError
from archec.fileset.model import FilesetPlatformItem


class Status(str, Enum):
    """The status of a result, or of a file. :data:`ADVICE` says what each means."""

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
        """Whether a result with this status holds the data set whole."""
        return self.value.startswith("success") and self is not Status.SUCCESS_PARTIAL

    @property
    def is_whole(self) -> bool:
        """Whether a file with this status is held."""
        return self in (Status.SUCCESS, Status.EXISTS)


class Advice(NamedTuple):
    """What a status means, what to do about it, and whether it is archec's own (not of the first proposal)."""

    meaning: str
    remedy: str
    ours: bool = False


ADVICE: Mapping[Status, Advice] = {
    Status.SUCCESS: Advice("all files are held and verified", "nothing"),
    Status.SUCCESS_FILE: Advice("the data set's only file is held and verified", "nothing"),
    Status.SUCCESS_EXISTING: Advice("this version was already held", "nothing; --force fetches it again"),
    Status.SUCCESS_PARTIAL: Advice("some files are held, others are not", "see the files' statuses; try again", True),
    Status.BAD_REQUEST: Advice(
        "neither a URL, DOI, handle or id, nor JSON with a base_url", "correct the request", True
    ),
    Status.NO_PLATFORM_MATCH: Advice(
        "the URL is not of a known platform, and its page describes no data set", "--direct, if it is a file itself"
    ),
    Status.NO_STRATEGY_HELPER: Advice("the strategy is not supported here", "select another with --strategy"),
    Status.PLATFORM_SCOPE: Advice(
        "not one version of one data set: a concept, a collection, a part", "request one that the message names"
    ),
    Status.PLATFORM_RESTRICTED: Advice("embargoed, or requires a login", "wait until the date, or ask the owner"),
    Status.PLATFORM_404: Advice("the platform has no such data set, or it is not published", "check the identifier"),
    Status.PLATFORM_GONE: Advice("the platform has withdrawn it; its tombstone is kept", "nothing", True),
    Status.PLATFORM_HTTP_ERROR: Advice("the platform does not answer, or answers with an error", "try again later"),
    Status.PLATFORM_ERROR: Advice(
        "the platform's answer is not as documented; the message names the field",
        "report it",
    ),
    Status.EMPTY_MANIFEST: Advice("the data set has no files", "nothing"),
    Status.TOO_LARGE_SIZE: Advice("larger than fileset.max_total_size; nothing was fetched", "--max-total, --include"),
    Status.TOO_MANY_FILES: Advice(
        "more files than fileset.max_file_count; nothing was fetched", "--max-files, --include"
    ),
    Status.BUDGET: Advice("the time of the run was exhausted", "try again", True),
    Status.NOT_PROCESSED: Advice("not reached before the run ended, or it is a dry run", "try again"),
    Status.NO_CAPTURE: Advice("the host of the landing page does not answer", "try again later"),
    Status.TERMINAL_BAD_STATUS: Advice("the landing page is answered with an error", "check the URL; try again later"),
    Status.REDIRECT_LOOP: Advice("redirects form a loop", "try again later"),
    Status.REDIRECTS_EXCEEDED: Advice("more than 10 redirects", "try again later"),
    Status.BAD_REDIRECT: Advice("the URL, or one that it redirects to, cannot be requested", "check the URL"),
    Status.EMPTY_BLOB: Advice("the landing page is empty", "try again later"),
    Status.BODY_TOO_LARGE: Advice("the page, or the platform's answer, is larger than 100 MB", "report it"),
    Status.SKIP_URL_BLOCKLIST: Advice("fetch.deny contains the address", "nothing"),
    Status.ROBOTS: Advice("robots.txt does not allow the landing page", "nothing", True),
    Status.BLOCKED_ADDRESS: Advice("the host is a private address", "fetch.allow_networks, if it is yours", True),
    Status.TIMEOUT: Advice("the server is too slow, or silent", "try again later"),
    Status.ERROR_INTERNAL: Advice("archec failed at this request; the log has the traceback", "report it", True),
    Status.ERROR_STORAGE: Advice(
        "the disk failed, or is full; complete files are kept", "free some space, try again", True
    ),
    Status.ERROR_PLATFORM_DOWNLOAD: Advice(
        "a file could not be fetched, or a page was received instead", "try again later"
    ),
    Status.ERROR_ARCHIVEORG_UPLOAD: Advice("an upload failed, or does not match what was sent", "try again later"),
    Status.BUNDLE_INCOMPLETE: Advice("the bundle lacks files of the manifest", "see the files' statuses", True),
    Status.MISMATCH: Advice("a file does not match the manifest in a way without its own status", "report it"),
    Status.MISMATCH_SIZE: Advice("the size of a file does not match the manifest", "try again; report it"),
    Status.MISMATCH_MD5: Advice("the MD5 of a file does not match the manifest", "try again; report it"),
    Status.MISMATCH_SHA1: Advice("the SHA-1 of a file does not match the manifest", "try again; report it"),
    Status.MISMATCH_SHA256: Advice("the SHA-256 of a file does not match the manifest", "try again; report it"),
    Status.UNSAFE_PATH: Advice(
        "a file's path would leave the directory; it was not fetched", "report it to the platform"
    ),
    Status.SKIPPED_LINK_ONLY: Advice("the platform has a link only, no file", "follow the link yourself", True),
    Status.EXISTS: Advice("of a file: these bytes were already held and are linked", "nothing"),
}


class FilesetProblem(ArchecError):
    """Base of what ends an ingest; ``status`` is that of the result. ``due``: the tist from which on another try is
    worth it, 0 if nothing says so."""

    status = Status.PLATFORM_ERROR
    due = 0


class PlatformError(FilesetProblem):
    """An answer is not as the platform documents it; the message begins with the path of the field."""


class PlatformHttpError(FilesetProblem):
    """The platform or the landing page does not answer, or with an error."""

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
    """Not everybody may have the data set; ``due`` is the end of an embargo, ``item`` what is known of it."""

    status = Status.PLATFORM_RESTRICTED

    def __init__(self, message: str, *, due: int = 0, item: FilesetPlatformItem | None = None) -> None:
        super().__init__(message)
        self.due, self.item = due, item


class FilesetPlatformScopeError(FilesetProblem):
    """What was requested is not one version of one data set; ``members`` are those that could be requested."""

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
