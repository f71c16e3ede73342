"""The parent's side of a worker process: starting it, sending and receiving messages, and ending it.

A message is a length, followed by MessagePack. Pickle is not used, so a worker that is compromised by a file that it
reads can send wrong values, but cannot run code in its parent.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import msgspec

LENGTH = 4
MOST = 1 << 29
"""Largest valid message in bytes, far more than any that is sent."""


class Nonsense(Exception):
    """The received bytes are not a valid message."""


def _plain(value: object) -> bytes:
    if isinstance(value, PurePath):
        return os.fsencode(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to a worker")


def _path(kind: type, value: Any) -> Path:
    if issubclass(kind, PurePath):
        return Path(os.fsdecode(value))
    raise NotImplementedError(f"{kind.__name__} cannot be received from a worker")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
"""Encodes a value as MessagePack. Paths are encoded as bytes, since they may not be UTF-8."""


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Returns a decoder for values of type ``kind`` that :func:`encode` has encoded. It raises msgspec.MsgspecError for
    invalid input."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_path)


def frame(body: bytes) -> bytes:
    """Adds the length to a message."""
    return len(body).to_bytes(LENGTH, "big") + body


class Inbox:
    """Assembles messages from received bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Adds received bytes and yields the messages that they complete. Raises :class:`Nonsense`."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH:
            size = int.from_bytes(buffer[start : start + LENGTH], "big")
            if size > MOST:
                raise Nonsense
            end = start + LENGTH + size
            if len(buffer) < end:
                break
            yield bytes(memoryview(buffer)[start + LENGTH : end])
            start = end
        del buffer[:start]


def receive(pipe: socket.socket) -> bytes | None:
    """Reads the next message from a blocking socket. Returns None if the other end is closed."""
    length = _exactly(pipe, LENGTH)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: socket.socket, size: int) -> bytes | None:
    """Reads exactly ``size`` bytes; None if the other end is closed before that. MSG_WAITALL waits in the kernel, which
    takes the interpreter lock only once."""
    data = b""
    while len(data) < size:
        try:
            piece = pipe.recv(size - len(data), socket.MSG_WAITALL)
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


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
