"""A CDX server with the dialect of the Internet Archive's wayback-cdx-server, under ``/cdx/search/cdx``.

Rows have seven fields separated by blanks. In JSON they are lists, the first of which has the names of the fields.
Filters are patterns that match whole values, or with ``~`` text that they contain. ``collapse`` drops rows whose field
equals that of the row before; several collapse one after the other. A ``resumeKey`` says where the next part of a
result begins. Source of the rules: README and code of the Internet Archive's wayback-cdx-server.
"""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, dropwhile, groupby, islice
from urllib.parse import quote

import orjson
from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Lookup
from archec.access.exchange import JSON, Exchange, answer, chunked, errors_of, in_thread
from archec.access.index import visible_pages
from archec.access.index_files import MAX_LINE
from archec.access.ordering import MAX_SORTED, sort_rows
from archec.access.query import Arguments, Query, check_names, parse_query, regex
from archec.access.query_steps import MAX_DIGESTS, resolve_revisits, within
from archec.access.rows import Row
from archec.errors import UsageError
from archec.server.responses import BodyResponse

FIELDS = ("urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length")
_COUNTERS = {"dupecount": "showDupeCount", "endtimestamp": "lastSkipTimestamp", "skipcount": "showSkipCount"}
_NAMES = {"original": "url", "mimetype": "mime", "statuscode": "status"}
_OF_QUERY = ("url", "matchType", "from", "to", "closest", "sort", "pageSize")
_KNOWN = re.compile(r"[A-Za-z][\w.-]*")
_COLLAPSE = re.compile(r"([A-Za-z][\w.-]*)(?::([0-9]{1,4}))?")
_MAX_OFFSET = 10_000_000
Counted = tuple[Row, dict[str, str]]
"""A row and its counters."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NO_ROWS = b"[]\n"
"""A response in JSON without rows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of this dialect that :class:`Query` does not have."""

    fields: tuple[str, ...]
    as_json: bool
    filters: tuple[Callable[[Row], bool], ...]
    resolve: bool
    collapse: tuple[tuple[str, int | None], ...]
    limit: int
    last: int
    offset: int
    resume: tuple[bytes, int]
    by_number: bool
    show_resume: bool
    counters: tuple[str, ...]
    gzip: bool

    @property
    def columns(self) -> list[str]:
        """The names of all values of a row. Counters among ``fields`` have their place there, others are the last."""
        return [*self.fields, *(name for name in self.counters if name not in self.fields)]

    def passes(self, row: Row) -> bool:
        return all(holds(row) for holds in self.filters)


def parse(take: Arguments, accept_encoding: str) -> tuple[Query, Wanted]:
    """Validates the parameters. Raises UsageError."""
    check_names(take.given)
    limit = take.number("limit", 0, least=-MAX_SORTED)
    own = [one for one in take.given if one[0] in _OF_QUERY and one != ("sort", "regular")]
    query = parse_query(Arguments(own))
    fields = tuple(name for name in take.one("fl", "fields").split(",") if name) or FIELDS
    if unknown := [name for name in fields if not _KNOWN.fullmatch(name)]:
        raise UsageError(f"fl={unknown[0][:40]!r} is not a field")
    output = take.one("output")
    if output not in ("", "json", "text", "csv"):
        raise UsageError(f"output={output[:40]} not supported; use json, text")
    resume = take.one("resumeKey")
    wanted = Wanted(
        fields,
        output == "json",
        tuple(_filter(text) for text in take.all("filter")),
        take.flag("resolveRevisits"),
        tuple(_collapse(text) for text in take.all("collapse")),
        max(limit, 0),
        max(-limit, 0),
        0 if resume else min(take.number("offset", 0), _MAX_OFFSET),
        _resumed(resume) if resume else (b"", 0),
        query.order == "closest",
        take.flag("showResumeKey"),
        tuple(name for name, parameter in _COUNTERS.items() if take.flag(parameter)),
        take.one("gzip") != "false" and "gzip" in accept_encoding,
    )
    is_first = wanted.limit and not (wanted.last or wanted.filters or wanted.collapse or wanted.counters)
    most = wanted.offset + wanted.limit + 1 if is_first and not (wanted.resolve or resume) else None
    return replace(query, limit=most), wanted


def _filter(text: str) -> Callable[[Row], bool]:
    """A test of rows: ``[~][!][FIELD:]VALUE``. FIELD is a name, or a number from 0 on; without it, the whole line is
    tested."""
    rest = text.removeprefix("~")
    contains = rest != text
    wanted = not rest.startswith("!")
    name, colon, value = rest.removeprefix("!").partition(":")
    if not colon:
        name, value = "", name
    elif name.isdecimal() and int(name[:4]) < len(FIELDS):
        name = FIELDS[int(name)]
    pattern = None if contains else regex("filter", text, value)

    def holds(row: Row) -> bool:
        given = _value(row, name) if name else _as_line([_value(row, field) for field in FIELDS])
        return (value in given if pattern is None else pattern.fullmatch(given) is not None) is wanted

    return holds


def _collapse(text: str) -> tuple[str, int | None]:
    """The name of a field, and how many of its characters count; None for all."""
    match = _COLLAPSE.fullmatch(text)
    if match is None:
        raise UsageError(f"collapse={text[:100]!r} is not field or field:N")
    return match[1], int(match[2] or 0) or None


async def answer_wayback(exchange: Exchange, lookup: Lookup) -> Response:
    """Returns the response to a query of this dialect. Raises UsageError."""
    query, wanted = parse(exchange.take, exchange.headers.get("accept-encoding", ""))
    query = replace(query, may_push_limit=lookup.viewer.rules.are_trivial)
    media_type = JSON if wanted.as_json else "text/plain"
    pages = await visible_pages(lookup, query, exchange.take)
    if pages is not None and pages.count_only:
        return answer(200, f"{pages.number}\n", "text/plain")
    if pages is not None:
        if pages.page >= pages.number:
            # beyond the last page the body is empty in JSON, too: cdx_toolkit goes on until then
            body = _NO_ROWS if wanted.as_json and not pages.page else b""
            return answer(200, body, media_type)
        query = replace(query, range=pages.range)
    line, _ = wanted.resume
    if line and query.order == "reverse":
        query = replace(query, range=query.range._replace(end=min(query.range.end, line + b"\0")))
    elif line:
        start = line.partition(b" ")[0] + b" " if wanted.resolve else line
        query = replace(query, range=query.range._replace(start=max(query.range.start, start)))
    if wanted.resolve:
        whole = replace(query, order="ascending", closest="", since="", until="")
        rows = await lookup.rows(whole, lambda rows: _from_first(_resolved(rows, query, line), wanted))
    else:
        rows = await lookup.rows(query, lambda rows: _from_first(rows, wanted))
    chunks = chunked(_parts(rows, wanted))
    first = await to_thread.run_sync(next, chunks, b"")
    if first in (b"", _NO_ROWS):
        lookup.viewer.check_empty()
    made = answer(200, b"", media_type, errors_of(lookup.errors))
    return BodyResponse(made, -1, in_thread(chunks, lookup.errors), head=first, packed=wanted.gzip)


def _resolved(rows: Iterator[Row], query: Query, line: bytes) -> Iterator[Row]:
    """The rows of a query from ``line`` on, with revisits resolved. ``rows`` are those of all times, ascending."""
    # per URL, so that a part of a result is the same as in the whole
    of_urls = groupby(rows, key=lambda row: row.urlkey)
    resolved = chain.from_iterable(resolve_revisits(captures, add=True) for _, captures in of_urls)
    rows = within(resolved, query.since, query.until)
    return dropwhile(lambda row: row.line < line, rows) if query.order == "ascending" else sort_rows(rows, query)


def _from_first(rows: Iterator[Row], wanted: Wanted) -> Iterator[Row]:
    """The rows from the first that passes the filters on."""
    return dropwhile(lambda row: not wanted.passes(row), rows) if wanted.filters else rows


def _parts(rows: Iterator[Row], wanted: Wanted) -> Iterator[bytes]:
    """The body of the response."""
    selection = _Selection(rows, wanted)
    is_empty = True
    for values in selection:
        if wanted.as_json:
            if is_empty:
                yield b"[" + orjson.dumps(wanted.columns)
            yield b",\n" + orjson.dumps(values)
        else:
            line = _NOT_ASCII.sub(lambda one: quote(one[0], errors="replace"), _as_line(values))
            yield f"{line}\n".encode("ascii")
        is_empty = False
    key = selection.resume_key if wanted.show_resume else ""
    if wanted.as_json:
        if key:
            yield b",\n[],\n" + orjson.dumps([key])
        yield _NO_ROWS if is_empty else b"]\n"
    elif key:
        yield f"\n{key}\n".encode()


def _as_line(values: Iterable[str]) -> str:
    return " ".join("%20".join(value.split()) or "-" for value in values)


class _Selection:
    """The values of the rows that remain after filters, collapse, offset and limit."""

    def __init__(self, rows: Iterator[Row], wanted: Wanted) -> None:
        self._rows, self._wanted = rows, wanted
        self.resume_key = ""

    def __iter__(self) -> Iterator[list[str]]:
        wanted = self._wanted
        rows = _resume_after(self._counted(), *wanted.resume)
        if wanted.last:
            rows = iter(deque(rows, wanted.last))
        end = wanted.offset + wanted.limit + wanted.show_resume if wanted.limit else None
        last, same = wanted.resume
        for count, (row, more) in enumerate(islice(rows, wanted.offset, end)):
            if wanted.limit and count == wanted.limit:
                self.resume_key = _resume_key(last, same)
                return
            same = same + 1 if wanted.by_number or row.line == last else 1
            last = b"" if wanted.by_number else row.line
            yield [more[name] if name in wanted.counters else _value(row, name) for name in wanted.columns]

    def _counted(self) -> Iterator[Counted]:
        """Yields the rows that are not skipped, with the requested counters. A row with counters of those skipped after
        it is yielded once the next one is known."""
        counters = self._wanted.counters
        held: Counted | None = None
        skipped = 0
        known = OrderedDict[str, tuple[int, str]]()
        is_skipped = _skipper(self._wanted)
        for row in self._rows:
            if is_skipped(row):
                skipped += 1
                if held is not None:
                    held[1].update(endtimestamp=row.timestamp, skipcount=str(skipped))
                continue
            if held is not None:
                yield held
            found = _with_dupes(row, known) if "dupecount" in counters else (row, {})
            held, skipped = None, 0
            if "endtimestamp" in counters or "skipcount" in counters:
                held = found
                held[1].update(endtimestamp=row.timestamp, skipcount="0")
            else:
                yield found
        if held is not None:
            yield held


def _skipper(wanted: Wanted) -> Callable[[Row], bool]:
    """Tells of each row in turn whether a filter or ``collapse`` skips it."""
    values: list[str | None] = [None] * len(wanted.collapse)

    def is_skipped(row: Row) -> bool:
        if not wanted.passes(row):
            return True
        for number, (name, digits) in enumerate(wanted.collapse):
            value = _value(row, name)[:digits]
            if value == values[number]:
                return True
            values[number] = value
        return False

    return is_skipped


def _with_dupes(row: Row, known: OrderedDict[str, tuple[int, str]]) -> Counted:
    """The row and how many before it have its digest. Of these, ``known`` has number and media type; a revisit gets
    that type."""
    digest = row.text("digest")
    count, mime = known.pop(digest, (-1, row.text("mime")))
    known[digest] = count + 1, mime
    if len(known) > MAX_DIGESTS:
        known.popitem(last=False)
    return row.with_fields(mime=mime) if row.is_revisit else row, {"dupecount": str(count + 1)}


def _value(row: Row, name: str) -> str:
    return row.text(_NAMES.get(name, name)) or "-"


def _resume_after(rows: Iterator[Counted], line: bytes, count: int) -> Iterator[Counted]:
    """Skips the first ``count`` rows with this line (any, if it is empty), which were returned before."""
    for row, more in rows:
        if count and (row.line == line or not line):
            count -= 1
        else:
            yield row, more


def _resume_key(line: bytes, count: int) -> str:
    """Where a result continues: after ``count`` rows with the line of its last row. With ``closest``, all rows are
    counted, and the line is empty."""
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
