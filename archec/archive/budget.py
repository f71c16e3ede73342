"""What a run may fetch at most, and how much of that it has used."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may fetch at most; 0 means no limit. ``seconds`` count from the phase's start."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self.files or self.bytes or self.seconds)


NO_LIMIT = Budget()


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
