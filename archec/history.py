"""History: what is known of one obi through time, and the rule by which it grows.

A history maps tists to states. A state is the sha256 (64 hex digits) of the bytes that is held from
that tist on, or ``None`` where the obi is lost from that tist on. Only changes are noted: two
neighbouring entries never have the same state, and the first entry is never a loss (design,
sections 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """What one observation does to a history.

    ``put`` maps tists to the states to write; ``drop`` holds the tists whose entries became
    restatements of the entry before them and go. Bytes on disk are never dropped.
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
    """An immutable, ordered history. Build one with :meth:`of`."""

    tists: tuple[int, ...] = ()
    states: tuple[str | None, ...] = ()

    @classmethod
    def of(cls, entries: Mapping[int, str | None]) -> History:
        """A history from its map (any order); the map must already be in normal form."""
        tists = tuple(sorted(entries))
        return cls(tists, tuple(entries[tist] for tist in tists))

    def __len__(self) -> int:
        return len(self.tists)

    def __iter__(self) -> Iterator[tuple[int, str | None]]:
        return zip(self.tists, self.states, strict=True)

    def as_dict(self) -> dict[int, str | None]:
        """A fresh map {tist: state}, in time order."""
        return dict(zip(self.tists, self.states, strict=True))

    def at(self, when: int) -> str | None:
        """The state as of ``when``: the sha256 of what was there, None where it was not (yet) or lost."""
        i = bisect_right(self.tists, when)
        return self.states[i - 1] if i else None

    def entry_at(self, when: int) -> tuple[int, str | None] | None:
        """The entry in force as of ``when``: (tist, state), None before the obi was found."""
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
        """Whether the newest state is held (not lost, and found at all)."""
        return bool(self.states) and self.states[-1] is not None

    @property
    def last_held(self) -> str | None:
        """The newest state that was held, None where there never was one."""
        return next((state for state in reversed(self.states) if state is not None), None)

    @property
    def lost(self) -> int | None:
        """The tist of the loss that is in force now, None if the obi is held or was never found."""
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
        """What an observation at ``when`` does to this history; the history itself stays as it is.

        ``state`` is the sha256 that was seen, or None where the obi's source was read whole and lacks
        it. ``next_observation(after, before)`` gives the tist of the first *other* observation of
        this obi with ``after < tist < before`` (``before`` None: no end), whose outcome is what this
        history says of that time; it is asked only where an observation splits a stretch of time,
        to restate what came after (invariant 4). An entry that already stands at ``when`` with
        another state is left alone (held is held); see :meth:`conflicts`.
        """
        i = bisect_right(self.tists, when)
        before = self.states[i - 1] if i else None
        if before == state:
            return NO_CHANGE
        if i and self.tists[i - 1] == when:
            if state is None or before is not None:
                return NO_CHANGE  # a conflict, or absent in one data set of that date only
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
        """Whether another state stands at exactly ``when``: two data sets of one date disagree."""
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
        """Ends the stretch that begins at ``when``: restates ``before`` or merges with the next.

        ``i`` is the index of the first entry after ``when``, ``before`` the state that was in force until now.
        """
        # Histories hold changes only. Until now the stretch from the entry before ``when`` up to the next one said
        # "before", for every data set that looked at the obi in between. Now it says "state" from ``when`` on. The
        # first of those later data sets still saw "before": without an entry of its own, what it saw would be lost.
        # Where nobody looked in between, the stretch ends at the next entry; if that says the same as ``state``, it
        # has become a restatement, and histories have none.
        nxt = self.tists[i] if i < len(self.tists) else None
        other = next_observation(when, nxt)
        if other is not None:
            put[other] = before
        elif nxt is not None and self.states[i] == state:
            drop.append(nxt)
        return Change(put, tuple(drop))
