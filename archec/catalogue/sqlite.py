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

from collections.abc import Collection, Iterator
from typing import Literal

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
from archec.catalogue.sqlite_connection import PAGE
from archec.catalogue.sqlite_file import TABLES
from archec.catalogue.sqlite_lists import SQLiteLists
from archec.catalogue.sqlite_put import put_obis, put_places
from archec.errors import CatalogueError

__all__ = ["SQLiteCatalogue"]


class SQLiteCatalogue(SQLiteLists):
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    With ``create`` a missing or empty file becomes an empty catalogue. Opening raises
    :class:`CatalogueError` where the file is missing, foreign, damaged or of another schema version.
    A full disk raises :class:`archec.errors.StorageFull` and undoes the lot.
    """

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Applies one lot as one transaction."""
        with self._transaction() as db:
            put_obis(db, changes)
            put_places(db, "vi", changes.vi)
            put_places(db, "vo", changes.vo)
            db.executemany("REPLACE INTO runs VALUES (?, ?)", map(rows.run_row, changes.runs))
            db.executemany("REPLACE INTO data_sets VALUES (?, ?)", map(rows.data_set_row, changes.data_sets))
            db.executemany("REPLACE INTO seen VALUES (?, ?)", ((seen.key, seen.ids) for seen in changes.seen))
            db.execute("REPLACE INTO position VALUES (1, ?, ?, ?)", changes.position)

    def clear(self) -> None:
        """Empties the catalogue in one transaction; the file keeps its size and uses it again."""
        with self._transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")

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

    def newest_runs(self, before: int, limit: int) -> list[Run]:
        """At most ``limit`` runs with tist < ``before``, newest first."""
        sql = "SELECT doc FROM runs WHERE tist < ? ORDER BY tist DESC LIMIT ?"
        return [rows.run_of(doc) for (doc,) in self._fetch(sql, (before, limit))]

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
        page = self._fetch(sql, (after, PAGE))
        while page:
            yield from map(rows.state_of, page)
            page = self._fetch(sql, (page[-1][0], PAGE))

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
        return (DueFobi(*row) for row in self._paged(sql, start, lambda row: (*row, before), PAGE))

    def texts(self, which: Literal["vi", "vo"]) -> Iterator[TextPlace]:
        """All text places, by checksum."""
        sql = f"SELECT text, tist, id FROM {which} WHERE text > ? ORDER BY text LIMIT ?"
        return map(rows.place_of, self._paged(sql, (b"",), lambda row: row[:1], PAGE))
