"""A worker process of the fetch pool: a fetcher behind a socket. It exits when the other end is closed."""

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
from typing import Any, cast

import msgspec
import uvloop

from archec.config import FetchConfig
from archec.errors import StorageFailed, StorageFull
from archec.web.fetcher import Fetcher
from archec.web.policy import Tuning
from archec.web.task import Fatal, Hop, Hops, HostsKnown, Stop, Tasks, ToWorker
from archec.workers.child import call, in_use, set_limit
from archec.workers.pipe import Inbox, decoder, encode, frame

_READ = 1 << 18
_STACK = 512 * 1024
"""Stack size in bytes of a thread, which counts as memory whether it is used or not."""
_GC_THRESHOLDS = (20_000, 20, 50)
"""Thresholds of the garbage collector: requests in progress hold many objects, but few cycles."""


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
        self._send(Fatal(isinstance(error, StorageFull), error.message))

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
