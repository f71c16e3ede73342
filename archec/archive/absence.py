"""Absence: what a data set covers, and therefore what it says about a template that it does not contain.

Pure functions over the coverages of data sets (design, section 4, "evidence by place").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from xxhash import xxh3_128_hexdigest

from archec.catalogue.documents import canonical
from archec.catalogue.model import Claim, Coverage, DataSet, KeyedSet
from archec.ids import archive_of, item_of
from archec.redif.precedence import CORE


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


def coverage_set(coverage: Coverage) -> KeyedSet:
    """Encodes a coverage as a set whose key is a hash of its contents."""
    data = canonical(coverage)
    return KeyedSet(xxh3_128_hexdigest(data), data)
