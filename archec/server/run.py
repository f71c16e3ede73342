"""Running the application: uvicorn with our limits, a graceful stop, logs.

TCP_NODELAY is set on every connection by asyncio and by uvloop. On SIGTERM or SIGINT the server takes no
new connections, finishes the requests in work (for ``server.stop_timeout`` at most) and ends.
"""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from archec.config import ServerConfig
from archec.errors import ConfigError, StorageFailed
from archec.server.accesslog import LOGGER
from archec.server.connection import connection_class

__all__ = ["listen", "log_accesses", "make_server"]

_BACKLOG = 2048
_KEEP_ALIVE = 15
"""Seconds that a connection may wait for its next request."""


def listen(config: ServerConfig) -> socket.socket:
    """A socket that listens where the configuration says. Raises :class:`ConfigError`."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sets TCP_NODELAY on what such a socket accepts, but only if it is said to be of TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}") from error
    return listener


def make_server(app: ASGIApp, config: ServerConfig) -> uvicorn.Server:
    """A server for ``app``; its ``run(sockets=[...])`` returns when it was told to stop."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=connection_class(config.idle_timeout, config.send_timeout),
            ws="none",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=True,
            limit_concurrency=config.max_connections,
            backlog=_BACKLOG,
            timeout_keep_alive=min(_KEEP_ALIVE, max(1, int(config.idle_timeout))),
            timeout_graceful_shutdown=max(1, int(config.stop_timeout)),
        )
    )


def log_accesses(where: str, base: Path) -> None:
    """Sends the access log to stdout (``-``), a file, or nowhere. Raises :class:`StorageFailed`."""
    for old in list(LOGGER.handlers):
        LOGGER.removeHandler(old)
        old.close()
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO if where else logging.CRITICAL)
    if not where:
        return
    handler: logging.Handler
    if where == "-":
        handler = logging.StreamHandler(sys.stdout)
    else:
        try:
            # A file that was rotated away is opened anew.
            from logging.handlers import WatchedFileHandler

            handler = WatchedFileHandler(base / where, encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"{base / where}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
