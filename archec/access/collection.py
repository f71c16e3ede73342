"""Collections: steps that are tried in turn. The sources of a step are queried at the same time, and
their merged rows processed by an iterator for each part of the query, which buffers as little as possible.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from archec.access.errors import SourceFailed
from archec.access.loading import Loader
from archec.access.ordering import first_of_each, merge_rows, sort_rows
from archec.access.query import Filter, Query
from archec.access.rows import Row
from archec.access.sources import AskedSource, Errors, LocalSource, Source, in_time
from archec.access.viewer import Viewer

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
    known: OrderedDict[str, Row] = OrderedDict()
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """Sources that are queried at the same time, and the loaders that are tried in turn for the records of their rows.
    ``timeout`` is in seconds; remote sources apply it themselves."""

    local: tuple[LocalSource, ...]
    remote: tuple[AskedSource, ...]
    loaders: tuple[Loader, ...]
    timeout: float
    grouped: bool

    async def answer(self, query: Query, errors: Errors, viewer: Viewer) -> Iterator[Row]:
        """The rows that a viewer may see. Where that is none, whatever there is, no source is queried, so that neither
        the time nor an error tells what there is."""
        if not viewer.may_see(query.range):
            return iter(())
        return apply(viewer.visible(await self._rows(query, errors)), query)

    async def _rows(self, query: Query, errors: Errors) -> Iterator[Row]:
        """The merged rows of all sources that answer in time."""
        local = [one for one in self.local if query.wants(one.name)]
        remote = [one for one in self.remote if query.wants(one.name)]
        if not remote and is_short(query):
            at_once = [one.parts_at_once(query, errors) for one in local]
            if None not in at_once:
                return merge_rows([part for parts in at_once for part in parts or ()], query)
        answers = await asyncio.gather(
            *(self._in_time(one, query, errors) for one in local),
            *(one.ask(query, errors) for one in remote),
        )
        return merge_rows(list(chain.from_iterable(answers)), query)

    async def _in_time(self, source: LocalSource, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        try:
            with in_time(self.timeout):
                return await to_thread.run_sync(partial(source.parts, query, errors), abandon_on_cancel=True)
        except SourceFailed as error:
            errors[source.name] = error.message
        return ()


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection and its steps. The first step that finds any rows answers a query. Rows that are added go into the
    file or directory ``fed``."""

    name: str
    steps: tuple[Step, ...]
    fed: Path | None = None

    async def rows(self, query: Query, errors: Errors, viewer: Viewer) -> Iterator[Row]:
        """Returns the rows that match a query, from the first step that has any. ``errors`` is complete only once the
        rows have been read."""
        for step in self.steps:
            rows = await step.answer(query, errors, viewer)
            first = await first_of(rows, query)
            if first is not None:
                return chain([first], rows)
        return iter(())

    @property
    def sources(self) -> Iterable[Source]:
        return [source for step in self.steps for source in (*step.local, *step.remote)]


def is_short(query: Query) -> bool:
    """Whether the first rows of an answer can be found without reading many others."""
    return bool(query.key) and not query.filters and query.order == query.source_order


async def first_of(made: Iterator[T], query: Query) -> T | None:
    """The next item of an iterator over rows, or None at its end. Runs in a thread unless the query is short."""
    return next(made, None) if is_short(query) else await to_thread.run_sync(next, made, None)
