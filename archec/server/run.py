"""Runs the application in uvicorn, with limits and a graceful shutdown.

On SIGTERM, SIGINT or SIGHUP the server stops accepting connections, completes the requests in progress (for at most
``server.stop_timeout``) and exits. uvicorn has no timeout for receiving the head of a request: the proxy in front of it
has to provide that (``docs/operations.md``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import Any, cast

import uvicorn
import uvloop
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from archec.config import ServerConfig
from archec.errors import ConfigError
from archec.server.observe import ABORT, IS_GONE, Cut
from archec.server.requests import MAX_HEAD

_BACKLOG = 2048
_KEEP_ALIVE = 15
"""Seconds for which an idle connection waits for the next request."""
_SMALL = 4096
"""Maximum size in bytes of what is held to be sent with what follows."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Connection(asyncio.Protocol):
    """A connection: uvicorn's protocol, with a limit for the size of request heads and trailers, which it lacks. A
    parser that ignores their contents says where they end.

    uvicorn's protocol on llhttp is used, because it is several times faster than the one on h11, which has a limit.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        actions = {ABORT: self._abort, IS_GONE: self._is_gone}
        self._http = HttpToolsProtocol(config, server_state, app_state | actions, _loop)
        self._parser = HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's, so that both agree
        self._head = 0
        """Bytes received since the last complete head or piece of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = _JoinedWrites(transport)
        self._http.connection_made(cast(asyncio.Transport, self._transport))
        if self._http.client is not None:  # one of IPv4 is ::ffff:192.0.2.1 to a socket of IPv6
            host, port = self._http.client
            self._http.client = (host.removeprefix("::ffff:"), port)

    def data_received(self, data: bytes) -> None:
        """Passes it on, or closes the connection if a head is too large and still incomplete. :func:`limited` refuses
        complete ones."""
        self._head += len(data)
        with contextlib.suppress(HttpParserError, HttpParserUpgrade):  # uvicorn's parser finds them too
            self._parser.feed_data(data)
        if self._head <= MAX_HEAD:
            self._http.data_received(data)
        elif not self._transport.is_closing():
            self._transport.write(_TOO_LARGE)
            self._transport.close()

    def on_headers_complete(self) -> None:
        self._head = 0

    def on_body(self, body: bytes) -> None:
        self._head = 0

    def on_message_complete(self) -> None:
        self._head = 0

    def eof_received(self) -> None:
        self._http.eof_received()
        self._transport.flush()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)
        del self._http, self._parser  # breaks reference cycles, which would keep heads and bodies of requests

    def _is_gone(self) -> bool:
        return self._transport.is_closing()

    def _abort(self) -> None:
        """Closes the connection, and discards what was sent and has not arrived yet: up to some MB of a response."""
        at_once = struct.pack("ii", 1, 0)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._transport.abort()


class _JoinedWrites:
    """A transport that holds a small piece until the next one or the next turn of the event loop: uvicorn writes head
    and body of a response one after the other, which would be two packets, and wake the client twice."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._held = transport, b""
        self._call_soon = asyncio.get_running_loop().call_soon
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held or len(data) > _SMALL:
            self._transport.write(self._held + data)
            self._held = b""
        elif data:
            self._held = data
            self._call_soon(self.flush)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        if self._held and not self.is_closing():  # after an abort, or if the client is gone
            self.write(b"")


def listen(config: ServerConfig) -> socket.socket:
    """Returns a socket that listens on the configured host and port. Raises :class:`ConfigError`."""
    where = f"cannot listen on {config.host}, port {config.port}"
    hint = "set server.host and server.port, or give --host and --port"
    host = config.host.strip("[]")
    if not host:  # perhaps a variable that is not set: it must not open the archive to the network
        raise ConfigError("server.host is empty", hint="all addresses are 0.0.0.0 or ::")
    try:
        # asyncio sets TCP_NODELAY on accepted connections only if the protocol is stated here.
        found = socket.getaddrinfo(host, config.port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}", hint=hint) from error
    family, kind, protocol, _, address = min(found, key=lambda one: one[0])  # of a name that has both: IPv4
    listener = socket.socket(family, kind, protocol)
    try:
        # Inherited by accepted connections: the kernel closes one whose client reads nothing for this long.
        patience = max(1, round(config.send_timeout * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(patience, 1 << 30))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{where}: {error.strerror or error}", hint=hint) from error
    return listener


def make_server(app: ASGIApp, config: ServerConfig) -> uvicorn.Server:
    """Returns a server for ``app``, for :func:`run`."""
    logging.getLogger("uvicorn.error").addFilter(_is_new)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=_Connection,
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


def run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serves the connections of ``listener`` until a signal to stop."""
    uvloop.run(_serve(server, listener))


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    try:
        await server.serve(sockets=[listener])
    finally:
        # Closing one that is not read from would not end.
        for connection in list(server.server_state.connections):
            connection.transport.abort()


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's log has information that our log lacks, and is not about a stop: at a second signal
    it logs that the application was cancelled, as text."""
    if str(record.msg).rstrip().endswith(asyncio.CancelledError.__name__):
        return False
    return record.exc_info is None or not isinstance(record.exc_info[1], (Cut, asyncio.CancelledError))
