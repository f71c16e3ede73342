"""The main process's end of a worker process: starting it, talking to it, seeing it leave."""

from __future__ import annotations

import pickle
import subprocess
from typing import Any

from archec.fetch import wire
from archec.fetch.orders import Orders
from archec.fetch.spares import Spare, new_spare

__all__ = ["Child"]

_SEND_TIMEOUT = 30.0
"""A worker that does not take a message for so long hangs, and is treated as dead."""


class Child:
    """A worker process that runs: a ``spare`` one, or one that is started now."""

    def __init__(self, index: int, orders: Orders, spare: Spare | None = None) -> None:
        self.index = index
        self.concurrency = orders.concurrency
        self.delivered = 0
        """Hops that came from this process."""
        self.stopped = False
        self._inbox = wire.Inbox()
        self.socket, self._process = spare or new_spare()
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
