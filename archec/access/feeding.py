"""Adding rows to an index file of this machine and removing them, as OutbackCDX lets crawlers do.

The rows of a folder go into its file ``added.cdxj``. A whole new file takes the place of the old one, so that whoever
reads it sees the old rows or the new ones; one writer at a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from archec.access.files import MAX_LINE
from archec.access.query import key_of
from archec.access.rows import Origin, Row, any_row, made_line
from archec.errors import UsageError
from archec.store.durable import atomic_stream, storage_errors
from archec.store.sorting import SortedLines

_ADDED = "added.cdxj"
_NOWHERE = Origin("", "", "")


def parse_rows(data: bytes) -> list[bytes]:
    """The lines of CDXJ for lines of CDX or CDXJ; a key ``-`` is made from the URL. Raises UsageError."""
    found: list[bytes] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"CDX "):
            continue
        row = any_row(line, _NOWHERE)
        if row is None or not row.url or len(line) > MAX_LINE:
            raise UsageError(f"line {number} is neither CDX nor CDXJ")
        key = key_of(row.url) if row.urlkey in ("-", "") else row.urlkey
        found.append(made_line(key, row.timestamp, row.fields))
    return found


def add(path: Path, lines: Sequence[bytes]) -> int:
    """Adds lines; the number of those that were not there. Raises StorageFailed and StorageFull."""
    file = _file_of(path)
    with _alone(file), SortedLines(file.parent) as found:
        before = 0
        for line in _lines(file):
            before += 1
            found.add(line)
        for line in lines:
            found.add(line)
        return _write(file, iter(found)) - before


def remove(path: Path, lines: Sequence[bytes]) -> int:
    """Removes the rows with key, time, URL, file and offset of these lines; their number. Raises StorageFailed."""
    gone = {_identity(row) for line in lines if (row := any_row(line, _NOWHERE)) is not None}
    count = 0
    for file in [path] if path.is_file() else sorted(path.glob("*.cdxj")):
        with _alone(file):
            rows = [(line, any_row(line, _NOWHERE)) for line in _lines(file)] if _has(file, gone) else None
            if rows is not None:
                kept = [line for line, row in rows if row is None or _identity(row) not in gone]
                _write(file, iter(kept))
                count += len(rows) - len(kept)
    return count


def _has(file: Path, gone: set[tuple[str, ...]]) -> bool:
    rows = (any_row(line, _NOWHERE) for line in _lines(file))
    return any(row is not None and _identity(row) in gone for row in rows)


def _identity(row: Row) -> tuple[str, ...]:
    return (row.urlkey, row.timestamp, row.url, row.text("filename"), row.text("offset"))


def _file_of(path: Path) -> Path:
    file = path / _ADDED if path.is_dir() else path
    if not file.name.endswith(".cdxj"):
        raise UsageError("rows can be added to a folder or a .cdxj file only")
    return file


def _lines(file: Path) -> Iterator[bytes]:
    if not file.exists():
        return
    with storage_errors(file), open(file, "rb") as opened:
        for line in opened:
            if line.strip():
                yield line.rstrip(b"\r\n")


def _write(file: Path, lines: Iterator[bytes]) -> int:
    count = 0
    with atomic_stream(file) as out:
        for line in lines:
            out.write(line + b"\n")
            count += 1
    return count


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """While the lock beside a file is held."""
    with storage_errors(file):
        descriptor = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
