"""Pace: reads no faster than asked, so that an audit leaves the disk to others."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """Lets ``rate`` bytes a second pass, on average; 0 means no limit. What was not used is not saved up."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._free_at = 0.0

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return bool(self._rate)

    def passed(self, count: int) -> None:
        """So many bytes were read; waits until as many may be."""
        if not self._rate:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        ahead = self._free_at - now
        if ahead > 0.05:
            self._sleep(ahead)
