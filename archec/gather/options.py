"""Options: what a run was asked to do, and what of it a resumed run takes over."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from archec.catalogue.codec import compact
from archec.gather.budget import Budget

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked to do; see ``archec gather --help``."""

    file: Path | None = None
    as_of: int | None = None
    fetch: bool = True
    complete: bool = False
    resume: bool = False
    accept: frozenset[str] = frozenset()
    budget: Budget = Budget()  # noqa: RUF009 - frozen

    def as_text(self) -> str:
        """The part that a resumed run takes over, as JSON text."""
        return compact(
            {"as_of": self.as_of, "fetch": self.fetch, "complete": self.complete, "accept": sorted(self.accept)}
        )

    def carrying_on(self, text: str) -> Options:
        """These options for a run that was begun with those of ``text``, as :meth:`as_text` gave it."""
        kept = json.loads(text)
        return replace(
            self,
            as_of=kept.get("as_of"),
            fetch=bool(kept.get("fetch", True)) and self.fetch,
            complete=bool(kept.get("complete")),
            accept=self.accept | frozenset(kept.get("accept", ())),
        )
