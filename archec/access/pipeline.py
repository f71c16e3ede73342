"""What is done with the rows of all sources, in this order: revisits resolved, filter, time, collapse, order, limit.

Rows that somebody may not see were left out before. Each step takes and gives an iterator, and holds no more than it
must.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from archec.access.ordering import sort_rows
from archec.access.query import Filter, Query
from archec.access.rows import Row

_MAX_DIGESTS = 100_000
"""Maximum number of captures that are remembered for revisits."""
_ORIGINAL = ("length", "offset", "filename")


def apply(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    """The rows that answer a query, from the merged rows of its sources."""
    if query.resolve_revisits:
        rows = resolve_revisits(rows)
    if query.filters:
        rows = filtered(rows, query.filters)
    if query.since or query.until:
        rows = within(rows, query.since, query.until)
    if query.collapse_time:
        rows = collapse_time(rows, query.collapse_time)
    if query.order != query.source_order:
        rows = sort_rows(rows, query)
    return islice(rows, query.limit)


def resolve_revisits(rows: Iterator[Row]) -> Iterator[Row]:
    """Adds ``orig.length``, ``orig.offset`` and ``orig.filename``: of a revisit where the earlier capture with that
    digest is, else ``-``. A revisit gets its type and status, too, where its line has these fields."""
    known: OrderedDict[str, Row] = OrderedDict()
    for row in rows:
        digest = row.text("digest")
        original = known.get(digest) if digest and row.is_revisit else None
        if digest and not row.is_revisit and digest not in known:
            known[digest] = row
            if len(known) > _MAX_DIGESTS:
                known.popitem(last=False)
        more = {f"orig.{name}": "-" if original is None else original.fields.get(name, "-") for name in _ORIGINAL}
        if original is not None:
            more |= {name: original.fields.get(name, "") for name in ("mime", "status") if name in row.fields}
        yield row.with_fields(**more)


def filtered(rows: Iterable[Row], filters: Iterable[Filter]) -> Iterator[Row]:
    """The rows that pass all filters."""
    tests = [one.holds for one in filters]
    return (row for row in rows if all(holds(row) for holds in tests))


def within(rows: Iterable[Row], since: str, until: str) -> Iterator[Row]:
    """The rows of a time interval, both ends included."""
    return (row for row in rows if since <= row.timestamp and (not until or row.timestamp <= until))


def collapse_time(rows: Iterable[Row], digits: int) -> Iterator[Row]:
    """The first of adjacent rows with the same beginning of the time and the same status."""
    last: tuple[str, str] | None = None
    for row in rows:
        token = (row.timestamp[:digits], row.text("status"))
        if token != last:
            last = token
            yield row
