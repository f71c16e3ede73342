"""SQLite files: opened in the same way everywhere, with errors that name the file and a remedy.

Reading a file with a write-ahead log needs the ``-shm`` file next to it, which even a reader creates. If that is
impossible, as on a read-only mount, and the log is missing or empty, the file is opened as ``immutable``. Otherwise
both files must be there as the last writer left them.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from archec.closing import Closing
from archec.errors import ArchecError, StorageFull, hint_of

_BUSY = 30.0
"""Seconds to wait for another process's lock."""
_FAULTS = (sqlite3.Error, OverflowError, UnicodeError)
"""What SQLite and its binding raise."""
_LEAST_FREE = 1_000_000
"""Free bytes below which an input/output error is treated as a full disk."""
_LEAST_INODES = 2
"""Free inodes below which SQLite cannot create its -wal and -shm."""
_LONGEST = 500
"""Bytes of a path that SQLite takes, with those of the files next to it."""
_LEAST_INDEX = 32768
"""Bytes of a -shm in use. One that found no space is smaller."""
_PERMISSIONS = "check the owner and mode of the file, its directory and SQLite's -wal and -shm next to it"
_LOG = "and a log (-wal) was left next to it: copy both to a writable directory, and use them there"


class Role(NamedTuple):
    """The role of a file: its name in messages (``the catalogue``), the class of its errors, the hint for a damaged
    file, and the class of errors about a value that cannot be stored."""

    name: str
    error: type[ArchecError]
    damaged: str = ""
    refusal: type[ArchecError] | None = None


class Database(Closing):
    """A connection in autocommit mode that threads may share; a context manager.

    ``read_only``: nothing is written, and no new files are left next to it. ``create``: a missing file is created.
    Errors of SQLite are raised as the error of the ``role`` or as :class:`StorageFull`.
    """

    def __init__(self, path: Path, role: Role, *, create: bool = True, read_only: bool = False) -> None:
        self.path, self.role, self.read_only = path, role, read_only
        self.excludes_others = read_only and _lacks_index(path)
        self.lock = RLock()
        if os.path.exists(path) and not os.path.isfile(path):  # SQLite would wait for a named pipe
            raise role.error(f"{path}: is not a file", hint=role.damaged)
        with self.translated():
            self.connection = sqlite3.connect(
                _uri(path, create=create and not read_only, read_only=read_only),
                uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False,
            )  # fmt: skip
            try:
                if read_only:
                    self.connection.execute("PRAGMA query_only = ON")
                    if self.excludes_others:  # then it needs no index
                        self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            except sqlite3.Error:
                self.connection.close()
                raise
        self._file = self._present()

    @property
    def is_replaced(self) -> bool:
        """Whether another file, or none, is now at the path: what is read is what the old one held."""
        return self._present() != self._file

    def _present(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = os.stat(self.path)
            return found.st_dev, found.st_ino
        return None

    def close(self) -> None:
        """Closes the file; the last connection checkpoints the log."""
        with self.lock, self.translated():
            self.connection.close()

    def fetch(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with self.lock:
            try:
                return self.rows(sql, self.connection.execute(sql, parameters))
            except _FAULTS as error:
                raise self._error(error) from error

    def rows(self, sql: str, found: sqlite3.Cursor) -> list[Any]:
        """All rows of a query; a subclass may check them."""
        return found.fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read within it is of one moment, whatever other processes write meanwhile."""
        with self.lock:
            if self.connection.in_transaction:
                yield
                return
            try:
                self.fetch("BEGIN")
                yield
            finally:
                if self.connection.in_transaction:  # some errors end it
                    self.fetch("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commits at its end, rolls back after an exception. Other writers wait."""
        if self.read_only:
            raise self.role.error(f"{self.path}: {self.role.name} was opened for reading only")
        with self.lock, self.translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def use_wal(self) -> None:
        """Enables the write-ahead log, so that readers and a writer do not block each other. A power failure may lose
        the last transactions, but damages nothing."""
        if self.fetch("PRAGMA journal_mode = WAL")[0][0] != "wal":
            raise self.role.error(
                f"{self.path}: SQLite cannot keep a write-ahead log here", hint="put it on a local file system"
            )
        self.fetch("PRAGMA synchronous = NORMAL")

    def is_empty(self) -> bool:
        return not self.fetch("SELECT count(*) FROM sqlite_master")[0][0]

    def kind(self) -> tuple[int, int]:
        """The application id of the file and the version of its schema."""
        return self.fetch("PRAGMA application_id")[0][0], self.fetch("PRAGMA user_version")[0][0]

    def make(self, schema: str, application: int, version: int) -> None:
        """Creates the tables, unless another process has done so."""
        with self.transaction() as db:
            if self.is_empty():
                make_tables(db, schema, application, version)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Converts exceptions of SQLite and its binding to the role's error or :class:`StorageFull`."""
        try:
            yield
        except _FAULTS as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> ArchecError:
        path, text = self.path, str(error)
        name, kind, damaged, _ = self.role
        if "disk is full" in text or (is_full(path) and ("disk I/O" in text or _lacks_inodes(path))):
            hint = "free some space, or inodes (see 'df -i'), and start again; everything committed is kept"
            return StorageFull(f"{path}: no space left for {name}", hint=hint)
        if isinstance(error, (sqlite3.DataError, sqlite3.IntegrityError, OverflowError, UnicodeEncodeError)):
            return (self.role.refusal or kind)(f"{path}: a value cannot be stored in {name}: {error}")
        if "locked" in text or "busy" in text:
            hint = "check whether another archec or an SQLite shell has an open transaction"
            if is_full(path):
                hint = "the disk is full, so only one process at a time can read it: free some space"
            return kind(f"{path}: another process has kept {name} locked for {_BUSY:.0f} s", hint=hint)
        if "readonly" in text:
            return kind(f"{path}: {name} cannot be written to", hint=unwritable(path) or _PERMISSIONS)
        if "not a database" in text:
            return kind(f"{path}: this is not an SQLite database", hint=damaged)
        # Before Python 3.11 a message that names something which is not UTF-8 is empty.
        if not text or isinstance(error, UnicodeDecodeError) or "malformed" in text or "decode to UTF-8" in text:
            return kind(f"{path}: {name} is damaged: {text or 'a name in it is not UTF-8'}", hint=damaged)
        if "unable to open" in text:
            unreadable = path.exists() and not os.access(path, os.R_OK)
            why = _refused("read", path) if unreadable else unwritable(path)
            hint = f"{why}, {_LOG}" if why and has_log(path) else why or _PERMISSIONS
            if len(os.fsencode(path.absolute())) > _LONGEST:
                hint = "SQLite opens no file with so long a path: put it elsewhere"
            return kind(f"{path}: {name} cannot be opened", hint=hint)
        hint = "check the disk, its file system and your quota" if "disk I/O" in text else ""
        return kind(f"{path}: SQLite refused: {text}", hint=hint)


def make_tables(db: sqlite3.Connection, schema: str, application: int, version: int) -> None:
    """Creates the tables and sets the application id, within a transaction."""
    for statement in schema.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {application}")
    db.execute(f"PRAGMA user_version = {version}")


def unwritable(path: Path) -> str:
    """Why the SQLite file at ``path``, which need not exist, cannot be written; empty if it can.

    SQLite also writes to its directory. If that does not exist, its first existing parent is checked.
    """
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    for one in (folder, path):
        if one.exists() and not os.access(one, os.W_OK):
            try:
                read_only = bool(os.statvfs(one).f_flag & os.ST_RDONLY)
            except OSError:
                read_only = False
            return f"{one} is on a read-only file system" if read_only else _refused("write", one)
    return ""


def _refused(what: str, path: Path) -> str:
    return f"no permission to {what} {path}; {hint_of(PermissionError(), path)}"


def has_log(path: Path) -> bool:
    """Whether there is a write-ahead log next to the file."""
    return path.with_name(path.name + "-wal").exists()


def _uri(path: Path, *, create: bool, read_only: bool) -> str:
    mode, more = "rwc" if create else "rw", ""
    if read_only and (unwritable(path) or _lacks_inodes(path)):
        mode, more = "ro", "" if _is_live(path) else "&immutable=1"
    elif read_only and has_log(path) and not _lacks_index(path):
        # SQLite removes -wal and -shm after a reader that could have written; after a read-only one it leaves them.
        mode = "ro"
    return f"{path.absolute().as_uri()}?mode={mode}{more}"


def _is_live(path: Path) -> bool:
    """Whether the write-ahead log has contents or an index, or cannot be examined."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    try:
        return log.exists() and (log.stat().st_size > 0 or index.exists())
    except OSError:
        return True


def _lacks_index(path: Path) -> bool:
    """Whether the index of the write-ahead log (-shm) is missing, so nobody has the file open, and there is no space
    for it."""
    index = path.with_name(path.name + "-shm")
    return is_full(path) and (not index.exists() or index.stat().st_size < _LEAST_INDEX)


def is_full(path: Path) -> bool:
    """Whether there is next to no space left for the SQLite file at ``path`` and the files next to it."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_FREE or _lacks_inodes(path)
    except OSError:
        return False


def _lacks_inodes(path: Path) -> bool:
    """Whether there are too few inodes left. Some file systems do not count them."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_files > 0 and disk.f_favail < _LEAST_INODES
