"""Collections: steps that are tried in turn. The sources of a step are queried at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from anyio import to_thread
from msgspec.structs import replace

from archec.access.errors import MayBlock
from archec.access.gate import Viewer
from archec.access.loading import Loader
from archec.access.ordering import merge_rows
from archec.access.query import Query, key_range
from archec.access.query_steps import apply
from archec.access.rows import Row
from archec.access.sources import AskedSource, Errors, LocalSource, Loss, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """Sources that are queried at the same time, and the loaders that are tried in turn for the records of their rows.
    ``timeout`` is in seconds; a single remote source applies it itself."""

    local: tuple[LocalSource, ...]
    remote: tuple[AskedSource, ...]
    loaders: tuple[Loader, ...]
    timeout: float
    grouped: bool

    async def rows(self, query: Query, errors: Errors) -> Iterator[Row]:
        """The merged rows of all sources that answer in time. Those that failed for the same request are not asked."""
        local = [one for one in self.local if query.wants(one.name) and one not in errors.failed]
        remote = [one for one in self.remote if query.wants(one.name) and one not in errors.failed]
        if not remote and is_short(query):
            try:
                return merge_rows([part for one in local for part in one.parts(query, errors, at_once=True)], query)
            except MayBlock:
                pass
        begin, in_thread = asyncio.create_task, partial(to_thread.run_sync, abandon_on_cancel=True)
        asked: dict[asyncio.Task[Sequence[Iterator[Row]]], Source] = {
            **{begin(in_thread(partial(one.parts, query, errors))): one for one in local},
            **{begin(one.ask(query, errors)): one for one in remote},
        }
        if not asked:
            return iter(())
        before = dict(errors)
        try:
            await asyncio.wait(asked, timeout=self.timeout if self.grouped or local else None)
        finally:
            late = [task for task in asked if task.cancel()]
        for task in late:
            source = asked.pop(task)
            if errors.get(source.name) == before.get(source.name):  # else its thread has just failed
                source.failed(f"no answer within {self.timeout:g} s", errors)
        return merge_rows([part for task in asked for part in task.result()], query)


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection and its steps. The first step that finds any rows answers a query. Rows that are added go into the
    file or directory ``fed``."""

    name: str
    steps: tuple[Step, ...]
    fed: Path | None = None

    @property
    def sources(self) -> Iterable[Source]:
        return [source for step in self.steps for source in (*step.local, *step.remote)]


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a viewer looks up in a collection for one request, and the errors of its sources meanwhile, which are
    complete only once the rows have been read."""

    collection: Collection
    viewer: Viewer
    errors: Errors = field(default_factory=Errors)

    async def rows_of(self, step: Step, query: Query) -> Iterator[Row]:
        """The rows of a step that the viewer may see. If none can be visible, the sources are queried for a URL that
        none of them has: neither the response time nor an error may reveal what is held, or that it is closed. There
        is no query for viewers who can see nothing anywhere, because they learn nothing from either."""
        if self.viewer.may_see(query.range):
            return apply(self.viewer.visible(await step.rows(query, self.errors), query.url), query)
        if not self.viewer.sees_nothing_by_default:
            # A host that none can have (RFC 2606 section 2), and its own for each URL: caches must behave alike, too.
            url = f"http://x{abs(hash(query.url)):x}.invalid/"
            unknown = replace(query, url=url, posted=query.posted and url, range=key_range(url, query.match))
            return filter(None, map(_hidden, await step.rows(unknown, self.errors)))
        return iter(())

    async def rows(
        self, query: Query, of_step: Callable[[Iterator[Row]], Iterator[Row]] | None = None
    ) -> Iterator[Row]:
        """Returns the rows that match a query, from the first step that has any. ``of_step`` selects among those of a
        step; it may read many of them."""
        *others, last = self.collection.steps
        for step in others:
            rows = await self.rows_of(step, query)
            rows = of_step(rows) if of_step is not None else rows
            first = await (first_of(rows, query) if of_step is None else to_thread.run_sync(next, rows, None))
            if first is not None:
                return chain([first], rows)
        rows = await self.rows_of(last, query)
        return of_step(rows) if of_step is not None else rows

    async def in_step_of(self, query: Query) -> Lookup:
        """The same in only the first step that has any rows for a query."""
        *others, step = self.collection.steps
        for other in others:
            if await first_of(await self.rows_of(other, query), query) is not None:
                step = other
                break
        return Lookup(Collection(self.collection.name, (step,)), self.viewer, self.errors)

    def lost(self, url: str) -> Loss | None:
        """What the first source that knows of a loss says, of those that have not failed. May block."""
        sources = (one for one in self.collection.sources if one not in self.errors.failed)
        return next(filter(None, (one.lost(url) for one in sources)), None)

    async def first(self, query: Query) -> Row | None:
        return next(await self.rows(replace(query, limit=1)), None)


def _hidden(row: Row) -> Row | None:
    """Nothing, whatever the row."""
    return None


def is_short(query: Query) -> bool:
    """Whether the first rows of an answer can be found without reading many others."""
    skips = query.filters or query.resolve_revisits or query.collapse_time >= 0
    return bool(query.key) and not skips and query.order == query.source_order


async def first_of(made: Iterator[T], query: Query) -> T | None:
    """The next item of an iterator over rows, or None at its end. Runs in a thread unless the query is short."""
    return next(made, None) if is_short(query) else await to_thread.run_sync(next, made, None)
