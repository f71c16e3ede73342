"""The fetcher of one process: takes tasks, applies the politeness rules, retries, and emits hops. The process exits
when the other end of its socket is closed."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec
import uvloop
from msgspec.structs import replace

from archec.config import FetchConfig
from archec.errors import StorageFailed, StorageFull
from archec.ids import host_of
from archec.web.client import Attempt, Client, Flight
from archec.web.h1 import AHEAD
from archec.web.outcome import (
    BUSY,
    Fatal,
    FetchTask,
    Hop,
    Hops,
    HostsKnown,
    Outcome,
    Sink,
    Stop,
    Tasks,
    ToWorker,
    failure,
)
from archec.web.policy import Tuning
from archec.web.politeness import GivenUp, HostQueues, QueuedTask, Robots, RobotsCache, RobotsUnknown
from archec.web.transport import Transports, transports
from archec.workers.child import Inbox, call, decoder, encode, frame, in_use, set_limit

_READ = 1 << 18
_STACK = 512 * 1024
"""Stack size in bytes of a thread, which counts as memory whether it is used or not."""
_GC_THRESHOLDS = (20_000, 20, 50)
"""Thresholds of the garbage collector: requests in progress hold many objects, but few cycles."""


@dataclass(slots=True, eq=False)
class _Unchecked:
    """An attempt whose connection has not been checked for surplus bytes. ``attempt`` is None afterwards.
    ``emitted``: whether its hop was emitted."""

    queued: QueuedTask
    attempt: Attempt | None
    alone: bool
    emitted: bool = False


class Fetcher:
    """Fetches one hop for each task. Use it inside a running event loop.

    ``emit`` is called exactly once for every submitted task, unless ``aclose`` is called first; ``doubtful``
    hops are additional. After servers have sent ``max_bytes`` (heads and bodies), no request is started, incomplete
    bodies are dropped without a hop, and the fetcher is ``spent``. ``fatal`` is called if the sink cannot write; no
    further request is started then.
    """

    def __init__(
        self,
        config: FetchConfig,
        agent: str,
        sink: Sink,
        emit: Callable[[Hop], None],
        *,
        tuning: Tuning,
        fatal: Callable[[StorageFull | StorageFailed], None],
        progress: Callable[[int, int], None],
        carriers: Transports | None = None,
        max_bytes: int = 0,
    ) -> None:
        self._config = config
        self._tuning = tuning
        self._sink = sink
        self._emit = emit
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._carriers = carriers or transports(
            config, tuning, config.concurrency, received=self._received if max_bytes else None
        )
        self._client = Client(config, tuning, agent, sink, self._carriers, progress)
        self._bytes_left = max_bytes or sys.maxsize
        self._robots = RobotsCache(self._client, agent, tuning, config.delay)
        self._hosts = HostQueues(config, tuning.penalty)
        self._flights: dict[asyncio.Task[None], Flight] = {}
        self._requests = 0
        """Number of flights that are not released."""
        self._held: set[_Unchecked] = set()
        self._open = True
        self._timer: asyncio.TimerHandle | None = None
        self._ticker = self._loop.call_later(self._tuning.tick, self._tick)

    @property
    def in_flight(self) -> int:
        """Number of tasks in progress: requests, bodies being written, and responses whose connection has not been
        checked yet."""
        return len(self._flights) + len(self._held)

    @property
    def spent(self) -> bool:
        """Whether ``max_bytes`` have been received."""
        return self._bytes_left <= 0

    def know(self, key: str, faults: int, wait: float) -> None:
        """Sets the known state of a host: consecutive failures, and the seconds during which no request may be sent to
        it."""
        host = self._hosts.host(key)
        host.faults = faults
        if wait > 0:
            self._hosts.hold_off(host, wait, Outcome.SERVER_ERROR, self._loop.time())

    def submit(self, task: FetchTask) -> None:
        """Queues a task. Call ``start`` after a batch of them."""
        host = self._hosts.host(host_of(task.url))
        if host.given_up is not None:
            self._emit(failure(task.url, host.given_up.outcome, host.given_up.message, deferred=True))
            return
        self._hosts.add(QueuedTask(task, host))

    def start(self) -> None:
        """Starts as many requests as the limits allow."""
        now = self._loop.time()
        most = min(self._config.concurrency, max(1, self._bytes_left // AHEAD))
        while self._open and self._requests < most:
            queued = self._hosts.take(now)
            if queued is None:
                self._arm(now)
                return
            self._requests += 1
            flight = Flight(now, partial(self._release, queued))
            runner = self._loop.create_task(self._run(queued, flight))
            self._flights[runner] = flight
            runner.add_done_callback(partial(self._finished, queued))

    def drop_queued(self) -> None:
        """Drops all tasks that are not in flight."""
        self._open = False
        self._hosts.clear()

    async def aclose(self) -> None:
        """Cancels everything and discards the temporary files of unfinished bodies."""
        self._open = False
        self._ticker.cancel()
        if self._timer is not None:
            self._timer.cancel()
        runners = list(self._flights)
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)
        await self._robots.aclose()
        await self._carriers.http.aclose()
        await self._carriers.ftp.aclose()

    def _received(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left <= 0 and self._open:
            self.drop_queued()
            self._loop.call_soon(self._break_off)

    def _break_off(self) -> None:
        """Cancels the requests whose body is incomplete."""
        for runner, flight in self._flights.items():
            if flight.on_release is not None:
                runner.cancel()

    # -- scheduling -------------------------------------------------------------------------------

    def _release(self, queued: QueuedTask) -> None:
        self._requests -= 1
        self._hosts.done(queued.host)
        self.start()

    def _arm(self, now: float) -> None:
        """Sets the timer for the next host whose delay ends."""
        when = self._hosts.next_time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(max(when, now + 0.001), self.start)

    def _tick(self) -> None:
        now = self._loop.time()
        for runner, flight in self._flights.items():
            if flight.on_release is not None and flight.overdue(now, self._config, self._tuning):
                runner.cancel()
        self._ticker = self._loop.call_later(self._tuning.tick, self._tick)

    # -- one task ---------------------------------------------------------------------------------

    async def _run(self, queued: QueuedTask, flight: Flight) -> None:
        try:
            attempt = await self._attempt(queued, flight)
            if attempt is None:
                return
            answer, outcome = flight.answer, attempt.hop.outcome
            if answer is None or (answer.quiet is not False and outcome is not None and outcome.is_transient):
                self._judge(queued, attempt)  # a failure of the host: no need to check the connection first
            else:
                held = _Unchecked(queued, attempt, answer.alone)
                self._held.add(held)
                answer.watch(partial(self._seen, held))
        except (StorageFull, StorageFailed) as error:
            self._open = False
            self._fatal(error)

    def _finished(self, queued: QueuedTask, runner: asyncio.Task[None]) -> None:
        """Emits a hop if the runner failed or timed out, and releases its place."""
        flight, url = self._flights.pop(runner), queued.task.url
        if runner.cancelled():
            if self._open and flight.verdict:
                self._emit(failure(url, Outcome.TIMEOUT, flight.verdict))
        elif (error := runner.exception()) is not None:
            self._loop.call_exception_handler({"message": f"fetching {url} broke", "exception": error})
            message = f"a fault of archec: {type(error).__name__}"
            self._emit(failure(url, Outcome.INTERNAL, message))
        flight.release()

    async def _attempt(self, queued: QueuedTask, flight: Flight) -> Attempt | None:
        """The result of an attempt. None if robots.txt ended the task, or if it was queued again."""
        url = queued.task.url
        host = queued.host
        if not host.located:
            address = await self._carriers.locate("/".join(url.split("/", 3)[:3]))
            if not host.located:
                self._hosts.locate(host, address)
        if self._hosts.crowded(host):
            self._hosts.add(queued)
            return None
        if self._config.robots == "obey" and not url.startswith("ftp:"):
            origin = url[: url.index("/", 8)]
            robots = self._robots.known(origin)
            fresh = robots is None
            if robots is None:
                flight.started = float("inf")  # robots.txt has its own timeout
                robots = await self._robots.learn(origin)
                flight.started = self._loop.time()
            refusal = self._refusal(queued, robots)
            if refusal is not None:
                self._emit(refusal)
                return None
            delay = self._hosts.delay(queued.host)
            if fresh and delay:  # robots.txt was a request, too, so wait before the next one
                self._hosts.pause(queued.host, flight.started + delay)
                self._hosts.add(queued)
                return None
        return await self._client.attempt(queued.task, flight)

    def _refusal(self, queued: QueuedTask, robots: Robots) -> Hop | None:
        """The hop of a task that robots.txt disallows, or None if it may be fetched."""
        url = queued.task.url
        if isinstance(robots, RobotsUnknown):
            if robots.wait:
                self._hosts.ease(queued.host)
            hop = failure(url, robots.outcome, robots.message, deferred=not robots.lasting)
            return replace(hop, wait=robots.wait)
        if not robots.allows(url):
            return failure(url, Outcome.ROBOTS, "robots.txt disallows it")
        if robots.delay > self._config.max_delay:
            reason = GivenUp(Outcome.ROBOTS, f"robots.txt asks for {robots.delay:g} s between requests")
            self._defer(self._hosts.give_up(queued.host, reason), reason)
            return failure(url, reason.outcome, reason.message, deferred=True)
        queued.host.crawl_delay = max(queued.host.crawl_delay, robots.delay)
        return None

    def _seen(self, held: _Unchecked, quiet: bool) -> None:
        """Handles the result of checking a connection after a response: quiet, or with surplus bytes, in which case the
        response may belong to another request.

        Such a task is repeated on a connection of its own. A hop that was already emitted is taken back.
        """
        queued, attempt, held.attempt = held.queued, held.attempt, None
        if attempt is None:
            if held.emitted and not quiet:
                self._emit(Hop(queued.task.url, "doubtful"))
            return
        self._held.discard(held)
        if not quiet and attempt.hop.kind != "failed":
            if attempt.hop.temp:
                self._sink.discard(attempt.hop.temp)
            hop = failure(queued.task.url, Outcome.TRUNCATED, "the server sent more than the length it stated")
            attempt = Attempt(replace(hop, status=attempt.hop.status), lasting=False)
        if quiet or held.alone:
            held.emitted = self._judge(queued, attempt)
        elif self._open:
            self._hosts.add(queued)
        if not held.emitted:
            self.start()

    def _judge(self, queued: QueuedTask, attempt: Attempt) -> bool:
        """Completes a task (True) or queues it again, and updates the state of its host."""
        hop, host = attempt.hop, queued.host
        outcome = hop.outcome
        if hop.kind != "failed" or outcome is None or not outcome.is_transient:
            self._hosts.succeeded(host)
            self._emit(hop)
            return True
        now = self._loop.time()
        if hop.status in BUSY:
            self._hosts.ease(host)
        dropped: list[QueuedTask] = []
        if hop.wait:
            dropped = self._hosts.hold_off(host, hop.wait, outcome, now)
        elif hop.status in BUSY:
            self._hosts.slow_down(host, now)
        dropped += self._hosts.failed(host, GivenUp(outcome, hop.message))
        queued.tries += 1
        if host.given_up is not None:
            self._defer(dropped, host.given_up)
            self._emit(replace(hop, deferred=True))
        elif attempt.lasting or queued.tries > self._config.retries:
            self._emit(hop)
        else:
            backoff = self._tuning.backoff * 2 ** (queued.tries - 1)
            self._hosts.add_later(queued, now + min(backoff, self._config.max_delay))
            return False
        return True

    def _defer(self, dropped: list[QueuedTask], reason: GivenUp) -> None:
        for queued in dropped:
            self._emit(failure(queued.task.url, reason.outcome, reason.message, deferred=True))


# -- the process ----------------------------------------------------------------------------------


def serve(
    pipe: socket.socket,
    config: FetchConfig,
    agent: str,
    sink: tuple[str, msgspec.Raw],
    tuning: Tuning,
    beat: float,
    max_bytes: int,
) -> None:
    """Fetches until told to stop, or until the other end of ``pipe`` is closed. Then the process exits.

    ``sink`` is the function that returns the sink, and its arguments. A message is sent at least every ``beat``
    seconds. ``max_bytes``: see ``Fetcher``.
    """
    threading.stack_size(_STACK)
    _limit(config.max_memory)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    code = 1
    try:
        make = partial(Fetcher, config, agent, call(*sink), tuning=tuning, max_bytes=max_bytes)
        uvloop.new_event_loop().run_until_complete(_serve(pipe, make, tuning, beat))
        code = 0
    except MemoryError:
        _exit()
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(code)  # does not wait for threads that hang in name resolution


def _limit(memory: int) -> None:
    """Limits memory to ``memory`` bytes more than is in use, and raises the limit of open files to the maximum."""
    set_limit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    if used := in_use(5):
        set_limit(resource.RLIMIT_DATA, used + memory)


async def _serve(pipe: socket.socket, make: Callable[..., Fetcher], tuning: Tuning, beat: float) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_exit_without_memory)
    reader, writer = await asyncio.open_connection(sock=pipe)
    outbox = _Outbox(loop, writer, tuning)
    fetcher = outbox.fetcher = make(emit=outbox.emit, fatal=outbox.fatal, progress=outbox.progress)
    outbox.tick(beat)
    stop = await _receive(reader, fetcher)
    fetcher.drop_queued()
    while stop.finish and fetcher.in_flight:
        await asyncio.sleep(tuning.flush)
    await fetcher.aclose()
    outbox.flush()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _receive(reader: asyncio.StreamReader, fetcher: Fetcher) -> Stop:
    """Processes messages until told to stop, or until the other end is closed."""
    inbox, decode = Inbox(), decoder(ToWorker).decode
    while data := await _read(reader):
        for message in map(decode, inbox.feed(data)):
            if isinstance(message, Tasks):
                for task in message.items:
                    fetcher.submit(task)
                fetcher.start()
            elif isinstance(message, HostsKnown):
                for host, faults, wait in message.items:
                    fetcher.know(host, faults, wait)
            else:
                return cast(Stop, message)
    return Stop(False)


async def _read(reader: asyncio.StreamReader) -> bytes:
    with suppress(OSError):
        return await reader.read(_READ)
    return b""


def _exit_without_memory(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), MemoryError):
        _exit()
    loop.default_exception_handler(context)


def _exit() -> None:
    """Exits a process that is out of memory, before it reports false failures of hosts."""
    os.write(2, b"archec: a fetching process has reached fetch.max_memory, and is replaced\n")
    os._exit(1)


class _Outbox:
    """Sends hops: several per message, and none later than ``tuning.flush`` seconds."""

    fetcher: Fetcher

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter, tuning: Tuning) -> None:
        self._loop, self._writer, self._tuning = loop, writer, tuning
        self._sent = 0.0
        self._hops: list[Hop] = []
        self._received = self._requests = 0
        self._timer: asyncio.TimerHandle | None = None

    def emit(self, hop: Hop) -> None:
        self._hops.append(hop)
        if hop.wait or len(self._hops) >= self._tuning.batch:  # a successor of this process must know the wait
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._tuning.flush, self.flush)

    def progress(self, size: int, requests: int) -> None:
        self._received += size
        self._requests += requests

    def fatal(self, error: StorageFull | StorageFailed) -> None:
        self.flush()
        self._send(Fatal(isinstance(error, StorageFull), error.message, error.hint))

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send(Hops(self._hops, self._received, self._requests, self.fetcher.spent))
        self._hops = []
        self._received = self._requests = 0

    def tick(self, beat: float) -> None:
        """Reports the bytes of large bodies, and sends a heartbeat every ``beat`` seconds."""
        if self._received or self._requests or self.fetcher.spent or self._loop.time() - self._sent >= beat:
            self.flush()
        self._loop.call_later(self._tuning.tick, self.tick, beat)

    def _send(self, message: Hops | Fatal) -> None:
        self._sent = self._loop.time()
        if not self._writer.is_closing():
            self._writer.write(frame(encode(message)))
