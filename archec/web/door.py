"""The public entry to the web, for everything except the fetching of files: requests for a purpose.

::

    async with Sender(config.fetch, config.agent, "platform") as sender:
        async with aclosing(await sender.send("GET", url, {"Range": "bytes=0-99"})) as response:
            async for piece in response:
                ...

Any method, bodies that stream in both directions. Redirects are not followed: whoever follows one sends another
request, which the guard checks like the first. Private addresses are allowed only for requests that are ``named``,
which states that the operator has configured the host. The environment is ignored, except for its proxies.

Errors are instances of ``WebError``, each with an outcome and a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from time import monotonic

from archec.config import FetchConfig
from archec.web.messages import Located, Request, Response, located, same_origin, trusted, unpack
from archec.web.outcome import ProtocolError, TooLarge, WebError
from archec.web.policy import Profile, Tuning, limited
from archec.web.transport import transports

__all__ = [
    "BlockingSender",
    "Response",
    "Sender",
    "TooLarge",
    "WebError",
    "content",
    "located",
    "same_origin",
    "trusted",
]

_CONCURRENCY = 64
"""Maximum number of idle connections."""
_BODIES = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests state their length even if there is no body."""


class Sender:
    """Sends single requests with a User-Agent, for ``async with``. It may be used for many requests at once."""

    def __init__(self, config: FetchConfig, agent: str, profile: Profile, tuning: Tuning | None = None) -> None:
        tuning = tuning or Tuning()
        self._limits, self._grace = limited(config, profile), tuning.rate_grace
        self._carriers = transports(self._limits, tuning, _CONCURRENCY)
        self._fields = {
            b"user-agent": (b"User-Agent", _bytes(agent)),
            b"accept": (b"Accept", b"*/*"),
            b"accept-encoding": (b"Accept-Encoding", b"identity"),
        }

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the idle connections."""
        await self._carriers.http.aclose()
        await self._carriers.ftp.aclose()

    async def send(
        self,
        method: str,
        url: str | Located,
        headers: Mapping[str, str] | None = None,
        content: AsyncIterator[bytes] | None = None,
        *,
        named: bool = False,
    ) -> Response:
        """Sends a request and returns the response. The body streams, and the caller closes the response. ``headers``
        state the Content-Length of a ``content``. ``named``: the operator has configured the host and port of ``url``,
        which need not be public. Raises ``WebError``."""
        origin, target, authorization = located(url) if isinstance(url, str) else url
        fields = dict(self._fields)
        for name, value in (headers or {}).items():
            fields[_bytes(name).lower()] = (_bytes(name), _bytes(value))
        if authorization:
            fields[b"authorization"] = (b"Authorization", authorization)
        if content is None and method in _BODIES:
            fields.setdefault(b"content-length", (b"Content-Length", b"0"))
        request = Request(method, origin, target, tuple(fields.values()), content, named)
        started = monotonic()
        response = await (self._carriers.ftp if origin.scheme == "ftp" else self._carriers.http).send(request)
        response.bound(self._limits, self._grace, started)
        return response


class BlockingSender:
    """The same for code without an event loop, for ``with`` and a single thread."""

    def __init__(self, config: FetchConfig, agent: str, profile: Profile) -> None:
        self._loop = asyncio.new_event_loop()
        self._sender = Sender(config, agent, profile)

    def __enter__(self) -> BlockingSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._sender.__aexit__())
        self._loop.close()

    def send(
        self, method: str, url: str | Located, headers: Mapping[str, str] | None = None, *, named: bool = False
    ) -> Response:
        """See ``Sender``."""
        return self._loop.run_until_complete(self._sender.send(method, url, headers, named=named))

    def pieces(self, response: Response) -> Iterator[bytes]:
        """The body of a response, which is closed at its end."""
        with closing(response):
            while piece := self._loop.run_until_complete(anext(response, b"")):
                yield piece


def _bytes(text: str) -> bytes:
    """Encodes a part of a header. Undecodable bytes are restored."""
    return text.encode("utf-8", "surrogateescape")


async def content(response: Response, limit: int) -> bytes:
    """The complete body of a response, decompressed if necessary, of at most ``limit`` bytes.

    Raises:
        TooLarge: it is larger.
        ProtocolError: it has an encoding that was not requested.
        WebError: it is incomplete.
    """
    received = await response.upto(limit)
    if len(received) > limit:
        raise TooLarge(f"larger than {limit} bytes")
    data = unpack(received, response.headers.get("content-encoding", ""), limit + 1)
    if data is None:
        raise ProtocolError("the response has an encoding that was not requested")
    if len(data) > limit:
        raise TooLarge(f"larger than {limit} bytes")
    return data
