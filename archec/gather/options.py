"""Options: what a run was asked to do, and what of it a resumed run takes over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from archec.gather.budget import Budget


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked to do; see ``archec gather --help``."""

    file: Path | None = None
    as_of: int | None = None
    fetch: bool = True
    complete: bool = False
    resume: bool = False
    wait: bool = False
    accept: frozenset[str] = frozenset()
    budget: Budget = Budget()  # noqa: RUF009 - frozen

    def as_value(self) -> dict[str, Any]:
        """The part that a resumed run takes over, as JSON values."""
        return {"as_of": self.as_of, "fetch": self.fetch, "complete": self.complete, "accept": sorted(self.accept)}

    def carrying_on(self, kept: Mapping[str, Any]) -> Options:
        """These options for a run that was begun with those of ``kept``, as :meth:`as_value` gave them."""
        return replace(
            self,
            as_of=kept.get("as_of"),
            fetch=bool(kept.get("fetch", True)) and self.fetch,
            complete=bool(kept.get("complete")),
            accept=self.accept | frozenset(kept.get("accept", ())),
        )
