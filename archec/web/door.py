"""The public entry to the web, for everything except the fetching of files: an httpx client with a policy.

::

    async with open_client(Policy.of(config.fetch, config.agent, "platform")) as client:
        response = await client.get("https://api.example.org/records/7")
        async with client.stream("GET", url, headers={"Range": "bytes=0-99"}) as response:
            async for piece in response.aiter_raw():
                ...

It can do what ``httpx.AsyncClient`` can: any method, JSON, bodies that stream in both directions. Redirects are
followed only where ``follow_redirects=True`` asks for it, and each hop is judged by the guard like a first URL.
Addresses that are not public are open only to requests that say with ``extensions=named(url)`` that the operator has
named their host. There are no cookies, and of the environment only the proxies count.

A ``Sender`` does less, and takes half the time: it sends a request and gives the answer to just that.

What goes wrong is one of ``EXPECTED``; ``fault_of`` says in which outcome and message it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar, cast

import httpx
from httpx import URL, Request, Response
from httpx import AsyncClient as Client
from httpx import Client as BlockingClient

from archec.web.connect import named
from archec.web.faults import EXPECTED, Denied, TooLarge, fault_of
from archec.web.guard import Resolver
from archec.web.headers import unpack
from archec.web.policy import Deny, Policy, Tuning
from archec.web.transport import transports

__all__ = [
    "EXPECTED",
    "URL",
    "BlockingClient",
    "Client",
    "Policy",
    "Response",
    "Sender",
    "TooLarge",
    "content",
    "fault_of",
    "named",
    "open_blocking_client",
    "open_client",
]

T = TypeVar("T")

_CONCURRENCY = 64
"""Maximum number of idle connections."""
_MAX_REDIRECTS = 10
_NO_BODY = httpx.ByteStream(b"")


def open_client(policy: Policy, *, resolver: Resolver | None = None, tuning: Tuning | None = None) -> Client:
    """A client under a policy, for ``async with``; many requests may be in progress at once."""
    return Client(transport=_Bounded(policy, resolver, tuning or Tuning()), **_settings(policy))


def open_blocking_client(policy: Policy, *, resolver: Resolver | None = None) -> BlockingClient:
    """The same for code without an event loop, for ``with`` and one thread; what it sends must be in memory."""
    return BlockingClient(transport=_Blocking(policy, resolver), **_settings(policy))


class Sender:
    """Sends single requests under a policy, for ``async with``; many may be in progress at once."""

    def __init__(self, policy: Policy) -> None:
        settings = _settings(policy)
        self._transport = _Bounded(policy, None, Tuning())
        self._headers = httpx.Headers(settings["headers"])
        self._timeout = {"timeout": settings["timeout"].as_dict()}

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def send(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str] | None = None,
        content: AsyncIterator[bytes] | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> Response:
        """The answer, whose body streams and which the caller closes. Raises one of ``EXPECTED``."""
        lines = self._headers
        if headers:
            lines = httpx.Headers(lines, encoding="utf-8")
            lines.update([(_bytes(name), _bytes(value)) for name, value in headers.items()])
        # httpx is not asked for the headers of a body where there is none.
        stream = _NO_BODY if content is None and method in ("GET", "HEAD") else None
        extensions = {**self._timeout, **(extensions or {})}
        request = Request(method, url, headers=lines, content=content, stream=stream, extensions=extensions)
        if url.userinfo:
            next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response


def _bytes(text: str) -> bytes:
    """A part of a header as it was read."""
    return text.encode("utf-8", "surrogateescape")


async def content(response: Response, limit: int) -> bytes:
    """The whole body of an answer, decompressed where it came compressed, of at most ``limit`` bytes.

    Raises:
        TooLarge: it is larger.
        httpx.RemoteProtocolError: it came in an encoding that no one asked for.
        httpx.TransportError: it did not come to its end.
    """
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_raw():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLarge(f"larger than {limit} bytes")
    data = unpack(b"".join(pieces), response.headers.get("content-encoding", ""), limit + 1)
    if data is None:
        raise httpx.RemoteProtocolError("the response has an encoding that was not requested")
    if len(data) > limit:
        raise TooLarge(f"larger than {limit} bytes")
    return data


def _settings(policy: Policy) -> dict[str, Any]:
    return {
        "headers": {"User-Agent": policy.agent, "Accept": "*/*", "Accept-Encoding": "identity"},
        "timeout": httpx.Timeout(policy.idle_timeout or None, connect=policy.connect_timeout, pool=None),
        "max_redirects": _MAX_REDIRECTS,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        "trust_env": False,
    }


class _Bounded(httpx.AsyncBaseTransport):
    """The door with the bounds of a policy on every answer."""

    def __init__(self, policy: Policy, resolver: Resolver | None, tuning: Tuning) -> None:
        self._policy = policy
        self._deny = Deny(policy.deny)
        self._grace = tuning.rate_grace
        self._carriers = transports(policy, tuning, _CONCURRENCY, resolver)

    async def handle_async_request(self, request: Request) -> Response:
        """See ``DirectTransport``."""
        if reason := self._deny.reason(str(request.url)):
            raise Denied(reason)
        carrier = self._carriers.ftp if request.url.scheme == "ftp" else self._carriers.http
        started = asyncio.get_running_loop().time()
        response = await carrier.handle_async_request(request)
        stream = cast(httpx.AsyncByteStream, response.stream)
        if (limit := self._policy.max_size) and request.method != "HEAD":
            length = response.headers.get("content-length", "")
            if length.isdecimal() and int(length[:18]) > limit:
                await stream.aclose()
                raise TooLarge(f"larger than {limit} bytes")
        response.stream = _BoundedBody(stream, self._policy, started, self._grace)
        return response

    async def aclose(self) -> None:
        """Closes the idle connections."""
        await self._carriers.http.aclose()
        await self._carriers.ftp.aclose()


class _BoundedBody(httpx.AsyncByteStream):
    """A body that ends in an error where it is too large, too slow or takes too long.

    It is judged piece by piece: silence, which ``idle_timeout`` ends, may add that much to ``total_timeout``. Before
    it, ``connect_timeout`` bounds name, connection and TLS together, and ``idle_timeout`` the whole head of the answer.
    """

    def __init__(self, stream: httpx.AsyncByteStream, policy: Policy, started: float, grace: float) -> None:
        self._stream, self._policy, self._started, self._grace = stream, policy, started, grace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop, policy = asyncio.get_running_loop(), self._policy
        waited, size = 0.0, 0
        begun = loop.time()
        async for piece in self._stream:
            size += len(piece)
            now = loop.time()
            waited += now - begun
            if policy.max_size and size > policy.max_size:
                raise TooLarge(f"larger than {policy.max_size} bytes")
            if policy.total_timeout and now - self._started > policy.total_timeout:
                raise httpx.ReadTimeout(f"took longer than {policy.total_timeout:g} s")
            if waited > self._grace and size < policy.min_rate * waited:
                raise httpx.ReadTimeout(f"slower than {policy.min_rate} bytes per second")
            yield piece
            begun = loop.time()  # what the reader does meanwhile is not the server's time

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Blocking(httpx.BaseTransport):
    """The same for code that waits: runs it on an event loop of its own."""

    def __init__(self, policy: Policy, resolver: Resolver | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._door = _Bounded(policy, resolver, Tuning())

    def handle_request(self, request: Request) -> Response:
        """See ``DirectTransport``."""
        response = self._run(self._door.handle_async_request(request))
        response.stream = _BlockingBody(self._run, cast(httpx.AsyncByteStream, response.stream))
        return response

    def close(self) -> None:
        """Closes the idle connections and the event loop."""
        self._run(self._door.aclose())
        self._loop.close()

    def _run(self, doing: Awaitable[T]) -> T:
        return self._loop.run_until_complete(doing)


class _BlockingBody(httpx.SyncByteStream):
    def __init__(self, run: Any, stream: httpx.AsyncByteStream) -> None:
        self._run, self._stream = run, stream

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._stream.__aiter__()
        while piece := self._run(anext(pieces, b"")):
            yield piece

    def close(self) -> None:
        self._run(self._stream.aclose())
