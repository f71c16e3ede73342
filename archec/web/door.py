"""The public entry to the web, for everything except the fetching of files: an httpx client with a policy.

::

    async with open_client(Policy.of(config.fetch, config.agent, "platform")) as client:
        response = await client.get("https://api.example.org/records/7")
        async with client.stream("GET", url, headers={"Range": "bytes=0-99"}) as response:
            async for piece in response.aiter_raw():
                ...

The client has all features of ``httpx.AsyncClient``: any method, JSON, bodies that stream in both directions. Redirects
are followed only with ``follow_redirects=True``, and the guard checks each hop like a first URL. Private addresses are
allowed only for requests with ``extensions=named(url)``, which states that the operator has configured the host.
Cookies are ignored, and so is the environment, except for its proxies.

A ``Sender`` sends single requests without redirects, in half the time.

Errors are instances of ``EXPECTED``; ``fault_of`` maps each to an outcome and a message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar, cast

import httpx
from httpx import URL, Request, Response
from httpx import AsyncClient as Client
from httpx import Client as BlockingClient

from archec.web.connect import named, origin_url
from archec.web.faults import EXPECTED, TooLarge, fault_of
from archec.web.headers import unpack
from archec.web.policy import Policy, Tuning
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
    "located",
    "named",
    "open_blocking_client",
    "open_client",
]

T = TypeVar("T")

_CONCURRENCY = 64
"""Maximum number of idle connections."""
_MAX_REDIRECTS = 10
_NORMAL = re.compile(r"(https?://[a-z0-9.-]+(?::\d+)?)(/(?:[\w.~!$&()*+,;=:@/?-]|%[\dA-Fa-f]{2}){0,8192})", re.ASCII)
"""URLs that httpx would not change, split into origin and rest."""
_NO_BODY = httpx.ByteStream(b"")


def open_client(policy: Policy, *, tuning: Tuning | None = None) -> Client:
    """Returns a client for ``async with``. It may be used for many requests at once."""
    return Client(transport=_Bounded(policy, tuning or Tuning()), **_settings(policy))


def open_blocking_client(policy: Policy) -> BlockingClient:
    """The same for code without an event loop, for ``with`` and a single thread. Request bodies must be in memory."""
    return BlockingClient(transport=_Blocking(policy), **_settings(policy))


class Sender:
    """Sends single requests under a policy, for ``async with``. It may be used for many requests at once."""

    def __init__(self, policy: Policy) -> None:
        settings = _settings(policy)
        self._transport = _Bounded(policy, Tuning())
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
        """Sends a request and returns the response. The body streams, and the caller closes the response. Raises
        ``EXPECTED``."""
        lines = self._headers
        if headers:
            lines = httpx.Headers(lines, encoding="utf-8")
            lines.update([(_bytes(name), _bytes(value)) for name, value in headers.items()])
        # Without a body, keep httpx from computing the headers of one.
        stream = _NO_BODY if content is None and method in ("GET", "HEAD") else None
        extensions = {**self._timeout, **(extensions or {})}
        request = Request(method, url, headers=lines, content=content, stream=stream, extensions=extensions)
        if url.userinfo:
            next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response


def located(url: str) -> tuple[URL, dict[str, Any]]:
    """Returns URL and extensions for a request of a ``Sender``: the URL of the origin, which is parsed only once, and
    the rest as ``target``. A URL that is not normalised is parsed as a whole. Raises httpx.InvalidURL."""
    found = _NORMAL.fullmatch(url)
    if found is None or "/." in found[2]:
        return URL(url), {}
    return origin_url(found[1]), {"target": found[2].encode("ascii")}


def _bytes(text: str) -> bytes:
    """Encodes a part of a header. Undecodable bytes are restored."""
    return text.encode("utf-8", "surrogateescape")


async def content(response: Response, limit: int) -> bytes:
    """The complete body of a response, decompressed if necessary, of at most ``limit`` bytes.

    Raises:
        TooLarge: it is larger.
        httpx.RemoteProtocolError: it has an encoding that was not requested.
        httpx.TransportError: it is incomplete.
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
    """The transports with the limits of a policy."""

    def __init__(self, policy: Policy, tuning: Tuning) -> None:
        self._policy = policy
        self._grace = tuning.rate_grace
        self._carriers = transports(policy, tuning, _CONCURRENCY)

    async def handle_async_request(self, request: Request) -> Response:
        """See ``DirectTransport``."""
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


@dataclass(slots=True, eq=False)
class _BoundedBody(httpx.AsyncByteStream):
    """A body that raises an error if it is too large, too slow or takes too long.

    Limits are checked for each piece, so a silent server may exceed ``total_timeout`` by up to ``idle_timeout``. Before
    the body, ``connect_timeout`` applies to name resolution, connection and TLS together, and ``idle_timeout`` to the
    complete response head.
    """

    stream: httpx.AsyncByteStream
    policy: Policy
    started: float
    grace: float

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop, policy = asyncio.get_running_loop(), self.policy
        waited, size = 0.0, 0
        begun = loop.time()
        async for piece in self.stream:
            size += len(piece)
            now = loop.time()
            waited += now - begun
            if policy.max_size and size > policy.max_size:
                raise TooLarge(f"larger than {policy.max_size} bytes")
            if policy.total_timeout and now - self.started > policy.total_timeout:
                raise httpx.ReadTimeout(f"took longer than {policy.total_timeout:g} s")
            if waited > self.grace and size < policy.min_rate * waited:
                raise httpx.ReadTimeout(f"slower than {policy.min_rate} bytes per second")
            yield piece
            begun = loop.time()  # the time that the reader takes does not count against the server

    async def aclose(self) -> None:
        await self.stream.aclose()


class _Blocking(httpx.BaseTransport):
    """The same for blocking code: runs it in an event loop of its own."""

    def __init__(self, policy: Policy) -> None:
        self._loop = asyncio.new_event_loop()
        self._door = _Bounded(policy, Tuning())

    def handle_request(self, request: Request) -> Response:
        """See ``DirectTransport``."""
        response = self._run(self._door.handle_async_request(request))
        response.stream = _BlockingBody(self._run, cast(httpx.AsyncByteStream, response.stream))
        return response

    def close(self) -> None:
        """Closes the idle connections and the event loop."""
        self._run(self._door.aclose())
        self._loop.close()

    def _run(self, awaitable: Awaitable[T]) -> T:
        return self._loop.run_until_complete(awaitable)


@dataclass(slots=True, eq=False)
class _BlockingBody(httpx.SyncByteStream):
    run: Any
    stream: httpx.AsyncByteStream

    def __iter__(self) -> Iterator[bytes]:
        pieces = self.stream.__aiter__()
        while piece := self.run(anext(pieces, b"")):
            yield piece

    def close(self) -> None:
        self.run(self.stream.aclose())
