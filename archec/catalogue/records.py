"""The lines of a run's journal: what they mean, and their JSON form.

A journal is all that the catalogue derives from (design, invariant 3), so a line says what changed,
not what was computed on the way. One JSON object a line, with its ``type``:

=============  =====================================================================================
``run``        the run begins: software tist, data set, options
``tobi``       entries put into and dropped from a tobi's history, with the version they speak of
``fobi``       a visit to a URL, and the entry it put into the fobi's history, if any
``seen``       the handles that a data set held of an archive that it does not cover
``data-set``   the data set was read and merged: from now on its absences count
``end``        the run ended (or paused): state and report
=============  =====================================================================================

Lines come in batches; each batch is closed by a line of type ``batch``
(:mod:`archec.store.journal`), whose stamp is the moment at which it became visible.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from archec.catalogue.codec import (
    compact,
    data_set_from,
    data_set_value,
    fobi_note_from,
    fobi_note_value,
    fobi_version_from,
    slim,
    tobi_version_from,
    tobi_version_value,
)
from archec.catalogue.model import DataSet, FobiNote, FobiVersion, SeenSet, TobiNote, TobiVersion, Visit
from archec.errors import ArchecError, CorruptJournal

__all__ = [
    "FobiVisit",
    "Record",
    "RunEnd",
    "RunStart",
    "TobiChange",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run begins. ``data_set`` is the tist of its data set, ``kind`` ``directory`` or
    ``tarball``, ``source`` its absolute path, ``options`` what it was asked to do, as JSON text."""

    tist: int
    data_set: int
    kind: str
    source: str
    options: str
    software: str


@dataclass(frozen=True, slots=True)
class TobiChange:
    """Entries put into (``None``: lost) and dropped from a tobi's history, each put with a note.

    ``version`` describes the content that was seen, None for a loss.
    """

    id: str
    handle: str
    put: Mapping[int, str | None]
    notes: Mapping[int, TobiNote]
    drop: tuple[int, ...] = ()
    version: TobiVersion | None = None


@dataclass(frozen=True, slots=True)
class FobiVisit:
    """A visit to a URL; ``put`` is not empty where it is an incidence."""

    id: str
    visit: Visit
    due: int
    put: Mapping[int, str | None] = field(default_factory=dict)
    version: FobiVersion | None = None
    note: FobiNote | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run ended in ``state`` (see :class:`archec.catalogue.model.Run`); report as JSON text."""

    tist: int
    state: str
    report: str


Record = RunStart | TobiChange | FobiVisit | SeenSet | DataSet | RunEnd


def encode(record: Record) -> str:
    """One journal line without its newline."""
    return compact(_value(record))


def _value(record: Record) -> dict[str, Any]:
    if isinstance(record, TobiChange):
        value: dict[str, Any] = {"type": "tobi", "id": record.id, "handle": record.handle, "put": _texts(record.put)}
        if record.drop:
            value["drop"] = list(record.drop)
        if record.version is not None:
            value["md5"] = record.version.md5
            value["version"] = tobi_version_value(record.version)
        value["notes"] = {str(tist): slim(note) for tist, note in record.notes.items()}
        return value
    if isinstance(record, FobiVisit):
        value = {"type": "fobi", "id": record.id, "visit": slim(record.visit), "due": record.due}
        if record.put:
            value["put"] = _texts(record.put)
        if record.version is not None:
            version = record.version
            value["md5"] = version.md5
            value["version"] = {"size": version.size, "text": version.text, "type": version.type}
        if record.note is not None:
            value["note"] = fobi_note_value(record.note)
        return value
    if isinstance(record, SeenSet):
        packed = base64.b64encode(zlib.compress(record.ids, 6)).decode("ascii")
        return {"type": "seen", "key": record.key, "ids": packed}
    if isinstance(record, DataSet):
        return {"type": "data-set", **data_set_value(record)}
    if isinstance(record, RunStart):
        return {
            "type": "run",
            "journal": 1,
            "tist": record.tist,
            "data_set": record.data_set,
            "kind": record.kind,
            "source": record.source,
            "options": orjson.loads(record.options),
            "software": record.software,
        }
    return {"type": "end", "tist": record.tist, "state": record.state, "report": orjson.loads(record.report or "{}")}


def decode(line: bytes | str, where: str = "journal") -> Record:
    """The record of a journal line; CorruptJournal, naming ``where``, if it is none."""
    try:
        value = orjson.loads(line)
        return _readers[value["type"]](value)
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error, binascii.Error, ArchecError) as error:
        raise CorruptJournal(f"{where}: not a journal line: {error!r}") from error


def _texts(states: Mapping[int, str | None]) -> dict[str, str | None]:
    return {str(tist): state for tist, state in states.items()}


def _states(value: Mapping[str, str | None]) -> dict[int, str | None]:
    return {int(tist): state for tist, state in value.items()}


def _tobi(value: dict[str, Any]) -> Record:
    return TobiChange(
        value["id"],
        value["handle"],
        _states(value["put"]),
        {int(tist): TobiNote(**note) for tist, note in value["notes"].items()},
        tuple(value.get("drop", ())),
        tobi_version_from(value["md5"], value["version"]) if "version" in value else None,
    )


def _fobi(value: dict[str, Any]) -> Record:
    return FobiVisit(
        value["id"],
        Visit(**value["visit"]),
        value["due"],
        _states(value.get("put", {})),
        fobi_version_from(value["md5"], value["version"]) if "version" in value else None,
        fobi_note_from(value["note"]) if "note" in value else None,
    )


def _seen(value: dict[str, Any]) -> Record:
    return SeenSet(value["key"], zlib.decompress(base64.b64decode(value["ids"])))


def _run(value: dict[str, Any]) -> Record:
    return RunStart(
        value["tist"],
        value["data_set"],
        value["kind"],
        value["source"],
        compact(value["options"]),
        value["software"],
    )


def _end(value: dict[str, Any]) -> Record:
    return RunEnd(value["tist"], value["state"], compact(value["report"]))


_readers = {
    "tobi": _tobi,
    "fobi": _fobi,
    "seen": _seen,
    "data-set": data_set_from,
    "run": _run,
    "end": _end,
}
