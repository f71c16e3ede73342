"""The file of an OAI index beside an SQLite catalogue: what is in it, and how it is opened."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from archec.catalogue.sqlite_file import translated
from archec.errors import CatalogueError
from archec.oai.model import State

__all__ = ["connect"]

_APPLICATION = 0x61726F69
"""``PRAGMA application_id``: "aroi" in ASCII."""
_VERSION = 2
_SCHEMA = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation TEXT, rules TEXT, ready INTEGER,
    tobi_stamp INTEGER, tobi_id TEXT, fobi_stamp INTEGER, fobi_id TEXT,
    run INTEGER, batch INTEGER, stamp INTEGER, last INTEGER, archive TEXT, whole INTEGER
);
CREATE TABLE item (
    n INTEGER PRIMARY KEY, kind INTEGER NOT NULL, local TEXT NOT NULL UNIQUE, obi TEXT, stamp INTEGER NOT NULL,
    mark INTEGER NOT NULL, deleted INTEGER NOT NULL, sets TEXT NOT NULL, gone TEXT NOT NULL
);
CREATE TABLE member (
    s INTEGER NOT NULL, kind INTEGER NOT NULL, stamp INTEGER NOT NULL, n INTEGER NOT NULL, gone INTEGER NOT NULL,
    PRIMARY KEY (s, kind, stamp, n)
) WITHOUT ROWID;
CREATE TABLE path (path TEXT PRIMARY KEY, s INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE total (s INTEGER, kind INTEGER, items INTEGER NOT NULL, PRIMARY KEY (s, kind)) WITHOUT ROWID;
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is made where it is missing and made anew where it is of another version.

    It begins no transaction by itself. Raises :class:`CatalogueError` where the file is something else or cannot
    be opened.
    """
    with translated(path):
        db = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        with translated(path):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA cache_size = -32768")
            _prepare(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if application != _APPLICATION and tables:
        raise CatalogueError(f"{path}: this SQLite database is something else, not an OAI index of archec")
    if tables and db.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    if not db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'state'").fetchone()[0] or tables:
        for table in tables:
            db.execute(f"DROP TABLE {table}")
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        start = State(secrets.token_hex(4))
        db.execute(
            "INSERT INTO state VALUES (1, ?, '', 0, ?, ?, ?, ?, 0, 0, 0, 0, '', 0)",
            (start.generation, *start.tobis, *start.fobis),
        )
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")
