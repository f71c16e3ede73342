"""The door under an httpx client: methods, bodies in both directions, ranges, redirects, limits, and the guard."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import gzip
import json
import re
import socket
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx
import pytest
from anyio import move_on_after
from hypothesis import example, given
from hypothesis import strategies as st
from web_support import QUICK

from archec.config import Denial, FetchConfig
from archec.web.door import (
    BlockingSender,
    Sender,
    TooLarge,
    WebError,
    content,
)
from archec.web.guard import Connector, Guard, Resolver, within
from archec.web.h1 import H1Connection
from archec.web.messages import Request, Response, located, origin_at, same_origin, trusted
from archec.web.outcome import BadUrl, Blocked, Denied, Outcome, ProtocolError, TimedOut
from archec.web.policy import limited
from archec.web.tls import Tls

AGENT = "archec/0.1 (test)"
CONFIG = FetchConfig(
    idle_timeout=1.0, connect_timeout=2.0, total_timeout=0.0, min_rate=0, max_size=0, old_tls=False
)


HEADERS = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
NO_COOKIES = CookieJar(DefaultCookiePolicy(allowed_domains=()))


class Over(httpx.AsyncBaseTransport):
    """A sender as a transport of httpx, whose client has more features than the door."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name.decode(): value.decode() for name, value in request.headers.raw}
        content = cast(AsyncIterator[bytes], request.stream).__aiter__()
        is_framed = "content-length" in request.headers
        url, named = str(request.url), request.extensions.get("named")
        trusted = named is not None and located(named)[0] == located(url)[0]
        sent = await self._sender.send(request.method, url, headers, content if is_framed else None, named=trusted)
        return httpx.Response(sent.status_code, headers=list(sent.raw), stream=Stream(sent))


class Stream(httpx.AsyncByteStream):
    def __init__(self, response: Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response

    async def aclose(self) -> None:
        self._response.close()


def named(url: str) -> dict[str, str]:
    """Request extensions for a URL that the operator has configured."""
    return {"named": url}


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked; some paths behave otherwise."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"", *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def handle_any(self) -> None:
        self.server.seen.append((self.command, self.path, self.client_address[1], dict(self.headers)))  # type: ignore[attr-defined]
        if self.path.startswith("/to/"):
            self.answer(302, b"", ("Location", self.path[4:]), ("Set-Cookie", "session=1"))
        elif self.path == "/refuse":
            self.answer(413, b"no")
            self.close_connection = True
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            for _ in range(40):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
            self.close_connection = True
        elif self.path == "/silent":
            self.server.gate.wait(10)  # type: ignore[attr-defined]
            self.close_connection = True
        elif self.path == "/gzip":
            self.answer(200, gzip.compress(b"0" * 1_000_000), ("Content-Encoding", "gzip"))
        elif self.path == "/coded":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "gzip, chunked")
            self.end_headers()
            packed = gzip.compress(b"x")
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed))
        elif self.path == "/range":
            first, last = (int(part) for part in self.headers["Range"].removeprefix("bytes=").split("-"))
            self.answer(206, bytes(range(256))[first : last + 1], ("Content-Range", f"bytes {first}-{last}/256"))
        else:
            asked = {"method": self.command, "path": self.path, "size": len(self.body()), "headers": dict(self.headers)}
            self.answer(200, json.dumps(asked).encode())

    def log_message(self, *_: object) -> None:
        return


for _method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
    setattr(_Echo, f"do_{_method}", _Echo.handle_any)


class EchoServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.seen: list[tuple[str, str, int, dict[str, str]]] = []
        self.gate = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.gate.set()
        server.shutdown()


def through(act: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]], config: FetchConfig = CONFIG) -> Any:
    async def run() -> Any:
        async with (
            Sender(config, AGENT, "fetch", dataclasses.replace(QUICK, rate_grace=0.2)) as sender,
            httpx.AsyncClient(transport=Over(sender), headers=HEADERS, cookies=NO_COOKIES) as client,
        ):
            return await act(client)

    return asyncio.run(run())


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_any_method_with_json_and_headers(echo: EchoServer, method: str) -> None:
    async def act(client: httpx.AsyncClient) -> Any:
        sent = {"json": {"a": 1}} if method in ("POST", "PUT", "PATCH") else {}
        response = await client.request(
            method, f"{echo.url}/x", headers={"Authorization": "Bearer t"}, extensions=named(echo.url), **sent
        )
        return response.json()

    asked = through(act)
    assert (asked["method"], asked["size"]) == (method, 7 if method in ("POST", "PUT", "PATCH") else 0)
    assert asked["headers"]["Authorization"] == "Bearer t"
    assert asked["headers"]["User-Agent"] == "archec/0.1 (test)"


def test_head_has_no_body_and_keeps_its_connection(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        for _ in range(3):
            response = await client.head(f"{echo.url}/x", extensions=named(echo.url))
            assert int(response.headers["content-length"]) > 0
            assert response.content == b""

    through(act)
    assert len({port for _, _, port, _ in echo.seen}) == 1


def test_a_range_is_asked_for_and_given(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> tuple[int, bytes]:
        response = await client.get(f"{echo.url}/range", headers={"Range": "bytes=5-8"}, extensions=named(echo.url))
        return response.status_code, response.content

    assert through(act) == (206, b"\x05\x06\x07\x08")


def test_bodies_stream_in_both_directions(echo: EchoServer) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65_536
            yield b""

    async def act(client: httpx.AsyncClient) -> Any:
        url, length = f"{echo.url}/x", {"Content-Length": str(64 * 65_536)}
        async with client.stream("PUT", url, content=pieces(), headers=length, extensions=named(url)) as response:
            return json.loads(b"".join([piece async for piece in response.aiter_raw()]))

    assert through(act)["size"] == 64 * 65_536


def test_an_answer_before_the_end_of_the_body_is_the_answer(echo: EchoServer) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 65_536
            yield b"x" * 65_536

    async def act(client: httpx.AsyncClient) -> int:
        url, length = f"{echo.url}/refuse", {"Content-Length": str(10_000 * 65_536)}
        try:
            return (await client.post(url, content=pieces(), headers=length, extensions=named(url))).status_code
        except WebError as error:  # the server's reset may overtake its answer
            return 413 if error.outcome is Outcome.UNREACHABLE else 0

    assert through(act) == 413
    assert sent < 10_000 * 65_536


def test_what_must_not_be_sent_twice_has_a_connection_of_its_own(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        for method in ("GET", "POST", "POST", "GET"):
            await client.request(method, f"{echo.url}/x", extensions=named(echo.url))

    through(act)
    ports = [port for _, _, port, _ in echo.seen]
    assert len({ports[1], ports[2], ports[0]}) == 3


def test_a_server_that_the_operator_has_named_keeps_its_connection(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        for _ in range(50):
            await client.get(f"{echo.url}/x", extensions=named(echo.url))

    through(act)
    assert len({port for _, _, port, _ in echo.seen}) == 1


def test_only_named_origins_are_exempt_from_the_guard(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        with pytest.raises(Blocked):
            await client.get(f"{echo.url}/x")
        assert (await client.get(f"{echo.url}/x", extensions=named(echo.url))).status_code == 200
        with pytest.raises(Blocked):  # nor on the connection that is open now
            await client.get(f"{echo.url}/x")
        with pytest.raises(Blocked):
            await client.get(f"{echo.url}/x", extensions=named("http://127.0.0.1:1/"))

    through(act)
    assert len(echo.seen) == 1


@pytest.mark.parametrize(
    "denial", [Denial(hosts=("127.0.0.1",)), Denial(urls=("http://127*/x",)), Denial(networks=("127.0.0.0/8",))]
)
def test_what_is_denied_is_not_asked_for_even_where_it_is_named(echo: EchoServer, denial: Denial) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        await client.get(f"{echo.url}/x", extensions=named(echo.url))

    with pytest.raises(WebError) as error:
        through(act, dataclasses.replace(CONFIG, deny=(denial,)))
    assert error.value.outcome is Outcome.DENIED


def test_a_request_that_is_given_up_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever moment: also when the connection is made just then."""
    made: list[H1Connection] = []
    connected = H1Connection.connection_made

    def remember(self: H1Connection, transport: asyncio.BaseTransport) -> None:
        made.append(self)
        connected(self, transport)

    monkeypatch.setattr(H1Connection, "connection_made", remember)

    async def run(port: int) -> None:
        connector = Connector(Guard(Resolver(1), ["127.0.0.0/8"]), Tls())
        for number in range(600):
            with move_on_after(number % 60 / 50_000):
                (await connector.connect("http", "127.0.0.1", port)).abort()
        await asyncio.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0), backlog=2000) as listener:
        asyncio.run(run(listener.getsockname()[1]))
    assert made
    assert all(connection.lost for connection in made)


@pytest.mark.parametrize(("size", "body"), [(140_000, b"ok"), (140_000, b""), (100_000, b"ok")])
def test_headers_have_a_limit_also_if_the_body_is_read_with_them(size: int, body: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\nX: " + b"x" * size + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        connection = H1Connection(loop, memoryview(bytearray(2 * size)))
        with ours, theirs:
            await loop.create_connection(lambda: connection, sock=ours)
            loop.call_soon(theirs.sendall, data)
            await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            return await connection.read()

    ours, theirs = socket.socketpair()
    if size < 128_000:
        assert asyncio.run(run()) == body
    else:
        with pytest.raises(ProtocolError, match="the header block exceeds 128000 bytes"):
            asyncio.run(run())


def test_a_timeout_of_the_system_is_not_one_of_ours() -> None:
    async def step(error: Exception | None) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="by the kernel"):
        asyncio.run(within(5, step(TimeoutError(errno.ETIMEDOUT, "by the kernel")), "it"))
    with pytest.raises(TimedOut, match="it took too long"):
        asyncio.run(within(0.01, step(None), "it"))


def test_redirects_are_followed_on_demand_and_guarded(echo: EchoServer) -> None:
    with EchoServer() as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()

        async def act(client: httpx.AsyncClient) -> None:
            exempt = named(echo.url)
            assert (await client.get(f"{echo.url}/to//x", extensions=exempt)).status_code == 302
            within = await client.get(f"{echo.url}/to//x", extensions=exempt, follow_redirects=True)
            assert within.status_code == 200
            assert "Cookie" not in within.json()["headers"]
            with pytest.raises(Blocked):
                await client.get(f"{echo.url}/to/{other.url}/x", extensions=exempt, follow_redirects=True)
            with pytest.raises(httpx.TooManyRedirects):
                await client.get(f"{echo.url}/to/" * 12, extensions=exempt, follow_redirects=True)

        through(act)
        other.shutdown()
        assert other.seen == []


@pytest.mark.parametrize(
    ("path", "limits", "outcome"),
    [
        ("/silent", {"idle_timeout": 0.2}, Outcome.TIMEOUT),
        ("/slow", {"min_rate": 1000}, Outcome.TIMEOUT),
        ("/slow", {"total_timeout": 0.3}, Outcome.TIMEOUT),
        ("/slow", {"max_size": 5}, Outcome.TOO_LARGE),
        ("/x", {"max_size": 5}, Outcome.TOO_LARGE),
        ("/coded", {}, Outcome.SERVER_ERROR),
    ],
)
def test_answers_are_bounded_and_plain(echo: EchoServer, path: str, limits: dict[str, float], outcome: Outcome) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        await client.get(f"{echo.url}{path}", extensions=named(echo.url))

    with pytest.raises(WebError) as error:
        through(act, dataclasses.replace(CONFIG, **limits))
    assert error.value.outcome is outcome


def test_a_reader_s_own_pauses_do_not_count_as_slowness() -> None:
    async def run(slow: float) -> int:
        clock, waits = [0.0], iter((1, 1, slow))

        async def read() -> bytes:
            wait = next(waits, 0)
            clock[0] += wait
            return b"x" * 10 if wait else b""

        request = Request("GET", origin_at("http://a.example"), b"/")
        response = Response(request, 200, (), read, lambda: None)
        response.bound(dataclasses.replace(CONFIG, min_rate=5), 0.5, 0, clock=lambda: clock[0])
        size = 0
        async for piece in response:
            size += len(piece)
            clock[0] += 100
        return size

    assert asyncio.run(run(1)) == 30
    with pytest.raises(TimedOut):
        asyncio.run(run(10))


def test_a_compressed_answer_is_bounded_as_it_is_unpacked(echo: EchoServer) -> None:
    async def received(limit: int) -> bytes:
        async with Sender(CONFIG, AGENT, "fetch") as sender:
            response = await sender.send("GET", f"{echo.url}/gzip", named=True)
            return await content(response, limit)

    assert asyncio.run(received(1_000_000)) == b"0" * 1_000_000
    with pytest.raises(TooLarge):
        asyncio.run(received(999_999))


def test_a_header_cannot_end_its_line(echo: EchoServer) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        await client.get(f"{echo.url}/x", headers={"X-A": "1\r\nX-B: 2"}, extensions=named(echo.url))

    with pytest.raises(WebError):
        through(act)
    assert echo.seen == []


def test_the_same_without_an_event_loop(echo: EchoServer) -> None:
    with BlockingSender(CONFIG, AGENT, "fetch") as sender:
        for method in ("GET", "POST"):
            response = sender.send(method, f"{echo.url}/x", named=True)
            assert json.loads(b"".join(sender.pieces(response)))["method"] == method
        sender.send("GET", f"{echo.url}/x", named=True).close()
        with pytest.raises(Blocked):
            sender.send("GET", f"{echo.url}/x")


def test_profiles() -> None:
    config = FetchConfig()
    fetch, platform, upload = (limited(config, profile) for profile in ("fetch", "platform", "upload"))
    assert (fetch.max_size, fetch.total_timeout, fetch.min_rate) == (500_000_000, 600.0, 500)
    assert (platform.max_size, platform.total_timeout, platform.min_rate) == (0, 0.0, 500)
    assert upload.min_rate == 0


@given(st.text("abZ09-._~!$&'()*+,;=:@/?%#[]{}|^ <>\"\\\u00fc\u3000", max_size=12))
@example("a%41b?c=%7e")
@example("a/./b/../c")
@example("%70rivate/a b")
def test_a_located_url_is_the_one_that_httpx_would_ask_for(rest: str) -> None:
    """Except for httpx's way to resolve dot segments. What is signed over its text stays as it is."""
    users = "m%40e:p%3aq@b\u00fc.example"
    for host in ("a.org", "A.org:0443", "10.0.0.1:443", "me:x@b.org:81", "[::1]:80", "[FE80::1]", users):
        for scheme, port in (("http", 80), ("https", 443)):
            whole = httpx.URL(f"{scheme}://{host}/{rest}")
            name, netloc = whole.raw_host.decode().lower(), whole.netloc.decode().lower()
            origin, target, authorization = located(f"{scheme}://{host}/{rest}")
            assert origin == (scheme, name, whole.port or port, netloc)
            assert re.fullmatch(rb"/[!-~]*", target)
            assert not re.search(rb"/\.\.?(?=[/?]|\Z)", target.partition(b"?")[0])
            if "/." not in f"/{rest}":
                assert target == whole.raw_path
            assert (authorization != b"") == (whole.userinfo != b"")
            if whole.userinfo:
                pair = f"{whole.username}:{whole.password}".encode()
                assert authorization == b"Basic " + b64encode(pair)


@pytest.mark.parametrize(
    ("one", "is_same"),
    [
        ("http://a.org/x", True), ("http://a.org:80/x", True), ("HTTP://A.org:080/x", True), ("http://x@a.org/", True),
        ("http://a.org#@b.org/", True), ("http://a.org:81/x", False), ("https://a.org/x", False),
        ("http://a.org@b.org/", False), ("http://b.org#@a.org/", False), ("http://a.org:99999/", False), ("/x", False),
    ],
)  # fmt: skip
def test_an_origin_is_that_which_is_requested(one: str, is_same: bool) -> None:
    assert same_origin(one, "http://a.org/y") == same_origin("http://a.org/y", one) == is_same


@pytest.mark.parametrize(
    ("url", "is_own", "user"),
    [
        ("http://me:x@a.org/cdx", True, b"me:x"),
        ("http://a.org:80/other", True, b"me:x"),
        ("http://you:y@a.org/other", True, b"you:y"),
        ("http://a.org#@b.org/", True, b"me:x"),
        ("http://a.org@b.org/", False, b"a.org:"),
        ("http://b.org/", False, b""),
    ],
)
def test_only_the_configured_origin_is_trusted_with_the_password(url: str, is_own: bool, user: bytes) -> None:
    at, named = trusted(url, "http://me:x@a.org/cdx")
    assert (at[:2], named) == (located(url)[:2], is_own)
    assert at.authorization == (b"Basic " + b64encode(user) if user else b"")


@pytest.mark.parametrize(
    "url",
    [
        "", "a.org", "//a.org/", "http:", "http:///x", "file:///etc/passwd", "gopher://a.org/", "http://a..org/\u00fc",
        "http://256.1.1.1/", "http://[::1/", "http://[fe80::1%25eth0]/", "http://[1.2.3.4]/",
        "http://a.org:0/", "http://a.org:65536/", "http://a.org:x/", "http://a.org:-1/", "http://a b.org/",
        "http://a.org/\n", "http://a.org/\x7f", "http://a\\b.org/", "http://%00.org/", "http://a.org/" + "x" * 70_000,
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_requested_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        located(url)


def test_a_sender_gives_the_answer_to_just_its_request(echo: EchoServer) -> None:
    async def run() -> None:
        async with Sender(CONFIG, AGENT, "fetch") as sender:
            url = echo.url.replace("//", "//me:secret@")
            for method, headers in (("GET", {}), ("POST", {"accept": "a/b", "Content-Length": "2"})):
                body = _pieces() if method == "POST" else None
                response = await sender.send(method, url, headers, body, named=True)
                seen = json.loads(await content(response, 10_000))
                assert (seen["method"], seen["size"]) == (method, 2 if body else 0)
                assert seen["headers"]["User-Agent"] == AGENT
                assert seen["headers"]["Authorization"] == "Basic bWU6c2VjcmV0"
                lowered = {name.lower(): value for name, value in seen["headers"].items()}
                assert lowered["accept"] == headers.get("accept", "*/*")
            fields = {"X-A": "\u00fc", "X-\u00fc": "\udcff"}
            odd = await sender.send("GET", f"{echo.url}/x", fields, named=True)
            assert json.loads(await content(odd, 10_000))["headers"]["X-A"].encode("latin-1") == "\u00fc".encode()
            redirect = await sender.send("GET", f"{echo.url}/to/x", named=True)
            assert (redirect.status_code, redirect.headers["location"]) == (302, "x")
            await redirect.aclose()
            with pytest.raises(Blocked):
                await sender.send("GET", echo.url)
        denial = Denial(urls=(f"{echo.url}/private/*",))
        async with Sender(dataclasses.replace(CONFIG, deny=(denial,)), AGENT, "fetch") as sender:
            response = await sender.send("GET", f"{echo.url}/x?q=%C3%BC", named=True)
            assert json.loads(await content(response, 10_000))["path"] == "/x?q=%C3%BC"
            for path in ("/private/x", "/private/\u00fc", "/x/%2e%2E/private/x", "/%70rivate/x", "/./private/x?%zz"):
                with pytest.raises(Denied):
                    await sender.send("GET", echo.url + path, named=True)

    async def _pieces() -> AsyncIterator[bytes]:
        yield b"ab"

    asyncio.run(run())
