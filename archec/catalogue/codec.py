"""Catalogue documents to and from plain JSON values: one form for SQLite, MongoDB and the dump.

Empty and default parts are left out, keys of histories are tists as text. The readers raise
:class:`archec.errors.CatalogueError` for a document that archec did not write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

import orjson

from archec.catalogue.model import (
    DataSet,
    Fobi,
    FobiNote,
    FobiVersion,
    Refipo,
    Run,
    Tobi,
    TobiNote,
    TobiVersion,
    Visit,
)
from archec.errors import CatalogueError
from archec.history import History

__all__ = [
    "canonical",
    "compact",
    "data_set_from",
    "data_set_value",
    "fobi_from",
    "fobi_value",
    "history_from",
    "history_value",
    "run_from",
    "run_value",
    "slim",
    "tobi_from",
    "tobi_value",
    "tobi_version_from",
    "tobi_version_value",
]

Value = dict[str, Any]
_T = TypeVar("_T")


def compact(value: object) -> str:
    """JSON text without blanks, keys in the order given; CatalogueError for what JSON cannot hold."""
    return _dumps(value, 0)


def canonical(value: object) -> str:
    """JSON text without blanks, keys sorted: equal values give equal text."""
    return _dumps(value, orjson.OPT_SORT_KEYS)


def _dumps(value: object, option: int) -> str:
    try:
        return orjson.dumps(value, option=option).decode()
    except orjson.JSONEncodeError as error:
        raise CatalogueError(f"cannot be written as JSON: {error}") from error


@lru_cache(maxsize=16)
def _defaults(cls: Any) -> tuple[tuple[str, object], ...]:
    return tuple((f.name, f.default) for f in fields(cls))


def slim(item: Any) -> Value:
    """The fields of a flat dataclass that differ from their defaults."""
    return {name: v for name, default in _defaults(item.__class__) if (v := getattr(item, name)) != default}


def _build(cls: type[_T], value: Mapping[str, Any]) -> _T:
    try:
        return cls(**value)
    except TypeError as error:
        raise CatalogueError(f"a catalogue document is not a {cls.__name__}: {error}") from error


def history_value(history: History) -> Value:
    """``{tist as text: md5 or None}`` in time order."""
    return {str(tist): state for tist, state in history}


def history_from(value: Mapping[str, str | None]) -> History:
    """The history of such a map."""
    try:
        return History.of({int(tist): state for tist, state in value.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document has no history: {error}") from error


def tobi_version_value(version: TobiVersion) -> Value:
    """One version, without its md5 (that is the key it stands under)."""
    value: Value = {
        "size": version.size,
        "text": version.text,
        "kind": version.kind,
        "title": version.title,
    }
    if version.refs:
        value["refs"] = [_ref_value(ref) for ref in version.refs]
    return value


def _ref_value(ref: Refipo) -> list[str]:
    value = list(ref)
    while len(value) > 1 and not value[-1]:
        value.pop()
    return value


def tobi_version_from(md5: str, value: Mapping[str, Any]) -> TobiVersion:
    """The version of such a value."""
    try:
        return TobiVersion(
            md5,
            value["size"],
            value["text"],
            value["kind"],
            value["title"],
            tuple(Refipo(*ref) for ref in value.get("refs", ())),
        )
    except (KeyError, TypeError) as error:
        raise CatalogueError(f"a catalogue document has a broken version {md5}: {error!r}") from error


def tobi_value(tobi: Tobi) -> Value:
    """A tobi as JSON values; ``h`` is in the paper's shape."""
    return {
        "id": tobi.id,
        "h": history_value(tobi.history),
        "handle": tobi.handle,
        "v": {md5: tobi_version_value(version) for md5, version in tobi.versions.items()},
        "n": {str(tist): slim(note) for tist, note in tobi.notes.items()},
        "stamp": tobi.stamp,
    }


def tobi_from(value: Mapping[str, Any]) -> Tobi:
    """The tobi of such a value."""
    try:
        return Tobi(
            value["id"],
            value["handle"],
            history_from(value["h"]),
            {md5: tobi_version_from(md5, version) for md5, version in value["v"].items()},
            {int(tist): _build(TobiNote, note) for tist, note in value["n"].items()},
            value["stamp"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a tobi: {error!r}") from error


def fobi_value(fobi: Fobi) -> Value:
    """A fobi as JSON values."""
    value: Value = {"id": fobi.id, "h": history_value(fobi.history), "due": fobi.due, "stamp": fobi.stamp}
    if fobi.versions:
        value["v"] = {
            md5: {"size": version.size, "text": version.text, "type": version.type}
            for md5, version in fobi.versions.items()
        }
    if fobi.notes:
        value["n"] = {str(tist): fobi_note_value(note) for tist, note in fobi.notes.items()}
    if fobi.visit is not None:
        value["visit"] = slim(fobi.visit)
    return value


def fobi_note_value(note: FobiNote) -> Value:
    """A note, its headers as a list of pairs."""
    value = slim(note)
    if "headers" in value:
        value["headers"] = [list(pair) for pair in note.headers]
    return value


def fobi_note_from(value: Mapping[str, Any]) -> FobiNote:
    """The note of such a value."""
    headers = tuple((name, text) for name, text in value.get("headers", ()))
    return _build(FobiNote, {**value, "headers": headers})


def fobi_version_from(md5: str, value: Mapping[str, Any]) -> FobiVersion:
    """The version of such a value."""
    return FobiVersion(md5, value["size"], value["text"], value["type"])


def fobi_from(value: Mapping[str, Any]) -> Fobi:
    """The fobi of such a value."""
    try:
        return Fobi(
            value["id"],
            history_from(value["h"]),
            {md5: fobi_version_from(md5, version) for md5, version in value.get("v", {}).items()},
            {int(tist): fobi_note_from(note) for tist, note in value.get("n", {}).items()},
            _build(Visit, value["visit"]) if "visit" in value else None,
            value["due"],
            value["stamp"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a fobi: {error!r}") from error


def run_value(run: Run) -> Value:
    """A run as JSON values."""
    return slim(run)


def run_from(value: Mapping[str, Any]) -> Run:
    """The run of such a value."""
    return _build(Run, value)


def data_set_value(data_set: DataSet) -> Value:
    """A data set as JSON values; its archives sorted."""
    value: Value = {
        "tist": data_set.tist,
        "names": list(data_set.names),
        "complete": data_set.complete,
        "covered": sorted(data_set.covered),
        "partial": {code: list(keys) for code, keys in sorted(data_set.partial.items())},
    }
    if data_set.guarded:
        value["guarded"] = sorted(data_set.guarded)
    return value


def data_set_from(value: Mapping[str, Any]) -> DataSet:
    """The data set of such a value."""
    try:
        return DataSet(
            value["tist"],
            tuple(value["names"]),
            value["complete"],
            frozenset(value["covered"]),
            {code: tuple(keys) for code, keys in value["partial"].items()},
            frozenset(value.get("guarded", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CatalogueError(f"a catalogue document is not a data set: {error!r}") from error
