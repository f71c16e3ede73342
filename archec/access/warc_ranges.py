"""``/COLL/warc/FILENAME``: the bytes of single records of WARC files, for clients that read records by ranges.

A range is given only if it is exactly one record that the index names and whose contents the client may have. What is
at a place tells its URL and time; by these the index is asked.
"""

from __future__ import annotations

import re

from starlette.responses import Response

from archec.access.collection import Collection
from archec.access.errors import LoadFailed, Refused
from archec.access.exchange import Exchange, answer
from archec.access.loading import WarcLoader
from archec.access.query import all_of
from archec.access.record import exactly
from archec.access.resource import BodyAnswer, check_record
from archec.access.rows import NOWHERE, Row
from archec.access.sources import Errors
from archec.access.stamps import of_date
from archec.access.viewer import Viewer
from archec.errors import UsageError

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")
_NOT_ONE = "the range is not exactly one record that you may load"


async def answer_slice(exchange: Exchange, viewer: Viewer, collection: Collection, filename: str) -> Response:
    """The bytes of a range. Raises Refused: 416 without one, 403 for any other than that of a record."""
    match = _RANGE.fullmatch(exchange.headers.get("range", "").strip())
    if match is None:
        raise Refused(416, "a Range with the bytes of one record is required")
    first, length = int(match[1]), int(match[2]) - int(match[1]) + 1
    loaders = [one for step in collection.steps for one in step.loaders if isinstance(one, WarcLoader)]
    for loader in loaders:
        row = await _row_at(collection, viewer, loader, filename, first, length)
        if row is None:
            continue
        viewer.check_content(row)
        exchange.note["url"] = row.url
        pieces = await loader.slice(filename, first, length)
        span = f"bytes {first}-{first + length - 1}/*"
        made = answer(206, b"", "application/octet-stream", [("Content-Range", span)])
        return BodyAnswer(made, length, exactly(pieces, length))
    viewer.check_empty()
    raise Refused(403, _NOT_ONE)


async def _row_at(
    collection: Collection, viewer: Viewer, loader: WarcLoader, filename: str, first: int, length: int
) -> Row | None:
    """The row of the index that names exactly this place. Raises Refused if he may not have what is there."""
    fields = {"filename": filename, "offset": str(first), "length": str(length)}
    try:
        record = await loader.load_place(Row(b"", "", "", fields, NOWHERE))
    except LoadFailed:
        return None
    if record is None:
        return None
    url = record.get("WARC-Target-URI").strip("<>")
    stamp = of_date(record.get("WARC-Date"))
    await record.close()
    if not url or len(stamp) != 14:
        return None
    try:
        query = all_of(url, stamp)
    except UsageError:
        return None
    for row in await collection.rows(query, Errors(), viewer.visible):
        if row.timestamp[:14] != stamp:
            return None
        if all(row.text(name) == value for name, value in fields.items()):
            check_record(record, row, viewer)
            return row
    return None
