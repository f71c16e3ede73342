"""Merging: a data set, sorted by id, against the catalogue, sorted by id.

A pure function of its two streams. An id that is in both with the same contents at the same place produces no output,
which makes a run over an unchanged data set cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from archec.archive.evidence import NotJudged, directory_of, hides, shows
from archec.catalogue.documents import ObiState
from archec.catalogue.documents import history_of as history_in
from archec.catalogue.model import Coverage
from archec.gather.spool import SeenRow
from archec.history import History
from archec.ids import archive_of


class Case(NamedTuple):
    """A tobi whose history the data set may change: the template that counts in the data set (None if there is none),
    and whether the tobi is in the catalogue."""

    id: str
    row: SeenRow | None
    known: bool


class HeldCounts(NamedTuple):
    """The number of tobis held as of a data set's date, by the archive of their handle, and by the archive's directory
    of their place. The merge leaves out of ``directories`` those whose place on that date the scan does not know."""

    archives: Counter[str]
    directories: Counter[str]


class Merge:
    """A merge and its counts, which are filled while it runs.

    With ``quick`` False every tobi is a case: the data set is not whole, supersedes others, or is superseded.
    ``unknown`` counts the tobis that the data set does not judge, by archive and reason.
    """

    def __init__(self, coverage: Coverage, tist: int, *, quick: bool) -> None:
        self._coverage, self._tist, self._quick = coverage, tist, quick
        self.distinct = 0
        self.duplicates = 0
        self.same = 0
        self.held = HeldCounts(Counter(), Counter())
        self.unknown: Counter[tuple[str, str]] = Counter()

    def cases(self, found: Iterable[tuple[SeenRow, int]], known: Iterable[ObiState]) -> Iterator[Case]:
        """Every tobi that the data set may change, by id."""
        states = iter(known)
        state = next(states, None)
        for row, others in found:
            obi = row.id
            self.distinct += 1
            self.duplicates += others
            while state is not None and state.id < obi:
                yield from self._absent(state)
                state = next(states, None)
            if state is None or state.id != obi:
                yield Case(obi, row, known=False)
                continue
            self._count(state)
            if (
                self._quick
                and state.since <= self._tist
                and state.place == row.place
                and state.state == row.sha256
                and (not self._coverage.unread or shows(self._coverage, row.place))
            ):
                self.same += 1
            else:
                yield Case(obi, row, known=True)
            state = next(states, None)
        while state is not None:
            yield from self._absent(state)
            state = next(states, None)

    def _absent(self, state: ObiState) -> Iterator[Case]:
        self._count(state)
        if self._quick and state.since <= self._tist:
            if state.state is None:
                return
            hidden = hides(self._coverage, state.place)
            if hidden is not None and not shows(self._coverage, state.place):
                self.not_judged(state.id, state.place, hidden)
                return
        yield Case(state.id, None, known=True)

    def not_judged(self, handle: str, place: str, why: NotJudged) -> None:
        """Counts a tobi that is held and that the data set does not judge."""
        self.unknown[archive_of(handle) or directory_of(place), why.word] += 1

    def _count(self, state: ObiState) -> None:
        now = state.state if state.last <= self._tist else history_of(state).at(self._tist)
        if now is not None:
            self.held.archives[archive_of(state.id)] += 1
            if state.since <= self._tist:
                self.held.directories[directory_of(state.place)] += 1


def history_of(state: ObiState) -> History:
    """The full history for a row of the scan."""
    if state.h is None:
        return History((state.last,), (state.state,))
    return history_in(state.h, state.id)
