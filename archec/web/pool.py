"""The fetch pool: takes tasks and returns hops, with worker processes that share the hosts.

A host belongs to one worker for the whole run, so that its queue, its delay and its robots.txt are in one place. A new
host goes to the worker with the fewest hosts. Each worker has its share of the requests in flight.
"""

from __future__ import annotations

import selectors
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from archec.config import FetchConfig
from archec.errors import ArchecError, StorageFailed, StorageFull
from archec.ids import host_of
from archec.web.outcome import Fatal, FetchTask, FromWorker, Hop, Hops, HostsKnown, Outcome, Stop, Tasks, failure
from archec.web.policy import Deny, Proxies, Tuning
from archec.workers.child import decoder, encode
from archec.workers.pool import Process

_MESSAGE = 512
"""Maximum number of tasks in one message, so that a worker can start before it has read them all."""
_REDUCTION = 8
"""The successor of a lost process gets this many times fewer tasks at once."""
_FAILED_STARTS = 3
"""Number of consecutive processes that died without a single hop, after which a worker is not restarted."""
_LOST = "two fetching processes were lost over it, one of which had no other task"
_NO_PROCESS = "fetching processes are lost as soon as they are given something to do"
_START_TIMEOUT = 120.0
"""Seconds until the first heartbeat of a process."""


class _Pending(NamedTuple):
    task: FetchTask
    owner: _Owner
    again: bool


@dataclass(slots=True, eq=False)
class _Owner:
    """What the main process knows about a host: its worker, its consecutive failures, and the time (monotonic clock)
    before which no request may be sent to it."""

    slot: _FetchSlot
    faults: int = 0
    until: float = 0.0


@dataclass(slots=True, eq=False)
class _FetchSlot:
    """A place for a worker process and its successors.

    It is unknown which task a process was lost over. So its successor gets fewer tasks at once, beginning with those
    that the lost process had, until one is lost that had a single task. Each hop allows one task more.
    """

    config: FetchConfig
    """With the share of this process in the requests in flight."""
    process: Process | None = None
    alive: bool = False
    """Whether the process has sent anything. ``heard`` is when it last did, or until then when it was started."""
    heard: float = 0.0
    delivered: int = 0
    """Number of hops received from this process."""
    failed_starts: int = 0
    hosts: int = 0
    waiting: deque[str] = field(default_factory=deque)
    """URLs of tasks that have not been sent to the process."""
    given: int = 0
    room: int = sys.maxsize
    """Maximum number of tasks that the process may have."""


class FetchPool:
    """Fetches in ``config.workers`` processes. A context manager for use in one thread.

    Every submitted task is returned as one hop, in any order. Interrupts (Ctrl-C) do not reach the workers: the main
    process decides and calls ``stop``.
    """

    def __init__(
        self,
        config: FetchConfig,
        agent: str,
        sink: tuple[str, Sequence[Any]],
        tuning: Tuning | None = None,
        *,
        silence: float = 60.0,
        max_bytes: int = 0,
    ) -> None:
        """Starts nothing yet.

        ``sink`` is the function (``module:name``) that returns a :class:`archec.web.outcome.Sink` in each worker, and
        its arguments. A worker that sends nothing for ``silence`` seconds is killed. Once servers have sent
        ``max_bytes`` (including heads), fetching stops, tasks in progress return nothing, and the pool is ``spent``.
        Raises ConfigError if a proxy in the configuration or the environment is invalid.
        """
        Proxies(config.proxy)
        self._deny = Deny(config.deny)
        self._config = config
        self._agent = agent
        self._sink = sink
        self._tuning = tuning or Tuning()
        self._silence = silence
        self._max_bytes = max_bytes
        self._decode = decoder(FromWorker).decode
        self._slots: list[_FetchSlot] = []
        self._selector = selectors.DefaultSelector()
        self._open: dict[str, _Pending] = {}
        self._owners: dict[str, _Owner] = {}
        self._ready: list[Hop] = []
        self._error: StorageFull | StorageFailed | None = None
        self.spent = False
        self.requests = self.received = 0
        """Number of requests sent, including robots.txt and retries, and of bytes of bodies received, including
        unfinished and failed ones. Updated by ``collect``."""

    def __enter__(self) -> FetchPool:
        # With one process, the number of bytes received is exact at any moment.
        most = self._config.concurrency
        count = 1 if self._max_bytes else min(self._config.workers, most)
        try:
            for number in range(count):
                share = most // count + (number < most % count)
                self._slots.append(_FetchSlot(replace(self._config, concurrency=share)))
                self._start(self._slots[-1])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- in and out -------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[FetchTask]) -> None:
        """Submits tasks. Their URLs are normalised. Raises ValueError for a URL whose hop is still awaited."""
        for task in tasks:
            if task.url in self._open:
                raise ValueError(f"{task.url} is pending")
            try:
                host = host_of(task.url)
            except IndexError:
                self._ready.append(failure(task.url, Outcome.BAD_URL, "not a normalised URL"))
                continue
            if reason := self._deny.reason(task.url):
                self._ready.append(failure(task.url, Outcome.DENIED, reason))
                continue
            owner = self._owner(host)
            slot = owner.slot
            if slot.process is None:
                self._ready.append(failure(task.url, Outcome.INTERNAL, _NO_PROCESS, deferred=True))
                continue
            self._open[task.url] = _Pending(task, owner, False)
            slot.waiting.append(task.url)
        for slot in self._slots:
            self._hand_out(slot)

    def know(self, hosts: Iterable[tuple[str, int, float]]) -> None:
        """Sets the known state of hosts: name, consecutive faults, and seconds during which no request may be sent. A
        host with a wait longer than ``max_delay`` is given up."""
        now = time.monotonic()
        for host, faults, wait in hosts:
            owner = self._owner(host)
            owner.faults, owner.until = faults, now + wait
        for slot in self._slots:
            self._send_known(slot)

    def _send_known(self, slot: _FetchSlot) -> None:
        now = time.monotonic()
        known = [
            (host, owner.faults, max(0.0, owner.until - now))
            for host, owner in self._owners.items()
            if owner.slot is slot and (owner.faults or owner.until > now)
        ]
        if known:
            self._send(slot, HostsKnown(known))

    def _owner(self, host: str) -> _Owner:
        owner = self._owners.get(host)
        if owner is None:
            owner = self._owners[host] = _Owner(min(self._slots, key=_load))
            owner.slot.hosts += 1
        return owner

    def collect(self, timeout: float) -> list[Hop]:
        """Returns the available hops. Waits up to ``timeout`` seconds for the first one; [] if there is none.

        Raises:
            StorageFull, StorageFailed: a worker could not write. Finished hops are returned first.
        """
        if not self._ready:
            if self._error is not None:
                raise self._error
            if not self._open:
                return []
        for key, _ in self._selector.select(0.0 if self._ready else timeout):
            self._read(key.data)
        self._reap_silent()
        hops, self._ready = self._ready, []
        if not hops and self._error is not None:
            raise self._error
        return hops

    @property
    def pending(self) -> int:
        """Number of tasks whose hop has not been collected."""
        return len(self._open) + len(self._ready)

    @property
    def pids(self) -> list[int]:
        """The process ids of the running workers."""
        return [slot.process.pid for slot in self._slots if slot.process is not None]

    def stop(self, drain: bool = False, within: float | None = None) -> list[Hop]:
        """Stops the workers and returns the remaining hops. Queued tasks are dropped and no longer ``pending``.

        With ``drain``, tasks in progress are completed, for at most ``within`` seconds (default: ``total_timeout`` of a
        file). Without it, they are cancelled and their temporary files are removed. The files of a worker that has to
        be killed remain.
        """
        grace = self._tuning.stop_grace
        if within is None:
            within = self._config.total_timeout if drain else 0.0
        deadline = time.monotonic() + within + grace
        for slot in self._slots:
            self._send(slot, Stop(drain))
        # Workers without tasks in progress have nothing to clean up, so there is no need to wait for them.
        while self._open and self._selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._read(key.data, restart=False)
        for slot in self._slots:
            self._remove(slot)
        hops, self._ready = self._ready, []
        self._open.clear()
        self._owners.clear()
        self._slots.clear()
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        return hops

    # -- workers ----------------------------------------------------------------------------------

    def _start(self, slot: _FetchSlot) -> None:
        order = (
            slot.config, self._agent, self._sink, self._tuning, self._silence / 4,
            max(1, self._max_bytes - self.received) if self._max_bytes else 0,
        )  # fmt: skip
        try:
            slot.process = Process("archec.web.fetcher:serve", order, patience=self._silence)
        except OSError as error:
            raise ArchecError(
                f"a process for fetching cannot be started: {error.strerror}", hint="see 'ulimit -u' and 'ulimit -n'"
            ) from error
        slot.alive, slot.heard, slot.delivered = False, time.monotonic(), 0
        self._selector.register(slot.process.socket, selectors.EVENT_READ, slot)

    def _send(self, slot: _FetchSlot, message: Tasks | HostsKnown | Stop) -> None:
        if slot.process is not None:
            slot.process.send(encode(message))

    def _hand_out(self, slot: _FetchSlot) -> None:
        """Sends waiting tasks to the process of a slot, as many as it may have."""
        urls = [slot.waiting.popleft() for _ in range(min(len(slot.waiting), slot.room - slot.given))]
        slot.given += len(urls)
        for start in range(0, len(urls), _MESSAGE):
            self._send(slot, Tasks([self._open[url].task for url in urls[start : start + _MESSAGE]]))

    def _read(self, slot: _FetchSlot, restart: bool = True) -> None:
        """Processes the messages from the process of a slot. Replaces the process if it has ended."""
        process = slot.process
        if process is None:
            return
        alive = process.read()
        if alive:
            slot.alive, slot.heard = True, time.monotonic()
        try:
            while process.messages:
                self._process(slot, self._decode(process.messages.popleft()))
        except msgspec.MsgspecError:
            alive = False
        if not alive:
            self._remove(slot, grace=1.0)
            if restart:
                self._replace(slot)

    def _reap_silent(self) -> None:
        """Replaces processes that send nothing, because they are stopped or hang."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.process is not None and now - slot.heard > (self._silence if slot.alive else _START_TIMEOUT):
                self._remove(slot)
                self._replace(slot)

    def _process(self, slot: _FetchSlot, message: Hops | Fatal) -> None:
        if isinstance(message, Hops):
            self.received += message.received
            self.requests += message.requests
            self.spent = self.spent or message.spent
            slot.delivered += len(message.items)
            for hop in message.items:
                if hop.kind == "doubtful":
                    self._ready.append(hop)
                    continue
                pending = self._open.pop(hop.url, None)
                if pending is None:
                    continue
                slot.given -= 1
                slot.room += 1
                owner, failed = pending.owner, hop.outcome is not None and hop.outcome.is_transient
                owner.faults = owner.faults + 1 if failed else 0
                if hop.wait:
                    owner.until = max(owner.until, time.monotonic() + hop.wait)
                self._ready.append(hop)
            self._hand_out(slot)
        elif self._error is None:
            self._error = (StorageFull if message.full else StorageFailed)(message.message, hint=message.hint)

    def _remove(self, slot: _FetchSlot, grace: float = 0.0) -> None:
        if slot.process is not None:
            self._selector.unregister(slot.process.socket)
            slot.process.end(grace)
            slot.process = None

    def _replace(self, slot: _FetchSlot) -> None:
        """Starts a process in place of a lost one, and passes on its tasks and the state of its hosts. A task is failed
        instead if it was the only one of this process and another process was lost with it before."""
        waiting = set(slot.waiting)
        of_slot = [url for url, pending in self._open.items() if pending.owner.slot is slot]
        lost = [url for url in of_slot if url not in waiting]
        if slot.delivered:
            slot.failed_starts = 0
        elif len(lost) <= 1 or not slot.alive:
            slot.failed_starts += 1
        if slot.failed_starts == _FAILED_STARTS:
            slot.waiting.clear()
            self._give_up(of_slot, _NO_PROCESS)
            return
        if len(lost) == 1 and self._open[lost[0]].again:
            self._give_up(lost, _LOST)
        else:
            for url in lost:
                self._open[url] = self._open[url]._replace(again=True)
            slot.waiting.extendleft(reversed(lost))
            slot.room = max(1, len(lost) // _REDUCTION)
        slot.given = 0
        self._start(slot)
        self._send_known(slot)
        self._hand_out(slot)

    def _give_up(self, urls: Iterable[str], why: str) -> None:
        for url in urls:
            del self._open[url]
            self._ready.append(failure(url, Outcome.INTERNAL, why, deferred=True))


def _load(slot: _FetchSlot) -> tuple[bool, int]:
    return slot.process is None, slot.hosts
