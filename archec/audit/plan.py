"""The order of checking: what was checked least recently first, what never was before all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from archec.audit.memory import Stretch
from archec.store.journalfile import JournalFile

__all__ = ["Part", "parts_of"]


class Part(NamedTuple):
    """The batches ``first`` to ``last`` (None: to the end) of a journal that are to be read."""

    journal: JournalFile
    first: int
    last: int | None
    at: int


def parts_of(
    journals: Iterable[JournalFile], known: Iterable[Stretch], ends: Mapping[int, int], before: int
) -> list[Part]:
    """What is to be read, in order, so that all that was not checked at or after ``before`` is.

    ``known`` is what was checked, by run and batch; ``ends`` the number of batches of those journals for
    which it is known. Parts of one journal with one time lie side by side are one.
    """
    stretches: dict[int, list[Stretch]] = {}
    for stretch in known:
        stretches.setdefault(stretch.run, []).append(stretch)
    parts: list[Part] = []
    for journal in journals:
        next_batch = 1
        for stretch in sorted(stretches.get(journal.tist, ())):
            if stretch.first > next_batch:
                parts.append(Part(journal, next_batch, stretch.first - 1, 0))
            parts.append(Part(journal, stretch.first, stretch.last, stretch.at))
            next_batch = stretch.last + 1
        end = ends.get(journal.tist) if journal.finished else None
        if end is None or next_batch <= end:
            parts.append(Part(journal, next_batch, end, 0))
    due = [part for part in parts if part.at < before]
    return sorted(due, key=lambda part: (part.at, part.journal.tist, part.first))
