"""What an obi is made of in the database: rows and small documents, the same for every engine.

An obi is kept in parts, so that no document grows with the number of its versions, references or visits: a head, an
entry for each entry of its history, its versions, the references of its versions, its last visit. These functions take
an obi apart and put it together again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from archec.catalogue.codec import text_of
from archec.catalogue.lists import TobiFiles
from archec.catalogue.model import Changes, Claim, Kind, Note, Obi, Version, Visit, Visited
from archec.errors import CatalogueRefused
from archec.history import History

_SHA256 = re.compile("[0-9a-f]{64}")
_MD5 = re.compile("[0-9a-f]{32}")

KEYS: Mapping[str, tuple[str, ...]] = {
    "runs": ("tist",),
    "data_sets": ("tist", "run"),
    "held": ("run", "kind"),
    "hosts": ("host",),
    "manifests": ("sha256", "n"),
    "ingests": ("base_url", "ingest_type"),
    "refused": ("run", "batch", "what"),
}
"""The collections of small documents, with the names of the fields of their keys."""

Key = tuple[Any, ...]
"""The fields of a row, the key of which comes first."""


class Head(NamedTuple):
    """The narrow part that scans and orders read. ``last`` is None if the obi never was held."""

    id: str
    last: int | None
    state: str | None
    handle: str
    type: str
    stamp: int
    due: int
    place: str = ""
    since: int | None = None
    settled: int | None = None


class HistoryEntry(NamedTuple):
    """An entry of a history; ``back``: the obi had been lost before it."""

    id: str
    tist: int
    back: bool
    note: Note | None


class Content(NamedTuple):
    """A version of an obi. ``first`` is the first tist at which the obi held these bytes under its own name; None if
    it only redirected to them."""

    id: str
    version: Version
    first: int | None


class Parts(NamedTuple):
    """An obi taken apart."""

    head: Head
    entries: list[HistoryEntry]
    contents: list[Content]
    claims: list[Claim]
    names: set[str]


def parts_of(obi: Obi) -> Parts:
    """Takes an obi apart; its visit is not among the parts. Raises CatalogueRefused if a checksum is none."""
    _check(obi)
    history, newest = obi.history, obi.newest
    state = history.states[-1] if history.states else None
    kind = newest.type if newest is not None else ""
    first = _first_tists(obi)
    back = {i.tist for i in history.incidences() if i.kind == "returned"} if None in history.states else frozenset()
    return Parts(
        Head(
            obi.id, history.last, state, obi.handle, kind, obi.stamp, obi.due, obi.place,
            obi.since if obi.kind == "tobi" else None, obi.settled or None,
        ),
        [HistoryEntry(obi.id, tist, tist in back, obi.notes.get(tist)) for tist in history.tists],
        [Content(obi.id, version, first.get(sha256)) for sha256, version in obi.versions.items()],
        list(obi.claims),
        obi.names,
    )


def new_parts_of(obi: Obi, before: Obi | None) -> Parts:
    """The parts of an obi that are not in the database yet: of a long history only what was added to it is written."""
    parts = parts_of(obi)
    if before is None:
        return parts
    old = parts_of(before)
    entries = {entry.tist: entry for entry in old.entries}
    contents = {content.version.sha256: content for content in old.contents}
    claims = {claim.key: claim for claim in old.claims}
    return parts._replace(
        entries=[entry for entry in parts.entries if entries.get(entry.tist) != entry],
        contents=[content for content in parts.contents if contents.get(content.version.sha256) != content],
        claims=[claim for claim in parts.claims if claims.get(claim.key) != claim],
        names=parts.names - old.names,
    )


def _check(obi: Obi) -> None:
    """Both engines sort and look up checksums by their bytes: only their one spelling may be kept."""
    sha256s = [state for state in obi.history.states if state is not None] + list(obi.versions)
    sha256s += [claim.state for claim in obi.claims if claim.state is not None]
    md5s = [version.md5 for version in obi.versions.values()]
    texts = [version.text for version in obi.versions.values() if version.text is not None]
    for form, checksums in ((_SHA256, sha256s), (_MD5, md5s), (_MD5, texts)):
        for checksum in checksums:
            if not form.fullmatch(checksum):
                raise CatalogueRefused(f"{obi.id[:200]!r}: {checksum[:80]!r} is not a checksum")


def _first_tists(obi: Obi) -> dict[str, int]:
    """The first tist of each state that the obi held under its own name."""
    first: dict[str, int] = {}
    for tist, state in obi.history:
        note = obi.notes.get(tist)
        if state is not None and (note is None or not note.target):
            first.setdefault(state, tist)
    return first


class Gone(NamedTuple):
    """What the obi with this ``id`` consisted of and no longer does: tists of entries, sha256 of versions, URLs that
    it named, data sets that said something of it."""

    id: str
    tists: set[int]
    versions: set[str]
    names: set[str]
    claims: set[tuple[int, int]]


def gone(before: Obi, after: Obi) -> Gone:
    """What is to be removed when ``after`` takes the place of ``before``."""
    return Gone(
        before.id,
        set(before.history.tists).difference(after.history.tists),
        before.versions.keys() - after.versions.keys(),
        before.names - after.names,
        {claim.key for claim in before.claims}.difference(claim.key for claim in after.claims),
    )


def written_obis(changes: Changes, kind: Kind) -> list[Obi]:
    """The obis of one kind that a batch writes, each once, by id: databases like keys in order."""
    obis = {obi.id: obi for obi in changes.obis if obi.kind == kind}
    return [obis[obi] for obi in sorted(obis)]


def written_visits(changes: Changes) -> list[Visited]:
    """The visits that a batch writes, one for each fobi, by id."""
    own = [Visited(obi.id, obi.visit, obi.due) for obi in changes.obis if obi.visit is not None]
    latest = {visited.id: visited for visited in (*changes.visits, *own)}
    return [latest[obi] for obi in sorted(latest)]


def documents_of(changes: Changes) -> Iterator[tuple[str, list[Key]]]:
    """The small documents that a batch writes, by collection: keys and texts in one row."""
    for name, items in (
        ("runs", changes.runs), ("data_sets", changes.data_sets), ("held", changes.held_back),
        ("ingests", changes.ingests), ("refused", changes.refused),
        ("hosts", [host for host in changes.hosts if not host.clear]),
    ):  # fmt: skip
        yield name, [(*(getattr(item, field) for field in KEYS[name]), text_of(item).decode()) for item in items]
    yield "manifests", [
        (part.sha256, n, text_of(file).decode())
        for part in changes.manifests for n, file in enumerate(part.files, part.first)
    ]  # fmt: skip


def is_text(obi: str) -> bool:
    """Whether a database can hold this id at all: a lone surrogate is not text, and so never known."""
    try:
        obi.encode()
    except UnicodeEncodeError:
        return False
    return True


class ObiParts:
    """What was read of some obis besides their heads, by id."""

    def __init__(self) -> None:
        self.notes: defaultdict[str, list[tuple[int, Note]]] = defaultdict(list)
        self.versions: defaultdict[str, list[Version]] = defaultdict(list)
        self.claims: defaultdict[str, list[Claim]] = defaultdict(list)
        self.visits: dict[str, Visit] = {}

    def whole(
        self, kind: Kind, obi: str, history: History, *, handle: str, due: int, stamp: int, place: str, settled: int
    ) -> Obi:
        """Puts an obi together: what belongs to no entry of its history, and to no claim, does not count."""
        claims = tuple(sorted(self.claims[obi], key=attrgetter("key")))
        known = dict(self.notes[obi])
        notes = {tist: known[tist] for tist in history.tists if tist in known}
        versions = versions_of(history, self.versions[obi], claims)
        visit = self.visits.get(obi)
        return Obi(obi, kind, history, versions, notes, handle, visit, due, stamp, claims, place, settled)


def versions_of(history: History, versions: Iterable[Version], claims: Iterable[Claim] = ()) -> dict[str, Version]:
    """The versions that a history or a claim names, by sha256."""
    states = {*history.states, *(claim.state for claim in claims)}
    return {version.sha256: version for version in sorted(versions, key=lambda v: v.sha256) if version.sha256 in states}


def tobi_files_of(id: str, history: History, known: Iterable[Version]) -> TobiFiles | None:  # noqa: A002
    """The files that a tobi names; None if it never was held."""
    versions = versions_of(history, known)
    newest = history.last_held
    if newest is None or history.last is None:
        return None
    version = versions.get(newest)
    files = tuple(dict.fromkeys(_urls(version))) if version is not None else ()
    older = {url for other in versions.values() for url in _urls(other)}
    kind, bad = (version.type, version.bad_urls) if version is not None else ("", 0)
    return TobiFiles(id, history.last, history.held, kind, files, tuple(sorted(older.difference(files))), bad)


def _urls(version: Version) -> Iterator[str]:
    return (ref.url for ref in version.refs)
