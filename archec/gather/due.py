"""When files are due, and which of them a run visits: new ones first, then the longest overdue (design, section 5).

The files that a run visits are its plan. It is in the run's spool and issued host by host, so a host with a million
files costs no memory and does not delay the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from xxhash import xxh3_64_hexdigest

from archec.archive.file_loss import is_lost
from archec.archive.runs import newest_first
from archec.catalogue.documents import DueFobi
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi, Visit
from archec.config import Config, FetchConfig
from archec.gather.options import RunTime, options_of
from archec.gather.spool import Spool
from archec.ids import host_of
from archec.paging import batched
from archec.tist import MAX_TIST
from archec.web.outcome import FetchTask

_DAY, _YEAR = 86400, 365 * 86400
_HELD = frozenset({"new", "changed", "same", "not-modified", "cosmetic"})
_REFUSED = frozenset({"forbidden", "robots", "too-large", "bad-url", "bad-certificate", "blocked-address", "denied"})
_BY_SETTINGS = ("bad-certificate", "blocked-address", "denied", "robots", "too-large")
"""Outcomes that another configuration may change."""
LAST_ID = "\U0010ffff"
"""Sorts after every id."""
_RUNS = 50
"""Number of runs that are searched for a complete one."""
_BATCH = 5000
_PAGE = 64
_NAMING, _MOST_NAMING = 50, 5000
"""Number of tobis checked for a mention of a file: at first, and at most."""


def next_due(config: Config, visit: Visit, last_noted: int | None, *, lost: bool, deferred: bool = False) -> int:
    """When the visited fobi is due again, in Unix seconds by the clock.

    New and changed files are due after ``revisit_min``, unchanged ones after half the time for which they
    have not changed, between ``revisit_min`` and ``revisit_max``, and gone ones when their loss can be
    confirmed. Faults have a back-off that begins at one day, refusals one that begins at
    ``revisit_min``. ``deferred`` files are due in the next run. A file that no template mentions any more is visited
    half as often after each visit, up to ``revisit_max``.
    """
    shortest, longest = int(config.fetch.revisit_min), int(config.fetch.revisit_max)
    outcome = visit.outcome
    if deferred:
        return visit.when + 1
    if outcome == "gone" and not (lost or is_lost(config, visit)):
        if visit.gone < config.lost_confirmations:
            wait = int(config.lost_grace)
        else:
            wait = visit.gone_when + int(config.lost_grace) - visit.when
        return visit.when + max(wait, 1)
    if outcome in ("new", "changed"):
        wait = shortest
    elif outcome in _HELD:
        unchanged = visit.tist - last_noted if last_noted is not None else 0
        wait = max(shortest, min(longest, unchanged // 2))
    else:
        first = shortest if outcome in _REFUSED or outcome == "gone" else min(_DAY, shortest)
        wait = min(longest, max(first, 1) << min(max(visit.fails - 1, 0), 12))
    if visit.unnamed:
        wait = min(longest, max(wait, 1) << min(visit.unnamed, 12))
    return visit.when + max(wait, 1)


def due_files(catalogue: Catalogue, config: FetchConfig, now: int, run: int = MAX_TIST + 1) -> Iterator[DueFobi]:
    """The files that are due in ``run``, by default the next one.

    A file that is due in more than a year (or ``revisit_max``) was visited with a wrong clock and is due now. A file
    that was refused is due now if the settings have changed since the last complete run.
    """
    beyond = now + max(_YEAR, int(config.revisit_max))
    due = chain(catalogue.due(now), catalogue.due(MAX_TIST, DueFobi(beyond, LAST_ID)))
    runs = islice(newest_first(catalogue, run), _RUNS)
    finished = (options_of(one) for one in runs if one.state in ("done", "held-back"))
    before = next((str(kept.get("refusals", "")) for kept in finished if kept.get("fetch")), "")
    if before in ("", refusals(config)):
        return due
    return chain(due, _not_due(catalogue, now, beyond))


def _not_due(catalogue: Catalogue, now: int, beyond: int) -> Iterator[DueFobi]:
    """The files that were refused, except those that are due anyway."""
    for fobi in catalogue.each("fobi", catalogue.with_outcome(_BY_SETTINGS)):
        if now < fobi.due <= beyond:
            yield DueFobi(fobi.due, fobi.id)


def refusals(config: FetchConfig) -> str:
    """A checksum of the settings by which archec itself refuses to fetch or to keep a file."""
    rules = (
        config.allow_networks, config.deny, config.insecure_hosts, config.max_size, config.robots, config.robots_tags,
    )  # fmt: skip
    return xxh3_64_hexdigest(repr(rules).encode())


# -- the plan of a run ----------------------------------------------------------------------------


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
