"""The platforms of filesets in the configuration: ``fileset.platforms``, groups by name."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

_RATE = re.compile(r"([1-9][0-9]{0,6})/(s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:\*\.)?[a-z0-9.\[\]:_-]+")


class PlatformConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One platform: its hosts (with ports other than the default; ``*.`` for subdomains), the base URL of its API, the
    rate limit of the API (``60/min``, ``none``), the environment variable with a token. An empty value means archec's
    default."""

    name: str = ""
    hosts: tuple[str, ...] = ()
    api: str = ""
    enabled: bool = True
    rate: str = ""
    token: str = ""


def read_platforms(value: Any) -> Any:
    """Converts groups by name to a list of platforms."""
    if not isinstance(value, dict) or not all(isinstance(group, dict) for group in value.values()):
        return value
    return [{"name": str(name), **_group(str(name), group)} for name, group in value.items()]


def _group(name: str, group: dict[Any, Any]) -> dict[Any, Any]:
    found = dict(group)
    if "name" in found:
        raise ValueError(f"{name}: unknown key name")
    hosts = found.get("hosts", ())
    hosts = [hosts] if isinstance(hosts, str) else hosts
    if isinstance(hosts, list):
        found["hosts"] = [host.lower() if isinstance(host, str) else host for host in hosts]
        bad = next((host for host in found["hosts"] if isinstance(host, str) and not _HOST.fullmatch(host)), None)
        if bad is not None:
            raise ValueError(f"{name}.hosts: {bad!r} is not a host or host:port")
    api = found.get("api", "")
    if isinstance(api, str) and api and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", api):
        raise ValueError(f"{name}.api: {api!r} is not an http:// or https:// URL without a query")
    rate = found.get("rate", "")
    if isinstance(rate, str) and rate not in ("", "none") and not _RATE.fullmatch(rate):
        raise ValueError(f"{name}.rate: {rate!r} is not like 60/min, 1/s, 100/h, or none")
    token = found.get("token", "")
    if isinstance(token, str) and token and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", token):
        raise ValueError(f"{name}.token: must be the name of an environment variable, like {name.upper()}_TOKEN")
    return found


def rate_of(text: str) -> tuple[int, float] | None:
    """A number of requests and a number of seconds; None means no limit."""
    match = _RATE.fullmatch(text)
    return None if match is None else (int(match[1]), _SECONDS[match[2]])
