"""Limits for the heads of requests, and for the size and time of their bodies."""

from __future__ import annotations

from collections.abc import Callable

from anyio import CancelScope, current_time
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from archec.errors import ArchecError

MAX_HEAD = 1 << 16
"""Maximum size in bytes of request line and headers."""
_RATE = 10_000
"""Bytes a second that a large body must have on average."""


class BodyRefused(ArchecError):
    """A body is too large, too slow, or incomplete. The connection must be closed after the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = status


async def read_body(receive: Receive, limit: int, timeout: float, write: Callable[[bytes], object]) -> None:
    """Passes the body of a request to ``write``, piece by piece. It may take ``timeout`` seconds, and longer if it is
    large. Raises BodyRefused, and what ``write`` raises."""
    size, waited = 0, 0.0
    more = True
    while more:
        began = current_time()
        with CancelScope(deadline=began + timeout + size / _RATE - waited) as scope:
            message = await receive()
        waited += current_time() - began
        if scope.cancelled_caught:
            raise BodyRefused(408, "the body did not arrive in time")
        if message["type"] != "http.request":
            raise BodyRefused(400, "the body ended early")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyRefused(413, f"the body is larger than {limit} bytes")
        write(part)
        more = message.get("more_body", False)


def limited(app: ASGIApp) -> ASGIApp:
    """Returns ``app`` with a limit for heads that are complete when they are received, and with one Host in each (RFC
    9112 section 3.2)."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size, hosts = len(scope["raw_path"]) + len(scope["query_string"]), 0
            for name, value in scope["headers"]:
                size += len(name) + len(value) + 4
                hosts += name == b"host"
            if size > MAX_HEAD:
                return await Response(status_code=431, headers={"Connection": "close"})(scope, receive, send)
            if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
                return await Response(status_code=400, headers={"Connection": "close"})(scope, receive, send)
        return await app(scope, receive, send)

    return answer
