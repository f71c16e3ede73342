"""The one exception tree of archec.

::

    ArchecError                     exit 1   a problem the operator can fix
     +-- ConfigError                exit 1   config.yaml is missing, invalid or refers to something that does not exist
     +-- UsageError                 exit 2   invalid arguments
     +-- LockHeld                   exit 4   another run holds the archive's lock
     +-- StorageFull                exit 1   no space left; everything committed is kept
     +-- StorageFailed              exit 1   the file system refused a read or a write
     +-- CorruptArchive             exit 6   the archive directory is inconsistent
     |    +-- CorruptJournal        exit 6   a required journal cannot be read
     |         +-- BrokenChain      exit 6   a batch of the journals does not continue the previous one
     +-- CatalogueError             exit 1   the catalogue's engine failed or is unavailable
     |    +-- CatalogueRefused      exit 1   the engine refuses a document because of its contents
     |    +-- CatalogueGone         exit 1   the database server is unavailable or refuses access
     +-- DataSetError               exit 1   a tarball or directory that cannot be read at all
     |    +-- DamagedDataSet        exit 8   a data set that is not whole; nothing is noted from it
     |    +-- RetractedDataSet      exit 2   a data set that the operator has retracted
     |    +-- UndatedDataSet        exit 2   a damaged data set to be salvaged that has no date
     +-- BadName                    exit 2   an argument is not a handle, a URL or a date
     +-- NotHeld                    exit 7   the archive holds no bytes of this obi at that time

Every error carries a ``message`` (what is wrong, with file, line or id), a ``hint`` (what to do
about it, may be empty) and, by its class, an ``exit_code`` for the command line and an
``http_status`` for the server. Invalid data from outside must never raise any other exception.
"""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
OUT_OF_RESOURCES = TOO_MANY_FILES | {errno.ENOMEM}
"""System errors of this machine, which say nothing about the file or host that was asked for."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Exit(IntEnum):
    """The exit codes of every archec command; ``docs/operations.md`` has the same table."""

    DONE = 0
    OPERATOR_ERROR = 1
    USAGE = 2
    LOSSES_HELD_BACK = 3
    LOCKED = 4
    BUDGET = 5
    CORRUPT = 6
    NOT_HELD = 7
    DAMAGED = 8
    NETWORK_DOWN = 9
    INTERRUPTED = 130


_GRAVEST = (
    Exit.USAGE,
    Exit.LOCKED,
    Exit.NOT_HELD,
    Exit.CORRUPT,
    Exit.OPERATOR_ERROR,
    Exit.INTERRUPTED,
    Exit.DAMAGED,
    Exit.NETWORK_DOWN,
    Exit.BUDGET,
    Exit.LOSSES_HELD_BACK,
)


def gravest(codes: Iterable[Exit]) -> Exit:
    """The exit code of a command to which several apply. Usage, lock and not held come first: a command that ends with
    one of them has done nothing else."""
    given = set(codes)
    return next((code for code in _GRAVEST if code in given), Exit.DONE)


def gravest_of_items(codes: Iterable[Exit]) -> Exit:
    """Like :func:`gravest`, for a command that handles several items, each with its own code: the usage error of one
    item counts only if there is no other error."""
    given = set(codes)
    worst = gravest(given - {Exit.USAGE})
    return Exit.USAGE if worst is Exit.DONE and Exit.USAGE in given else worst


class ArchecError(Exception):
    """Base class of all errors that archec raises deliberately."""

    exit_code: Exit = Exit.OPERATOR_ERROR
    http_status: int = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(ArchecError):
    """The configuration cannot be used."""


class UsageError(ArchecError):
    exit_code = Exit.USAGE
    http_status = 400


class LockHeld(ArchecError):
    exit_code = Exit.LOCKED
    http_status = 503


class StorageFull(ArchecError):
    """The file system has no space (ENOSPC, EDQUOT) left."""

    http_status = 503


class StorageFailed(ArchecError):
    """The file system refused a read or a write for a reason other than lack of space."""


class CorruptArchive(ArchecError):
    exit_code = Exit.CORRUPT


class CorruptJournal(CorruptArchive):
    """A run's journal is damaged in a way that an incomplete last write cannot explain. ``path`` is the journal, where
    it is known."""

    def __init__(self, message: str, *, hint: str = "", path: Path | None = None) -> None:
        restore = "'archec verify --repair-from COPY' restores a good journal from a second copy"
        super().__init__(message, hint=hint or restore)
        self.path = path


class BrokenChain(CorruptJournal):
    """A batch of the journals is valid, but does not continue the previous one: one was removed or rewritten."""


class CatalogueError(ArchecError):
    """The catalogue's engine failed, or its contents were not written by archec."""

    http_status = 503


class CatalogueRefused(CatalogueError):
    """The catalogue's engine refuses a document because of its contents."""


class CatalogueGone(CatalogueError):
    """The database server became unavailable; nothing is missing in the archive directory."""


class DataSetError(ArchecError):
    """A data set that cannot be opened or read at all."""


class DamagedDataSet(DataSetError):
    """A data set that is incomplete or fails one of its checks; nothing is noted from it.

    The message names the file and the place of the damage: the byte offset, and the member if it is known.
    """

    exit_code = Exit.DAMAGED


class RetractedDataSet(DataSetError):
    exit_code = Exit.USAGE


class UndatedDataSet(DataSetError):
    exit_code = Exit.USAGE


class BadName(ArchecError):
    exit_code = Exit.USAGE
    http_status = 400


class NotHeld(ArchecError):
    exit_code = Exit.NOT_HELD
    http_status = 404


def unreadable(path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    """The error for a file of the configuration that cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return ConfigError(f"{path}: cannot be read: {error}")
    return ConfigError(f"{path}: cannot be read: {error.strerror}", hint=hint_of(error, path))


def unreadable_directory(path: Path, error: OSError) -> DataSetError:
    """The error for a directory of a data set, or of several, that cannot be read."""
    return DataSetError(f"cannot read the directory {path}: {error.strerror}", hint=hint_of(error, path))


def failure(error: OSError, path: str | os.PathLike[str]) -> ArchecError:
    """The archec error for an error of the operating system, with the path: StorageFull if there is no space, else
    StorageFailed."""
    where = os.fspath(path)
    if error.errno in _FULL:
        hint = "free some space, or inodes (see 'df -i'), and start again; everything committed is kept"
        return StorageFull(f"{where}: {error.strerror}", hint=hint)
    return StorageFailed(f"{where}: {error.strerror or error}", hint=hint_of(error, where))


def is_out_of_resources(error: BaseException) -> bool:
    """Whether an error, or the error of the operating system that it was, says nothing about the file: this machine
    lacks something."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in OUT_OF_RESOURCES


class storage_errors:  # noqa: N801 - used like a function
    """``with storage_errors(path):`` converts an OSError with :func:`failure`."""

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise failure(error, self._path) from error


def hint_of(error: OSError, path: str | os.PathLike[str]) -> str:
    """The hint for a path that was refused: whose it is, or its directory, and to whom. For too many open files, how to
    allow more. Empty for other errors."""
    if error.errno in TOO_MANY_FILES:
        return "allow more open files (ulimit -n)"
    if not isinstance(error, PermissionError):
        return ""
    owner = next((os.stat(one).st_uid for one in (path, os.path.dirname(path) or ".") if os.path.exists(one)), None)
    user = os.geteuid()
    if owner == user:
        return "check its mode and those of its directories"
    return f"{f'it belongs to {user_name(owner)}, and ' if owner is not None else ''}this is run as {user_name(user)}"


def user_name(uid: int) -> str:
    """The name of a user, or the number if there is no such user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
