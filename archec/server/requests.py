"""The bodies of requests, with limits for their size and time."""

from __future__ import annotations

from collections.abc import Callable

from anyio import CancelScope, current_time
from starlette.types import Receive

from archec.errors import ArchecError

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
