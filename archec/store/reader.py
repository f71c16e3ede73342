"""Safe reading of the obi store: follows redirects inside it, and nothing out of it.

Directories are opened without following links (:mod:`archec.store.directories`), a redirect's link is read as
text (:mod:`archec.store.links`), and the file is opened by O_NOFOLLOW.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import BinaryIO, TypeVar

from archec.digest import Digests
from archec.errors import CorruptArchive, NotHeld
from archec.ids import file_name
from archec.store.directories import Directories
from archec.store.durable import failure
from archec.store.interface import Digest, Located
from archec.store.layout import Layout
from archec.store.links import follow, shown

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # never waits for a pipe
_BUFFER = 1 << 18

_R = TypeVar("_R", bound="Reader")


class Reader:
    """Reads many obis: the directories that they lie in stay open. A context manager, not for threads.

    Each method raises :class:`NotHeld` where nothing was noted, :class:`CorruptArchive` for links that leave the
    store, loop or lead to nothing, and :class:`StorageFailed` where the disk does not read.
    """

    def __init__(self, layout: Layout, directories: Directories | None = None) -> None:
        self.layout = layout
        self._directories = directories or Directories(layout)

    def locate(self, tist: int, id: str) -> Located:  # noqa: A002
        """The regular file that holds what was noted of an obi at ``tist``."""
        path, hops, fault = follow(self._directories, self.layout.path(tist, id), id)
        if fault is None:
            return Located(path, hops)
        if fault.kind == "missing" and not hops:
            raise NotHeld(f"nothing was noted of {shown(id)} at {tist}")
        raise CorruptArchive(f"{self.layout.root}/{fault.path}: {fault.message}")

    def open(self, tist: int, id: str) -> BinaryIO:  # noqa: A002
        """What was noted of an obi at ``tist``, open for reading."""
        return self.open_path(self.locate(tist, id).path)

    def open_path(self, path: str) -> BinaryIO:
        """The file at a relative path that :meth:`locate` gave, open for reading; follows no link."""
        directory, _, name = path.rpartition("/")
        where = f"{self.layout.root}/{path}"
        dir_fd = self._directories.find(directory)
        if dir_fd is None:
            raise NotHeld(f"{where}: is not held")
        try:
            fd = os.open(name, _OPEN, dir_fd=dir_fd)
        except FileNotFoundError:
            raise NotHeld(f"{where}: is not held") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise CorruptArchive(f"{where}: is not a file") from error
            raise failure(error, where) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CorruptArchive(f"{where}: is not a file")
        return open(fd, "rb")

    def read(self, tist: int, id: str) -> bytes:  # noqa: A002
        """All bytes noted of an obi at ``tist``; for small ones."""
        # A regular file under its own name needs no look at what else could be there: a quarter of the cost.
        directory = self._directories.find(self.layout.directory(tist, id))
        if directory is not None:
            data = self._plain(directory, tist, id)
            if data is not None:
                return data
        with self.open(tist, id) as file:
            try:
                return file.read()
            except OSError as error:
                raise failure(error, self.layout.root / self.layout.path(tist, id)) from error

    def _plain(self, directory: int, tist: int, id: str) -> bytes | None:  # noqa: A002
        """The bytes of a regular file, None where there is anything else, or nothing."""
        try:
            fd = os.open(file_name(id), _OPEN, dir_fd=directory)
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
            while data := os.read(fd, _BUFFER):
                parts.append(data)
            return b"".join(parts)
        except OSError as error:
            raise failure(error, self.layout.root / self.layout.path(tist, id)) from error
        finally:
            os.close(fd)

    def digest(self, tist: int, id: str) -> Digest:  # noqa: A002
        """The digests and the size of what was noted of an obi at ``tist``."""
        digests = Digests()
        with self.open(tist, id) as file:
            try:
                while data := file.read(_BUFFER):
                    digests.update(data)
            except OSError as error:
                raise failure(error, self.layout.root / self.layout.path(tist, id)) from error
        return Digest(digests.md5, digests.sha256, digests.size)

    def close(self) -> None:
        """Closes the directories; fine to call again."""
        self._directories.close()

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# -- once ---------------------------------------------------------------------------------------------


def locate(layout: Layout, tist: int, id: str) -> Located:  # noqa: A002
    """As :meth:`Reader.locate`, for a single obi."""
    with Reader(layout) as reader:
        return reader.locate(tist, id)


def open_obi(layout: Layout, tist: int, id: str) -> BinaryIO:  # noqa: A002
    """As :meth:`Reader.open`, for a single obi."""
    with Reader(layout) as reader:
        return reader.open(tist, id)


def open_held(layout: Layout, path: str) -> BinaryIO:
    """As :meth:`Reader.open_path`, for a single file."""
    with Reader(layout) as reader:
        return reader.open_path(path)


def digest(layout: Layout, tist: int, id: str) -> Digest:  # noqa: A002
    """As :meth:`Reader.digest`, for a single obi."""
    with Reader(layout) as reader:
        return reader.digest(tist, id)
