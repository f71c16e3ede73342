"""The OAI index beside an SQLite catalogue: one file of its own (``index_sqlite_file``).

``member`` has a row for each item and each set that it is in, ancestors and the whole too, so that any
page of any set is one range of its primary key: what it costs does not depend on where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

from archec.catalogue.model import Position
from archec.catalogue.sqlite_file import translated
from archec.errors import CatalogueError
from archec.oai.index import LEADS
from archec.oai.index_sqlite_file import connect
from archec.oai.model import KINDS, Cursor, Entry, ItemKind, Place, Query, Row, State
from archec.oai.names import ancestors

__all__ = ["SQLiteIndex"]

_ROW = "item.n, item.kind, item.stamp, item.local, item.obi, item.deleted, item.sets"
_IN = 500
_MOST_NUMBERS = 100_000
"""Numbers of sets that are remembered while writing."""
_ALL = 0
"""The number of the set of all items."""

_Held = tuple[int, int, int, int, str, str]
"""n, stamp, mark, deleted, sets, gone."""


class SQLiteIndex:
    """See :class:`archec.oai.index.Index`. A file of another version is emptied and made anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_lock, self._write_lock = RLock(), RLock()
        self._numbers: dict[str, int] = {}
        if not path.parent.is_dir():
            raise CatalogueError(f"{path}: there is no folder {path.parent}")
        self._writer = connect(path)
        try:
            self._reader = connect(path)
        except BaseException:
            self._writer.close()
            raise

    def close(self) -> None:
        """Lets go of the file."""
        with self._read_lock, self._write_lock, translated(self.path):
            self._reader.close()
            self._writer.close()

    # -- writing ----------------------------------------------------------------------------------

    def publish(self, entries: Sequence[Entry], state: State, clock: Callable[[], float]) -> int:
        """Brings in one lot; see the interface."""
        changed: dict[str, Entry] | None = None
        with self._write_lock, translated(self.path):
            for lead in LEADS:
                begun = int(clock()) + lead
                changed, stamp = self._write(entries, changed, state, begun)
                if not changed or not state.ready or clock() < stamp:
                    break
            else:
                raise CatalogueError(f"{self.path}: a lot takes more than {LEADS[-1]} s to write")
        return len(changed or {})

    def _write(
        self, entries: Sequence[Entry], again: dict[str, Entry] | None, state: State, begun: int
    ) -> tuple[dict[str, Entry], int]:
        """One transaction. ``again`` are the entries that changed in an attempt that took too long."""
        db = self._writer
        db.execute("BEGIN IMMEDIATE")
        try:
            last = db.execute("SELECT last FROM state").fetchone()[0]
            stamp = max(last, begun)
            wanted = {entry.local: entry for entry in entries}
            held = self._held(wanted)
            changed = {
                local: entry
                for local, entry in wanted.items()
                if (again is not None and local in again) or _differs(entry, held.get(local))
            }
            self._put(changed.values(), held, stamp if state.ready else None)
            newest = max([stamp] if state.ready else [last, *(entry.stamp for entry in changed.values())])
            self._put_state(state._replace(last=newest if changed else last))
            db.execute("COMMIT")
        except BaseException:
            self._numbers.clear()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return changed, stamp

    def _held(self, locals_: Iterable[str]) -> dict[str, _Held]:
        names = sorted(locals_)
        found: dict[str, _Held] = {}
        for i in range(0, len(names), _IN):
            part = names[i : i + _IN]
            marks = ",".join("?" * len(part))
            sql = f"SELECT local, n, stamp, mark, deleted, sets, gone FROM item WHERE local IN ({marks})"
            found.update((row[0], row[1:]) for row in self._writer.execute(sql, part))
        return found

    def _put(self, changed: Iterable[Entry], held: dict[str, _Held], stamp: int | None) -> None:
        db = self._writer
        fresh = db.execute("SELECT coalesce(max(n), 0) + 1 FROM item").fetchone()[0]
        items: list[tuple[object, ...]] = []
        out: list[tuple[int, int, int, int]] = []
        into: list[tuple[int, int, int, int, int]] = []
        totals: Counter[tuple[int, int]] = Counter()
        for entry in changed:
            kind = KINDS.index(entry.kind)
            old = held.get(entry.local)
            date = entry.stamp if stamp is None else stamp
            before: set[str] = set()
            if old is None:
                n, gone = fresh, list[str]()
                fresh += 1
            else:
                n = old[0]
                was = {*_split(old[4]), *_split(old[5])}
                gone = sorted(was - set(entry.sets))
                before = _expanded(was)
                out += [(self._number(path), kind, old[1], n) for path in before]
            now = _expanded(entry.sets)
            after = now | _expanded(gone)
            into += [(self._number(path), kind, date, n, path not in now) for path in after]
            for path in after - before:
                totals[self._number(path), kind] += 1
            obi = entry.obi if entry.obi != entry.local else None
            items.append(
                (n, kind, entry.local, obi, date, entry.mark, entry.deleted, " ".join(entry.sets), " ".join(gone))
            )
        db.executemany("DELETE FROM member WHERE s = ? AND kind = ? AND stamp = ? AND n = ?", sorted(out))
        db.executemany("INSERT INTO member VALUES (?, ?, ?, ?, ?)", sorted(into))
        db.executemany("REPLACE INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", items)
        add = "INSERT INTO total VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET items = items + excluded.items"
        db.executemany(add, [(*key, count) for key, count in sorted(totals.items())])

    def _number(self, path: str) -> int:
        """The number of a set, made where it is new. Always within the writer's transaction."""
        if not path:
            return _ALL
        number = self._numbers.get(path)
        if number is None:
            found = self._writer.execute("SELECT s FROM path WHERE path = ?", (path,)).fetchone()
            if found is None:
                found = self._writer.execute("SELECT coalesce(max(s), 0) + 1 FROM path").fetchone()
                self._writer.execute("INSERT INTO path VALUES (?, ?)", (path, found[0]))
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            number = self._numbers[path] = int(found[0])
        return number

    def _put_state(self, state: State) -> None:
        values = (
            state.rules, state.ready, *state.tobis, *state.fobis, *state.seen, state.last, state.archive, state.whole
        )  # fmt: skip
        self._writer.execute(
            "UPDATE state SET rules = ?, ready = ?, tobi_stamp = ?, tobi_id = ?, fobi_stamp = ?, fobi_id = ?,"
            " run = ?, batch = ?, stamp = ?, last = ?, archive = ?, whole = ?",
            values,
        )

    # -- reading ----------------------------------------------------------------------------------

    def state(self) -> State:
        """How far the index has come."""
        (row,) = self._fetch("SELECT * FROM state")
        return State(
            row[1], row[2], bool(row[3]), Cursor(row[4], row[5]), Cursor(row[6], row[7]), Position(*row[8:11]), row[11],
            row[12], bool(row[13]),
        )  # fmt: skip

    def page(self, query: Query, after: Place | None, limit: int) -> list[Row]:
        """One range of the primary key for each kind, merged."""
        number = self._known(query.set)
        if number is None:
            return []
        stamp, n = (query.start, -1) if after is None else (after.stamp, int(after.key))
        sql = (
            f"SELECT {_ROW}, member.gone, member.stamp FROM member JOIN item USING (n) WHERE s = ? AND member.kind = ?"
            " AND (member.stamp, member.n) > (?, ?) AND member.stamp <= ? ORDER BY member.stamp, member.n LIMIT ?"
        )
        found: list[tuple[object, ...]] = []
        for kind in query.kinds:
            found += self._fetch(sql, (number, KINDS.index(kind), stamp, n, query.end, limit))
        if len(query.kinds) > 1:
            found.sort(key=lambda row: (row[2], row[0]))
        return [_row(row) for row in found[:limit]]

    def count(self, query: Query) -> int:
        """From the totals less what lies outside; reads a range only where both ends are given."""
        number = self._known(query.set)
        if number is None:
            return 0
        many = 0
        for kind in query.kinds:
            key = (number, KINDS.index(kind))
            if query.start > 0:
                sql = "SELECT count(*) FROM member WHERE s = ? AND kind = ? AND stamp BETWEEN ? AND ?"
                many += int(str(self._fetch(sql, (*key, query.start, query.end))[0][0]))
                continue
            total = self._fetch("SELECT items FROM total WHERE s = ? AND kind = ?", key)
            beyond = self._fetch(
                "SELECT count(*) FROM member WHERE s = ? AND kind = ? AND stamp > ?", (*key, query.end)
            )
            many += (int(str(total[0][0])) if total else 0) - int(str(beyond[0][0]))
        return many

    def find(self, local: str) -> Row | None:
        """The item with this local part."""
        found = self._fetch(f"SELECT {_ROW}, 0, stamp FROM item WHERE local = ?", (local,))
        return _row(found[0]) if found else None

    def sets(self, after: str, limit: int) -> list[str]:
        """At most ``limit`` setSpecs greater than ``after``."""
        sql = "SELECT path FROM path WHERE path > ? ORDER BY path LIMIT ?"
        return [str(row[0]) for row in self._fetch(sql, (after, limit))]

    def earliest(self) -> int | None:
        """The least stamp of the set of all items."""
        found = [
            self._fetch("SELECT stamp FROM member WHERE s = ? AND kind = ? ORDER BY stamp LIMIT 1", (_ALL, kind))
            for kind in range(len(KINDS))
        ]
        return min((int(str(rows[0][0])) for rows in found if rows), default=None)

    def _known(self, path: str) -> int | None:
        if not path:
            return _ALL
        found = self._fetch("SELECT s FROM path WHERE path = ?", (path,))
        return int(str(found[0][0])) if found else None

    def _fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._read_lock, translated(self.path):
            return self._reader.execute(sql, parameters).fetchall()


def _differs(entry: Entry, held: _Held | None) -> bool:
    return held is None or (entry.mark, entry.deleted, " ".join(entry.sets)) != (held[2], bool(held[3]), held[4])


def _split(sets: str) -> list[str]:
    return sets.split(" ") if sets else []


def _expanded(leaves: Iterable[str]) -> set[str]:
    """The sets that an item is in: its own, those above them, and that of all items."""
    return {"", *(path for leaf in leaves for path in ancestors(leaf))}


def _row(row: Sequence[Any]) -> Row:
    n, kind, _, local, obi, deleted, sets, gone, stamp = row
    name: ItemKind = KINDS[kind]
    return Row(Place(stamp, str(n)), name, local, obi or local, bool(deleted), tuple(_split(sets)), bool(gone))
