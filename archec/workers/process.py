"""A worker process as its parent sees it: started, spoken to, ended."""

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
"""The directory in which the package archec is."""


class Process:
    """A process that runs one function with a socket to this process, and leaves when that is closed.

    It is the leader of its own session. So Ctrl-C reaches the parent only, and :meth:`end` ends with it
    whatever it started itself.
    """

    def __init__(self, function: str, arguments: Sequence[Any], *, patience: float, name: str = "") -> None:
        """Starts ``function`` (``module:name``) with the socket and ``arguments``, which are decoded as the
        function's annotations say.

        ``patience`` is how many seconds it may refuse to take a message, ``name`` what ``ps`` shows in place of the
        function. Raises OSError if the system lets no process be started.
        """
        order = encode((function, arguments))
        ours, theirs = socket.socketpair()
        with theirs:
            words = (name or function, str(theirs.fileno()), json.dumps(_module_path()))
            try:
                self._process = subprocess.Popen(
                    # -I and a path without the working directory: a json.py there is none of the worker's modules.
                    (sys.executable, "-I", "-c", _BOOT, *words),
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
        """Sends a message. One to a process that is dead or takes nothing is lost; :meth:`receive` then tells."""
        self.socket.settimeout(self._patience)
        try:
            self.socket.sendall(frame(body))
        except OSError:  # also TimeoutError; half a message may be in the pipe, so nothing can follow it
            self.disconnect()

    def receive(self, until: float) -> bytes | None:
        """The next message; None if the process has closed its end, or sends nonsense.

        What is there is given even after ``until`` (monotonic clock), when TimeoutError is raised otherwise.
        """
        while not self.messages and not self._ended:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            self._ended = not self.read()
        return self.messages.popleft() if self.messages else None

    def read(self) -> bool:
        """Reads what is there, waiting for something; False at the end. Complete messages go to ``messages``."""
        try:
            data = self.socket.recv(1 << 20)
            self.messages += self._inbox.feed(data)
        except TimeoutError:
            raise
        except (OSError, Nonsense):
            return False
        return bool(data)

    def disconnect(self) -> None:
        """Ends the conversation; from any thread, also while another one receives."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def end(self, grace: float = 0.0) -> int:
        """Ends the process, after ``grace`` seconds by force; its exit status.

        One that has died keeps the status it died with.
        """
        self.socket.close()
        if grace:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(grace)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def _module_path() -> list[str]:
    """The module path of a worker: ours without the working directory, but always with archec itself."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    path = [entry for entry in sys.path if os.path.isabs(entry) and os.path.normpath(entry) != here]
    return path if _ROOT in path else [*path, _ROOT]
