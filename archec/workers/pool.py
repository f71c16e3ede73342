"""A pool of worker processes that work off items, each process one after the other.

A thread for each process sends and receives, so that the caller and the workers need not wait for each other. An
item whose worker dies or falls silent is tried once more with a fresh one; the items behind it are not blamed.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import msgspec

from archec import errors
from archec.errors import ArchecError
from archec.workers import child
from archec.workers.child import Limits
from archec.workers.pipe import decoder, encode
from archec.workers.process import Process

Item = TypeVar("Item")
Answer = TypeVar("Answer")

FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "timeout": "a worker process took too long",
        "memory": "a worker process ran out of memory",
        "crashed": "a worker process died, and so did another one at the same work",
        "internal": "a worker process stopped responding, and so did another one at the same work",
        "no-worker": "worker processes cannot be started",
    }
)
"""Why there is no answer to an item."""

_STARTS = 3
"""Failures to start in a row after which a slot is given up."""
_START_TIMEOUT = 120.0
_UNLIMITED = Limits()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done(Generic[Item, Answer]):
    """The result of an item: its answer, or a key of :data:`FAULTS`, or what the work raised."""

    item: Item
    answer: Answer | None = None
    fault: str = ""
    error: Exception | None = None

    def result(self, hint: str = "") -> Answer:
        """The answer. Raises what the work raised; ArchecError with this hint where there is a fault."""
        if self.error is not None:
            raise self.error
        if self.fault:
            raise ArchecError(FAULTS[self.fault], hint=hint)
        return cast(Answer, self.answer)


class Pool(Generic[Item, Answer]):
    """Items in by :meth:`submit`, the result of them out by :meth:`results`; a context manager, for one thread.

    Processes are started as they are needed. Leaving the pool ends them at once, whatever they are at.
    """

    def __init__(
        self,
        function: str,
        arguments: Sequence[Any],
        answer: type[Answer],
        *,
        workers: int,
        here: Callable[[Item], Answer] | None = None,
        inline: int = 0,
        ordered: bool = False,
        prefetch: int = 1,
        limits: Limits = _UNLIMITED,
        silence: float = 60.0,
    ) -> None:
        """
        Args:
            function: ``module:name``. Called in each worker with ``arguments``, it gives the function that is called
                with each item. Arguments, items and answers are what msgspec can encode, and paths; they are decoded
                as the functions' annotations say.
            answer: The type of an answer.
            here: Does the same work in this process, for items of together ``inline`` weight: while there is little
                to do, starting processes takes longer.
            ordered: Whether results come in the order of their items.
            prefetch: Items that wait in a worker behind the one in hand, so that it never waits for this process; 0
                where items take long, since those that wait there cannot go to another worker.
            silence: Seconds without a sign of life after which a worker is killed.
        """
        self._order = (function, list(arguments), limits, silence / 4)
        self.decode = decoder(answer).decode
        self._workers = max(1, workers)
        self._here, self._inline = here, inline
        self._ordered = ordered
        self.prefetch, self.limits, self.silence = prefetch, limits, silence
        lock = Lock()
        self._to_do, self._to_give = Condition(lock), Condition(lock)
        self._queue: deque[_Ticket] = deque()
        self._done: dict[int, Done[Item, Answer]] = {}
        self._slots: list[_Slot] = []
        self._submitted = self._given = self._open = 0
        self._broken = False
        self.closed = False
        self.lost = 0
        """Processes that died or were killed while they worked."""

    # -- for the caller ---------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Items whose results have not been given out."""
        return self._submitted - self._given

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        with self._to_do:
            return [process.pid for slot in self._slots if (process := slot.process) is not None]

    def submit(self, item: Item, weight: int = 1) -> None:
        """Takes an item; returns at once, but where the work is done here."""
        if self.closed:
            raise ValueError("the pool is closed")
        number = self._submitted
        if self._here is not None and weight <= self._inline and not self._slots:
            self._inline -= weight
            self._done[number] = Done(item, self._here(item))
            self._submitted += 1
            return
        ticket = _Ticket(number, item, encode(item))
        self._submitted += 1
        with self._to_do:
            self._open += 1
            self._queue.append(ticket)
            if self._broken:
                self._give_up()
            elif len(self._slots) < min(self._workers, self._open):
                self._slots.append(_Slot(self))
                self._slots[-1].start()
            self._to_do.notify()

    def results(self, at_most: int | None = None) -> Iterator[Done[Item, Answer]]:
        """What is done by now; waits while more than ``at_most`` items are pending."""
        while True:
            with self._to_give:
                while self._head() is None and at_most is not None and self.pending > at_most and not self.closed:
                    self._to_give.wait()
                number = self._head()
                if number is None:
                    return
                done = self._done.pop(number)
                self._given += 1
            yield done

    def wait(self, timeout: float) -> None:
        """Waits until there is a result or nothing to wait for, for ``timeout`` seconds at most."""
        with self._to_give:
            self._to_give.wait_for(lambda: self._head() is not None or not self._open, timeout)

    def close(self) -> None:
        """Ends all processes at once. May be called twice."""
        with self._to_do:
            self.closed = True
            self._queue.clear()
            self._to_do.notify_all()
            self._to_give.notify_all()
            slots = list(self._slots)
        for slot in slots:
            slot.stop()
        for slot in slots:
            slot.join()

    def __enter__(self) -> Pool[Item, Answer]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _head(self) -> int | None:
        """The number of the next result to give out, None if it is not there."""
        if self._ordered:
            return self._given if self._given in self._done else None
        return next(iter(self._done), None)

    # -- for the slots ----------------------------------------------------------------------------

    def new_process(self) -> Process:
        """A new process; raises OSError."""
        name = self._order[0]
        return Process("archec.workers.child:work_off", self._order, patience=self.silence, name=name)

    def take(self, slot: _Slot) -> _Ticket | None:
        """The next item for a slot, which an idle one waits for; None if there is none, or the pool is closed.

        What idle slots are about to take is not for one that has something in hand.
        """
        with self._to_do:
            slot.idle = not slot.sent
            while slot.idle and not self._queue and not self.closed:
                self._to_do.wait()
            spoken_for = 0 if slot.idle else sum(other.idle for other in self._slots)
            if len(self._queue) <= spoken_for:
                return None
            slot.idle = False
            return self._queue.popleft()

    def finish(
        self, ticket: _Ticket, answer: Answer | None = None, *, fault: str = "", error: Exception | None = None
    ) -> None:
        """Takes the result of an item."""
        with self._to_give:
            self._finish(ticket, Done(ticket.item, answer, fault, error))

    def leave(self, slot: _Slot) -> None:
        """A slot that gets no process leaves its items to the others, and to no one where it is the last one."""
        with self._to_do:
            self._slots.remove(slot)
            if self.closed:
                return
            self._queue.extendleft(reversed(slot.sent))
            self._workers = len(self._slots)
            self._to_do.notify_all()
            if not self._slots:
                self._give_up()

    def _give_up(self) -> None:
        self._broken = True
        while self._queue:
            ticket = self._queue.popleft()
            self._finish(ticket, Done(ticket.item, fault="no-worker"))

    def _finish(self, ticket: _Ticket, done: Done[Item, Answer]) -> None:
        self._open -= 1
        self._done[ticket.number] = done
        self._to_give.notify()


@dataclass(slots=True, eq=False)
class _Ticket:
    """An item on its way; ``again`` where a worker was lost over it already."""

    number: int
    item: Any
    message: bytes
    again: bool = False


class _Slot(Thread):
    """A thread, and the worker process that it talks to. It takes tickets from the pool until that is closed.

    Processes may follow each other in a slot.
    """

    def __init__(self, pool: Pool[Any, Any]) -> None:
        super().__init__(name="worker", daemon=True)
        self.process: Process | None = None
        self.sent: deque[_Ticket] = deque()
        """What the process has, the one in hand first; what it will be given where it is not ready."""
        self.idle = True
        self._pool = pool
        self._failures = 0
        self._ready = False
        self._since = self._heard = 0.0
        """When the process took up what it has in hand, or was started, and when it was last heard."""

    def run(self) -> None:
        try:
            while self._failures < _STARTS and not self._pool.closed:
                self._send()
                if self.sent:
                    self._listen()
        except Exception:  # noqa: BLE001 - a local error, which must not leave others waiting for its tickets
            _log.exception("the thread of a worker process failed")
        finally:
            self._end()
            self._pool.leave(self)

    def stop(self) -> None:
        """Called from another thread when the pool is closed: ends a conversation that is going on."""
        if (process := self.process) is not None:
            process.disconnect()

    def _send(self) -> None:
        """Hands on what there is to do, waiting for it where there is nothing in hand."""
        while len(self.sent) <= self._pool.prefetch and (ticket := self._pool.take(self)) is not None:
            if not self.sent:
                self._since = self._heard = time.monotonic()
            self.sent.append(ticket)
            if self.process is not None and self._ready:
                self.process.send(ticket.message)

    def _listen(self) -> None:
        """Takes in one message, or sees that there will be none; starts a process if there is none."""
        try:
            process = self.process or self._start()
            message = process.receive(self._deadline())
        except TimeoutError:
            self._lost("timeout" if time.monotonic() >= self._since + self._longest() else "internal")
        except OSError as error:
            self._not_started(str(error))
        else:
            self._heard = time.monotonic()
            if message is None:
                self._lost("timeout" if self._end() == -signal.SIGXCPU else "crashed")
            elif message[:1] != child.BEAT:
                self._take(process, message[:1], message[1:])

    def _start(self) -> Process:
        self._ready = False
        self._since = time.monotonic()
        self.process = process = self._pool.new_process()
        if self._pool.closed:  # perhaps too late for stop()
            process.disconnect()
        return process

    def _end(self) -> int:
        """Ends the process; its exit status, 0 if there is none."""
        process, self.process = self.process, None
        return 0 if process is None else process.end()

    def _longest(self) -> float:
        """How long the start or the item in hand may take."""
        return (self._pool.limits.seconds or float("inf")) if self._ready else _START_TIMEOUT

    def _deadline(self) -> float:
        """When to give up the process (monotonic clock)."""
        silent = self._heard + self._pool.silence if self._ready else float("inf")
        return min(self._since + self._longest(), silent)

    def _take(self, process: Process, kind: bytes, body: bytes) -> None:
        self._since = self._heard
        if kind == child.READY:
            self._ready, self._failures = True, 0
            for ticket in self.sent:
                process.send(ticket.message)
        elif kind == child.BROKEN:
            self._not_started(body.decode("utf-8", "replace").strip())
        elif kind == child.RETIRED:
            self._end()
        else:
            try:
                self._answer(self.sent[0], kind, body)
            except (IndexError, ValueError, TypeError):  # nothing that a worker of ours says
                self._lost("crashed")
            else:
                self.sent.popleft()

    def _answer(self, ticket: _Ticket, kind: bytes, body: bytes) -> None:
        """Tells the pool the result of an item. Raises ValueError if the message makes no sense."""
        if kind == child.ANSWER:
            self._pool.finish(ticket, self._pool.decode(body))
        elif kind == child.ERROR:
            name, text, hint = msgspec.msgpack.decode(body, type=tuple[str, str, str])
            error = getattr(errors, name, ArchecError)(text, hint=hint)
            if not isinstance(error, ArchecError):
                raise ValueError(name)
            self._pool.finish(ticket, error=error)
        elif kind == child.FAULT:
            self._pool.finish(ticket, error=RuntimeError(f"in a worker process: {body.decode('utf-8', 'replace')}"))
        elif kind == child.MEMORY:
            self._pool.finish(ticket, fault="memory")
        else:
            raise ValueError(kind)

    def _lost(self, fault: str) -> None:
        """Ends the process. What it had in hand is tried again where that makes sense: it may not be to blame."""
        self._end()
        if not self._ready:
            self._not_started("it takes too long" if fault == "timeout" else "it ends at once")
        elif self.sent:
            self._pool.lost += 1
            ticket = self.sent[0]
            if fault in ("crashed", "internal") and not ticket.again:
                ticket.again = True
            else:
                self.sent.popleft()
                self._pool.finish(ticket, fault=fault)

    def _not_started(self, reason: str) -> None:
        self._end()
        self._failures += 1
        if not self._pool.closed:
            _log.warning("a worker process cannot be started: %s", reason)
