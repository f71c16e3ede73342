"""Requests to other servers: deadlines, redirects, and large responses spooled to disk."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import islice
from typing import IO, NamedTuple
from urllib.parse import quote

import orjson
from anyio import CancelScope, to_thread

from archec.access.errors import NotInTime, SourceFailed
from archec.access.index_files import lines_of
from archec.access.posts import PostedBody
from archec.access.query import joined
from archec.access.record import ChunkReader, all_unpacked
from archec.access.rows import Row
from archec.access.sources import in_time
from archec.errors import UsageError
from archec.web.door import Response, Sender, WebError, trusted
from archec.web.messages import whole
from archec.web.outcome import ConnectError, NotConnected

_log = logging.getLogger("archec.access.remote")
_IN_MEMORY = 4 << 20
MAX_ANSWER = 4 << 30
"""Maximum size in bytes of the response of an index, and of a body of unknown length."""
_MIN_RATE = 100_000
"""Number of bytes that extend the deadline of a response by one second."""
_MAX_EXTENSION = 300.0
"""Number of seconds by which a deadline is extended at most."""
_MAX_HOPS = 5
_NAME = re.compile(r"\{([^{}]+)\}")
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?=/|\Z)", re.I)
_MAX_CACHED = 1000
_REFUSED = (401, 403, 451)


class Web:
    """Sends the requests of all sources and loaders. ``sender`` is set while the server runs."""

    def __init__(self) -> None:
        self.sender: Sender | None = None

    async def send(
        self,
        method: str,
        url: str,
        own: str = "",
        headers: Mapping[str, str] | None = None,
        body: PostedBody | None = None,
    ) -> Response:
        """Returns a response whose body has not been read, and which the caller closes. Redirects are not followed.
        Only the origin of ``own`` is trusted, and receives its user and password. Raises SourceFailed."""
        if self.sender is None:
            raise SourceFailed("the server is not running")
        try:
            at, named = trusted(url, own) if own else (url, False)
            content = None
            if body is not None and body.size:
                headers, content = {**(headers or {}), "Content-Length": str(body.size)}, body.pieces()
            return await self.sender.send(method, at, headers, content, named=named)
        except (ConnectError, NotConnected) as error:
            _log.warning("%s", error)  # it names the host and its address, which clients need not know
            raise SourceFailed(f"no connection ({error.outcome.value})") from error
        except WebError as error:
            raise SourceFailed(error.message) from error


async def followed(
    web: Web,
    method: str,
    url: str,
    own: str,
    *,
    headers: Mapping[str, str] | None = None,
    is_final: Callable[[Response], bool] = lambda response: False,
) -> tuple[Response, str]:
    """Returns the response for a URL after redirects, and the URL that it is from. Redirects of a response that
    ``is_final`` are not followed. See :meth:`Web.send`."""
    for _ in range(_MAX_HOPS):
        response = await web.send(method, url, own, headers)
        location = response.headers.get("location", "") if 300 <= response.status_code < 400 else ""
        if not location or is_final(response):
            return response, url
        response.close()
        url = joined(url, location)
        if not url:
            raise SourceFailed("it redirects to an invalid URL")
    raise SourceFailed("too many redirects")


class Fetched(NamedTuple):
    """The response of an index: the URL that it is from, its headers, and the body in a file, positioned at its
    start, with its size."""

    url: str
    headers: Mapping[str, str]
    body: IO[bytes]
    size: int

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the body, and closes the file after the last."""
        with self.body as body:
            yield from lines_of(body)


async def fetch(
    web: Web,
    method: str,
    url: str,
    own: str,
    seconds: float | None,
    *,
    headers: Mapping[str, str] | None = None,
    is_final: Callable[[Response], bool] = lambda response: False,
) -> Fetched | None:
    """Fetches a complete response, or None for 404. See :func:`followed`. ``seconds`` is its timeout, which is extended
    by the data that arrive; None if the caller limits the time. Raises SourceFailed, and UsageError if a TimeGate
    leads to a memento that is refused."""
    body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - whoever receives it closes it
    try:
        with nullcontext() if seconds is None else in_time(seconds) as scope:
            response, final = await followed(web, method, url, own, headers=headers, is_final=is_final)
            try:
                size = await spooled(response, body, scope, _plain(response))
            finally:
                response.close()
        status = response.status_code
        is_memento = method == "HEAD" and "memento-datetime" in response.headers  # perhaps of an error
        if status == 404 and not is_memento:
            body.close()
            return None
        if method == "HEAD" and final != url and status in _REFUSED and not is_memento:
            raise UsageError(f"its memento cannot be had: HTTP {status}")  # no failure of the TimeGate
        if (status >= 400 and not is_memento) or (status != 200 and method != "HEAD"):
            raise SourceFailed(f"HTTP {status}")
        body.seek(0)
        return Fetched(final, response.headers, body, size)
    except BaseException:
        body.close()
        raise


async def spooled(
    response: Response,
    file: IO[bytes],
    scope: CancelScope | None = None,
    plain: AsyncIterator[bytes] | None = None,
) -> int:
    """Writes the body of a response, or what it is decompressed (``plain``), to a file and returns its size. What
    arrives extends the deadline of ``scope``. Raises NotInTime if it is larger than MAX_ANSWER bytes, and SourceFailed
    if it is cut off or the disk is full."""
    size, first = 0, scope.deadline if scope is not None else 0.0
    try:
        async for piece in plain or response:
            size += len(piece)
            if size > MAX_ANSWER:
                raise NotInTime(f"its answer is larger than {MAX_ANSWER} bytes")
            if scope is not None:
                scope.deadline = first + min(response.received / _MIN_RATE, _MAX_EXTENSION)
            await to_thread.run_sync(file.write, piece) if size > _IN_MEMORY else file.write(piece)
    except WebError as error:
        raise SourceFailed(error.message) from error
    except OSError as error:
        raise SourceFailed(f"its answer cannot be kept: {error.strerror}") from error
    return size


async def arriving(response: Response) -> AsyncIterator[bytes]:
    """Yields the body of a response. Raises SourceFailed."""
    try:
        async for piece in response:
            yield piece
    except WebError as error:
        raise SourceFailed(error.message) from error


def _plain(response: Response) -> AsyncIterator[bytes] | None:
    """The decompressed body of a response for which the server used gzip without being asked; None for others."""
    headers = response.headers
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise SourceFailed("its answer has an encoding that was not requested")
    if (whole(headers.get("content-length", "")) or 0) > MAX_ANSWER:
        raise SourceFailed(f"its answer is larger than {MAX_ANSWER} bytes")
    return all_unpacked(ChunkReader(arriving(response))) if encoding.endswith("gzip") else None


def errors_reported_in(headers: Mapping[str, str]) -> str:
    """What the header ``ResErrors`` of a response says about the sources of its server, or ""."""
    text = headers.get("reserrors", "")
    if not text:
        return ""
    try:
        value = orjson.loads(text)
    except ValueError:
        return ""  # from a server that gives the header another meaning
    if not isinstance(value, dict):
        return ""
    return "; ".join(f"{name[:60]}: {str(reason)[:200]}" for name, reason in islice(value.items(), 8))


class Cache:
    """Keeps lists of rows for ``seconds``. With 0, nothing is kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[object, tuple[float, list[Row]]] = {}

    def get(self, key: object) -> list[Row] | None:
        until, rows = self._kept.get(key, (0.0, None)) if self._kept else (0.0, None)
        return rows if until > time.monotonic() else None

    def keep(self, key: object, rows: Iterable[Row]) -> None:
        """Keeps a list of at most ``_MAX_CACHED`` rows."""
        if self._seconds and isinstance(rows, list) and len(rows) <= _MAX_CACHED:
            while len(self._kept) >= _MAX_CACHED:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (time.monotonic() + self._seconds, rows)


class UrlTemplate:
    """A URL with the names of values in braces. In the query values are escaped, and parameters without a value are
    dropped. No value can escape from the path: ``.`` and ``..`` segments are removed."""

    def __init__(self, text: str) -> None:
        path, _, query = text.partition("?")
        self._path = _NAME.split(path)  # every second one is a name
        self._query = [_NAME.split(part) for part in query.split("&") if part]

    def filled(self, values: Mapping[str, str]) -> str:
        path, mark, rest = _put_in(self._path, values, raw="url").partition("?")
        if "/." in path or "/%2" in path:
            path = _DOTS.sub("", path)
        path += mark + rest
        kept = [part for parts in self._query if (part := _put_in(parts, values)) and not part.endswith("=")]
        return f"{path}?{'&'.join(kept)}" if kept else path


def _put_in(parts: Sequence[str], values: Mapping[str, str], raw: str = "") -> str:
    """Joins the parts of a template. The value with the name ``raw`` is not escaped."""
    found = list(parts)
    for at in range(1, len(parts), 2):
        value = values.get(parts[at], "")
        found[at] = value if parts[at] == raw else escaped(value)
    return "".join(found)


@lru_cache(maxsize=256)
def escaped(value: str) -> str:
    """A value for the query of a URL."""
    return value if value.isascii() and value.isalnum() else quote(value, safe="")
