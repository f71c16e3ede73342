"""Responses with a negotiated content coding, and bodies sent in chunks.

Negotiation is our own (RFC 9110, sections 8.4 and 12.5.3), because Starlette's middleware supports only gzip and sends
it to clients that refuse it (``gzip;q=0``). Clients that do not ask for a coding get none.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache

import zstandard
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

CODINGS = ("zstd", "gzip", "deflate")
"""Supported codings. If weights are equal, the first one is preferred."""

_MINIMUM = 500
"""Size in bytes below which a body is not encoded."""
_ZLIB_LEVEL = 1
"""Output is a quarter larger than at level 6, in a third of the time."""
_ZSTD_LEVEL = 3
_PIECE = 1 << 16


@lru_cache(maxsize=256)
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


class PiecewiseResponse(Response):
    """A response that sends ``body`` in pieces, so that a slow client slows down the sender instead of filling memory.
    The call returns once nearly everything is sent."""

    def __init__(self, body: bytes, *, status: int = 200, type_: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, status, dict(headers or {}), type_)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        if scope["method"] == "HEAD":
            body = body[:0]
        for start in range(0, max(len(body), 1), _PIECE):
            piece = bytes(body[start : start + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": start + _PIECE < len(body)})
