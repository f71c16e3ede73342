"""What the known data sets say of a handle: which of them looked at it (invariants 4 and 6).

A data set *observes* a handle where it covers it (the handle's archive directory was read whole)
or where the handle was there although its archive is not covered. What it saw is what the history
says of that time: histories and these records together hold every observation ever made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from archec.catalogue.model import CORE, DataSet, SeenSet
from archec.ids import archive_of, item_of

__all__ = ["Observations", "covers", "hash_of", "seen_set"]


def covers(data_set: DataSet, handle: str) -> bool:
    """covered(handle, data set) of design section 4."""
    archive = archive_of(handle)
    if not archive:
        return False
    if _covers_archive(data_set, archive):
        return True
    return not item_of(handle) and CORE in data_set.covered and archive not in data_set.guarded


def _covers_archive(data_set: DataSet, archive: str) -> bool:
    return archive in data_set.covered or (data_set.complete and archive not in data_set.partial)


def hash_of(handle: str) -> int:
    """The number under which a handle stands in a seen set."""
    return xxh3_64_intdigest(handle.encode("utf-8", "surrogatepass"))


def seen_set(hashes: Iterable[int]) -> SeenSet:
    """A seen set of these numbers."""
    ids = b"".join(number.to_bytes(8, "big") for number in sorted(set(hashes)))
    return SeenSet(xxh3_128_hexdigest(ids), ids)


class Observations:
    """The known data sets, asked for one handle at a time.

    ``read_seen(key)`` gives the ids of a seen set; a few are kept in memory.
    """

    def __init__(self, data_sets: Sequence[DataSet], read_seen: Callable[[str], bytes | None]) -> None:
        self._sets = sorted(data_sets, key=lambda d: d.tist)
        self._tists = [d.tist for d in self._sets]
        self._read = lru_cache(maxsize=16)(read_seen)

    def observes(self, handle: str, tist: int) -> bool:
        """Whether the known data set of exactly ``tist`` looked at ``handle``."""
        i = bisect_left(self._tists, tist)
        return i < len(self._tists) and self._tists[i] == tist and self._observes(self._sets[i], handle)

    def next(self, handle: str, after: int, before: int | None) -> int | None:
        """The first data set strictly between the two tists that observes ``handle``."""
        for i in range(bisect_right(self._tists, after), len(self._tists)):
            if before is not None and self._tists[i] >= before:
                return None
            if self._observes(self._sets[i], handle):
                return self._tists[i]
        return None

    @property
    def newest(self) -> int | None:
        """The tist of the newest known data set."""
        return self._tists[-1] if self._tists else None

    def _observes(self, data_set: DataSet, handle: str) -> bool:
        if covers(data_set, handle):
            return True
        keys = data_set.partial.get(archive_of(handle), ())
        wanted = hash_of(handle).to_bytes(8, "big") if keys else b""
        return any(_holds(self._read(key) or b"", wanted) for key in keys)


def _holds(ids: bytes, wanted: bytes) -> bool:
    low, high = 0, len(ids) // 8
    while low < high:
        middle = (low + high) // 2
        if ids[middle * 8 : middle * 8 + 8] < wanted:
            low = middle + 1
        else:
            high = middle
    return ids[low * 8 : low * 8 + 8] == wanted
