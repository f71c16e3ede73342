"""The plan: the files that a run visits, new ones first, then the longest overdue. They are issued host by host, each
with its request.

The plan is in the run's spool, so a host with a million files costs no memory and does not delay
the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from archec.catalogue.documents import DueFobi
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.config import Config
from archec.gather.options import RunTime
from archec.gather.spool import Spool
from archec.ids import host_of
from archec.paging import batched
from archec.web.task import FetchTask

_BATCH = 5000
_PAGE = 64
_NAMING, _MOST_NAMING = 50, 5000
"""Number of tobis checked for a mention of a file: at first, and at most."""


def make_plan(spool: Spool, due: Iterable[DueFobi], most: int) -> int:
    """Spools the fobis to visit, in order; ``most`` 0 means all. Returns their number."""
    planned = 0
    for batch in batched(enumerate(islice(due, most or None)), _BATCH):
        spool.add_plan((host_of(fobi.id), rank, fobi.id) for rank, fobi in batch)
        planned += len(batch)
    return planned


def unnamed_files(catalogue: Catalogue, urls: Collection[str]) -> set[str]:
    """Those of ``urls`` that a template once mentioned, but none mentions now."""
    found = set()
    for url, tobis in catalogue.referring(urls, _NAMING).items():
        if len(tobis) == _NAMING and not _is_named(url, tobis):
            tobis = catalogue.referring([url], _MOST_NAMING).get(url, [])
        if len(tobis) < _MOST_NAMING and not _is_named(url, tobis):
            found.add(url)
    return found


def _is_named(url: str, tobis: Iterable[Obi]) -> bool:
    """Whether any of these templates is held and mentions a URL."""
    newest = (tobi.newest for tobi in tobis if tobi.history.held)
    return any(ref.url == url for version in newest if version is not None for ref in version.refs)


def task_for(fobi: Obi, config: Config, at: RunTime) -> FetchTask:
    """The request for a file. It is conditional if a body is held and the last one was received within
    ``fetch.reverify``, unless that one was discarded as cosmetic and would be stored now."""
    visit = fobi.visit
    if visit is None or not fobi.history.held or (visit.cosmetic and config.store_cosmetic):
        return FetchTask(fobi.id)
    read = visit.read or max(fobi.history.noted, default=0)
    if at.when - read >= config.fetch.reverify:
        return FetchTask(fobi.id)
    return FetchTask(fobi.id, visit.etag, visit.modified)


@dataclass(slots=True)
class _Host:
    left: int
    rank: int = -1
    buffer: deque[tuple[int, str]] = field(default_factory=deque)
    busy: int = 0


class Feeder:
    """Issues the plan by rank, with at most ``per_host`` files of one host in flight."""

    def __init__(self, spool: Spool, per_host: int) -> None:
        self._spool, self._per_host = spool, per_host
        self._hosts: dict[str, _Host] = {}
        self._heap: list[tuple[int, str]] = []
        for rank, name, count in spool.plan_hosts():
            self._hosts[name] = _Host(count)
            self._heap.append((rank, name))
        heapq.heapify(self._heap)
        self.left = sum(host.left for host in self._hosts.values())

    def take(self, most: int) -> Iterator[str]:
        """At most ``most`` URLs whose hosts have capacity, lowest rank first."""
        while most > 0 and self._heap:
            _, name = heapq.heappop(self._heap)
            host = self._hosts[name]
            for _ in range(min(most, self._per_host - host.busy)):
                if not host.buffer:
                    host.buffer.extend(self._spool.plan_after(name, host.rank, _PAGE))
                    if not host.buffer:
                        break
                host.rank, url = host.buffer.popleft()
                host.left -= 1
                host.busy += 1
                self.left -= 1
                most -= 1
                yield url
            if host.left and host.busy < self._per_host:
                heapq.heappush(self._heap, (host.rank, name))

    def done(self, url: str) -> None:
        """Marks an issued file as done: its host has capacity again."""
        name = host_of(url)
        host = self._hosts.get(name)
        if host is None or not host.busy:
            return
        full = host.busy >= self._per_host
        host.busy -= 1
        if host.left and full:
            heapq.heappush(self._heap, (host.rank, name))
