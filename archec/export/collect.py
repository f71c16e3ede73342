"""What a unit is to hold: its templates' states, and those of all files that they mention, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from xxhash import xxh3_64_intdigest

from archec.catalogue.interface import Catalogue
from archec.export.observations import line_of, of_fobi, of_tobi
from archec.export.sorting import SortedLines
from archec.export.units import Unit, tobis_of
from archec.export.visits import Visits

__all__ = ["collect"]

_LOT = 500
_MOST_HOPS = 64
_MOST_KNOWN = 1_000_000
"""Redirects' targets that are remembered, so as not to be looked up again in the next round."""


def collect(
    catalogue: Catalogue,
    unit: Unit,
    visits: Visits | None,
    since: int,
    folder: Path,
    into: SortedLines,
    check: Callable[[], None],
) -> None:
    """Puts all observations of a unit from ``since`` on into ``into``; calls ``check`` every now and then.

    A file belongs to every series one of whose templates mentions it or ever mentioned it, and so does all
    that its URL redirects to.
    """
    with SortedLines(folder) as mentioned:
        for n, tobi in enumerate(tobis_of(catalogue, unit)):
            if n % _LOT == 0:
                check()
            for seen in of_tobi(tobi, since):
                into.add(line_of(seen))
            for version in tobi.versions.values():
                for refipo in version.refs:
                    mentioned.add(refipo.url.encode("utf-8", "surrogatepass"))
        known: set[int] = set()
        targets = _round(catalogue, mentioned, visits, since, folder, into, known)
    for _ in range(_MOST_HOPS):
        with targets:
            further = _round(catalogue, targets, visits, since, folder, into, known)
        targets = further
        if targets.empty:
            break
    targets.close()


def _round(
    catalogue: Catalogue,
    urls: SortedLines,
    visits: Visits | None,
    since: int,
    folder: Path,
    into: SortedLines,
    known: set[int],
) -> SortedLines:
    """Puts the observations of these URLs into ``into``; gives what they redirect to and was not looked at."""
    targets = SortedLines(folder)
    for lot in _lots(url.decode("utf-8", "surrogatepass") for url in urls):
        for fobi in catalogue.fobis(lot).values():
            for seen in of_fobi(fobi, visits, since):
                into.add(line_of(seen))
            for note in fobi.notes.values():
                if note.target:
                    target = note.target.encode("utf-8", "surrogatepass")
                    key = xxh3_64_intdigest(target)
                    if key not in known:
                        if len(known) < _MOST_KNOWN:
                            known.add(key)
                        targets.add(target)
    return targets


def _lots(items: Iterator[str]) -> Iterator[Sequence[str]]:
    while lot := list(islice(items, _LOT)):
        yield lot
