"""Limits of a request: bounds that no operator needs to set, and the watch over a request in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from archec.config import FetchConfig


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times in seconds, sizes in bytes. Tests make them small."""

    rate_grace: float = 30.0
    """``fetch.min_rate`` applies once a body has taken this long."""
    backoff: float = 1.0
    """Wait before the first retry of a request; it doubles with each further one."""
    penalty: float = 1.0
    """First slow-down of a host that answers 429 or 503 without saying for how long."""
    robots_timeout: float = 10.0
    """For a whole robots.txt, including its redirects."""
    robots_size: int = 512_000
    """The rest of a larger robots.txt is not read (RFC 9309 asks for at least 500 KiB)."""
    robots_redirects: int = 5
    """As RFC 9309 section 2.3.1.2 asks."""
    header_bytes: int = 128_000
    """Largest header block, including 1xx answers before it; also for trailers."""
    header_count: int = 256
    drain: int = 65_536
    """An unwanted body up to this size is read so that its connection can be kept."""
    keep_idle: float = 15.0
    """An idle connection is closed after this time."""
    quiet: float = 0.1
    """How long after an answer its connection is looked at for bytes behind it, unless it is used again before."""
    dns_ttl: float = 60.0
    """How long an answer of the name service is used (the address is checked every time)."""
    dns_threads: int = 16
    tick: float = 0.25
    """How often deadlines are checked."""
    flush: float = 0.02
    """How long a result may wait for others to share its message."""
    batch: int = 64
    """Maximum number of results in one message."""
    stop_grace: float = 5.0
    """A worker that has not left this long after it was told to is killed."""


@dataclass(slots=True, eq=False)
class Flight:
    """A request in flight. Times are those of the event loop. ``verdict`` names the limit that was exceeded, if any.

    Checking all flights now and then is cheaper than several timers for each, and it notices what a timeout of
    a single read does not: a server that sends one byte a second.
    """

    started: float
    runner: asyncio.Task[None] | None = None
    """The task to cancel when a limit is exceeded."""
    on_release: Callable[[], None] | None = None
    """Called once, when the request is over; its body may still have to be written."""
    sent: float = 0.0
    head_at: float = 0.0
    """When the head of the answer arrived."""
    last: float = 0.0
    """When the last piece of the body arrived."""
    received: int = 0
    verdict: str = ""
    lasting: bool = False
    """Whether another try in this run would fail too."""

    def release(self) -> None:
        """The request is over: another may start in its place."""
        callback, self.on_release = self.on_release, None
        if callback is not None:
            callback()

    def overdue(self, now: float, config: FetchConfig, tuning: Tuning) -> bool:
        """Whether a time limit has been exceeded; true only once."""
        if self.verdict:
            return False
        if now - self.started > config.total_timeout:
            self.verdict, self.lasting = f"took longer than {config.total_timeout:g} s", True
        elif not self.head_at:
            if self.sent and now - self.sent > config.idle_timeout:
                self.verdict = f"no answer within {config.idle_timeout:g} s"
            elif not self.sent and now - self.started > 1.5 * config.connect_timeout:
                # connect_timeout holds for resolving and for connecting; this is the net under both
                self.verdict = f"no connection within {config.connect_timeout:g} s"
        elif now - self.last > config.idle_timeout:
            self.verdict = f"silent for {config.idle_timeout:g} s in mid-body"
        elif now - self.head_at > tuning.rate_grace and self.received < config.min_rate * (now - self.head_at):
            self.verdict, self.lasting = f"slower than {config.min_rate} bytes per second", True
        return bool(self.verdict)
