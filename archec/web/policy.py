"""The policy of the door: what it may connect to, through which proxies, with which TLS, and how long and large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import httpx

from archec.config import Denial, FetchConfig

Profile = Literal["fetch", "platform", "remote", "upload"]
"""What connections are for: *fetch* files that templates name, ask the API of a *platform* and download what it names,
read *remote* archives, *upload* with keys of the operator."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Times in seconds, sizes in bytes; 0 means no limit.

    ``agent`` is the User-Agent, ``contact`` the password of anonymous ftp. ``allow_networks`` are exempt from the
    guard, ``deny`` is what is never asked, ``old_tls`` and ``insecure_hosts`` are for :mod:`archec.web.tls`. An answer
    fails that brings no byte for ``idle_timeout``, is slower than ``min_rate`` bytes a second on average, larger than
    ``max_size`` or not over within ``total_timeout``.
    """

    agent: str
    contact: str = ""
    allow_networks: tuple[str, ...] = ()
    deny: tuple[Denial, ...] = ()
    proxy: str = ""
    connect_timeout: float = 20.0
    idle_timeout: float = 30.0
    total_timeout: float = 0.0
    min_rate: int = 0
    max_size: int = 0
    old_tls: bool = False
    insecure_hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: FetchConfig, agent: str, profile: Profile) -> Policy:
        """The policy of a profile, as configured.

        Only *fetch* bounds the size of a file and the time for it, and makes do with poor TLS: tokens and keys pass
        through the others.
        """
        bounded = profile == "fetch"
        return cls(
            agent,
            config.contact,
            config.allow_networks,
            config.deny,
            config.proxy,
            config.connect_timeout,
            config.idle_timeout,
            config.total_timeout if bounded else 0.0,
            0 if profile == "upload" else config.min_rate,
            config.max_size if bounded else 0,
            bounded and config.old_tls,
            config.insecure_hosts if bounded else (),
        )


@dataclass(frozen=True, slots=True)
class Tuning:
    """Bounds that no operator needs to set: times in seconds, sizes in bytes. Tests make them small."""

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


def named(url: str | httpx.URL) -> dict[str, Any]:
    """The ``extensions`` of a request for a URL that the operator has named: its host and port need not be public.

    Redirects and other requests of the same host and port are exempt with it, no others are.

    Raises:
        httpx.InvalidURL: it is no URL.
    """
    return {"named": origin_of(httpx.URL(url))}


def port_of(url: httpx.URL) -> int:
    """The port to connect to. Raises httpx.UnsupportedProtocol for port 0, at which nothing can listen."""
    port = url.port if url.port is not None else PORTS.get(url.scheme, 80)
    if not port:
        raise httpx.UnsupportedProtocol("port 0 is none")
    return port


def origin_of(url: httpx.URL) -> tuple[str, int]:
    """Host and port of a URL."""
    return url.raw_host.decode("ascii").lower(), url.port or PORTS.get(url.scheme, 0)


PORTS = {"http": 80, "https": 443, "ftp": 21}
