"""Politeness: a queue for each host, and when its next request may start. Uses neither clock nor sockets.

A host (name and port, as in the URL) has at most ``per_host`` requests in flight, started at least its delay apart. It
is slowed down when it asks for it, and given up for this run after ``host_failures`` consecutive faults. Hosts with the
same address have at most ``per_address`` requests in flight together, and one at a time once one of them has sent
Retry-After. The others are not paused, as thousands of names may share an address. Hosts that may start a request take
turns.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from archec.config import FetchConfig
from archec.web.outcome import FetchTask, Outcome

_MAX_HOSTS = 50_000
"""Number of hosts above which hosts without state are dropped."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the remaining tasks of a host are deferred to the next run."""

    outcome: Outcome
    message: str


@dataclass(slots=True, eq=False)
class QueuedTask:
    """A task and its host. ``tries`` is the number of failed attempts."""

    task: FetchTask
    host: HostQueue
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Address:
    """The shared state of hosts with the same address. ``most`` is the maximum number of requests in flight."""

    most: int
    active: int = 0
    waiting: deque[HostQueue] = field(default_factory=deque)
    """Hosts that have a task to start and wait until a request of another one ends."""


@dataclass(slots=True, eq=False)
class HostQueue:
    """The tasks of a host and its state in this run."""

    key: str
    tasks: deque[QueuedTask] = field(default_factory=deque)
    active: int = 0
    next_start: float = 0.0
    crawl_delay: float = 0.0
    penalty: float = 0.0
    faults: int = 0
    given_up: GivenUp | None = None
    located: bool = False
    address: _Address | None = None
    """None if it is unknown, or if a proxy is used."""
    listed: bool = False
    """Whether it is in one of the lists of hosts with a task to start."""


class HostQueues:
    """All queues of a worker. Times are those of one monotonic clock, in seconds. ``penalty`` is the initial slow-down.

    A host is in at most one list: in ``_ready`` if it may start at once, in ``_waiting`` (a heap by time) if its delay
    has to pass. A host with ``per_host`` requests in flight is in neither; ``done`` lists it again. So ``take`` never
    examines hosts that cannot start a task.
    """

    def __init__(self, config: FetchConfig, penalty: float) -> None:
        self._config, self._penalty = config, penalty
        self._hosts: dict[str, HostQueue] = {}
        self._room = _MAX_HOSTS
        self._addresses: dict[str, _Address] = {}
        self._ready: deque[HostQueue] = deque()
        self._waiting: list[tuple[float, int, HostQueue]] = []
        self._later: list[tuple[float, int, QueuedTask]] = []
        self._order = count()
        self._now = 0.0
        """The time of the last ``take``."""

    def host(self, key: str) -> HostQueue:
        """The queue of the host with this name, created on the first call."""
        host = self._hosts.get(key)
        if host is None:
            if len(self._hosts) >= self._room:
                self._forget()
            host = self._hosts[key] = HostQueue(key)
        return host

    def _forget(self) -> None:
        """Frees memory: drops hosts without state, and addresses without hosts."""
        busy = {entry[2].host.key for entry in self._later}
        self._hosts = {
            key: host
            for key, host in self._hosts.items()
            if host.tasks or host.active or host.listed or host.faults or host.penalty or host.given_up or key in busy
            or host.next_start > self._now
        }
        used = {id(host.address) for host in self._hosts.values()}
        self._addresses = {name: one for name, one in self._addresses.items() if one.active or id(one) in used}
        self._room = max(_MAX_HOSTS, 2 * len(self._hosts))

    def add(self, queued: QueuedTask) -> None:
        """Queues a task behind those of its host."""
        host = queued.host
        host.tasks.append(queued)
        if not host.listed and host.active < self._config.per_host:
            self._enlist(host)

    def add_later(self, queued: QueuedTask, when: float) -> None:
        """Queues a task that may not start before ``when``."""
        heapq.heappush(self._later, (when, next(self._order), queued))

    def take(self, now: float) -> QueuedTask | None:
        """Returns the next task that may start, or None. The task counts as active."""
        self._now = now
        while self._later and self._later[0][0] <= now:
            self.add(heapq.heappop(self._later)[2])
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        while self._ready:
            host = self._ready.popleft()
            host.listed = False
            if not host.tasks or host.active >= self._config.per_host:
                continue
            if host.address is not None and host.address.active >= host.address.most:
                host.listed = True
                host.address.waiting.append(host)
                continue
            if host.next_start > now:  # it was paused after it was listed
                self._enlist(host)
                continue
            queued = host.tasks.popleft()
            host.active += 1
            if host.address is not None:
                host.address.active += 1
            delay = self.delay(host)
            if delay:
                host.next_start = now + delay
            if host.tasks and host.active < self._config.per_host:
                self._enlist(host)
            return queued
        return None

    def next_time(self) -> float | None:
        """When ``take`` may return a task without any other event. None if waiting does not help."""
        times = [heap[0][0] for heap in (self._waiting, self._later) if heap]
        return min(times) if times else None

    def done(self, host: HostQueue) -> None:
        """Records that one of the host's tasks is no longer active."""
        host.active -= 1
        self._release(host.address)
        if host.tasks and not host.listed:
            self._enlist(host)

    def locate(self, host: HostQueue, address: str) -> None:
        """Sets the address of a host, empty if only a proxy knows it. Its requests in flight count for the address from
        now on."""
        host.located = True
        if address:
            host.address = self._addresses.setdefault(address, _Address(self._config.per_address))
            host.address.active += host.active

    def crowded(self, host: HostQueue) -> bool:
        """Whether the address of a host has more requests in flight than allowed."""
        return host.address is not None and host.address.active > host.address.most

    def _release(self, address: _Address | None) -> None:
        if address is None:
            return
        address.active -= 1
        while address.waiting and address.active < address.most:
            host = address.waiting.popleft()
            host.listed = False
            if host.tasks:
                self._enlist(host)
                if not host.next_start:
                    return  # it starts at once and takes the place; a delayed host would leave it empty

    def delay(self, host: HostQueue) -> float:
        """Minimum number of seconds between two starts."""
        return max(self._config.delay, host.crawl_delay, host.penalty)

    def pause(self, host: HostQueue, until: float) -> None:
        """Starts nothing of this host before ``until``."""
        host.next_start = max(host.next_start, until)

    def succeeded(self, host: HostQueue) -> None:
        """Records a normal response: resets the failures of the host and reduces its delay."""
        host.faults = 0
        if host.penalty:
            host.penalty = host.penalty / 2 if host.penalty > self._penalty else 0.0

    def slow_down(self, host: HostQueue, now: float) -> None:
        """Slows down a host that reports too many requests without saying how long to wait."""
        host.penalty = min(max(2 * host.penalty, self._penalty), self._config.max_delay)
        self.pause(host, now + host.penalty)

    def ease(self, host: HostQueue) -> None:
        """Limits the address of a host that sent Retry-After to one request at a time."""
        if host.address is not None:
            host.address.most = 1

    def hold_off(self, host: HostQueue, wait: float, outcome: Outcome, now: float) -> list[QueuedTask]:
        """Pauses a host that asked to wait (Retry-After), or gives it up if that is longer than ``max_delay``. Returns
        the tasks that are dropped."""
        if wait > self._config.max_delay:
            return self.give_up(host, GivenUp(outcome, f"{host.key} asks to wait {wait:.0f} s"))
        self.pause(host, now + wait)
        return []

    def failed(self, host: HostQueue, reason: GivenUp) -> list[QueuedTask]:
        """Counts a fault. Returns the tasks that are dropped if this was one too many."""
        host.faults += 1
        if host.given_up is None and host.faults >= self._config.host_failures:
            text = f"{host.key} was given up for this run after {host.faults} faults in a row; the last: "
            return self.give_up(host, GivenUp(reason.outcome, text + reason.message))
        return []

    def give_up(self, host: HostQueue, reason: GivenUp) -> list[QueuedTask]:
        """Defers the remaining tasks of a host to the next run. Returns them in order."""
        host.given_up = reason
        dropped = list(host.tasks)
        host.tasks.clear()
        if any(entry[2].host is host for entry in self._later):
            dropped += [entry[2] for entry in sorted(self._later, key=lambda e: e[:2]) if entry[2].host is host]
            self._later = [entry for entry in self._later if entry[2].host is not host]
            heapq.heapify(self._later)
        return dropped

    def clear(self) -> None:
        """Empties all queues."""
        for host in self._hosts.values():
            host.tasks.clear()
        self._later.clear()

    def _enlist(self, host: HostQueue) -> None:
        host.listed = True
        if host.next_start > 0.0:
            heapq.heappush(self._waiting, (host.next_start, next(self._order), host))
        else:
            self._ready.append(host)
