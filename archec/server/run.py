"""Runs the application in uvicorn, with limits and a graceful shutdown.

On SIGTERM, SIGINT or SIGHUP the server stops accepting connections, completes the requests in progress (for at most
``server.stop_timeout``) and exits. uvicorn has no timeout for receiving the head of a request: the proxy in front of it
has to provide that (``docs/operations.md``).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from archec.config import ServerConfig
from archec.errors import ConfigError
from archec.server.observe import ABORT, IS_GONE, Cut

_BACKLOG = 2048
_KEEP_ALIVE = 15
"""Seconds for which an idle connection waits for the next request."""
_MAX_HEAD = 1 << 16
"""Maximum size in bytes of request line and headers."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _LimitedHeads(HttpToolsProtocol):
    """HTTP parsed by llhttp, which is several times faster than h11, with a limit for the size of request heads and
    trailers, which uvicorn's class lacks."""

    _head = 0
    """Bytes received since the last complete head or piece of a body."""

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of a head. Closes the connection if it is too large."""
        self._head += len(data)
        super().data_received(data)
        if self._head > _MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Raises ValueError, so that :meth:`send_400_response` is called, if the head is too large: it may be complete
        before its size is counted."""
        self._head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._head > _MAX_HEAD:
            raise ValueError("the head is too large")
        self._head = 0
        self.scope[ABORT] = self._abort  # type: ignore[literal-required]
        self.scope[IS_GONE] = self.transport.is_closing  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head <= _MAX_HEAD:
            super().send_400_response(msg)
        else:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _abort(self) -> None:
        """Closes the connection, and discards what was sent and has not arrived yet: up to some MB of a response."""
        at_once = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.transport.abort()


def listen(config: ServerConfig) -> socket.socket:
    """Returns a socket that listens on the configured host and port. Raises :class:`ConfigError`."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sets TCP_NODELAY on accepted connections only if the protocol is stated here.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Inherited by accepted connections: the kernel closes one whose client reads nothing for this long.
        patience = max(1, round(config.send_timeout * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(patience, 1 << 30))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}"
        raise ConfigError(where, hint="set server.host and server.port, or give --host and --port") from error
    return listener


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Aborts the connections that are left: closing one that is not read from would not end."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def make_server(app: ASGIApp, config: ServerConfig) -> uvicorn.Server:
    """Returns a server for ``app``. Its ``run(sockets=[...])`` returns after a signal to stop."""
    logging.getLogger("uvicorn.error").addFilter(_is_new)
    return _Server(
        uvicorn.Config(
            app,
            http=_LimitedHeads,
            ws="none",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(config.trusted_proxies),
            forwarded_allow_ips=list(config.trusted_proxies),
            limit_concurrency=config.max_connections,
            backlog=_BACKLOG,
            timeout_keep_alive=min(_KEEP_ALIVE, max(1, int(config.idle_timeout))),
            timeout_graceful_shutdown=max(1, int(config.stop_timeout)),
        )
    )


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's log has information that our log lacks, and is not about a stop."""
    return record.exc_info is None or not isinstance(record.exc_info[1], (Cut, asyncio.CancelledError))
