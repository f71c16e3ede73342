"""The client makes one attempt at a task: request, response head, body into a temporary file. No retries or
redirects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from archec.config import FetchConfig
from archec.errors import BadName
from archec.web.h1 import Answer
from archec.web.location import location_of
from archec.web.messages import TLS_FIELD, Pairs, Request, Response, kept, origin_at, raw_headers, wait_asked, whole
from archec.web.outcome import (
    BUSY,
    HEAD,
    BadUrl,
    FetchTask,
    Hop,
    Outcome,
    ProtocolError,
    ReadError,
    Sink,
    TempLike,
    TooLarge,
    Truncated,
    WebError,
    of_status,
)
from archec.web.policy import Tuning
from archec.web.transport import Transports

_REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
_SMALL = 1 << 18
"""A body up to this size is written when it is complete, a larger one while it arrives."""
_BLANKS = bytes(32 if code < 32 or code == 127 else code for code in range(256))


@dataclass(slots=True, eq=False)
class Flight:
    """A request in flight. Times are those of the event loop. ``verdict`` states the limit that was exceeded, if any.

    Checking all flights periodically is cheaper than several timers for each, and detects what the transport's timeout
    per read does not: a server that sends one byte a second.
    """

    started: float
    on_release: Callable[[], None] | None = None
    """Called once, when the request is complete; its body may still have to be written."""
    is_sent: bool = False
    """Whether there was a connection for the request."""
    head_at: float = 0.0
    """When the response head arrived."""
    received: int = 0
    verdict: str = ""
    lasting: bool = False
    """Whether a retry in this run would fail, too."""
    answer: Answer | None = None
    """The state of the connection after the response."""

    def release(self) -> None:
        """Marks the request as complete: another one may start."""
        callback, self.on_release = self.on_release, None
        if callback is not None:
            callback()

    def overdue(self, now: float, config: FetchConfig, tuning: Tuning) -> bool:
        """Whether a time limit has been exceeded. Returns True only once."""
        if self.verdict:
            return False
        taken = now - self.head_at if self.head_at else 0.0
        if now - self.started > config.total_timeout:
            self.verdict, self.lasting = f"took longer than {config.total_timeout:g} s", True
        elif not self.is_sent and now - self.started > 1.5 * config.connect_timeout:
            # connect_timeout applies to resolving and to connecting; this is a safety net for both
            self.verdict = f"no connection within {config.connect_timeout:g} s"
        elif taken > tuning.rate_grace and self.received < config.min_rate * taken:
            self.verdict, self.lasting = f"slower than {config.min_rate} bytes per second", True
        return bool(self.verdict)


class Attempt(Struct, frozen=True):
    """The result of an attempt. ``lasting``: a retry in this run would give the same result."""

    hop: Hop
    lasting: bool = True


class Client:
    """Makes attempts. ``progress`` is called with the numbers of bytes received and requests sent since its last
    call."""

    def __init__(
        self,
        config: FetchConfig,
        tuning: Tuning,
        agent: str,
        sink: Sink,
        transports: Transports,
        progress: Callable[[int, int], None],
    ) -> None:
        self._config = config
        self._tuning = tuning
        self._sink = sink
        self._transports = transports
        self.progress = progress
        self._headers: Pairs = (
            (b"User-Agent", _header_bytes(agent)), (b"Accept", b"*/*"), (b"Accept-Encoding", b"identity")
        )  # fmt: skip

    async def attempt(self, task: FetchTask, flight: Flight) -> Attempt:
        """Attempts a task. Faults of the server or the network are returned as a failed hop; errors of the sink are
        raised."""
        response: Response | None = None
        seen = Hop(task.url, "failed")
        try:
            response = await self.open(task.url, flight, task.etag, task.last_modified)
            fields = raw_headers(response.raw)
            seen = _seen(task, response, fields)
            if 200 <= response.status_code < 300 and response.status_code != 206:
                attempt = await self._body(task, flight, response, fields, seen)
            else:
                await self._drain(flight, response)
                attempt = _without_body(task, response, fields, seen)
        except WebError as error:
            attempt = Attempt(replace(seen, outcome=error.outcome, message=error.message), error.lasting)
        except asyncio.CancelledError:
            if not flight.verdict:  # cancelled because the fetcher stops, not by a time limit
                raise
            attempt = Attempt(replace(seen, outcome=Outcome.TIMEOUT, message=flight.verdict), flight.lasting)
        finally:
            if response is not None:
                response.close()
                flight.answer = response.answer
        return attempt

    async def open(
        self, url: str, flight: Flight, etag: str = "", last_modified: str = "", *, fresh: bool = False
    ) -> Response:
        """Sends a request and returns the response head. The caller closes the response. Raises ``faults.WebError``.

        ``fresh``: use a new connection, so that no response to an earlier request can be taken for the one to this
        request.
        """
        scheme, _, rest = url.partition("://")
        slash = rest.find("/")
        # Keeps line ends and blanks out of the request line, whatever the source of the URL.
        if slash <= 0 or not (rest.isascii() and rest.isprintable()) or " " in rest:
            raise BadUrl("not a normalised URL")
        headers = self._headers
        if etag or last_modified:
            pairs = ((b"If-None-Match", etag), (b"If-Modified-Since", last_modified))
            headers = (*headers, *((name, _header_bytes(value)) for name, value in pairs if value))

        def sent() -> None:
            flight.is_sent = True
            self.progress(0, 1)

        origin = origin_at(url[: len(scheme) + 3 + slash])
        request = Request("GET", origin, rest[slash:].encode("ascii"), headers, sent=sent, fresh=fresh)
        response = await (self._transports.ftp if scheme == "ftp" else self._transports.http).send(request)
        flight.head_at = asyncio.get_running_loop().time()
        return response

    async def _body(
        self, task: FetchTask, flight: Flight, response: Response, fields: Mapping[str, str], seen: Hop
    ) -> Attempt:
        limit = self._config.max_size
        length = None if response.transfer_coding() else whole(fields.get("content-length", ""))
        if length is not None and length > limit:
            raise TooLarge(f"larger than {limit} bytes")
        temp: TempLike | None = None
        unwritten: list[bytes] = []
        head = b""
        try:
            async for chunk in response:
                flight.received += len(chunk)
                self.progress(len(chunk), 0)
                if flight.received > limit:
                    raise TooLarge(f"larger than {limit} bytes")
                if len(head) < HEAD:
                    head += chunk[: HEAD - len(head)]
                unwritten.append(chunk)
                if flight.received > _SMALL:
                    temp = temp or self._sink.temp(task.url)
                    temp.write(b"".join(unwritten))
                    unwritten.clear()
            if length not in (None, flight.received) and response.status_code not in (204, 205):
                raise Truncated(f"received {flight.received} of {length} bytes")
            response.close()
            flight.release()
            await asyncio.sleep(0)  # so that the next request is sent before this body is written
            temp = temp or self._sink.temp(task.url)
            if unwritten:
                temp.write(b"".join(unwritten))
            complete, temp = temp, None
            name, md5, sha256, size = complete.close()
        finally:
            if temp is not None:
                temp.discard()
        return Attempt(replace(seen, kind="body", temp=name, md5=md5, sha256=sha256, size=size, head=head))

    async def _drain(self, flight: Flight, response: Response) -> None:
        """Reads a small unwanted body so that its connection can be reused. Raises TimedOut; other faults of the body
        do not matter."""
        with suppress(ReadError, ProtocolError):
            async for chunk in response:
                flight.received += len(chunk)
                self.progress(len(chunk), 0)
                if flight.received > self._tuning.drain:
                    return


def _seen(task: FetchTask, response: Response, fields: dict[str, str]) -> Hop:
    """A hop with the data of the response head; it is a failure until the body is complete."""
    headers, tls = kept(fields), response.tls
    return Hop(
        task.url,
        "failed",
        status=response.status_code,
        headers=(*headers, (TLS_FIELD, tls)) if tls else headers,
        content_type=fields.get("content-type", ""),
    )


def _without_body(task: FetchTask, response: Response, fields: Mapping[str, str], seen: Hop) -> Attempt:
    """The result of a response that is not a file: a redirect, not modified, or a failure."""
    status = seen.status
    if status == 304 and (task.etag or task.last_modified):
        return Attempt(replace(seen, kind="not-modified", outcome=Outcome.NOT_MODIFIED))
    if status in _REDIRECTS and fields.get("location"):
        try:
            return Attempt(replace(seen, kind="redirect", location=location_of(task.url, fields["location"])))
        except BadName as error:
            return Attempt(replace(seen, outcome=Outcome.BAD_URL, message=f"redirects to: {error.message}"))
    outcome = of_status(status)
    message = f"HTTP {status}"
    if outcome is None:
        outcome = Outcome.SERVER_ERROR
        message += " that was not requested" if status == 304 else " without a Location that can be followed"
    elif status == 206:
        message += ": a part that was not requested"
    wait = wait_asked(fields, time.time()) if status in BUSY else 0.0
    message = response.message or message
    return Attempt(replace(seen, outcome=outcome, message=message, wait=wait), not outcome.is_transient)


def _header_bytes(value: str) -> bytes:
    """Encodes a header value, with control characters replaced by blanks."""
    return value.encode("latin-1", "replace").translate(_BLANKS)
