"""The index follows the catalogue, in small lots, without ever missing or doubling an item.

The catalogue gives what changed in the order of (stamp, id), and its stamps never go back. But several
batches may bear the stamp of one second, and the later of them may hold lesser ids. So a pass reads no
further than the stamp at which the catalogue stood when the pass began, and the next pass begins with
that stamp again, from its least id: entries that are known change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from xxhash import xxh3_64_intdigest

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Fobi, Position, Tobi
from archec.history import History
from archec.oai.index import Index
from archec.oai.model import Cursor, Entry
from archec.oai.names import fobi_local, tobi_local
from archec.oai.sets import SetRules

__all__ = ["Follower", "Progress", "fobi_entry", "tobi_entry"]

_Obi = TypeVar("_Obi", Tobi, Fobi)


class Progress(NamedTuple):
    """What one step did: items that changed in the index, and whether it is level with the catalogue."""

    changed: int
    level: bool


class Follower:
    """Brings an index up to date with a catalogue. One at a time works on an index best; two do no harm."""

    def __init__(
        self,
        catalogue: Catalogue,
        index: Index,
        rules: SetRules,
        *,
        lot: int = 500,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue, self._index, self._rules, self._lot, self._clock = catalogue, index, rules, lot, clock

    def catch_up(self) -> int:
        """Steps until the index is level; how many items changed."""
        return sum(progress.changed for progress in self.steps())

    def steps(self) -> Iterator[Progress]:
        """One pass, lot by lot; the last step is level. Raises CatalogueError as its engines do."""
        state = self._index.state()
        if state.rules != self._rules.checksum:
            # Sets are reckoned anew for every item; those that differ get a new datestamp.
            state = state._replace(rules=self._rules.checksum, tobis=Cursor(), fobis=Cursor(), seen=Position())
        goal = self._catalogue.position()
        if (state.seen == goal and state.ready) or _behind(goal, state.seen):
            # Level; or the catalogue is being rebuilt: it will say again what the index knows.
            yield Progress(0, True)
            return
        state = state._replace(tobis=state.tobis._replace(id=""), fobis=state.fobis._replace(id=""))
        for tobis in self._changed(self._catalogue.changed_tobis, state.tobis, goal.stamp):
            state = state._replace(tobis=Cursor(tobis[-1].stamp, tobis[-1].id))
            entries = [tobi_entry(tobi, self._rules) for tobi in tobis if tobi.history]
            yield Progress(self._index.publish(entries, state, self._clock), False)
        for fobis in self._changed(self._catalogue.changed_fobis, state.fobis, goal.stamp):
            state = state._replace(fobis=Cursor(fobis[-1].stamp, fobis[-1].id))
            entries = [fobi_entry(fobi, self._rules) for fobi in fobis if fobi.history]
            yield Progress(self._index.publish(entries, state, self._clock), False)
        level = Cursor(goal.stamp)
        state = state._replace(ready=True, tobis=level, fobis=level, seen=goal)
        self._index.publish([], state, self._clock)
        yield Progress(0, True)

    def _changed(self, read: Callable[[int, str, int], list[_Obi]], cursor: Cursor, most: int) -> Iterator[list[_Obi]]:
        while True:
            page = read(cursor.stamp, cursor.id, self._lot)
            lot = [obi for obi in page if obi.stamp <= most]
            if lot:
                cursor = Cursor(lot[-1].stamp, lot[-1].id)
                yield lot
            if len(lot) < self._lot:
                return


def tobi_entry(tobi: Tobi, rules: SetRules) -> Entry:
    """A tobi as the index is to have it."""
    mark = _mark(tobi.stamp, tobi.history)
    return Entry("tobi", tobi_local(tobi.id), tobi.id, tobi.stamp, mark, not tobi.history.held, rules.of_tobi(tobi))


def fobi_entry(fobi: Fobi, rules: SetRules) -> Entry:
    """A fobi as the index is to have it."""
    mark = _mark(fobi.stamp, fobi.history)
    return Entry("fobi", fobi_local(fobi.id), fobi.id, fobi.stamp, mark, not fobi.history.held, rules.of_fobi(fobi))


def _mark(stamp: int, history: History) -> int:
    """A number that differs whenever an item's record does: 63 bits, as SQLite's integers have a sign."""
    told = f"{stamp} {list(history)}"
    return xxh3_64_intdigest(told.encode()) >> 1


def _behind(goal: Position, seen: Position) -> bool:
    return goal[:2] < seen[:2]
