"""Templates and files for the tests of lists: short, and with all that lists tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from catalogue_data import checksum

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Fobi, FobiNote, FobiVersion, Refipo, Tobi, TobiNote, TobiVersion, Visit
from archec.history import History

PAPER = "ReDIF-Paper 1.0"


class Place(NamedTuple):
    """A catalogue, and how to open it again."""

    catalogue: Catalogue
    url: str
    base: Path


def work(
    obi: str,
    entries: dict[int, Sequence[str] | None],
    *,
    kind: str = PAPER,
    title: str = "A title",
    how: dict[int, str] | None = None,
    run: int = 1000,
    stamp: int = 1,
) -> Tobi:
    """A template that names these URLs from each tist on, and is lost where there is None."""
    states: dict[int, str | None] = {}
    versions: dict[str, TobiVersion] = {}
    for tist, urls in entries.items():
        if urls is None:
            states[tist] = None
            continue
        md5 = states[tist] = checksum(f"{obi} {'+'.join(urls)}")
        versions[md5] = TobiVersion(md5, 9, checksum(md5), kind, title, tuple(Refipo(url) for url in urls))
    notes = {
        tist: TobiNote(run, (how or {}).get(tist, "new"), reason="not there" if state is None else "")
        for tist, state in states.items()
    }
    return Tobi(obi, obi.replace("repec", "RePEc"), History.of(states), versions, notes, stamp)


def file(
    url: str,
    entries: dict[int, str | None],
    outcome: str = "same",
    *,
    kind: str = "application/pdf",
    reason: str = "HTTP status 404",
    suspect: str = "",
    run: int = 1000,
    stamp: int = 1,
) -> Fobi:
    """A file with these contents from each tist on, lost where there is None."""
    states = {tist: None if text is None else checksum(text) for tist, text in entries.items()}
    versions = {md5: FobiVersion(md5, 5, None, kind) for md5 in states.values() if md5 is not None}
    notes = {
        tist: FobiNote(run, "lost" if md5 is None else "new", reason=reason if md5 is None else "", suspect=suspect)
        for tist, md5 in states.items()
    }
    visit = Visit(99, outcome) if outcome else None
    return Fobi(url, History.of(states), versions, notes, visit, 0, stamp)
