"""The web site of the demo: a real HTTP server on loopback with three stages.

It has ETag and Last-Modified (304), HEAD, keep-alive, redirects and robots.txt.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from datetime import datetime, timezone
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from archec.demo.papers import STAGES, SiteAnswer, answer
from archec.errors import ArchecError, UsageError

_MODIFIED = {stage: datetime(2008 + stage, 5, 1, 12, tzinfo=timezone.utc) for stage in STAGES}
_IDLE = 30.0
"""Seconds after which the server closes an idle connection."""


class AnsweredRequest(NamedTuple):
    """A request that the site has answered."""

    method: str
    path: str
    status: int


class DemoSite:
    """A context manager that runs the site: ``with DemoSite() as site: ... site.base_url``.

    ``site.stage`` (1, 2, 3) may be set at any time. Raises ArchecError if the site cannot listen.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._where = (host, port)
        self._server: _SiteServer | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stage = 1
        self._requests: list[AnsweredRequest] = []

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``, without a trailing slash."""
        if self._server is None:
            raise UsageError("the web site of the demo is not running")
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def stage(self) -> int:
        return self._stage

    @stage.setter
    def stage(self, stage: int) -> None:
        if stage not in STAGES:
            raise UsageError(f"the demo has no stage {stage}", hint="its stages are 1, 2 and 3")
        self._stage = stage

    @property
    def requests(self) -> tuple[AnsweredRequest, ...]:
        """All requests so far, in the order in which they were answered."""
        with self._lock:
            return tuple(self._requests)

    def note(self, request: AnsweredRequest) -> None:
        """Adds to ``requests``; called by the server."""
        with self._lock:
            self._requests.append(request)

    def __enter__(self) -> DemoSite:
        try:
            self._server = _SiteServer(self._where, self)
        except OSError as error:
            raise ArchecError(f"the web site of the demo cannot listen on {self._where[0]}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="demo site", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            thread.join()
            server.hang_up()
            server.server_close()


class _SiteServer(ThreadingHTTPServer):
    """A server that tracks its connections, to close them when it stops."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, where: tuple[str, int], site: DemoSite) -> None:
        self.site = site
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(where, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends the connections that clients keep open."""
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close the connection."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD from :func:`archec.demo.papers.answer`."""

    server: _SiteServer
    protocol_version = "HTTP/1.1"
    server_version = "archec-demo"
    sys_version = ""
    timeout = _IDLE
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Logs nothing: requests are in ``DemoSite.requests``."""

    def _answer(self, with_body: bool) -> None:
        site = self.server.site
        path = self.path.partition("?")[0]
        found = answer(path, site.stage, len(site.requests))
        tag = f'"{hashlib.sha256(found.body).hexdigest()[:16]}"'
        modified = _MODIFIED[found.since]
        fresh = found.status == 200 and found.cached and self._has(tag, modified)
        status = 304 if fresh else found.status
        site.note(AnsweredRequest(self.command, self.path, status))
        self.send_response(status)
        if found.status == 200 and found.cached:
            self.send_header("ETag", tag)
            self.send_header("Last-Modified", format_datetime(modified, usegmt=True))
        if not fresh:
            self._describe(found)
        self.end_headers()
        if with_body and not fresh:
            self.wfile.write(found.body)

    def _describe(self, found: SiteAnswer) -> None:
        if found.location:
            self.send_header("Location", found.location)
        self.send_header("Content-Type", found.media_type)
        self.send_header("Content-Length", str(len(found.body)))

    def _has(self, tag: str, modified: datetime) -> bool:
        """Whether the client has this version already (RFC 9110, sections 13.1.2 and 13.1.3)."""
        tags = self.headers.get("If-None-Match")
        if tags is not None:
            held = [one.strip().removeprefix("W/") for one in tags.split(",")]
            return "*" in held or tag in held
        since = self.headers.get("If-Modified-Since")
        if since is None:
            return False
        try:
            held_since = parsedate_to_datetime(since)
        except (ValueError, TypeError, OverflowError):
            return False
        return held_since.tzinfo is not None and modified <= held_since
