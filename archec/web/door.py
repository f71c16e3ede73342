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

A ``Sender`` sends single requests without redirects, without httpx, in a fraction of the time.

Errors are instances of ``EXPECTED``; ``fault_of`` maps each to an outcome and a message.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar, cast

import httpx
from httpx import URL
from httpx import AsyncClient as Client
from httpx import Client as BlockingClient

from archec.web.faults import EXPECTED, TooLarge, fault_of
from archec.web.headers import unpack
from archec.web.messages import Origin, Request, Response, origin_at, origin_of
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
_BODIES = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests state their length even if there is no body."""


def open_client(policy: Policy, *, tuning: Tuning | None = None) -> Client:
    """Returns a client for ``async with``. It may be used for many requests at once."""
    return Client(transport=_SenderTransport(Sender(policy, tuning or Tuning())), **_settings(policy))


def open_blocking_client(policy: Policy) -> BlockingClient:
    """The same for code without an event loop, for ``with`` and a single thread. Request bodies must be in memory."""
    return BlockingClient(transport=_Blocking(policy), **_settings(policy))


class Sender:
    """Sends single requests under a policy, for ``async with``. It may be used for many requests at once."""

    def __init__(self, policy: Policy, tuning: Tuning | None = None) -> None:
        tuning = tuning or Tuning()
        self._policy, self._grace = policy, tuning.rate_grace
        self._carriers = transports(policy, tuning, _CONCURRENCY)
        self._fields = {_bytes(name).lower(): (_bytes(name), _bytes(value)) for name, value in _headers(policy).items()}

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the idle connections."""
        await self._carriers.http.aclose()
        await self._carriers.ftp.aclose()

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: AsyncIterator[bytes] | None = None,
        *,
        named: bool = False,
    ) -> Response:
        """Sends a request and returns the response. The body streams, and the caller closes the response. ``named``:
        the operator has configured the host and port of ``url``, which need not be public. Raises ``EXPECTED``."""
        origin, target, authorization = located(url)
        fields = dict(self._fields)
        for name, value in (headers or {}).items():
            fields[_bytes(name).lower()] = (_bytes(name), _bytes(value))
        if authorization:
            fields[b"authorization"] = (b"Authorization", authorization)
        if content is not None and b"content-length" not in fields:
            fields[b"transfer-encoding"] = (b"Transfer-Encoding", b"chunked")
            content = _chunked(content)
        elif content is None and method in _BODIES:
            fields.setdefault(b"content-length", (b"Content-Length", b"0"))
        timeout = self._policy.idle_timeout or None
        response = await self.carry(
            Request(
                method, origin, target, tuple(fields.values()), content, named, self._policy.connect_timeout, timeout
            )
        )
        response.url = url
        return response

    async def carry(self, request: Request) -> Response:
        """Sends a request as it is. The response has the limits of the policy."""
        carrier = self._carriers.ftp if request.origin.scheme == "ftp" else self._carriers.http
        loop = asyncio.get_running_loop()
        started = loop.time()
        response = await carrier.send(request)
        response.bound(self._policy, self._grace, started, loop.time)
        return response


def located(url: str) -> tuple[Origin, bytes, bytes]:
    """Origin and target of a URL, and the value of Authorization for its user. Only a URL that is not normalised is
    parsed as a whole. Raises httpx.InvalidURL, httpx.UnsupportedProtocol."""
    found = _NORMAL.fullmatch(url)
    if found is not None and "/." not in found[2]:
        return origin_at(found[1]), found[2].encode("ascii"), b""
    whole = URL(url)
    user = f"{whole.username}:{whole.password}".encode()
    return origin_of(whole), whole.raw_path, b"Basic " + b64encode(user) if whole.userinfo else b""


def named(url: str | URL) -> dict[str, Any]:
    """Request ``extensions`` for a URL that the operator has configured: its host and port need not be public.

    Redirects to the same host and port are exempt, too; all others are not.

    Raises:
        httpx.InvalidURL: the URL is invalid.
    """
    return {"named": _address(origin_of(URL(url)))}


def _address(origin: Origin) -> tuple[str, int]:
    return origin.host, origin.port


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
    async for piece in response:
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


async def _chunked(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A request body of unknown length, as it is sent."""
    async for piece in stream:
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def _headers(policy: Policy) -> dict[str, str]:
    return {"User-Agent": policy.agent, "Accept": "*/*", "Accept-Encoding": "identity"}


def _settings(policy: Policy) -> dict[str, Any]:
    return {
        "headers": _headers(policy),
        "timeout": httpx.Timeout(policy.idle_timeout or None, connect=policy.connect_timeout, pool=None),
        "max_redirects": _MAX_REDIRECTS,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        "trust_env": False,
    }


class _SenderTransport(httpx.AsyncBaseTransport):
    """A sender as a transport of httpx."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        origin, headers, timeouts = origin_of(request.url), request.headers, request.extensions["timeout"]
        stream = cast(AsyncIterable[bytes], request.stream)
        content = _chunked(stream) if "transfer-encoding" in headers else None
        if "content-length" in headers:
            content = stream.__aiter__()
        is_named = request.extensions.get("named") == _address(origin)
        response = await self._sender.carry(
            Request(
                request.method, origin, request.url.raw_path, headers.raw, content, is_named,
                timeouts["connect"] or 0.0, timeouts["read"],
            )
        )  # fmt: skip
        return httpx.Response(response.status_code, headers=list(response.raw), stream=_Body(response))

    async def aclose(self) -> None:
        await self._sender.aclose()


@dataclass(slots=True, eq=False)
class _Body(httpx.AsyncByteStream):
    """The body of a response as a stream of httpx."""

    response: Response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.response

    async def aclose(self) -> None:
        self.response.close()


class _Blocking(httpx.BaseTransport):
    """The same for blocking code: runs it in an event loop of its own."""

    def __init__(self, policy: Policy) -> None:
        self._loop = asyncio.new_event_loop()
        self._door = _SenderTransport(Sender(policy))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
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
