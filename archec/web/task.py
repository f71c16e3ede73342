"""The interface of the fetcher: a task is one request, a hop is its result, and a sink stores bodies. Also the messages
between the pool and its workers, which are sent by :mod:`archec.workers.pipe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from archec.web.outcome import Outcome

HEAD = 1536
"""Number of bytes of a body that are returned with its hop, enough to detect its media type."""

HopKind = Literal["body", "redirect", "not-modified", "failed", "doubtful"]


class FetchTask(NamedTuple):
    """A request to make.

    ``url`` is a normalised URL. ``etag`` and ``last_modified`` are validators from an earlier visit; with either of
    them the request is conditional.
    """

    url: str
    etag: str = ""
    last_modified: str = ""


class Hop(Struct, frozen=True, array_like=True):
    """The result of a task. Redirects are not followed: ``location`` is the target.

    ``kind`` is ``body`` (``temp``, ``md5``, ``sha256``, ``size`` are set; the caller owns the temporary file from then
    on), ``redirect``, ``not-modified`` or ``failed`` (with ``outcome`` and ``message``). ``outcome`` is None for a body
    and a redirect: the caller decides what they mean. A ``doubtful`` hop takes back an earlier one of the same URL,
    whose connection later proved to be out of sync, so that the response may belong to another request; it does not
    complete a task. ``deferred``: the host was given up for this run, and nothing is known about this file. No field
    ever contains a user name or password from a URL.
    """

    url: str
    kind: HopKind
    outcome: Outcome | None = None
    status: int = 0
    """HTTP status, 0 without a response. For FTP the nearest HTTP status."""
    headers: tuple[tuple[str, str], ...] = ()
    """The kept headers, names in lower case, values cleaned and limited in length (``headers.KEPT``)."""
    location: str = ""
    """A normalised URL."""
    temp: str = ""
    md5: str = ""
    sha256: str = ""
    size: int = 0
    """Bytes of the entity body after transfer coding was removed."""
    content_type: str = ""
    message: str = ""
    """The reason of a failure, for people."""
    deferred: bool = False
    wait: float = 0.0
    """Seconds of the Retry-After of a 429 or 503, or of robots.txt."""
    head: bytes = b""
    """The first :data:`HEAD` bytes of a body."""

    def header(self, name: str) -> str:
        """The first kept header with this lower-case name, or ``""``."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""


def failure(url: str, outcome: Outcome, message: str, *, deferred: bool = False) -> Hop:
    """A failed hop of a task without a response."""
    return Hop(url, "failed", outcome, message=message, deferred=deferred)


class TempLike(Protocol):
    """The temporary file of a body. Call exactly one of ``close`` and ``discard`` at the end.

    Raises:
        StorageFull: no space is left; nothing further is fetched.
        StorageFailed: the file system refused.
    """

    def write(self, data: bytes, /) -> None:
        """Appends ``data``."""

    def close(self) -> tuple[str, str, str, int]:
        """Completes the file, which then belongs to the caller. Returns its name in the sink, the hex digits of its MD5
        and SHA-256, and its size in bytes."""

    def discard(self) -> None:
        """Removes the file. Does not raise if it no longer exists."""


class Sink(Protocol):
    """Temporary files of a worker process."""

    def temp(self, url: str, /) -> TempLike:
        """Creates one for the body of ``url``."""

    def discard(self, temp: str, /) -> None:
        """Removes one that was complete."""


# -- messages -------------------------------------------------------------------------------------


class Tasks(Struct, array_like=True, tag=1, frozen=True):
    """To a worker."""

    items: Sequence[FetchTask]


class HostsKnown(Struct, array_like=True, tag=7, frozen=True):
    """To a worker: the known state of hosts: name, consecutive faults, seconds during which no request may be sent."""

    items: Sequence[tuple[str, int, float]]


class Stop(Struct, array_like=True, tag=3, frozen=True):
    """To a worker: exit. ``finish``: complete the tasks in flight first."""

    finish: bool


class Hops(Struct, array_like=True, tag=4, frozen=True):
    """From a worker: hops, and what it sent and received since the last such message: requests, including robots.txt
    and retries, and bytes of bodies, wanted or not. An empty one is a heartbeat.

    ``spent``: the limit of received bytes is reached, and no more hops follow.
    """

    items: Sequence[Hop] = ()
    received: int = 0
    requests: int = 0
    spent: bool = False


class Fatal(Struct, array_like=True, tag=5, frozen=True):
    """From a worker: it cannot write, because no space is left (``full``) or for another reason."""

    full: bool
    message: str
    hint: str


ToWorker: Any = Tasks | HostsKnown | Stop
FromWorker: Any = Hops | Fatal
