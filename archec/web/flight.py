"""The clock of an attempt that is under way, and the limits of time it is held to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from archec.config import FetchConfig
from archec.web.tuning import Tuning

__all__ = ["Flight"]


@dataclass(slots=True, eq=False)
class Flight:
    """Times are those of the event loop. ``verdict`` says which limit was passed, ``""``: none.

    One look now and then at all flights costs less than timers of each, and it sees what timers of
    single reads do not: a server that sends a byte a second.
    """

    started: float
    runner: asyncio.Task[None] | None = None
    """What carries it, to be cancelled where a limit is passed."""
    released: Callable[[Flight], None] | None = None
    """Called once, when the request is over, though its body may still have to be written."""
    sent: float = 0.0
    body: float = 0.0
    """When the head of the answer was there."""
    last: float = 0.0
    """When the last piece of the body came."""
    received: int = 0
    verdict: str = ""
    lasting: bool = False
    """Whether it makes no sense to try again in this run."""

    def release(self) -> None:
        """The request is over: its place may be taken by another."""
        released, self.released = self.released, None
        if released is not None:
            released(self)

    def overdue(self, now: float, config: FetchConfig, tuning: Tuning) -> bool:
        """Whether a limit of time is passed; says so once."""
        if self.verdict:
            return False
        if now - self.started > config.total_timeout:
            self.verdict, self.lasting = f"took longer than {config.total_timeout:g} s", True
        elif not self.body:
            if self.sent and now - self.sent > config.idle_timeout:
                self.verdict = f"no answer within {config.idle_timeout:g} s"
            elif not self.sent and now - self.started > 1.5 * config.connect_timeout:
                self.verdict = f"no connection within {config.connect_timeout:g} s"
        elif now - self.last > config.idle_timeout:
            self.verdict = f"silent for {config.idle_timeout:g} s in mid-body"
        elif now - self.body > tuning.rate_grace and self.received < config.min_rate * (now - self.body):
            self.verdict, self.lasting = f"slower than {config.min_rate} bytes per second", True
        return bool(self.verdict)
