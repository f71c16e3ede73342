"""Which HTTP a server speaks over TLS, as it says in the handshake (ALPN, RFC 7301)."""

from __future__ import annotations

import asyncio
from typing import cast

from archec.fetch.h1 import H1Connection
from archec.fetch.session import Session
from archec.fetch.tuning import Tuning

__all__ = ["Handshake"]


class Handshake(asyncio.Protocol):
    """Stands at the end of a TLS connection until it is known who takes its place: ``chosen``.

    Where TLS is laid over a connection that is there already, nobody tells it that it is done: call ``settle``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tuning: Tuning) -> None:
        self._loop = loop
        self._tuning = tuning
        self._early: list[bytes] = []
        self._over: list[Exception | None] = []
        self.chosen: H1Connection | Session | None = None

    def settle(self, transport: asyncio.Transport) -> H1Connection | Session:
        """Hands the connection over, with what has come over it already."""
        tls = transport.get_extra_info("ssl_object")
        kind = Session if tls is not None and tls.selected_alpn_protocol() == "h2" else H1Connection
        chosen = self.chosen = kind(self._loop, self._tuning.header_bytes, self._tuning.header_count)
        transport.set_protocol(chosen)
        chosen.connection_made(transport)
        for data in self._early:
            chosen.data_received(data)
        for error in self._over:
            chosen.connection_lost(error)
        return chosen

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.settle(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.append(exc)
