"""The protocol with which long-running work reports its progress."""

from __future__ import annotations


class Meter:
    """A receiver of progress reports: phases, one after the other. This one ignores all of them."""

    def phase(self, name: str, total: int | None) -> None:
        """A new phase begins; ``total`` is None if it is unknown."""

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """The phase has reached ``done``; ``note`` describes the position, ``total`` replaces the previous total."""

    def close(self) -> None:
        """All phases are over."""


SILENT = Meter()
