"""Sorted lines, and reading them in the order of a query: by key, backwards, or by the distance to a time.

Whatever holds sorted lines (a file, blocks of a compressed one, Redis) gives a stretch of them forwards or
backwards. That is enough to answer ``closest`` without reading more than is requested.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from archec.access.query import Order, Query
from archec.access.rows import LineReader, Origin, Row
from archec.access.stamps import seconds

MAX_SORTED = 100_000
"""Maximum number of rows that are put in order in memory."""


class SortedLines(Protocol):
    """Lines without their ends, in byte order."""

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """The lines from ``start`` up to, and without, ``end``."""
        ...

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """The same lines, the last one first."""
        ...


def ordered_rows(lines: SortedLines, read: LineReader, origin: Origin, query: Query) -> Iterator[Row]:
    """The rows of a query in its order, read as they are requested where that is possible."""
    start, end = query.bounds()
    order = query.source_order
    if order == "ascending":
        return _rows(lines.forward(start, end), read, origin)
    if order == "reverse":
        return _rows(lines.backward(start, end), read, origin)
    pivot = min(max(f"{query.key} {query.closest}".encode("utf-8", "surrogatepass"), start), end)
    before = _runs(_rows(lines.backward(start, pivot), read, origin))
    return _outwards(before, _rows(lines.forward(pivot, end), read, origin), seconds(query.closest))


def sort_rows(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    """Rows put in the order of a query, in memory: the first ones, as many as its limit."""
    key = row_key(query, query.order)
    most = MAX_SORTED if query.limit is None else min(query.limit, MAX_SORTED)
    first = heapq.nlargest if query.order == "reverse" else heapq.nsmallest
    return iter(first(most, rows, key=key))


def merge_rows(parts: Sequence[Iterator[Row]], query: Query) -> Iterator[Row]:
    """The rows of several sources, each in the order in which the query asks sources, in one."""
    if len(parts) == 1:
        return parts[0]
    return heapq.merge(*parts, key=row_key(query, query.source_order), reverse=query.source_order == "reverse")


def source_rows(rows: Iterable[Row], query: Query) -> list[Row]:
    """Rows put in the order in which a query asks sources."""
    return sorted(rows, key=row_key(query, query.source_order), reverse=query.source_order == "reverse")


def row_key(query: Query, order: Order) -> Callable[[Row], Any]:
    """What rows of a query are ordered by in an order."""
    if order != "closest":
        return _line
    wanted = seconds(query.closest)
    return lambda row: (abs(seconds(row.timestamp) - wanted), row.line)


def _line(row: Row) -> bytes:
    return row.line


def _rows(lines: Iterator[bytes], read: LineReader, origin: Origin) -> Iterator[Row]:
    for line in lines:
        row = read(line, origin)
        if row is not None:
            yield row


def _outwards(before: Iterator[Row], after: Iterator[Row], wanted: float) -> Iterator[Row]:
    """The nearer one of the next row before a time and the next one after it; of two that are as near that before."""
    right = next(after, None)
    ahead = seconds(right.timestamp) - wanted if right is not None else 0.0
    for left in before:
        behind = wanted - seconds(left.timestamp)
        while right is not None and ahead < behind:
            yield right
            right = next(after, None)
            ahead = seconds(right.timestamp) - wanted if right is not None else 0.0
        yield left
    if right is not None:
        yield right
        yield from after


def _runs(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows that come backwards: those of one time, whose distance is the same, forwards."""
    run: list[Row] = []
    for row in rows:
        if run and run[0].timestamp != row.timestamp:
            yield from reversed(run)
            run = []
        run.append(row)
    yield from reversed(run)
