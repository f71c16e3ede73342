"""CDXJ indexes: writing and reading lines, one per record, sorted by key (SURT) and time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import orjson

from archec.errors import CorruptArchive
from archec.urlkey import urlkey
from archec.warc.records import Observation, http_status, media_type

_LINE = re.compile(rb'([!-~]+ [0-9]{14} \{"url":"[ -~]*?")[,}].*"filename":"([ -~]*?)"', re.S)
_MAX_LINE = 1 << 20
_REVISIT = "warc/revisit"


class IndexLine(NamedTuple):
    """A line of an index: with its line end, its prefix (see :func:`prefix`), and the filename in it."""

    line: bytes
    prefix: bytes
    filename: bytes

    def fields(self) -> dict[str, Any]:
        value: dict[str, Any] = orjson.loads(self.line[self.line.index(b"{") :])
        return value

    def payload(self) -> str:
        """The payload digest of the record, or ``""`` if it has none or is a revisit."""
        value = self.fields()
        return "" if value.get("mime") == _REVISIT else str(value.get("digest", ""))


@lru_cache(maxsize=4096)
def timestamp(tist: int) -> str:
    """A tist as a timestamp of 14 digits."""
    return datetime.fromtimestamp(tist, tz=timezone.utc).strftime("%Y%m%d%H%M%S").rjust(14, "0")


def prefix(uri: str, tist: int) -> bytes:
    """The start of the index line of an observation: key, time and URI. It is unique per observation."""
    return f'{urlkey(uri)} {timestamp(tist)} {{"url":"{uri}"'.encode()


def index_line(prefix: bytes, seen: Observation, digest: str, offset: int, length: int, filename: str) -> bytes:
    """The index line of a record whose gzip member has ``length`` bytes at ``offset`` in a file."""
    value = {
        "mime": mime_of(seen),
        **({"status": str(http_status(seen))} if seen.kind in ("response", "redirect") else {}),
        "digest": digest,
        "length": str(length),
        "offset": str(offset),
        "filename": filename,
    }
    return prefix + b"," + orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[1:]


def read_index(file: BinaryIO, name: str) -> Iterator[IndexLine]:
    """Yields the lines of an index. Raises CorruptArchive, which states ``name`` and the line, for an invalid or
    unsorted line."""
    number, before = 0, b""
    while line := file.readline(_MAX_LINE):
        number += 1
        match = _LINE.match(line)
        if match is None or not line.endswith(b"}\n") or line <= before:
            raise CorruptArchive(
                f"{name}:{number}: is not a line of a sorted index",
                hint="remove this index: the series is then exported again",
            )
        before = line
        yield IndexLine(line, match[1], match[2])


def mime_of(seen: Observation) -> str:
    """The media type for an index, as cdxj-indexer gives it."""
    if seen.kind == "revisit":
        return _REVISIT
    if seen.kind == "metadata":
        return "application/warc-fields"
    if seen.kind == "resource":
        return media_type(seen.type) or "application/octet-stream"
    for name, value in seen.headers:
        if name.lower() == "content-type":
            return media_type(value.partition(";")[0].strip()) or "unk"
    return "unk"
