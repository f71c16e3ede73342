"""The obi store as the sink that fetch workers write bodies into."""

from __future__ import annotations

from archec.store.layout import Layout
from archec.store.temp import Temp
from archec.store.writer import Writer
from archec.web.task import TempLike

__all__ = ["StoreSink"]


class _AbsoluteTemp:
    """A temporary file of the store whose path is absolute, so that any process can remove it."""

    def __init__(self, temp: Temp, root: str) -> None:
        self._temp, self._root = temp, root
        self.write = temp.write
        self.discard = temp.discard

    def close(self) -> tuple[str, str, str, int]:
        stored = self._temp.close()
        return f"{self._root}/{stored.temp}", stored.md5, stored.sha256, stored.size


class StoreSink:
    """Opens temporary files in the directory of a run; picklable, opens the store when first used."""

    def __init__(self, layout: Layout, run: int) -> None:
        self._layout, self._run = layout, run
        self._writer: Writer | None = None

    def __getstate__(self) -> tuple[Layout, int]:
        return self._layout, self._run

    def __setstate__(self, state: tuple[Layout, int]) -> None:
        self._layout, self._run = state
        self._writer = None

    def temp(self, url: str) -> TempLike:
        """A temporary file for the body of ``url``."""
        if self._writer is None:
            self._writer = Writer(self._layout)
        return _AbsoluteTemp(self._writer.temp(self._run, url), str(self._layout.root))
