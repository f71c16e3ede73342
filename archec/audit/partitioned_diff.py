"""Comparing streams that are too large for memory, one 256th of them after the other.

Each side gives records of one width that begin with a 16-byte key (:func:`archec.audit.expected.key_of`). They are
divided by the first byte of their key, so that records with one key meet in one part, whatever order they came in.
Beyond some 64 MB the parts lie in files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from archec.errors import StorageFailed
from archec.store.durable import storage_errors

KEY = 16
_PARTS = 256
_IN_MEMORY = 64 << 20


class PartitionedDiff:
    """``widths`` are the bytes of a record of each side; files go below ``folder``. To be closed."""

    def __init__(self, folder: Path, widths: Sequence[int], *, in_memory: int = _IN_MEMORY) -> None:
        self._folder, self._widths, self._in_memory = folder, tuple(widths), in_memory
        self._parts = [[bytearray() for _ in range(_PARTS)] for _ in widths]
        self._size = 0
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def add(self, side: int, records: bytes) -> None:
        """Adds records of a side, one after the other in ``records``."""
        width, parts = self._widths[side], self._parts[side]
        for start in range(0, len(records), width):
            parts[records[start]] += records[start : start + width]
        self._size += len(records)
        if self._size >= self._in_memory:
            self._spill()

    def parts(self) -> Iterator[tuple[list[bytes], ...]]:
        """For each part the records of every side, in the order in which they were added."""
        for number in range(_PARTS):
            yield tuple(self._records(side, number) for side in range(len(self._widths)))

    def _records(self, side: int, number: int) -> list[bytes]:
        records, width = self._whole(side, number), self._widths[side]
        return [records[start : start + width] for start in range(0, len(records), width)]

    def _whole(self, side: int, number: int) -> bytes:
        rest = bytes(self._parts[side][number])
        if self._scratch is None:
            return rest
        path = self._path(self._scratch, side, number)
        with storage_errors(path):
            return path.read_bytes() + rest if path.exists() else rest

    def _spill(self) -> None:
        path = self._folder
        with storage_errors(path):
            if self._scratch is None:
                path.mkdir(parents=True, exist_ok=True)
                self._scratch = tempfile.TemporaryDirectory(prefix="audit-", dir=path)
            for side, parts in enumerate(self._parts):
                for number, part in enumerate(parts):
                    if part:
                        path = self._path(self._scratch, side, number)
                        with open(path, "ab") as file:
                            file.write(part)
                        part.clear()
        self._size = 0

    @staticmethod
    def _path(scratch: tempfile.TemporaryDirectory[str], side: int, number: int) -> Path:
        return Path(scratch.name, f"{side}-{number:02x}")

    def close(self) -> None:
        """Removes the files."""
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            try:
                scratch.cleanup()
            except OSError as error:
                raise StorageFailed(f"{scratch.name}: {error.strerror}") from error
