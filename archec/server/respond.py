"""Sending a body piece by piece, so that a slow client holds back its sender and not our memory."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["PIECE", "PiecewiseResponse"]

PIECE = 1 << 16
"""Bytes handed to the connection at once; it takes the next when most of them are on their way."""


class PiecewiseResponse(Response):
    """A response whose ``body`` is sent in pieces. Whoever awaits it learns when nearly all is sent."""

    def __init__(self, body: bytes, *, status: int = 200, type_: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, status, dict(headers or {}), type_)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        if scope["method"] == "HEAD":
            body = body[:0]
        for place in range(0, max(len(body), 1), PIECE):
            piece = bytes(body[place : place + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": place + PIECE < len(body)})
