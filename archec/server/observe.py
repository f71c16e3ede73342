"""The outermost ASGI layer: counts requests, logs them if configured, and handles all exceptions.

One line per request, in the combined log format with the duration in seconds appended, which the usual tools can read.
Data from clients is escaped.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from logging.handlers import WatchedFileHandler
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from archec.errors import ArchecError, storage_errors

ABORT = "archec.abort"
"""Key of a scope's state: closes its connection at once. The client does not receive what the kernel still holds."""
IS_GONE = "archec.is_gone"
"""Key of a scope's state: returns whether its connection is closed. uvicorn discards what is sent after that."""
SENT = "archec.sent"
"""Key of a scope: what was sent (:class:`Sent`)."""
RETRY_AFTER = "60"
"""Seconds after which to ask again what was answered with 503, if nothing better is known."""
ACCESS_LOG = logging.getLogger("archec.requests")
_errors = logging.getLogger("archec.server")
_UNSAFE = re.compile(r'[^\x20-\x7e]|["\\]')
_TEXTS = {503: "Temporarily unavailable.", 500: "An internal error occurred. It has been logged."}
"""Texts for internal errors. Messages of exceptions may contain paths and host names, so they are not sent."""
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def log_accesses(where: str, base: Path) -> None:
    """Sends the access log to stdout (``-``), a file, or nowhere (""). Raises :class:`StorageFailed`."""
    for old in list(ACCESS_LOG.handlers):
        ACCESS_LOG.removeHandler(old)
        old.close()
    ACCESS_LOG.propagate = False
    ACCESS_LOG.setLevel(logging.INFO if where else logging.CRITICAL)
    if not where:
        return
    handler: logging.Handler
    if where == "-":
        handler = logging.StreamHandler(sys.stdout)
    else:
        with storage_errors(base / where):
            # Refused for a named pipe that nobody reads, for which the handler would wait.
            os.close(os.open(base / where, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
            handler = WatchedFileHandler(base / where, encoding="utf-8")  # reopens the file after a rotation
    handler.setFormatter(logging.Formatter("%(message)s"))
    ACCESS_LOG.addHandler(handler)


class Cut(Exception):
    """A response has begun but cannot be completed. The reason is in the log. The connection is closed."""


class Gone(Cut):
    """The client has closed the connection before the end of the response: the rest is neither read nor generated."""


class Sent:
    """The sent part of a response: its status (0: nothing yet), the bytes of its body, and whether it is complete.
    :meth:`send` raises Gone."""

    __slots__ = ("_is_gone", "_send", "is_complete", "size", "status")

    def __init__(self, send: Send, is_gone: Callable[[], bool]) -> None:
        self._send, self._is_gone = send, is_gone
        self.status = self.size = 0
        self.is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            if self._is_gone():
                raise Gone
            self.size += len(message.get("body", b""))
            self.is_complete = not message.get("more_body", False)
        try:
            await self._send(message)
        except RuntimeError as error:  # of several requests sent at once, uvicorn only stops the last one
            if self._is_gone():
                raise Gone from error
            raise


class Observed:
    """An application whose requests are counted and logged. ``parts`` are the first parts of paths that are counted on
    their own; all others count as one, because clients choose them."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry, parts: Iterable[str]) -> None:
        self._app, self._parts = app, frozenset(parts)
        requests = Counter(
            "archec_http_requests", "Requests that were answered.", ("part", "status"), registry=registry
        )
        sent = Counter("archec_http_sent_bytes", "Bytes of bodies sent.", ("part",), registry=registry)
        self._requests, self._sent = cache(requests.labels), cache(sent.labels)
        self._active = 0
        active = Gauge("archec_http_requests_active", "Requests in progress.", registry=registry)
        active.set_function(lambda: self._active)
        self._seconds = Histogram("archec_http_request_seconds", "Time to answer.", buckets=_BUCKETS, registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        sent = scope[SENT] = Sent(send, scope["state"][IS_GONE])
        self._active += 1
        try:
            await self._app(scope, receive, sent.send)
        except Gone:
            raise
        except Exception as error:
            if not isinstance(error, ArchecError):
                _errors.exception("%s %s failed", scope["method"], _escaped(scope["path"]))
            elif sent.status:
                _errors.warning("%s %s was cut off: %s", scope["method"], _escaped(scope["path"]), error)
            elif error.http_status >= 500:
                _errors.error("%s: %s", _escaped(scope["path"]), error)
            if sent.status and not sent.is_complete:
                raise Cut from error  # the client must not take a partial body for a complete one
            if not sent.status:
                await _refusal(error)(scope, receive, sent.send)
        finally:
            del scope[SENT]  # a reference cycle, which would keep head and body of the request
            seconds = time.monotonic() - begun
            first = scope["path"][1:].partition("/")[0]
            part = first if first in self._parts else "other"
            self._active -= 1
            self._requests(part, str(sent.status)).inc()
            self._sent(part).inc(sent.size)
            self._seconds.observe(seconds)
            if ACCESS_LOG.isEnabledFor(logging.INFO):
                ACCESS_LOG.info("%s", _line(scope, sent.status, sent.size, seconds))


def _refusal(error: Exception) -> Response:
    status = error.http_status if isinstance(error, ArchecError) else 500
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else {}
    return PlainTextResponse(f"{_TEXTS.get(status, str(error))}\n", status, headers)


def _line(scope: Scope, status: int, size: int, seconds: float) -> str:
    headers = dict(scope["headers"])
    client = scope["client"][0] if scope.get("client") else "-"
    target = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    referer, agent = (_escaped(headers.get(name, b"-").decode("latin-1")) for name in (b"referer", b"user-agent"))
    when = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
    request = f"{scope['method']} {_escaped(target)} HTTP/{scope['http_version']}"
    return f'{client} - - [{when}] "{request}" {status or "-"} {size} "{referer}" "{agent}" {seconds:.3f}'


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text[:2000])
