"""A CDX server with the dialect of the Internet Archive's wayback-cdx-server, under ``/cdx/search/cdx``.

Rows have seven fields separated by blanks. In JSON they are lists, the first of which has the names of the fields.
Filters are patterns that match whole values. ``collapse`` drops rows whose field equals that of the row before. A
``resumeKey`` says where the next part of a result begins.
"""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import orjson
from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Collection
from archec.access.exchange import JSON, Chunks, answer, error_header
from archec.access.index import visible_pages
from archec.access.index_files import MAX_LINE
from archec.access.query import Argument, Arguments, Filter, Query, check_names, parse_query, regex
from archec.access.rows import Row
from archec.access.sources import Errors
from archec.access.viewer import Viewer
from archec.errors import UsageError

FIELDS = ("urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length")
_NAMES = {"original": "url", "mimetype": "mime", "statuscode": "status"}
_KNOWN = re.compile(r"[A-Za-z][\w.-]*")
_COLLAPSE = re.compile(r"([A-Za-z][\w.-]*)(?::([0-9]{1,4}))?")
_MAX_LIMIT = 1_000_000
_MAX_OFFSET = 10_000_000
_CHUNK = 1 << 16
_NO_ROWS = b"[]\n"
"""A response in JSON without rows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of this dialect that :class:`Query` does not have."""

    fields: tuple[str, ...]
    as_json: bool
    collapse: tuple[tuple[str, int], ...]
    limit: int
    last: int
    offset: int
    resume: tuple[bytes, int]
    show_resume: bool
    dupes: bool
    skips: bool
    last_skip: bool
    gzip: bool

    @property
    def counters(self) -> list[str]:
        """The names of the requested counters, in the order in which they are counted."""
        given = (("dupecount", self.dupes), ("endtimestamp", self.last_skip), ("skipcount", self.skips))
        return [name for name, is_on in given if is_on]

    @property
    def columns(self) -> list[str]:
        """The names of all values of a row. Counters among ``fields`` have their place there, others are the last."""
        return [*self.fields, *(name for name in self.counters if name not in self.fields)]


def parse(given: Sequence[Argument], accept_encoding: str) -> tuple[Query, Wanted]:
    """Validates the parameters. Raises UsageError."""
    take = Arguments(given)
    check_names(given)
    limit = take.number("limit", 0, least=-_MAX_LIMIT)
    own = [(name, value) for name, value in given if name in ("url", "matchType", "from", "to", "closest", "sort")]
    own = [(name, "" if (name, value) == ("sort", "regular") else value) for name, value in own]
    query = replace(parse_query(own), limit=None, filters=tuple(_filter(text) for text in take.all("filter")))
    fields = tuple(name for name in take.one("fl", "fields").split(",") if name) or FIELDS
    if unknown := [name for name in fields if not _KNOWN.fullmatch(name)]:
        raise UsageError(f"fl={unknown[0][:40]!r} is not a field")
    output = take.one("output")
    if output not in ("", "json", "text", "csv"):
        raise UsageError(f"output={output[:40]} not supported; use json, text")
    resume = take.one("resumeKey")
    if query.closest and (resume or take.flag("showResumeKey")):
        raise UsageError("resumeKey and showResumeKey are not supported with closest")
    return query, Wanted(
        fields,
        output == "json",
        tuple(_collapse(text) for text in take.all("collapse")),
        max(limit, 0),
        max(-limit, 0),
        min(take.number("offset", 0), _MAX_OFFSET),
        _resumed(resume) if resume else (b"", 0),
        take.flag("showResumeKey"),
        take.flag("showDupeCount"),
        take.flag("showSkipCount"),
        take.flag("lastSkipTimestamp"),
        take.one("gzip") != "false" and "gzip" in accept_encoding,
    )


def _filter(text: str) -> Filter:
    rest = text.removeprefix("!")
    field, colon, value = rest.partition(":")
    if not colon:
        raise UsageError(f"filter={text[:100]!r} is not [!]field:pattern")
    pattern = regex("filter", text, value)
    name = _NAMES.get(field, field)
    return Filter("", name, lambda given: pattern.fullmatch(given) is not None, text.startswith("!"))


def _collapse(text: str) -> tuple[str, int]:
    match = _COLLAPSE.fullmatch(text)
    if match is None:
        raise UsageError(f"collapse={text[:100]!r} is not field or field:N")
    return _NAMES.get(match[1], match[1]), int(match[2] or 0)


async def answer_wayback(
    collection: Collection, given: Sequence[Argument], accept_encoding: str, viewer: Viewer
) -> Response:
    """Returns the response to a query of this dialect. Raises UsageError."""
    query, wanted = parse(given, accept_encoding)
    query = replace(query, may_push_limit=False)
    pages = await visible_pages(collection, query, viewer, given)
    if pages is not None and pages.count_only:
        return answer(200, f"{pages.number}\n", "text/plain")
    if pages is not None:
        if pages.page >= pages.number:
            return answer(200, _NO_ROWS if wanted.as_json else b"", JSON if wanted.as_json else "text/plain")
        query = replace(query, range=pages.range)
    line, _ = wanted.resume
    if line and query.order == "reverse":
        query = replace(query, range=query.range._replace(end=min(query.range.end, line + b"\0")))
    elif line:
        query = replace(query, range=query.range._replace(start=max(query.range.start, line)))
    errors = Errors()
    rows = await collection.rows(query, errors, viewer.visible)
    chunks = _encoded(rows, wanted)
    first = await to_thread.run_sync(next, chunks, b"")
    if first in (b"", _NO_ROWS):
        viewer.check_empty()
    media_type = JSON if wanted.as_json else "text/plain"
    headers = [("ResErrors", error_header(errors))] if errors else []
    if wanted.gzip:
        headers.append(("Content-Encoding", "gzip"))
        chunks = _packed(first, chunks)
        first = await to_thread.run_sync(next, chunks, b"")
    return Chunks(first, chunks, media_type, headers, errors)


def _encoded(rows: Iterator[Row], wanted: Wanted) -> Iterator[bytes]:
    selection = _Selection(rows, wanted)
    parts: list[bytes] = []
    size = 0
    for number, values in enumerate(selection):
        if wanted.as_json:
            if not number:
                parts.append(b"[" + orjson.dumps(wanted.columns))
            parts.append(b",\n" + orjson.dumps(values))
        else:
            line = " ".join("%20".join(value.split()) or "-" for value in values)
            parts.append(f"{line}\n".encode("utf-8", "replace"))
        size += len(parts[-1])
        if size >= _CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
    key = selection.resume_key if wanted.show_resume else ""
    if wanted.as_json:
        if key:
            parts.append(b",\n[],\n" + orjson.dumps([key]))
        parts.append(b"]\n" if selection.any else _NO_ROWS)
    elif key:
        parts.append(f"\n{key}\n".encode())
    if parts:
        yield b"".join(parts)


class _Selection:
    """The values of the rows that remain after collapse, offset and limit."""

    def __init__(self, rows: Iterator[Row], wanted: Wanted) -> None:
        self._rows, self._wanted = rows, wanted
        self.resume_key = ""
        self.any = False

    def __iter__(self) -> Iterator[list[str]]:
        wanted = self._wanted
        rows = _resume_after(self._collapsed(), *wanted.resume)
        if wanted.last:
            rows = iter(deque(rows, wanted.last))
        last, same = wanted.resume
        for count, (row, more) in enumerate(islice(rows, wanted.offset, None)):
            if wanted.limit and count == wanted.limit:
                self.resume_key = _resume_key(last, same)
                return
            same = same + 1 if row.line == last else 1
            self.any, last = True, row.line
            counted = dict(zip(wanted.counters, more, strict=True))
            yield [counted[name] if name in counted else _value(row, name) for name in wanted.columns]

    def _collapsed(self) -> Iterator[tuple[Row, list[str]]]:
        """Yields the first of adjacent rows that collapse, with the requested counters. A row is yielded once the next
        one is known to differ."""
        wanted = self._wanted
        before: tuple[str, ...] | None = None
        held: tuple[Row, list[str]] | None = None
        skipped, end, key = 0, "", ""
        dupes: dict[str, int] = {}
        for row in self._rows:
            if row.urlkey != key:
                key = row.urlkey
                dupes.clear()
            token = tuple(_prefix(row, name, digits) for name, digits in wanted.collapse)
            if token and token == before:
                skipped, end = skipped + 1, row.timestamp
                continue
            if held is not None:
                yield held[0], held[1] + _skips(wanted, held[0], skipped, end)
            digest = row.text("digest")
            if wanted.dupes:
                dupes[digest] = dupes[digest] + 1 if digest in dupes else 0
            held, before, skipped, end = (row, [str(dupes[digest])] if wanted.dupes else []), token, 0, ""
        if held is not None:
            yield held[0], held[1] + _skips(wanted, held[0], skipped, end)


def _skips(wanted: Wanted, row: Row, skipped: int, end: str) -> list[str]:
    return [*[end or row.timestamp] * wanted.last_skip, *[str(skipped)] * wanted.skips]


def _prefix(row: Row, name: str, digits: int) -> str:
    value = row.text(name)
    return value[:digits] if digits else value


def _value(row: Row, name: str) -> str:
    return row.text(_NAMES.get(name, name)) or "-"


def _resume_after(rows: Iterator[tuple[Row, list[str]]], line: bytes, count: int) -> Iterator[tuple[Row, list[str]]]:
    """Skips the first ``count`` rows with this line, which were returned before."""
    for row, more in rows:
        if count and row.line == line:
            count -= 1
        else:
            yield row, more


def _resume_key(line: bytes, count: int) -> str:
    """Where a result continues: after ``count`` rows with the line of its last row."""
    return urlsafe_b64encode(zlib.compress(b"%d %s" % (count, line))).decode("ascii").rstrip("=")


def _resumed(key: str) -> tuple[bytes, int]:
    """The line and the count in a resume key. Raises UsageError."""
    try:
        packed = urlsafe_b64decode(key + "=" * (-len(key) % 4))
        decompressor = zlib.decompressobj()
        count, _, line = decompressor.decompress(packed, MAX_LINE).partition(b" ")
        if not decompressor.eof:
            raise ValueError(key)
        return line, int(count)
    except (ValueError, zlib.error) as error:
        raise UsageError("resumeKey was not issued by this server") from error


def _packed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for chunk in chain((first,), rest):
        if data := packer.compress(chunk):
            yield data
    yield packer.flush()
