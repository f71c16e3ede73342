"""Where bodies go: the interface that a worker process writes through, and a plain folder as one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_hexdigest, xxh3_128

__all__ = ["FolderSink", "Sink", "TempLike", "Written"]


class Written(NamedTuple):
    """A temporary file that is whole: ``md5`` and ``xxh3`` (128 bits) in hex, ``size`` in bytes."""

    path: str
    md5: str
    xxh3: str
    size: int


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


class FolderSink:
    """Writes each body into one flat folder, as ``<hash of the URL>-<n>.part``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def temp(self, url: str) -> FolderTemp:
        """A new file in the folder."""
        return FolderTemp(self._folder, xxh3_64_hexdigest(url.encode("utf-8", "surrogatepass")))


class FolderTemp:
    """A file of a :class:`FolderSink`: md5 and xxh3_128 are made in the pass that writes it."""

    __slots__ = ("_fd", "_md5", "_path", "_size", "_xxh3")

    def __init__(self, folder: Path, stem: str) -> None:
        number = 0
        while True:
            self._path = f"{folder}/{stem}-{os.getpid()}-{number}.part"
            try:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                break
            except FileExistsError:
                number += 1
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._xxh3 = xxh3_128()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._md5.update(data)
        self._xxh3.update(data)
        self._size += len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def close(self) -> Written:
        os.close(self._fd)
        self._fd = -1
        return Written(self._path, self._md5.hexdigest(), self._xxh3.hexdigest(), self._size)

    def discard(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            Path(self._path).unlink(missing_ok=True)
