"""Bounds of the fetcher that no operator needs to set; tests make them small."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tuning"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times in seconds, sizes in bytes."""

    rate_grace: float = 30.0
    """``fetch.min_rate`` is asked for after this time of a body."""
    backoff: float = 1.0
    """Wait before the first repeat of a request; each further one waits twice as long."""
    penalty: float = 1.0
    """First slow-down of a host that answers 429 or 503 and does not say for how long."""
    robots_timeout: float = 10.0
    """For a whole robots.txt, redirects of it included."""
    robots_size: int = 512_000
    """What stands beyond this in a robots.txt is not read (RFC 9309 asks for at least 500 KiB)."""
    robots_redirects: int = 5
    """As RFC 9309 section 2.3.1.2 asks."""
    header_bytes: int = 128_000
    """Largest header block, 1xx answers before it included; also for trailers."""
    header_count: int = 256
    drain: int = 65_536
    """An unwanted body up to this size is read so that its connection can be kept."""
    keep_idle: float = 15.0
    """An unused connection is closed after this time."""
    dns_ttl: float = 60.0
    """An answer of the name service is used for this time (the address is checked every time)."""
    dns_threads: int = 16
    tick: float = 0.25
    """How often deadlines are looked at."""
    flush: float = 0.02
    """Results wait at most so long for others to share a message with."""
    batch: int = 64
    """Results in one message at most."""
    stop_grace: float = 5.0
    """A worker that has not left so long after it was told to is killed."""
