"""The embedded catalogue: one SQLite file, nothing to install.

Durability: a lot and the position it reaches are one transaction, in a write-ahead log with
``synchronous = NORMAL``. A killed process loses nothing that :meth:`SQLiteCatalogue.write` returned
from. A power cut may undo the last lots, whole, together with their position; the run journals are
the truth, and the next run replays them from the position that is left. So one fsync a lot would
buy nothing.

One catalogue object may be used from several threads (a lock is held for one page or one lot at a
time); other processes read while one writes. Iterators read page by page, by key, and hold no
transaction between pages, so that a long scan neither blocks nor swells the log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from archec.catalogue import sqlite_rows as rows
from archec.catalogue.interface import Counts
from archec.catalogue.model import (
    Changes,
    DataSet,
    DueFobi,
    Fobi,
    Position,
    Run,
    TextPlace,
    Tobi,
    TobiState,
)
from archec.catalogue.sqlite_file import TABLES, connect, translated
from archec.catalogue.url import redact
from archec.errors import CatalogueError

__all__ = ["SQLiteCatalogue"]

Row = tuple[Any, ...]
_T = TypeVar("_T")
_PAGE = 2000
"""Narrow rows read at once."""
_DOC_PAGE = 500
"""Whole documents read at once."""
_IN = 500
"""Parameters of one IN list."""

_PUT_TOBI = (
    "INSERT INTO mi (id, last, state, h, stamp, n) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " last = excluded.last, state = excluded.state, h = excluded.h, stamp = excluded.stamp"
)
_PUT_FOBI = (
    "INSERT INTO mo (id, due, stamp, held, n) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " due = excluded.due, stamp = excluded.stamp, held = excluded.held, n = excluded.n"
)
_MENTION = "INSERT INTO mo (id, due, stamp) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING"


class SQLiteCatalogue:
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    With ``create`` a missing or empty file becomes an empty catalogue. Opening raises
    :class:`CatalogueError` where the file is missing, foreign, damaged or of another schema version.
    A full disk raises :class:`archec.errors.StorageFull` and undoes the lot.
    """

    def __init__(self, url: str, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.url = redact(url)
        self.path = path
        self.read_only = read_only
        self._lock = RLock()
        self._connection = connect(path, create=create, read_only=read_only)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Applies one lot as one transaction."""
        with self._transaction() as db:
            self._put_tobis(db, changes.tobis)
            self._put_fobis(db, changes.fobis)
            db.executemany(_MENTION, ((fobi,) for fobi in sorted(changes.mentioned)))
            _put_places(db, "vi", changes.vi)
            _put_places(db, "vo", changes.vo)
            db.executemany("REPLACE INTO runs VALUES (?, ?)", map(rows.run_row, changes.runs))
            db.executemany("REPLACE INTO data_sets VALUES (?, ?)", map(rows.data_set_row, changes.data_sets))
            db.executemany("REPLACE INTO seen VALUES (?, ?)", ((seen.key, seen.ids) for seen in changes.seen))
            db.execute("REPLACE INTO position VALUES (1, ?, ?, ?)", changes.position)

    def clear(self) -> None:
        """Empties the catalogue in one transaction; the file keeps its size and uses it again."""
        with self._transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")

    def _put_tobis(self, db: sqlite3.Connection, tobis: Sequence[Tobi]) -> None:
        latest = {tobi.id: tobi for tobi in tobis}
        ids = sorted(latest)
        numbers = _numbers(db, "mi", ids)
        db.executemany("REPLACE INTO mi_doc VALUES (?, ?)", ((numbers[i], rows.tobi_doc(latest[i])) for i in ids))
        db.executemany(_PUT_TOBI, [rows.tobi_row(latest[i], numbers[i]) for i in ids])

    def _put_fobis(self, db: sqlite3.Connection, fobis: Sequence[Fobi]) -> None:
        latest = {fobi.id: fobi for fobi in fobis}
        ids = sorted(latest)
        numbers = _numbers(db, "mo", ids)
        db.executemany("REPLACE INTO mo_doc VALUES (?, ?)", ((numbers[i], rows.fobi_doc(latest[i])) for i in ids))
        db.executemany(_PUT_FOBI, [rows.fobi_row(latest[i], numbers[i]) for i in ids])

    # -- reading by id ----------------------------------------------------------------------------

    def position(self) -> Position:
        """How far this catalogue has followed the journals."""
        found = self._fetch("SELECT run, batch, stamp FROM position")
        return Position(*found[0]) if found else Position()

    def tobis(self, ids: Collection[str]) -> dict[str, Tobi]:
        """Those of ``ids`` that are known."""
        sql = "SELECT mi.id, doc FROM mi JOIN mi_doc USING (n) WHERE mi.id IN"
        return {row[0]: rows.tobi_of(row[1]) for row in self._by_ids(sql, ids)}

    def fobis(self, ids: Collection[str]) -> dict[str, Fobi]:
        """Those of ``ids`` that are known."""
        sql = "SELECT mo.id, doc FROM mo LEFT JOIN mo_doc USING (n) WHERE mo.id IN"
        return {row[0]: rows.fobi_of(*row) for row in self._by_ids(sql, ids)}

    def text(self, which: Literal["vi", "vo"], checksum: str) -> TextPlace | None:
        """The place of one text; None also for what is no checksum."""
        try:
            blob = rows.checksum_blob(checksum)
        except CatalogueError:
            return None
        found = self._fetch(f"SELECT text, tist, id FROM {which} WHERE text = ?", (blob,))
        return rows.place_of(found[0]) if found else None

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [rows.run_of(doc) for (doc,) in self._fetch("SELECT doc FROM runs ORDER BY tist")]

    def data_sets(self) -> list[DataSet]:
        """All known data sets, oldest first."""
        return [rows.data_set_of(doc) for (doc,) in self._fetch("SELECT doc FROM data_sets ORDER BY tist")]

    def seen(self, key: str) -> bytes | None:
        """The ids of one seen set."""
        found = self._fetch("SELECT ids FROM seen WHERE key = ?", (key,))
        return bytes(found[0][0]) if found else None

    def counts(self) -> Counts:
        """Counts by newest state; reads the narrow tables whole (0.1 s a million)."""
        ((tobis, tobis_held),) = self._fetch("SELECT count(*), count(state) FROM mi")
        ((fobis, ever, fobis_held),) = self._fetch("SELECT count(*), count(held), coalesce(sum(held), 0) FROM mo")
        return Counts(tobis_held, tobis - tobis_held, fobis_held, ever - fobis_held, fobis - ever)

    # -- reading in order -------------------------------------------------------------------------

    def scan_tobis(self, after: str = "") -> Iterator[TobiState]:
        """All tobis with id > ``after`` by id; pages of the narrow table."""
        sql = "SELECT id, last, state, h FROM mi WHERE id > ? ORDER BY id LIMIT ?"
        page = self._fetch(sql, (after, _PAGE))
        while page:
            yield from map(rows.state_of, page)
            page = self._fetch(sql, (page[-1][0], _PAGE))

    def all_tobis(self, after: str = "") -> Iterator[Tobi]:
        """Whole documents with id > ``after``, by id."""
        sql = "SELECT mi.id, doc FROM mi JOIN mi_doc USING (n) WHERE mi.id > ? ORDER BY mi.id LIMIT ?"
        return (rows.tobi_of(doc) for _, doc in self._paged(sql, (after,), lambda row: row[:1]))

    def all_fobis(self, after: str = "") -> Iterator[Fobi]:
        """Whole documents with id > ``after``, by id."""
        sql = "SELECT mo.id, doc FROM mo LEFT JOIN mo_doc USING (n) WHERE mo.id > ? ORDER BY mo.id LIMIT ?"
        return (rows.fobi_of(fobi, doc) for fobi, doc in self._paged(sql, (after,), lambda row: row[:1]))

    def changed_tobis(self, stamp: int, after: str = "", limit: int = 1000) -> list[Tobi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        sql = (
            "SELECT doc FROM mi JOIN mi_doc USING (n) WHERE (mi.stamp, mi.id) > (?, ?) ORDER BY mi.stamp, mi.id LIMIT ?"
        )
        return [rows.tobi_of(doc) for (doc,) in self._fetch(sql, (stamp, after, limit))]

    def changed_fobis(self, stamp: int, after: str = "", limit: int = 1000) -> list[Fobi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        sql = (
            "SELECT mo.id, doc FROM mo LEFT JOIN mo_doc USING (n) WHERE (mo.stamp, mo.id) > (?, ?)"
            " ORDER BY mo.stamp, mo.id LIMIT ?"
        )
        return [rows.fobi_of(fobi, doc) for fobi, doc in self._fetch(sql, (stamp, after, limit))]

    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        """Fobis with due <= ``before`` by (due, id), beginning behind ``after``."""
        sql = "SELECT due, id FROM mo WHERE (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?"
        start = (*(after or (-1, "")), before)
        return (DueFobi(*row) for row in self._paged(sql, start, lambda row: (*row, before), _PAGE))

    def texts(self, which: Literal["vi", "vo"]) -> Iterator[TextPlace]:
        """All text places, by checksum."""
        sql = f"SELECT text, tist, id FROM {which} WHERE text > ? ORDER BY text LIMIT ?"
        return map(rows.place_of, self._paged(sql, (b"",), lambda row: row[:1], _PAGE))

    # -- the connection ---------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the file; the last connection folds the log into it."""
        with self._lock, translated(self.path):
            self._connection.close()

    def _fetch(self, sql: str, parameters: Row = ()) -> list[Row]:
        with self._lock, translated(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def _by_ids(self, sql: str, ids: Collection[str]) -> Iterator[Row]:
        """The rows of ``ids``, in parts, so that any number may be asked for."""
        for part in _parts([obi for obi in ids if _is_text(obi)]):
            yield from self._fetch(f"{sql} ({_marks(part)})", tuple(part))

    def _paged(self, sql: str, start: Row, key: Callable[[Row], Row], size: int = _DOC_PAGE) -> Iterator[Row]:
        """All rows, page by page; ``key`` makes the next page's parameters of a page's last row."""
        page = self._fetch(sql, (*start, size))
        while page:
            yield from page
            page = self._fetch(sql, (*key(page[-1]), size))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise CatalogueError(f"{self.path}: this catalogue was opened for reading only")
        db = self._connection
        with self._lock, translated(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise


def _numbers(db: sqlite3.Connection, table: str, ids: list[str]) -> dict[str, int]:
    """The document number of each id: the one it has, else the next free one."""
    numbers: dict[str, int] = {}
    for part in _parts(ids):
        sql = f"SELECT id, n FROM {table} WHERE n IS NOT NULL AND id IN ({_marks(part)})"
        numbers.update(db.execute(sql, part))
    fresh = db.execute(f"SELECT coalesce(max(n), 0) + 1 FROM {table}_doc").fetchone()[0]
    for obi in ids:
        if obi not in numbers:
            numbers[obi] = fresh
            fresh += 1
    return numbers


def _put_places(db: sqlite3.Connection, table: str, places: Sequence[TextPlace]) -> None:
    """Adds places; one that is there is replaced by a lesser one only."""
    sql = (
        f"INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT (text) DO UPDATE SET tist = excluded.tist, id = excluded.id"
        " WHERE (excluded.tist, excluded.id) < (tist, id)"
    )
    db.executemany(sql, sorted(map(rows.place_row, places)))


def _parts(ids: list[str]) -> Iterator[list[str]]:
    return (ids[i : i + _IN] for i in range(0, len(ids), _IN))


def _marks(part: Sequence[object]) -> str:
    return ",".join("?" * len(part))


def _is_text(obi: str) -> bool:
    """Whether SQLite can hold this id at all: a lone surrogate is not text, and so never known."""
    try:
        obi.encode()
    except UnicodeEncodeError:
        return False
    return True
