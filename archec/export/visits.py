"""The visits that found a file unchanged: only the journals know them all.

They are picked out of the journals once, sorted by URL into a scratch file of lines of one width, and looked
up in it by bisection; any number of processes may do so at the same time.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from archec.catalogue.model import Position
from archec.catalogue.records import FobiVisit, decode
from archec.export.sorting import SortedLines
from archec.store.durable import failure
from archec.store.journal import journals, read_batches
from archec.store.layout import Layout

__all__ = ["Unchanged", "Visits", "collect_visits", "hash_of"]

_FOBI = b'{"type":"fobi"'
_SAME = (b'"outcome":"same"', b'"outcome":"not-modified"')
_NO_TARGET = "0" * 16
_WIDTH = 16 + 12 + 1 + 16 + 1
"""The hash of the URL, the tist, ``m`` (304) or ``s``, the hash of the redirect's target, a line end."""


def hash_of(url: str) -> str:
    """The 16 hex digits that stand for a URL in the file of visits."""
    return xxh3_64_hexdigest(url.encode("utf-8", "surrogatepass"))


class Unchanged(NamedTuple):
    """A visit that found a file as it was: when, whether by 304, the hash of where it redirected to (or empty)."""

    tist: int
    not_modified: bool
    target: str


def collect_visits(
    layout: Layout, position: Position, since: int, folder: Path, told: Callable[[int], None]
) -> Path:
    """Writes all such visits from ``since`` on, as far as the catalogue has come, to a file in ``folder``."""
    path = folder / "visits"
    lines = 0
    with SortedLines(folder) as found:
        for journal in journals(layout):
            if not since <= journal.tist <= position.run:
                continue
            for batch in read_batches(journal.path):
                if (journal.tist, batch.n) > (position.run, position.batch):
                    break
                for line in batch.lines:
                    if line.startswith(_FOBI) and any(word in line for word in _SAME):
                        _add(found, decode(line, f"{journal.path}, batch {batch.n}"))
                lines += len(batch.lines)
                told(lines)
        try:
            with open(path, "wb") as file:
                file.writelines(line + b"\n" for line in found)
        except OSError as error:
            raise failure(error, path) from error
    return path


def _add(found: SortedLines, record: object) -> None:
    if isinstance(record, FobiVisit) and not record.put and record.visit.outcome in ("same", "not-modified"):
        visit = record.visit
        flag = "m" if visit.outcome == "not-modified" else "s"
        target = hash_of(visit.target) if visit.target else _NO_TARGET
        found.add(f"{hash_of(record.id)}{visit.tist:012d}{flag}{target}".encode())


class Visits:
    """Looks visits up in the file that :func:`collect_visits` wrote. A context manager."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed with this object
            self._count = path.stat().st_size // _WIDTH
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._count else None
        except OSError as error:
            raise failure(error, path) from error

    def of(self, url: str) -> Iterator[Unchanged]:
        """The visits to a URL, oldest first."""
        if self._map is None:
            return
        key = hash_of(url).encode()
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._map[middle * _WIDTH : middle * _WIDTH + 16] < key:
                low = middle + 1
            else:
                high = middle
        while low < self._count and (line := self._map[low * _WIDTH : (low + 1) * _WIDTH]).startswith(key):
            target = line[29:45].decode()
            yield Unchanged(int(line[16:28]), line[28:29] == b"m", "" if target == _NO_TARGET else target)
            low += 1

    def close(self) -> None:
        """Lets go of the file."""
        if self._map is not None:
            self._map.close()
        self._file.close()

    def __enter__(self) -> Visits:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
