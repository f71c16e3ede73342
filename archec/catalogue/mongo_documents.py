"""Catalogue documents to and from MongoDB's: pure functions.

One document per obi in the paper's shape, ``{_id, h: {tist: md5 or null}, ...}``, entries in time
order. Names of fields are md5 checksums, tists and words of archec only, never outside data: what
is a map of archive codes elsewhere is a list of pairs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archec.catalogue.codec import (
    compact,
    data_set_from,
    data_set_value,
    fobi_from,
    fobi_value,
    history_from,
    run_from,
    run_value,
    tobi_from,
    tobi_value,
)
from archec.catalogue.lists import FileState, TobiFiles, last_held, named_by, tobi_files_of
from archec.catalogue.model import DataSet, Fobi, Run, SeenSet, TextPlace, Tobi, TobiState
from archec.errors import CatalogueError
from archec.history import History

__all__ = [
    "Document",
    "data_set_document",
    "data_set_of",
    "file_state_of",
    "files_of",
    "fobi_document",
    "fobi_of",
    "place_of",
    "run_document",
    "run_of",
    "seen_documents",
    "state_of",
    "tobi_document",
    "tobi_of",
]

Document = dict[str, Any]

_SEEN_PART = 8_000_000
"""Bytes of a seen set in one document: a whole set may exceed MongoDB's 16 MB."""


def tobi_document(tobi: Tobi) -> Document:
    """The document of ``mi``."""
    document = {**_keyed(tobi_value(tobi), "id"), **_times(tobi.history)}
    names = named_by(tobi)
    return {**document, "refs": sorted(names)} if names else document


def tobi_of(document: Mapping[str, Any]) -> Tobi:
    """The tobi of a document of ``mi``."""
    return tobi_from(_unkeyed(document, "id"))


def fobi_document(fobi: Fobi) -> Document:
    """The document of ``mo``."""
    return {**_keyed(fobi_value(fobi), "id"), **_times(fobi.history)}


def fobi_of(document: Mapping[str, Any]) -> Fobi:
    """The fobi of a document of ``mo``."""
    return fobi_from(_unkeyed(document, "id"))


def files_of(document: Mapping[str, Any]) -> TobiFiles | None:
    """Of ``{_id, h, v}``; None where the tobi never was held."""
    try:
        return tobi_files_of(document["_id"], document["h"], document["v"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a tobi: {error!r}") from error


def file_state_of(document: Mapping[str, Any]) -> FileState:
    """Of ``{_id, h, v, visit: {outcome}}``."""
    try:
        history = history_from(document["h"])
        version = document.get("v", {}).get(last_held(history) or "", {"type": ""})
        outcome = document.get("visit", {"outcome": ""})["outcome"]
        return FileState(history.held if history.tists else None, version["type"], outcome, history.last or 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a fobi: {error!r}") from error


def _times(history: History) -> Document:
    """The fields that the lists are read by."""
    times: Document = {"at": list(history.tists)} if history.tists else {}
    if None in history.states:
        back = [incidence.tist for incidence in history.incidences() if incidence.kind == "returned"]
        if back:
            times["back"] = back
        if history.lost:
            times["lost"] = history.lost
    return times


def state_of(document: Mapping[str, Any]) -> TobiState:
    """The scan's row of ``{_id, h}``."""
    try:
        h = document["h"]
        if not h:
            return TobiState(document["_id"], 0, None, "{}")
        if len(h) == 1:
            ((tist, state),) = h.items()
            return TobiState(document["_id"], int(tist), state, None)
        entries = sorted((int(tist), state) for tist, state in h.items())
        text = compact({str(tist): state for tist, state in entries})
        return TobiState(document["_id"], *entries[-1], text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document has no history: {error!r}") from error


def run_document(run: Run) -> Document:
    """The document of ``runs``."""
    return _keyed(run_value(run), "tist")


def run_of(document: Mapping[str, Any]) -> Run:
    """The run of a document of ``runs``."""
    return run_from(_unkeyed(document, "tist"))


def data_set_document(data_set: DataSet) -> Document:
    """The document of ``data_sets``."""
    value = data_set_value(data_set)
    value["partial"] = [list(pair) for pair in value["partial"].items()]
    return _keyed(value, "tist")


def data_set_of(document: Mapping[str, Any]) -> DataSet:
    """The data set of a document of ``data_sets``."""
    value = _unkeyed(document, "tist")
    try:
        value["partial"] = dict(value["partial"])
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogueError(f"a catalogue document is not a data set: {error!r}") from error
    return data_set_from(value)


def seen_documents(seen: SeenSet) -> list[Document]:
    """The documents of ``seen``: ``{_id: "KEY/PART", of: number of parts, ids: bytes}``."""
    parts = [seen.ids[i : i + _SEEN_PART] for i in range(0, len(seen.ids), _SEEN_PART)] or [b""]
    return [{"_id": f"{seen.key}/{i}", "of": len(parts), "ids": part} for i, part in enumerate(parts)]


def place_of(document: Mapping[str, Any]) -> TextPlace:
    """The place of a document of ``vi`` or ``vo``: ``{_id: checksum, at: {tist, id}}``."""
    try:
        return TextPlace(document["_id"], document["at"]["tist"], document["at"]["id"])
    except (KeyError, TypeError) as error:
        raise CatalogueError(f"a catalogue document is not a text's place: {error!r}") from error


def _keyed(value: Document, key: str) -> Document:
    return {"_id": value.pop(key), **value}


def _unkeyed(document: Mapping[str, Any], key: str) -> Document:
    value = dict(document)
    if "_id" in value:
        value[key] = value.pop("_id")
    return value
