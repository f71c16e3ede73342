"""The client makes one attempt at a task: request, head, body into a temporary file. No retries, no redirects."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

import httpx

from archec.config import FetchConfig
from archec.web.guard import allowed
from archec.web.headers import kept, location_of, raw_headers, retry_after
from archec.web.limits import Flight, Tuning
from archec.web.outcome import EXPECTED, Blocked, Outcome, Truncated, fault_of, of_status
from archec.web.task import HEAD, FetchTask, Hop, HopKind, Sink, TempLike

_EMPTY = httpx.ByteStream(b"")
_REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
_MAX_ORIGINS = 4096
"""Maximum number of origins whose parsed URL is remembered."""
_SMALL = 1 << 18
"""A body up to this size is written once it is complete, a larger one while it is received."""
_BLANKS = bytes(32 if code < 32 or code == 127 else code for code in range(256))


class Attempt(NamedTuple):
    """The result of an attempt.

    ``retry_after``: seconds that the host asked for, None if it did not; ``lasting``: another try in this run
    would end the same way; ``slow_down``: the host says that it gets too many requests.
    """

    hop: Hop
    retry_after: float | None = None
    lasting: bool = True
    slow_down: bool = False


class Client:
    """Makes attempts.

    ``transport_of`` gives the transport for a scheme; ``progress`` is called with the number of bytes received.
    With ``whole_urls`` the request's URL is the file's. Otherwise it is that of the origin, and the extension
    ``target`` has the rest: httpx then need not parse every URL, and the target is sent exactly as it stands.
    """

    def __init__(
        self,
        config: FetchConfig,
        tuning: Tuning,
        agent: str,
        sink: Sink,
        transport_of: Callable[[str], httpx.AsyncBaseTransport],
        progress: Callable[[int], None],
        *,
        whole_urls: bool,
    ) -> None:
        self._config = config
        self._tuning = tuning
        self._sink = sink
        self._transport_of = transport_of
        self._progress = progress
        self._whole_urls = whole_urls
        self._origins: dict[str, httpx.URL] = {}
        self._timeout = {"connect": config.connect_timeout}
        self._headers = httpx.Headers(
            [
                (b"User-Agent", _header_bytes(agent)),
                (b"Accept", b"*/*"),
                (b"Accept-Encoding", b"identity"),
                (b"Connection", b"keep-alive"),
            ]
        )

    async def attempt(self, task: FetchTask, flight: Flight) -> Attempt:
        """Attempts a task. A fault of the server or the network ends in a failed hop; a sink's errors are raised."""
        response: httpx.Response | None = None
        try:
            response = await self.open(task.url, flight, task.etag, task.last_modified)
            return await self._answer(task, flight, response)
        except EXPECTED as error:
            fault = fault_of(error)
            hop = self._hop(task, flight, response, "failed", fault.outcome, fault.message)
            return Attempt(hop, None, fault.lasting)
        except asyncio.CancelledError:
            if not flight.verdict:  # it was not cancelled for its time limit: somebody stops the fetcher
                raise
            hop = self._hop(task, flight, response, "failed", Outcome.TIMEOUT, flight.verdict)
            return Attempt(hop, None, flight.lasting)
        finally:
            if response is not None:
                await close(response)

    async def open(self, url: str, flight: Flight, etag: str = "", last_modified: str = "") -> httpx.Response:
        """Sends a request and returns the head of the answer. The caller closes it. Raises ``outcome.EXPECTED``."""
        loop = asyncio.get_running_loop()
        scheme, _, rest = url.partition("://")
        slash = rest.find("/")
        if slash <= 0 or not (rest.isascii() and rest.isprintable()) or " " in rest:
            raise httpx.UnsupportedProtocol("not a normalised URL")
        headers = self._headers
        if etag or last_modified:
            pairs = list(headers.raw)
            if etag:
                pairs.append((b"If-None-Match", _header_bytes(etag)))
            if last_modified:
                pairs.append((b"If-Modified-Since", _header_bytes(last_modified)))
            headers = httpx.Headers(pairs)

        def sent() -> None:
            flight.sent = loop.time()

        try:
            target = httpx.URL(url) if self._whole_urls else self._origin(url[: len(scheme) + 3 + slash])
        except httpx.InvalidURL:
            _refuse_disguised(rest[:slash])
            raise
        request = httpx.Request(
            "GET",
            target,
            headers=headers,
            stream=_EMPTY,
            extensions={"timeout": self._timeout, "target": rest[slash:].encode("ascii"), "sent": sent},
        )
        response = await self._transport_of(scheme).handle_async_request(request)
        flight.head_at = flight.last = loop.time()
        return response

    def _origin(self, origin: str) -> httpx.URL:
        url = self._origins.get(origin)
        if url is None:
            if len(self._origins) >= _MAX_ORIGINS:
                self._origins.clear()
            url = self._origins[origin] = httpx.URL(origin + "/")
        return url

    async def _answer(self, task: FetchTask, flight: Flight, response: httpx.Response) -> Attempt:
        status = response.status_code
        fields = raw_headers(response.headers.raw)
        if 200 <= status < 300 and status != 206:
            return await self._body(task, flight, response, fields)
        await self._drain(flight, response, fields)
        if status == 304 and (task.etag or task.last_modified):
            hop = self._hop(task, flight, response, "not-modified", Outcome.NOT_MODIFIED, "", fields)
            return Attempt(hop)
        if status in _REDIRECTS and fields.get("location"):
            try:
                location = location_of(task.url, fields["location"])
            except ValueError:
                message = "redirects to something that is not a URL"
                return Attempt(self._hop(task, flight, response, "failed", Outcome.BAD_URL, message, fields))
            hop = self._hop(task, flight, response, "redirect", None, "", fields)
            return Attempt(hop._replace(location=location))
        outcome = of_status(status)
        message = f"HTTP {status}"
        if outcome is None:
            outcome = Outcome.SERVER_ERROR
            message += " that was not asked for" if status == 304 else " without a Location that can be followed"
        elif status == 206:
            message += ": a part that was not asked for"
        reason = response.extensions.get("message")
        hop = self._hop(task, flight, response, "failed", outcome, str(reason or message), fields)
        slow_down = status in (429, 503)
        wait = retry_after(fields["retry-after"], time.time()) if slow_down and "retry-after" in fields else None
        return Attempt(hop, wait, not outcome.is_transient, slow_down)

    async def _body(self, task: FetchTask, flight: Flight, response: httpx.Response, fields: dict[str, str]) -> Attempt:
        coding = fields.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked", "identity"):
            raise httpx.RemoteProtocolError(f"a transfer coding that was not asked for: {coding[:40]}")
        stated = fields.get("content-length", "") if not coding else ""
        length = int(stated[:18]) if stated.isascii() and stated.isdecimal() else -1
        limit = self._config.max_size
        if length > limit:
            return self._too_large(task, flight, response, fields)
        loop = asyncio.get_running_loop()
        temp: TempLike | None = None
        small: list[bytes] = []
        head = b""
        try:
            async for chunk in response.stream:  # type: ignore[union-attr]
                flight.received += len(chunk)
                flight.last = loop.time()
                if flight.received > limit:
                    return self._too_large(task, flight, response, fields)
                self._progress(len(chunk))
                if len(head) < HEAD:
                    head += chunk[: HEAD - len(head)]
                small.append(chunk)
                if flight.received > _SMALL:
                    temp = temp or self._sink.temp(task.url)
                    temp.write(small.pop() if len(small) == 1 else b"".join(small))
                    small.clear()
            if 0 <= length != flight.received and response.status_code not in (204, 205):
                raise Truncated(f"{flight.received} of {length} bytes came")
            hop = self._hop(task, flight, response, "body", None, "", fields)
            await close(response)
            flight.release()
            await asyncio.sleep(0)  # so that the next request is sent before this body is written
            temp = temp or self._sink.temp(task.url)
            if small:
                temp.write(small[0] if len(small) == 1 else b"".join(small))
            done, temp = temp, None
            path, md5, xxh3, size = done.close()
        finally:
            if temp is not None:
                temp.discard()
        return Attempt(hop._replace(temp=path, md5=md5, xxh3=xxh3, size=size, head=head))

    def _too_large(self, task: FetchTask, flight: Flight, response: httpx.Response, fields: dict[str, str]) -> Attempt:
        message = f"larger than {self._config.max_size} bytes"
        return Attempt(self._hop(task, flight, response, "failed", Outcome.TOO_LARGE, message, fields))

    async def _drain(self, flight: Flight, response: httpx.Response, fields: dict[str, str]) -> None:
        """Reads a small unwanted body so that its connection can be kept."""
        try:
            async for chunk in response.stream:  # type: ignore[union-attr]
                flight.received += len(chunk)
                flight.last = asyncio.get_running_loop().time()
                if flight.received > self._tuning.drain:
                    return
        except EXPECTED:
            return

    def _hop(
        self,
        task: FetchTask,
        flight: Flight,
        response: httpx.Response | None,
        kind: HopKind,
        outcome: Outcome | None,
        message: str,
        fields: dict[str, str] | None = None,
    ) -> Hop:
        elapsed = asyncio.get_running_loop().time() - flight.started
        if response is None:
            return Hop(task.url, kind, outcome, message=message, elapsed=elapsed)
        if fields is None:
            fields = raw_headers(response.headers.raw)
        return Hop(
            task.url,
            kind,
            outcome,
            response.status_code,
            kept(fields),
            content_type=fields.get("content-type", ""),
            message=message,
            address=response.extensions.get("address", ""),
            elapsed=elapsed,
        )


async def close(response: httpx.Response) -> None:
    """Ends an answer: its connection is kept if the body was read to its end, otherwise closed."""
    await response.stream.aclose()  # type: ignore[union-attr]


def _refuse_disguised(host: str) -> None:
    """Raises Blocked for a private IPv4 address in octal and the like, for which httpx raises InvalidURL."""
    try:
        address = socket.inet_ntoa(socket.inet_aton(host.partition(":")[0]))
    except OSError:
        return
    if not allowed(address):
        raise Blocked(f"{host} is {address}, which is not a public address")


def _header_bytes(value: str) -> bytes:
    """A header value as bytes that cannot end the line."""
    return value.encode("latin-1", "replace").translate(_BLANKS)
