"""The main process's end of a worker process: starting it, talking to it, seeing it leave."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from typing import Any

from archec.errors import ArchecError
from archec.web import wire
from archec.web.orders import Orders

__all__ = ["Child"]

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); sys.modules['httpx._main'] = None; "
    "from archec.web.worker import main; main(int(sys.argv[1]))"
)
"""httpx's own command line stays out of a worker: it would import rich, click and pygments for nothing."""
_SEND_TIMEOUT = 30.0
"""A worker that does not take a message for so long hangs, and is treated as dead."""


class Child:
    """A worker process that runs.

    Raises ArchecError where the system cannot start another process.
    """

    def __init__(self, index: int, orders: Orders) -> None:
        self.index = index
        self.concurrency = orders.concurrency
        self.delivered = 0
        """Hops that came from this process."""
        self.stopped = False
        self._inbox = wire.Inbox()
        self.socket, self._process = _started()
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

    def reap(self, grace: float = 0.0) -> None:
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


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A new process, and our end of the socket that it serves."""
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return ours, _spawn(theirs)
            except BaseException:
                ours.close()
                raise
    except OSError as error:
        raise ArchecError(
            f"a process for fetching cannot be started: {error.strerror}", hint="see 'ulimit -u' and 'ulimit -n'"
        ) from error


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Starts the process with SIGINT blocked from its first moment, so that Ctrl-C reaches the parent only.

    ``-I`` keeps the working directory out of its module search path: a ``json.py`` in there would be run.
    """
    number = theirs.fileno()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, str(number), json.dumps([os.path.abspath(path) for path in sys.path])],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
