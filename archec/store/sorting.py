"""Sorting any number of lines in bounded memory: sorted runs on disk, merged."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from archec.closing import Closing
from archec.errors import storage_errors

_IN_MEMORY = 32 << 20
_OVERHEAD = 80
"""Memory that a line takes in addition to its bytes."""
_MAX_RUNS = 48


class SortedLines(Closing):
    """A set of lines (bytes without line ends) that is iterated in byte order. A context manager.

    Beyond ``in_memory`` bytes, sorted runs are written to unnamed files in ``folder``. Raises StorageFull or
    StorageFailed if that fails.
    """

    def __init__(self, folder: Path, *, in_memory: int = _IN_MEMORY) -> None:
        self._folder, self._in_memory = folder, in_memory
        self._lines: list[bytes] = []
        self._size = 0
        self._runs: list[IO[bytes]] = []

    @property
    def empty(self) -> bool:
        return not self._lines and not self._runs

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line) + _OVERHEAD
        if self._size >= self._in_memory:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """All lines in order. May be called again after an iteration has ended."""
        self._lines.sort()
        before: bytes | None = None
        for line in heapq.merge(self._lines, *map(_read, self._runs)):
            if line != before:
                yield line
            before = line

    def _spill(self) -> None:
        """Writes the lines to a run; all runs are merged into it if there are too many."""
        with storage_errors(self._folder), ExitStack() as failed:
            run = failed.enter_context(tempfile.TemporaryFile(dir=self._folder))
            many = len(self._runs) >= _MAX_RUNS
            run.writelines(line + b"\n" for line in (self if many else sorted(self._lines)))
            run.flush()
            failed.pop_all()  # it is closed with this object
        if many:
            self.close()
        self._runs.append(run)
        self._lines, self._size = [], 0

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._runs = []


def _read(run: IO[bytes]) -> Iterator[bytes]:
    run.seek(0)
    for line in run:
        yield line[:-1]
