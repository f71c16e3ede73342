"""Responses of the index API: rows in the requested format, streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat

from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Collection, Lookup, first_of
from archec.access.errors import Refused
from archec.access.exchange import JSON, answer, as_uri, chunked, errors_of, in_thread, message
from archec.access.gate import Viewer
from archec.access.pages import QueryPages, pages_of, summary_of
from archec.access.query import Arguments, Output, Query
from archec.access.rows import NOWHERE, Row, as_cdxj, as_json, as_text
from archec.access.stamps import http_date
from archec.access.zipnum import parse_block
from archec.server.responses import PIECE, BodyResponse

TYPES: Mapping[Output, str] = {
    "cdxj": "text/x-cdxj",
    "json": "text/x-ndjson",
    "text": "text/plain",
    "link": "application/link-format",
}


async def answer_index(lookup: Lookup, query: Query, *, empty_is_missing: bool = False) -> Response:
    """Returns the rows of a query. With ``empty_is_missing``, an empty result in JSON is a 404, as clients of Common
    Crawl expect."""
    asked, pages = query.take.first, None
    if "page" in asked or "showNumPages" in asked:
        pages = await visible_pages(lookup, query, query.take)
    if pages is not None and pages.count_only:
        value = {"pages": pages.number, "pageSize": pages.size, "blocks": pages.blocks}
        return answer(200, json.dumps(value) + "\n", JSON)
    if pages is not None and pages.page >= max(pages.number, 1):
        raise Refused(400, f"Page {pages.page} invalid: First Page is 0, Last Page is {max(pages.number - 1, 0)}")
    if query.take.flag("showPagedIndex"):
        summary = await to_thread.run_sync(summary_of, lookup.collection, query, pages)
        if summary is not None:
            return await _summary(summary, query, lookup.viewer)
    if pages is not None:
        query = replace(query, range=pages.range, limit=query.limit if "limit" in asked else None)
    rows = await lookup.rows(query)
    if not query.show_source:
        rows = (replace(row, origin=NOWHERE) for row in rows)
    chunks = chunked(_parts(rows, query))
    first = await first_of(chunks, query) or b""
    if not first:
        lookup.viewer.check_empty()
        if empty_is_missing and query.output == "json":
            return message(404, f"No Captures found for: {query.url}", lookup.errors)
    headers = errors_of(lookup.errors)
    if len(first) < PIECE:
        return answer(200, first, TYPES[query.output], headers)
    made = answer(200, b"", TYPES[query.output], headers)
    return BodyResponse(made, -1, in_thread(chunks, lookup.errors), head=first)


async def visible_pages(lookup: Lookup, query: Query, take: Arguments) -> QueryPages | None:
    """The pages that the parameters ask for, or None if they ask for none. The number of pages is 0 if the viewer may
    see none of the rows, or if there are none in the only block. If rules may hide some, all are on one page: more
    would tell how many those are."""
    viewer = lookup.viewer
    if not viewer.may_see(query.range):
        viewer.check_empty()
    pages = await to_thread.run_sync(pages_of, lookup.collection, query, take)
    if pages is None:
        return None
    if not viewer.sees_all:
        pages = pages._replace(number=1, blocks=1, range=query.range)
    if pages.blocks > 1:
        return pages
    rows = await Lookup(lookup.collection, viewer).rows(replace(query, limit=1, filters=()))
    if await to_thread.run_sync(next, rows, None) is not None:
        return pages
    viewer.check_empty()
    return pages._replace(number=0, blocks=0)


async def _summary(lines: Iterator[bytes], query: Query, viewer: Viewer) -> Response:
    """Returns lines of the summary of a ZipNum index. They cover rows that no rule was applied to, so only viewers who
    may see everything get them."""
    if not viewer.sees_all:
        raise viewer.refusal(403, "showPagedIndex needs a token")
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
