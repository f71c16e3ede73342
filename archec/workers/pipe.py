"""Messages between a process and its worker: a length, followed by MessagePack.

Pickle is not used, so a worker that is compromised by a file that it reads can send wrong values, but cannot run code
in its parent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
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
