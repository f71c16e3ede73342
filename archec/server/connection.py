"""One connection: uvicorn's protocol with the limits that it does not have.

A connection on which no whole request head arrives in time, whose head is endless, or whose client takes
in nothing of its answer, is cut. So ten thousand of them cost some memory each, and none stays for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["MOST_HEAD", "connection_class"]

MOST_HEAD = 1 << 16
"""Bytes of a request's line and headers."""
_LOOK = 8
"""A connection is looked at so often within its shortest limit."""


def connection_class(idle: float, stalled: float) -> type[asyncio.Protocol]:
    """A protocol class: ``idle`` seconds without a request, ``stalled`` seconds without progress."""

    class Connection(HttpToolsProtocol):
        """See the module's docstring."""

        def __init__(
            self,
            config: Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(config, server_state, app_state, _loop)
            self._head = 0
            self._idle_since: float | None = None
            self._full_since: float | None = None
            self._watch: asyncio.TimerHandle | None = None

        @property
        def _busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._idle_since = self.loop.time()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._watch is not None:
                self._watch.cancel()
                self._watch = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            self._head = 0 if self._busy else self._head + len(data)
            if self._head > MOST_HEAD:
                self.transport.abort()

        def pause_writing(self) -> None:
            self._full_since = self.loop.time()
            super().pause_writing()

        def resume_writing(self) -> None:
            self._full_since = None
            super().resume_writing()

        def _look(self) -> None:
            now = self.loop.time()
            if self._busy:
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = now
            is_idle = self._idle_since is not None and now - self._idle_since >= idle
            is_stalled = self._full_since is not None and now - self._full_since >= stalled
            if is_idle or is_stalled:
                self.transport.abort()
                return
            self._watch = self.loop.call_later(min(idle, stalled) / _LOOK, self._look)

    return Connection
