"""Reading many small obis one after the other: the directories that they lie in stay open.

As safe as :mod:`archec.store.reader`, and a quarter of its cost where obis share directories: the directories are
walked once, without following links, and a file is opened by O_NOFOLLOW. Whatever is not simply a regular file
there is left to that module.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType

from archec.ids import file_name
from archec.store.directories import open_directory, open_root
from archec.store.durable import failure
from archec.store.layout import Layout
from archec.store.reader import OPEN_FLAGS, open_obi

_MOST_OPEN = 128


class ManyReader:
    """Reads whole obis; see the module's docstring. Not for threads. To be closed, or used with ``with``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._root = open_root(layout)
        self._open: dict[str, int] = {}

    def read(self, tist: int, id: str) -> bytes:  # noqa: A002
        """The bytes noted of an obi at ``tist``. Raises as :func:`archec.store.reader.locate` does."""
        directory = self._directory(self._layout.directory(tist, id))
        if directory is not None:
            data = self._plain(directory, tist, id)
            if data is not None:
                return data
        with open_obi(self._layout, tist, id) as file:
            try:
                return file.read()
            except OSError as error:
                raise failure(error, self._layout.root / self._layout.path(tist, id)) from error

    def _plain(self, directory: int, tist: int, id: str) -> bytes | None:  # noqa: A002
        """The bytes of a regular file, None where there is anything else, or nothing."""
        try:
            fd = os.open(file_name(id), OPEN_FLAGS, dir_fd=directory)
        except OSError:
            return None  # a link, or none at all: to be looked at with care
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                return None
            data = os.read(fd, state.st_size + 1)
            if len(data) == state.st_size:
                return data
            parts = [data]
            while data := os.read(fd, 1 << 18):
                parts.append(data)
            return b"".join(parts)
        except OSError as error:
            raise failure(error, self._layout.root / self._layout.path(tist, id)) from error
        finally:
            os.close(fd)

    def _directory(self, relative: str) -> int | None:
        fd = self._open.get(relative)
        if fd is None:
            fd = open_directory(self._layout, self._root, relative)
            if fd is not None:
                if len(self._open) >= _MOST_OPEN:
                    os.close(self._open.pop(next(iter(self._open))))
                self._open[relative] = fd
        return fd

    def close(self) -> None:
        """Closes the directories; fine to call again."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        if self._root >= 0:
            os.close(self._root)
        self._root = -1

    def __enter__(self) -> ManyReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
