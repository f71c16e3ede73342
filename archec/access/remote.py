"""Requests to other servers: deadlines, large responses spooled to disk, and skipping servers that keep failing."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlsplit

from anyio import to_thread

from archec.access.errors import LoadFailed, SourceFailed
from archec.access.posts import Body
from archec.access.query import joined
from archec.access.record import unpacked
from archec.web.door import EXPECTED, Response, Sender, fault_of, located, named

T = TypeVar("T")

_IN_MEMORY = 4 << 20
MAX_ANSWER = 4 << 30
"""Maximum size in bytes of the response of an index, and of a body of unknown length."""
_MIN_RATE = 100_000
"""Number of bytes that extend the deadline of a response by one second."""
_MAX_HOPS = 5
_AGAIN = 0.1
"""Seconds after which a task that ignored its cancellation is cancelled again."""
_NAME = re.compile(r"\{([^{}]+)\}")
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?=/|\Z)", re.I)
_MAX_CACHED = 1000
_FAILURES, _WITHIN, _PAUSE = 3, 20.0, 20.0
"""A source with ``_FAILURES`` failures within ``_WITHIN`` seconds is skipped for ``_PAUSE`` seconds."""


class Web:
    """Sends the requests of all sources and loaders. ``sender`` is set while the server runs."""

    def __init__(self) -> None:
        self.sender: Sender | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        trusted: bool,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Response:
        """Returns a response whose body has not been read, and which the caller closes. Redirects are not followed.
        ``trusted``: the operator has configured the host. Raises LoadFailed."""
        if self.sender is None:
            raise LoadFailed("the server is not running")
        try:
            target, extensions = located(url)
            if trusted:
                extensions |= named(target)
            content = None
            if body is not None and body.size:
                headers, content = {**(headers or {}), "Content-Length": str(body.size)}, body.pieces()
            return await self.sender.send(method, target, headers, content, extensions)
        except EXPECTED as error:
            raise LoadFailed(fault_of(error).message) from error


class Deadline:
    """A context manager that limits the time of the current task. Data that arrives extends the limit.

    Raises SourceFailed when the time is up. The task is cancelled, and cancelled again if it continues: before Python
    3.12, ``asyncio.wait_for`` may swallow a cancellation when a result arrives at the same time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._interrupted = 0
        self._task: asyncio.Task[Any] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._end = 0.0

    def __enter__(self) -> Deadline:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._end = loop.time() + self._seconds
        self._handle = loop.call_at(self._end, self._expire)
        return self

    def earn(self, size: int) -> None:
        """Extends the limit for ``size`` bytes that have arrived."""
        self._end += size / _MIN_RATE

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._end:
            self._handle = loop.call_at(self._end, self._expire)
        elif self._task is not None:
            self._interrupted += 1
            self._task.cancel()
            self._handle = loop.call_later(_AGAIN, self._expire)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._task is not None and hasattr(self._task, "uncancel"):
            for _again in range(self._interrupted):
                self._task.uncancel()
        if self._interrupted and kind is asyncio.CancelledError:
            raise SourceFailed(f"no answer within {self._seconds:g} s")


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
    ``is_final`` are not followed. Only the origin of ``own`` is trusted, and receives its user and password. Raises
    LoadFailed."""
    for _ in range(_MAX_HOPS):
        trusted = bool(own) and same_origin(url, own)
        target = authorized(url, own) if trusted else url
        response = await web.send(method, target, trusted=trusted, headers=headers)
        location = response.headers.get("location", "")
        if is_final(response) or not (300 <= response.status_code < 400 and location):
            return response, url
        await response.aclose()
        url = joined(url, location)
        if not url:
            raise LoadFailed("it redirects to an invalid URL")
    raise LoadFailed("too many redirects")


class Fetched(NamedTuple):
    """The response of an index: the URL that it is from, status, headers, and the body in a file, positioned at its
    start."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: IO[bytes]

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the body without line ends, and closes the file after the last."""
        with self.body:
            while line := self.body.readline(1 << 20):
                yield line.rstrip(b"\r\n")


async def fetch(
    web: Web,
    method: str,
    url: str,
    own: str,
    seconds: float,
    *,
    headers: Mapping[str, str] | None = None,
    is_final: Callable[[Response], bool] = lambda response: False,
) -> Fetched:
    """Fetches a complete response. See :func:`followed`. Raises SourceFailed."""
    body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by its reader
    try:
        with Deadline(seconds) as deadline:
            response, final = await followed(web, method, url, own, headers=headers, is_final=is_final)
            try:
                await spooled(_plain(response, deadline), body, MAX_ANSWER)
            finally:
                await response.aclose()
        body.seek(0)
        return Fetched(final, response.status_code, response.headers, body)
    except LoadFailed as error:
        body.close()
        raise SourceFailed(error.message) from error
    except BaseException:
        body.close()
        raise


async def spooled(pieces: AsyncIterator[bytes], file: IO[bytes], limit: int) -> int:
    """Writes a stream to a file and returns its size. Raises SourceFailed if it is larger than ``limit`` bytes, and
    LoadFailed if the disk is full."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit:
            raise SourceFailed(f"its answer is larger than {limit} bytes")
        try:
            await to_thread.run_sync(file.write, piece) if size > _IN_MEMORY else file.write(piece)
        except OSError as error:
            raise LoadFailed(f"its answer cannot be kept: {error.strerror}") from error
    return size


async def arriving(response: Response, deadline: Deadline | None = None) -> AsyncIterator[bytes]:
    """Yields the body of a response as it arrives, extending the deadline. Raises LoadFailed."""
    try:
        async for piece in cast(AsyncIterable[bytes], response.stream):
            if deadline is not None:
                deadline.earn(len(piece))
            yield piece
    except EXPECTED as error:
        raise LoadFailed(fault_of(error).message) from error


def _plain(response: Response, deadline: Deadline) -> AsyncIterator[bytes]:
    """The body of a response, decompressed if the server used gzip without being asked."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise LoadFailed("its answer has an encoding that was not requested")
    body = arriving(response, deadline)
    return unpacked(body) if encoding.endswith("gzip") else body


class NotAsked(SourceFailed):
    """A source was not queried, which does not count as a failure."""


class Health:
    """Tracks the failures of a source."""

    def __init__(self) -> None:
        self._failures: list[float] = []
        self._out_until = 0.0

    def check(self) -> None:
        """Raises NotAsked while the source is skipped."""
        if self.is_out:
            raise NotAsked(f"left out for {_PAUSE:g} s after {_FAILURES} failures")

    @property
    def is_out(self) -> bool:
        """Whether the source is being skipped."""
        return time.monotonic() < self._out_until

    def failed(self) -> None:
        """Records a failure."""
        now = time.monotonic()
        self._failures = [one for one in self._failures if now - one < _WITHIN] + [now]
        if len(self._failures) >= _FAILURES:
            self._out_until = now + _PAUSE
            self._failures = []

    def answered(self) -> None:
        """Records a success."""
        self._failures.clear()


class Cache:
    """Reuses results for ``seconds``. With 0, nothing is cached."""

    def __init__(self, seconds: float, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._kept: dict[object, tuple[float, Any]] = {}

    async def get(self, key: object, make: Callable[[], Awaitable[T]]) -> T:
        """Returns the cached value of a key, or else the result of ``make``, which is cached if it is a list of at most
        ``_MAX_CACHED`` items."""
        now = time.monotonic()
        known = self._kept.get(key)
        if known is not None and known[0] > now:
            return known[1]  # type: ignore[no-any-return]
        made = await make()
        if self._seconds and isinstance(made, list) and len(made) <= _MAX_CACHED:
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (now + self._seconds, made)
        return made


def filled(template: str, values: Mapping[str, str]) -> str:
    """Fills in the template of a URL. In the query values are escaped, and parameters without a value are dropped. No
    value can escape from the path of the template: ``.`` and ``..`` segments are removed."""

    def whole(name: re.Match[str]) -> str:
        return values.get("url", "") if name[1] == "url" else escaped(name)

    def escaped(name: re.Match[str]) -> str:
        return quote(values.get(name[1], ""), safe="")

    path, mark, query = template.partition("?")
    path, inner, rest = _NAME.sub(whole, path).partition("?")
    path = _DOTS.sub("", path) + inner + rest
    if not mark:
        return path
    kept = [part for part in _NAME.sub(escaped, query).split("&") if part and not part.endswith("=")]
    return f"{path}?{'&'.join(kept)}" if kept else path


def authorized(url: str, own: str) -> str:
    """Adds user and password of ``own`` to a URL of the same origin. Other URLs are returned unchanged. Rows never
    contain them."""
    user, at, _ = own.partition("://")[2].partition("/")[0].rpartition("@")
    if not at or not same_origin(url, own):
        return url
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{user}@{authority.rpartition('@')[2]}{slash}{path}"


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    try:
        a, b = urlsplit(one), urlsplit(other)
        return (a.scheme, a.hostname, a.port) == (b.scheme, b.hostname, b.port)
    except ValueError:
        return False
