"""The fetcher's interface: a task is one request, a hop is its result, a sink is where bodies go; and the messages in
which the pool and its workers tell each other of them, sent by :mod:`archec.workers.pipe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from archec.web.outcome import Outcome

HEAD = 1536
"""Bytes of a body that come with its hop, enough to recognise its media type."""

HopKind = Literal["body", "redirect", "not-modified", "failed", "doubtful"]


class FetchTask(NamedTuple):
    """One request to make.

    ``url`` is a normalised URL; ``etag`` and ``last_modified`` are validators of an earlier visit (the
    request is conditional if there is one).
    """

    url: str
    etag: str = ""
    last_modified: str = ""


class Hop(NamedTuple):
    """The result of one task. Redirects are not followed: ``location`` says where to.

    ``kind`` is ``body`` (``temp``, ``md5``, ``sha256``, ``size`` are set; the caller owns the temporary
    file from then on), ``redirect``, ``not-modified`` or ``failed`` (``outcome`` and ``message`` say
    why). ``outcome`` is None for a body and a redirect: what they mean is the caller's decision. A ``doubtful`` hop
    takes back an earlier one of the same URL, whose connection later proved to be out of step, so that it may have
    answered another request; it ends no task.
    ``deferred``: the host was given up for this run, nothing was learnt about this file.
    No field ever contains a user name or password of a URL.
    """

    url: str
    kind: HopKind
    outcome: Outcome | None = None
    status: int = 0
    """HTTP status of the answer, 0 without an answer; for ftp the HTTP status that comes nearest."""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers worth keeping, names in lower case, values cleaned and bounded (``headers.KEPT``)."""
    location: str = ""
    """A normalised URL."""
    temp: str = ""
    md5: str = ""
    sha256: str = ""
    size: int = 0
    """Bytes of the entity body as served after transfer coding."""
    content_type: str = ""
    message: str = ""
    """What went wrong, for people."""
    address: str = ""
    """The address that was connected to: the server's, or the proxy's."""
    deferred: bool = False
    wait: float = 0.0
    """Seconds for which the host asks not to be asked again: the Retry-After of its 429 or 503."""
    head: bytes = b""
    """The first :data:`HEAD` bytes of a body."""

    def header(self, name: str) -> str:
        """The first kept header with this lower-case name, or ``""``."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""


def failure(url: str, outcome: Outcome, message: str, *, deferred: bool = False) -> Hop:
    """A failed hop of a task that got no answer."""
    return Hop(url, "failed", outcome, message=message, deferred=deferred)


class StoredLike(Protocol):
    """A temporary file that is whole: its name, as the sink has it, its checksums in hex, its bytes."""

    @property
    def temp(self) -> str: ...
    @property
    def md5(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...


class TempLike(Protocol):
    """One body while it is received. Exactly one of ``close`` and ``discard`` ends it.

    Raises:
        StorageFull: no space is left; nothing further is fetched.
        StorageFailed, OSError: the file system refused.
    """

    def write(self, data: bytes, /) -> None:
        """Appends ``data``."""

    def close(self) -> StoredLike:
        """Ends the file, which belongs to the caller from then on."""

    def discard(self) -> None:
        """Removes the file; never raises for a file that is no longer there."""


class Sink(Protocol):
    """Temporary files for a worker process."""

    def temp(self, url: str, /) -> TempLike:
        """A new one for the body of ``url``."""

    def discard(self, temp: str, /) -> None:
        """Removes one that was whole."""


# -- messages -------------------------------------------------------------------------------------


class Tasks(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """To a worker: tasks, each with its serial number."""

    items: Sequence[tuple[int, FetchTask]]


class HostsKnown(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """To a worker: what is known of hosts: name, faults in a row, seconds for which it is not to be asked."""

    items: Sequence[tuple[str, int, float]]


class Stop(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """To a worker: it is to leave, and whether it finishes what is in flight."""

    finish: bool


class Hops(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """From a worker: hops, and what it sent and received since the last such message: requests, robots.txt and repeats
    among them, and bytes of bodies, wanted or not. An empty one is a sign of life.

    ``spent``: nothing more comes, since what may be received has been. With each hop comes the serial number of its
    task.
    """

    items: Sequence[tuple[int, Hop]] = ()
    received: int = 0
    requests: int = 0
    spent: bool = False


class Fatal(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """From a worker: it cannot write, because no space is left or for another reason."""

    full: bool
    message: str


ToWorker: Any = Tasks | HostsKnown | Stop
FromWorker: Any = Hops | Fatal
