"""The obi store as the sink that fetch workers write bodies into.

A module of its own, as each fetching process imports it: it imports the store and nothing of a run.
"""

from __future__ import annotations

from archec.store.layout import Layout
from archec.store.writer import Temp, Writer
from archec.web.task import Sink, TempLike


class _AbsoluteTemp:
    """A temporary file of the store whose path is absolute, so that any process can remove it."""

    def __init__(self, temp: Temp, root: str) -> None:
        self._temp, self._root = temp, root
        self.write = temp.write
        self.discard = temp.discard

    def close(self) -> tuple[str, str, str, int]:
        stored = self._temp.close()
        return f"{self._root}/{stored.temp}", stored.md5, stored.sha256, stored.size


class _StoreSink:
    def __init__(self, layout: Layout, run: int) -> None:
        self._root, self._run = str(layout.root), run
        self._writer = Writer(layout)

    def temp(self, url: str) -> TempLike:
        return _AbsoluteTemp(self._writer.temp(self._run, url), self._root)


def store_sink(layout: Layout, run: int) -> Sink:
    """A sink that opens temporary files in the directory of a run."""
    return _StoreSink(layout, run)


class _NoTemp:
    """A body that nobody wants."""

    def write(self, data: bytes) -> None:
        """Drops it."""

    def close(self) -> tuple[str, str, str, int]:
        return "", "", "", 0

    def discard(self) -> None:
        """There is nothing."""


class _NoSink:
    def temp(self, url: str) -> TempLike:
        return _NoTemp()


def no_sink() -> Sink:
    """A sink that keeps no bodies: for those who only want to know what servers say."""
    return _NoSink()
