"""The one exception tree of archec.

::

    ArchecError                     exit 1   something an operator can act on
     +-- ConfigError                exit 1   config.yaml is missing, wrong or names what is not there
     +-- UsageError                 exit 2   arguments that make no sense together
     +-- LockHeld                   exit 4   another run holds the archive's lock
     +-- StorageFull                exit 1   no space left: what was committed is kept
     +-- StorageFailed              exit 1   the file system refused a read or a write
     +-- StdoutFailed               exit 1   stdout is full or closed: what was to be printed is not
     +-- Occupied                   exit 6   other bytes are already held under a (tist, id)
     +-- CorruptArchive             exit 6   the archive folder contradicts itself
     |    +-- CorruptJournal        exit 6   a run's journal cannot be read where it must be
     |         +-- BrokenChain      exit 6   a batch of the journals does not follow the one before it
     +-- CatalogueError             exit 1   the catalogue's engine refused or is not there
     |    +-- CatalogueRefused      exit 1   the engine does not take a document, for what is in it
     |    +-- CatalogueGone         exit 1   the database server went away in mid-run
     +-- DataSetError               exit 1   a tarball or directory that cannot be read at all
     |    +-- DamagedDataSet        exit 8   a data set that is not whole: nothing of it is noted
     |    +-- RetractedDataSet      exit 2   a data set that the operator has retracted
     +-- BadName                    exit 2   what was given is not a handle, a URL or a date
     +-- NotHeld                    exit 7   the archive holds no bytes of this obi at that time

Every error carries a ``message`` (what is wrong, with file, line or id), a ``hint`` (what to do
about it, may be empty) and, by its class, an ``exit_code`` for the command line and an
``http_status`` for the server. Data from outside must never surface as any other exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

__all__ = [
    "ArchecError",
    "BadName",
    "BrokenChain",
    "CatalogueError",
    "CatalogueGone",
    "CatalogueRefused",
    "ConfigError",
    "CorruptArchive",
    "CorruptJournal",
    "DamagedDataSet",
    "DataSetError",
    "Exit",
    "LockHeld",
    "NotHeld",
    "Occupied",
    "RetractedDataSet",
    "StdoutFailed",
    "StorageFailed",
    "StorageFull",
    "UsageError",
    "gravest",
]


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
    Exit.CORRUPT,
    Exit.OPERATOR_ERROR,
    Exit.INTERRUPTED,
    Exit.DAMAGED,
    Exit.NETWORK_DOWN,
    Exit.BUDGET,
    Exit.LOSSES_HELD_BACK,
)


def gravest(codes: Iterable[Exit]) -> Exit:
    """The exit code of a command to which several apply. A code without a rank (usage, lock) stands alone: a command
    that ends with it has done nothing else."""
    given = set(codes) - {Exit.DONE}
    unranked = given.difference(_GRAVEST)
    return min(unranked) if unranked else next((code for code in _GRAVEST if code in given), Exit.DONE)


class ArchecError(Exception):
    """Base of all errors that archec raises on purpose."""

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
    """Arguments that make no sense together."""

    exit_code = Exit.USAGE
    http_status = 400


class LockHeld(ArchecError):
    """Another run works on this archive."""

    exit_code = Exit.LOCKED
    http_status = 503


class StorageFull(ArchecError):
    """The file system has no space (ENOSPC, EDQUOT) left."""


class StorageFailed(ArchecError):
    """The file system refused a read or a write for another reason than space."""


class StdoutFailed(ArchecError):
    """What was to be printed cannot be: stdout is full or closed."""


class Occupied(ArchecError):
    """Other bytes are held at this path; held bytes are never altered (invariant 1)."""

    exit_code = Exit.CORRUPT


class CorruptArchive(ArchecError):
    """The archive folder contradicts itself or is not one."""

    exit_code = Exit.CORRUPT


class CorruptJournal(CorruptArchive):
    """A run's journal is damaged in a place that a torn last write cannot explain."""


class BrokenChain(CorruptJournal):
    """A batch of the journals is sound, and does not follow the one before it: one was removed or rewritten."""


class CatalogueError(ArchecError):
    """The catalogue's engine refused, or what it holds is not what archec writes."""


class CatalogueRefused(CatalogueError):
    """The catalogue's engine does not take a document, for what is in it."""


class CatalogueGone(CatalogueError):
    """The database server cannot be reached any more; the archive folder has lost nothing."""

    http_status = 503


class DataSetError(ArchecError):
    """A data set that cannot be opened or read at all."""


class DamagedDataSet(DataSetError):
    """A data set that is not whole, or does not pass a check that it carries: it notes nothing.

    The message names the file and the place of the damage: the byte on disk, and the member as far as it is known.
    """

    exit_code = Exit.DAMAGED


class RetractedDataSet(DataSetError):
    """A data set that was retracted: it is not gathered again."""

    exit_code = Exit.USAGE


class BadName(ArchecError):
    """Not a handle, not a URL that the archive keeps, not a date."""

    exit_code = Exit.USAGE
    http_status = 400


class NotHeld(ArchecError):
    """The archive holds no bytes of this obi at that time."""

    exit_code = Exit.NOT_HELD
    http_status = 404
