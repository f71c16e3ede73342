"""Losses of templates: when one counts as lost, and when the losses of an archive are held back (invariants 4 and 6).

A data set *observes* a handle where it covers it (the handle's archive directory was read whole)
or where the handle was there although its archive is not covered. What it saw is what the history
says of that time: histories and these records together hold every observation ever made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from archec.catalogue.codec import canonical, read
from archec.catalogue.model import CORE, Coverage, DataSet, KeyedSet
from archec.config import Config
from archec.ids import archive_of, item_of

_coverage = msgspec.json.Decoder(Coverage)


def is_held_back(config: Config, losses: int, held: int) -> bool:
    """The guard of design section 4: whether too many of an archive's tobis would be lost at once."""
    return losses >= config.max_loss_least and losses > config.max_loss * held


def covers(coverage: Coverage, handle: str) -> bool:
    """covered(handle, data set) of design section 4."""
    archive = archive_of(handle)
    if not archive:
        return False
    if _covers_archive(coverage, archive):
        return True
    return not item_of(handle) and CORE in coverage.covered and archive not in coverage.guarded


def _covers_archive(coverage: Coverage, archive: str) -> bool:
    return archive in coverage.covered or (coverage.complete and archive not in coverage.partial)


def hash_of(handle: str) -> int:
    """The number under which a handle stands in a set of handles."""
    return xxh3_64_intdigest(handle.encode("utf-8", "surrogatepass"))


def handle_set(hashes: Iterable[int]) -> KeyedSet:
    """A set of the handles with these numbers."""
    ids = b"".join(number.to_bytes(8, "big") for number in sorted(set(hashes)))
    return KeyedSet(xxh3_128_hexdigest(ids), ids)


def coverage_set(coverage: Coverage) -> KeyedSet:
    """A coverage under a key that follows from it."""
    data = canonical(coverage)
    return KeyedSet(xxh3_128_hexdigest(data), data)


class Observations:
    """The known data sets, asked for one handle at a time.

    ``keyed(key)`` gives the bytes of a keyed set; a few are kept in memory. Where several runs read data sets of one
    date, that date observes what any of them did.
    """

    def __init__(self, data_sets: Sequence[DataSet], keyed: Callable[[str], bytes | None]) -> None:
        by_date = groupby(sorted(data_sets, key=lambda d: d.tist), key=lambda d: d.tist)
        self._coverages = {tist: sorted({item.coverage for item in items}) for tist, items in by_date}
        self._tists = list(self._coverages)
        self._handles = lru_cache(maxsize=16)(keyed)
        self._coverage = lru_cache(maxsize=64)(lambda key: read(_coverage, keyed(key) or b"{}"))

    def observes(self, handle: str, tist: int) -> bool:
        """Whether the known data set of exactly ``tist`` looked at ``handle``."""
        return any(self._observes(key, handle) for key in self._coverages.get(tist, ()))

    def next(self, handle: str, after: int, before: int | None) -> int | None:
        """The first data set strictly between the two tists that observes ``handle``."""
        first = bisect_right(self._tists, after)
        last = len(self._tists) if before is None else bisect_left(self._tists, before)
        return next((self._tists[i] for i in range(first, last) if self.observes(handle, self._tists[i])), None)

    def _observes(self, key: str, handle: str) -> bool:
        coverage = self._coverage(key)
        if covers(coverage, handle):
            return True
        handles = coverage.partial.get(archive_of(handle), "")
        return bool(handles) and _holds(self._handles(handles) or b"", hash_of(handle).to_bytes(8, "big"))


def _holds(ids: bytes, wanted: bytes) -> bool:
    index = bisect_left(range(len(ids) // 8), wanted, key=lambda i: ids[i * 8 : i * 8 + 8])
    return ids[index * 8 : index * 8 + 8] == wanted
