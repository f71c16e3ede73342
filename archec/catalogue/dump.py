"""Dumps the catalogue as canonical JSON lines, which are the same for every engine.

Without ``everything`` a dump has only what the archive holds: it does not depend on when archec ran or in which order
data sets were replayed (design, invariants 3 and 4, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from archec.catalogue.documents import canonical, plain
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import COLLECTION, KINDS, TEXTS, Obi
from archec.errors import CatalogueError


def dump(catalogue: Catalogue, *, everything: bool) -> Iterator[str]:
    """Yields one line (without a line end) for each document, ordered by collection and id.

    The collections are mi, mo, mf, vi, vo and, with ``everything``, hosts, data_sets, held_back, runs, sets, manifests,
    ingests, state. With ``everything``, mi, mo and mf have complete obis, else the histories of all obis that were ever
    held: ``h`` maps tists to md5, ``s`` to sha256, null for losses. Holds one page in memory. Raises
    :class:`CatalogueError` if the catalogue cannot be read.
    """
    for kind in KINDS:
        for obi in catalogue.all(kind):
            if everything:
                yield _line(COLLECTION[kind], _whole(obi))
            elif obi.history:
                yield _line(COLLECTION[kind], {"id": obi.id, **_states(obi)})
    for kind in TEXTS:
        for text, tist, held in catalogue.texts(kind):
            yield _line(TEXTS[kind], {"id": text, "at": {"tist": tist, "id": held}})
    if everything:
        yield from _rest(catalogue)


def _line(collection: str, document: dict[str, Any]) -> str:
    return canonical({**document, "collection": collection}).decode()


def _states(obi: Obi) -> dict[str, Any]:
    md5: dict[str, str | None] = {}
    sha256: dict[str, str | None] = {}
    for tist, state in obi.history:
        version = obi.versions.get(state or "")
        if state is not None and version is None:
            raise CatalogueError(f"the catalogue lacks the contents {state} of {obi.id!r}", hint="run 'archec rebuild'")
        md5[str(tist)] = None if version is None else version.md5
        sha256[str(tist)] = state
    return {"h": md5, "s": sha256}


def _whole(obi: Obi) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": obi.id,
        **_states(obi),
        "v": {sha256: plain(version) for sha256, version in obi.versions.items()},
        "n": {str(tist): plain(note) for tist, note in obi.notes.items()},
        "stamp": obi.stamp,
    }
    if obi.kind == "tobi":
        whole |= {"handle": obi.handle, "place": obi.place, "claims": [plain(claim) for claim in obi.claims]}
    elif obi.kind == "fobi":
        whole |= {"visit": None if obi.visit is None else plain(obi.visit), "due": obi.due}
    return whole


def _rest(catalogue: Catalogue) -> Iterator[str]:
    for host in catalogue.hosts():
        yield _line("hosts", {"id": host.host, **plain(host)})
    coverages: set[str] = set()
    lists: set[str] = set()
    for data_set in catalogue.data_sets():
        coverages.add(data_set.coverage)
        yield _line("data_sets", {"id": data_set.tist, **plain(data_set)})
    for held_back in catalogue.held_back():
        lists.update(group.ids for group in held_back.groups.values())
        yield _line("held_back", {"id": held_back.run, **plain(held_back)})
    for run in catalogue.runs():
        yield _line("runs", {"id": run.tist, **plain(run)})
    for key in sorted((coverages | lists) - {""}):
        data = catalogue.keyed(key)
        yield _line("sets", {"id": key, "data": None if data is None else data.decode(errors="replace")})
    for sha256, number, file in catalogue.manifests():
        yield _line("manifests", {"id": [sha256, number], **plain(file)})
    for ingest in catalogue.ingests():
        yield _line("ingests", {"id": [ingest.base_url, ingest.ingest_type], **plain(ingest)})
    yield _line("state", {"id": "position", **catalogue.position()._asdict()})
