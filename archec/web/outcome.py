"""What the fetcher is asked and what comes of it: a task is one request, a hop is its result, with an outcome; a sink
stores bodies. Also the messages between the pool and its workers, which are sent by :mod:`archec.workers.child`.

HTTP statuses are mapped to outcomes; these are the errors of requests that get no response, or not all of it::

    WebError                     unreachable
     +-- ConnectError            unreachable      no name, no route, refused, TLS failed, a proxy refuses
     |    +-- Blocked            blocked-address  the guard refuses the address
     |    +-- Denied             denied           fetch.deny has the address
     |    +-- Distrusted         bad-certificate  the certificate does not verify
     +-- TimedOut                timeout
     |    +-- NotConnected       timeout          no connection in time
     +-- ReadError               unreachable      closed or reset before a response
     |    +-- Truncated          truncated        closed or reset within a body, or a wrong length
     |    +-- TooLarge           too-large        exceeds one of our limits
     +-- ProtocolError           server-error     not HTTP, or larger than our limits
     +-- BadUrl                  bad-url
     +-- Internal                internal         this machine is out of a resource
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from archec.errors import OUT_OF_RESOURCES, TOO_MANY_FILES, ArchecError
from archec.ids import without_userinfo

_MAX_MESSAGE = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
HEAD = 1536
"""Number of bytes of a body that are returned with its hop, enough to detect its media type."""

HopKind = Literal["body", "redirect", "not-modified", "failed", "doubtful"]


class Outcome(str, Enum):
    """The outcome of a visit to a file.

    The fetcher states failures and ``not-modified``. The caller decides what a body means (new, changed, same,
    cosmetic) and how a chain of redirects ends.
    """

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    NOT_MODIFIED = "not-modified"
    COSMETIC = "cosmetic"
    GONE = "gone"
    FORBIDDEN = "forbidden"
    SERVER_ERROR = "server-error"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too-large"
    ROBOTS = "robots"
    BAD_URL = "bad-url"
    BAD_CERTIFICATE = "bad-certificate"
    BLOCKED_ADDRESS = "blocked-address"
    DENIED = "denied"
    """Denied by the configuration (``fetch.deny``)."""
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TRUNCATED = "truncated"
    DOUBTFUL = "doubtful"
    """The response may belong to another request. The result does not count."""
    INTERNAL = "internal"
    """A local error: processes were lost, or this machine is out of a resource. Never counts against the host."""

    def __str__(self) -> str:
        return self.value

    @property
    def is_transient(self) -> bool:
        """Whether a retry in this run may succeed. Such failures also count against the host."""
        return self in _TRANSIENT


_TRANSIENT = frozenset({Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.TRUNCATED})

BUSY = frozenset({429, 503})
"""Statuses of an overloaded host, whose Retry-After is obeyed."""

_OUTCOME_OF_STATUS = {
    404: Outcome.GONE,
    407: Outcome.UNREACHABLE,
    408: Outcome.SERVER_ERROR,
    410: Outcome.GONE,
    421: Outcome.SERVER_ERROR,
    425: Outcome.SERVER_ERROR,
    429: Outcome.SERVER_ERROR,
}


def of_status(status: int) -> Outcome | None:
    """The failure that an HTTP status states. None for 2xx except 206, for redirects and for 304.

    404 and 410 are ``gone``, the only evidence that counts towards a loss. 408, 421, 425, 429 and 5xx are transient.
    407 comes from a proxy and says nothing about the file. All other 4xx are ``forbidden``: the server understood the
    request and will refuse it again. 206 was not requested, so the body is only a part: ``truncated``. A status outside
    200 to 499 is the server's error.
    """
    if status == 206:
        return Outcome.TRUNCATED
    if 200 <= status < 400:
        return None
    if 400 <= status < 500:
        return _OUTCOME_OF_STATUS.get(status, Outcome.FORBIDDEN)
    return Outcome.SERVER_ERROR


class WebError(ArchecError):
    """A request failed because of the server, the network, or its URL. Its message is fit for reports. ``lasting``: a
    retry in this run would fail, too."""

    outcome = Outcome.UNREACHABLE
    lasting = False

    def __init__(self, message: str) -> None:
        super().__init__(_UNPRINTABLE.sub(" ", without_userinfo(message))[:_MAX_MESSAGE])


class ConnectError(WebError):
    """There is no connection to the host."""


class Blocked(ConnectError):
    """The guard does not allow connections to the address of the host."""

    outcome, lasting = Outcome.BLOCKED_ADDRESS, True


class Denied(ConnectError):
    """The configuration denies connections to the host or its address."""

    outcome, lasting = Outcome.DENIED, True


class Distrusted(ConnectError):
    """The server's certificate does not verify."""

    outcome, lasting = Outcome.BAD_CERTIFICATE, True


class TimedOut(WebError):
    outcome = Outcome.TIMEOUT


class NotConnected(TimedOut):
    """There is no connection to the host in time."""


class ReadError(WebError):
    """The connection ended before a response."""


class Truncated(ReadError):
    """A body is shorter or longer than stated."""

    outcome = Outcome.TRUNCATED


class TooLarge(ReadError):
    """A body is larger than its limit."""

    outcome, lasting = Outcome.TOO_LARGE, True


class ProtocolError(WebError):
    """The server violates HTTP."""

    outcome = Outcome.SERVER_ERROR


class BadUrl(WebError):
    """The request cannot be sent because of its URL or headers."""

    outcome, lasting = Outcome.BAD_URL, True


class Internal(WebError):
    """A local error: this machine cannot open a connection to anyone."""

    outcome = Outcome.INTERNAL


OURS = OUT_OF_RESOURCES | {errno.ENOBUFS, errno.EADDRNOTAVAIL}
"""System errors of this machine when it connects, not of the other end."""


def internal(error: OSError) -> Internal:
    """The exception for one of ``OURS``."""
    hint = "; see 'ulimit -n'" if error.errno in TOO_MANY_FILES else ""
    return Internal(f"this machine cannot open another connection: {os.strerror(error.errno or 0)}{hint}")


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
    """The kept headers (:data:`archec.web.messages.KEPT`), names in lower case, values cleaned and cut."""
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
