"""The OAI index next to an SQLite catalogue, in a file of its own.

``member`` has a row for each item and each of its sets, including their ancestors and the set of all items, so that
every page of every set is one range of its primary key: the cost of a page does not depend on its position.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from archec.errors import CatalogueError
from archec.oai.index import ITEM_KINDS, Index, IndexEntry, IndexRow, IndexState, ListQuery, SortKey
from archec.oai.sets import with_ancestors
from archec.sqlite import Database, Role, make_tables

_ROLE = Role("the OAI index", CatalogueError, "delete it: 'archec serve' recreates it")
_APPLICATION = 0x61726F69
"""``PRAGMA application_id``: "aroi" in ASCII."""
_VERSION = 3
_SCHEMA = """
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), doc BLOB NOT NULL);
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
_ROW = "item.n, item.kind, item.local, item.obi, item.deleted, item.sets"
_MAX_NUMBERS = 100_000
"""Maximum number of set numbers kept in memory while writing."""
_ALL = 0
"""The number of the set of all items."""

_Old = tuple[int, int, int, int, str, str]
"""An item in the index: n, stamp, mark, deleted, sets, gone."""


class SQLiteIndex(Index):
    """:class:`archec.oai.index.Index` in an SQLite file. A file of another version is emptied. Thread-safe: readers do
    not wait for a writer."""

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise CatalogueError(f"{path}: there is no directory {path.parent}")
        self.name = str(path)
        self._numbers: dict[str, int] = {}
        self._writer = _open(path)
        try:
            self._reader = _open(path)
        except BaseException:
            self._writer.close()
            raise

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    # -- writing ----------------------------------------------------------------------------------

    def _write(
        self, chunk: Mapping[str, IndexEntry], state: IndexState, stamp: int, *, force: bool
    ) -> tuple[int, dict[str, IndexEntry]]:
        try:
            with self._writer.transaction() as db:
                last = _state(self._writer).last
                stamp = max(last, stamp)
                old = self._old(chunk)
                changed = {local: entry for local, entry in chunk.items() if force or _differs(entry, old.get(local))}
                self._put(db, changed.values(), old, stamp if state.ready else None)
                if changed:
                    last = stamp if state.ready else max(last, *(entry.stamp for entry in changed.values()))
                db.execute("UPDATE state SET doc = ?", (msgspec.json.encode(state._replace(last=last)),))
        except BaseException:
            self._numbers.clear()  # numbers assigned in a transaction that was rolled back are assigned again
            raise
        return stamp, changed

    def _old(self, chunk: Iterable[str]) -> dict[str, _Old]:
        """The items of a chunk that are in the index."""
        names = tuple(chunk)
        marks = ",".join("?" * len(names))
        sql = f"SELECT local, n, stamp, mark, deleted, sets, gone FROM item WHERE local IN ({marks})"
        return {row[0]: row[1:] for row in self._writer.fetch(sql, names)}

    def _put(
        self, db: sqlite3.Connection, changed: Iterable[IndexEntry], old: Mapping[str, _Old], stamp: int | None
    ) -> None:
        """Writes items with their memberships, with this ``stamp`` or, if it is None, each with its own."""
        next_n = db.execute("SELECT coalesce(max(n), 0) + 1 FROM item").fetchone()[0]
        items: list[tuple[object, ...]] = []
        removed: list[tuple[int, int, int, int]] = []
        added: list[tuple[int, int, int, int, bool]] = []
        totals: Counter[tuple[int, int]] = Counter()
        for entry in changed:
            kind = ITEM_KINDS.index(entry.kind)
            date = entry.stamp if stamp is None else stamp
            gone: list[str] = []
            before: set[str] = set()
            if entry.local in old:
                n, old_stamp, _, _, sets, left = old[entry.local]
                known = {*sets.split(), *left.split()}
                gone = sorted(known - set(entry.sets))
                before = with_ancestors(known)
                removed += [(self._number(path), kind, old_stamp, n) for path in before]
            else:
                n, next_n = next_n, next_n + 1
            now = with_ancestors(entry.sets)
            after = now | with_ancestors(gone)
            added += [(self._number(path), kind, date, n, path not in now) for path in after]
            totals.update((self._number(path), kind) for path in after - before)
            obi = entry.obi if entry.obi != entry.local else None
            items.append(
                (n, kind, entry.local, obi, date, entry.mark, entry.deleted, " ".join(entry.sets), " ".join(gone))
            )
        # In the order of the keys, so that each page of a table is written only once.
        db.executemany("DELETE FROM member WHERE s = ? AND kind = ? AND stamp = ? AND n = ?", sorted(removed))
        db.executemany("INSERT INTO member VALUES (?, ?, ?, ?, ?)", sorted(added))
        db.executemany("REPLACE INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", items)
        add = "INSERT INTO total VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET items = items + excluded.items"
        db.executemany(add, [(*key, count) for key, count in sorted(totals.items())])

    def _number(self, path: str) -> int:
        """The number of a set, which is assigned if the set is new. Only within the writer's transaction."""
        if not path:
            return _ALL
        number = self._numbers.get(path)
        if number is None:
            found = self._writer.fetch("SELECT s FROM path WHERE path = ?", (path,))
            if not found:
                found = self._writer.fetch("SELECT coalesce(max(s), 0) + 1 FROM path")
                self._writer.fetch("INSERT INTO path VALUES (?, ?)", (path, found[0][0]))
            if len(self._numbers) >= _MAX_NUMBERS:
                self._numbers.clear()
            number = self._numbers[path] = int(found[0][0])
        return number

    # -- reading ----------------------------------------------------------------------------------

    def state(self) -> IndexState:
        return _state(self._reader)

    def page(self, query: ListQuery, after: SortKey | None, limit: int) -> list[IndexRow]:
        number = self._known(query.set)
        if number is None:
            return []
        stamp, n = (query.start, -1) if after is None else (after.stamp, int(after.tie))
        sql = (
            f"SELECT {_ROW}, member.stamp, member.gone FROM member JOIN item USING (n) WHERE s = ? AND member.kind = ?"
            " AND (member.stamp, member.n) > (?, ?) AND member.stamp <= ? ORDER BY member.stamp, member.n LIMIT ?"
        )
        found: list[tuple[Any, ...]] = []
        for kind in query.kinds:
            found += self._reader.fetch(sql, (number, ITEM_KINDS.index(kind), stamp, n, query.end, limit))
        if len(query.kinds) > 1:
            found.sort(key=lambda row: (row[6], row[0]))
        return [_row(row) for row in found[:limit]]

    def count(self, query: ListQuery) -> int:
        number = self._known(query.set)
        if number is None:
            return 0
        count = 0
        for kind in query.kinds:
            key = (number, ITEM_KINDS.index(kind))
            if query.start > 0:
                sql = "SELECT count(*) FROM member WHERE s = ? AND kind = ? AND stamp BETWEEN ? AND ?"
                count += self._reader.fetch(sql, (*key, query.start, query.end))[0][0]
                continue
            # The usual case: hardly anything is after the end, so counting that reads only a short range.
            total = self._reader.fetch("SELECT items FROM total WHERE s = ? AND kind = ?", key)
            sql = "SELECT count(*) FROM member WHERE s = ? AND kind = ? AND stamp > ?"
            count += (total[0][0] if total else 0) - self._reader.fetch(sql, (*key, query.end))[0][0]
        return count

    def find(self, local: str) -> IndexRow | None:
        found = self._reader.fetch(f"SELECT {_ROW}, stamp, 0 FROM item WHERE local = ?", (local,))
        return _row(found[0]) if found else None

    def sets(self, after: str, limit: int) -> list[str]:
        sql = "SELECT path FROM path WHERE path > ? ORDER BY path LIMIT ?"
        return [row[0] for row in self._reader.fetch(sql, (after, limit))]

    def _known(self, path: str) -> int | None:
        """The number of a set, None if there is no such set."""
        if not path:
            return _ALL
        found = self._reader.fetch("SELECT s FROM path WHERE path = ?", (path,))
        return found[0][0] if found else None


def _state(db: Database) -> IndexState:
    return msgspec.json.decode(db.fetch("SELECT doc FROM state")[0][0], type=IndexState)


def _differs(entry: IndexEntry, old: _Old | None) -> bool:
    return old is None or (entry.mark, entry.deleted, " ".join(entry.sets)) != (old[2], bool(old[3]), old[4])


def _row(row: Sequence[Any]) -> IndexRow:
    n, kind, local, obi, deleted, sets, stamp, gone = row
    return IndexRow(
        SortKey(stamp, str(n)), ITEM_KINDS[kind], local, obi or local, bool(deleted), tuple(sets.split()), bool(gone)
    )


def _open(path: Path) -> Database:
    """Opens the file; creates it if it is missing, and empties it if it has another version. Raises
    :class:`CatalogueError` if it is something else or cannot be opened."""
    db = Database(path, _ROLE)
    try:
        db.use_wal()
        db.fetch("PRAGMA cache_size = -32768")
        if not _is_current(db):
            with db.transaction() as connection:
                if not _is_current(db):  # another process may have made it in the meantime
                    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                    for (table,) in tables:
                        connection.execute(f"DROP TABLE {table}")
                    make_tables(connection, _SCHEMA, _APPLICATION, _VERSION)
                    state = IndexState(secrets.token_hex(4))
                    connection.execute("INSERT INTO state VALUES (1, ?)", (msgspec.json.encode(state),))
    except BaseException:
        db.close()
        raise
    return db


def _is_current(db: Database) -> bool:
    """Whether the file is an index of this version; False for an empty file and for an older index."""
    if db.is_empty():
        return False
    application, version = db.kind()
    if application != _APPLICATION:
        raise CatalogueError(f"{db.path}: this SQLite database is something else, not an OAI index of archec")
    return version == _VERSION
