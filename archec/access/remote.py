"""Asking other servers: requests within a time, large answers that wait on disk, servers that keep failing."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlsplit

from anyio import to_thread

from archec.access.errors import LoadFailed, SourceFailed
from archec.access.posts import Body
from archec.access.record import unpacked
from archec.web.door import EXPECTED, URL, Response, Sender, fault_of, named

T = TypeVar("T")

_IN_MEMORY = 4 << 20
MAX_ANSWER = 4 << 30
"""Bytes of the largest answer of an index, and of a body whose size is not told."""
_MIN_RATE = 100_000
"""Bytes a second by which an answer earns more time than its source has."""
_AGAIN = 0.1
"""Seconds after which a task that goes on after its time is interrupted once more."""
_NAME = re.compile(r"\{([^{}]+)\}")
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?=/|\Z)", re.I)
_MAX_CACHED = 1000
_FAILURES, _WITHIN, _PAUSE = 3, 20.0, 20.0
"""So many failures within so many seconds leave a source out for so many."""


class Web:
    """What sends the requests of all sources and loaders; it is there while the server runs."""

    def __init__(self) -> None:
        self.sender: Sender | None = None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        trusted: bool,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> AsyncIterator[Response]:
        """An answer whose body has not been read; redirects are not followed. ``trusted``: the operator has named the
        host. Raises LoadFailed."""
        if self.sender is None:
            raise LoadFailed("the server is not running")
        try:
            target = URL(url)  # read once
            extensions = named(target) if trusted else {}
            content = None
            if body is not None and body.size:
                headers, content = {**(headers or {}), "Content-Length": str(body.size)}, body.pieces()
            response = await self.sender.send(method, target, headers, content, extensions)
            try:
                yield response
            finally:
                await response.aclose()
        except EXPECTED as error:
            raise LoadFailed(fault_of(error).message) from error


class Deadline:
    """A time by which the present task must be done; what arrives earns more. A context manager.

    Raises SourceFailed when the time is over: the task is interrupted wherever it waits, and again if it goes on
    (``asyncio.wait_for`` of Pythons before 3.12 may take an answer for an end of the interruption).
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
        """So many bytes have arrived."""
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


class Fetched(NamedTuple):
    """An answer of an index: its status, its headers, its body in a file that is at its beginning."""

    status: int
    headers: Mapping[str, str]
    body: IO[bytes]

    def lines(self) -> Iterator[bytes]:
        """The lines of the body without their ends; the file is closed behind the last."""
        with self.body:
            while line := self.body.readline(1 << 20):
                yield line.rstrip(b"\r\n")


async def fetch(
    web: Web, method: str, url: str, seconds: float, headers: Mapping[str, str] | None = None
) -> Fetched:
    """The whole answer of a server that the operator has named. Raises SourceFailed."""
    body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by its reader
    try:
        with Deadline(seconds) as deadline:
            async with web.stream(method, url, trusted=True, headers=headers) as response:
                await spooled(_plain(response, deadline), body, MAX_ANSWER)
        body.seek(0)
        return Fetched(response.status_code, response.headers, body)
    except LoadFailed as error:
        body.close()
        raise SourceFailed(error.message) from error
    except BaseException:
        body.close()
        raise


async def spooled(pieces: AsyncIterator[bytes], file: IO[bytes], limit: int) -> int:
    """Writes pieces into a file; their size. Raises LoadFailed for more than ``limit`` bytes, and without room."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit:
            raise LoadFailed(f"its answer is larger than {limit} bytes")
        try:
            await to_thread.run_sync(file.write, piece) if size > _IN_MEMORY else file.write(piece)
        except OSError as error:
            raise LoadFailed(f"its answer cannot be kept: {error.strerror}") from error
    return size


async def arriving(response: Response, deadline: Deadline | None = None) -> AsyncIterator[bytes]:
    """The body of an answer as it comes, which earns a deadline more time. Raises LoadFailed."""
    try:
        async for piece in cast(AsyncIterable[bytes], response.stream):
            if deadline is not None:
                deadline.earn(len(piece))
            yield piece
    except EXPECTED as error:
        raise LoadFailed(fault_of(error).message) from error


def _plain(response: Response, deadline: Deadline) -> AsyncIterator[bytes]:
    """The body of an answer, unpacked piece by piece where it came as gzip, although none was requested."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise LoadFailed("its answer has an encoding that was not requested")
    body = arriving(response, deadline)
    return unpacked(body) if encoding.endswith("gzip") else body


class NotAsked(SourceFailed):
    """A source is not asked, which is no failure of it."""


class Health:
    """Whether a source keeps failing."""

    def __init__(self) -> None:
        self._failures: list[float] = []
        self._out_until = 0.0

    def check(self) -> None:
        """Raises NotAsked while the source is left out."""
        if self.is_out:
            raise NotAsked(f"left out for {_PAUSE:g} s after {_FAILURES} failures")

    @property
    def is_out(self) -> bool:
        """Whether the source is left out now."""
        return time.monotonic() < self._out_until

    def failed(self) -> None:
        """It failed once more."""
        now = time.monotonic()
        self._failures = [one for one in self._failures if now - one < _WITHIN] + [now]
        if len(self._failures) >= _FAILURES:
            self._out_until = now + _PAUSE
            self._failures = []

    def answered(self) -> None:
        """It answered."""
        self._failures.clear()


class Cache:
    """Answers that are used again for ``seconds``; 0: none are kept."""

    def __init__(self, seconds: float, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._kept: dict[object, tuple[float, Any]] = {}

    async def get(self, key: object, make: Callable[[], Awaitable[T]]) -> T:
        """What is kept under a key, else what ``make`` gives; a list is kept if it is not long."""
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
    """A URL from a template. Behind the ``?`` values are escaped; names without a value give nothing. No value leads
    out of the template's path: parts ``.`` and ``..`` are left out."""

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
    """A URL of the origin of ``own`` with the user and password of that, which no row shows; any other as it is."""
    user, at, _ = own.partition("://")[2].partition("/")[0].rpartition("@")
    if not at or not same_origin(url, own):
        return url
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{user}@{authority.rpartition('@')[2]}{slash}{path}"


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have scheme, host and port in common."""
    try:
        a, b = urlsplit(one), urlsplit(other)
        return (a.scheme, a.hostname, a.port) == (b.scheme, b.hostname, b.port)
    except ValueError:
        return False
