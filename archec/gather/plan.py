"""The plan: the files that a run visits, new ones first, then the longest overdue; issued host by host.

The plan is in the run's spool, so a host with a million files costs no memory and does not delay
the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from archec.catalogue.interface import Catalogue
from archec.catalogue.lists import DueFobi
from archec.config import FetchConfig
from archec.gather.spool import Spool
from archec.ids import host_of
from archec.tist import MAX_TIST

_BATCH = 5000
_PAGE = 64
_YEAR = 365 * 86400
LAST_ID = "\U0010ffff"
"""Sorts after every id."""


def due_files(catalogue: Catalogue, config: FetchConfig, now: int) -> Iterator[DueFobi]:
    """The files that are due. One that is due in more than a year (or ``revisit_max``) was visited with a wrong clock:
    it is due now."""
    beyond = now + max(_YEAR, int(config.revisit_max))
    return chain(catalogue.due(now), catalogue.due(MAX_TIST, DueFobi(beyond, LAST_ID)))


def make_plan(spool: Spool, due: Iterable[DueFobi], most: int) -> int:
    """Spools the fobis to visit, in order; ``most`` 0 means all. Returns their number."""
    rank = 0
    rows = iter(due) if not most else islice(due, most)
    while batch := list(islice(rows, _BATCH)):
        spool.add_plan((host_of(fobi.id), rank + i, fobi.id) for i, fobi in enumerate(batch))
        rank += len(batch)
    return rank


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
