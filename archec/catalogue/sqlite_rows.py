"""Catalogue documents to and from the rows of an SQLite catalogue: pure functions."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import orjson

from archec.catalogue.codec import (
    compact,
    data_set_from,
    data_set_value,
    fobi_from,
    fobi_value,
    history_from,
    history_value,
    run_from,
    run_value,
    tobi_from,
    tobi_value,
)
from archec.catalogue.lists import FileState, TobiFiles, last_held, tobi_files_of
from archec.catalogue.model import DataSet, Fobi, Run, TextPlace, Tobi, TobiState
from archec.errors import CatalogueError
from archec.history import History

__all__ = [
    "checksum_blob",
    "data_set_of",
    "data_set_row",
    "file_state_of",
    "files_of",
    "fobi_of",
    "fobi_row",
    "history_and_names",
    "place_of",
    "place_row",
    "run_of",
    "run_row",
    "state_of",
    "tobi_of",
    "tobi_row",
]

state_of = cast("Any", partial(tuple.__new__, TobiState))
"""A :class:`TobiState` of a row (id, last, state, h), at a third of the cost of ``_make``."""


def tobi_row(tobi: Tobi, n: int) -> tuple[str, int, str | None, str | None, int, int]:
    """The row of ``mi``."""
    history = tobi.history
    if len(history.tists) == 1:
        return tobi.id, history.tists[0], history.states[0], None, tobi.stamp, n
    h = _text(history_value(history))
    return tobi.id, history.last or 0, history.states[-1] if history.states else None, h, tobi.stamp, n


def fobi_row(fobi: Fobi, n: int) -> tuple[str, int, int, bool | None, int, int | None, str | None, str | None]:
    """The row of ``mo`` but ``ref``; held is NULL for a fobi that never was, outcome for one never visited."""
    history, outcome = fobi.history, fobi.visit.outcome if fobi.visit is not None else None
    if not history.tists:
        return fobi.id, fobi.due, fobi.stamp, None, n, None, None, outcome
    version = fobi.versions.get(last_held(history) or "")
    kind = version.type if version is not None else None
    return fobi.id, fobi.due, fobi.stamp, history.held, n, history.last, kind, outcome


def tobi_doc(tobi: Tobi) -> str:
    """The text of ``mi_doc``."""
    return _text(tobi_value(tobi))


def fobi_doc(fobi: Fobi) -> str:
    """The text of ``mo_doc``."""
    return _text(fobi_value(fobi))


def tobi_of(doc: str) -> Tobi:
    """The tobi of such a text."""
    return tobi_from(_parsed(doc))


def fobi_of(fobi: str, doc: str | None) -> Fobi:
    """The fobi of such a text; without one it was only mentioned."""
    return Fobi(fobi) if doc is None else fobi_from(_parsed(doc))


def history_and_names(doc: str) -> tuple[History, set[str]]:
    """The history of a document of either kind, and the fobis that its versions name."""
    value = _parsed(doc)
    try:
        names = {ref[0] for version in value.get("v", {}).values() for ref in version.get("refs", ())}
        return history_from(value["h"]), names
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is broken: {error!r}") from error


def files_of(doc: str) -> TobiFiles | None:
    """Of such a text of a tobi; None where it never was held."""
    value = _parsed(doc)
    try:
        return tobi_files_of(value["id"], value["h"], value["v"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a tobi: {error!r}") from error


def file_state_of(row: tuple[int | None, str | None, str | None, int | None]) -> FileState:
    """Of a row with held, type, outcome and last."""
    held, kind, outcome, last = row
    return FileState(None if held is None else bool(held), kind or "", outcome or "", last or 0)


def run_row(run: Run) -> tuple[int, str]:
    """The row of ``runs``."""
    return run.tist, _text(run_value(run))


def run_of(doc: str) -> Run:
    """The run of such a row's text."""
    return run_from(_parsed(doc))


def data_set_row(data_set: DataSet) -> tuple[int, str]:
    """The row of ``data_sets``."""
    return data_set.tist, _text(data_set_value(data_set))


def data_set_of(doc: str) -> DataSet:
    """The data set of such a row's text."""
    return data_set_from(_parsed(doc))


def checksum_blob(text: str) -> bytes:
    """The 16 bytes of a text checksum; :class:`CatalogueError` if it is none."""
    try:
        blob = bytes.fromhex(text)
    except ValueError:
        blob = b""
    if len(blob) != 16 or blob.hex() != text:
        raise CatalogueError(f"{text!r} is not a text checksum")
    return blob


def place_row(place: TextPlace) -> tuple[bytes, int, str]:
    """The row of ``vi`` or ``vo``."""
    return checksum_blob(place.text), place.tist, place.id


def place_of(row: tuple[bytes, int, str]) -> TextPlace:
    """The place of such a row."""
    return TextPlace(row[0].hex(), row[1], row[2])


def _text(value: dict[str, Any]) -> str:
    try:
        return compact(value)
    except orjson.JSONEncodeError as error:
        raise CatalogueError(f"a value cannot be kept in the catalogue: {error}") from error


def _parsed(doc: str) -> dict[str, Any]:
    try:
        value = orjson.loads(doc)
    except orjson.JSONDecodeError as error:
        raise CatalogueError(f"a catalogue document is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CatalogueError("a catalogue document is not a JSON object")
    return value
