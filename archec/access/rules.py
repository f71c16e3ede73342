"""Access rules: what is open, visible, closed or withdrawn. Pure functions of a row and the viewer's address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from archec.access.query import KeyRange, key_of, uri_of
from archec.access.rows import Row
from archec.access.stamps import to_tist
from archec.config import RuleConfig
from archec.errors import UsageError
from archec.ids import archive_of, normalise_handle, series_of
from archec.urlkey import handle_in

_YEAR = 365.2425 * 86400
_PORT = re.compile("(:[0-9]{1,5})?")
_NO_MIME = ("", "-", "unk", "warc/revisit")
"""Media types of rows that do not say which type the client receives."""
_OPEN = {"none": "closed", "metadata": "metadata", "content": "open"}


class Level(IntEnum):
    """What a viewer may see."""

    NOTHING = 0
    METADATA = 1
    CONTENT = 2


class Subject(NamedTuple):
    """What rules apply to: an obi, by its URL or handle. ``works`` are the handles of the templates that refer to a
    file; with ``has_more`` there may be others. ``noted`` is the tist at which the obi was first noted, 0 if
    unknown."""

    url: str
    handle: str = ""
    mime: str = ""
    works: tuple[str, ...] = ()
    noted: int = 0
    has_more: bool = False


class Decision(NamedTuple):
    """What anyone may see of a subject, and the number of the rule that says so (from 1; 0 if none matched and
    ``access.open`` applies)."""

    level: Level
    withdrawn: bool = False
    reason: str = ""
    rule: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in order. ``open`` is ``access.open``, the default if none matches."""

    rules: tuple[RuleConfig, ...] = ()
    open: str = "none"

    def decide(self, subject: Subject, address: str, now: float) -> Decision:
        """Returns what a client at ``address`` without a token may see of a subject. The first matching rule decides.

        If it cannot be determined whether a rule matches (the URL cannot be parsed, the media type is missing), the
        strictest of the possible decisions applies.
        """
        found: list[Decision] = []
        for number, rule in enumerate(self.rules, 1):
            holds = _holds(rule, subject, address, now)
            if holds is not False:
                found.append(_decision(rule.rights, rule.reason, number))
            if holds:
                break
        else:
            found.append(_decision(_OPEN[self.open], "", 0))
        return min(found, key=lambda one: (not one.withdrawn, one.level))

    def on_address(self, subject: Subject, now: float) -> int:
        """The number of the first rule whose match depends on the address, or 0."""
        for number, rule in enumerate(self.rules, 1):
            holds = _holds(replace(rule, networks=()), subject, "", now)
            if rule.networks and holds is not False:
                return number
            if holds:
                break
        return 0

    def may_show(self, within: KeyRange, address: str, now: float, *, contents: bool = False) -> bool:
        """Whether a client at ``address`` without a token may see anything that has one of these keys, or with
        ``contents`` load it."""
        shown = ("open",) if contents else ("open", "metadata", "withdrawn")
        for rule in self.rules:
            holds = _holds_within(rule, within, address, now)
            if holds is not False and rule.rights in shown:
                return True
            if holds:
                return False
        return _OPEN[self.open] in shown

    @property
    def may_open(self) -> bool:
        """Whether anything is visible without a token."""
        return self.open != "none" or any(rule.rights in ("open", "metadata") for rule in self.rules)

    def by_default(self, address: str) -> Level:
        """What anyone at ``address`` may see if no rule about something in particular matches."""
        for rule in self.rules:
            conditions = (rule.archive, rule.series, rule.host, rule.handle, rule.url_prefix, rule.mime, rule.until)
            if not any(conditions) and (not rule.networks or _is_within(address, rule.networks)):
                return _decision(rule.rights, "", 0).level
        return _decision(_OPEN[self.open], "", 0).level

    @property
    def need_catalogue(self) -> bool:
        """Whether a rule depends on the works of files, or on the time at which an obi was first noted."""
        return any(rule.archive or rule.series or rule.handle or rule.until.endswith("y") for rule in self.rules)

    @property
    def depend_on_address(self) -> bool:
        """Whether clients at different addresses may see different things."""
        return any(rule.networks for rule in self.rules)

    @property
    def are_trivial(self) -> bool:
        """Whether all rows are treated the same."""
        return not self.rules


def subject_of(row: Row) -> Subject:
    url = row.url
    return Subject(url, handle_in(url), row.text("mime"), (), to_tist(row.timestamp))


def _decision(rights: str, reason: str, number: int) -> Decision:
    level = {"open": Level.CONTENT, "metadata": Level.METADATA}.get(rights, Level.NOTHING)
    return Decision(level, rights == "withdrawn", reason, number)


def _holds(rule: RuleConfig, subject: Subject, address: str, now: float) -> bool | None:
    """Whether all conditions of a rule hold, or None if this cannot be determined."""
    found: bool | None = True
    for answer in _answers(rule, subject, address, now):
        if answer is False:
            return False
        found = found and answer
    return found


def _holds_within(rule: RuleConfig, within: KeyRange, address: str, now: float) -> bool | None:
    """Whether all conditions of a rule hold for everything with these keys; None if that depends on more."""
    if rule.networks and not _is_within(address, rule.networks):
        return False
    if rule.until and not rule.until.endswith("y") and not _is_in_force(rule, Subject(""), now):
        return False
    depends = bool(rule.archive or rule.series or rule.handle or rule.mime or rule.until)
    if rule.host or rule.url_prefix:
        with suppress(UsageError):
            if within.key and "__wb_" not in within.key:
                return _has_key(within.key, rule) and (None if depends else True)
            if _covers(rule, within):
                return None if depends else True
            start = _prefix(rule.url_prefix).start if rule.url_prefix else _keys_of_host(rule.host)[0]
            first = start.encode("utf-8", "surrogatepass")
            if first >= within.end or first + b"\xff" <= within.start:
                return False
        return None
    return None if depends else True


def _covers(rule: RuleConfig, within: KeyRange) -> bool:
    """Whether all keys in a range are at the place that a rule names, as far as their common beginning tells. Raises
    UsageError for an invalid place."""
    common = within.common
    if ")" not in common:  # of a domain: it must be that of the rule, or below it
        return not rule.url_prefix and common.startswith(_keys_of_host(rule.host)[1])
    common += "/" if common.endswith(")") else ""
    if rule.url_prefix:
        prefix = _prefix(rule.url_prefix)
        is_below = common.startswith(prefix.start) and not prefix.with_query
        if not is_below or (prefix.is_whole and common[len(prefix.start) :][:1] not in ("/", "?")):
            return False
    return not rule.host or _is_on(common, rule.host)


def _answers(rule: RuleConfig, subject: Subject, address: str, now: float) -> Iterator[bool | None]:
    """Yields whether each condition of a rule holds, or None if this cannot be determined."""
    handles = (subject.handle, *subject.works)
    other = None if subject.has_more else False
    if rule.networks:
        yield _is_within(address, rule.networks)
    if rule.archive:
        yield any(archive_of(handle) == _code(rule.archive) for handle in handles) or other
    if rule.series:
        yield any(f"{archive_of(handle)}:{series_of(handle)}" == _code(rule.series) for handle in handles) or other
    if rule.handle:
        yield normalise_handle(rule.handle) in handles or other
    if rule.host or rule.url_prefix:
        yield _is_at(subject.url, rule)
    if rule.mime:
        yield _is_mime(subject.mime, rule.mime.lower())
    if rule.until:
        yield _is_in_force(rule, subject, now)


def _code(text: str) -> str:
    return text.lower().removeprefix("repec:")


class _Prefix(NamedTuple):
    """What keys below a ``url_prefix`` have: they begin with ``start`` and, if ``is_whole``, a segment of the path ends
    there. If ``with_query`` the path ends there, all of ``arguments`` occur in the query, and each of ``begun`` is the
    beginning of one of its arguments."""

    start: str
    is_whole: bool
    with_query: bool
    arguments: frozenset[str]
    begun: frozenset[str]

    def begins(self, key: str) -> bool:
        rest = key[len(self.start) :]
        if not key.startswith(self.start) or (self.is_whole and rest[:1] not in ("", "/", "?")):
            return False
        if not self.with_query:
            return True
        given = rest[1:].split("&")
        return (
            rest[:1] in ("", "?")
            and self.arguments.issubset(given)
            and all(any(one.startswith(begun) for one in given) for begun in self.begun)
        )


@lru_cache(maxsize=1024)
def _prefix(text: str) -> _Prefix:
    """Parses a ``url_prefix``. Raises UsageError."""
    path, mark, query = uri_of(text).partition("?")
    start = key_of(path)
    given, begun = (
        frozenset(key_of(f"{path}?{part}")[len(start) + 1 :].split("&")) - {""}
        for part in (query, query.rpartition("&")[2])
    )
    if not begun <= given:  # the removal of a session id has joined two arguments
        begun = given
    return _Prefix(start, path.endswith("/") and not start.endswith("/"), bool(mark), given - begun, begun)


def _is_at(url: str, rule: RuleConfig) -> bool | None:
    """Whether the key of a URL has the host of a rule, or a subdomain of it, and begins like the key of the prefix of
    the rule. As only keys are compared, URLs that are looked up under one key are judged alike. None if the URL cannot
    be parsed."""
    try:
        return _has_key(key_of(url), rule)
    except UsageError:
        return None


def _has_key(key: str, rule: RuleConfig) -> bool:
    """Whether URLs with this key are at the place that a rule names. Raises UsageError for an invalid place."""
    is_below = not rule.url_prefix or _prefix(rule.url_prefix).begins(key)
    return is_below and (not rule.host or _is_on(key, rule.host))


def _is_on(key: str, host: str) -> bool:
    """Whether a key has a host, or a subdomain of it, with any port. The key of a host lacks its ``www.``."""
    own, domain = _keys_of_host(host)
    name, bracket, _ = key.partition(")")
    if ":" in own:  # an address of IPv6, which keys do not separate from the port
        return name.startswith(own) and _PORT.fullmatch(name[len(own) :]) is not None
    name = name.partition(":")[0]
    return bool(bracket) and (name == own or f"{name},".startswith(domain))


@lru_cache(maxsize=1024)
def _keys_of_host(host: str) -> tuple[str, str]:
    """The key of a host, and what the keys of its subdomains begin with. Raises UsageError."""
    url = uri_of(f"http://{host}/")
    labels = urlsplit(url).netloc.rstrip(".").split(".")
    return key_of(url).partition(")")[0], ",".join(reversed(labels)) + ","


def _is_mime(given: str, wanted: str) -> bool | None:
    mime = given.partition(";")[0].strip().lower()
    if mime in _NO_MIME:
        return None
    return mime.startswith(wanted[:-1]) if wanted.endswith("/*") else mime == wanted


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parses the address of a client. None if it is invalid."""
    with suppress(ValueError):
        return ipaddress.ip_address(text.partition("%")[0])
    return None


def _is_within(address: str, networks: Sequence[str]) -> bool:
    given = address_of(address)
    if isinstance(given, ipaddress.IPv6Address) and given.ipv4_mapped is not None:
        given = given.ipv4_mapped
    return given is not None and any(given in network for network in map(_network, networks))


@lru_cache(maxsize=1024)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text)


def _is_in_force(rule: RuleConfig, subject: Subject, now: float) -> bool | None:
    """Whether a rule still applies: before its date, or within so many years after the subject was first noted. None if
    unknown."""
    if rule.until.endswith("y"):
        return None if not subject.noted else now < subject.noted + int(rule.until[:-1]) * _YEAR
    return now < datetime.fromisoformat(rule.until).replace(tzinfo=timezone.utc).timestamp()
