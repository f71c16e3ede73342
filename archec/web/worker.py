"""A worker process of the fetch pool: a fetcher behind a socket. It leaves when the other end is closed."""

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
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from archec.config import FetchConfig
from archec.errors import StorageFailed, StorageFull
from archec.web.fetcher import Fetcher
from archec.web.policy import Tuning
from archec.web.task import Fatal, Hop, Hops, HostsKnown, Tasks, ToWorker
from archec.workers.child import call, set_limit
from archec.workers.pipe import Inbox, decoder, encode, frame

_STACK = 512 * 1024
"""Bytes of the stack of a thread; they count as memory whether they are used or not."""
_RARELY = (20_000, 20, 50)
"""Thresholds of the garbage collector: requests in progress hold many objects, and few cycles."""


def serve(
    pipe: socket.socket,
    config: FetchConfig,
    agent: str,
    sink: tuple[str, msgspec.Raw],
    tuning: Tuning,
    concurrency: int,
    beat: float,
    max_bytes: int,
) -> None:
    """Fetches until told to stop, or until the other end of ``pipe`` is closed; then the process ends.

    ``sink`` is the function that gives the sink, and its arguments. ``concurrency`` is how many requests may be
    in flight. Something is sent every ``beat`` seconds at the latest. ``max_bytes``: see ``Fetcher``.
    """
    threading.stack_size(_STACK)
    _limit(config.max_memory)
    gc.freeze()
    gc.set_threshold(*_RARELY)
    code = 1
    try:
        make = partial(Fetcher, config, agent, call(*sink), concurrency=concurrency, tuning=tuning, max_bytes=max_bytes)
        _loop().run_until_complete(_serve(pipe, make, tuning, beat))
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(code)  # threads that hang in a name service are not waited for


def _limit(memory: int) -> None:
    """Limits memory to so much more than is in use, and opens as many files as the system lets it."""
    set_limit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with suppress(OSError, ValueError, IndexError):
        used = int(Path("/proc/self/statm").read_bytes().split()[5]) * resource.getpagesize()
        set_limit(resource.RLIMIT_DATA, used + memory)


def _loop() -> asyncio.AbstractEventLoop:
    """An event loop: uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(pipe: socket.socket, make: Callable[..., Fetcher], tuning: Tuning, beat: float) -> None:
    pipe.setblocking(False)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_leave_without_memory)
    _, server = await loop.create_connection(lambda: _OrderServer(loop, make, tuning, beat), sock=pipe)
    await server.ended


def _leave_without_memory(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ends a process that is out of memory: nothing that it said of any host from now on would be true."""
    if isinstance(context.get("exception"), MemoryError):
        os.write(2, b"archec: a fetching process has reached fetch.max_memory, and is replaced\n")
        os._exit(1)
    loop.default_exception_handler(context)


class _OrderServer(asyncio.Protocol):
    """Reads tasks, writes hops: many in one message, none later than ``tuning.flush`` seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[..., Fetcher], tuning: Tuning, beat: float
    ) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._tuning = tuning
        self._beat = beat
        self._sent = 0.0
        self._inbox = Inbox()
        self._decode = decoder(ToWorker).decode
        self._hops: list[tuple[int, Hop]] = []
        self._received = self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._fetcher = make(emit=self._emit, fatal=self._fatal, progress=self._progress)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._tick()

    def data_received(self, data: bytes) -> None:
        for message in map(self._decode, self._inbox.feed(data)):
            if isinstance(message, Tasks):
                for serial, task in message.items:
                    self._fetcher.submit(serial, task)
                self._fetcher.start()
            elif isinstance(message, HostsKnown):
                for host, faults, wait in message.items:
                    self._fetcher.know(host, faults, wait)
            elif self._stopping is None:
                self._stopping = self._loop.create_task(self._stop(message.finish))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(False))
        elif self._stopping.done():
            self._end()

    def _send(self, message: Hops | Fatal) -> None:
        self._sent = self._loop.time()
        self._transport.write(frame(encode(message)))

    def _emit(self, serial: int, hop: Hop) -> None:
        self._hops.append((serial, hop))
        if len(self._hops) >= self._tuning.batch:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._tuning.flush, self._flush)

    def _progress(self, size: int, requests: int) -> None:
        self._received += size
        self._requests += requests

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._transport.is_closing():
            self._send(Hops(self._hops, self._received, self._requests, self._fetcher.spent))
        self._hops = []
        self._received = self._requests = 0

    def _fatal(self, error: StorageFull | StorageFailed) -> None:
        self._flush()
        self._send(Fatal(isinstance(error, StorageFull), error.message))

    async def _stop(self, finish: bool) -> None:
        self._fetcher.drop_queued()
        while finish and self._fetcher.in_flight:
            await asyncio.sleep(self._tuning.flush)
        await self._fetcher.aclose()
        self._flush()
        if self._transport.is_closing():
            self._loop.call_soon(self._end)
        else:
            self._transport.close()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _tick(self) -> None:
        """Reports the bytes of large bodies, and that this process is alive."""
        if self._received or self._requests or self._fetcher.spent or self._loop.time() - self._sent >= self._beat:
            self._flush()
        self._loop.call_later(self._tuning.tick, self._tick)
