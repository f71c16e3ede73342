"""The parent's side of a worker process: starting it, sending and receiving messages, and ending it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from archec.workers.pipe import Inbox, Nonsense, encode, frame

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from archec.workers.child import main; main(int(sys.argv[2]))"
)
_ROOT = str(Path(__file__).resolve().parents[2])
"""The directory that contains the package archec."""


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
