"""The gate that every request to a collection passes: tokens, access rules, rate limits and the audit log. Behind it, a
viewer says what the client may see.

Tokens are checked on each request. Changes of rules and revoked tokens of running transfers are noticed within a
second.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from operator import attrgetter

from msgspec import Struct

from archec.access.audit_log import AuditLog
from archec.access.errors import Refused, unauthorized
from archec.access.index_files import Stamp, stamp_of
from archec.access.query import KeyRange
from archec.access.rows import NOWHERE, Row
from archec.access.rules import Decision, Level, Rules, Subject, subject_of
from archec.access.tokens import Right, Token, TokenFile, token_path
from archec.config import Config, load, setting_names
from archec.errors import ArchecError, ConfigError

_log = logging.getLogger("archec.access.gate")
_LOOK = 0.3
"""Seconds between two checks of the configuration and of running transfers."""
_SERVED = ("name", "object_store", "database", "fetch.", "server.", "oai.", "access.", "collections")
_RELOADED = ("access.rules", "access.open")
NO_ROW = Row(b"", "", "19700101000000", {"url": "http://none/"}, NOWHERE)
"""A placeholder for decisions where there is no row."""


class Viewer(Struct, frozen=True):
    """A client with a token (or none) and an address, and what it may see under the current rules. ``look_up``
    completes the subject of a row from the catalogue, if rules need that."""

    token: Token | None
    address: str
    rules: Rules
    look_up: Callable[[Row], Subject] = subject_of

    def allows(self, right: Right) -> bool:
        return self.token is not None and self.token.allows(right)

    def opens(self, collection: str) -> bool:
        """Whether a collection exists for this viewer."""
        return self.token is None or self.token.opens(collection)

    def level(self, decision: Decision) -> Level:
        """What this viewer may see, given the decision of the rules for everyone."""
        own = Level.CONTENT if self.allows("content") else Level.METADATA if self.allows("metadata") else Level.NOTHING
        level = max(own, decision.level)
        if decision.withdrawn:
            return Level.METADATA if self.has_metadata else Level.NOTHING
        return level

    def decide(self, row: Row) -> Decision:
        subject = Subject("") if self.rules.are_trivial else self.look_up(row)
        return self.rules.decide(subject, self.address, time.time())

    def may_see(self, within: KeyRange) -> bool:
        """Whether there may be rows with these keys that are visible to this viewer."""
        return self.allows("metadata") or self.rules.may_show(within, self.address, time.time())

    def may_load(self, within: KeyRange) -> bool:
        """Whether there may be rows with these keys whose contents this viewer may have."""
        return self.allows("content") or self.rules.may_show(within, self.address, time.time(), contents=True)

    def visible(self, rows: Iterator[Row], url: str) -> Iterator[Row]:
        """Yields the rows visible to this viewer, of those found for ``url``. Withdrawn rows are marked as such."""
        if self.rules.are_trivial:
            return rows if self.sees_all else iter(())
        return self._filtered(rows, url)

    def _filtered(self, rows: Iterator[Row], url: str) -> Iterator[Row]:
        is_empty, by_time = True, self.rules.need_catalogue
        decision, judged = Decision(Level.NOTHING), None
        for row in rows:
            is_empty = False
            about = (row.url, row.text("mime"))
            if by_time or about != judged:  # else it is that of the row before
                decision, judged = self.decide(row), about
            if self.level(decision) < Level.METADATA:
                continue
            if decision.withdrawn:
                row = row.with_fields(access="withdrawn", **({"reason": decision.reason} if decision.reason else {}))
            yield row
        if is_empty:  # the same look-ups as for hidden rows, so that the time does not reveal which it was
            self.decide(Row(b"", "", NO_ROW.timestamp, {"url": url}, NOWHERE))

    @property
    def has_metadata(self) -> bool:
        """Whether rows are visible to this viewer unless a rule hides them."""
        return self.allows("metadata") or self.rules.by_default(self.address) >= Level.METADATA

    def check_content(self, row: Row) -> None:
        """Raises Refused unless the viewer may have the contents of a visible row: 451 if it is withdrawn, otherwise
        403."""
        decision = self.decide(row)
        if decision.withdrawn:
            reason = f": {decision.reason}" if decision.reason else ""
            raise Refused(451, f"Withdrawn{reason}")
        if self.level(decision) < Level.CONTENT:
            raise Refused(403, "You may not load the contents")

    def has_content(self, row: Row) -> bool:
        """Whether the viewer may have the contents of a row."""
        return self.level(self.decide(row)) == Level.CONTENT

    def refusal(self, status: int, message: str, errors: dict[str, str] | None = None) -> Refused:
        """The refusal if there is nothing that the viewer may see, or nothing of the kind. Clients without a token do
        not learn why."""
        return unauthorized() if self.sees_nothing_by_default else Refused(status, message, errors=errors)

    def check_empty(self) -> None:
        """Raises Refused if an empty response would disclose that there is nothing."""
        if self.sees_nothing_by_default:
            raise unauthorized()

    @property
    def sees_all(self) -> bool:
        """Whether no row is hidden from this viewer."""
        return self.allows("metadata") or (self.rules.are_trivial and self.has_metadata)

    @property
    def sees_nothing_by_default(self) -> bool:
        """Whether an empty response would disclose that there is nothing."""
        return self.token is None and not self.has_metadata


class TransferEnded(ArchecError):
    """The client may no longer receive what is being made or sent for it."""


class Gate:
    """See the module docstring. ``looking_up`` returns, for one request, a function that completes what a row says
    about itself from the catalogue; it is used if the rules need that. Raises ConfigError if the token file cannot be
    used."""

    def __init__(self, config: Config, looking_up: Callable[[], Callable[[Row], Subject]] = lambda: subject_of) -> None:
        self._config, self._looking_up = config, looking_up
        self._tokens = TokenFile(token_path(config))
        self.rules = Rules(config.access.rules, config.access.open)
        self._stamp = self._seen = _stamp_of(config)
        self._initial = load(config.file) if self._stamp is not None else config  # without options of the command line
        self._buckets: dict[str, tuple[float, float]] = {}
        self._transfers: dict[asyncio.Task[object], Token] = {}
        self.audit = AuditLog(config.path(config.access.audit) if config.access.audit else None)
        self.fault = self._audit_fault = ""
        self._tokens.tokens()

    def enter(self, authorization: str, address: str) -> Viewer:
        """Identifies the viewer. Raises Refused: 401 for an unknown token, or for none if no rule opens anything; 503
        if the tokens cannot be read."""
        rules = self.rules
        look_up = self._looking_up() if rules.need_catalogue else subject_of
        text = token_of(authorization)
        try:
            token = self._tokens.find(text) if text else None
        except ConfigError as error:
            raise Refused(503, "Temporarily unavailable") from error
        if token is None and (authorization or not rules.may_open):
            raise unauthorized()
        return Viewer(token, address, rules, look_up)

    def count(self, token: Token | None) -> None:
        """Counts a request with a token. Raises Refused, 429, if its rate limit is exceeded."""
        rate = self._config.access.rate
        if not rate or token is None:
            return
        now = time.monotonic()
        left, before = self._buckets.get(token.hash, (float(rate), now))
        left = min(float(rate), left + (now - before) * rate / 60)
        if left < 1:
            wait = max(1, round((1 - left) * 60 / rate + 0.5))
            raise Refused(429, "Too many requests", (("Retry-After", str(wait)),))
        self._buckets[token.hash] = (left - 1, now)

    async def transfer(self, viewer: Viewer, sending: Awaitable[None]) -> None:
        """Awaits that a response is made and sent. Raises TransferEnded soon after the token has become invalid."""
        task = asyncio.current_task()
        if viewer.token is None or task is None:
            return await sending
        self._transfers[task] = viewer.token
        try:
            await sending
        except asyncio.CancelledError:
            if task not in self._transfers:
                raise TransferEnded("the token is no longer valid") from None
            raise
        finally:
            self._transfers.pop(task, None)

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK)

    def look(self) -> None:
        """Checks rules and running transfers once. An unreadable configuration leaves the rules unchanged and sets
        ``fault``; so do unreadable tokens."""
        self.audit.look()
        if self.audit.fault not in ("", self._audit_fault):
            _log.error("%s", self.audit.fault)
        self._audit_fault = self.audit.fault
        try:
            stamp = _stamp_of(self._config)
            is_still, self._seen = stamp == self._seen, stamp
            if stamp != self._stamp and is_still:  # else it may be half written, with fewer rules
                fresh = load(self._config.file)
                self.rules = Rules(fresh.access.rules, fresh.access.open)
                self._stamp = stamp
                _log.info("the access rules were reloaded")
                if changed := ", ".join(_changed(self._initial, fresh)):
                    _log.warning("%s: restart the server to apply the changes of %s", self._config.file, changed)
            self._tokens.tokens()
            ended = [task for task, token in self._transfers.items() if not self._tokens.holds(token)]
            if stamp == self._stamp:
                self.fault = ""
        except ArchecError as error:
            if self.fault != error.message:
                _log.error("%s", error)
            self.fault = error.message
            return
        for task in ended:
            del self._transfers[task]
            task.cancel()


def token_of(authorization: str) -> str:
    """The token in an Authorization header: of Bearer, or the password of Basic. "" for anything else."""
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
    except ValueError:  # not base64, or not UTF-8
        return ""


def _changed(before: Config, after: Config) -> list[str]:
    """The settings of the server that differ and need a restart."""
    names = (name for name in setting_names() if name.startswith(_SERVED) and name not in _RELOADED)
    return [name for name in names if attrgetter(name)(before) != attrgetter(name)(after)]


def _stamp_of(config: Config) -> Stamp | None:
    """The version of the configuration file, or None if there is none."""
    try:
        status = os.stat(config.file)
    except OSError:
        return None
    return stamp_of(status) if stat.S_ISREG(status.st_mode) else None
