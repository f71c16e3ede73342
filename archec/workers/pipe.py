"""What goes over the socket between a process and its worker: a length, then MessagePack.

No pickle: a worker that was taken over by a file it reads can then send wrong values, but run no code.
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
"""Largest message in bytes. A longer one is nonsense: nothing that is sent comes near it."""


class Nonsense(Exception):
    """What came over the socket is no message."""


def _plain(value: object) -> bytes:
    if isinstance(value, PurePath):
        return os.fsencode(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to a worker")


def _path(kind: type, value: Any) -> Path:
    if issubclass(kind, PurePath):
        return Path(os.fsdecode(value))
    raise NotImplementedError(f"{kind.__name__} cannot be received from a worker")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
"""A value as MessagePack. Paths travel as bytes, since not every one of them is UTF-8."""


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Reads what :func:`encode` wrote as a value of type ``kind``; raises msgspec.MsgspecError if it is none."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_path)


def frame(body: bytes) -> bytes:
    """A message as it is sent."""
    return len(body).to_bytes(LENGTH, "big") + body


class Inbox:
    """Puts received bytes together to messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that ``data`` completes; raises :class:`Nonsense`."""
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
    """The next message from a blocking socket, None if the other end is closed."""
    length = _exactly(pipe, LENGTH)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: socket.socket, size: int) -> bytes | None:
    """So many bytes. They are waited for in the kernel: one turn of the interpreter lock, however many there are."""
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
