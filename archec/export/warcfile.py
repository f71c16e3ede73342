"""WARC files as they are written: under a temporary name, each record a gzip member, whole or not there."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, cast

from archec.store.durable import Data, Disk, create_temp, failure
from archec.store.failpoints import hit

if TYPE_CHECKING:
    from warcio.recordloader import ArcWarcRecord
    from warcio.warcwriter import WARCWriter

__all__ = ["Place", "TempFile", "WarcFile"]

_BUFFER = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TempFile:
    """A file under a temporary name in its directory; :meth:`publish` gives it its name at once, durably.

    As a context manager it is removed again unless it was published. Raises StorageFull and StorageFailed.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        try:
            self._directory = os.open(path.parent, _DIRECTORY)
        except OSError as error:
            raise failure(error, path.parent) from error
        try:
            self._fd, self._temp = create_temp(disk, self._directory, str(path.parent))
        except BaseException:
            os.close(self._directory)
            raise
        self._buffer = bytearray()
        self.size = 0

    def write(self, data: Data) -> int:
        """Adds bytes."""
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= _BUFFER:
            self.drain()
        return len(data)

    def flush(self) -> None:
        """Nothing: what writes records flushes after each of them, and the disk is asked once, at the end."""

    def drain(self) -> None:
        """Hands what is buffered to the system."""
        if self._buffer:
            self._disk.write(self._fd, self._buffer, str(self.path))
            self._buffer.clear()

    def cut(self, size: int) -> None:
        """Takes back what was written behind ``size``."""
        self.drain()
        self._disk.truncate(self._fd, size, str(self.path))
        os.lseek(self._fd, size, os.SEEK_SET)
        self.size = size

    def finish(self) -> None:
        """Brings the bytes to the disk and closes the file; fine to call again. A large series has many files."""
        if self._fd >= 0:
            self.drain()
            self._disk.fsync(self._fd, str(self.path))
            fd, self._fd = self._fd, -1
            self._disk.close(fd, str(self.path))

    def publish(self) -> None:
        """Gives the file its name, in the place of what no index names."""
        self.finish()
        self._disk.replace(self._temp, self.path.name, self._directory, str(self.path))
        self._temp = ""
        self._disk.fsync_dir(self._directory, str(self.path.parent))

    def __enter__(self) -> TempFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._temp:
                self._disk.unlink(self._temp, self._directory, str(self.path))
        finally:
            if self._fd >= 0:
                os.close(self._fd)
            os.close(self._directory)


class Place(NamedTuple):
    """Where a record lies in its file: offset and size in bytes of its gzip member."""

    offset: int
    length: int


class WarcFile:
    """A WARC file that is being written, by warcio."""

    def __init__(self, path: Path, disk: Disk) -> None:
        from warcio.warcwriter import WARCWriter

        self.temp = TempFile(path, disk)
        # warcio asks of its output nothing but write and flush.
        self.writer: WARCWriter = WARCWriter(cast(io.BufferedIOBase, self.temp), gzip=True, warc_version="1.1")

    @property
    def name(self) -> str:
        """The file's name to be."""
        return self.temp.path.name

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.temp.size

    def write(self, make: Callable[[WARCWriter], ArcWarcRecord]) -> Place:
        """Adds one record; where that fails there is nothing of it in the file."""
        start = self.temp.size
        record = make(self.writer)
        try:
            hit("export.mid-record")
            self.writer.write_record(record)
        except BaseException:
            self.temp.cut(start)
            raise
        finally:
            record.raw_stream.close()
        return Place(start, self.temp.size - start)
