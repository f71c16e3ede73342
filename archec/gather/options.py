"""Options: what a run was asked to do, how much it may fetch, and what of it a resumed run takes over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from archec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may fetch at most; 0 means no limit. ``seconds`` count from the phase's start."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self.files or self.bytes or self.seconds)


class BudgetUse:
    """How much of a budget has been used: ``files`` begun and ``bytes`` fetched so far."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock = budget, clock
        self._began: float | None = None
        self.files = 0
        self.bytes = 0

    def begin(self) -> None:
        """The time runs from now on, if it does not yet."""
        if self._began is None:
            self._began = self._clock()

    @property
    def spent(self) -> bool:
        """Whether no further file of the plan may be begun."""
        return bool(self._budget.files and self.files >= self._budget.files) or self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether bytes or time are used up, so that nothing more may begin at all."""
        budget = self._budget
        if budget.bytes and self.bytes >= budget.bytes:
            return True
        return bool(budget.seconds and self._began is not None and self._clock() - self._began >= budget.seconds)

    def most(self, files: int) -> int:
        """How many of so many files may be begun."""
        return min(files, self._budget.files - self.files) if self._budget.files else files


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked to do; see ``archec gather --help``. ``template_files`` is the setting of that name."""

    file: Path | None = None
    as_of: int | None = None
    fetch: bool = True
    complete: bool = False
    salvage: bool = False
    resume: bool = False
    reread: bool = False
    wait: bool = False
    trust_clock: bool = False
    accept: frozenset[str] = frozenset()
    template_files: tuple[str, ...] = ()
    budget: Budget = Budget()

    def as_value(self) -> dict[str, Any]:
        """The part that a resumed run takes over, as JSON values."""
        return {
            "as_of": self.as_of,
            "fetch": self.fetch,
            "complete": self.complete,
            "salvage": self.salvage,
            "accept": sorted(self.accept),
            "template_files": list(self.template_files),
        }

    def carrying_on(self, kept: Mapping[str, Any]) -> Options:
        """These options for a run that was begun with those of ``kept``, as :meth:`as_value` gave them.

        Raises :class:`UsageError` where the run fetches files and this must not: it would end without them.
        """
        fetch = bool(kept.get("fetch", True))
        if fetch and not self.fetch:
            raise UsageError("the run to resume fetches files", hint="resume it without --no-fetch")
        return replace(
            self,
            as_of=kept.get("as_of"),
            fetch=fetch,
            complete=bool(kept.get("complete")),
            salvage=bool(kept.get("salvage")),
            accept=self.accept | frozenset(kept.get("accept", ())),
            template_files=tuple(kept.get("template_files", ())),
        )
