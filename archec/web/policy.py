"""The policy for connections: which ones are allowed, through which proxies, with which TLS, and the limits."""

from __future__ import annotations

import base64
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote, urlsplit

from archec.config import Denial, FetchConfig
from archec.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Profile = Literal["fetch", "platform", "remote", "upload"]
"""The purpose of connections: *fetch* files that templates name, query the API of a *platform* and download what it
names, read *remote* archives, *upload* with the operator's keys."""
PORTS = {"http": 80, "https": 443, "ftp": 21}
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NO_REASON = "by fetch.deny"
_FINAL_DOT = re.compile(r"\A([a-z]+://[^/:\[]*[^/:.\[])\.+(?=[:/]|\Z)")
"""The host in a URL and the dots at its end, with which it is still the same host."""


def limited(config: FetchConfig, profile: Profile) -> FetchConfig:
    """The settings for a profile, in which 0 means no limit.

    Only *fetch* limits the size of a file and its time, and accepts weak TLS: the others transmit tokens and keys.
    """
    if profile == "fetch":
        return config
    rate = 0 if profile == "upload" else config.min_rate
    return replace(config, total_timeout=0.0, max_size=0, min_rate=rate, old_tls=False, insecure_hosts=())


@dataclass(frozen=True, slots=True)
class Tuning:
    """Limits that operators need not set. Times in seconds, sizes in bytes. Tests make them small."""

    rate_grace: float = 30.0
    """``fetch.min_rate`` applies once a body has taken this long."""
    backoff: float = 1.0
    """Wait before the first retry of a request. It doubles with each retry."""
    penalty: float = 1.0
    """Initial slow-down of a host that answers 429 or 503 without Retry-After."""
    robots_timeout: float = 10.0
    """For each request for a robots.txt. A redirect is a further request."""
    drain: int = 65_536
    """An unwanted body up to this size is read so that its connection can be reused."""
    quiet: float = 0.1
    """How long after a response its connection is checked for surplus bytes, unless it is reused before."""
    dns_threads: int = 16
    tick: float = 0.25
    """Interval at which deadlines are checked."""
    flush: float = 0.02
    """How long a result may wait to be sent with others in one message."""
    batch: int = 64
    """Maximum number of results in one message."""
    stop_grace: float = 5.0
    """A worker that has not exited this long after it was told to is killed."""


def embedded(ip: Address) -> Sequence[ipaddress.IPv4Address]:
    """The IPv4 addresses that packets to ``ip`` may finally reach; empty if it embeds none.

    Mapped and compatible addresses (RFC 4291), 6to4 (RFC 3056), ISATAP (RFC 5214), Teredo (RFC 4380: its server and its
    client), NAT64 (RFC 6052). A local NAT64 prefix (RFC 8215) may have any length, so all of them are considered.
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return ()
    if ip.sixtofour is not None:
        return (ip.sixtofour,)
    if ip.teredo is not None:
        return ip.teredo
    low = ipaddress.IPv4Address(ip.packed[12:])
    if ip in _NAT64_LOCAL:
        octets = ip.packed[:8] + ip.packed[9:]  # the ninth octet is reserved and lies within the address
        return (low, *(ipaddress.IPv4Address(octets[length : length + 4]) for length in (6, 7, 8)))
    if ip in MAPPED or ip in _COMPATIBLE or ip in NAT64 or int(ip) >> 32 & 0xFCFFFFFF == 0x00005EFE:
        return (low,)
    return ()


def plain(address: str) -> str:
    """A numeric address without its zone, and as IPv4 if it embeds exactly one IPv4 address."""
    ip = parsed(address)
    inner = embedded(ip)
    return str(inner[0] if len(inner) == 1 else ip)


def parsed(address: str) -> Address:
    """Parses a numeric address and drops its zone. Raises ValueError if it is invalid."""
    return ipaddress.ip_address(address.partition("%")[0])


class Deny:
    """What the operator forbids to fetch: hosts with their subdomains, patterns of URLs, and networks, each with its
    reason."""

    def __init__(self, denials: Sequence[Denial] = ()) -> None:
        self._hosts = {host: denial.reason or _NO_REASON for denial in denials for host in denial.hosts}
        self._urls = [
            (_pattern(_FINAL_DOT.sub(r"\1", url)), denial.reason or _NO_REASON)
            for denial in denials
            for url in denial.urls
        ]
        self._networks = [
            (ipaddress.ip_network(network), denial.reason or _NO_REASON)
            for denial in denials
            for network in denial.networks
        ]
        self.has_networks = bool(self._networks)
        self.has_urls = bool(self._hosts or self._urls)

    def reason(self, url: str) -> str:
        """Why a normalised URL must not be fetched, or ""."""
        if not self.has_urls:
            return ""
        url = _FINAL_DOT.sub(r"\1", url)
        reason = self.reason_of_host(re.sub(r":[0-9]*\Z", "", url.partition("://")[2].partition("/")[0]))
        return reason or next((reason for pattern, reason in self._urls if pattern.match(url)), "")

    def reason_of_host(self, name: str) -> str:
        """Why nothing may be fetched from a host, written as in URLs, or ""."""
        while name and self._hosts:
            if name in self._hosts:
                return self._hosts[name]
            name = name.partition(".")[2]
        return ""

    def reason_of_address(self, address: str) -> str:
        """Why nothing may be fetched from an address, in any spelling (:func:`embedded`), or ""."""
        ip = parsed(address)
        spellings = (ip, *embedded(ip))
        return next((reason for network, reason in self._networks if any(one in network for one in spellings)), "")


def _pattern(url: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, url.split("*"))) + r"\Z", re.I)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. ``scheme`` is http or https; ``authorization`` is the value of Proxy-Authorization, or empty."""

    scheme: str
    host: str
    port: int
    authorization: bytes = b""

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"


class Proxies:
    """The proxies of requests: ``fetch.proxy`` for all of them, whatever NO_PROXY says; otherwise HTTP_PROXY,
    HTTPS_PROXY, FTP_PROXY and NO_PROXY of the environment.

    Raises ConfigError if the URL of a proxy is invalid.
    """

    def __init__(self, setting: str = "") -> None:
        self._fixed = _parse(setting, "fetch.proxy") if setting else None
        self._environment: dict[str, str] = {}
        if not setting and any(name.lower().endswith("_proxy") for name in os.environ):
            from urllib.request import getproxies_environment, proxy_bypass  # slow to import, and few have a proxy

            self._environment, self._bypasses = getproxies_environment(), proxy_bypass
        self._by_scheme = {
            scheme: _parse(self._environment[scheme], f"{scheme.upper()}_PROXY")
            for scheme in ("http", "https", "ftp")
            if self._environment.get(scheme)
        }

    def choose(self, scheme: str, netloc: str) -> Proxy | None:
        """The proxy for a URL's scheme and host (with port), or None to connect directly."""
        if self._fixed is not None:
            return self._fixed
        proxy = self._by_scheme.get(scheme)
        names = (netloc, netloc[1:].partition("]")[0]) if netloc.startswith("[") else (netloc,)  # NO_PROXY=::1
        if proxy is None or any(self._bypasses(name, self._environment) for name in names):
            return None
        return proxy

    def covers(self, scheme: str) -> bool:
        """Whether URLs with this scheme go through a proxy (except those that NO_PROXY exempts)."""
        return self._fixed is not None or scheme in self._by_scheme


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
