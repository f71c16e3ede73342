"""A real HTTP/2 server over TLS in a thread, good and bad by path; it speaks HTTP/1.1 to who asks for that."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fetch_hostile import PORTS, body_of
from fetch_tls import certificate
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

Behaviour = Callable[["Link", int, dict[str, str]], Coroutine[Any, Any, None]]
BEHAVIOURS: dict[str, Behaviour] = {}
DATA, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = 0, 3, 4, 5, 6, 7
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int = -1) -> bytes:
    """A frame as it travels; ``length`` may lie."""
    stated = len(payload) if length < 0 else length
    return stated.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + b"bye")


def behaviour(function: Behaviour) -> Behaviour:
    """Registers a behaviour under its name."""
    BEHAVIOURS["/" + function.__name__.replace("_", "-")] = function
    return function


class H2Server:
    """Listens on 127.0.0.1.

    ``most`` is how many requests it takes at once on a connection, ``last`` how many it takes on one at all.
    """

    def __init__(
        self, folder: Path, protocols: tuple[str, ...] = ("h2", "http/1.1"), most: int = 100, last: int = 10_000
    ) -> None:
        self._tls, _ = certificate(folder, "127.0.0.1")
        self._tls.set_alpn_protocols(list(protocols))
        self.cert = folder / "cert.pem"
        self.most = most
        self.last = last
        self.counts: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.versions: Counter[str] = Counter()
        self.connections = 0
        self.open = 0
        self.reset: list[tuple[int, int]] = []
        """Streams that the client gave up, with the code it gave."""
        self.at_once = 0
        """Most requests that were in work on one connection."""
        self._loop = asyncio.new_event_loop()
        self.links: set[Link] = set()
        for self.port in PORTS:
            with contextlib.suppress(OSError):
                self._server = self._loop.run_until_complete(
                    self._loop.create_server(lambda: Link(self), "127.0.0.1", self.port, ssl=self._tls)
                )
                break
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def trust(self) -> ssl.SSLContext:
        """A client's context that trusts this server."""
        return ssl.create_default_context(cafile=str(self.cert))

    def drop_connections(self) -> None:
        """Closes every connection that is open."""

        async def drop() -> None:
            for link in list(self.links):
                link.transport.abort()

        asyncio.run_coroutine_threadsafe(drop(), self._loop).result(10)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for link in list(self.links):
                link.transport.abort()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextlib.contextmanager
def h2_server(
    folder: Path, protocols: tuple[str, ...] = ("h2", "http/1.1"), most: int = 100, last: int = 10_000
) -> Iterator[H2Server]:
    """An :class:`H2Server` for a with statement."""
    server = H2Server(folder, protocols, most, last)
    try:
        yield server
    finally:
        server.close()


class Link(asyncio.Protocol):
    """One connection of the server."""

    def __init__(self, server: H2Server) -> None:
        self.server = server
        self.lost = False
        self.window_moved = asyncio.Event()
        self.drained = asyncio.Event()
        self.drained.set()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.links.add(self)
        self.server.connections += 1
        self.server.open += 1
        self.newer = transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        if self.newer:
            self.h2 = H2Connection(
                H2Configuration(client_side=False, header_encoding="latin-1", validate_outbound_headers=False)
            )
            most = {SettingCodes.MAX_CONCURRENT_STREAMS: self.server.most}
            self.h2.local_settings = Settings(client=False, initial_values=most)
            self.h2.initiate_connection()
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.transport.close()  # before Python 3.11 one over TLS does not know by itself that it is closed
        self.server.links.discard(self)
        self.server.open -= 1
        for task in self._tasks.values():
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if not self.newer:
            self._older(data)
            return
        try:
            events = self.h2.receive_data(data)
        except H2Error:
            self.transport.abort()
            return
        for event in events:
            if isinstance(event, RequestReceived):
                self._asked(event.stream_id, dict(event.headers))
            elif isinstance(event, WindowUpdated):
                self.window_moved.set()
            elif isinstance(event, StreamReset):
                self.server.reset.append((event.stream_id, int(event.error_code)))
                if event.stream_id in self._tasks:
                    self._tasks[event.stream_id].cancel()
            elif isinstance(event, ConnectionTerminated):
                self.transport.close()
        self.flush()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    def flush(self) -> None:
        self.raw(b"")

    def raw(self, data: bytes) -> None:
        """Sends bytes that h2 knows nothing of, after what it has to send."""
        data = self.h2.data_to_send() + data
        if data and not (self.lost or self.transport.is_closing()):
            self.transport.write(data)

    def head(self, stream: int, status: str, *headers: tuple[str, str], end: bool = False) -> None:
        self.h2.send_headers(stream, [(":status", status), *headers], end_stream=end)
        self.flush()

    async def body(self, stream: int, data: bytes, end: bool = True) -> None:
        """Sends as the client lets it."""
        rest = memoryview(data)
        while rest:
            size = min(len(rest), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if size:
                self.h2.send_data(stream, bytes(rest[:size]))
                rest = rest[size:]
                self.flush()
            else:
                self.window_moved.clear()
                await self.window_moved.wait()
        if end:
            self.h2.end_stream(stream)
            self.flush()

    def _asked(self, stream: int, headers: dict[str, str]) -> None:
        server = self.server
        if stream > 2 * server.last:
            return
        if stream + 1 == 2 * server.last:
            self.raw(goaway(stream))
        server.counts[headers[":path"]] += 1
        server.headers.append(headers)
        server.versions["HTTP/2"] += 1
        path = urlsplit(headers[":path"]).path
        acting = BEHAVIOURS.get("/" + path.split("/")[1], missing)
        task = self._tasks[stream] = asyncio.get_running_loop().create_task(acting(self, stream, headers))
        server.at_once = max(server.at_once, sum(not task.done() for task in self._tasks.values()))
        task.add_done_callback(lambda _: self._tasks.pop(stream))

    def _older(self, data: bytes) -> None:
        self._text += data
        while b"\r\n\r\n" in self._text:
            head, self._text = self._text.split(b"\r\n\r\n", 1)
            target = head.split(b" ")[1].decode()
            self.server.counts[target] += 1
            self.server.versions["HTTP/1.1"] += 1
            body = body_of(target)
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def missing(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "404", ("content-length", "2"))
    await link.body(stream, b"no")


def query(headers: dict[str, str], name: str, default: str) -> str:
    return parse_qs(urlsplit(headers[":path"]).query).get(name, [default])[0]


@behaviour
async def ok(link: Link, stream: int, headers: dict[str, str]) -> None:
    await asyncio.sleep(float(query(headers, "wait", "0")))
    body = body_of(headers[":path"])
    link.head(stream, "200", ("content-type", "application/pdf"), ("content-length", str(len(body))))
    await link.body(stream, body)


@behaviour
async def big(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await link.body(stream, b"x" * int(query(headers, "size", "900000")))


@behaviour
async def empty(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", end=True)


@behaviour
async def padded(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    for _ in range(20):
        link.h2.send_data(stream, b"x" * 10, pad_length=200)
    await link.body(stream, b"x")


@behaviour
async def trailers(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await link.body(stream, b"body", end=False)
    link.h2.send_headers(stream, [("x-checksum", "1")], end_stream=True)
    link.flush()


@behaviour
async def interim(link: Link, stream: int, headers: dict[str, str]) -> None:
    for _ in range(3):
        link.head(stream, "103", ("link", "</style.css>"))
    await ok(link, stream, headers)


@behaviour
async def sloppy(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", ("connection", "keep-alive"), ("Server", " old "), ("x-\xe9", "\xe9"))
    await link.body(stream, b"body")


@behaviour
async def not_modified(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "304" if "if-none-match" in headers else "200", ("content-length", "500"), end=True)


@behaviour
async def redirect(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "302", ("location", "/ok"), end=True)


@behaviour
async def status(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, headers[":path"].rpartition("/")[2], end=True)


@behaviour
async def goodbye(link: Link, stream: int, headers: dict[str, str]) -> None:
    """As nginx after a thousand requests: says that it closes, and answers what it has been asked."""
    link.head(stream, "200")
    await link.body(stream, b"x" * 100, end=False)
    notice = goaway(stream)
    link.raw(notice[:5])
    link.raw(notice[5:] + frame(DATA, 0, stream, b"y" * 100))
    link.raw(frame(DATA, END_STREAM, stream, b"z" * 100))


@behaviour
async def not_looked_at(link: Link, stream: int, headers: dict[str, str]) -> None:
    """The first time the connection is closed before the request is looked at."""
    if link.server.counts[headers[":path"]] == 1:
        link.raw(goaway(max(0, stream - 2)))
    else:
        await ok(link, stream, headers)


@behaviour
async def refused_once(link: Link, stream: int, headers: dict[str, str]) -> None:
    if link.server.counts[headers[":path"]] == 1:
        link.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        link.flush()
    else:
        await ok(link, stream, headers)


@behaviour
async def refused(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
    link.flush()


@behaviour
async def older(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.h2.reset_stream(stream, ErrorCodes.HTTP_1_1_REQUIRED)
    link.flush()


@behaviour
async def reset_head(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.h2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
    link.flush()


@behaviour
async def reset_body(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await link.body(stream, b"x" * 1000, end=False)
    link.raw(frame(RST_STREAM, 0, stream, (0x1234).to_bytes(4, "big")))


@behaviour
async def short(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", ("content-length", "100"))
    link.raw(frame(DATA, END_STREAM, stream, b"x" * 50))


@behaviour
async def long(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", ("content-length", "100"))
    link.raw(frame(DATA, END_STREAM, stream, b"x" * 150))


@behaviour
async def hang_up(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.transport.close()


@behaviour
async def hang_up_body(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", ("content-length", "100"))
    await link.body(stream, b"x", end=False)
    link.transport.close()


@behaviour
async def never(link: Link, stream: int, headers: dict[str, str]) -> None:
    await asyncio.sleep(60)


@behaviour
async def silent_body(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await link.body(stream, b"x", end=False)
    await asyncio.sleep(60)


@behaviour
async def drip(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    while not link.lost:
        await link.body(stream, b"x", end=False)
        await asyncio.sleep(0.02)


@behaviour
async def huge(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    while not link.lost:
        await link.body(stream, b"x" * 65_536, end=False)


@behaviour
async def deaf(link: Link, stream: int, headers: dict[str, str]) -> None:
    """Endless, and it goes on when it is told to stop."""
    link.head(stream, "200")
    while not link.lost:
        link.raw(frame(DATA, 0, stream, b"x" * 16_000))
        await asyncio.sleep(0)
        await link.drained.wait()


@behaviour
async def headers_many(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", *[(f"x-{n}", "y") for n in range(300)])


@behaviour
async def headers_large(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200", *[(f"x-{n}", "y" * 10_000) for n in range(20)])


@behaviour
async def headers_endless(link: Link, stream: int, headers: dict[str, str]) -> None:
    while not link.lost:
        link.head(stream, "103", ("x", "y" * 3000))
        await asyncio.sleep(0)
        await link.drained.wait()


async def _flood(link: Link, data: bytes) -> None:
    while not link.lost:
        link.raw(data * 500)
        await asyncio.sleep(0)
        await link.drained.wait()


@behaviour
async def pings(link: Link, stream: int, headers: dict[str, str]) -> None:
    await _flood(link, frame(PING, 0, 0, b"12345678"))


@behaviour
async def settings_flood(link: Link, stream: int, headers: dict[str, str]) -> None:
    await _flood(link, frame(SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64"))


@behaviour
async def empty_frames(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await _flood(link, frame(DATA, 0, stream))


@behaviour
async def crumbs(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await _flood(link, frame(DATA, 0, stream, b"x"))


@behaviour
async def pings_and_crumbs(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "200")
    await _flood(link, frame(PING, 0, 0, b"12345678") * 20 + frame(DATA, 0, stream, b"x"))


@behaviour
async def lines(link: Link, stream: int, headers: dict[str, str]) -> None:
    """A page that is sent line by line."""
    link.head(stream, "200")
    for _ in range(2500):
        await link.body(stream, b"x" * 80, end=False)
    await link.body(stream, b"x")


@behaviour
async def unknown_frames(link: Link, stream: int, headers: dict[str, str]) -> None:
    await _flood(link, frame(0x77, 0, stream, b"what"))


@behaviour
async def push(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(frame(PUSH_PROMISE, END_HEADERS, stream, (2).to_bytes(4, "big") + b"\x82"))


@behaviour
async def garbage(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@behaviour
async def large_frame(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(frame(DATA, 0, stream, b"x", 1 << 20))


@behaviour
async def bad_goaway(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(frame(GOAWAY, 0, 0, b"1234"))


@behaviour
async def bad_compression(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(frame(1, END_HEADERS, stream, b"\xff\xff\xff\xff\xff\xff"))


@behaviour
async def no_status(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.raw(frame(1, END_HEADERS | END_STREAM, stream, b"\x00\x01x\x01y"))


@behaviour
async def strange_status(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "2000", end=True)


@behaviour
async def switch(link: Link, stream: int, headers: dict[str, str]) -> None:
    link.head(stream, "101")
