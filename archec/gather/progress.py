"""Progress: a live bar on a terminal, a line a minute otherwise; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

__all__ = ["Lines", "Meter", "Silent", "meter_for"]


class Meter(Protocol):
    """What a long phase tells: its name, how far it is, out of how much, and a word besides."""

    def phase(self, name: str, total: int | None) -> None:
        """A new phase begins; ``total`` None where nobody knows how much there is."""
        ...

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """The phase has come to ``done``."""
        ...

    def close(self) -> None:
        """All phases are over."""
        ...


class Silent:
    """Tells nothing."""

    def phase(self, name: str, total: int | None) -> None:
        """Nothing."""

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """One line every ``every`` seconds, for logs."""

    def __init__(
        self, stream: TextIO, *, every: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._every, self._clock = stream, every, clock
        self._name, self._total, self._began, self._told, self._first = "", None, clock(), clock(), 0

    def phase(self, name: str, total: int | None) -> None:
        """Begins to count anew."""
        self._name, self._total = name, total  # type: ignore[assignment]
        self._began = self._told = self._clock()
        self._first = 0

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """Prints a line if the last one is old enough."""
        now = self._clock()
        if total is not None:
            self._total = total  # type: ignore[assignment]
        if now - self._told < self._every:
            return
        self._told = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        line = f"{self._name}: {done:,}"
        if self._total:
            left = max(self._total - done, 0) / rate if rate > 0 else 0
            line += f" of {self._total:,}, {rate:,.0f}/s, about {left:,.0f} s left"
        else:
            line += f", {rate:,.0f}/s"
        self._stream.write(f"archec: {line}{', ' + note if note else ''}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is open."""


def meter_for(stream: TextIO | None = None) -> Meter:
    """A live meter where ``stream`` (stderr) is a terminal, a line a minute otherwise."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return Lines(stream)
    from archec.gather.live import Live  # rich takes a while to import, and cron looks at no bars

    return Live(stream)
