"""A web server on loopback whose answers a test sets, and changes while it runs."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

__all__ = ["Answer", "Site", "moved", "page", "pdf"]


@dataclass(frozen=True)
class Answer:
    """What the server says. ``fault``: ``reset`` breaks the connection in place of an answer, ``short`` in
    the middle of the body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


def page(text: str, status: int = 200, **headers: str) -> Answer:
    """A web page."""
    body = f"<!DOCTYPE html><html><body><p>{text}</p></body></html>\n".encode()
    return Answer(status, body, {"Content-Type": "text/html; charset=utf-8", **headers})


def pdf(text: str, **headers: str) -> Answer:
    """What looks like a PDF to whom looks at its first bytes only."""
    return Answer(200, f"%PDF-1.4\n% {text}\n%%EOF\n".encode(), {"Content-Type": "application/pdf", **headers})


def moved(to: str, status: int = 301) -> Answer:
    """A redirect."""
    return Answer(status, headers={"Location": to})


class Site:
    """``with Site() as site: site["/x"] = page("hello")``; a path that was not set is a 404.

    An answer may be a function of how often the path was asked for before. ``asked`` holds the path and
    the headers of every request.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._where = (host, port)
        self.answers: dict[str, Answer | Callable[[int], Answer]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.lock = threading.Lock()

    def __setitem__(self, path: str, answer: Answer | Callable[[int], Answer]) -> None:
        self.answers[path] = answer

    def fill(self, count: int, answer: Answer | None = None) -> list[str]:
        """Sets the answers of ``/0``, ``/1`` and so on, by default a PDF each; their URLs."""
        self.answers.update({f"/{n}": answer or pdf(str(n)) for n in range(count)})
        return [self.url(f"/{n}") for n in range(count)]

    def drop(self, count: int) -> None:
        """The first of these are there no more."""
        for n in range(count):
            del self.answers[f"/{n}"]

    def url(self, path: str) -> str:
        """The absolute URL of a path."""
        return f"http://{self._where[0]}:{self._where[1]}{path}"

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        with self.lock:
            return sum(1 for asked, _ in self.asked if asked == path)

    def forget(self) -> None:
        """Forgets who asked for what."""
        with self.lock:
            self.asked.clear()

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        """The answer to a request, which is noted."""
        before = self.count(path)
        with self.lock:
            self.asked.append((path, headers))
        found = self.answers.get(path, page("Not found", 404))
        return found(before) if callable(found) else found

    def start(self) -> None:
        """Listens, at the same address as before if it did."""
        self._server = _Server(self._where, self)
        self._where = (self._where[0], self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listens no more, and breaks every connection."""
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> Site:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 256

    def __init__(self, where: tuple[str, int], site: Site) -> None:
        self.site = site
        self.connections: set[socket.socket] = set()
        super().__init__(where, _Handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self.connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may break off; that is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 30
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        found = self.server.site.answer(self.path, {name.lower(): value for name, value in self.headers.items()})
        if found.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        etag = found.headers.get("ETag")
        if etag is not None and self.headers.get("If-None-Match") == etag:
            self.send_response(304)
            self.end_headers()
            return
        (self.send_response_only if "Date" in found.headers else self.send_response)(found.status)
        for name, value in found.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(found.body) + (10 if found.fault == "short" else 0)))
        self.end_headers()
        self.wfile.write(found.body)
        if found.fault == "short":
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Nothing to the terminal."""
