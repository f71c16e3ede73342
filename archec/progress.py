"""The protocol by which long work tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """What long work reports to: phases, one after the other."""

    def phase(self, name: str, total: int | None) -> None:
        """A new phase begins; ``total`` is None if it is unknown."""

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """The phase has reached ``done``; ``note`` says where, ``total`` replaces the one that was given."""

    def close(self) -> None:
        """All phases are over."""


class Silent:
    """A meter that shows nothing."""

    def phase(self, name: str, total: int | None) -> None:
        """No-op."""

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """No-op."""

    def close(self) -> None:
        """No-op."""


SILENT = Silent()
"""A meter for those who need none."""
