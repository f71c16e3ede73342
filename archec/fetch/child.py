"""The main process's end of a worker process: starting it, talking to it, seeing it leave.

Half of what a short run takes is programs getting ready: :class:`Spares` starts worker processes before
it is known what they are to do.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from types import TracebackType
from typing import Any, NamedTuple

from archec.fetch import wire
from archec.fetch.orders import Orders

__all__ = ["Child", "Spare", "Spares"]

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); sys.modules['httpx._main'] = None; "
    "from archec.fetch.worker import main; main(int(sys.argv[1]))"
)
"""httpx's own command line stays out of a worker: it would bring in rich, click and pygments for nothing."""
_SEND_TIMEOUT = 30.0
"""A worker that does not take a message for so long hangs, and is treated as dead."""


class Spare(NamedTuple):
    """A worker process that has no orders yet, and our end of its socket; it leaves when that is closed."""

    socket: socket.socket
    process: subprocess.Popen[bytes]


class Spares:
    """Worker processes without orders; a context manager that ends those that nobody took."""

    def __init__(self, count: int) -> None:
        self._spares = [_spare() for _ in range(count)]

    def take(self) -> Spare | None:
        """One of them, for good; None where there is none left."""
        return self._spares.pop() if self._spares else None

    def __enter__(self) -> Spares:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while spare := self.take():
            spare.socket.close()
            spare.process.kill()
            spare.process.wait()


class Child:
    """A worker process that runs: a ``spare`` one, or one that is started now."""

    def __init__(self, index: int, orders: Orders, spare: Spare | None = None) -> None:
        self.index = index
        self.concurrency = orders.concurrency
        self.delivered = 0
        """Hops that came from this process."""
        self.stopped = False
        self._inbox = wire.Inbox()
        self.socket, self._process = spare or _spare()
        self.socket.settimeout(_SEND_TIMEOUT)
        body = pickle.dumps(orders)
        self._send(len(body).to_bytes(4, "big") + body)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, *message: Any) -> None:
        """Sends a message; to a dead worker it is lost, which ``receive`` then tells."""
        self._send(wire.frame(message))

    def receive(self) -> list[tuple[Any, ...]] | None:
        """The messages that are there, None where the worker has gone. Call it when ``socket`` is readable."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            return None
        return list(self._inbox.feed(data)) if data else None

    def bury(self, grace: float = 0.0) -> None:
        """Sees to it that the process is gone, by force after ``grace`` seconds."""
        self.socket.close()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except TimeoutError:
            self._process.kill()
        except OSError:
            return


def _spare() -> Spare:
    ours, theirs = socket.socketpair()
    with theirs:
        return Spare(ours, _spawn(theirs))


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Starts the process with SIGINT blocked from its first moment, so that Ctrl-C finds it quiet."""
    number = theirs.fileno()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(number), json.dumps([os.path.abspath(path) for path in sys.path])],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
