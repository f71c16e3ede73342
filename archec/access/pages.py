"""Pages of an index: ranges of equal size, found by bisection, so that every page costs the same.

A page is a number of blocks: those of a ZipNum index, if its summary numbers them, else stretches of bytes. The number
of rows on a page varies, and filters apply within a page. Only a single local index has pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from archec.access.collection import Collection
from archec.access.errors import SourceFailed
from archec.access.index_files import SortedFile
from archec.access.index_folders import FileSource
from archec.access.query import DEFAULT_LIMIT, Arguments, KeyRange, Query
from archec.access.zipnum import blocks_of, parse_block
from archec.errors import UsageError

_BLOCK = 1 << 17
_SUMMARY_BLOCK = 100
"""Size of a block in bytes: of an index, and of the summary of a ZipNum index (about one line)."""
_PAGE_SIZE = 5
_ZIPNUM_PAGE_SIZE = 10
"""Blocks on a page, unless the client says how many: as Common Crawl's server and pywb have it."""


class QueryPages(NamedTuple):
    """The pages of a query: their ``number``, the requested ``page``, its ``size`` in blocks out of ``blocks``, and the
    ``range`` of its lines. With ``count_only`` the client asks for the number of pages only."""

    number: int
    page: int
    size: int
    blocks: int
    count_only: bool
    range: KeyRange


def pages_of(collection: Collection, query: Query, take: Arguments) -> QueryPages | None:
    """The pages that the parameters ask for, or None if they ask for none. Reads from disk. Raises UsageError."""
    count_only = take.flag("showNumPages")
    if not take.one("page") and not count_only:
        return None
    page = take.number("page", 0)
    found = _paged_source(collection, query).largest(query)
    if found is None:
        return QueryPages(0, page, query.page_size or _PAGE_SIZE, 0, count_only, query.range)
    try:
        blocks, begin_of, usual = _numbered(*found, query.range) or _measured(*found, query.range)
        size = query.page_size or usual
        count = -(-blocks // size)
        start = begin_of(page * size) if 0 < page < count else b""
        end = begin_of((page + 1) * size) if page + 1 < count else query.range.end
    except SourceFailed as error:
        raise UsageError(error.message) from error
    within = query.range._replace(start=max(start, query.range.start), end=min(end, query.range.end))
    return QueryPages(count, page, size, blocks, count_only, within)


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


def summary_of(collection: Collection, query: Query, pages: QueryPages | None) -> Iterator[bytes] | None:
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
        those = "groups, sequences, Redis, other archives and $archive"
        raise UsageError(f"pages are not supported for {those}: {hint}")
    return source
