"""What a journal line says of a history, read quickly: the audit reads every line of every journal.

:func:`archec.catalogue.records.decode` reads all of a line; fixity needs its id, its entries and
their sha256s only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import orjson
from xxhash import xxh3_128_digest

from archec.errors import CorruptJournal
from archec.tist import MAX_TIST

__all__ = ["Entry", "Told", "key_of", "names_something", "told_by"]

_USUAL = re.compile(
    rb'\{"type":"obi","kind":"tobi","id":"([!#-\[\]-~]+)",(?:"handle":"[^"\\]*",)?'
    rb'"put":\{"(0|[1-9][0-9]{0,11})":"([0-9a-f]{64})"\},'
    rb'"version":\{"sha256":"\3","md5":"([0-9a-f]{32})","size":(0|[1-9][0-9]{0,17})[,}]'
)
"""A template that was new or had changed: by far the most lines, read without parsing their JSON."""
_OBI = b'{"type":"obi"'


class Entry(NamedTuple):
    """An obi as noted at a tist: its sha256, its size in bytes (-1: not told) and, where its URL
    redirected, the id that it redirected to; its md5 (empty: not told)."""

    tist: int
    id: str
    sha256: str
    size: int
    target: str
    md5: str = ""


class Told(NamedTuple):
    """What a line says of a history: the entries that it puts there (None: lost), and, of its contents with
    sha256 ``sha256``, the size and the id that the URL redirected to."""

    id: str
    put: dict[int, str | None]
    sha256: str
    size: int
    target: str
    md5: str = ""

    def entries(self) -> list[Entry]:
        """What must be on disk for the line's sake; what is dropped from a history stays there, too."""
        obi, put, sha256, size, target, md5 = self
        return [
            Entry(tist, obi, state, *((size, target, md5) if state == sha256 else (-1, target, "")))
            for tist, state in put.items()
            if state is not None
        ]


def names_something(line: bytes) -> bool:
    """Whether a line may put entries into a history; cheap, and right but for lines that only say a loss."""
    return line.startswith(_OBI) and b'"put":{"' in line


def told_by(line: bytes, where: str) -> Told | None:
    """What a line puts into a history, None where it puts nothing there.

    Raises :class:`CorruptJournal`, naming ``where``, for a line that archec does not write.
    """
    usual = _USUAL.match(line)
    if usual is not None:
        obi, tist, sha256, md5, size = usual.groups()
        if int(tist) <= MAX_TIST:
            text = sha256.decode()
            return Told(obi.decode(), {int(tist): text}, text, int(size), "", md5.decode())
    return _told_by_json(line, where) if names_something(line) else None


def _told_by_json(line: bytes, where: str) -> Told:
    try:
        value = orjson.loads(line)
        obi, put, version = value["id"], value["put"], value.get("version")
        states: dict[int, str | None] = {}
        for raw, state in put.items():
            tist = int(raw)
            if not 0 <= tist <= MAX_TIST or (state is not None and len(state) != 64):
                raise ValueError(f"an entry {raw!r}: {state!r}")
            states[tist] = state
        if type(obi) is not str or not obi:
            raise ValueError("no id")
        if version is None:
            return Told(obi, states, "", -1, "")
        size, notes = version["size"], value.get("notes", {})
        target = next((note["target"] for note in notes.values() if "target" in note), "")
        if type(size) is not int or size < 0 or type(target) is not str:
            raise ValueError(f"a size of {size!r}, a target of {target!r}")
        return Told(obi, states, version["sha256"], size, target, version["md5"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptJournal(f"{where}: not a journal line: {error!r}") from error


def key_of(path: str) -> bytes:
    """16 bytes that stand for a relative path, and so for a (tist, id)."""
    return xxh3_128_digest(path.encode("utf-8", "surrogateescape"))
