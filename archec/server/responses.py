"""Responses with a negotiated content coding, and bodies sent in chunks.

Negotiation is our own (RFC 9110, sections 8.4 and 12.5.3), because Starlette's middleware supports only gzip and sends
it to clients that refuse it (``gzip;q=0``). Clients that do not ask for a coding get none.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import zstandard
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

CODINGS = ("zstd", "gzip", "deflate")
"""Supported codings. If weights are equal, the first one is preferred."""

_MINIMUM = 500
"""Size in bytes below which a body is not encoded."""
_ZLIB_LEVEL = 1
"""Output is a quarter larger than at level 6, in a third of the time."""
_ZSTD_LEVEL = 3
PIECE = 1 << 16
"""Size in bytes of the pieces in which a body is sent."""


def choose_coding(accept: str) -> str:
    """Returns the coding for an Accept-Encoding header, or "" for none.

    The greatest weight wins; if weights are equal, the first of :data:`CODINGS`. ``*`` is answered with gzip.
    """
    weights: dict[str, float] = {}
    for part in accept.lower().split(",")[:50]:
        name, _, parameters = part.partition(";")
        name = name.strip()
        weights.setdefault("gzip" if name == "x-gzip" else name, _weight(parameters))
    weights.setdefault("gzip", weights.get("*", 0))
    best = max(CODINGS, key=lambda name: weights.get(name, 0))
    weight = weights.get(best, 0)
    return best if weight and weight >= weights.get("identity", 0) else ""


def _weight(parameters: str) -> float:
    name, _, value = parameters.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def encode(body: bytes, coding: str) -> tuple[bytes, str]:
    """Encodes ``body`` with one of :data:`CODINGS`. Returns it with the coding used: "" if ``coding`` is "" or the body
    is small."""
    if not coding or len(body) < _MINIMUM:
        return body, ""
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body), coding
    packer = zlib.compressobj(_ZLIB_LEVEL, wbits=zlib.MAX_WBITS + (16 if coding == "gzip" else 0))
    return packer.compress(body) + packer.flush(), coding


async def nothing() -> None:
    """A ``close`` that does nothing."""


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yields bytes in memory as a body."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


class BodyResponse(Response):
    """A copy of the response ``made`` that streams a body between ``head`` and ``tail``, with gzip if ``packed``.

    A slow client slows down the sender instead of filling memory. ``size`` is -1 if it is unknown or if there is no
    body. If the body ends early, the connection is closed. ``close`` is called once nearly everything is sent.
    """

    def __init__(
        self,
        made: Response,
        size: int,
        body: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]] = nothing,
        head: bytes = b"",
        tail: bytes = b"",
        *,
        packed: bool = False,
    ) -> None:
        super().__init__(None, made.status_code)
        self.raw_headers = [pair for pair in made.raw_headers if pair[0] != b"content-length"]
        self._head, self._body, self._tail, self._close, self._packed = head, body, tail, close, packed
        if packed:
            self.raw_headers.append((b"content-encoding", b"gzip"))
        elif size >= 0:
            self.raw_headers.append((b"content-length", b"%d" % (len(head) + size + len(tail))))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            packer = zlib.compressobj(1, wbits=31) if self._packed else None
            waiting = self._head
            async for piece in self._body:
                waiting += piece
                if len(waiting) >= PIECE:
                    data = waiting if packer is None else await to_thread.run_sync(packer.compress, waiting)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    waiting = b""
            last = waiting + self._tail
            last = last if packer is None else packer.compress(last) + packer.flush()
            await send({"type": "http.response.body", "body": last})
        finally:
            await self._close()
