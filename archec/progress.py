"""The protocol with which long-running work reports its progress."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """A receiver of progress reports: phases, one after the other. A class derived from it may ignore any of them."""

    def phase(self, name: str, total: int | None) -> None:
        """A new phase begins; ``total`` is None if it is unknown."""
        return

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """The phase has reached ``done``; ``note`` describes the position, ``total`` replaces the previous total."""
        return

    def close(self) -> None:
        """All phases are over."""
        return


class Silent(Meter):
    """A meter that ignores all reports."""


SILENT = Silent()
"""The no-op meter."""
