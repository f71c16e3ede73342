"""Who asks, and what he may see: a token (or none) and an address, under the rules of this moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from archec.access.errors import Refused, unauthorized
from archec.access.rows import NOWHERE, Row
from archec.access.rules import Decision, Level, Rules, Subject, subject_of
from archec.access.tokens import Right, Token

NO_ROW = Row(b"", "", "19700101000000", {"url": "http://none/"}, NOWHERE)
"""A row of nothing, to judge where there is none."""


class Viewer(Struct, frozen=True):
    """See the module. ``look_up`` completes what a row says of itself, where rules need more."""

    token: Token | None
    address: str
    rules: Rules
    look_up: Callable[[Row], Subject] = subject_of

    @property
    def name(self) -> str:
        """For the audit log: the name of the token, "" for none."""
        return self.token.name if self.token is not None else ""

    def allows(self, right: Right) -> bool:
        """Whether the token has a right."""
        return self.token is not None and self.token.allows(right)

    def opens(self, collection: str) -> bool:
        """Whether a collection exists for him."""
        return self.token is None or self.token.opens(collection)

    def level(self, decision: Decision) -> Level:
        """What he may see where the rules have decided so for everybody."""
        own = Level.CONTENT if self.allows("content") else Level.METADATA if self.allows("metadata") else Level.NOTHING
        level = max(own, decision.level)
        return min(level, Level.METADATA) if decision.withdrawn else level

    def decide(self, row: Row) -> Decision:
        """What the rules say of a row."""
        subject = Subject("") if self.rules.are_trivial else self.look_up(row)
        return self.rules.decide(subject, self.address, time.time())

    def visible(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows that he may see; those that were withdrawn say so."""
        if self.rules.are_trivial:
            return rows if self.sees_all else iter(())
        return self._judged(rows)

    def _judged(self, rows: Iterator[Row]) -> Iterator[Row]:
        is_empty = True
        for row in rows:
            is_empty = False
            decision = self.decide(row)
            if self.level(decision) < Level.METADATA and not (decision.withdrawn and self._sees_withdrawn):
                continue
            if decision.withdrawn:
                row = row.with_fields(access="withdrawn", **({"reason": decision.reason} if decision.reason else {}))
            yield row
        if is_empty:  # where there is nothing as much is looked up as where something is hidden
            self.decide(NO_ROW)

    @property
    def _sees_withdrawn(self) -> bool:
        return self.allows("metadata") or self.rules.by_default >= Level.METADATA

    def check_content(self, row: Row) -> None:
        """Raises Refused unless he may have the contents of a row that he sees: 451 if it was withdrawn, else 403."""
        decision = self.decide(row)
        if decision.withdrawn:
            reason = f": {decision.reason}" if decision.reason else ""
            raise Refused(451, f"Withdrawn{reason}")
        if self.level(decision) < Level.CONTENT:
            raise Refused(403, "You may not load the contents")

    def nothing(self, message: str, errors: dict[str, str] | None = None) -> Refused:
        """The refusal where there is nothing that he may see: to clients without a token it tells nothing."""
        return unauthorized() if self.sees_nothing_by_default else Refused(404, message, errors=errors)

    def check_empty(self) -> None:
        """Raises Refused if an empty answer must not tell that there is nothing."""
        if self.sees_nothing_by_default:
            raise unauthorized()

    @property
    def sees_all(self) -> bool:
        """Whether no row is hidden from him."""
        return self.allows("metadata") or (self.rules.are_trivial and self.rules.by_default >= Level.METADATA)

    @property
    def sees_nothing_by_default(self) -> bool:
        """Whether an empty answer must not tell that there is nothing."""
        return self.token is None and self.rules.by_default < Level.METADATA
