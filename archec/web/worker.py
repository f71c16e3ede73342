"""A worker process: a fetcher behind a socket. Started by ``pool``; leaves when its parent does.

It is a plain child process, not one of ``multiprocessing``: that would import the parent's main module
once more (for the command line: all of it) and start a resource tracker beside it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, cast

from archec.errors import StorageFailed, StorageFull
from archec.web import wire
from archec.web.fetcher import Fetcher
from archec.web.orders import Orders
from archec.web.task import Hop

__all__ = ["main"]

_LENGTH = 4
"""Bytes that tell the length of the orders."""
_RARELY = (20_000, 20, 50)
"""Thresholds of the garbage collector: requests under way hold many objects, and few cycles."""


def main(descriptor: int) -> None:
    """Serves the socket ``descriptor`` until told to stop or until its other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(*_RARELY)
    make_loop = _loops()
    end = socket.socket(fileno=descriptor)
    orders: Orders = pickle.loads(_exactly(end, int.from_bytes(_exactly(end, _LENGTH), "big")))
    loop = make_loop()
    code = 1
    try:
        loop.run_until_complete(_serve(end, orders))
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(code)  # threads that hang in a name service are not waited for


def _loops() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes an event loop: uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def _exactly(end: socket.socket, size: int) -> bytes:
    """So many bytes; leaves where the other end is gone."""
    parts: list[bytes] = []
    while size:
        data = end.recv(min(size, 1 << 20))
        if not data:
            raise SystemExit(0)
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


async def _serve(end: socket.socket, orders: Orders) -> None:
    loop = asyncio.get_running_loop()
    end.setblocking(False)
    _, server = await loop.create_connection(lambda: _Server(loop, orders), sock=end)
    await server.ended


class _Server(asyncio.Protocol):
    """Reads tasks, writes hops: many in one message, none later than ``tuning.flush`` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, orders: Orders) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._orders = orders
        self._tuning = orders.tuning
        self._inbox = wire.Inbox()
        self._hops: list[tuple[Any, ...]] = []
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self._parent = os.getppid()
        self._stopping: asyncio.Task[None] | None = None
        self._fetcher = Fetcher(
            orders.config, orders.agent, orders.sink, self._emit,
            concurrency=orders.concurrency, tuning=orders.tuning, fatal=self._fatal, progress=self._progress,
        )
        self._loop.call_later(self._tuning.tick, self._beat)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._inbox.feed(data):
            kind = message[0]
            if kind == wire.TASKS:
                for item in message[1]:
                    self._fetcher.submit(*wire.task_from(item))
                self._fetcher.start()
            elif kind == wire.CONCURRENCY:
                self._fetcher.retune(message[1])
            elif kind == wire.STOP and self._stopping is None:
                self._stopping = self._loop.create_task(self._stop(message[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(False))
        elif self._stopping.done():
            self.ended.set_result(None)

    def _emit(self, serial: int, hop: Hop) -> None:
        self._hops.append(wire.hop_to(serial, hop))
        if len(self._hops) >= self._tuning.batch:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._tuning.flush, self._flush)

    def _progress(self, size: int) -> None:
        self._received += size

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (self._hops or self._received) and not self._transport.is_closing():
            self._transport.write(wire.frame((wire.HOPS, self._hops, self._received)))
        self._hops = []
        self._received = 0

    def _fatal(self, error: StorageFull | StorageFailed) -> None:
        self._flush()
        self._transport.write(wire.frame((wire.FATAL, isinstance(error, StorageFull), error.message)))

    async def _stop(self, finish: bool) -> None:
        dropped = self._fetcher.drop_queued()
        while finish and self._fetcher.in_flight:
            await asyncio.sleep(self._tuning.flush)
        await self._fetcher.aclose()
        self._flush()
        if self._transport.is_closing():
            self._loop.call_soon(self.ended.set_result, None)
        else:
            self._transport.write(wire.frame((wire.STOPPED, dropped)))
            self._transport.close()

    def _beat(self) -> None:
        """Reports bytes of large bodies; leaves when the parent is gone, even if its end is held open."""
        if self._received:
            self._flush()
        if os.getppid() != self._parent and self._stopping is None:
            self._transport.abort()
        self._loop.call_later(self._tuning.tick, self._beat)
