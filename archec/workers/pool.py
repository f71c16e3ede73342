"""Worker processes, and a pool of them, in which each processes one item after the other.

Each process of a pool has a thread that sends and receives, so the caller and the workers do not wait for each other.
If a worker dies or becomes silent, the item that it was processing is retried once by a new one. The items queued
behind it do not count as tried.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, RLock, Thread
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import msgspec

from archec import errors
from archec.closing import Closing
from archec.errors import ArchecError
from archec.workers import child
from archec.workers.child import Inbox, Limits, Nonsense, decoder, encode, frame

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from archec.workers.child import main; main(int(sys.argv[2]))"
)
_ROOT = str(Path(__file__).resolve().parents[2])
"""The directory that contains the package archec."""

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
"""The reasons why there is no answer for an item."""

_STARTS = 3
"""Consecutive failures to start a process after which a slot gives up."""
_START_TIMEOUT = 120.0
_UNLIMITED = Limits()

_log = logging.getLogger(__name__)


class Process:
    """A process that runs one function with a socket to this process, and exits when that is closed.

    It is the leader of its own session, so Ctrl-C only reaches the parent, and :meth:`end` also ends the processes that
    it has started.
    """

    def __init__(self, function: str, arguments: Sequence[Any], *, patience: float, name: str = "") -> None:
        """Starts ``function`` (``module:name``) with the socket and ``arguments``, which are decoded according to its
        annotations.

        ``patience`` is the timeout for sending a message, in seconds, ``name`` what ``ps`` shows instead of the
        function. Raises OSError if the system cannot start a process.
        """
        order = encode((function, arguments))
        ours, theirs = socket.socketpair()
        with theirs:
            words = (name or function, str(theirs.fileno()), json.dumps(_module_path()))
            try:
                self._process = subprocess.Popen(
                    # -I and a path without the working directory: workers must not import a json.py from there.
                    # -S: the path is complete.
                    (sys.executable, "-I", "-S", "-c", _BOOT, *words),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self.socket = ours
        self._patience = patience
        self._inbox = Inbox()
        self.messages: deque[bytes] = deque()
        self._ended = False
        self.send(order)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, body: bytes) -> None:
        """Sends a message. It is lost if the process is dead or does not read; :meth:`receive` then returns None."""
        self.socket.settimeout(self._patience)
        try:
            self.socket.sendall(frame(body))
        except OSError:  # also TimeoutError; part of the message may have been sent, so no other can follow
            self.disconnect()

    def receive(self, until: float) -> bytes | None:
        """Returns the next message; None if the process has closed its end or sent an invalid one.

        Raises TimeoutError at ``until`` (monotonic clock), but still returns a message that has already arrived.
        """
        while not self.messages and not self._ended:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            self._ended = not self.read()
        return self.messages.popleft() if self.messages else None

    def read(self) -> bool:
        """Waits for data and appends complete messages to ``messages``. Returns False at the end."""
        try:
            data = self.socket.recv(1 << 20)
            self.messages += self._inbox.feed(data)
        except TimeoutError:
            raise
        except (OSError, Nonsense):
            return False
        return bool(data)

    def disconnect(self) -> None:
        """Shuts down the socket. May be called from any thread, also while another one receives."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def end(self, grace: float = 0.0) -> int:
        """Ends the process and returns its exit status. It is killed if it has not exited by itself after ``grace``
        seconds."""
        self.socket.close()
        if grace:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(grace)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def _module_path() -> list[str]:
    """The module path for a worker: that of this process without the working directory, but always with archec."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    path = [entry for entry in sys.path if os.path.isabs(entry) and os.path.normpath(entry) != here]
    return path if _ROOT in path else [*path, _ROOT]


@dataclass(frozen=True, slots=True)
class Done(Generic[Item, Answer]):
    """The result for an item: its answer, a key of :data:`FAULTS`, or the exception that the work raised."""

    item: Item
    answer: Answer | None = None
    fault: str = ""
    error: Exception | None = None

    def result(self, hint: str = "") -> Answer:
        """Returns the answer. Raises the exception of the work, or an ArchecError with this hint for a fault."""
        if self.error is not None:
            raise self.error
        if self.fault:
            raise ArchecError(FAULTS[self.fault], hint=hint)
        return cast(Answer, self.answer)


class Pool(Closing, Generic[Item, Answer]):
    """Takes items by :meth:`submit` and yields their results by :meth:`results`. A context manager, for one thread.

    Processes are started as needed. Leaving the context kills them, even if they are working.
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
            function: ``module:name``. It is called in each worker with ``arguments``, and returns the function that is
                called with each item. Arguments, items and answers are values that msgspec can encode, and paths; they
                are decoded according to the functions' annotations.
            answer: The type of an answer.
            here: Does the same work in this process, for the first items with a total weight of ``inline``: for few
                items, starting processes takes longer than the work.
            ordered: Whether results are returned in the order of their items.
            prefetch: Items that are queued in a worker, so that it never waits for this process. 0 if items take long,
                since another worker cannot take the queued ones.
            silence: Seconds without a message after which a worker is killed.
        """
        self._order = (function, list(arguments), limits, silence / 4)
        self.decode = decoder(answer).decode
        self._workers = max(1, workers)
        self._here, self._inline = here, inline
        self._ordered = ordered
        self.prefetch, self.limits, self.silence = prefetch, limits, silence
        lock = RLock()
        self._to_do, self._to_give = Condition(lock), Condition(lock)
        self._queue: deque[_Ticket] = deque()
        self._done: dict[int, Done[Item, Answer]] = {}
        self._slots: list[_Slot] = []
        self._submitted = self._given = self._open = 0
        self._broken = False
        self.closed = False
        self.lost = 0
        """The number of processes that died or were killed while they worked."""

    # -- for the caller ---------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of items whose results were not returned yet."""
        return self._submitted - self._given

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        with self._to_do:
            return [process.pid for slot in self._slots if (process := slot.process) is not None]

    def submit(self, item: Item, weight: int = 1) -> None:
        """Queues an item. Returns immediately, unless the work is done in this process."""
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
        """Yields the results that are available. Waits as long as more than ``at_most`` items are pending."""
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
        """Waits until there is a result or no open item, for ``timeout`` seconds at most."""
        with self._to_give:
            self._to_give.wait_for(lambda: self._head() is not None or not self._open, timeout)

    def close(self) -> None:
        """Kills all processes. May be called twice."""
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

    def _head(self) -> int | None:
        """The number of the next result to return; None if there is none yet."""
        if self._ordered:
            return self._given if self._given in self._done else None
        return next(iter(self._done), None)

    # -- for the slots ----------------------------------------------------------------------------

    def new_process(self) -> Process:
        """Starts a process. Raises OSError."""
        name = self._order[0]
        return Process("archec.workers.child:work_off", self._order, patience=self.silence, name=name)

    def take(self, slot: _Slot) -> _Ticket | None:
        """Returns the next item for a slot. An idle slot waits for it; a busy one gets None if there is none, and
        leaves items to idle slots. None if the pool is closed.
        """
        with self._to_do:
            slot.idle = not slot.sent
            while slot.idle and not self._queue and not self.closed:
                self._to_do.wait()
            reserved = 0 if slot.idle else sum(other.idle for other in self._slots)
            if len(self._queue) <= reserved:
                return None
            slot.idle = False
            return self._queue.popleft()

    def finish(
        self, ticket: _Ticket, answer: Answer | None = None, *, fault: str = "", error: Exception | None = None
    ) -> None:
        """Stores the result of an item."""
        with self._to_give:
            self._open -= 1
            self._done[ticket.number] = Done(ticket.item, answer, fault, error)
            self._to_give.notify()

    def leave(self, slot: _Slot) -> None:
        """Removes a slot that cannot start processes. Its items go to the other slots; if it is the last one, all items
        fail."""
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
            self.finish(self._queue.popleft(), fault="no-worker")


@dataclass(slots=True, eq=False)
class _Ticket:
    """A submitted item. ``again``: a worker has been lost while processing it."""

    number: int
    item: Any
    message: bytes
    again: bool = False


class _Slot(Thread):
    """A thread and its worker process, which may be replaced. It takes tickets from the pool until that is closed."""

    def __init__(self, pool: Pool[Any, Any]) -> None:
        super().__init__(name="worker", daemon=True)
        self.process: Process | None = None
        self.sent: deque[_Ticket] = deque()
        """The tickets of the process, the current one first. They are sent once it is ready."""
        self.idle = True
        self._pool = pool
        self._failures = 0
        self._ready = False
        self._since = self._heard = 0.0
        """When the process began with the current ticket or was started, and when its last message was received."""

    def run(self) -> None:
        try:
            while self._failures < _STARTS and not self._pool.closed:
                self._send()
                if self.sent:
                    self._listen()
        except Exception:  # noqa: BLE001 - the caller must not wait forever for its tickets
            _log.exception("the thread of a worker process failed")
        finally:
            self._end()
            self._pool.leave(self)

    def stop(self) -> None:
        """Called from another thread when the pool is closed: interrupts sending and receiving."""
        if (process := self.process) is not None:
            process.disconnect()

    def _send(self) -> None:
        """Takes tickets and sends them to the process. Waits for a ticket if the process has none."""
        while len(self.sent) <= self._pool.prefetch and (ticket := self._pool.take(self)) is not None:
            if not self.sent:
                self._since = self._heard = time.monotonic()
            self.sent.append(ticket)
            if self.process is not None and self._ready:
                self.process.send(ticket.message)

    def _listen(self) -> None:
        """Receives one message, or detects that the process is lost. Starts a process if there is none."""
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
        if self._pool.closed:  # stop() may have been called before
            process.disconnect()
        return process

    def _end(self) -> int:
        """Ends the process. Returns its exit status; 0 if there is no process."""
        process, self.process = self.process, None
        return 0 if process is None else process.end()

    def _longest(self) -> float:
        """The maximum time for the start or the current item, in seconds."""
        return (self._pool.limits.seconds or float("inf")) if self._ready else _START_TIMEOUT

    def _deadline(self) -> float:
        """The time at which the process is given up (monotonic clock)."""
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
            except (IndexError, ValueError, TypeError):  # an invalid message
                self._lost("crashed")
            else:
                self.sent.popleft()

    def _answer(self, ticket: _Ticket, kind: bytes, body: bytes) -> None:
        """Passes the result of an item to the pool. Raises ValueError if the message is invalid."""
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
        """Ends the process. If it crashed or became silent, the current item is retried once: it may not be the cause.
        """
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
