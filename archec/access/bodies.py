"""What comes with a request: in a file, which is in memory while it is small."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, cast

from anyio import to_thread

_IN_MEMORY = 1 << 20
_PIECE = 1 << 18


class Body:
    """The bytes of a file from ``begin`` on. Read by one at a time."""

    def __init__(self, file: IO[bytes] | None = None, begin: int = 0) -> None:
        self._file, self._begin = file or io.BytesIO(), begin
        self.size = self._file.seek(0, io.SEEK_END) - begin

    def first(self, most: int) -> bytes:
        """At most so many of its first bytes."""
        self._file.seek(self._begin)
        return self._file.read(most)

    def behind(self, size: int) -> Body:
        """What comes behind its first bytes."""
        return Body(self._file, self._begin + size)

    def lines(self, longest: int) -> Iterator[bytes]:
        """Its lines without their ends; of one that is longer than ``longest`` that many bytes and one more, and then
        the rest of it."""
        self._file.seek(self._begin)
        while line := self._file.readline(longest + 1):
            yield line.rstrip(b"\r\n")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes."""
        self._file.seek(self._begin)
        while data := await to_thread.run_sync(self._file.read, _PIECE):
            yield data


def new_file() -> IO[bytes]:
    """A file for a body, which is closed by the code that opened it."""
    return cast(IO[bytes], tempfile.SpooledTemporaryFile(_IN_MEMORY))
