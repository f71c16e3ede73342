"""Sorted lines, and reading them in the order of a query: ascending, descending, or by the distance to a time.

Every store of sorted lines (a file, compressed blocks, Redis) can read a range forwards and backwards. This is enough
to answer ``closest`` without reading more than needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, Protocol

from archec.access.query import Order, Query
from archec.access.rows import LineReader, Row, RowOrigin
from archec.access.stamps import seconds

MAX_SORTED = 100_000
"""Maximum number of rows that are sorted in memory."""
MAX_SAME = 1000
"""Maximum number of captures of one time among which one is looked for."""


class OrderedLines(Protocol):
    """Lines without line ends, in byte order."""

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Yields the lines from ``start`` (included) to ``end`` (excluded)."""
        ...

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Yields the same lines, last one first."""
        ...


def ordered_rows(lines: OrderedLines, read: LineReader, origin: RowOrigin, query: Query) -> Iterator[Row]:
    """Yields the rows of a query in the order in which it asks sources. Lines are read as they are needed."""
    start, end = query.bounds()
    order = query.source_order
    if order == "ascending":
        return _rows(lines.forward(start, end), read, origin)
    if order == "reverse":
        return _rows(lines.backward(start, end), read, origin)
    pivot = min(max(f"{query.key} {query.closest}".encode("utf-8", "surrogatepass"), start), end)
    before = _rows(lines.backward(start, pivot), read, origin)
    return _nearest(before, _rows(lines.forward(pivot, end), read, origin), seconds(query.closest))


def sort_rows(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    """Yields rows in the order of a query. Sorts them in memory, which may take long, once the first one is requested.
    Keeps the first ones, up to its limit and MAX_SORTED."""
    key = row_key(query, query.order)
    most = MAX_SORTED if query.limit is None else min(query.limit, MAX_SORTED)
    first = heapq.nlargest if query.order == "reverse" else heapq.nsmallest
    yield from first(most, rows, key=key)


def merge_rows(parts: Sequence[Iterator[Row]], query: Query) -> Iterator[Row]:
    """Merges the rows of several sources, each sorted in the order in which the query asks sources."""
    if len(parts) == 1:
        return parts[0]
    order = query.source_order
    return heapq.merge(*parts, key=row_key(query, order), reverse=order == "reverse")


def source_rows(rows: Iterable[Row], query: Query) -> list[Row]:
    """Sorts rows in the order in which a query asks sources."""
    order = query.source_order
    return sorted(rows, key=row_key(query, order), reverse=order == "reverse")


def row_key(query: Query, order: Order) -> Callable[[Row], Any]:
    """The sort key of rows for an order."""
    if order != "closest":
        return attrgetter("line")
    wanted = seconds(query.closest)
    return lambda row: (abs(seconds(row.timestamp) - wanted), row.line)


def _rows(lines: Iterator[bytes], read: LineReader, origin: RowOrigin) -> Iterator[Row]:
    return filter(None, map(read, lines, repeat(origin)))


def _nearest(before: Iterator[Row], after: Iterator[Row], wanted: float) -> Iterator[Row]:
    """Merges rows from a time backwards with those from it forwards, by their distance to it: at the same distance, the
    earlier ones first. Rows of the same time become ascending."""
    earlier, later = next(before, None), next(after, None)
    while earlier is not None:
        same, stamp = [earlier], earlier.timestamp
        while (earlier := next(before, None)) is not None and earlier.timestamp == stamp:
            same.append(earlier)
        distance = abs(seconds(stamp) - wanted)
        while later is not None and abs(seconds(later.timestamp) - wanted) < distance:
            yield later
            later = next(after, None)
        yield from reversed(same)
    if later is not None:
        yield later
        yield from after


def spelled_first(rows: Iterator[Row], url: str) -> Iterator[Row]:
    """Yields the same rows, but of those of the first time the ones with exactly this URL before others with its
    key."""
    first = next(rows, None)
    if first is None or first.url == url:
        return chain(() if first is None else (first,), rows)
    same, after = [first], None
    for row in rows:
        if row.timestamp != first.timestamp or len(same) == MAX_SAME:
            after = row
            break
        same.append(row)
    same.sort(key=lambda row: row.url != url)
    return chain(same, () if after is None else (after,), rows)


def first_of_each(rows: Iterable[Row], key: Callable[[Row], object]) -> Iterator[Row]:
    """Yields the first of adjacent rows with the same key."""
    return (next(same) for _, same in groupby(rows, key))
