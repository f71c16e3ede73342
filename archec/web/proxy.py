"""Which proxy a request goes through: ``fetch.proxy``, else HTTP_PROXY, HTTPS_PROXY, FTP_PROXY, NO_PROXY.

What the guard can promise behind a proxy: a host that is a private address is refused, and a name is
resolved here and refused where one of its addresses is private. The proxy resolves the name again, so
a name that answers differently to the proxy gets by; a proxy with rules of its own must stop that. A
name that cannot be resolved here is refused too, unless ``fetch.allow_networks`` holds ``0.0.0.0/0``.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from archec.errors import ConfigError

__all__ = ["Proxies", "Proxy"]


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy: ``scheme`` http or https; ``authorization`` is the value of Proxy-Authorization or empty."""

    scheme: str
    host: str
    port: int
    authorization: bytes = b""

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"


class Proxies:
    """The proxies of a run. An explicit setting holds for every request, NO_PROXY included."""

    def __init__(self, setting: str = "") -> None:
        self._fixed = _parse(setting, "fetch.proxy") if setting else None
        self._environment: dict[str, str] = {} if setting else _environment()
        self._parsed = {
            scheme: _parse(self._environment[scheme], f"{scheme.upper()}_PROXY")
            for scheme in ("http", "https", "ftp")
            if self._environment.get(scheme)
        }

    def choose(self, scheme: str, netloc: str) -> Proxy | None:
        """The proxy for a URL's scheme and host (with port), None to connect directly."""
        if self._fixed is not None:
            return self._fixed
        proxy = self._parsed.get(scheme)
        if proxy is None:
            return None
        from urllib.request import proxy_bypass

        return None if proxy_bypass(netloc, self._environment) else proxy

    def covers(self, scheme: str) -> bool:
        """Whether URLs of this scheme go through a proxy (those of NO_PROXY apart)."""
        return self._fixed is not None or scheme in self._parsed

    def __bool__(self) -> bool:
        return self._fixed is not None or bool(self._parsed)


def _environment() -> dict[str, str]:
    """The environment's proxies by scheme. What reads them takes a while to import, so it is left where none is set."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies_environment

    return getproxies_environment()


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
