"""Whose turn it is: a queue for each host, and the manners towards it. No clock and no sockets in here.

A host (name and port, as they stand in the URL) has at most ``per_host`` requests in flight, starts them
at least its delay apart, is slowed down when it says so, and is given up for this run after
``host_failures`` faults in a row. Hosts that may start a request take turns.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from archec.web.outcome import Outcome
from archec.web.task import Task

__all__ = ["GivenUp", "Host", "Hosts", "Job", "Manners"]


@dataclass(frozen=True, slots=True)
class Manners:
    """The settings of the queues (``fetch.*``); times in seconds. ``penalty``: the first slow-down."""

    per_host: int
    delay: float
    max_delay: float
    host_failures: int
    penalty: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the rest of a host waits for the next run."""

    outcome: Outcome
    message: str


@dataclass(slots=True, eq=False)
class Job:
    """A task on its way; ``tries`` counts the attempts that were begun and failed."""

    serial: int
    task: Task
    host: Host
    tries: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """What is known of a host in this run."""

    key: str
    queue: list[tuple[int, int, Job]] = field(default_factory=list)
    active: int = 0
    next_start: float = 0.0
    crawl_delay: float = 0.0
    penalty: float = 0.0
    faults: int = 0
    given_up: GivenUp | None = None
    listed: bool = False
    """Whether it stands in one of the two lists of hosts with something to do."""


class Hosts:
    """All queues of a worker. Times are those of one monotonic clock, in seconds."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        self._hosts: dict[str, Host] = {}
        self._ready: deque[Host] = deque()
        self._waiting: list[tuple[float, int, Host]] = []
        self._later: list[tuple[float, int, Job]] = []
        self._order = count()

    def host(self, key: str) -> Host:
        """The host of this name, made where it is new."""
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = Host(key)
        return host

    def add(self, job: Job) -> None:
        """Queues a job behind those of its host that have no larger rank."""
        host = job.host
        heapq.heappush(host.queue, (job.task.rank, next(self._order), job))
        if not host.listed and host.active < self._manners.per_host:
            self._enlist(host)

    def add_later(self, job: Job, when: float) -> None:
        """Queues a job that may not start before ``when``."""
        heapq.heappush(self._later, (when, next(self._order), job))

    def take(self, now: float) -> Job | None:
        """The next job that may start, None where none may at this moment; the job counts as active."""
        while self._later and self._later[0][0] <= now:
            self.add(heapq.heappop(self._later)[2])
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        while self._ready:
            host = self._ready.popleft()
            host.listed = False
            if not host.queue or host.active >= self._manners.per_host:
                continue
            if host.next_start > now:
                self._enlist(host)
                continue
            job = heapq.heappop(host.queue)[2]
            host.active += 1
            delay = self.delay(host)
            if delay:
                host.next_start = now + delay
            if host.queue and host.active < self._manners.per_host:
                self._enlist(host)
            return job
        return None

    def next_time(self) -> float | None:
        """When ``take`` may give something without anything else happening; None: not by waiting."""
        times = [heap[0][0] for heap in (self._waiting, self._later) if heap]
        return min(times) if times else None

    def done(self, host: Host) -> None:
        """One of the host's jobs is no longer active."""
        host.active -= 1
        if host.queue and not host.listed:
            self._enlist(host)

    def delay(self, host: Host) -> float:
        """The time between two starts that is kept towards this host."""
        return max(self._manners.delay, host.crawl_delay, host.penalty)

    def pause(self, host: Host, until: float) -> None:
        """Nothing of this host starts before ``until``."""
        host.next_start = max(host.next_start, until)

    def succeeded(self, host: Host) -> None:
        """The host answered as it should: its faults are forgotten, its slow-down eases."""
        host.faults = 0
        if host.penalty:
            host.penalty = host.penalty / 2 if host.penalty > self._manners.penalty else 0.0

    def slow_down(self, host: Host, now: float) -> None:
        """The host says that it is asked too much and does not say for how long."""
        host.penalty = min(max(2 * host.penalty, self._manners.penalty), self._manners.max_delay)
        self.pause(host, now + host.penalty)

    def failed(self, host: Host, reason: GivenUp) -> list[Job]:
        """Counts a fault; the jobs that fall away where this was one too many."""
        host.faults += 1
        if host.given_up is None and host.faults >= self._manners.host_failures:
            text = f"{host.key} was given up for this run after {host.faults} faults in a row; the last: "
            return self.give_up(host, GivenUp(reason.outcome, text + reason.message))
        return []

    def give_up(self, host: Host, reason: GivenUp) -> list[Job]:
        """Leaves the rest of a host to the next run; the jobs that were queued."""
        host.given_up = reason
        fallen = [entry[2] for entry in sorted(host.queue, key=lambda entry: entry[:2])]
        host.queue.clear()
        if any(entry[2].host is host for entry in self._later):
            fallen += [entry[2] for entry in sorted(self._later, key=lambda e: e[:2]) if entry[2].host is host]
            self._later = [entry for entry in self._later if entry[2].host is not host]
            heapq.heapify(self._later)
        return fallen

    def clear(self) -> list[Job]:
        """Empties all queues; the jobs that were in them."""
        fallen = [entry[2] for host in self._hosts.values() for entry in host.queue]
        fallen += [entry[2] for entry in self._later]
        for host in self._hosts.values():
            host.queue.clear()
        self._later.clear()
        return fallen

    def _enlist(self, host: Host) -> None:
        host.listed = True
        if host.next_start > 0.0:
            heapq.heappush(self._waiting, (host.next_start, next(self._order), host))
        else:
            self._ready.append(host)
