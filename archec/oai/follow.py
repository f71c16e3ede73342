"""The index follows the catalogue, in small lots, without ever missing or doubling an item.

The catalogue gives what changed in the order of (stamp, id), and its stamps never go back. But several
batches may bear the stamp of one second, and the later of them may hold lesser ids. So a pass reads no
further than the stamp at which the catalogue stood when the pass began, and the next pass begins with
that stamp again, from its least id: entries that are known change nothing.

A catalogue may also be rebuilt, restored from an older copy, or be that of another archive. One that is
rebuilt is waited for. After that, and where the archive has lost the run that the index has come to, every
item is compared anew: what differs gets a new datestamp, and what the catalogue does not know becomes a
deleted record, for harvesters have been told of it. Another archive's catalogue is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Fobi, Position, Run, Tobi
from archec.errors import CatalogueError
from archec.history import History
from archec.oai.index import Index
from archec.oai.model import KINDS, Cursor, Entry, Place, Query, State
from archec.oai.names import fobi_local, tobi_local
from archec.oai.sets import SetRules

__all__ = ["Follower", "Journals", "Progress", "fobi_entry", "tobi_entry"]

_log = logging.getLogger("archec.oai")
_NEVER = 1 << 62
_Obi = TypeVar("_Obi", Tobi, Fobi)


class Progress(NamedTuple):
    """What one step did: items that changed in the index, and whether it is level with the catalogue."""

    changed: int
    level: bool


class Journals(NamedTuple):
    """What the follower asks of the archive's journals: whether a run has one, by its tist, and whether the
    catalogue is known to hold all that they say (not while a run or a rebuild is at work)."""

    hold: Callable[[int], bool] = lambda run: True
    followed: Callable[[], bool] = lambda: True


class Follower:
    """Brings an index up to date with a catalogue. One at a time works on an index best; two do no harm."""

    def __init__(
        self,
        catalogue: Catalogue,
        index: Index,
        rules: SetRules,
        *,
        journals: Journals = Journals(),  # noqa: B008 - it is immutable
        lot: int = 500,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue, self._index, self._rules, self._lot, self._clock = catalogue, index, rules, lot, clock
        self._journals = journals
        self._is_ours = False

    def catch_up(self) -> int:
        """Steps until the index is level; how many items changed."""
        return sum(progress.changed for progress in self.steps())

    def check(self) -> None:
        """Raises :class:`CatalogueError` where the index is that of another archive than the catalogue."""
        self._own(self._index.state(), self._catalogue.position())

    def steps(self) -> Iterator[Progress]:
        """One pass, lot by lot; the last step is level. Raises CatalogueError as its engines do, and for
        the catalogue of another archive."""
        state = self._index.state()
        goal = self._catalogue.position()
        if state.seen != goal or not self._is_ours:
            state = self._own(state, goal)
        if state.rules != self._rules.checksum:
            # Sets are reckoned anew for every item; those that differ get a new datestamp.
            state = _anew(state)._replace(rules=self._rules.checksum)
        if state.seen == goal and state.ready and not state.whole:
            yield Progress(0, True)
            return
        if state.seen.run and not self._journals.hold(state.seen.run):
            if not state.whole:
                _log.warning("the archive has lost run %d: the OAI index compares every item anew", state.seen.run)
                state = _anew(state)
        elif _behind(goal, state.seen):
            # The catalogue is being rebuilt: it will say again what the index knows, or something else.
            if not state.whole:
                _log.info("the catalogue is behind the OAI index, which waits for it")
                self._index.publish([], _anew(state), self._clock)
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
        if state.whole:
            yield from self._sweep(state)
        yield Progress(0, True)

    def _own(self, state: State, goal: Position) -> State:
        """``state`` with the archive of the catalogue, which must not be another one."""
        first = next(iter(self._catalogue.runs()), None) if goal.run else None
        archive = _archive(first) if first is not None else ""
        strange = bool(archive and state.archive and archive != state.archive)
        if strange or (not goal.run and state.seen.run and not self._journals.hold(state.seen.run)):
            raise CatalogueError(
                f"the OAI index is that of another archive than the catalogue {self._catalogue.url}",
                hint="name another index in oai.index, or delete this one: then all harvesters must begin anew",
            )
        self._is_ours = bool(archive)
        return state._replace(archive=state.archive or archive)

    def _sweep(self, state: State) -> Iterator[Progress]:
        """Items that the catalogue does not know become deleted records. Put off while it may be incomplete."""
        after: Place | None = None
        while rows := self._index.page(Query(KINDS, "", 0, _NEVER), after, self._lot):
            after = rows[-1].place
            here = [row for row in rows if not row.deleted]
            tobis = self._catalogue.tobis([row.obi for row in here if row.kind == "tobi"])
            fobis = self._catalogue.fobis([row.obi for row in here if row.kind == "fobi"])
            known = {tobi.id for tobi in tobis.values() if tobi.history}
            known |= {fobi.id for fobi in fobis.values() if fobi.history}
            # Asked after the look, and for each lot: a rebuild empties the catalogue at any time.
            if not self._journals.followed() or _behind(self._catalogue.position(), state.seen):
                return
            entries = [
                Entry(row.kind, row.local, row.obi, row.place.stamp, 0, True, row.sets)
                for row in here
                if row.obi not in known
            ]
            yield Progress(self._index.publish(entries, state, self._clock), False)
        self._index.publish([], state._replace(whole=False), self._clock)

    def _changed(self, read: Callable[[int, str, int], list[_Obi]], cursor: Cursor, most: int) -> Iterator[list[_Obi]]:
        while True:
            page = read(cursor.stamp, cursor.id, self._lot)
            lot = [obi for obi in page if obi.stamp <= most]
            if lot:
                cursor = Cursor(lot[-1].stamp, lot[-1].id)
                yield lot
            if len(lot) < self._lot:
                return


def _anew(state: State) -> State:
    """Every item is to be looked at again; in an index that nobody has seen yet, that is no more than going on."""
    return state._replace(tobis=Cursor(), fobis=Cursor(), whole=state.ready)


def _archive(first: Run) -> str:
    """Which archive a catalogue is of: its first run is the same for ever, and after every rebuild.

    But for the date of its data set, which is not known at its beginning where only a tarball's members tell it.
    """
    told = f"{first.tist} {first.kind} {first.source}"
    return f"{first.tist}-{xxh3_64_hexdigest(told.encode('utf-8', 'surrogatepass'))}"


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
