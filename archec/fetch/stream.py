"""One request over HTTP/2 and its answer; the connection under it is a ``session.Session``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import httpx
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from archec.fetch.engine import STREAM_WINDOW
from archec.fetch.h1 import Stale

if TYPE_CHECKING:
    from archec.fetch.session import Session

__all__ = ["H2Stream", "Http1Required", "Unseen"]

_OF_A_CONNECTION = frozenset(
    {b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"}
)
"""Header fields that HTTP/2 has other means for (RFC 9113, section 8.2.2)."""


class Http1Required(Stale):
    """The server wants this request over HTTP/1.1."""

    older = True


class Unseen(Stale):
    """The server did not look at the request, since it closes the connection or is asked too much on it."""

    unseen = True


class H2Stream:
    """One request and its answer. Use it as an ``H1Connection``; ``abort`` when done, whatever came of it."""

    __slots__ = (
        "_chunks", "_complete", "_error", "_head", "_loop", "_session", "_taken", "_waiter", "alone", "answered",
        "fields_size", "headers", "number", "status",
    )  # fmt: skip
    version: ClassVar[bytes] = b"HTTP/2"

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop
        self._head: asyncio.Future[None] = loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: list[tuple[bytes, int]] = []
        self._taken = 0
        self._complete = False
        self._error: Exception | None = None
        self.number = 0
        self.alone = False
        """Whether it has the connection for itself."""
        self.answered = False
        """Whether anything came for it."""
        self.fields_size = 0
        """Bytes of header fields that came for it."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def address(self) -> str:
        """The numeric address at the other end."""
        return self._session.address

    async def exchange(
        self, method: bytes, authority: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Sends a request and waits for the head of the answer: ``status`` and ``headers``.

        Raises:
            Stale: it is to be sent again: others that shared the connection may be why there is no answer.
            Http1Required: the server wants it over HTTP/1.1.
            httpx.ReadError, httpx.RemoteProtocolError: no answer, or one that is not HTTP.
        """
        # A path and a validator come once: in the compression's table they would push out what comes each time.
        fields = [(b":method", method), (b":scheme", b"https"), (b":authority", authority)]
        fields.append(NeverIndexedHeaderTuple(b":path", target))
        for name, value in headers:
            name = name.lower()
            if name not in _OF_A_CONNECTION:
                kind = NeverIndexedHeaderTuple if name.startswith(b"if-") else HeaderTuple
                fields.append(kind(name, value.strip()))
        self._session.begin(self, fields)
        await self._head
        if self._error is not None and not self.status:
            raise self._error

    async def read(self) -> bytes:
        """The next piece of the body, ``b""`` at its end.

        Raises:
            Truncated: the body ended too early.
            httpx.RemoteProtocolError: the connection broke HTTP/2 meanwhile.
        """
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._complete:
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        chunks, self._chunks = self._chunks, []
        if not self._complete and self._error is None:
            self._taken += sum(weight for _, weight in chunks)
            if self._taken >= STREAM_WINDOW // 2:
                self._session.acknowledge(self._taken, self.number)
                self._taken = 0
        return chunks[0][0] if len(chunks) == 1 else b"".join(data for data, _ in chunks)

    def abort(self) -> None:
        """Gives up what has not come yet. The connection then takes no further request."""
        if not self._complete and self._error is None:
            self.fail(httpx.ReadError("given up"))
            self._session.give_up(self)

    # -- what the session does with it ------------------------------------------------------------

    def on_head(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of an answer came."""
        headers = list(headers)
        status = next((value for name, value in headers if name == b":status"), b"")
        if status == b"101":
            raise httpx.RemoteProtocolError("the server switches to another protocol")
        if len(status) != 3 or not status.isdigit():
            raise httpx.RemoteProtocolError("the answer is not HTTP/2: it has no status that makes sense")
        if status >= b"200":
            self.status = int(status)
            self.headers = [(name, value) for name, value in headers if not name.startswith(b":")]
            if not self._head.done():
                self._head.set_result(None)

    def on_data(self, data: bytes, weight: int) -> None:
        """A piece of the body came; ``weight``: what it takes of the window."""
        self._chunks.append((data, weight))
        self._wake()

    def on_end(self) -> None:
        """The answer is over."""
        self._complete = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """The answer will not come, or not to its end."""
        if self._error is None and not self._complete:
            self._error = error
            if not self._head.done():
                self._head.set_result(None)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
