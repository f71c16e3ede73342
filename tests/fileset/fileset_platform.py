"""A platform on loopback: answers with prepared bodies, serves files with ranges, counts, and misbehaves on demand."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

Behaviour = Callable[["Handler", bytes], None]


class Platform(ThreadingHTTPServer):
    """``bodies`` by path (with or without its query): JSON values, bytes, or a status. ``files`` are served with ETag
    and ranges; ``behaviours`` by path replace that. ``items`` are those of an archive.org: what was put into them by
    the keys ``key:secret`` (``puts``, unless ``refusals`` has a status for it), which ``/metadata/ITEM`` lists."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.behaviours: dict[str, Behaviour] = {}
        self.redirects: dict[str, str] = {}
        self.requests: list[str] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.sent: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.items: dict[str, dict[str, bytes]] = {}
        self.puts: list[str] = []
        self.refusals: list[int] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are expected."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Platform

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is logged."""

    def do_GET(self) -> None:
        path, server = self.path, self.server
        with server.lock:
            server.requests.append(path)
            server.times.append(time.monotonic())
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
        bare = path.partition("?")[0]
        if path in server.redirects:
            self.answer(302, b"", location=server.redirects[path])
            return
        body = server.bodies.get(path, server.bodies.get(bare))
        item = server.items.get(bare.removeprefix("/metadata/"))
        if body is None and item is not None:
            rows = [{"name": name, "source": "original", "size": str(len(data)), "md5": hashlib.md5(data).hexdigest()}
                    for name, data in item.items()]  # fmt: skip
            body = {"metadata": {}, "files": rows}
        if isinstance(body, int):
            self.answer(body, b'{"message": "so it is"}', **{"content-type": "application/json"})
        elif isinstance(body, bytes):
            self.answer(200, body, **{"content-type": "text/html"})
        elif body is not None:
            self.answer(200, json.dumps(body).encode(), **{"content-type": "application/json"})
        elif bare in server.files:
            data = server.files[bare]
            server.behaviours.get(bare, Handler.serve)(self, data)
        else:
            self.answer(404, b'{"message": "no such thing"}', **{"content-type": "application/json"})

    def do_PUT(self) -> None:
        server = self.server
        data = self.rfile.read(int(self.headers["content-length"]))
        with server.lock:
            server.puts.append(unquote(self.path))
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            status = server.refusals.pop(0) if server.refusals else 200
        if self.headers.get("authorization") != "LOW key:secret":
            status = 403
        if status == 200:
            _, item, path = unquote(self.path).split("/", 2)
            server.items.setdefault(item, {})[path] = data
        self.answer(status, b"" if status == 200 else b"<Error><Message>not now</Message></Error>")

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def head(self, data: bytes) -> bytes:
        """The head of the answer with a file, or the part that was asked for; what is to be sent."""
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        part = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("range", ""))
        start = int(part[1]) if part and self.headers.get("if-range") == etag and int(part[1]) < len(data) else 0
        rest = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(rest)))
        self.send_header("etag", etag)
        self.send_header("content-type", "application/octet-stream")
        if start:
            self.send_header("content-range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        return rest

    def serve(self, data: bytes) -> None:
        rest = self.head(data)
        self.wfile.write(rest)
        with self.server.lock:
            self.server.sent[self.path.partition("?")[0]] += len(rest)


def broken_at_quarters(handler: Handler, data: bytes) -> None:
    """Sends a quarter of the file (or of what is left), then resets the connection."""
    rest = handler.head(data)
    piece = rest[: max(len(data) // 4, 1)]
    handler.wfile.write(piece)
    handler.wfile.flush()
    with handler.server.lock:
        handler.server.sent[handler.path] += len(piece)
    if len(piece) < len(rest):
        handler.close_connection = True
        handler.connection.close()


@contextmanager
def playing() -> Iterator[Platform]:
    """A platform that runs."""
    server = Platform()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def bytes_of(path: str, size: int) -> bytes:
    """Bytes that are a file's alone."""
    block = hashlib.sha256(path.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def zenodo(server: Platform, number: int, sizes: dict[str, int], concept: int = 6, **changes: Any) -> str:
    """A record of the played Zenodo with files of these sizes; its URL."""
    rows = []
    for path, size in sizes.items():
        where = f"/api/records/{number}/files/{quote(path)}/content"
        data = server.files[where] = bytes_of(path, size)
        rows.append({
            "id": path, "key": path, "size": size, "checksum": f"md5:{hashlib.md5(data).hexdigest()}",
            "links": {"self": f"{server.url}{where}"},
        })  # fmt: skip
    server.bodies[f"/api/records/{number}"] = {
        "id": number, "conceptrecid": str(concept), "status": "published", "submitted": True,
        "created": "2026-01-02T03:04:05+00:00",
        "metadata": {"title": f"Prices {number}", "access_right": "open", "publication_date": "2026-01-02",
                     "relations": {"version": [{"index": number}]}},
        "links": {"self_html": f"{server.url}/records/{number}"}, "files": rows, **changes,
    }  # fmt: skip
    server.bodies[f"/records/{number}"] = (
        f'<html><meta name="citation_title" content="Prices {number}"><meta name="DC.creator" content="Doe, J."></html>'
    ).encode()
    return f"{server.url}/records/{number}"
