"""Where bodies go: the interface that a worker process writes through."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Sink", "TempLike"]


class TempLike(Protocol):
    """One body while it comes in. Exactly one of ``close`` and ``discard`` ends it.

    Raises:
        StorageFull: no space is left; nothing further is fetched.
        StorageFailed, OSError: the file system refused.
    """

    def write(self, data: bytes, /) -> None:
        """Appends ``data``."""

    def close(self) -> tuple[str, str, str, int]:
        """Ends the file and returns path, md5, xxh3 (hex) and size; the path belongs to the caller."""

    def discard(self) -> None:
        """Removes the file; never raises for a file that is no longer there."""


class Sink(Protocol):
    """Opens temporary files. It is pickled to the worker processes, so it holds no open files."""

    def temp(self, url: str, /) -> TempLike:
        """A new temporary file for the body of ``url``."""
