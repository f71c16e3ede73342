"""Finds the frames in the bytes of an HTTP/2 connection (RFC 9113, section 4.1), and takes GOAWAY out of them.

The library that reads all the others holds a connection for closed when it meets a GOAWAY. But a server
that is about to close (nginx does it after a thousand requests) says so with one and then finishes the
answers that are under way; they would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx

__all__ = ["LARGEST_FRAME", "FrameReader", "Goaway"]

LARGEST_FRAME = 16_384
"""Payload of a frame at most, in bytes: what a server has to keep to unless it was told otherwise."""
_PART = 256
"""Frames that are handed on together at most, so that a flood of small ones can be stopped in time."""
_HEAD = 9
_GOAWAY = 7


class Goaway(NamedTuple):
    """The server takes no further requests: those after ``last_stream`` were not looked at. ``code``: the reason."""

    last_stream: int
    code: int


class FrameReader:
    """Cuts a stream of bytes, however it comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._due = 0
        """Bytes of a frame that has begun which are still to come."""
        self.seen = 0
        """Frames that were handed on; who reads them may set it back."""

    def feed(self, data: bytes) -> Iterator[bytes | Goaway]:
        """What ``data`` brings, in order: bytes without any part of a GOAWAY, and each GOAWAY that is whole.

        Raises:
            httpx.RemoteProtocolError: a frame is too large, or too small for what it is.
        """
        data = self._rest + data
        begin, at, count = 0, self._due, 0
        while at + _HEAD <= len(data):
            length = int.from_bytes(data[at : at + 3], "big")
            if length > LARGEST_FRAME:
                raise httpx.RemoteProtocolError(f"the answer is not HTTP/2: a frame of {length} bytes")
            end = at + _HEAD + length
            if data[at + 3] == _GOAWAY:
                if end > len(data):
                    break
                if at > begin:
                    yield data[begin:at]
                yield _goaway(data[at + _HEAD : end])
                begin = end
            at = end
            self.seen += 1
            count += 1
            if count % _PART == 0 and begin < at <= len(data):
                yield data[begin:at]
                begin = at
        whole = min(at, len(data))
        self._rest, self._due = data[whole:], at - whole
        if whole > begin:
            yield data[begin:whole]


def _goaway(payload: bytes) -> Goaway:
    if len(payload) < 8:
        raise httpx.RemoteProtocolError("the answer is not HTTP/2: a GOAWAY that is too short")
    return Goaway(int.from_bytes(payload[:4], "big") & 0x7FFF_FFFF, int.from_bytes(payload[4:8], "big"))
