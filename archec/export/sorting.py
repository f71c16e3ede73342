"""Lines in order, any number of them in a bounded amount of memory: sorted runs on disk, merged."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from archec.store.durable import failure

__all__ = ["SortedLines"]

_IN_MEMORY = 32 << 20
_OVERHEAD = 80
"""What a line costs in memory besides its own bytes."""
_MOST_RUNS = 48


class SortedLines:
    """Takes lines (bytes without line ends), gives them in byte order, each once. A context manager.

    Beyond ``in_memory`` bytes, runs are written to unnamed files in ``folder``. Raises StorageFull or
    StorageFailed where they cannot be.
    """

    def __init__(self, folder: Path, *, in_memory: int = _IN_MEMORY) -> None:
        self._folder, self._most = folder, in_memory
        self._lines: list[bytes] = []
        self._size = 0
        self._runs: list[IO[bytes]] = []

    @property
    def empty(self) -> bool:
        """Whether there are none."""
        return not self._lines and not self._runs

    def add(self, line: bytes) -> None:
        """One more line."""
        self._lines.append(line)
        self._size += len(line) + _OVERHEAD
        if self._size >= self._most:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """All lines, in order. May be asked for once more, one after the other."""
        self._lines.sort()
        before: bytes | None = None
        for line in heapq.merge(self._lines, *map(_read, self._runs)):
            if line != before:
                yield line
            before = line

    def _spill(self) -> None:
        if len(self._runs) >= _MOST_RUNS:
            self._write(None)
        else:
            self._lines.sort()
            self._write(self._lines)
        self._lines, self._size = [], 0

    def _write(self, lines: list[bytes] | None) -> None:
        """A new run of these lines; or, where there are too many runs, one of everything."""
        try:
            run = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with this object
            run.writelines(line + b"\n" for line in (self if lines is None else lines))
            run.flush()
        except OSError as error:
            raise failure(error, self._folder) from error
        if lines is None:
            self.close()
        self._runs.append(run)

    def close(self) -> None:
        """Lets go of the files."""
        for run in self._runs:
            run.close()
        self._runs = []

    def __enter__(self) -> SortedLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(run: IO[bytes]) -> Iterator[bytes]:
    run.seek(0)
    for line in run:
        yield line[:-1]
