"""A server that behaves as other archives do, and as they should not. ``lines`` are an index of ``warcs``."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from access_support import line

U = "http://a.org/"
STAMPS = ("20140101000000", "20150101000000")
DATES = {STAMPS[0]: "Wed, 01 Jan 2014 00:00:00 GMT", STAMPS[1]: "Thu, 01 Jan 2015 00:00:00 GMT"}


class Handler(BaseHTTPRequestHandler):
    """What each path does stands in ``_answer``."""

    protocol_version = "HTTP/1.1"

    def _send(self, status: int, body: bytes, *headers: tuple[str, str], chunked: bool = False) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)

    def _answer(self) -> None:
        server: Archives = self.server  # type: ignore[assignment]
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        server.asked.append((self.command, self.path, dict(self.headers), body))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        path = unquote(parts.path)
        if path in ("/pywb/all-cdx", "/ia/cdx/search/cdx", "/lies-cdx", "/cdx", "/all-cdx", "/path/to/cdx/server"):
            rows = [line(U, stamp) for stamp in STAMPS]
            if path.startswith("/path"):
                rows = list(server.lines)
            rows = [row for row in rows if query["url"][0].rstrip("/") in row.decode("latin-1")]
            if path.startswith("/ia"):
                rows = [f"org,a)/ {stamp} {U} text/html 200 AAAA 10".encode() for stamp in STAMPS]
            if path == "/lies-cdx":
                rows += [b"\xff\xfe", b"{", b"org,a)/ 2014 {}", line("http://other.org/", STAMPS[0])]
                rows.append(line(U, "20160101000000", live_url="http://10.0.0.1/secret"))
            if query.get("sort") == ["reverse"]:
                rows.reverse()
            self._send(200, b"".join(row + b"\n" for row in rows))
        elif path == "/page-cdx":
            self._send(200, b"<!DOCTYPE html>\n<title>Please log in</title>\n")
        elif path == "/picky-cdx":
            is_known = "__wb_method" not in query["url"][0]
            self._send(200, line(U, STAMPS[0]) if is_known else b"<!DOCTYPE html>\n<title>What?</title>\n")
        elif path in ("/empty-cdx", "/alien-cdx"):
            text = b"" if path == "/empty-cdx" else line("http://alien.org/", STAMPS[0])
            self._send(200, gzip.compress((text + b"\n") * 300_000, 1), ("Content-Encoding", "gzip"))
        elif path.startswith("/listed/"):
            link = f'<{U}>; rel="memento"; datetime="{DATES[STAMPS[0]]}",\n'.encode()
            self._send(200, gzip.compress(link * 100_000, 1), ("Content-Encoding", "gzip"))
        elif path in ("/packed-cdx", "/twice-cdx"):
            packed = gzip.compress(line(U, STAMPS[0]) + b"\n")
            twice = path == "/twice-cdx"
            self._send(200, gzip.compress(packed) if twice else packed, ("Content-Encoding", "gzip" + ", gzip" * twice))
        elif path == "/members-cdx":
            members = [gzip.compress(line(U, stamp) + b"\n") for stamp in STAMPS]
            self._send(200, b"".join(members), ("Content-Encoding", "gzip"))
        elif path.startswith("/hangs"):
            server.released.wait(30)
            self.close_connection = True
        elif path.startswith("/drips"):
            self.send_response(200)
            self.end_headers()
            while not server.released.wait(0.05):
                self.wfile.write(b" ")
            self.close_connection = True
        elif path.startswith("/floods"):
            self.send_response(200)
            self.end_headers()
            while not server.released.is_set():
                self.wfile.write(b"".join(line(U, f"{year}0101000000") + b"\n" for year in range(2000, 2500)))
            self.close_connection = True
        elif path.startswith("/large"):
            self.send_response(200)
            self.send_header("Content-Length", str(5 << 30))
            self.end_headers()
            server.released.wait(30)
            self.close_connection = True
        elif path.startswith("/redirects/"):
            self._send(301, b"", ("Location", self.path.removeprefix("/redirects")))
        elif path.startswith("/fails"):
            self._send(500, b"no")
        elif path.startswith("/wayback/") and "a.org" not in path:
            self._send(404, b"")
        elif path.startswith("/wayback/timemap/link/"):
            links = [f'<{U}>; rel="original"', '<http://[>; rel="timemap"']
            links.append(f'<{server.url}/all-cdx?url={U}>; rel="timemap"; type="application/json"')
            links += [f'<http://x/{s}/{U}>; rel="memento"; datetime="{DATES[s]}"' for s in STAMPS]
            self._send(200, ",\n".join(links).encode(), ("Content-Type", "application/link-format"))
        elif path.startswith("/wayback/http"):
            link = f'<{U}>; rel="original", <http://x/y>; rel="first memento"; datetime="{DATES[STAMPS[0]]}"'
            self._send(302, b"", ("Link", link), ("Location", "/elsewhere"))
        elif path.startswith("/pages/"):
            count, number = path.split("/")[2:4]
            links = [f'</pages/{count}/{n}/{U}>; rel="timemap"' for n in range(1, int(count) + 1)]
            links.append(f'<http://x/y>; rel="memento"; datetime="{DATES[STAMPS[0]]}"')
            self._send(404 if count == number == "3" else 200, ",\n".join(links).encode())
        elif path.startswith("/bare/"):
            link = ("Link", f'<{U}>; rel="original"')
            self._send(302, b"", link, ("Vary", "accept-datetime"), ("Location", f"/pywb/all/{STAMPS[0]}id_/{U}"))
        elif path.startswith("/refusing/"):
            self._send(302, b"", ("Link", f'<{U}>; rel="original"'), ("Location", f"/refused/{U}"))
        elif path.startswith("/refused/"):
            self._send(403, b"")
        elif path.startswith("/errors/"):
            self._send(404, b"no such page", ("Memento-Datetime", DATES[STAMPS[0]]))
        elif re.match("/inexact/[0-9]+id_/", path):
            self._send(302, b"", ("Location", f"/pywb/all/{STAMPS[0]}id_/{U}"))
        elif path.startswith("/again/"):
            self._send(302, b"", ("Location", f"{server.url}/pywb/all/{STAMPS[0]}id_/{U}"))
        elif path.startswith("/astray/"):
            self._send(302, b"", ("Location", "http://["))
        elif path.startswith(("/private/", "/private-cdx")):
            self._send(302, b"", ("Location", server.other + "/secret"))
        elif f"{STAMPS[0]}id_/" in path:
            moved = [("Location", f"/pywb/all/{STAMPS[0]}id_/http://a.org/there")] if "moved" in path else []
            headers = [("Memento-Datetime", DATES[STAMPS[0]]), ("Link", "<x>; rel=y"), ("X-Own", "kept"), *moved]
            self._send(302 if moved else 200, b"first", *headers, chunked="pywb" in path)
        elif path.startswith("/live/"):
            self._send(201, f"{self.command} ".encode() + body, ("X-Type", self.headers.get("Content-Type", "")))
        elif path.startswith("/warcs/"):
            begin, end = (int(one) for one in self.headers["Range"].removeprefix("bytes=").split("-"))
            data = (server.warcs / path.removeprefix("/warcs/")).read_bytes()
            self._send(206, data[begin : end + 1], ("Content-Range", f"bytes {begin}-{end}/{len(data)}"))
        else:
            self._send(404, b"")

    do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Archives(ThreadingHTTPServer):
    """The server. ``asked`` are the requests; ``released`` ends what hangs; ``other`` is another origin."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.released = threading.Event()
        self.other = ""
        self.warcs = Path()
        self.lines: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that went away is no error."""


@contextmanager
def archives() -> Iterator[Archives]:
    """The server while it runs."""
    server = Archives()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
