"""Rows: the entries of an index, one per capture. Parses lines of CDXJ and CDX, and formats rows for the API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

CDX_COLUMNS: Mapping[str, str] = {
    "N": "urlkey",
    "b": "timestamp",
    "a": "url",
    "m": "mime",
    "s": "status",
    "k": "digest",
    "r": "redirect",
    "M": "robotflags",
    "S": "length",
    "V": "offset",
    "g": "filename",
}
"""The letters in a CDX header line, and the names of these columns in a row."""

CDX_FORMS: Mapping[int, tuple[str, ...]] = {
    11: tuple(CDX_COLUMNS.values()),
    10: tuple(name for name in CDX_COLUMNS.values() if name != "length"),
    9: tuple(name for name in CDX_COLUMNS.values() if name not in ("length", "robotflags")),
    7: ("urlkey", "timestamp", "url", "mime", "status", "digest", "length"),
    6: ("urlkey", "timestamp", "url", "mime", "status", "digest"),
}
"""The columns of lines without a header, by their number. CDX servers send 6 or 7."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

ALIASES: Mapping[str, str] = {
    "original": "url",
    "statuscode": "status",
    "mimetype": "mime",
    "u": "url",
    "k": "urlkey",
    "t": "timestamp",
    "m": "mime",
    "s": "status",
    "d": "digest",
    "o": "offset",
    "f": "filename",
}
"""Other names for fields in ``filter`` and ``fields``."""


class RowOrigin(NamedTuple):
    """Where a row comes from: the source (including the file, if the source is a directory), its configured name, and
    its type."""

    source: str
    coll: str
    type: str


_OF_ORIGIN = ("source", "source-coll", "source_type")
"""The names of these in a row."""
NOWHERE = RowOrigin("", "", "")
"""The origin of rows that do not state one."""


class Row(Struct, frozen=True, eq=False, gc=False):
    """A capture. ``line`` is its line in the index without the line end. ``fields`` are those after key and time, in
    the order and with the types of the line. ``is_line``: the line is CDXJ and has exactly these fields.
    ``is_changed``: fields were added or replaced, so the line lacks them; it still decides the order. Python's garbage
    collector need not track rows: what they are made of cannot refer to them."""

    line: bytes
    urlkey: str
    timestamp: str
    fields: Mapping[str, Any]
    origin: RowOrigin
    is_line: bool = False
    is_changed: bool = False

    def with_fields(self, **more: Any) -> Row:
        fields = {**self.fields, **more}
        return Row(self.line, self.urlkey, self.timestamp, fields, self.origin, is_changed=True)

    @property
    def whole(self) -> str:
        """The whole row as text: its line, rewritten if fields were changed."""
        line = made_line(self.urlkey, self.timestamp, self.fields) if self.is_changed else self.line
        return line.decode("utf-8", "replace")

    def text(self, name: str) -> str:
        """A field as text, or ""."""
        if name == "urlkey":
            return self.urlkey
        if name == "timestamp":
            return self.timestamp
        value = self.fields.get(name)
        if value is None:
            return self.origin[_OF_ORIGIN.index(name)] if name in _OF_ORIGIN else ""
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    @property
    def url(self) -> str:
        """The URL that was captured."""
        return self.text("url")

    @property
    def is_revisit(self) -> bool:
        """Whether the record is a revisit: the contents had not changed."""
        return self.fields.get("mime") == "warc/revisit"

    def all_fields(self) -> dict[str, Any]:
        """All fields, in the order of the API."""
        made = {"urlkey": self.urlkey, "timestamp": self.timestamp, **self.fields}
        if self.origin is not NOWHERE:
            made["source"], made["source-coll"], made["source_type"] = self.origin
        return made


LineReader = Callable[[bytes, RowOrigin], "Row | None"]
"""Parses a line into a row. Returns None for anything else."""


def any_row(line: bytes, origin: RowOrigin) -> Row | None:
    """Parses a line of CDXJ, JSON, or CDX without a header."""
    parts = line.split(b" ", 2)
    if len(parts) < 3 or not parts[2].startswith(b"{"):
        return json_row(line, origin) if line.startswith(b"{") else _CDX(line, origin)
    key, stamp, block = parts
    try:
        return _row(line, key.decode(), stamp.decode("ascii"), orjson.loads(block), origin, line.endswith(b"}"))
    except ValueError:
        return None


def json_row(line: bytes, origin: RowOrigin) -> Row | None:
    """Parses a line of JSON that includes key and time."""
    try:
        fields = orjson.loads(line)
        key, stamp = str(fields.pop("urlkey", "")), str(fields.pop("timestamp", ""))
    except (ValueError, AttributeError, TypeError):
        return None
    return _row(made_line(key, stamp, fields), key, stamp, fields, origin) if key else None


def cdx_reader(columns: Sequence[str] | None = None) -> LineReader:
    """Returns a parser for lines of CDX with these columns. The default depends on their number."""

    def row(line: bytes, origin: RowOrigin) -> Row | None:
        try:
            values = line.decode("utf-8").rstrip("\r").split(" ")
        except UnicodeDecodeError:
            return None
        names = columns or CDX_FORMS.get(len(values))
        if names is None or len(names) != len(values):
            return None
        fields = dict(zip(names, values, strict=True))
        return _row(line, fields.pop("urlkey", ""), fields.pop("timestamp", ""), fields, origin)

    return row


def made_line(key: str, stamp: str, fields: Mapping[str, Any]) -> bytes:
    """The line of a row in a CDXJ file, by which rows are sorted."""
    return f"{key} {stamp} ".encode("utf-8", "replace") + orjson.dumps(fields, default=str)


def made_row(key: str, stamp: str, fields: Mapping[str, Any], origin: RowOrigin) -> Row:
    """A row that is not from an index."""
    return Row(made_line(key, stamp, fields), key, stamp, fields, origin)


def _row(line: bytes, key: str, stamp: str, fields: Any, origin: RowOrigin, is_line: bool = False) -> Row | None:
    if len(stamp) not in (14, 17) or not stamp.isdecimal() or not stamp.isascii() or not isinstance(fields, dict):
        return None
    if "urlkey" in fields or "timestamp" in fields or "source" in fields:
        for name in ("urlkey", "timestamp", *_OF_ORIGIN):
            fields.pop(name, None)
        is_line = False
    return Row(line, key, stamp, fields, origin, is_line and bool(fields))


_CDX = cdx_reader()

# -- the forms of the API ---------------------------------------------------------------------------


def as_json(row: Row, fields: Sequence[str] = ()) -> bytes:
    value = row.all_fields()
    if fields:
        value = {name: item for name, item in value.items() if name in fields}
    return _in_ascii(value)


def as_cdxj(row: Row, fields: Sequence[str] = ()) -> bytes:
    """Formats a row as a line of CDXJ. Key and time are always included, whatever ``fields`` says."""
    if row.is_line and not fields and row.line.isascii():
        return row.line[:-1] + _source_of(row.origin)
    value = {**row.fields}
    if row.origin is not NOWHERE:
        value["source"], value["source-coll"], value["source_type"] = row.origin
    if fields:
        value = {name: item for name, item in value.items() if name in fields}
    head = f"{row.urlkey} {row.timestamp} ".encode("utf-8", "surrogatepass")
    return head + _in_ascii(value)


def _in_ascii(value: Mapping[str, Any]) -> bytes:
    """A line of JSON. Characters outside ASCII are escaped: without a charset, clients read text as Latin-1, in which
    their bytes are other characters, and some are line ends."""
    data = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    if data.isascii():
        return data
    return _NOT_ASCII.sub(lambda one: json.dumps(one[0])[1:-1], data.decode()).encode("ascii")


@lru_cache(maxsize=1000)
def _source_of(origin: RowOrigin) -> bytes:
    """The end of a line of CDXJ: the fields of its origin."""
    if origin is NOWHERE:
        return b"}\n"
    named = dict(zip(_OF_ORIGIN, origin, strict=True))
    return b"," + orjson.dumps(named, option=orjson.OPT_APPEND_NEWLINE)[1:]


def as_text(row: Row, fields: Sequence[str] = ()) -> bytes:
    """Formats a row as values separated by blanks, with ``-`` for missing ones. Among ``fields``, a column of CDX that
    the row lacks has its place, so that all rows have the same columns."""
    names = list(row.all_fields())
    if fields:
        for before, name in pairwise(CDX_COLUMNS.values()):
            if name not in names:
                names.insert(names.index(before) + 1, name)
        names = [name for name in names if name in fields]
    values = ("%20".join(row.text(name).split()) or "-" for name in names)
    return (" ".join(values) + "\n").encode("utf-8", "surrogatepass")
