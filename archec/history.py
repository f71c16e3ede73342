"""History: the states of one obi over time.

A history maps tists to states. A state is the sha256 (64 hex digits) of the bytes that is held from
that tist on, or ``None`` where the obi is lost from that tist on. Only changes are noted: two
consecutive entries never have the same state, and the first entry is never a loss (design,
sections 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile
from typing import NamedTuple

from msgspec import Struct


class Incidence(NamedTuple):
    """An appearance, a change or a loss: ``kind`` is ``appeared``, ``changed``, ``lost`` or
    ``returned`` (a reappearance is an appearance after a loss)."""

    tist: int
    kind: str
    state: str | None


class History(Struct, frozen=True):
    """An immutable, ordered history. Create one with :meth:`of`."""

    tists: tuple[int, ...] = ()
    states: tuple[str | None, ...] = ()

    @classmethod
    def of(cls, entries: Mapping[int, str | None]) -> History:
        """A history from a map {tist: state} in any order; the map must be in normal form."""
        tists = tuple(sorted(entries))
        return cls(tists, tuple([entries[tist] for tist in tists]))

    def __len__(self) -> int:
        return len(self.tists)

    def __iter__(self) -> Iterator[tuple[int, str | None]]:
        return zip(self.tists, self.states, strict=True)

    def as_dict(self) -> dict[int, str | None]:
        """A new map {tist: state}, in time order."""
        return dict(zip(self.tists, self.states, strict=True))

    def at(self, when: int) -> str | None:
        """The state as of ``when``: a sha256, or None if the obi was not found yet or was lost."""
        entry = self.entry_at(when)
        return entry[1] if entry is not None else None

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

    def noting(self, when: int, state: str) -> tuple[int, ...] | None:
        """The tists of the entries that become redundant if ``state`` is noted at ``when``. None if it must not be
        noted, because it already is the state then, or another is held from exactly then on (held is held)."""
        i = bisect_right(self.tists, when)
        now = self.states[i - 1] if i else None
        if now == state or (now is not None and self.tists[i - 1] == when):
            return None
        return self.tists[i : i + 1] if self.states[i : i + 1] == (state,) else ()

    def changed(self, put: Mapping[int, str | None], drop: Iterable[int] = ()) -> History:
        """The history with the entries ``put`` added and those in ``drop`` removed. Losses before the first held state
        are removed as well."""
        entries = {**self.as_dict(), **put}
        for tist in drop:
            if tist not in put:
                entries.pop(tist, None)
        tists = tuple(dropwhile(lambda tist: entries[tist] is None, sorted(entries)))
        return History(tists, tuple([entries[tist] for tist in tists]))
