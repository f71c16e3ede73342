"""Sorted lines, and reading them in the order of a query: ascending, descending, or by the distance to a time.

Every store of sorted lines (a file, compressed blocks, Redis) can read a range forwards and backwards. This is enough
to answer ``closest`` without reading more than needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Protocol

from archec.access.query import Order, Query
from archec.access.rows import LineReader, Row, RowOrigin
from archec.access.stamps import seconds

MAX_SORTED = 100_000
"""Maximum number of rows that are sorted in memory."""


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
    before = _runs(_rows(lines.backward(start, pivot), read, origin))
    after = _rows(lines.forward(pivot, end), read, origin)
    wanted = seconds(query.closest)
    return heapq.merge(before, after, key=lambda row: abs(seconds(row.timestamp) - wanted))


def sort_rows(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    """Sorts rows in memory in the order of a query. Keeps the first ones, up to its limit and MAX_SORTED."""
    key = row_key(query, query.order)
    most = MAX_SORTED if query.limit is None else min(query.limit, MAX_SORTED)
    first = heapq.nlargest if query.order == "reverse" else heapq.nsmallest
    return iter(first(most, rows, key=key))


def merge_rows(parts: Sequence[Iterator[Row]], query: Query) -> Iterator[Row]:
    """Merges the rows of several sources, each sorted in the order in which the query asks sources."""
    if len(parts) == 1:
        return parts[0]
    return heapq.merge(*parts, key=row_key(query, query.source_order), reverse=query.source_order == "reverse")


def source_rows(rows: Iterable[Row], query: Query) -> list[Row]:
    """Sorts rows in the order in which a query asks sources."""
    return sorted(rows, key=row_key(query, query.source_order), reverse=query.source_order == "reverse")


def row_key(query: Query, order: Order) -> Callable[[Row], Any]:
    """The sort key of rows for an order."""
    if order != "closest":
        return attrgetter("line")
    wanted = seconds(query.closest)
    return lambda row: (abs(seconds(row.timestamp) - wanted), row.line)


def _rows(lines: Iterator[bytes], read: LineReader, origin: RowOrigin) -> Iterator[Row]:
    return filter(None, map(read, lines, repeat(origin)))


def _runs(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows in descending order, except that those of the same time (at the same distance) are in ascending order."""
    for _, run in groupby(rows, attrgetter("timestamp")):
        yield from reversed(list(run))


def first_of_each(rows: Iterable[Row], key: Callable[[Row], object]) -> Iterator[Row]:
    """Yields the first of adjacent rows with the same key."""
    return (next(same) for _, same in groupby(rows, key))
