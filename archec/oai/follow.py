"""Updates the index from the catalogue in small chunks, without missing or duplicating an item.

The catalogue lists changes in the order of (stamp, id), and its stamps never decrease. But several batches may have the
stamp of one second, and later ones may have lesser ids. So a pass reads up to the stamp of the catalogue at its
beginning, and the next pass begins with that stamp again, from the least id: entries that are already known change
nothing.

A catalogue may also be rebuilt, restored from an older copy, or belong to another archive. During a rebuild the index
waits. After that, or if the archive has lost the last run in the index, every item is compared again: an item that
differs gets a new datestamp, and an item unknown to the catalogue becomes a deleted record, because harvesters have
seen it. The catalogue of another archive is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from itertools import takewhile

from xxhash import xxh3_64_hexdigest

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi, Position, Run
from archec.errors import CatalogueError
from archec.oai.index import END_OF_TIME, ITEM_KINDS, Cursor, Index, IndexEntry, IndexState, ListQuery, SortKey
from archec.oai.items import index_entry, known_obis
from archec.oai.sets import SetRules
from archec.paging import batched, paged

_log = logging.getLogger("archec.oai")


class Follower:
    """Updates an index from a catalogue. One follower per index is enough; two do no harm.

    ``has_run`` says whether the archive has the journal of a run, by its tist. ``is_complete`` says whether the
    catalogue certainly contains everything in the journals (it does not during a run or a rebuild). ``chunk`` is the
    number of items that are written together.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        index: Index,
        rules: SetRules,
        *,
        has_run: Callable[[int], bool] = lambda run: True,
        is_complete: Callable[[], bool] = lambda: True,
        chunk: int = 500,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue, self._index, self._rules, self._chunk, self._clock = catalogue, index, rules, chunk, clock
        self._has_run, self._is_complete = has_run, is_complete

    @property
    def is_replaced(self) -> bool:
        """Whether the catalogue's file was replaced: what can be read is what the old one held."""
        return self._catalogue.is_replaced

    def check(self) -> None:
        """Raises :class:`CatalogueError` if the catalogue or the index belongs to another archive."""
        self._check_archive(self._index.state(), self._catalogue.position())

    def steps(self) -> Iterator[int]:
        """Performs one pass, after which the index has caught up with the catalogue. Yields the number of changed items
        of each chunk.

        Raises :class:`CatalogueError` if an engine fails, if the catalogue belongs to another archive, or if its file
        was replaced.
        """
        if self.is_replaced:
            raise CatalogueError(f"the catalogue {self._catalogue.url} was replaced: restart the server to read it")
        state = self._index.state()
        goal = self._catalogue.position()
        state = self._check_archive(state, goal)
        if state.rules != self._rules.checksum:
            # The sets of every item are computed again; an item whose sets differ gets a new datestamp.
            state = _from_start(state)._replace(rules=self._rules.checksum)
        if state.seen == goal and state.ready and not state.whole:
            return
        if state.seen.run and not self._has_run(state.seen.run):
            if not state.whole:
                _log.warning("the archive has lost run %d: the OAI index compares every item again", state.seen.run)
                state = _from_start(state)
        elif _is_behind(goal, state.seen):
            if not state.whole:
                _log.info("the catalogue is behind the OAI index, which waits for it")
                self._index.publish([], _from_start(state), self._clock)
            return
        # From the least id of the stamp reached: a later batch of that second may have lesser ids.
        state = state._replace(cursors=tuple(cursor._replace(id="") for cursor in state.cursors))
        for number, kind in enumerate(ITEM_KINDS):
            for chunk in self._changed(kind, state.cursors[number], goal.stamp):
                cursors = list(state.cursors)
                cursors[number] = Cursor(chunk[-1].stamp, chunk[-1].id)
                state = state._replace(cursors=tuple(cursors))
                entries = [index_entry(obi, self._rules) for obi in chunk if obi.history]
                yield self._index.publish(entries, state, self._clock)
        state = state._replace(ready=True, cursors=(Cursor(goal.stamp),) * len(ITEM_KINDS), seen=goal)
        self._index.publish([], state, self._clock)
        if state.whole:
            yield from self._delete_unknown(state)

    def _changed(self, kind: Kind, cursor: Cursor, last: int) -> Iterator[list[Obi]]:
        """Yields chunks of changes after ``cursor``, up to the stamp ``last``."""
        found = paged(
            lambda after: self._catalogue.changed(kind, after.stamp, after.id, self._chunk),
            cursor,
            lambda obi: Cursor(obi.stamp, obi.id),
        )
        return batched(takewhile(lambda obi: obi.stamp <= last, found), self._chunk)

    def _check_archive(self, state: IndexState, goal: Position) -> IndexState:
        """Returns ``state`` with the archive of the catalogue. Raises :class:`CatalogueError` if it is another one than
        that of the index or of the journals."""
        first = next(iter(self._catalogue.runs()), None) if goal.run else None
        if first is not None and not self._has_run(first.tist) and not self._has_run(goal.run):
            raise CatalogueError(
                f"the catalogue {self._catalogue.url} belongs to another archive: its runs have no journals here",
                hint="set another 'database', and run 'archec rebuild'",
            )
        archive = _archive_of(first) if first is not None else ""
        is_other = bool(archive and state.archive and archive != state.archive)
        if is_other or (not goal.run and state.seen.run and not self._has_run(state.seen.run)):
            raise CatalogueError(
                f"the OAI index belongs to another archive than the catalogue {self._catalogue.url}",
                hint="set another index in oai.index, or delete this one: then all harvesters must start again",
            )
        return state._replace(archive=state.archive or archive)

    def _delete_unknown(self, state: IndexState) -> Iterator[int]:
        """Turns items that the catalogue does not know into deleted records. Postponed if it may be incomplete."""
        after: SortKey | None = None
        while rows := self._index.page(ListQuery(ITEM_KINDS, "", 0, END_OF_TIME), after, self._chunk):
            after = rows[-1].key
            held = [row for row in rows if not row.deleted]
            known = known_obis(self._catalogue, held)
            # Checked after the lookup, and for each chunk: a rebuild may empty the catalogue at any time.
            if not self._is_complete() or _is_behind(self._catalogue.position(), state.seen):
                return
            gone = [row for row in held if row.obi not in known]
            entries = [IndexEntry(row.kind, row.local, row.obi, row.key.stamp, 0, True, row.sets) for row in gone]
            yield self._index.publish(entries, state, self._clock)
        self._index.publish([], state._replace(whole=False), self._clock)


def _from_start(state: IndexState) -> IndexState:
    """Schedules all items for another look. If the index is not ready, harvesters have not seen any of its items, so
    none needs to be compared."""
    return state._replace(cursors=(Cursor(),) * len(ITEM_KINDS), whole=state.ready)


def _archive_of(first: Run) -> str:
    """Identifies the archive of a catalogue by its first run, which stays the same, even after a rebuild.

    Does not include the date of its data set, which is unknown at first if it is that of a tarball's members.
    """
    facts = f"{first.tist} {first.form} {first.source}"
    return f"{first.tist}-{xxh3_64_hexdigest(facts.encode('utf-8', 'surrogatepass'))}"


def _is_behind(goal: Position, seen: Position) -> bool:
    return goal[:2] < seen[:2]
