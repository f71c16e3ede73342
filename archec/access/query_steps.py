"""The steps that process the merged rows of all sources: resolve revisits, filter, time, collapse, order, limit.

Rows that the viewer may not see have been dropped before. Each step maps an iterator to an iterator and buffers as
little as possible.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from archec.access.ordering import first_of_each, sort_rows
from archec.access.query import Filter, Query
from archec.access.rows import Row

MAX_DIGESTS = 100_000
"""Maximum number of captures that are remembered by their digests."""
_ORIGINAL = ("length", "offset", "filename")


def apply(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    """Returns the rows that match a query, from the merged rows of its sources."""
    if query.resolve_revisits:
        rows = resolve_revisits(rows)
    if query.filters:
        rows = filtered(rows, query.filters)
    if query.since or query.until:
        rows = within(rows, query.since, query.until)
    if query.collapse_time >= 0:
        rows = first_of_each(rows, lambda row: (row.timestamp[: query.collapse_time], row.text("status")))
    if query.order != query.source_order:
        rows = sort_rows(rows, query)
    return islice(rows, query.limit)


def resolve_revisits(rows: Iterator[Row], *, add: bool = False) -> Iterator[Row]:
    """Adds ``orig.length``, ``orig.offset`` and ``orig.filename``: the place of the earlier capture with the digest of
    a revisit, or ``-``. A revisit also gets the type and status of that capture, if its line has these fields or with
    ``add``."""
    known = OrderedDict[str, Row]()  # removes its first key at once, which a dict has to look for
    for row in rows:
        digest = row.text("digest")
        original = known.get(digest) if digest and row.is_revisit else None
        if digest and not row.is_revisit and digest not in known:
            known[digest] = row
            if len(known) > MAX_DIGESTS:
                known.popitem(last=False)
        more = {f"orig.{name}": "-" if original is None else original.fields.get(name, "-") for name in _ORIGINAL}
        if original is not None:
            more |= {name: original.fields.get(name, "") for name in ("mime", "status") if add or name in row.fields}
        yield row.with_fields(**more)


def filtered(rows: Iterable[Row], filters: Iterable[Filter]) -> Iterator[Row]:
    tests = [one.holds for one in filters]
    return (row for row in rows if all(holds(row) for holds in tests))


def within(rows: Iterable[Row], since: str, until: str) -> Iterator[Row]:
    """The rows in a time interval. Both ends are included."""
    return (row for row in rows if since <= row.timestamp and (not until or row.timestamp <= until))
