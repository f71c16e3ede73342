"""Writing obis into the tables of an SQLite catalogue, with what the lists need beside them.

Whatever follows from an obi's document (its entries in ``mi_at``, its returns in ``mi_back``, who names a fobi) is
taken from the old document and from the new one, and only the difference is written: what a list says is what the
documents say, whatever the order in which they came. All within the transaction of the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from archec.catalogue import sqlite_rows as rows
from archec.catalogue.lists import Place, named_by
from archec.catalogue.model import Changes, Fobi, TextPlace, Tobi
from archec.history import History

__all__ = ["marks", "parts", "put_obis", "put_places"]

_IN = 500
"""Parameters of one IN list."""
_MENTIONED_AT_ONCE = 64
"""URLs after which it is asked whether one of them was known: in most lots hardly any is."""

_PUT_TOBI = (
    "INSERT INTO mi (id, last, state, h, stamp, n) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " last = excluded.last, state = excluded.state, h = excluded.h, stamp = excluded.stamp"
)
_PUT_FOBI = (
    "INSERT INTO mo (id, due, stamp, held, n, last, type, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET due = excluded.due, stamp = excluded.stamp, held = excluded.held,"
    " n = excluded.n, last = excluded.last, type = excluded.type, outcome = excluded.outcome"
)
_MENTION = "INSERT INTO mo (id, due, stamp, ref) VALUES (?, 0, 0, ?) ON CONFLICT (id) DO NOTHING"
_REFER = (
    "INSERT OR IGNORE INTO mo_ref SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM mo WHERE id = ?1 AND ref = ?2)"
)

_Pair = tuple[str, int]


class _Said(NamedTuple):
    """What the lists take from a document that is replaced."""

    history: History
    names: set[str]


def put_obis(db: sqlite3.Connection, changes: Changes) -> None:
    """The tobis and fobis of a lot, those it mentions, and who names them."""
    gone, fresh = _put_tobis(db, changes.tobis)
    _put_fobis(db, changes.fobis)
    db.executemany("DELETE FROM mo_ref WHERE id = ? AND n = ?", gone)
    db.executemany("UPDATE mo SET ref = NULL WHERE id = ? AND ref = ?", gone)
    _mention(db, sorted(set(changes.mentioned)), fresh)


def put_places(db: sqlite3.Connection, table: str, places: Sequence[TextPlace]) -> None:
    """Adds places; one that is there is replaced by a lesser one only."""
    sql = (
        f"INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT (text) DO UPDATE SET tist = excluded.tist, id = excluded.id"
        " WHERE (excluded.tist, excluded.id) < (tist, id)"
    )
    db.executemany(sql, sorted(map(rows.place_row, places)))


def parts(ids: list[str]) -> Iterator[list[str]]:
    """A list in parts that one statement can take."""
    return (ids[i : i + _IN] for i in range(0, len(ids), _IN))


def marks(part: Collection[object]) -> str:
    """The question marks of an IN list."""
    return ",".join("?" * len(part))


def _put_tobis(db: sqlite3.Connection, tobis: Sequence[Tobi]) -> tuple[list[_Pair], list[_Pair]]:
    """Pairs of a URL and the number of a tobi: of those that no longer name it, and of those that name it now."""
    latest = {tobi.id: tobi for tobi in tobis}
    ids = sorted(latest)
    numbers, old = _known(db, "mi", ids)
    db.executemany("REPLACE INTO mi_doc VALUES (?, ?)", ((numbers[i], rows.tobi_doc(latest[i])) for i in ids))
    db.executemany(_PUT_TOBI, [rows.tobi_row(latest[i], numbers[i]) for i in ids])
    _put_times(db, "mi", [(i, latest[i].history) for i in ids], old)
    gone: list[_Pair] = []
    fresh: list[_Pair] = []
    for obi in ids:
        n, names = numbers[obi], named_by(latest[obi])
        if obi in old:
            gone += [(url, n) for url in old[obi].names - names]
            names -= old[obi].names
        fresh += [(url, n) for url in names]
    return gone, fresh


def _put_fobis(db: sqlite3.Connection, fobis: Sequence[Fobi]) -> None:
    latest = {fobi.id: fobi for fobi in fobis}
    ids = sorted(latest)
    numbers, old = _known(db, "mo", ids)
    db.executemany("REPLACE INTO mo_doc VALUES (?, ?)", ((numbers[i], rows.fobi_doc(latest[i])) for i in ids))
    db.executemany(_PUT_FOBI, [rows.fobi_row(latest[i], numbers[i]) for i in ids])
    _put_times(db, "mo", [(i, latest[i].history) for i in ids], old)


def _known(db: sqlite3.Connection, table: str, ids: list[str]) -> tuple[dict[str, int], dict[str, _Said]]:
    """The document number of each id: the one it has, else the next free one; and what old documents say."""
    numbers: dict[str, int] = {}
    old: dict[str, _Said] = {}
    for part in parts(ids):
        sql = f"SELECT id, n, doc FROM {table} JOIN {table}_doc USING (n) WHERE id IN ({marks(part)})"
        for obi, n, doc in db.execute(sql, part):
            numbers[obi] = n
            old[obi] = _Said(*rows.history_and_names(doc))
    fresh = db.execute(f"SELECT coalesce(max(n), 0) + 1 FROM {table}_doc").fetchone()[0]
    for obi in ids:
        if obi not in numbers:
            numbers[obi] = fresh
            fresh += 1
    return numbers, old


def _put_times(
    db: sqlite3.Connection, table: str, obis: list[tuple[str, History]], old: dict[str, _Said]
) -> None:
    """The entries and the returns of these obis, which come by id; in sorted order, as the tables are."""
    gone: dict[str, list[Place]] = {"at": [], "back": []}
    fresh: dict[str, list[Place]] = {"at": [], "back": []}
    for obi, history in obis:
        tists = history.tists
        before = old.get(obi)
        if before is None and None not in history.states:
            fresh["at"] += [Place(tist, obi) for tist in tists]
            continue
        for which, had, has in (
            ("at", before.history.tists if before else (), tists),
            ("back", _returns(before.history) if before else (), _returns(history)),
        ):
            if had != has:
                gone[which] += [Place(tist, obi) for tist in had if tist not in has]
                fresh[which] += [Place(tist, obi) for tist in has if tist not in had]
    for which in ("at", "back"):
        db.executemany(f"DELETE FROM {table}_{which} WHERE tist = ? AND id = ?", gone[which])
        db.executemany(f"INSERT OR IGNORE INTO {table}_{which} VALUES (?, ?)", sorted(fresh[which]))


def _returns(history: History) -> tuple[int, ...]:
    if None not in history.states:
        return ()
    return tuple(incidence.tist for incidence in history.incidences() if incidence.kind == "returned")


def _mention(db: sqlite3.Connection, urls: list[str], pairs: list[_Pair]) -> None:
    """Adds the fobis that are not there yet; the first tobi that names one stands in its row."""
    first = dict(reversed(pairs))
    others: set[_Pair] = set()
    by_url: dict[str, list[int]] = {}
    for url, n in pairs:
        by_url.setdefault(url, []).append(n)
    for start in range(0, len(urls), _MENTIONED_AT_ONCE):
        part = urls[start : start + _MENTIONED_AT_ONCE]
        before = db.total_changes
        db.executemany(_MENTION, [(url, first.get(url)) for url in part])
        if db.total_changes - before == len(part):
            for url in part:
                if len(by_url.get(url, ())) == 1:
                    del by_url[url]
    others.update((url, n) for url, numbers in by_url.items() for n in numbers)
    db.executemany(_REFER, sorted(others))
