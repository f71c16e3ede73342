"""The file of an SQLite catalogue: its schema, how it is opened and checked, its errors' names.

``mi`` and ``mo`` are narrow tables for scans and orders; the whole document of an obi is JSON text
in ``mi_doc`` and ``mo_doc`` under the number ``n`` that its narrow row carries (a fobi that was
only mentioned has none). Text checksums are 16-byte blobs: they come in random order, and half
the bytes are half the pages written.

For the lists: ``mi_at`` and ``mo_at`` have a row for each entry of each history, ``mi_back`` and ``mo_back`` one for
each return; two partial indexes have what is lost. ``mo.ref`` is the number of the first tobi that named this fobi,
which is nearly always the only one; ``mo_ref`` has the others.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archec.catalogue.sqlite_readonly import reading_uri, unwritable
from archec.errors import ArchecError, CatalogueError, StorageFull

__all__ = ["SCHEMA_VERSION", "TABLES", "connect", "translated"]

APPLICATION = 0x61726368
"""``PRAGMA application_id``: "arch" in ASCII."""

SCHEMA_VERSION = 2
"""``PRAGMA user_version`` of the tables below; to be raised with every change of theirs."""

TABLES = (
    "position", "mi", "mi_doc", "mi_at", "mi_back", "mo", "mo_doc", "mo_at", "mo_back", "mo_ref", "vi", "vo", "runs",
    "data_sets", "seen",
)  # fmt: skip

_BUSY = 30.0
"""Seconds to wait for another process's lock (writers hold it for one lot, some 0.1 s)."""

_LEAST_FREE = 1_000_000
"""Bytes free below which an input/output error is taken for a full disk."""

_SCHEMA = """
CREATE TABLE position (one INTEGER PRIMARY KEY CHECK (one = 1), run INTEGER, batch INTEGER, stamp INTEGER);
CREATE TABLE mi (
    id TEXT PRIMARY KEY, last INTEGER NOT NULL, state TEXT, h TEXT, stamp INTEGER NOT NULL, n INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE mi_doc (n INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE INDEX mi_stamp ON mi (stamp, id);
CREATE INDEX mi_lost ON mi (last, id) WHERE state IS NULL AND last > 0;
CREATE TABLE mi_at (tist INTEGER, id TEXT, PRIMARY KEY (tist, id)) WITHOUT ROWID;
CREATE TABLE mi_back (tist INTEGER, id TEXT, PRIMARY KEY (tist, id)) WITHOUT ROWID;
CREATE TABLE mo (
    id TEXT PRIMARY KEY, due INTEGER NOT NULL, stamp INTEGER NOT NULL, held INTEGER, n INTEGER, ref INTEGER,
    last INTEGER, type TEXT, outcome TEXT
) WITHOUT ROWID;
CREATE INDEX mo_lost ON mo (last, id) WHERE held = 0;
CREATE TABLE mo_at (tist INTEGER, id TEXT, PRIMARY KEY (tist, id)) WITHOUT ROWID;
CREATE TABLE mo_back (tist INTEGER, id TEXT, PRIMARY KEY (tist, id)) WITHOUT ROWID;
CREATE TABLE mo_ref (id TEXT, n INTEGER, PRIMARY KEY (id, n)) WITHOUT ROWID;
CREATE TABLE mo_doc (n INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE INDEX mo_due ON mo (due, id);
CREATE INDEX mo_stamp ON mo (stamp, id);
CREATE TABLE vi (text BLOB PRIMARY KEY, tist INTEGER NOT NULL, id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE vo (text BLOB PRIMARY KEY, tist INTEGER NOT NULL, id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (tist INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE data_sets (tist INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE seen (key TEXT PRIMARY KEY, ids BLOB NOT NULL);
"""

_NEW = "'archec init' makes one, 'archec rebuild' fills it from the archive folder"
_ACCESS = "check owners and modes of it, of its folder and of SQLite's -wal and -shm beside it"
_LOG = "and a log (-wal) that was left beside it: copy both to a folder that you may write, and set database to it"
_REBUILD = "move the file away and run 'archec rebuild': the archive folder holds all that it said"


def connect(path: Path, *, create: bool, read_only: bool) -> sqlite3.Connection:
    """A checked connection in autocommit mode. Raises :class:`CatalogueError`."""
    try:
        if create and not path.parent.is_dir():
            raise CatalogueError(f"{path}: there is no folder {path.parent}")
        if not create and not path.exists():
            raise CatalogueError(f"{path}: there is no such catalogue", hint=_NEW)
    except OSError as error:
        raise CatalogueError(f"{path}: the catalogue cannot be reached: {error.strerror}") from error
    create = create and not read_only
    with translated(path):
        connection = sqlite3.connect(
            _uri(path, create=create, read_only=read_only),
            uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
    try:
        with translated(path):
            _prepare(connection, path, create=create, read_only=read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, *, create: bool, read_only: bool) -> None:
    if _is_empty(connection):
        if not create:
            raise CatalogueError(f"{path}: this file is empty, not a catalogue", hint=_NEW)
        connection.execute("PRAGMA page_size = 8192")
        _use_wal(connection, path)
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):  # no other process made it in the meantime
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    _check(connection, path)
    # 64 MB, as vi is written in random order; said after the page size, by which SQLite divides it.
    connection.execute("PRAGMA cache_size = -65536")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
        return
    _use_wal(connection, path)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 8192")
    connection.execute("PRAGMA journal_size_limit = 100000000")


def _uri(path: Path, *, create: bool, read_only: bool) -> str:
    """How the file is opened: one that is read only leaves nothing beside it that was not there."""
    if read_only and unwritable(path):
        return reading_uri(path)
    # Of a reader that might write, SQLite removes -wal and -shm at the end; of one that may not, it leaves them.
    mode = "rwc" if create else "ro" if read_only and _has_log(path) else "rw"
    return f"{path.as_uri()}?mode={mode}"


def _has_log(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise CatalogueError(
            f"{path}: SQLite cannot keep a write-ahead log here",
            hint="put the catalogue on a local file system, or use mongodb://",
        )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION:
        raise CatalogueError(f"{path}: this SQLite database is something else, not a catalogue of archec")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise CatalogueError(
            f"{path}: this catalogue has schema version {version}, this archec works with {SCHEMA_VERSION}",
            hint=_REBUILD if version < SCHEMA_VERSION else "use the archec that made it, or a newer one",
        )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns what SQLite and its binding raise into :class:`CatalogueError` or :class:`StorageFull`."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise CatalogueError(f"{path}: a value cannot be kept in the catalogue: {error}") from error


def _translate(error: sqlite3.Error, path: Path) -> ArchecError:
    text = str(error)
    if "disk is full" in text or ("disk I/O" in text and _is_full(path)):
        return StorageFull(f"{path}: no space left for the catalogue; what was written before is kept")
    if "locked" in text or "busy" in text:
        return CatalogueError(
            f"{path}: another process has kept the catalogue locked for {_BUSY:.0f} s",
            hint="is another archec, or an SQLite shell, in the middle of a transaction?",
        )
    if "readonly" in text:
        return CatalogueError(f"{path}: the catalogue cannot be written to", hint=unwritable(path) or _ACCESS)
    if "not a database" in text:
        return CatalogueError(f"{path}: this is not an SQLite database", hint=_REBUILD)
    if "malformed" in text or "decode to UTF-8" in text:
        return CatalogueError(f"{path}: the catalogue is damaged: {text}", hint=_REBUILD)
    if "unable to open" in text:
        why = unwritable(path)
        hint = f"{why}, {_LOG}" if why and _has_log(path) else why or _ACCESS
        return CatalogueError(f"{path}: the catalogue cannot be opened", hint=hint)
    return CatalogueError(f"{path}: SQLite refused: {text}")


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_FREE
    except OSError:
        return False
