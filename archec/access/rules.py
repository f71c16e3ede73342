"""Rules: what of the collections is open, known, closed or withdrawn. Pure functions of a row and who asks."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from archec.access.rows import Row
from archec.access.stamps import to_tist
from archec.config import RuleConfig
from archec.errors import BadName
from archec.ids import archive_of, normalise_handle, normalise_url, series_of

_URN = "urn:x-repec:"
_YEAR = 365.2425 * 86400
_OPEN = {"none": "closed", "metadata": "metadata", "content": "open"}


class Level(IntEnum):
    """What somebody may see."""

    NOTHING = 0
    METADATA = 1
    CONTENT = 2


class Subject(NamedTuple):
    """What rules are about: an obi by its URL or handle. ``works`` are the handles of the templates that name a file;
    ``noted`` is the tist at which it was first noted, 0 if that is not known."""

    url: str
    handle: str = ""
    mime: str = ""
    works: tuple[str, ...] = ()
    noted: int = 0


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
        """What somebody at ``address`` who has no token may see of a subject."""
        for number, rule in enumerate(self.rules, 1):
            if _matches(rule, subject, address) and _is_in_force(rule, subject, now):
                return _decision(rule.rights, rule.reason, number)
        return _decision(_OPEN[self.open], "", 0)

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
    """Whether a rule is about everything, for everybody, for ever."""
    about = (rule.archive, rule.series, rule.host, rule.handle, rule.url_prefix, rule.mime, rule.until)
    return not any(about) and not rule.networks


def subject_of(row: Row) -> Subject:
    """What a row is about, as far as it says so itself."""
    url = row.url
    handle = f"RePEc:{url[len(_URN) :]}" if url.lower().startswith(_URN) else ""
    return Subject(url, handle, row.text("mime"), (), to_tist(row.timestamp))


def _decision(rights: str, reason: str, number: int) -> Decision:
    level = {"open": Level.CONTENT, "metadata": Level.METADATA}.get(rights, Level.NOTHING)
    return Decision(level, rights == "withdrawn", reason, number)


def _matches(rule: RuleConfig, subject: Subject, address: str) -> bool:
    handles = [handle.lower() for handle in (subject.handle, *subject.works) if handle]
    if rule.archive and _code(rule.archive) not in {archive_of(handle) for handle in map(_handle, handles)}:
        return False
    if rule.series and not any(
        f"{archive_of(handle)}:{series_of(handle)}" == _code(rule.series) for handle in map(_handle, handles)
    ):
        return False
    if rule.handle and normalise_handle(rule.handle).lower() not in handles:
        return False
    if rule.host and not _is_host(subject.url, rule.host.lower()):
        return False
    if rule.url_prefix and not _begins(subject.url, rule.url_prefix):
        return False
    if rule.mime and not _is_mime(subject.mime, rule.mime.lower()):
        return False
    return not rule.networks or _is_within(address, rule.networks)


def _handle(lowered: str) -> str:
    return "RePEc:" + lowered[6:] if lowered.startswith("repec:") else lowered


def _code(text: str) -> str:
    return text.lower().removeprefix("repec:")


def _begins(url: str, prefix: str) -> bool:
    """Whether a URL begins so, as it is written or as it should be."""
    return url.startswith(prefix) or _normal(url).startswith(prefix)


@lru_cache(maxsize=1024)
def _normal(url: str) -> str:
    try:
        return normalise_url(url)
    except BadName:
        return url


def _is_host(url: str, host: str) -> bool:
    try:
        name = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    return name == host or name.endswith(f".{host}")


def _is_mime(given: str, wanted: str) -> bool:
    mime = given.partition(";")[0].strip().lower()
    return mime.startswith(wanted[:-1]) if wanted.endswith("/*") else mime == wanted


def _is_within(address: str, networks: Sequence[str]) -> bool:
    try:
        given = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(given, ipaddress.IPv6Address) and given.ipv4_mapped is not None:
        given = given.ipv4_mapped
    return any(given in network for network in map(_network, networks))


@lru_cache(maxsize=1024)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text)


def _is_in_force(rule: RuleConfig, subject: Subject, now: float) -> bool:
    """Whether a rule still counts: until its day begins, or so many years after the subject was first noted."""
    if not rule.until:
        return True
    if rule.until.endswith("y"):
        return now < subject.noted + int(rule.until[:-1]) * _YEAR
    return now < datetime.fromisoformat(rule.until).replace(tzinfo=timezone.utc).timestamp()
