"""CDXJ in Redis: a sorted set whose members are lines with score 0, and a hash of paths by filename.

A ``*`` in the key of an index matches any characters; all matching keys are read, up to ``_MAX_KEYS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from archec.access.errors import MayBlock, SourceFailed
from archec.access.loading import WarcPlace
from archec.access.ordering import ordered_rows
from archec.access.query import Query
from archec.access.rows import Row, RowOrigin, any_row
from archec.access.sources import LEFT_OUT, Errors, LocalSource, ServerSource

T = TypeVar("T")

_CHUNK = 500
_MAX_KEYS = 1000


class RedisLines:
    """The members of a sorted set. See :class:`archec.access.ordering.OrderedLines`."""

    def __init__(self, client: redis.Redis, key: bytes) -> None:
        self._client, self._key = client, key

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        return self._members(self._client.zrangebylex, b"[" + start, b"(" + end)

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        return self._members(self._client.zrevrangebylex, b"(" + end, b"[" + start)

    def _members(self, ask: Callable[..., Any], first: bytes, last: bytes) -> Iterator[bytes]:
        found: list[bytes] = []
        while not found or len(found) == _CHUNK:
            found = list(ask(self._key, first, last, start=0, num=_CHUNK))
            if not found:
                return
            yield from found
            first = b"(" + found[-1]


class RedisSource(ServerSource, LocalSource):
    """An index in Redis."""

    type = "redis"

    def __init__(self, name: str, url: str, timeout: float) -> None:
        super().__init__(name)
        self._client, self._key = connect(url, timeout)

    def parts(self, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        if at_once:
            raise MayBlock
        if self.is_out:
            errors[self.name] = LEFT_OUT
            return ()
        origin = RowOrigin(self.name, self.name, self.type)
        keys = list(self._watched(self._keys(), errors))
        found = (ordered_rows(RedisLines(self._client, key), any_row, origin, query) for key in keys)
        parts = [_prefetched(self._watched(rows, errors)) for rows in found]
        if self.name not in errors:
            self.health.answered()
        return parts

    def _watched(self, found: Iterator[T], errors: Errors) -> Iterator[T]:
        """Yields keys or rows until Redis fails. If it only refuses a key, it is not left out for that."""
        try:
            yield from found
        except redis.ResponseError as error:
            errors[self.name] = _reason(error)
        except redis.RedisError as error:
            if self.name not in errors:  # else it was too late for this answer, and has been counted
                self.failed(_reason(error), errors)

    def _keys(self) -> Iterator[bytes]:
        if "*" in self._key:
            yield from sorted(islice(self._client.scan_iter(match=self._key, count=1000), _MAX_KEYS))
        else:
            yield self._key.encode()


def _prefetched(rows: Iterator[Row]) -> Iterator[Row]:
    """Fetches the first rows in the current thread, so that the consumer of the iterator need not wait for them."""
    first = next(rows, None)
    return iter(()) if first is None else chain([first], rows)


class RedisResolver:
    """Paths by filename in a hash. See :class:`archec.access.loading.WarcResolver`."""

    def __init__(self, url: str, timeout: float) -> None:
        self._client, self._key = connect(url, timeout)

    def places(self, filename: str) -> Sequence[WarcPlace]:
        try:
            found: Any = self._client.hget(self._key, filename)
        except redis.RedisError as error:
            raise SourceFailed(_reason(error)) from error
        return [WarcPlace(bytes(found).decode("utf-8", "surrogateescape"))] if found is not None else []


def connect(url: str, timeout: float) -> tuple[redis.Redis, str]:
    """A client and the key for ``redis://HOST[:PORT][/N]/KEY``. Does not connect yet."""
    parts = urlsplit(url)
    first, _, rest = parts.path.strip("/").partition("/")
    number, key = (int(first), rest) if rest and first.isdecimal() else (0, parts.path.strip("/"))
    client = redis.Redis(
        host=parts.hostname or "localhost",
        port=parts.port or 6379,
        db=number,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ssl=parts.scheme == "rediss",
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        protocol=2,
        retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),  # for a connection that was closed while it was not used
    )
    return client, unquote(key)


def _reason(error: redis.RedisError) -> str:
    if isinstance(error, redis.ResponseError):
        return f"Redis refuses the request: {error}"
    return f"Redis does not answer: {type(error).__name__}"
