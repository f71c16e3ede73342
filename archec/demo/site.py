"""The web site of the demo: a real HTTP server on loopback with three stages.

It has ETag and Last-Modified (304), HEAD, keep-alive, redirects and robots.txt.
"""

from __future__ import annotations

import hashlib
import threading
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from archec.demo.papers import STAGES, answer
from archec.errors import ArchecError

_HOST = "127.0.0.1"
_MODIFIED = {
    stage: format_datetime(datetime(2008 + stage, 5, 1, 12, tzinfo=timezone.utc), usegmt=True) for stage in STAGES
}


class DemoSite(ThreadingHTTPServer):
    """A context manager that runs the site: ``with DemoSite() as site: ... site.base_url``.

    ``stage`` (1, 2, 3) may be set at any time; ``visits`` is the number of requests so far. Raises ArchecError if the
    site cannot listen.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.stage, self.visits = 1, 0
        try:
            super().__init__((_HOST, 0), _Handler)
        except OSError as error:
            raise ArchecError(f"the web site of the demo cannot listen on {_HOST}: {error}") from error

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``, without a trailing slash."""
        return f"http://{_HOST}:{self.server_port}"

    def __enter__(self) -> DemoSite:
        threading.Thread(target=self.serve_forever, args=(0.05,), name="demo site", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close the connection."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD from :func:`archec.demo.papers.answer`."""

    server: DemoSite
    protocol_version = "HTTP/1.1"
    server_version = "archec-demo"
    sys_version = ""
    timeout = 30.0
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        site = self.server
        site.visits += 1
        found = answer(self.path.partition("?")[0], site.stage, site.visits)
        headers = {}
        fresh = False
        if found.status == 200 and found.cached:
            tag = f'"{hashlib.sha256(found.body).hexdigest()[:16]}"'
            headers = {"ETag": tag, "Last-Modified": _MODIFIED[found.since]}
            fresh = self._has(tag, _MODIFIED[found.since])
        if not fresh:
            headers |= {"Location": found.location} if found.location else {}
            headers |= {"Content-Type": found.media_type, "Content-Length": str(len(found.body))}
        self.send_response(304 if fresh else found.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not fresh and self.command != "HEAD":
            self.wfile.write(found.body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Logs nothing."""

    def _has(self, tag: str, modified: str) -> bool:
        """Whether the client has this version already (RFC 9110, sections 13.1.2 and 13.1.3)."""
        tags = self.headers.get("If-None-Match")
        if tags is not None:
            return tags == "*" or tag in tags
        return self.headers.get("If-Modified-Since") == modified
