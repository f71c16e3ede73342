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


def named(url: str) -> dict[str, Any]:
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
