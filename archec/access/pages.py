"""Pages of an index: ranges of equal size in bytes, found by position, so that every page costs the same.

The number of rows on a page varies, and filters apply within a page. Only a single local index has pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from archec.access.collection import Collection
from archec.access.errors import SourceFailed
from archec.access.index_folders import FileSource
from archec.access.query import DEFAULT_LIMIT, Argument, Arguments, KeyRange, Query
from archec.access.wacz import WaczSource
from archec.access.zipnum import blocks_of
from archec.errors import UsageError

_BLOCK = 1 << 17
_SUMMARY_BLOCK = 100
"""Size of a block in bytes: of an index, and of the summary of a ZipNum index (about one line)."""
_PAGE_SIZE = 5


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
    size, page = take.number("pageSize", _PAGE_SIZE, least=1), take.number("page", 0)
    source = _paged_source(collection, query)
    found = source.largest(query)
    if found is None:
        return Pages(0, page, size, 0, count_only, query.range)
    lines, is_summary = found
    unit = _SUMMARY_BLOCK if is_summary else _BLOCK
    try:
        first, last = lines.find(query.range.start), lines.find(query.range.end)
        blocks = max(-(-(last - first) // unit), 1 if is_summary or last > first else 0)
        count = -(-blocks // size)
        start = lines.key_at(first + page * size * unit) if 0 < page < count else b""
        end = lines.key_at(first + (page + 1) * size * unit) if page + 1 < count else query.range.end
    except SourceFailed as error:
        raise UsageError(error.message) from error
    within = KeyRange(max(start, query.range.start), min(end, query.range.end))
    return Pages(count, page, size, blocks, count_only, within)


def summary_of(collection: Collection, query: Query) -> Iterator[bytes] | None:
    """The lines of a ZipNum summary for a query, at most DEFAULT_LIMIT. None if the index is not a ZipNum index. Reads
    from disk. Raises UsageError and SourceFailed."""
    found = _paged_source(collection, query).largest(query)
    if found is None or not found[1]:
        return None
    limit = min(query.limit or DEFAULT_LIMIT, DEFAULT_LIMIT)
    return islice(blocks_of(found[0], query.range.start, query.range.end), limit)


def _paged_source(collection: Collection, query: Query) -> FileSource | WaczSource:
    hint = "use limit and resumeKey of /cdx/search/cdx instead of page"
    if query.order != "ascending":
        raise UsageError(f"pages are not supported with closest or sort=reverse: {hint}")
    step = collection.steps[0]
    source = step.local[0] if len(step.local) == 1 else None
    if len(collection.steps) > 1 or step.remote or step.grouped or not isinstance(source, (FileSource, WaczSource)):
        raise UsageError(f"pages are not supported for groups, sequences, other archives and $archive: {hint}")
    return source
