"""The types of settings, checked by msgspec.

The ``description`` of a type completes the message about an invalid value: it says what to write instead. The function
``read`` in its ``extra``, if any, is applied first: it converts the forms that people write (``20MB``, a single text
for a list) to the checked form, and raises ValueError or ArchecError if that is impossible.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from archec.config.collections import CollectionConfig, Misfit, nearest, read_collections
from archec.errors import BadName
from archec.ids import host_of, normalise_handle, normalise_url
from archec.units import parse_duration, parse_share, parse_size

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


def _by_name(cls: type[Struct], read: Callable[[str, dict[Any, Any]], dict[Any, Any]]) -> Callable[[Any], Any]:
    """What converts groups by name to a list of groups ``cls`` with a ``name``, each of them with ``read``."""
    known = [key for key in cls.__struct_fields__ if key != "name"]

    def converted(value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(group, dict) for group in value.values()):
            return value
        for name, group in value.items():
            for key in group:
                if key not in known:
                    raise ValueError(f"{name}: unknown key {key}{nearest(str(key), known)}")
        return [{"name": str(name), **read(str(name), group)} for name, group in value.items()]

    return converted


def _platform(name: str, group: dict[Any, Any]) -> dict[Any, Any]:
    found = dict(group)
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


RIGHTS = ("open", "metadata", "closed", "withdrawn")
_CODE = r"[^\s:*]+"
_MIME = r"[^\s/;*]+/(\*|[^\s/;*]+)"
_HOST_ALONE = r"http://([^:/]+|\[.*\])/"
_YEARS = r"[1-9][0-9]{0,2}y"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ORIGIN = r"\*|[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+"


def _must_be(what: str, pattern: str | None = None, read: Callable[[Any], Any] | None = None) -> Meta:
    whole = None if pattern is None else rf"\A({pattern})\Z"
    return Meta(description=f"must be {what}", pattern=whole, extra={"read": read} if read else None)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _networks(value: Any) -> Any:
    """Checks networks. One with host bits is refused: it may be meant to be that address alone, or its network."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return value
    try:
        whole = [ipaddress.ip_network(item, strict=False) for item in value]
    except ValueError as error:
        raise ValueError(f"must be a list of networks such as [10.1.0.0/16]: {error}") from error
    for item, network in zip(value, whole, strict=True):
        address = ipaddress.ip_interface(item).ip
        if address != network.network_address:
            alone = ipaddress.ip_network(address)
            raise ValueError(f"{item} is not a network: write {network}, or {alone} for that address alone")
    return [str(_plain_network(network)) for network in whole]


def _plain_network(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> object:
    """A network of IPv4 addresses that are mapped to IPv6 (``::ffff:192.0.2.1``) as one of IPv4, like the addresses
    that it is compared with."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    return ipaddress.IPv4Network((mapped, network.prefixlen - 96)) if mapped and network.prefixlen > 96 else network


def _denials(value: Any) -> Any:
    """Groups with lists of hosts, urls and networks."""
    if not isinstance(value, list) or not all(isinstance(group, dict) for group in value):
        return value
    readers: dict[str, Callable[[Any], Any]] = {
        "hosts": _hosts, "urls": _urls, "networks": lambda item: _networks(_listed(item)),
    }  # fmt: skip
    return [{key: readers[key](item) if key in readers else item for key, item in group.items()} for group in value]


def _web(value: Any) -> Any:
    """A URL without the slashes at its end. Raises BadName if it has no valid host or port."""
    if not isinstance(value, str):
        return value
    if value.startswith(("http://", "https://")):
        normalise_url(value)
    return value.rstrip("/")


def _formats(value: Any) -> Any:
    """Converts groups and names of archec's own formats to groups of formats."""
    if not isinstance(value, list):
        return value
    return [{"metadataFormat": one, "metadataFormatClass": one} if isinstance(one, str) else one for one in value]


def _collection(name: str, group: dict[Any, Any]) -> dict[Any, Any]:
    hosts = _each(partial(_host, with_port=True))
    readers: dict[str, Callable[[Any], Any]] = {"title": lambda item: item, "hosts": hosts}
    return {key: readers.get(key, _lower)(item) for key, item in group.items()}


def _off(value: Any) -> float:
    """A duration; ``off`` (which YAML reads as false) means 0."""
    return 0.0 if value is False or value == "off" else parse_duration(value)


def _rules(value: Any) -> Any:
    """Checks the groups of rules and converts them: completes series."""
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        return value
    made = []
    for number, rule in enumerate(value, 1):
        known = RuleConfig.__struct_fields__
        for key, item in rule.items():
            if key not in known:
                raise Misfit(f"rule {number}: unknown key {key}{nearest(str(key), known)}")
            if item in ("", []) and key in ("networks", "until"):  # would be no condition
                raise Misfit(f"rule {number}: {key} is empty")
        if rule.get("rights") not in RIGHTS:
            raise Misfit(f"rule {number}: rights must be one of {', '.join(RIGHTS)}")
        fixed = {key: _networks(_listed(item)) if key == "networks" else item for key, item in rule.items()}
        if isinstance(fixed.get("until"), (datetime.date, datetime.datetime)):
            fixed["until"] = fixed["until"].isoformat()[:10]  # YAML reads 2027-01-01 as a date
        if "until" in fixed and not _is_until(str(fixed["until"])):
            raise Misfit(f"rule {number}: until must be a date like 2027-01-01, or years like 1y")
        for key, (is_valid, form) in _CONDITIONS.items():
            if isinstance(fixed.get(key), str) and not is_valid(fixed[key]):
                raise Misfit(f"rule {number}: {key} must be {form}")
        series = fixed.get("series")
        if isinstance(series, str) and ":" not in _code(series):
            if not isinstance(fixed.get("archive"), str):
                raise Misfit(f"rule {number}: series must be one like aaa:ssssss, or ssssss with archive: aaa")
            fixed["series"] = f"{_code(fixed['archive'])}:{series}"
        made.append(fixed)
    return made


def _is_until(text: str) -> bool:
    with suppress(ValueError):
        return bool(re.fullmatch(_YEARS, text) or (re.fullmatch(_DATE, text) and datetime.date.fromisoformat(text)))
    return False


def _code(text: str) -> str:
    return text.lower().removeprefix("repec:")


def _is_prefix(value: str) -> bool:
    """Whether a URL or URN can begin with this text."""
    with suppress(BadName):
        return not value.endswith("*") and (value.lower().startswith("urn:") or bool(normalise_url(value)))
    return False


def _is_host(value: str) -> bool:
    """Whether this is the name of a host in any spelling, and nothing else."""
    with suppress(BadName):
        return bool(re.fullmatch(_HOST_ALONE, normalise_url(f"http://{value}/")))
    return False


def _host(text: str, *, with_port: bool = False) -> str:
    """The name or address of a host as normalised URLs have it: written otherwise it would match none."""
    bare = text.count(":") > 1 and not text.startswith("[")
    with suppress(BadName):
        url = normalise_url(f"http://[{text}]/" if bare else f"http://{text}/")
        if re.fullmatch("http://[^/]+/" if with_port else _HOST_ALONE, url):
            return host_of(url).rstrip(".")
    raise ValueError(f"{text!r} is not the name or the address of a host, such as example.org")


def _url_pattern(text: str) -> str:
    """A pattern as normalised URLs are: what is written otherwise would match none. One whose host has a ``*`` cannot
    be normalised, and is refused if it can match none."""
    head = text.partition("*")[0].lower()
    if head == text.lower() or "/" in head.partition("://")[2]:
        first, *others = re.split(r"(?=%[0-9A-Fa-f]?\*)", text, maxsplit=1)  # an escape of which * is a part
        return normalise_url(first) + "".join(others)
    is_start = any(head.startswith(one[: len(head)]) for one in ("http://", "https://", "ftp://"))
    if is_start and re.fullmatch("[!-~]*", text):
        return text
    raise ValueError(f"{text!r} matches no URL: write it from http:// or * on, and with xn--... or %C3%A9 beyond ASCII")


def _is_handle(value: str) -> bool:
    """Whether this is a handle, not the prefix of several."""
    with suppress(BadName):
        return re.fullmatch(r"RePEc:.*[^*]", normalise_handle(value)) is not None
    return False


_CONDITIONS: dict[str, tuple[Callable[[str], bool], str]] = {
    "archive": (lambda text: re.fullmatch(_CODE, _code(text)) is not None, "one like aaa"),
    "series": (lambda text: re.fullmatch(f"({_CODE}:)?{_CODE}", _code(text)) is not None, "one like aaa:ssssss"),
    "handle": (_is_handle, "one like RePEc:aaa:ssssss:1; archive and series stand for all of theirs"),
    "host": (_is_host, "a name like example.org"),
    "url_prefix": (_is_prefix, "a beginning like http://example.org/ or urn:x-repec:, without *"),
    "mime": (lambda text: re.fullmatch(_MIME, text) is not None, "one like application/pdf or image/*"),
}
"""For each condition of a rule: a check that it can match anything, and the form it must have."""


def _each(read: Callable[[str], str]) -> Callable[[Any], Any]:
    """What applies ``read`` to each text of a list, or to a single text."""

    def converted(value: Any) -> Any:
        items = _listed(value)
        return [read(item) if isinstance(item, str) else item for item in items] if isinstance(items, list) else items

    return converted


_hosts, _urls = _each(_host), _each(_url_pattern)
_lower = _each(lambda item: item.lower().removeprefix("repec:"))


class FormatConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A metadata format: its prefix, the entry point of its class, its schema and namespace. The last two are empty for
    archec's own formats."""

    metadataFormat: Annotated[str, _must_be("a metadataPrefix", r"[A-Za-z0-9_.!~*'()-]+")]  # noqa: N815
    metadataFormatClass: str  # noqa: N815
    metadataFormatSchema: str = ""  # noqa: N815
    metadataFormatNamespace: str = ""  # noqa: N815


class Denial(Struct, frozen=True, forbid_unknown_fields=True):
    """What is not fetched, and why: hosts (domains include their subdomains), URL patterns, in which ``*`` matches
    anything, and networks."""

    hosts: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    reason: str = ""


class OaiCollectionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A collection defined by the operator: everything in one of these archives (``aaa``), series (``aaa:ssssss``) or
    hosts (domains include their subdomains), or noted in one of these runs (software tists). Lower-case, like ids."""

    name: Annotated[str, Meta(min_length=1)]
    title: str = ""
    archives: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    runs: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class RuleConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """An access rule: its conditions (all that are given must match), and the rights it grants."""

    rights: Literal["open", "metadata", "closed", "withdrawn"]
    archive: str = ""
    series: str = ""
    host: str = ""
    handle: str = ""
    url_prefix: str = ""
    mime: str = ""
    networks: tuple[str, ...] = ()
    until: str = ""
    reason: str = ""


Flag = Annotated[bool, _must_be("true or false")]
Count = Annotated[int, Meta(ge=0, description="must be a whole number, 0 or more")]
Positive = Annotated[int, Meta(ge=1, description="must be a whole number, 1 or more")]
Port = Annotated[int, Meta(ge=0, le=65535, description="must be a port, 0 to 65535")]
Size = Annotated[int, _must_be("a size", read=parse_size)]
Duration = Annotated[float, _must_be("a duration", read=parse_duration)]
Share = Annotated[float, _must_be("a share", read=parse_share)]

Text = Annotated[str, _must_be("text")]
FilePath = Annotated[str, _must_be("a path", ".+")]
Proxy = Annotated[str, _must_be("an http:// or https:// URL, or empty", r"(https?://.*)?")]
Web = Annotated[
    str,
    _must_be(
        "an http:// or https:// URL without a query, or empty",
        r"(https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~%/-]*)?)?",
        read=_web,
    ),
]
Database = Annotated[
    str,
    _must_be(
        "sqlite:///PATH, mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE",
        r"sqlite:///.*[^/]|mongodb(\+srv)?://.+",
    ),
]
Domain = Annotated[
    str,
    _must_be(
        "a domain name with a dot, such as archive.example.org", r"([a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+)?"
    ),
]
Stamp = Annotated[
    str,
    _must_be(
        "a time like '2009-05-01T00:00:00Z' in quotation marks, or empty",
        r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?",
    ),
]
Email = Annotated[str, _must_be("an email address", r"[^\s@<>&]+@([^\s@.<>&]+\.)+[^\s@.<>&]+")]

RobotsTags = Annotated[Literal["record", "obey"], _must_be("'record' or 'obey'")]
Hosts = Annotated[tuple[str, ...], _must_be("a list of hosts such as [papers.example.org]", read=_hosts)]
Denials = Annotated[
    tuple[Denial, ...],
    _must_be("a list of groups with hosts, urls, networks (each a list) and a reason", read=_denials),
]
Robots = Annotated[Literal["obey", "ignore"], _must_be("'obey' or 'ignore'")]
Deleted = Annotated[Literal["persistent", "transient"], _must_be("persistent or transient")]
Items = Annotated[Literal["both", "tobi", "fobi"], _must_be("both or tobi or fobi")]
Tree = Literal["archive", "RePEc", "type", "dom", "mim", "col"]

Texts = Annotated[tuple[str, ...], _must_be("text or a list of texts", read=_listed)]
Origins = Annotated[
    tuple[Annotated[str, Meta(pattern=rf"\A({_ORIGIN})\Z")], ...],
    _must_be("'*', or a list of origins in lower case such as [https://papers.example.org]", read=_listed),
]
Emails = Annotated[tuple[Email, ...], _must_be("a list of email addresses", read=_listed)]
Networks = Annotated[tuple[str, ...], _must_be("a list of networks such as [10.1.0.0/16]", read=_networks)]
Trees = Annotated[tuple[Tree, ...], _must_be("a list of some of archive, RePEc, type, dom, mim, col", read=_listed)]
Formats = Annotated[
    tuple[FormatConfig, ...],
    _must_be(f"a list of names, or of groups with {', '.join(FormatConfig.__struct_fields__)}", read=_formats),
]
Collections = Annotated[
    tuple[OaiCollectionConfig, ...],
    _must_be(
        "groups: NAME: {title: ..., archives: [aaa], series: [aaa:ssssss], ...}",
        read=_by_name(OaiCollectionConfig, _collection),
    ),
]
Platforms = Annotated[
    tuple[PlatformConfig, ...],
    _must_be(
        "groups: NAME: {hosts: [...], api: URL, enabled: true, rate: 60/min, token: ENV}",
        read=_by_name(PlatformConfig, _platform),
    ),
]
AccessCollections = Annotated[
    tuple[CollectionConfig, ...], _must_be("groups: NAME: {index: ..., resource: ...}", read=read_collections)
]
Open = Annotated[Literal["none", "metadata", "content"], _must_be("none, metadata or content")]
Switch = Annotated[bool, _must_be("on or off", read=lambda value: value == "on" if value in ("on", "off") else value)]
Pause = Annotated[float, _must_be("a duration, or off", read=_off)]
Rules = Annotated[tuple[RuleConfig, ...], _must_be("a list of groups: {archive: aaa, rights: open}", read=_rules)]
Methods = Annotated[
    tuple[Annotated[str, Meta(pattern=r"\A[A-Z]{1,20}\Z")], ...],
    _must_be("a list of methods such as [GET, HEAD, POST]", read=_listed),
]
