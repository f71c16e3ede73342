"""Evidence: which data sets count. One that was retracted does not; of one date, a whole one supersedes the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from archec.archive.absence import Look, directory_of
from archec.catalogue.documents import read
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Coverage, DataSet, HeldBack, KeyedSet
from archec.ids import archive_of
from archec.redif.problems import CHANGED

Keyed = Callable[[str], "bytes | None"]


class Evidence:
    """The known data sets, in the order (date, run). ``dates`` has those that count, grouped by date, oldest first.
    Coverages are read when needed; the last few are cached."""

    def __init__(self, data_sets: Iterable[DataSet], keyed: Keyed, held_back: Iterable[HeldBack] = ()) -> None:
        self.data_sets = sorted(data_sets, key=lambda item: item.key)
        self.keys = [item.key for item in self.data_sets]
        speaking = [
            (tist, tuple(_speaking(list(group)))) for tist, group in groupby(self.data_sets, key=lambda item: item.tist)
        ]
        self.dates: list[tuple[int, tuple[DataSet, ...]]] = [(tist, group) for tist, group in speaking if group]
        self.tists = [tist for tist, _ in self.dates]
        self._keyed = keyed
        self._held_back = {item.run: item for item in held_back if item.kind == "tobi"}
        self._coverage = lru_cache(maxsize=64)(self._read)
        self._look = lru_cache(maxsize=256)(self._make)
        self._lists = lru_cache(maxsize=64)(lambda key: keyed(key) or b"")
        self._only_of = lru_cache(maxsize=1 << 14)(lambda name, key: _is_only_of(name, self._lists(key)))
        self._last_read: dict[str, int] = {}
        self._not_asked = len(self.dates)

    def look(self, data_set: DataSet) -> Look:
        """The data set with its coverage; cached."""
        return self._look(data_set.key)

    def coverage(self, data_set: DataSet) -> Coverage:
        return self._coverage(data_set.coverage)

    def with_data_set(
        self, data_set: DataSet, sets: Iterable[KeyedSet] = (), held_back: HeldBack | None = None
    ) -> Evidence:
        """Returns a copy with ``data_set`` added, or replaced if there is one of the same run. ``held_back`` is the
        record of its losses that are held back; ``sets`` are new sets that it refers to."""
        others = [item for item in self.data_sets if item.run != data_set.run]
        held = [item for item in self._held_back.values() if item.run != data_set.run]
        new = {item.key: item.data for item in sets}

        def keyed(key: str) -> bytes | None:
            return new[key] if key in new else self._keyed(key)

        return Evidence([*others, data_set], keyed, [*held, held_back] if held_back is not None else held)

    def speaks(self, data_set: DataSet) -> bool:
        """Whether a data set counts."""
        i = bisect_left(self.tists, data_set.tist)
        return i < len(self.tists) and any(item.run == data_set.run for item in self.dates[i][1])

    def last_read(self, directory: str) -> int:
        """The date of the newest data set that has read an archive directory; 0 if there is none. Each data set is
        checked once, starting with the newest, as far as needed."""
        while directory not in self._last_read and self._not_asked:
            self._not_asked -= 1
            tist, group = self.dates[self._not_asked]
            for coverage in map(self.coverage, group):
                for one in coverage.read.difference(coverage.unread):
                    self._last_read.setdefault(one, tist)
        return self._last_read.get(directory, 0)

    def _read(self, key: str) -> Coverage:
        return read(Coverage, self._keyed(key) or b"{}") if key else Coverage()

    def _make(self, key: tuple[int, int]) -> Look:
        data_set = self.data_sets[bisect_left(self.keys, key)]
        coverage = self.coverage(data_set)
        return Look(data_set, coverage, self._disturbed(data_set.tist, coverage), self._held(data_set.run))

    def _disturbed(self, tist: int, coverage: Coverage) -> dict[str, str]:
        if not (coverage.unread or coverage.partly):
            return {}
        before: Sequence[DataSet] = ()
        i = bisect_left(self.tists, tist) - 1
        while i >= 0 and not before:
            before = [item for item in self.dates[i][1] if item.whole]
            i -= 1
        known = [{**one.unread, **one.partly} for one in map(self.coverage, before)]
        found: dict[str, str] = {}
        for place, digest in sorted({**coverage.unread, **coverage.partly}.items()):
            if digest == CHANGED or not known or any(one.get(place) != digest for one in known):
                found.setdefault(directory_of(place), place)
                if "/" not in place:
                    found.setdefault(place, place)
        return found

    def _held(self, run: int) -> Callable[[str], bool]:
        held = self._held_back.get(run)
        groups = {name: group.ids for name, group in held.groups.items()} if held is not None else {}
        mixed = [key for name, key in groups.items() if not self._only_of(name, key)]

        def is_held(handle: str) -> bool:
            own = groups.get(archive_of(handle))
            keys = mixed if own is None else [own, *mixed]
            return any(_holds(self._lists(key), handle.encode()) for key in keys)

        return is_held


def evidence_of(catalogue: Catalogue) -> Evidence:
    """The evidence of all data sets of the archive."""
    return Evidence(catalogue.data_sets(), catalogue.keyed, catalogue.held_back())


def _speaking(group: list[DataSet]) -> Iterator[DataSet]:
    """The data sets of one date that count: a whole one supersedes all others."""
    believed = [item for item in group if not item.retracted]
    whole = any(item.whole for item in believed)
    return (item for item in believed if item.whole or not whole)


def _is_only_of(archive: str, data: bytes) -> bool:
    """Whether an encoded list contains only ids of this archive."""
    lines, prefix = b"\n" + data, f"\nRePEc:{archive}".encode()
    return lines.count(prefix + b":") + lines.count(prefix + b"\n") == data.count(b"\n")


def _holds(data: bytes, wanted: bytes) -> bool:
    """Whether an encoded list contains an id; by binary search."""
    first, end = 0, len(data)
    while first < end:
        start = data.rfind(b"\n", 0, (first + end) // 2) + 1
        stop = data.index(b"\n", start)
        line = data[start:stop]
        if line == wanted:
            return True
        if line < wanted:
            first = stop + 1
        else:
            end = start
    return False
