"""Kinds: each turns what YAML gives into a setting's type, or raises ValueError.

The message of the error says what it must be; that of a size, duration or share is an ArchecError (``units``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import NamedTuple

from archec.units import parse_duration, parse_share, parse_size

__all__ = [
    "Collection",
    "FormatConfig",
    "collections",
    "count",
    "database",
    "domain",
    "duration",
    "emails",
    "flag",
    "formats",
    "networks",
    "one_of",
    "port",
    "positive",
    "proxy",
    "robots",
    "share",
    "size",
    "some_of",
    "stamp",
    "text",
    "texts",
    "web",
]

_NO_TEXT = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f\\ud800-\\udfff]")


def text(value: object) -> str:
    """Text of one or more lines, without other control characters; may be empty."""
    if value is None:
        raise ValueError("must be text, not nothing")
    if not isinstance(value, str):
        raise ValueError("must be text")
    if _NO_TEXT.search(value):
        raise ValueError("must be text without control characters")
    return value


def flag(value: object) -> bool:
    """Yes or no, as YAML has it."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def count(value: object) -> int:
    """A whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("must be a whole number, 0 or more")
    return value


def positive(value: object) -> int:
    """A whole number, 1 or more."""
    if count(value) == 0:
        raise ValueError("must be a whole number, 1 or more")
    return count(value)


def size(value: object) -> int:
    """Bytes, from a number or from text such as ``20MB``."""
    return parse_size(value if isinstance(value, int) else text(value))


def duration(value: object) -> float:
    """Seconds, from a number or from text such as ``2h30m``."""
    return parse_duration(value if isinstance(value, (int, float)) else text(value))


def share(value: object) -> float:
    """A share between 0 and 1, from a number or from text such as ``5%``."""
    return parse_share(value if isinstance(value, (int, float)) else text(value))


def networks(value: object) -> tuple[str, ...]:
    """IP networks in CIDR notation; the bits of a host in them are dropped."""
    if not isinstance(value, list):
        raise ValueError("must be a list of networks such as [10.1.0.0/16]")
    try:
        return tuple(str(ipaddress.ip_network(text(item), strict=False)) for item in value)
    except ValueError as error:
        raise ValueError(f"must be a list of networks such as [10.1.0.0/16]: {error}") from error


def proxy(value: object) -> str:
    """The address of an HTTP proxy, or empty."""
    given = text(value)
    if given and not given.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// URL, or empty")
    return given


def robots(value: object) -> str:
    """What is done with robots.txt."""
    if value not in ("obey", "ignore"):
        raise ValueError("must be 'obey' or 'ignore'")
    return str(value)


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; one text is a list of one."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be text or a list of texts")
    return tuple(items)


def port(value: object) -> int:
    """The number of a TCP port; 0 is any that is free."""
    if count(value) > 65535:
        raise ValueError("must be a port, 0 to 65535")
    return count(value)


def web(value: object) -> str:
    """The address of a place on the web, without a query and a slash at the end, or empty."""
    given = text(value).rstrip("/")
    if given and not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~%/-]*)?", given):
        raise ValueError("must be an http:// or https:// URL without a query, or empty")
    return given


def database(value: object) -> str:
    """The URL of a catalogue; that it can be opened is not looked at here."""
    given = text(value)
    if not re.fullmatch(r"sqlite:///.*[^/]|mongodb(\+srv)?://.+", given):
        raise ValueError("must be sqlite:///PATH, mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE")
    return given


def one_of(*allowed: str) -> Callable[[object], str]:
    """The kind that is one of these words."""

    def kind(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"must be {' or '.join(allowed)}")
        return str(value)

    return kind


def some_of(*allowed: str) -> Callable[[object], tuple[str, ...]]:
    """The kind that is a list of some of these words."""

    def kind(value: object) -> tuple[str, ...]:
        items = texts(value)
        if not set(items) <= set(allowed):
            raise ValueError(f"must be a list of some of {', '.join(allowed)}")
        return items

    return kind


def domain(value: object) -> str:
    """A domain name with a dot, or empty."""
    given = text(value)
    if given and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+", given):
        raise ValueError("must be a domain name with a dot, such as archive.example.org")
    return given


def emails(value: object) -> tuple[str, ...]:
    """A list of mail addresses."""
    items = texts(value)
    if not all(re.fullmatch(r"[^\s@<>&]+@([^\s@.<>&]+\.)+[^\s@.<>&]+", item) for item in items):
        raise ValueError("must be a list of mail addresses")
    return items


def stamp(value: object) -> str:
    """A time as OAI-PMH writes it, to the second, or empty."""
    given = text(value)
    if given and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", given):
        raise ValueError("must be a time like '2009-05-01T00:00:00Z' in quotation marks, or empty")
    return given


class FormatConfig(NamedTuple):
    """A metadata format: its prefix, the entry point of its class, its schema and namespace; the last
    two are empty for archec's own."""

    metadataFormat: str  # noqa: N815 - the keys have these names since the thesis
    metadataFormatClass: str  # noqa: N815
    metadataFormatSchema: str = ""  # noqa: N815
    metadataFormatNamespace: str = ""  # noqa: N815


def formats(value: object) -> tuple[FormatConfig, ...]:
    """A list of metadata formats: a name, or a group with all parts of a :class:`FormatConfig`."""
    if not isinstance(value, list):
        raise ValueError(f"must be a list of names, or of groups with {', '.join(FormatConfig._fields)}")
    found = []
    for item in value:
        if isinstance(item, str):
            found.append(FormatConfig(item, item))
        elif isinstance(item, dict) and set(item) == set(FormatConfig._fields):
            found.append(FormatConfig(**{key: text(one) for key, one in item.items()}))
        else:
            raise ValueError(f"{item!r} is neither a name nor a group with {', '.join(FormatConfig._fields)}")
        if not re.fullmatch(r"[A-Za-z0-9_.!~*'()-]+", found[-1].metadataFormat):
            raise ValueError(f"{found[-1].metadataFormat!r} cannot be a metadataPrefix")
    return tuple(found)


class Collection(NamedTuple):
    """A collection of the operator's: what is in any of these archives (``aaa``), series
    (``aaa:ssssss``), hosts (domains, with all below them) or was noted in these runs (software tists)."""

    name: str
    title: str = ""
    archives: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()


def collections(value: object) -> tuple[Collection, ...]:
    """Groups by name, each a :class:`Collection`. Words are made lower-case, as ids are."""
    if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
        raise ValueError("must be groups: NAME: {title: ..., archives: [aaa], series: [aaa:ssssss], ...}")
    found = []
    for name, group in value.items():
        if not name or not isinstance(name, str):
            raise ValueError(f"{name!r} cannot be the name of a collection")
        unknown = set(group) - set(Collection._fields[1:])
        if unknown:
            raise ValueError(f"{name}: unknown key {sorted(map(str, unknown))[0]}")
        runs = group.get("runs", [])
        parts = {key: tuple(t.lower() for t in texts(group.get(key, []))) for key in ("archives", "series", "hosts")}
        parts["series"] = tuple(one.removeprefix("repec:") for one in parts["series"])
        if not isinstance(runs, list):
            raise ValueError(f"{name}: runs must be a list of software tists")
        found.append(Collection(name, text(group.get("title", "")), **parts, runs=tuple(map(count, runs))))
    return tuple(found)
