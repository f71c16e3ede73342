"""``/COLL/warc/FILENAME``: single records of WARC files, for clients that read them with range requests.

A range is served only if it is exactly one record that is in the index and whose contents the viewer may have. An index
is sorted by URL, not by offset, so the header of the record is read first and the index is queried by its URL and time.
"""

from __future__ import annotations

import re

from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Lookup, Step
from archec.access.errors import SourceFailed
from archec.access.exchange import Exchange, answer
from archec.access.gate import NO_ROW
from archec.access.loading import WarcLoader
from archec.access.query import Query, all_of, key_range
from archec.access.record import exactly
from archec.access.resource import check_record
from archec.access.rows import NOWHERE, Row
from archec.access.stamps import upper
from archec.errors import UsageError
from archec.server.responses import BodyResponse

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")


async def answer_slice(exchange: Exchange, lookup: Lookup, filename: str) -> Response:
    """Returns the bytes of a range. Raises Refused: 416 without a range, 403 if the range is not exactly one permitted
    record."""
    viewer = lookup.viewer
    match = _RANGE.fullmatch(exchange.headers.get("range", "").strip())
    if match is None:
        raise viewer.refusal(416, "a Range with the bytes of one record is required")
    first, length = int(match[1]), int(match[2]) - int(match[1]) + 1
    if viewer.rules.are_trivial:
        viewer.check_content(NO_ROW)
    for step in lookup.collection.steps:
        for loader in step.loaders:
            if not isinstance(loader, WarcLoader):
                continue
            row = await _row_at(lookup, step, loader, filename, first, length)
            if row is None:
                continue
            viewer.check_content(row)
            exchange.note["url"] = row.url
            pieces = await loader.slice(filename, first, length)
            span = f"bytes {first}-{first + length - 1}/*"
            made = answer(206, b"", "application/octet-stream", [("Content-Range", span)])
            return BodyResponse(made, length, exactly(pieces, length))
    raise viewer.refusal(403, "the range is not exactly one record that you may load")


async def _row_at(lookup: Lookup, step: Step, loader: WarcLoader, filename: str, first: int, length: int) -> Row | None:
    """The row of exactly this range, or None. Raises Refused unless the viewer may have the record."""
    fields = {"filename": filename, "offset": str(first), "length": str(length)}
    try:
        record = await loader.load_place(Row(b"", "", "", fields, NOWHERE))
        if record is None:
            return None
        await record.close()
        if not record.url or not record.timestamp:
            return None
        queries = _queries(record.url, record.timestamp)
    except (SourceFailed, UsageError):
        return None
    for query in queries:
        rows = await lookup.rows_of(step, query)
        same = (row for row in rows if all(row.text(name) == value for name, value in fields.items()))
        if (row := await to_thread.run_sync(next, same, None)) is not None:
            check_record(record, row, lookup.viewer)
            return row
    return None


def _queries(url: str, stamp: str) -> list[Query]:
    """The queries for the captures of a URL at a time: under its own key, and under those of requests with a body.
    Raises UsageError."""
    at = replace(all_of(url), since=stamp, until=upper(stamp))
    posted = at.key.partition("?")[0] + "?__wb_method="
    return [at, replace(at, match="prefix", range=key_range(posted, "prefix", posted))]
