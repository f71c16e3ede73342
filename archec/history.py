"""History: the states of one obi over time, and the rule by which an observation changes it.

A history maps tists to states. A state is the sha256 (64 hex digits) of the bytes that is held from
that tist on, or ``None`` where the obi is lost from that tist on. Only changes are noted: two
consecutive entries never have the same state, and the first entry is never a loss (design,
sections 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """The change that one observation makes to a history.

    ``put`` maps tists to the states to write; ``drop`` has the tists whose entries are removed because
    they now only restate the previous entry. Bytes on disk are never removed.
    """

    put: Mapping[int, str | None]
    drop: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put) or bool(self.drop)


NO_CHANGE = Change({})


@dataclass(frozen=True, slots=True)
class Incidence:
    """An appearance, a change or a loss: ``kind`` is ``appeared``, ``changed``, ``lost`` or
    ``returned`` (a reappearance is an appearance after a loss)."""

    tist: int
    kind: str
    state: str | None


@dataclass(frozen=True, slots=True)
class History:
    """An immutable, ordered history. Create one with :meth:`of`."""

    tists: tuple[int, ...] = ()
    states: tuple[str | None, ...] = ()

    @classmethod
    def of(cls, entries: Mapping[int, str | None]) -> History:
        """A history from a map {tist: state} in any order; the map must be in normal form."""
        tists = tuple(sorted(entries))
        return cls(tists, tuple(entries[tist] for tist in tists))

    def __len__(self) -> int:
        return len(self.tists)

    def __iter__(self) -> Iterator[tuple[int, str | None]]:
        return zip(self.tists, self.states, strict=True)

    def as_dict(self) -> dict[int, str | None]:
        """A new map {tist: state}, in time order."""
        return dict(zip(self.tists, self.states, strict=True))

    def at(self, when: int) -> str | None:
        """The state as of ``when``: a sha256, or None if the obi was not found yet or was lost."""
        i = bisect_right(self.tists, when)
        return self.states[i - 1] if i else None

    def entry_at(self, when: int) -> tuple[int, str | None] | None:
        """The entry that applies as of ``when``: (tist, state), None before the obi was found."""
        i = bisect_right(self.tists, when)
        return (self.tists[i - 1], self.states[i - 1]) if i else None

    @property
    def found(self) -> int | None:
        """The first tist at which the obi is held."""
        return self.tists[0] if self.tists else None

    @property
    def noted(self) -> tuple[int, ...]:
        """The tists at which the obi was seen for the first time or with changed contents."""
        return tuple(t for t, s in self if s is not None)

    @property
    def last(self) -> int | None:
        """The tist of the newest entry."""
        return self.tists[-1] if self.tists else None

    @property
    def held(self) -> bool:
        """Whether the obi is held now (found, and not lost)."""
        return bool(self.states) and self.states[-1] is not None

    @property
    def last_held(self) -> str | None:
        """The newest state that is not a loss, None if there is none."""
        return next((state for state in reversed(self.states) if state is not None), None)

    @property
    def lost(self) -> int | None:
        """The tist of the current loss, None if the obi is held or was never found."""
        return self.tists[-1] if self.tists and self.states[-1] is None else None

    def incidences(self) -> Iterator[Incidence]:
        """Every incidence in time order."""
        before: str | None = None
        for i, (tist, state) in enumerate(self):
            if state is None:
                kind = "lost"
            elif before is None:
                kind = "appeared" if i == 0 else "returned"
            else:
                kind = "changed"
            yield Incidence(tist, kind, state)
            before = state

    def observe(
        self,
        when: int,
        state: str | None,
        next_observation: Callable[[int, int | None], int | None] = lambda after, before: None,
    ) -> Change:
        """The change that an observation at ``when`` makes to this history, which is not modified.

        ``state`` is the sha256 that was seen, or None if the obi's source was read completely and lacks
        it. ``next_observation(after, before)`` gives the tist of the first *other* observation of
        this obi with ``after < tist < before`` (``before`` None: no end), which saw the state that this
        history has at that time. It is called only if an observation splits an interval, to restate
        what came after (invariant 4). An existing entry at ``when`` with another state is not
        changed (held is held); see :meth:`conflicts`.
        """
        i = bisect_right(self.tists, when)
        before = self.states[i - 1] if i else None
        if before == state:
            return NO_CHANGE
        if i and self.tists[i - 1] == when:
            if state is None or before is not None:
                return NO_CHANGE  # a conflict, or absent from only one data set of that date
            put: dict[int, str | None] = {}
            drop: list[int] = []
            before_that = self.states[i - 2] if i > 1 else None
            if before_that == state:
                drop.append(when)
            else:
                put[when] = state
            return self._close(i, when, state, None, put, drop, next_observation)
        return self._close(i, when, state, before, {when: state}, [], next_observation)

    def conflicts(self, when: int, state: str | None) -> bool:
        """Whether there is another state at exactly ``when``: two data sets of one date disagree."""
        i = bisect_left(self.tists, when)
        if i == len(self.tists) or self.tists[i] != when or state is None:
            return False
        return self.states[i] is not None and self.states[i] != state

    def apply(self, change: Change) -> History:
        """The history after ``change``."""
        if not change:
            return self
        entries = self.as_dict()
        for tist in change.drop:
            entries.pop(tist, None)
        entries.update(change.put)
        return History.of(entries)

    def _close(
        self,
        i: int,
        when: int,
        state: str | None,
        before: str | None,
        put: dict[int, str | None],
        drop: list[int],
        next_observation: Callable[[int, int | None], int | None],
    ) -> Change:
        """Ends the interval that begins at ``when``: restates ``before`` or merges with the next interval.

        ``i`` is the index of the first entry after ``when``, ``before`` the state that applied until now.
        """
        # Histories contain changes only. Until now the interval from the entry before ``when`` up to the next one had
        # the state "before", for every data set that observed the obi in between. Now it has "state" from ``when`` on.
        # The first of those later data sets still saw "before": without a new entry, its observation would be lost. If
        # there was no observation in between, the interval ends at the next entry; if that has the same state, it has
        # become a restatement and is removed.
        nxt = self.tists[i] if i < len(self.tists) else None
        other = next_observation(when, nxt)
        if other is not None:
            put[other] = before
        elif nxt is not None and self.states[i] == state:
            drop.append(nxt)
        return Change(put, tuple(drop))
