"""A server of bad manners: raw sockets in a thread, one small behaviour for each path."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


class Asked(NamedTuple):
    """A request that arrived; ``headers`` with lower-case names."""

    when: float
    host: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


Behaviour = Callable[["Hostile", asyncio.StreamWriter, Asked], Awaitable[bool]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    """Registers a behaviour under its name; it returns whether the connection stays open."""
    BEHAVIOURS["/" + function.__name__.replace("_", "-")] = function
    return function


def body_of(path: str) -> bytes:
    """What ``/ok`` serves under a path and query."""
    return (path.encode() + b"\n") * 50


class Hostile:
    """Listens on one port of 127.0.0.1 to 127.0.0.<hosts>; ``close`` when done."""

    def __init__(self, hosts: int = 1, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.sent = 0
        """Bytes that it had a client take; up to 128 kB of a connection may not have been."""
        self.counts: Counter[str] = Counter()
        self.robots: tuple[int, bytes, str] = (404, b"", "")
        """Status, body and further header lines of /robots.txt."""
        self.run = 0
        """Which run of a test it is, for behaviours that differ by it."""
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.most_asked = 0
        """Requests on one connection."""
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._sockets, self.port = _listen(hosts)
        for listener in self._sockets:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._started.wait(10)

    def url(self, path: str, host: int = 1, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.{host}:{self.port}{path}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> list[asyncio.Server]:
            return [await asyncio.start_server(self._connected, sock=s, ssl=self._tls) for s in self._sockets]

        servers = self._loop.run_until_complete(start())
        self._started.set()
        self._loop.run_forever()
        for server in servers:
            server.close()
        self._turn()  # connections that were just accepted reach their handler, which can close them
        tasks = [task for task in asyncio.all_tasks(self._loop) if not task.done()]
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._turn()
        self._loop.close()

    def _turn(self) -> None:
        for _ in range(10):
            self._loop.run_until_complete(asyncio.sleep(0))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        write = writer.write

        def counted(data: bytes) -> None:
            self.sent += len(data)
            write(data)

        writer.write = counted  # type: ignore[method-assign, assignment]
        goes_on, asked = True, 0
        try:
            while goes_on:
                goes_on, asked = await self._one(reader, writer), asked + 1
                self.most_asked = max(self.most_asked, asked)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        target = head[0].split(" ")[1]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        asked = Asked(time.monotonic(), writer.get_extra_info("sockname")[0], parts.path, query, headers)
        self.asked.append(asked)
        self.counts[target] += 1
        if parts.path == "/robots.txt":
            status, body, extra = self.robots
            if status == 0:
                return False
            answer(writer, status, body, extra)
            return True
        first = "/" + parts.path.split("/")[1]
        return await BEHAVIOURS.get(first, from_a_table)(self, writer, asked)


def answer(writer: asyncio.StreamWriter, status: int, body: bytes, extra: str = "", kind: str = "text/plain") -> None:
    lines = f"HTTP/1.1 {status} Because\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(lines.encode("latin-1") + body)


def _listen(hosts: int) -> tuple[list[socket.socket], int]:
    """Listening sockets on one port of several addresses, and the port."""
    while True:
        sockets = [socket.create_server(("127.0.0.1", 0))]
        port = sockets[0].getsockname()[1]
        try:
            sockets += [socket.create_server((f"127.0.0.{number}", port)) for number in range(2, hosts + 1)]
            return sockets, port
        except OSError:
            for listener in sockets:
                listener.close()


EVIL = "\x1b]0;owned\x07\x9b31m\x08"
"""What would speak to a terminal."""
OK = b"HTTP/1.1 200 OK\r\n"
CHUNK = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"

SAID = {
    "short": OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 10,
    "long": OK + b"Content-Length: 10\r\n\r\n" + b"x" * 1000,
    "short-chunks": CHUNK,
    "hang-up": b"",
}
"""All that is sent before the connection is closed."""

SAID_AND_STAYED = {
    "trailers": CHUNK + b'0\r\nETag: "late"\r\nContent-Type: text/html\r\n\r\n',
    "junk-header": OK + b'Content-Length: 2\r\nServer: a\x01b\xff\x7f\r\nETag: "x\x02"\r\n'
                   b"Content-Type: text/html\r\n\r\nok",
    "redirect-raw": b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: /caf\xc3\xa9\x01/\xe9x y#part\r\n\r\n",
    "evil-reason": f"HTTP/1.1 500 {EVIL}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"),
}  # fmt: skip
"""What is sent on a connection that stays open."""

ENDLESS = {
    "endless": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "endless-until-close": (b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 65536),
    "huge": (OK + b"Content-Length: 100000000000\r\n\r\n", b"x" * 65536),
    "endless-trailers": (CHUNK + b"0\r\nX: ", b"x" * 65536),
    "endless-header": (OK + b"X: ", b"x" * 65536),
    "endless-1xx": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100),
}
"""What is sent first, and then without an end."""


@cache
def page_of_300_mb() -> bytes:
    """In 300 kB."""
    return gzip.compress(b"<html><body>" + b"<p>words </p>" * 8_000, 9) + gzip.compress(b" words" * 180_000, 9) * 270


@cache
def pdf_of_500_mb() -> bytes:
    """A page whose contents are 500 MB of operators in 500 kB."""
    packer = zlib.compressobj(9)
    stream = b"".join([*(packer.compress(b"q " * 500_000) for _ in range(500)), packer.flush()])
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
    ]  # fmt: skip
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%s\nendobj\n" % (n, part) for n, part in enumerate(parts, 1))
    return body + b"trailer<</Root 1 0 R/Size 5>>\n%%EOF\n"


PAGE_COUNT = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>\nendobj\n"
    b"2 0 obj<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2147483647>>\nendobj\ntrailer<</Root 1 0 R/Size 3>>\n%%EOF\n"
)
"""A PDF that says it has two billion pages, and is its own page tree."""

_KEPT = ("Server", "ETag", "Last-Modified", "Content-Language", "Content-Disposition", "Link", "X-Robots-Tag")

FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "gzip-content": ("text/plain", lambda: b"\x1f\x8b this is no gzip", "Content-Encoding: gzip\r\n"),
    "evil-head": (f"text/{EVIL}", lambda: b"evil", "".join(f"{name}: {EVIL}\r\n" for name in _KEPT)),
    "html-bomb": ("text/html", page_of_300_mb, "Content-Encoding: gzip\r\n"),
    "deep-page": ("text/html", lambda: b"<html><body>" + b"<div><b>" * 120_000 + b"words", ""),
    "pdf-bomb": ("application/pdf", pdf_of_500_mb, ""),
    "page-count": ("application/pdf", lambda: PAGE_COUNT, ""),
    "endless-postscript": ("application/postscript", lambda: b"%!PS\n{ (words) show } loop\n", ""),
}
"""Media types, bodies and further header lines of files."""


async def from_a_table(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """One of SAID, SAID_AND_STAYED, ENDLESS and FILES, or 404."""
    name = asked.path.split("/")[1]
    if name in FILES:
        kind, body, extra = FILES[name]
        answer(writer, 200, body(), extra, kind)
    elif name in ENDLESS:
        first, more = ENDLESS[name]
        writer.write(first)
        while True:
            writer.write(more)
            await writer.drain()
    elif name in SAID:
        writer.write(SAID[name])
        return False
    elif name in SAID_AND_STAYED:
        writer.write(SAID_AND_STAYED[name])
    else:
        answer(writer, 404, b"no such thing")
    return True


@behaviour
async def ok(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """A file; with ``wait`` after so many seconds."""
    await asyncio.sleep(float(asked.query.get("wait", "0")))
    answer(writer, 200, body_of(asked.path), kind="application/pdf")
    return True


@behaviour
async def sized(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 200, b"x" * int(asked.query["size"]))
    return True


@behaviour
async def never(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    await asyncio.sleep(60)
    return False


@behaviour
async def drip(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(2000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)
    return False


@behaviour
async def slow_head(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(2000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)
    return False


@behaviour
async def silent_body(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Of a file, or of an answer with another ``status``."""
    status = asked.query.get("status", "200")
    writer.write(f"HTTP/1.1 {status} Because\r\nLocation: /ok\r\nContent-Length: 1000\r\n\r\nxxxx".encode())
    await asyncio.sleep(60)
    return False


@behaviour
async def until_close(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body_of(asked.path))
    return False


@behaviour
async def chunked(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n")
    await writer.drain()
    writer.write(b"6\r\n world\r\n0\r\nX-Trailer: y\r\n\r\n")
    return True


def reset_of(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@behaviour
async def reset(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 100)
    await writer.drain()
    await asyncio.sleep(0.02)
    reset_of(writer)
    return False


@behaviour
async def reset_at_once(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    reset_of(writer)
    return False


@behaviour
async def flaky(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Breaks off ``fail`` times, then serves."""
    server.counts["flaky" + asked.path] += 1
    if server.counts["flaky" + asked.path] <= int(asked.query.get("fail", "1")):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 100)
        return False
    answer(writer, 200, body_of(asked.path))
    return True


@behaviour
async def interim(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    answer(writer, 200, body_of(asked.path))
    return True


@behaviour
async def closer(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Promises to keep the connection and closes it."""
    answer(writer, 200, body_of(asked.path), "Connection: keep-alive\r\n")
    return False


@behaviour
async def status(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    number = int(asked.path.rpartition("/")[2])
    if number in (204, 304):
        writer.write(f"HTTP/1.1 {number} Because\r\n\r\n".encode())
    else:
        answer(writer, number, b"" if asked.query.get("empty") else b"so it is")
    return True


@behaviour
async def later(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """429 with a Retry-After of ``after`` for ``fail`` times, then the file."""
    server.counts["later" + asked.path] += 1
    if server.counts["later" + asked.path] <= int(asked.query.get("fail", "1")):
        after = unquote(asked.query.get("after", ""))
        answer(writer, int(asked.query.get("status", "429")), b"", f"Retry-After: {after}\r\n" if after else "")
    else:
        answer(writer, 200, body_of(asked.path))
    return True


@behaviour
async def long_location(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 302, b"", f"Location: /ok/{'x' * 20_000}\r\n")
    return True


@behaviour
async def redirect(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, int(asked.query.get("status", "302")), b"moved", f"Location: {asked.query['to']}\r\n")
    return True


@behaviour
async def gone_on(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """A chain of redirects without an end."""
    number = int(asked.query.get("n", "0"))
    answer(writer, 302, b"", f"Location: {asked.path}?n={number + 1}\r\n")
    return True


@behaviour
async def identity(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """The transfer coding that is none: the body ends with the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n" + body_of(asked.path))
    return False


@behaviour
async def surplus(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """A file, and in the first run another answer behind it, which nobody asked for, after ``wait`` seconds."""
    answer(writer, 200, body_of(asked.path))
    if server.run == 0:
        await writer.drain()
        await asyncio.sleep(float(asked.query.get("wait", "0")))
        answer(writer, 404, b"gone")
    return True


@behaviour
async def tagged(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Knows its validators."""
    etag, date = '"tag-1"', "Sat, 02 May 2009 10:00:00 GMT"
    given = asked.headers.get("if-none-match") == etag or asked.headers.get("if-modified-since") == date
    if given:
        writer.write(f"HTTP/1.1 304 Not Modified\r\nETag: {etag}\r\n\r\n".encode())
    else:
        answer(writer, 200, b"tagged", f"ETag: {etag}\r\nLast-Modified: {date}\r\n")
    return True


class _Slow(asyncio.Protocol):
    """Answers every request after a fixed time, at the least cost."""

    def __init__(self, latency: float) -> None:
        self._latency = latency

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._latency, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@contextlib.contextmanager
def slow_hosts(hosts: int, latency: float) -> Iterator[list[str]]:
    """Origins that answer everything after ``latency`` seconds."""
    sockets, port = _listen(hosts)
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        for listener in sockets:
            await loop.create_server(lambda: _Slow(latency), sock=listener)

    loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield [f"http://127.0.0.{number}:{port}" for number in range(1, hosts + 1)]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        for listener in sockets:
            listener.close()


@contextlib.contextmanager
def hostile_server(hosts: int = 1, tls: ssl.SSLContext | None = None) -> Iterator[Hostile]:
    """A :class:`Hostile` for a with statement."""
    server = Hostile(hosts, tls)
    try:
        yield server
    finally:
        server.close()
