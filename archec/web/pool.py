"""The fetcher that the rest of archec uses: tasks in, hops out, over worker processes that share the hosts.

A host belongs to one worker for the whole run, so that its queue, its delay and its robots.txt are in one
place. A new host goes to the worker with the fewest busy hosts. The requests that may be in flight are
shared out anew twice a second, by what the workers have to do.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from archec.config import FetchConfig
from archec.errors import StorageFailed, StorageFull
from archec.ids import host_of
from archec.web import wire
from archec.web.child import Child
from archec.web.connect import Proxies
from archec.web.limits import Tuning
from archec.web.orders import Orders
from archec.web.outcome import Outcome
from archec.web.task import FetchTask, Hop, Sink, failure

__all__ = ["FetchPool", "shares"]

_MESSAGE = 512
"""Tasks in one message at most, so that a worker begins before it has read them all."""
_RETUNE = 0.5
_BARREN = 3
"""Processes in a row that died without a single hop, after which a worker is not started again."""
_DIED = "the fetching process died on it, and so did another one"


class _Pending(NamedTuple):
    task: FetchTask
    owner: _Owner
    crashes: int


class _Owner:
    """What the main process knows of a host: whose it is, and how many of its tasks are open."""

    __slots__ = ("open", "seat")

    def __init__(self, seat: _Seat) -> None:
        self.seat = seat
        self.open = 0


class _Seat:
    """A place for a worker process; processes may follow each other in it."""

    __slots__ = ("barren", "busy", "child", "hosts", "open")

    def __init__(self, child: Child) -> None:
        self.child: Child | None = child
        self.barren = 0
        self.busy = 0
        self.hosts = 0
        self.open = 0


class FetchPool:
    """Fetches over ``config.workers`` processes; a context manager, for one thread.

    Every task that is submitted comes back as one hop, in any order. Interrupts (Ctrl-C) do not reach the
    workers: the main process decides, with ``stop``.
    """

    def __init__(self, config: FetchConfig, agent: str, sink: Sink, tuning: Tuning | None = None) -> None:
        """Starts nothing yet. Raises ConfigError where a proxy of the configuration or environment is none."""
        Proxies(config.proxy)
        self._config = config
        self._agent = agent
        self._sink = sink
        self._tuning = tuning or Tuning()
        self._seats: list[_Seat] = []
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, _Pending] = {}
        self._owners: dict[str, _Owner] = {}
        self._ready: list[Hop] = []
        self._error: StorageFull | StorageFailed | None = None
        self._serial = 0
        self._retuned = 0.0
        self.received = 0
        """Bytes of bodies that came in so far, those of unfinished and failed ones too; ``collect`` counts."""

    def __enter__(self) -> FetchPool:
        count = min(self._config.workers, self._config.concurrency)
        try:
            for number, share in enumerate(shares(self._config.concurrency, [self._config.concurrency] * count)):
                self._seats.append(_Seat(self._child(number, share)))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- in and out -------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[FetchTask]) -> None:
        """Hands tasks over. Their URLs are normalised; the same URL twice is fetched twice."""
        batches: dict[int, list[tuple[Any, ...]]] = {}
        serial = self._serial
        owners, pending = self._owners, self._open
        for task in tasks:
            try:
                host = host_of(task.url)
            except IndexError:
                self._ready.append(failure(task.url, Outcome.BAD_URL, "not a normalised URL"))
                continue
            owner = owners.get(host)
            if owner is None:
                owner = owners[host] = _Owner(min(self._seats, key=_load))
                owner.seat.hosts += 1
            seat = owner.seat
            if seat.child is None:
                self._ready.append(failure(task.url, Outcome.UNREACHABLE, _DIED, deferred=True))
                continue
            if not owner.open:
                seat.busy += 1
            owner.open += 1
            seat.open += 1
            serial += 1
            pending[serial] = _Pending(task, owner, 0)
            batches.setdefault(seat.child.index, []).append((serial, *task))
        self._serial = serial
        for index, batch in batches.items():
            self._send(self._seats[index], batch)

    def collect(self, timeout: float) -> list[Hop]:
        """The hops that are there; waits up to ``timeout`` seconds for the first, [] where none came.

        Raises:
            StorageFull, StorageFailed: a worker could not write; hops that were finished come first.
        """
        if not self._ready:
            if self._error is not None:
                raise self._error
            if not self._open:
                return []
        for key, _ in self._selector.select(0.0 if self._ready else timeout):
            self._read(key.data)
        hops, self._ready = self._ready, []
        if not hops and self._error is not None:
            raise self._error
        now = time.monotonic()
        if now - self._retuned > _RETUNE and len(self._seats) > 1:
            self._retuned = now
            self._share_out()
        return hops

    @property
    def pending(self) -> int:
        """Tasks whose hop was not collected yet."""
        return len(self._open) + len(self._ready)

    @property
    def pids(self) -> list[int]:
        """The worker processes that run."""
        return [seat.child.pid for seat in self._seats if seat.child is not None]

    def stop(self, drain: bool = False, within: float | None = None) -> list[Hop]:
        """Ends the workers. Tasks that are only queued are dropped, which ``pending`` forgets.

        With ``drain`` what is under way is finished (for ``within`` seconds at most, by default as long as a
        file may take) and the hops are returned; without it everything is broken off, temporary files are
        removed, and nothing is returned. The files of a worker that must be killed stay where they are.
        """
        grace = self._tuning.stop_grace
        if within is None:
            within = self._config.total_timeout if drain else 0.0
        deadline = time.monotonic() + within + grace
        for seat in self._seats:
            if seat.child is not None:
                seat.child.send(wire.STOP, drain)
        # Workers with nothing under way have nothing to tidy up: they are not waited for.
        while self._open and self._selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._read(key.data, restart=False)
        for seat in self._seats:
            if seat.child is not None:
                self._remove(seat, 0.0)
        hops, self._ready = self._ready, []
        self._open.clear()
        self._owners.clear()
        self._seats.clear()
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        if drain:
            return hops
        for hop in hops:
            _discard(hop)
        return []

    # -- workers ----------------------------------------------------------------------------------

    def _child(self, index: int, share: int) -> Child:
        child = Child(index, Orders(self._config, self._agent, self._sink, self._tuning, share))
        self._selector.register(child.socket, selectors.EVENT_READ, index)
        return child

    def _send(self, seat: _Seat, batch: list[tuple[Any, ...]]) -> None:
        if seat.child is not None:
            for start in range(0, len(batch), _MESSAGE):
                seat.child.send(wire.TASKS, batch[start : start + _MESSAGE])

    def _read(self, index: int, restart: bool = True) -> None:
        seat = self._seats[index]
        child = seat.child
        if child is None:
            return
        messages = child.receive()
        if messages is None:
            self._remove(seat, 1.0 if child.stopped else 0.1)
            if restart:
                self._replace(seat, child)
            return
        for message in messages:
            kind = message[0]
            if kind == wire.HOPS:
                self.received += message[2]
                self._take(child, message[1])
            elif kind == wire.FATAL and self._error is None:
                self._error = (StorageFull if message[1] else StorageFailed)(message[2])
            elif kind == wire.STOPPED:
                child.stopped = True

    def _take(self, child: Child, items: list[tuple[Any, ...]]) -> None:
        child.delivered += len(items)
        for item in items:
            serial, hop = wire.hop_from(item)
            pending = self._open.pop(serial, None)
            if pending is None:
                _discard(hop)
                continue
            self._closed(pending.owner)
            self._ready.append(hop)

    @staticmethod
    def _closed(owner: _Owner) -> None:
        owner.open -= 1
        owner.seat.open -= 1
        if not owner.open:
            owner.seat.busy -= 1

    def _remove(self, seat: _Seat, grace: float) -> None:
        if seat.child is not None:
            self._selector.unregister(seat.child.socket)
            seat.child.reap(grace)
            seat.child = None

    def _replace(self, seat: _Seat, dead: Child) -> None:
        """Starts a process in place of a dead one and gives it the dead one's tasks, each of them once."""
        seat.barren = 0 if dead.delivered else seat.barren + 1
        orphans = [(serial, pending) for serial, pending in self._open.items() if pending.owner.seat is seat]
        batch: list[tuple[Any, ...]] = []
        alive = seat.barren < _BARREN
        for serial, pending in orphans:
            if alive and not pending.crashes:
                self._open[serial] = pending._replace(crashes=1)
                batch.append((serial, *pending.task))
            else:
                del self._open[serial]
                self._closed(pending.owner)
                self._ready.append(failure(pending.task.url, Outcome.UNREACHABLE, _DIED, deferred=True))
        if alive:
            seat.child = self._child(dead.index, dead.concurrency)
            self._send(seat, batch)

    def _share_out(self) -> None:
        seats = [seat for seat in self._seats if seat.child is not None]
        wants = [min(seat.open, seat.busy * self._config.per_host) for seat in seats]
        for seat, share in zip(seats, shares(self._config.concurrency, wants), strict=True):
            if seat.child is not None and seat.child.concurrency != share:
                seat.child.concurrency = share
                seat.child.send(wire.CONCURRENCY, share)


def shares(total: int, wants: Sequence[int]) -> list[int]:
    """``total`` shared out among those who want so much each: nobody gets nothing, the sum is ``total``.

    (Where ``total`` is less than their number, each gets one.) What some do not want goes to the others.
    """
    if not wants:
        return []
    result = [1] * len(wants)
    left = total - len(wants)
    hungry = [number for number, want in enumerate(wants) if want > 1]
    while left > 0 and hungry:
        part = max(1, left // len(hungry))
        for number in hungry:
            gift = min(part, wants[number] - result[number], left)
            result[number] += gift
            left -= gift
        hungry = [number for number in hungry if result[number] < wants[number]]
    for number in range(max(0, left)):
        result[number % len(result)] += 1
    return result


def _load(seat: _Seat) -> tuple[bool, int, int]:
    return seat.child is None, seat.busy, seat.hosts


def _discard(hop: Hop) -> None:
    if hop.temp:
        Path(hop.temp).unlink(missing_ok=True)
