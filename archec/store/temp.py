"""Temporary files in the obi store: bytes on their way in, hashed as they pass; and what a killed run left of them.

A temporary file lies in the directory of its final name, so that committing it is a rename. Any
process may make one; what it hands to the process that commits is plain data (:class:`Stored`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from archec.digest import Digests
from archec.store.directories import Directories
from archec.store.durable import Data, Disk, failure, is_temp
from archec.store.interface import Stored
from archec.store.layout import RUNS, Layout
from archec.tist import tist_path

_LARGE = 1 << 17
"""Bytes from which on a file is sent to the disk when it is whole, ahead of its batch."""


class Temp:
    """A temporary file that is being written. As a context manager it is discarded unless closed."""

    __slots__ = ("_digests", "_directories", "_directory", "_disk", "_fd", "_name", "_where")

    def __init__(
        self, fd: int, directory: str, name: str, where: str, directories: Directories, disk: Disk
    ) -> None:
        self._fd = fd
        self._directory = directory
        self._name = name
        self._where = where
        self._directories = directories
        self._disk = disk
        self._digests = Digests()

    @property
    def path(self) -> str:
        """The relative path in the store."""
        return f"{self._directory}/{self._name}"

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._digests.size

    def write(self, data: Data) -> None:
        """Adds bytes. Raises StorageFull or StorageFailed; the file is then to be discarded."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        self._disk.write(self._fd, data, self._where)
        self._digests.update(data)

    def close(self, *, sync: bool = False) -> Stored:
        """Ends the file; ``sync`` also brings it to the disk, for a file that no batch will."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        if sync:
            self._disk.fsync(self._fd, self._where)
        elif self._digests.size >= _LARGE:
            self._disk.begin_sync(self._fd)
        fd, self._fd = self._fd, -1
        self._disk.close(fd, self._where)
        return Stored(self.path, self._digests.md5, self._digests.sha256, self._digests.size)

    def discard(self) -> None:
        """Removes the file, open or closed; nothing happens where it has gone or has its final name."""
        try:
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                self._disk.close(fd, self._where)
        finally:
            self._disk.unlink(self._name, self._directories.make(self._directory), self._where)

    def __enter__(self) -> Temp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            self.discard()


def sweep_parts(layout: Layout, tists: Iterable[int]) -> int:
    """Removes the temporary files in the directories of these tists; how many there were.

    Only while holding the run lock: another run's files on their way would go too.
    """
    disk = Disk()
    with Directories(layout) as directories:
        removed = 0
        for tist in tists:
            directory = tist_path(tist)
            removed += _sweep(directories, directory, disk)
            if layout.fanout:
                removed += sum(_sweep(directories, f"{directory}/{n:02x}", disk) for n in range(layout.fanout))
        return removed


def sweep_runs(layout: Layout) -> int:
    """Removes the temporary files beside the journals and in the root; how many there were."""
    disk = Disk()
    with Directories(layout) as directories:
        return _sweep(directories, RUNS, disk) + _sweep(directories, "", disk)


def _sweep(directories: Directories, directory: str, disk: Disk) -> int:
    fd = directories.find(directory)
    if fd is None:
        return 0
    where = f"{directories.layout.root}/{directory}"
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if is_temp(entry.name) and entry.is_file(follow_symlinks=False)]
        return sum(disk.unlink(name, fd, f"{where}/{name}") for name in names)
    except OSError as error:
        raise failure(error, where) from error
