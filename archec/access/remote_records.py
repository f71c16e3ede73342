"""Loads captures from other servers and pages from the live web, and converts them to WARC records."""

from __future__ import annotations

import re
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, aclosing
from http.client import responses
from typing import TypeVar

from archec.access.errors import NotInTime, NotThere, Refused, SourceFailed
from archec.access.posts import METHOD, Asked
from archec.access.record import ClosedOnFailure, Record, exactly, read_file, read_record
from archec.access.remote import Web, arriving, errors_reported_in, followed, spooled
from archec.access.rows import Row
from archec.access.sources import Health, in_time
from archec.access.stamps import from_http_date, iso_date, now_stamp
from archec.errors import UsageError
from archec.server.responses import in_pieces
from archec.web.door import Response
from archec.web.messages import whole

T = TypeVar("T")
REMOTE = ("live", "cdx", "memento")
"""The types of sources whose records are made here, of what other servers send."""
_BEGINNING = 1 << 17
"""Bytes of a body that must arrive within the timeout."""
_IN_MEMORY = 1 << 20
_DROPPED = frozenset({"transfer-encoding", "connection", "keep-alive", "content-length"})
_OF_MEMENTOS = frozenset({"link", "memento-datetime", "content-location", "reserrors"})
"""Headers that archives add to captures."""
_OF_SERVERS = frozenset({
    "accept-ranges", "cache-control", "content-security-policy", "date", "etag", "server", "vary", "via",
    "x-content-type-options",
})  # fmt: skip
"""Headers of their own that archives also add, if they give those of the capture with the prefix ``_ORIG``."""
_ORIG = "x-archive-orig-"
_OF_BODY = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding", "location"})
"""Headers that are as the answer has them, whatever those of the capture were."""
_REPLAY = re.compile(r"/[0-9]{1,17}(?:[a-z]{2}_)?/((?:https?|ftp)://.*)", re.S)


class ReplayLoader:
    """Loads rows with a ``load_url``. See :class:`archec.access.loading.Loader`.

    ``methods`` are allowed on the live web. ``seconds`` is the timeout for the headers of a response.
    """

    def __init__(self, web: Web, seconds: float, methods: tuple[str, ...], origins: dict[str, str]) -> None:
        self._web, self._seconds, self._methods, self._origins = web, seconds, methods, origins

    async def load(self, row: Row, asked: Asked) -> Record | None:
        """See :class:`archec.access.loading.Loader`. Raises Refused for a method that is not allowed."""
        url = row.text("load_url")
        if not url or row.origin.type not in REMOTE:
            return None
        if row.origin.type != "live" and METHOD in row.urlkey and METHOD not in row.url:
            raise NotThere("its capture is no answer to GET, with which it would be loaded")
        if row.origin.type == "live" and asked.method not in self._methods:
            raise Refused(405, f"{asked.method} is not allowed on the live web", (("Allow", ", ".join(self._methods)),))
        stack = AsyncExitStack()
        async with ClosedOnFailure(stack.aclose):
            with in_time(self._seconds):
                response, final = await self._answered(stack, row, url, asked)
            return await self._record(stack, row, response, final)

    async def _answered(self, stack: AsyncExitStack, row: Row, url: str, asked: Asked) -> tuple[Response, str]:
        """The response for a row and its URL. Redirects on the live web are captures, too, and are not followed."""
        if row.origin.type == "live":
            response = await self._web.send(asked.method, url, headers=asked.sent_headers(), body=asked.body)
            stack.push_async_callback(response.aclose)
            return response, url
        own = self._origins.get(row.origin.coll, "")
        response, final = await followed(self._web, "GET", url, own, is_final=_is_memento)
        stack.push_async_callback(response.aclose)
        if response.status_code >= 400 and not _is_memento(response):
            raise _failure(response.status_code)
        return response, final

    async def _record(self, stack: AsyncExitStack, row: Row, response: Response, url: str) -> Record:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.headers.get("warcserver-type") == "warc" or kind == "application/warc-record":
            with in_time(self._seconds):
                record = await read_record(arriving(response), stack.aclose, url)
            record.reported = errors_reported_in(response.headers)
            return record
        http = _http_head(response, is_live=row.origin.type == "live")
        size, body = await self._sized(stack, response)
        shown = response.headers.get("content-length", "0") if response.request.method == "HEAD" else str(size)
        lines = [*http, ("Content-Length", shown)]
        status = f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, '')}".rstrip()
        head = "\r\n".join([status, *(f"{name}: {value}" for name, value in lines), "", ""]).encode("latin-1")
        headers = [
            ("WARC-Type", "response"),
            ("WARC-Record-ID", f"<urn:uuid:{uuid.uuid4()}>"),
            ("WARC-Target-URI", row.url),
            ("WARC-Date", iso_date(_stamp(response) or row.timestamp)),
            ("WARC-Source-URI", url),
            ("WARC-Creation-Date", iso_date(now_stamp())),
            ("Content-Type", "application/http; msgtype=response"),
            ("Content-Length", str(len(head) + size)),
        ]
        reported = errors_reported_in(response.headers) if row.origin.type != "live" else ""
        record = Record(headers, head, size, body, stack.aclose, reported=reported)
        with in_time(self._seconds):
            await record.read_start()
        return record

    async def _sized(self, stack: AsyncExitStack, response: Response) -> tuple[int, AsyncIterator[bytes]]:
        """The size of a body, and the body. A body of unknown size is spooled to disk."""
        size = whole(response.headers.get("content-length", ""))
        if size is not None and "transfer-encoding" not in response.headers:
            without = response.request.method == "HEAD" or response.status_code in (204, 304)
            return (0, in_pieces(b"")) if without else (size, exactly(arriving(response), size))
        spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by the stack
        stack.callback(spool.close)
        with in_time(self._seconds) as scope:
            size = await spooled(response, spool, scope)
        spool.seek(0)
        return size, read_file(spool)


class RangeReader:
    """Ranges of files on servers that the operator has configured.

    ``seconds`` is the timeout for the headers of a response and the first bytes of its body, which identify a record. A
    server that keeps timing out is skipped for a while.
    """

    def __init__(self, web: Web, seconds: float) -> None:
        self._web, self._seconds, self._health = web, seconds, Health()

    async def pieces(self, url: str, offset: int, length: int) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of a range. If ``length`` is 0, it has no end and the caller stops. Raises SourceFailed."""
        last = str(offset + length - 1) if length else ""
        headers = {"Range": f"bytes={offset}-{last}"}
        if self._health.is_out:
            raise SourceFailed("the server is left out for a while: it keeps failing")
        sending = followed(self._web, "GET", url, url, headers=headers)
        response, _ = await self._in_time(sending, self._seconds)
        async with aclosing(response):
            if response.status_code == 200 and offset:
                raise SourceFailed("the server does not serve ranges")
            if response.status_code not in (200, 206):
                raise _failure(response.status_code)
            stream, given, seconds = arriving(response), 0, self._seconds
            while not length or given < length:
                began = time.monotonic()
                piece = await (self._in_time(anext(stream, b""), seconds) if given < _BEGINNING else anext(stream, b""))
                seconds -= time.monotonic() - began
                piece = piece[: length - given] if length else piece
                given += len(piece)
                if given >= min(length or _BEGINNING, _BEGINNING):
                    self._health.answered()
                if not piece:
                    return
                yield piece

    async def _in_time(self, answer: Awaitable[T], seconds: float) -> T:
        """Awaits with a timeout. Raises NotInTime. ``seconds`` is what remains of the server's time."""
        try:
            with in_time(seconds):
                return await answer
        except NotInTime as error:
            self._health.failed()
            raise NotInTime(f"no answer within {self._seconds:g} s") from error


def _failure(status: int) -> SourceFailed:
    return (NotThere if status in (404, 410) else SourceFailed)(f"HTTP {status}")


def _is_memento(response: Response) -> bool:
    return "memento-datetime" in response.headers


def _http_head(response: Response, *, is_live: bool) -> list[tuple[str, str]]:
    """The headers of a response as they were when it was captured."""
    found: list[tuple[str, str]] = []
    given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw]
    prefixed = {name.lower().removeprefix(_ORIG) for name, _ in given if name.lower().startswith(_ORIG)}
    others = _DROPPED if is_live else _DROPPED | _OF_MEMENTOS | (prefixed and (_OF_SERVERS | prefixed) - _OF_BODY)
    for name, value in given:
        lowered = name.lower()
        if lowered.startswith(_ORIG) and not is_live:
            if lowered.removeprefix(_ORIG) not in ("", *_OF_BODY):
                found.append((name[len(_ORIG) :], value))
            continue
        if lowered in others:
            continue
        if lowered == "location" and not is_live:
            match = _REPLAY.search(value)
            value = match[1] if match else value
        found.append((name, value))
    return found


def _stamp(response: Response) -> str:
    try:
        return from_http_date(response.headers.get("memento-datetime", ""))
    except UsageError:
        return ""
