"""The lists over a whole SQLite catalogue: each page is one range of an index."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from archec.catalogue import sqlite_rows as rows
from archec.catalogue.lists import START, FileState, ObiKind, Place, TobiFiles
from archec.catalogue.model import Tobi
from archec.catalogue.sqlite_connection import PAGE, SQLiteConnection

__all__ = ["SQLiteLists"]

_SAMPLE = 300
"""Tobis looked at to part the ids."""
_LOST = {
    "tobi": "SELECT last, id FROM mi WHERE state IS NULL AND likely(last > 0)",
    "fobi": "SELECT last, id FROM mo WHERE held = 0",
}


class SQLiteLists(SQLiteConnection):
    """The part of :class:`archec.catalogue.sqlite.SQLiteCatalogue` that reads lists."""

    def incidences(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """Every entry of every history by (tist, id), beginning behind ``after``."""
        table = f"{_table(kind)}_at"
        return self._places(f"SELECT tist, id FROM {table} WHERE (tist, id) > (?, ?) ORDER BY tist, id", after)

    def lost(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """The obis that are lost now by (tist of the loss, id), beginning behind ``after``."""
        return self._places(f"{_LOST[kind]} AND (last, id) > (?, ?) ORDER BY last, id", after)

    def returned(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """Every return of an obi that had been lost by (tist of the return, id), beginning behind ``after``."""
        table = f"{_table(kind)}_back"
        return self._places(f"SELECT tist, id FROM {table} WHERE (tist, id) > (?, ?) ORDER BY tist, id", after)

    def _places(self, sql: str, after: Place) -> Iterator[Place]:
        return (Place(*row) for row in self._paged(f"{sql} LIMIT ?", after, lambda row: row, PAGE))

    def referring(self, urls: Collection[str], limit: int) -> dict[str, list[Tobi]]:
        """At most ``limit`` of the tobis that name each of these URLs, by id."""
        found: dict[str, list[Tobi]] = {}
        first = "SELECT mo.id, doc FROM mo JOIN mi_doc ON mi_doc.n = mo.ref WHERE mo.id IN"
        for url, doc in self._by_ids(first, urls):
            found[url] = [rows.tobi_of(doc)]
        for url in {row[0] for row in self._by_ids("SELECT DISTINCT id FROM mo_ref WHERE id IN", urls)}:
            more = "SELECT doc FROM mo_ref JOIN mi_doc USING (n) WHERE id = ? ORDER BY n LIMIT ?"
            listed = found.setdefault(url, [])
            listed += [rows.tobi_of(doc) for (doc,) in self._fetch(more, (url, max(0, limit - len(listed))))]
        return {url: sorted(listed, key=lambda tobi: tobi.id) for url, listed in found.items()}

    def tobi_files(self, after: str = "", before: str = "") -> Iterator[TobiFiles]:
        """The tobis that ever were held, with id > ``after`` and, if given, id < ``before``, by id."""
        end = " AND id < ?" if before else ""
        sql = f"SELECT id, doc FROM mi JOIN mi_doc USING (n) WHERE id > ?{end} ORDER BY id LIMIT ?"
        rest = (before,) if before else ()
        listed = (rows.files_of(doc) for _, doc in self._paged(sql, (after, *rest), lambda row: (row[0], *rest)))
        return (tobi for tobi in listed if tobi is not None)

    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        """Those of ``urls`` that are known."""
        sql = "SELECT id, held, type, outcome, last FROM mo WHERE id IN"
        return {row[0]: rows.file_state_of(row[1:]) for row in self._by_ids(sql, urls)}

    def split(self, parts: int, least: int) -> list[str]:
        """The quantiles of a sample that is even by number: ids and numbers grow together, mostly."""
        ((most,),) = self._fetch("SELECT coalesce(max(n), 0) FROM mi_doc")
        parts = min(parts, most // least)
        if parts < 2:
            return []
        step = max(1, most // _SAMPLE)
        sql = "SELECT doc FROM mi_doc WHERE n = ?"
        ids = sorted(rows.tobi_of(doc).id for n in range(step, most + 1, step) for (doc,) in self._fetch(sql, (n,)))
        return sorted({ids[len(ids) * i // parts] for i in range(1, parts)}) if ids else []


def _table(kind: ObiKind) -> str:
    return "mi" if kind == "tobi" else "mo"
