"""Responses of the index API: rows in the requested format, streamed.

Pages of an index are ranges of equal size, found by bisection, so that every page costs the same. A page is a number of
blocks: those of a ZipNum index, if its summary numbers them, else stretches of bytes. The number of rows on a page
varies, and filters apply within a page. Only a single local index has pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import NamedTuple

from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Collection, first_of
from archec.access.errors import Refused, SourceFailed
from archec.access.exchange import JSON, answer, as_uri, chunked, errors_of, in_thread, message
from archec.access.index_files import SortedFile
from archec.access.index_folders import FileSource
from archec.access.query import DEFAULT_LIMIT, Argument, Arguments, KeyRange, Output, Query
from archec.access.rows import Row, as_cdxj, as_json, as_text
from archec.access.sources import Errors
from archec.access.stamps import http_date
from archec.access.viewer import Viewer
from archec.access.zipnum import blocks_of, parse_block
from archec.errors import UsageError
from archec.server.responses import PIECE, BodyResponse

_BLOCK = 1 << 17
_SUMMARY_BLOCK = 100
"""Size of a block in bytes: of an index, and of the summary of a ZipNum index (about one line)."""
_PAGE_SIZE = 5
_ZIPNUM_PAGE_SIZE = 10
"""Blocks on a page, unless the client says how many: as Common Crawl's server and pywb have it."""


class Pages(NamedTuple):
    """The pages of a query: their ``number``, the requested ``page``, its ``size`` in blocks out of ``blocks``, and the
    ``range`` of its lines. With ``count_only`` the client asks for the number of pages only."""

    number: int
    page: int
    size: int
    blocks: int
    count_only: bool
    range: KeyRange


def pages_of(collection: Collection, query: Query, given: Sequence[Argument]) -> Pages | None:
    """The pages that the parameters ask for, or None if they ask for none. Reads from disk. Raises UsageError."""
    take = Arguments(given)
    count_only = take.flag("showNumPages")
    if not take.one("page") and not count_only:
        return None
    page = take.number("page", 0)
    found = _paged_source(collection, query).largest(query)
    if found is None:
        return Pages(0, page, query.page_size or _PAGE_SIZE, 0, count_only, query.range)
    try:
        blocks, begin_of, usual = _numbered(*found, query.range) or _measured(*found, query.range)
        size = query.page_size or usual
        count = -(-blocks // size)
        start = begin_of(page * size) if 0 < page < count else b""
        end = begin_of((page + 1) * size) if page + 1 < count else query.range.end
    except SourceFailed as error:
        raise UsageError(error.message) from error
    within = KeyRange(max(start, query.range.start), min(end, query.range.end))
    return Pages(count, page, size, blocks, count_only, within)


_Blocks = tuple[int, Callable[[int], bytes], int]
"""The number of blocks, a function that returns where each begins, and the usual number of them on a page."""


def _measured(lines: SortedFile, is_summary: bool, within: KeyRange) -> _Blocks:
    """Blocks of equal size in bytes."""
    unit = _SUMMARY_BLOCK if is_summary else _BLOCK
    first, last = lines.find(within.start), lines.find(within.end)
    blocks = max(-(-(last - first) // unit), 1 if is_summary or last > first else 0)
    return blocks, lambda number: lines.key_at(first + number * unit), _PAGE_SIZE


def _numbered(lines: SortedFile, is_summary: bool, within: KeyRange) -> _Blocks | None:
    """The blocks of a ZipNum index, or None if its summary does not number them."""
    last = next(lines.backward(b"", within.end), b"") if is_summary else b""
    first = next(blocks_of(lines, within.start, within.end), b"") if last else b""
    begin, end = _number(first), _number(last)
    if begin is None or end is None:
        return None

    def begin_of(number: int) -> bytes:
        low, high = lines.find(first), lines.find(last)
        while low < high:
            middle = (low + high) // 2
            line = lines.key_at(middle)
            found = _number(line)
            if found is None or found == begin + number:
                return line
            low, high = (middle + 1, high) if found < begin + number else (low, middle)
        return lines.key_at(low)

    return max(end - begin + 1, 1), begin_of, _ZIPNUM_PAGE_SIZE


def _number(line: bytes) -> int | None:
    try:
        return parse_block(line).lineno if line else None
    except ValueError:
        return None


def summary_of(collection: Collection, query: Query, pages: Pages | None) -> Iterator[bytes] | None:
    """The lines of a ZipNum summary for a query, or for one page of it; at most DEFAULT_LIMIT. None if the index is not
    a ZipNum index. Reads from disk. Raises UsageError and SourceFailed."""
    found = _paged_source(collection, query).largest(query)
    if found is None or not found[1]:
        return None
    lines = blocks_of(found[0], query.range.start, query.range.end)
    if pages is not None:
        lines = islice(lines, pages.page * pages.size, (pages.page + 1) * pages.size)
    return islice(lines, min(query.limit or DEFAULT_LIMIT, DEFAULT_LIMIT))


def _paged_source(collection: Collection, query: Query) -> FileSource:
    hint = "use limit and resumeKey of /cdx/search/cdx instead of page"
    if query.order != "ascending":
        raise UsageError(f"pages are not supported with closest or sort=reverse: {hint}")
    step = collection.steps[0]
    source = step.local[0] if len(step.local) == 1 else None
    if len(collection.steps) > 1 or step.remote or step.grouped or not isinstance(source, FileSource):
        raise UsageError(f"pages are not supported for groups, sequences, other archives and $archive: {hint}")
    return source


TYPES: Mapping[Output, str] = {
    "cdxj": "text/x-cdxj",
    "json": "text/x-ndjson",
    "text": "text/plain",
    "link": "application/link-format",
}


async def answer_index(
    collection: Collection, query: Query, viewer: Viewer, *, empty_is_missing: bool = False
) -> Response:
    """Returns the rows of a query. With ``empty_is_missing``, an empty result in JSON is a 404, as clients of Common
    Crawl expect."""
    asked = {name for name, _ in query.given}
    pages = None
    if not asked.isdisjoint(("page", "showNumPages")):
        pages = await visible_pages(collection, query, viewer, query.given)
    if pages is not None and pages.count_only:
        value = {"pages": pages.number, "pageSize": pages.size, "blocks": pages.blocks}
        return answer(200, json.dumps(value) + "\n", JSON)
    if pages is not None and pages.page >= max(pages.number, 1):
        raise Refused(400, f"Page {pages.page} invalid: First Page is 0, Last Page is {max(pages.number - 1, 0)}")
    if "showPagedIndex" in asked and Arguments(query.given).flag("showPagedIndex"):
        summary = await to_thread.run_sync(summary_of, collection, query, pages)
        if summary is not None:
            return await _summary(summary, query, viewer)
    if pages is not None:
        query = replace(query, range=pages.range)
    errors = Errors()
    rows = await collection.rows(query, errors, viewer)
    if not query.show_source:
        rows = (row.without_source() for row in rows)
    chunks = chunked(_parts(rows, query))
    first = await first_of(chunks, query) or b""
    if not first:
        viewer.check_empty()
        if empty_is_missing and query.output == "json":
            return message(404, f"No Captures found for: {query.url}", errors)
    headers = errors_of(errors)
    if len(first) < PIECE:
        return answer(200, first, TYPES[query.output], headers)
    made = answer(200, b"", TYPES[query.output], headers)
    return BodyResponse(made, -1, in_thread(chunks, errors), head=first)


async def visible_pages(
    collection: Collection, query: Query, viewer: Viewer, given: Sequence[Argument]
) -> Pages | None:
    """The pages that the parameters ask for, or None if they ask for none. The number of pages is 0 if the viewer may
    see none of the rows, or if there are none in the only block."""
    if not viewer.may_see(query.range):
        viewer.check_empty()
    pages = await to_thread.run_sync(pages_of, collection, query, given)
    if pages is None or (viewer.sees_all and pages.blocks != 1):
        return pages
    rows = await collection.rows(replace(query, limit=1, filters=()), Errors(), viewer)
    if await to_thread.run_sync(next, rows, None) is not None:
        return pages
    viewer.check_empty()
    return pages._replace(number=0, blocks=0)


async def _summary(lines: Iterator[bytes], query: Query, viewer: Viewer) -> Response:
    """Returns lines of the summary of a ZipNum index. They cover rows that no rule was applied to, so only viewers who
    may see everything get them."""
    if not viewer.sees_all:
        viewer.check_empty()
        raise Refused(403, "showPagedIndex needs a token")
    found = await to_thread.run_sync(list, lines)
    if query.output == "text":
        return answer(200, b"".join(line + b"\n" for line in found), TYPES["text"])
    try:
        blocks = [{k: v for k, v in parse_block(line)._asdict().items() if v is not None} for line in found]
        return answer(200, "".join(json.dumps(one) + "\n" for one in blocks), TYPES["json"])
    except ValueError as error:
        raise Refused(503, "a line of the summary is not in the ZipNum format") from error


def _parts(rows: Iterator[Row], query: Query) -> Iterator[bytes]:
    """The rows in the format that a query asks for."""
    if query.output == "link":
        return _links(rows)
    write: Callable[[Row, tuple[str, ...]], bytes] = {"cdxj": as_cdxj, "json": as_json, "text": as_text}[query.output]
    return map(write, rows, repeat(query.fields))


def _links(rows: Iterator[Row]) -> Iterator[bytes]:
    end = b""
    for row in rows:
        when, coll = http_date(row.timestamp), row.origin.coll
        text = f'<{as_uri(row.url)}>; rel="memento"; datetime="{when}"; collection="{coll}"'
        yield (b",\n" if end else b"") + text.encode("utf-8", "surrogatepass")
        end = b"\n"
    yield end


def list_sources(collection: Collection) -> Response:
    """Returns the names and types of a collection's sources, and the names of those skipped because they keep failing.
    Several sources of one name, as the steps of a sequence may have, have a list of types."""
    types: dict[str, list[str]] = {}
    for source in collection.sources:
        types.setdefault(source.name, []).append(source.type)
    value: dict[str, object] = {
        "sources": {name: found if len(found) > 1 else found[0] for name, found in types.items()}
    }
    out = [source.name for source in collection.sources if source.is_out]
    if out:
        value["left_out"] = out
    return answer(200, json.dumps(value) + "\n", JSON)
