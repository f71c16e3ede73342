"""Directories of the obi store as open file descriptors, reached without following any link.

A path in the store is walked component by component with O_NOFOLLOW, so that a directory that was
swapped for a symbolic link is an error and never a way out of the store. The root itself may be a link.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from archec.errors import CorruptArchive
from archec.store.durable import Disk, failure
from archec.store.layout import Layout

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER = _FLAGS | os.O_NOFOLLOW


def open_root(layout: Layout) -> int:
    """The store's root, open."""
    try:
        return os.open(layout.root, _FLAGS)
    except OSError as error:
        raise failure(error, layout.root) from error


def open_directory(layout: Layout, root_fd: int, relative: str, *, make: Disk | None = None) -> int | None:
    """The directory at a relative path, open; None if it is not there and ``make`` is not given.

    Raises :class:`CorruptArchive` where a component is a link or no directory.
    """
    fd = os.dup(root_fd)
    try:
        walked = ""
        for part in relative.split("/") if relative else ():
            walked = f"{walked}/{part}" if walked else part
            deeper = _step(layout, fd, part, walked, make)
            if deeper is None:
                return None
            os.close(fd)
            fd = deeper
        result, fd = fd, -1
        return result
    finally:
        if fd >= 0:
            os.close(fd)


def _step(layout: Layout, fd: int, part: str, walked: str, make: Disk | None) -> int | None:
    where = f"{layout.root}/{walked}"
    try:
        return os.open(part, _INNER, dir_fd=fd)
    except FileNotFoundError:
        if make is None:
            return None
    except OSError as error:
        raise _not_a_directory(error, where) from error
    make.mkdir(part, fd, where)
    try:
        return os.open(part, _INNER, dir_fd=fd)
    except OSError as error:
        raise _not_a_directory(error, where) from error


def _not_a_directory(error: OSError, where: str) -> Exception:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return CorruptArchive(f"{where}: a directory of the store is not a directory but a file or a link")
    return failure(error, where)


class Directories:
    """A bounded cache of open directories by relative path; ``""`` is the root. Not for threads."""

    def __init__(self, layout: Layout, disk: Disk, *, most: int = 64) -> None:
        self._layout = layout
        self._disk = disk
        self._most = most
        self._open: dict[str, int] = {}
        self._last = ""
        self.root = self._last_fd = open_root(layout)

    def fd(self, relative: str) -> int:
        """The directory at ``relative``, made where it is missing; open until some other calls later."""
        if relative == self._last:
            return self._last_fd
        if not relative:
            return self.root
        fd = self._open.pop(relative, None)
        if fd is None:
            if len(self._open) >= self._most:
                os.close(self._open.pop(next(iter(self._open))))
            fd = open_directory(self._layout, self.root, relative, make=self._disk)
            if fd is None:
                raise CorruptArchive(f"{self._layout.root}/{relative}: cannot be made")
        self._open[relative] = fd
        self._last, self._last_fd = relative, fd
        return fd

    def close(self) -> None:
        """Closes all; fine to call again."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        if self.root >= 0:
            os.close(self.root)
        self.root = self._last_fd = -1
        self._last = ""

    def __enter__(self) -> Directories:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
