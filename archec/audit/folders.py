"""Directories of the obi store, open for looking; nothing is made where there is nothing."""

from __future__ import annotations

import os
from types import TracebackType

from archec.store.directories import open_directory, open_root
from archec.store.layout import Layout

__all__ = ["Folders"]

_MOST = 300


class Folders:
    """A bounded cache of open directories by relative path. Not for threads; a context manager."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._open: dict[str, int] = {}
        self._last, self._last_fd = "", -1
        self._root = open_root(layout)

    def fd(self, relative: str) -> int | None:
        """The directory at ``relative``, None where there is none; open until some hundred calls later.

        Raises :class:`archec.errors.CorruptArchive` where a component is a link or no directory.
        """
        if relative == self._last and self._last_fd >= 0:
            return self._last_fd
        fd = self._open.get(relative)
        if fd is None:
            found = open_directory(self._layout, self._root, relative)
            if found is None:
                return None
            if len(self._open) >= _MOST:
                os.close(self._open.pop(next(iter(self._open))))
            fd = self._open[relative] = found
        self._last, self._last_fd = relative, fd
        return fd

    def forget(self) -> None:
        """Closes all but the root, so that what was moved meanwhile is seen."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._last, self._last_fd = "", -1

    def close(self) -> None:
        """Closes all; fine to call again."""
        self.forget()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def __enter__(self) -> Folders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
