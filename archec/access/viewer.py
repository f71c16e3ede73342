"""The viewer: a token (or none) and an address, and what they may see under the current rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from archec.access.errors import Refused, unauthorized
from archec.access.query import KeyRange
from archec.access.rows import NOWHERE, Row
from archec.access.rules import Decision, Level, Rules, Subject, subject_of
from archec.access.tokens import Right, Token

NO_ROW = Row(b"", "", "19700101000000", {"url": "http://none/"}, NOWHERE)
"""A placeholder for decisions where there is no row."""


class Viewer(Struct, frozen=True):
    """See the module docstring. ``look_up`` completes the subject of a row from the catalogue, if rules need that."""

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
