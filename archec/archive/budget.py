"""The budget of a run: limits of what it fetches, and how much has been used."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of what a run fetches; 0 means no limit. ``seconds`` count from the start of the phase. ``spent``: nothing
    may be fetched, because an earlier phase has used it up."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    spent: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.bytes or self.seconds or self.spent)


NO_LIMIT = Budget()


class BudgetUse:
    """The used part of a budget: ``files`` started and ``bytes`` fetched so far."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._began: float | None = None
        self.files = 0
        self.bytes = 0

    def begin(self) -> None:
        """Starts the clock, if it is not running."""
        if self._began is None:
            self._began = time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether no more files of the plan may be started."""
        return bool(self._budget.files and self.files >= self._budget.files) or self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether bytes or time are exhausted, so that no more requests may be started."""
        budget = self._budget
        if budget.spent or (budget.bytes and self.bytes >= budget.bytes):
            return True
        return bool(budget.seconds and self._began is not None and time.monotonic() - self._began >= budget.seconds)

    def most(self, files: int) -> int:
        """How many of the given number of files may be started."""
        return min(files, self._budget.files - self.files) if self._budget.files else files
