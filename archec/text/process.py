"""One worker process as the pool sees it: its pipes, its files in order, its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from typing import NamedTuple

from archec.text.orders import COMMAND, READY, RETIRED, Orders
from archec.text.result import REASONS, TextDone
from archec.text.sniff import bare_type

__all__ = ["Task", "WorkerProcess"]

_START_TIMEOUT = 120.0
_ROOM = 64
_HEAVY = 24
"""What a PDF, PostScript or packed file counts against ``_ROOM``; a text or a page counts 1."""

_ANSWER = re.compile(rb"(-?[0-9]{1,18}) ([0-9a-f]{32}|-) ([a-z-]{0,20})")
_LINE = 1 << 12


class Task(NamedTuple):
    """A file on its way through the pool; ``number`` is unique in it."""

    number: int
    key: str
    path: str
    media_type: str
    content_encoding: str
    again: bool = False
    """Whether a worker has died with it already."""

    @property
    def weight(self) -> int:
        return 1 if bare_type(self.media_type).startswith("text/") else _HEAVY


class WorkerProcess:
    """A process running :mod:`archec.text.worker`. Pipes never block the run."""

    def __init__(self, orders: Orders) -> None:
        """Starts the process in a session of its own; OSError where the system refuses."""
        self._process = subprocess.Popen(
            (sys.executable, "-I", "-c", COMMAND, orders.to_json(), json.dumps([p or os.getcwd() for p in sys.path])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._timeout = orders.timeout
        self._tasks: deque[Task] = deque()
        self._unsent = b""
        self._unread = b""
        self._watched = False
        self._since = time.monotonic()
        self.load = 0
        self.ready = False
        self.retired = False
        self.ended = False
        self.complaint = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def deadline(self) -> float:
        """When the file in hand, or the start, is over its time (monotonic clock)."""
        if not self.ready:
            return self._since + _START_TIMEOUT
        return self._since + self._timeout if self._tasks else float("inf")

    def outstanding(self) -> list[Task]:
        """The files without a result, the one in hand first."""
        return list(self._tasks)

    def register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._out, selectors.EVENT_READ, self)

    def has_room(self, task: Task) -> bool:
        return self.load + task.weight <= _ROOM

    def give(self, task: Task) -> None:
        """Takes a file over; :meth:`flush` sends it."""
        if not self._tasks and self.ready:
            self._since = time.monotonic()
        self._tasks.append(task)
        self.load += task.weight
        line = json.dumps((task.number, task.path, task.media_type, task.content_encoding))
        self._unsent += line.encode("ascii") + b"\n"

    def flush(self, selector: selectors.BaseSelector) -> None:
        """Writes what the pipe takes; the selector tells when it takes more."""
        if self.ended:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._in, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # the process is gone: its end of the other pipe says so
        if bool(self._unsent) != self._watched:
            self._watched = not self._watched
            if self._watched:
                selector.register(self._in, selectors.EVENT_WRITE, self)
            else:
                selector.unregister(self._in)

    def listen(self, done: list[TextDone]) -> bool:
        """Takes results; False at the end of the pipe or where a line is not what a worker writes."""
        while True:
            try:
                piece = os.read(self._out, 1 << 16)
            except BlockingIOError:
                return True
            except (OSError, ValueError):
                return False
            if not piece:
                return False
            *lines, self._unread = (self._unread + piece).split(b"\n")
            if not all(self._take(line, done) for line in lines) or len(self._unread) > _LINE:
                return False

    def overdue(self, done: list[TextDone]) -> bool:
        """Whether the deadline has passed even after what the worker may have written meanwhile."""
        self.listen(done)
        return time.monotonic() >= self.deadline

    def end(self, selector: selectors.BaseSelector, done: list[TextDone]) -> str:
        """Ends the process and all it started; why it was at its end already, as a reason.

        What it still wrote is taken. One that has died keeps the status it died with.
        """
        self.ended = True
        selector.unregister(self._out)
        if self._watched:
            selector.unregister(self._in)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self.listen(done)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return "timeout" if status == -signal.SIGXCPU else "crashed"

    def _take(self, line: bytes, done: list[TextDone]) -> bool:
        match = _ANSWER.fullmatch(line)
        if match is None:
            self.complaint = line[2:500].decode("ascii", "replace") if line.startswith(b"! ") else ""
            return False
        number, md5, reason = int(match[1]), match[2].decode(), match[3].decode()
        if number == READY:
            self.ready = True
        elif number == RETIRED:
            self.retired = True
        elif self._tasks and number == self._tasks[0].number and (reason in REASONS or md5 != "-"):
            task = self._tasks.popleft()
            self.load -= task.weight
            done.append(TextDone(task.key, None if md5 == "-" else md5, "" if md5 != "-" else reason))
        else:
            return False
        self._since = time.monotonic()
        return True
