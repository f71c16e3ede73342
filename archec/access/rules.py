"""Rules: what of the collections is open, known, closed or withdrawn. Pure functions of a row and who asks."""

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

from archec.access.query import uri_of
from archec.access.rows import Row
from archec.access.stamps import to_tist
from archec.config import RuleConfig
from archec.errors import UsageError
from archec.ids import archive_of, handle_in, is_url, normalise_handle, series_of

_YEAR = 365.2425 * 86400
_FINAL_DOT = re.compile(r"^([^/]*)\.(?=(?::[0-9]+)?/)")
_SLASHES = re.compile("//+")
_NO_MIME = ("", "-", "unk", "warc/revisit")
"""What rows have for a media type that does not show what a reader gets."""
_OPEN = {"none": "closed", "metadata": "metadata", "content": "open"}


class Level(IntEnum):
    """What somebody may see."""

    NOTHING = 0
    METADATA = 1
    CONTENT = 2


class Subject(NamedTuple):
    """What rules are about: an obi by its URL or handle. ``works`` are the handles of the templates that name a file,
    if it ``has_more`` not all of them; ``noted`` is the tist at which it was first noted, 0 if that is not known."""

    url: str
    handle: str = ""
    mime: str = ""
    works: tuple[str, ...] = ()
    noted: int = 0
    has_more: bool = False


class Decision(NamedTuple):
    """What anybody may see of a subject, by which rule (counted from 1; 0: none matched, ``access.open`` counts)."""

    level: Level
    withdrawn: bool = False
    reason: str = ""
    rule: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules, in order; ``open`` is ``access.open``, which counts where none matches."""

    rules: tuple[RuleConfig, ...] = ()
    open: str = "none"

    def decide(self, subject: Subject, address: str, now: float) -> Decision:
        """What somebody at ``address`` who has no token may see of a subject: what the first rule says that holds.

        Where it cannot be told whether a rule holds (a URL that cannot be read, no media type) the strictest counts of
        what may be said.
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
        return min(found, key=_openness)

    def on_address(self, subject: Subject, now: float) -> int:
        """The number of the first rule that decides for some addresses and not for others, 0 if there is none."""
        for number, rule in enumerate(self.rules, 1):
            holds = _holds(replace(rule, networks=()), subject, "", now)
            if rule.networks and holds is not False:
                return number
            if holds:
                break
        return 0

    @property
    def may_open(self) -> bool:
        """Whether anybody may see anything without a token."""
        return self.open != "none" or any(rule.rights in ("open", "metadata") for rule in self.rules)

    @property
    def by_default(self) -> Level:
        """What anybody may see where no rule with a condition matches."""
        for rule in self.rules:
            if is_unconditional(rule):
                return _decision(rule.rights, "", 0).level
        return _decision(_OPEN[self.open], "", 0).level

    @property
    def need_catalogue(self) -> bool:
        """Whether a rule is about the works of files, or the time at which an obi was first noted."""
        return any(rule.archive or rule.series or rule.handle or rule.until.endswith("y") for rule in self.rules)

    @property
    def are_trivial(self) -> bool:
        """Whether all rows are treated alike."""
        return not self.rules


def is_unconditional(rule: RuleConfig) -> bool:
    """Whether a rule is about everything, for everybody, permanently."""
    about = (rule.archive, rule.series, rule.host, rule.handle, rule.url_prefix, rule.mime, rule.until)
    return not any(about) and not rule.networks


def subject_of(row: Row) -> Subject:
    """What a row is about, as far as it says so itself."""
    url = row.url
    return Subject(url, handle_in(url), row.text("mime"), (), to_tist(row.timestamp))


def _decision(rights: str, reason: str, number: int) -> Decision:
    level = {"open": Level.CONTENT, "metadata": Level.METADATA}.get(rights, Level.NOTHING)
    return Decision(level, rights == "withdrawn", reason, number)


def _openness(decision: Decision) -> tuple[bool, Level]:
    return (not decision.withdrawn, decision.level)


def _holds(rule: RuleConfig, subject: Subject, address: str, now: float) -> bool | None:
    """Whether all conditions of a rule hold; None if that cannot be told."""
    found: bool | None = True
    for answer in _answers(rule, subject, address, now):
        if answer is False:
            return False
        found = found and answer
    return found


def _answers(rule: RuleConfig, subject: Subject, address: str, now: float) -> Iterator[bool | None]:
    """Whether each condition of a rule holds; None if that cannot be told."""
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
        yield _is_at(_normal(subject.url), rule)
    if rule.mime:
        yield _is_mime(subject.mime, rule.mime.lower())
    if rule.until:
        yield _is_in_force(rule, subject, now)


def _code(text: str) -> str:
    return text.lower().removeprefix("repec:")


@lru_cache(maxsize=4096)
def _normal(url: str) -> str | None:
    """A URL, or the beginning of one, as rules compare it: in its normal form without a final dot of the host, and with
    one slash for several, as keys of indexes have it. None if it cannot be read."""
    try:
        scheme, mark, rest = uri_of(url).partition("://")
    except UsageError:
        return None
    path, question, query = rest.partition("?")
    path = _SLASHES.sub("/", _FINAL_DOT.sub(r"\1", path))
    return f"{scheme}{mark}{path}{question}{query}"


def _is_at(url: str | None, rule: RuleConfig) -> bool | None:
    """Whether a normal URL is of the host of a rule, or one below it, and begins as the rule says."""
    prefix, host = _normal(rule.url_prefix or url or ""), _normal(f"http://{rule.host}/") if rule.host else url
    if url is None or prefix is None or host is None:
        return None
    name, wanted = _host_of(url), _host_of(host)
    return url.startswith(prefix) and (name == wanted or name.endswith(f".{wanted}"))


def _host_of(url: str) -> str:
    return urlsplit(url).hostname or "" if is_url(url) else ""


def _is_mime(given: str, wanted: str) -> bool | None:
    mime = given.partition(";")[0].strip().lower()
    if mime in _NO_MIME:
        return None
    return mime.startswith(wanted[:-1]) if wanted.endswith("/*") else mime == wanted


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a client; None if it is none."""
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
    """Whether a rule still counts: until its day begins, or so many years after the subject was first noted."""
    if rule.until.endswith("y"):
        return None if not subject.noted else now < subject.noted + int(rule.until[:-1]) * _YEAR
    return now < datetime.fromisoformat(rule.until).replace(tzinfo=timezone.utc).timestamp()
