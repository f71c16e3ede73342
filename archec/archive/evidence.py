"""Evidence: which data sets count, what they cover, and when the absence of a template from one is a loss.

A data set that was retracted does not count; of one date, a whole one supersedes the others. What a data set says about
a template that it does not contain follows from its coverage (design, section 4, "evidence by place").
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from xxhash import xxh3_128_hexdigest

from archec.catalogue.documents import canonical, read
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Claim, Coverage, DataSet, HeldBack, KeyedSet
from archec.ids import archive_of, item_of
from archec.redif.precedence import CORE
from archec.redif.problems import CHANGED

Keyed = Callable[[str], "bytes | None"]


class NotJudged(NamedTuple):
    """The reason why the absence of a template from a data set is not a loss: a code, and the file or directory.

    ``not-there``: the archive directory of its place is not in the data set. ``unreadable``: its place could not be
    read. ``no-home``: the directory of its own archive is missing. ``disturbed``: a file or directory below that of its
    place or archive is unreadable, and is new or has changed. ``held-back``: the loss awaits a decision. ``elsewhere``:
    a copy of lower precedence exists, and the place of the previous one could not be checked.
    """

    word: str
    by: str = ""


HELD_BACK = NotJudged("held-back")
ELSEWHERE = "elsewhere"
_MOST_UNREAD = 1000
"""Maximum number of unreadable files of one archive that are recorded individually."""


def directory_of(place: str) -> str:
    """The archive directory of a place; "" for the root."""
    return place.partition("/")[0] if "/" in place else ""


def home_of(handle: str, place: str) -> str:
    """The archive's directory that must have been read before a template at ``place`` can be lost."""
    code, there = archive_of(handle), directory_of(place)
    if not code:
        return there
    return there if not item_of(handle) and there in (code, CORE) else code


def _reads(coverage: Coverage, directory: str) -> bool:
    """Whether an archive directory was listed completely. A missing one counts as listed if the data set is complete.
    """
    return (directory in coverage.read or coverage.complete) and directory not in coverage.unread


def _unreadable(unread: Mapping[str, str], place: str) -> str | None:
    """The place itself, or the parent directory of it, that could not be read; None if all of them were read."""
    if unread:
        if "" in unread:
            return ""
        end = place.find("/")
        while end >= 0:
            if place[:end] in unread:
                return place[:end]
            end = place.find("/", end + 1)
        if place in unread:
            return place
    return None


def shows(coverage: Coverage, place: str) -> bool:
    """Whether the data set would contain a template that is at ``place``."""
    return _reads(coverage, directory_of(place)) and _unreadable(coverage.unread, place) is None


def hides(coverage: Coverage, place: str) -> NotJudged | None:
    """Why a template may be at ``place`` although the data set does not contain it there; None if it cannot be."""
    directory = directory_of(place)
    unread = _unreadable(coverage.unread, place)
    if unread is None:
        unread = _unreadable(coverage.partly, place)
    if unread is not None:
        return NotJudged("unreadable", unread)
    return None if _reads(coverage, directory) else NotJudged("not-there", directory + "/")


class Look(NamedTuple):
    """A known data set with its coverage and what else decides about losses.

    ``disturbed`` maps an archive directory to an unreadable file or directory in it that is new or has changed since
    the previous data set. ``held_back`` returns whether the loss of a handle is held back.
    """

    data_set: DataSet
    coverage: Coverage
    disturbed: dict[str, str]
    held_back: Callable[[str], bool]

    def shows(self, claim: Claim | None) -> Claim | None:
        """Returns ``claim`` if it also holds for this data set, else None."""
        return claim if claim is not None and claim.state is not None and shows(self.coverage, claim.place) else None

    def judges(self, directory: str) -> bool:
        """Whether, as far as this archive directory is concerned, the absence of a template is a loss."""
        return _reads(self.coverage, directory) and directory not in self.disturbed and self.disturbed.get("") != ""

    def ignores(self, handle: str, place: str) -> NotJudged | None:
        """Why the absence of a template that was at ``place`` is not a loss; None if it is one."""
        why = hides(self.coverage, place)
        if why is not None:
            return why
        home, directory = home_of(handle, place), directory_of(place)
        if not _reads(self.coverage, home):
            return NotJudged("no-home", home + "/")
        for one in (directory, home):
            if one in self.disturbed:
                return NotJudged("disturbed", self.disturbed[one])
        return HELD_BACK if self.held_back(handle) else None


def coverage_of(directories: Iterable[str], unreadable: Iterable[tuple[str, bool, str]], *, complete: bool) -> Coverage:
    """The coverage of a data set that was read to its end, with these archive directories. ``unreadable`` are the
    places that could not be read, whether only in part, and what :class:`Coverage` has of them.

    If an archive has very many unreadable files, its whole directory counts as unreadable.
    """
    unread: dict[str, str] = {}
    partly: dict[str, str] = {}
    in_directory: Counter[str] = Counter()
    for place, in_part, digest in unreadable:
        directory = directory_of(place)
        in_directory[directory] += 1
        if in_directory[directory] <= _MOST_UNREAD:
            listed = digest == CHANGED and place[-1:] in ("", "/")
            (partly if in_part or listed else unread)[place.rstrip("/")] = digest
        else:
            unread[directory] = "too-many"
    for place in unread:
        partly.pop(place, None)
    return Coverage(complete, frozenset(directories), unread, partly)


def coverage_set(coverage: Coverage) -> KeyedSet:
    """Encodes a coverage as a set whose key is a hash of its contents."""
    data = canonical(coverage)
    return KeyedSet(xxh3_128_hexdigest(data), data)


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
