"""Directories of the obi store as open file descriptors, reached without following any link.

A path in the store is walked component by component with O_NOFOLLOW, so a directory that was swapped for a symbolic
link causes an error and cannot lead out of the store. The root itself may be a link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from archec.errors import BadName, CorruptArchive
from archec.store.durable import Closing, Disk, failure, is_temp, storage_errors
from archec.store.layout import Layout
from archec.tist import tist_of_path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER = _FLAGS | os.O_NOFOLLOW


def open_root(layout: Layout) -> int:
    with storage_errors(layout.root):
        return os.open(layout.root, _FLAGS)


class Directories(Closing):
    """A bounded cache of open directories by relative path; ``""`` is the root. A context manager, not thread-safe.

    A returned descriptor stays open for at least ``limit`` - 1 further calls. Both methods raise
    :class:`CorruptArchive` if a component is a link or not a directory. ``disk`` creates missing directories.
    """

    def __init__(self, layout: Layout, disk: Disk | None = None, *, limit: int = 128) -> None:
        self.layout = layout
        self._disk = disk
        self._limit = limit
        self._open: dict[str, int] = {}
        self._last = ""
        self.root = self._last_fd = open_root(layout)

    def find(self, relative: str) -> int | None:
        """The directory at ``relative``, None if there is none; nothing is created."""
        return self._get(relative, None)

    def make(self, relative: str) -> int:
        """The directory at ``relative``, created if it is missing. Its name is durable once its parent is synced."""
        fd = self._get(relative, self._disk or Disk())
        if fd is None:
            raise CorruptArchive(f"{self.layout.root}/{relative}: cannot be created")
        return fd

    def _get(self, relative: str, make: Disk | None) -> int | None:
        # Obis are mostly sorted by directory: reusing the last one needs no reordering of the cache.
        if relative == self._last:
            return self._last_fd
        if not relative:
            return self.root
        fd = self._open.pop(relative, None)
        if fd is None:
            fd = self._walk(relative, make)
            if fd is None:
                return None
            if len(self._open) >= self._limit:
                os.close(self._open.pop(next(iter(self._open))))
        self._open[relative] = fd  # at the end: the first one is the least recently used
        self._last, self._last_fd = relative, fd
        return fd

    def _walk(self, relative: str, make: Disk | None) -> int | None:
        fd = self.root
        try:
            walked = ""
            for part in relative.split("/"):
                walked = f"{walked}/{part}" if walked else part
                deeper = _step(fd, part, f"{self.layout.root}/{walked}", make)
                if deeper is None:
                    return None
                if fd != self.root:
                    os.close(fd)
                fd = deeper
            result, fd = fd, self.root
            return result
        finally:
            if fd != self.root:
                os.close(fd)

    def forget(self) -> None:
        """Closes all but the root, so that moved directories are noticed."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._last, self._last_fd = "", self.root

    def close(self) -> None:
        """Closes all; may be called repeatedly."""
        self.forget()
        if self.root >= 0:
            os.close(self.root)
        self.root = self._last_fd = -1


def held_tists(layout: Layout) -> Iterator[int]:
    """The tists whose directories contain anything but temporary files; directories with other names, and unreadable
    ones, are skipped."""
    for first in _three_digits(layout.root):
        for second in _three_digits(first):
            for directory in _listed(second):
                with suppress(BadName, ValueError):
                    tist = tist_of_path(str(directory.relative_to(layout.root)))
                    if any(not is_temp(path.name) for path in _listed(directory)):
                        yield tist


def _three_digits(directory: Path) -> Iterator[Path]:
    return (path for path in _listed(directory) if len(path.name) == 3 and path.name.isdigit())


def _listed(directory: Path) -> Iterator[Path]:
    """The names in a directory; empty if it is not a directory or cannot be read."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield directory / entry.name
    except OSError:
        return


def _step(fd: int, part: str, where: str, make: Disk | None) -> int | None:
    try:
        with suppress(FileNotFoundError):
            return os.open(part, _INNER, dir_fd=fd)
        if make is None:
            return None
        make.mkdir(part, fd, where)
        return os.open(part, _INNER, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            message = f"{where}: a directory of the store was replaced by a file or a link"
            raise CorruptArchive(message) from error
        raise failure(error, where) from error
