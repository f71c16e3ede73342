"""The outermost layer: every request is counted and, if wanted, logged; nothing escapes it.

One line a request, in the combined log format with the time it took (seconds) at its end, so that the
usual tools read it. What a client sent is escaped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from archec.server.metrics import Requests

__all__ = ["LOGGER", "Observed"]

LOGGER = logging.getLogger("archec.access")
_faults = logging.getLogger("archec.server")
_ODD = re.compile(r'[^\x20-\x7e]|["\\]')
_FAULT = b"Something went wrong here. It has been noted.\n"


class Observed:
    """An application, observed. ``part_of`` names the capability that a path belongs to."""

    def __init__(self, app: ASGIApp, requests: Requests, part_of: Callable[[str], str]) -> None:
        self._app, self._requests, self._part_of = app, requests, part_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        status = size = 0
        whole = False

        async def counted(message: Message) -> None:
            nonlocal status, size, whole
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
                whole = not message.get("more_body", False)
            await send(message)

        self._requests.active += 1
        try:
            await self._app(scope, receive, counted)
        except Exception:
            _faults.exception("%s %s failed", scope["method"], _shown(scope["path"]))
            if status and not whole:
                raise  # the connection is cut: its client must not take a part for the whole
            if whole:
                return
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_FAULT))]
            await counted({"type": "http.response.start", "status": 500, "headers": headers})
            await counted({"type": "http.response.body", "body": _FAULT})
        finally:
            seconds = time.monotonic() - begun
            self._requests.active -= 1
            self._requests.done(self._part_of(scope["path"]), status, size, seconds)
            if LOGGER.isEnabledFor(logging.INFO):
                LOGGER.info("%s", _line(scope, status, size, seconds))


def _line(scope: Scope, status: int, size: int, seconds: float) -> str:
    headers = dict(scope["headers"])
    client = scope["client"][0] if scope.get("client") else "-"
    target = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    told = [_shown(headers.get(name, b"-").decode("latin-1")) for name in (b"referer", b"user-agent")]
    when = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
    request = f"{scope['method']} {_shown(target)} HTTP/{scope['http_version']}"
    return f'{client} - - [{when}] "{request}" {status or "-"} {size} "{told[0]}" "{told[1]}" {seconds:.3f}'


def _shown(text: str) -> str:
    return _ODD.sub(lambda match: f"\\x{ord(match[0]):02x}", text[:2000])
