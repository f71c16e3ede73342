"""Templates and files for the tests of lists: short, and with all that lists tell."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5, sha256
from typing import Any

from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Changes, Note, Obi, Position, Refipo, Version, Visit
from archec.config import Config
from archec.history import History
from archec.store.layout import Layout

PAPER = "ReDIF-Paper 1.0"


def version_of(contents: str, /, **more: Any) -> Version:
    """The version whose bytes are a text."""
    data = contents.encode()
    return Version(sha256(data).hexdigest(), md5(data, usedforsecurity=False).hexdigest(), len(data), **more)


def lot(number: int, **parts: Any) -> Changes:
    """A lot that reaches batch ``number``."""
    return Changes(Position(1000, number, 2000 + number, f"{number:064x}"), **parts)


def work(
    obi: str,
    entries: dict[int, Sequence[str] | None],
    *,
    kind: str = PAPER,
    title: str = "A title",
    how: dict[int, str] | None = None,
    run: int = 1000,
    stamp: int = 1,
) -> Obi:
    """A template that names these URLs from each tist on, and is lost where there is None."""
    states: dict[int, str | None] = {}
    versions: dict[str, Version] = {}
    for tist, urls in entries.items():
        if urls is None:
            states[tist] = None
            continue
        text = f"{obi} {'+'.join(urls)}"
        refs = tuple(Refipo(url) for url in urls)
        version = version_of(text, text=version_of(text).md5, type=kind, title=title, refs=refs)
        states[tist] = version.sha256
        versions[version.sha256] = version
    notes = {
        tist: Note(run, (how or {}).get(tist, "new"), reason="not there" if state is None else "")
        for tist, state in states.items()
    }
    return Obi(obi, "tobi", History.of(states), versions, notes, obi.replace("repec", "RePEc"), stamp=stamp)


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
) -> Obi:
    """A file with these contents from each tist on, lost where there is None."""
    seen = {tist: None if text is None else version_of(text, type=kind) for tist, text in entries.items()}
    states = {tist: None if version is None else version.sha256 for tist, version in seen.items()}
    versions = {version.sha256: version for version in seen.values() if version is not None}
    notes = {
        tist: Note(run, "lost" if state is None else "new", reason=reason if state is None else "", suspect=suspect)
        for tist, state in states.items()
    }
    visit = Visit(99, outcome) if outcome else None
    return Obi(url, "fobi", History.of(states), versions, notes, visit=visit, stamp=stamp)


def opened(layout: Layout, catalogue: Catalogue) -> Archive:
    """The open archive that they make up."""
    return Archive(Config(base=layout.root), layout, catalogue)
