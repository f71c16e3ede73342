"""The policy of the door: what it may connect to, through which proxies, with which TLS, and how long and large."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from archec.config import Denial, FetchConfig
from archec.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Profile = Literal["fetch", "platform", "remote", "upload"]
"""What connections are for: *fetch* files that templates name, ask the API of a *platform* and download what it names,
read *remote* archives, *upload* with keys of the operator."""
PORTS = {"http": 80, "https": 443, "ftp": 21}
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NO_REASON = "by fetch.deny"
_FINAL_DOT = re.compile(r"\A([a-z]+://[^/:\[]*[^/:.\[])\.+(?=[:/]|\Z)")
"""A host's name in a URL, and the dots at its end, which name the same host."""


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
    drain: int = 65_536
    """An unwanted body up to this size is read so that its connection can be kept."""
    quiet: float = 0.1
    """How long after an answer its connection is looked at for bytes behind it, unless it is used again before."""
    dns_threads: int = 16
    tick: float = 0.25
    """How often deadlines are checked."""
    flush: float = 0.02
    """How long a result may wait for others to share its message."""
    batch: int = 64
    """Maximum number of results in one message."""
    stop_grace: float = 5.0
    """A worker that has not left this long after it was told to is killed."""


def embedded(ip: Address) -> Sequence[ipaddress.IPv4Address]:
    """The IPv4 addresses that packets to ``ip`` may finally reach; none where it is not a spelling of one.

    Mapped and compatible addresses (RFC 4291), 6to4 (RFC 3056), ISATAP (RFC 5214), Teredo (RFC 4380: its server and its
    client), NAT64 (RFC 6052). The length of a local NAT64 prefix (RFC 8215) is anybody's choice: all are looked at.
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return ()
    if ip.sixtofour is not None:
        return (ip.sixtofour,)
    if ip.teredo is not None:
        return ip.teredo
    low = ipaddress.IPv4Address(ip.packed[12:])
    if ip in _NAT64_LOCAL:
        octets = ip.packed[:8] + ip.packed[9:]  # the ninth is reserved: the address is around it
        return (low, *(ipaddress.IPv4Address(octets[length : length + 4]) for length in (6, 7, 8)))
    if ip in MAPPED or ip in _COMPATIBLE or ip in NAT64 or int(ip) >> 32 & 0xFCFFFFFF == 0x00005EFE:
        return (low,)
    return ()


def plain(address: str) -> str:
    """A numeric address without its zone, and as IPv4 where it is another spelling of one such address."""
    ip = parsed(address)
    inner = embedded(ip)
    return str(inner[0] if len(inner) == 1 else ip)


def parsed(address: str) -> Address:
    """A numeric address without its zone. Raises ValueError if it is none."""
    return ipaddress.ip_address(address.partition("%")[0])


class Deny:
    """What the operator says is not to be fetched: hosts with all below them, patterns of URLs, networks; each with its
    reason."""

    def __init__(self, denials: Sequence[Denial] = ()) -> None:
        self._hosts = {host: denial.reason or _NO_REASON for denial in denials for host in denial.hosts}
        self._urls = [(_pattern(url), denial.reason or _NO_REASON) for denial in denials for url in denial.urls]
        self._networks = [
            (ipaddress.ip_network(network), denial.reason or _NO_REASON)
            for denial in denials
            for network in denial.networks
        ]

    @property
    def has_networks(self) -> bool:
        """Whether addresses are denied."""
        return bool(self._networks)

    def reason(self, url: str) -> str:
        """Why a normalised URL is not to be fetched; empty: it may be."""
        if not (self._hosts or self._urls):
            return ""
        url = _FINAL_DOT.sub(r"\1", url)
        reason = self.reason_of_host(re.sub(r":[0-9]*\Z", "", url.partition("://")[2].partition("/")[0]))
        return reason or next((reason for pattern, reason in self._urls if pattern.match(url)), "")

    def reason_of_host(self, name: str) -> str:
        """Why nothing is to be fetched from a host, as in URLs; empty: it may be."""
        while name and self._hosts:
            if name in self._hosts:
                return self._hosts[name]
            name = name.partition(".")[2]
        return ""

    def reason_of_address(self, address: str) -> str:
        """Why nothing is to be fetched from an address, however it is spelt (:func:`embedded`); empty: it may be."""
        ip = parsed(address)
        spellings = (ip, *embedded(ip))
        return next((reason for network, reason in self._networks if any(one in network for one in spellings)), "")


def _pattern(url: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, url.split("*"))) + r"\Z", re.I)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy: ``scheme`` http or https; ``authorization`` is the value of Proxy-Authorization, or empty."""

    scheme: str
    host: str
    port: int
    authorization: bytes = b""

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"


class Proxies:
    """Which proxy a request goes through: ``fetch.proxy`` for every one, whatever NO_PROXY says; else the
    environment's HTTP_PROXY, HTTPS_PROXY, FTP_PROXY and NO_PROXY.

    Raises ConfigError for a proxy URL that is invalid.
    """

    def __init__(self, setting: str = "") -> None:
        self._fixed = _parse(setting, "fetch.proxy") if setting else None
        self._environment: dict[str, str] = {} if setting else getproxies_environment()
        self._by_scheme = {
            scheme: _parse(self._environment[scheme], f"{scheme.upper()}_PROXY")
            for scheme in ("http", "https", "ftp")
            if self._environment.get(scheme)
        }

    def choose(self, scheme: str, netloc: str) -> Proxy | None:
        """The proxy for a URL's scheme and host (with port), None to connect directly."""
        if self._fixed is not None:
            return self._fixed
        proxy = self._by_scheme.get(scheme)
        if proxy is None or proxy_bypass(netloc, self._environment):
            return None
        return proxy

    def covers(self, scheme: str) -> bool:
        """Whether URLs of this scheme go through a proxy (except those that NO_PROXY exempts)."""
        return self._fixed is not None or scheme in self._by_scheme

    def __bool__(self) -> bool:
        return self._fixed is not None or bool(self._by_scheme)


def _parse(url: str, name: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"{name} is not the URL of a proxy: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{name} is not the URL of a proxy", hint="http://host:port or https://host:port")
    authorization = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = b"Basic " + base64.b64encode(pair.encode())
    return Proxy(parts.scheme, parts.hostname, port, authorization)
