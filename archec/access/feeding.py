"""Adds rows to local index files and removes them, with the interface of OutbackCDX for crawlers.

The rows of a directory go into its file ``added.cdxj``. Small additions go into a small file next to the index file
(:func:`newer_of`), which is merged into it once it has grown. Files are replaced as a whole, so a reader sees either
the old rows or the new ones; a line that is in both files is shown once. A lock allows one writer per directory. Lines
are sorted on disk.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path

from archec.access.index_files import (
    ENDINGS,
    MAX_LINE,
    SortedFile,
    by_header,
    is_header,
    lines_of,
    newer_of,
    skip_mark,
    without_mark,
)
from archec.access.posts import key_of_method
from archec.access.query import key_of
from archec.access.rows import NOWHERE, LineReader, Row, any_row, made_line
from archec.config import CollectionConfig, Config
from archec.errors import UsageError, storage_errors
from archec.store.durable import atomic_stream, is_temp
from archec.store.sorting import SortedLines

_ADDED = "added.cdxj"
_VAULT = "vault.json"
_LOCK = ".archec-access.lock"
_STEPS = 100
"""Number of lines that are read in sequence before the next one is searched for."""
_LAST = b"\xff"
_DAY = 86_400
_IN_MEMORY = 4 << 20
_MAX_NEWER = 8 << 20
"""Size in bytes up to which rows go into the newer file, which is rewritten each time."""


def fed_path(config: Config, collection: CollectionConfig) -> Path | None:
    """The file or directory that rows for a collection are added to: its first index of type ``file``."""
    files = (one.path for step in collection.steps for one in step.sources if one.type == "file")
    return next((config.path(path) for path in files), None)


def _check_own(path: Path) -> None:
    """Raises UsageError for the index of a vault: an export writes there, and takes what it lists for its records."""
    if any((folder / _VAULT).exists() for folder in (path, *path.resolve().parents[:2])):
        raise UsageError(
            f"{path.name} belongs to a vault, which only 'archec export warc' changes",
            hint="name an index of your own before it, in the index_group of the collection",
        )


def parse_rows(lines: Iterable[bytes], *, skip_bad: bool = False) -> Iterator[bytes]:
    """Converts CDX or CDXJ lines to CDXJ, with the keys of this server. Raises UsageError for others, unless
    ``skip_bad``."""
    read: LineReader = any_row
    for number, line in enumerate(lines, 1):
        line = without_mark(line) if number == 1 else line
        if is_header(line):
            read = _reader(line, number) if b"CDX " in line else read
            continue
        row = read(line, NOWHERE) if len(line) <= MAX_LINE else None
        try:
            if row is None or not row.url:
                raise UsageError(f"line {number} is neither CDX nor CDXJ")
            key = _key(row)
        except UsageError:
            if skip_bad:
                continue
            raise
        yield made_line(key, row.timestamp, row.fields)


def _reader(header: bytes, number: int) -> LineReader:
    """The function that parses the lines below a header. Raises UsageError."""
    try:
        return by_header(header)
    except ValueError as error:
        raise UsageError(f"line {number}: {error}") from error


def _key(row: Row) -> str:
    """The key of a row if it is one of the usual form (``org,example)/``), else that of its URL, with the request that
    cdxj-indexer and OutbackCDX name in ``method`` and ``requestBody``. Raises UsageError if there is neither."""
    if ")" in row.urlkey.partition("/")[0]:
        return row.urlkey
    method = row.text("method")
    try:
        if method not in ("", "GET"):
            return key_of_method(row.url, method, row.text("requestBody"))
        return key_of(row.url)
    except UsageError:
        if row.urlkey in ("-", ""):
            raise
        return row.urlkey


def add(path: Path, lines: Iterable[bytes]) -> int:
    """Adds lines as :func:`parse_rows` yields them, except those whose row is already there, and returns the number of
    those added. If one of them is invalid, none is added. Raises StorageFailed and StorageFull."""
    _check_own(path)
    file = _file_of(path)
    newer = newer_of(file)
    with (
        locked(file.parent),
        SortedLines(file.parent, in_memory=4 * _IN_MEMORY) as given,
        SortedLines(file.parent, in_memory=_IN_MEMORY) as fresh,
        ExitStack() as stack,
    ):
        for line in lines:
            given.add(line)
        _sweep(file.parent)
        _complete_merge(file)
        files = {file, newer, *(path.glob("*.cdxj") if path.is_dir() else ())}
        finders = [_Finder(stack.enter_context(_searched(one))) for one in sorted(files) if one.exists()]
        size = newer.stat().st_size if newer.exists() else 0
        added = 0
        for line in _missing(given, finders):
            fresh.add(line)
            size += len(line) + 1
            added += 1
        if added and file.exists() and size <= _MAX_NEWER:
            write_lines(newer, heapq.merge(_lines(newer), fresh))
        elif added or not file.exists():
            merged = groupby(heapq.merge(_lines(file), _lines(newer), fresh))
            write_lines(file, (line for line, _ in merged))
            if newer.exists():
                write_lines(newer, ())  # not removed: a reader may be about to open it
        return added


def _missing(given: Iterable[bytes], finders: Sequence[_Finder]) -> Iterator[bytes]:
    """Yields the first of the sorted lines for each row that none of the files has."""
    for begin, group in groupby(given, key=_key_and_time):
        there = {_contents(line) for finder in finders for line in finder.at(begin)}
        for line in group:
            contents = _contents(line)
            if contents not in there:
                there.add(contents)
                yield line


def _sweep(folder: Path) -> None:
    """Removes the temporary files of processes that were killed a day ago or earlier."""
    with storage_errors(folder):
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError, PermissionError):  # just completed, or another user's
                if is_temp(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY:
                    os.unlink(entry.path)


def _complete_merge(file: Path) -> None:
    """Completes an interrupted merge: removes from the newer file the lines that are already in the file."""
    newer = newer_of(file)
    first = next(_lines(newer), None)
    if first is None or not file.exists():
        return
    with _searched(file) as lines:
        if any(line.rstrip(b"\r") == first for line in _Finder(lines).at(first)):
            write_lines(newer, _without(_lines(newer), _lines(file)))


@contextmanager
def _searched(file: Path) -> Iterator[SortedFile]:
    with storage_errors(file), open(file, "rb") as opened:
        yield SortedFile(os.dup(opened.fileno()), skip_mark(opened), file.name)


def _without(lines: Iterator[bytes], others: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines that are not among ``others``. Both are sorted."""
    rest = iter(others)
    other = next(rest, None)
    for line in lines:
        while other is not None and other < line:
            other = next(rest, None)
        if line != other:
            yield line


def remove(path: Path, lines: Iterable[bytes]) -> int:
    """Removes the rows with the same key, time, URL, file and offset as these lines, and returns their number. Raises
    StorageFailed."""
    _check_own(path)
    folder = path if path.is_dir() else path.parent
    with SortedLines(folder) as gone:
        for line in lines:
            gone.add(line)
        with locked(folder):
            _complete_merge(path / _ADDED if path.is_dir() else path)
            files = sorted(path.glob("*.cdxj")) if path.is_dir() else [newer_of(path), path]
            return sum(_remove(file, gone) for file in files if file.exists())


def _remove(file: Path, gone: Iterable[bytes]) -> int:
    """Removes the rows of a file that are equivalent to one of these sorted lines."""
    with SortedLines(file.parent, in_memory=_IN_MEMORY) as same:
        with _searched(file) as lines:
            for line in _equivalents(lines, gone):
                same.add(line.rstrip(b"\r"))
        if not same.empty:
            write_lines(file, _without(_lines(file), same))
        return sum(1 for _ in same)


def _equivalents(lines: SortedFile, gone: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file that are equivalent to one of these sorted lines."""
    finder = _Finder(lines)
    for begin, group in groupby(gone, key=_key_and_time):
        wanted = set(map(_identity, group))
        yield from (line for line in finder.at(begin) if _identity(line) in wanted)


class _Finder:
    """Finds lines of a file. Reads on for nearby lines and searches for distant ones."""

    def __init__(self, lines: SortedFile) -> None:
        self._lines = lines
        self._rest: Iterator[bytes] | None = None
        self._line = b""

    def at(self, begin: bytes) -> list[bytes]:
        """The lines that begin with ``begin``, which is greater than in the call before."""
        rest = self._lines.forward(begin, _LAST) if self._rest is None else self._rest
        steps = 0
        while self._line < begin:
            if steps == _STEPS:
                rest = self._lines.forward(begin, _LAST)
            self._line = next(rest, _LAST)
            steps += 1
        found: list[bytes] = []
        while self._line.startswith(begin):
            found.append(self._line)
            self._line = next(rest, _LAST)
        self._rest = rest
        return found


def _key_and_time(line: bytes) -> bytes:
    return line[: line.find(b" ", line.find(b" ") + 1) + 1]


def _contents(line: bytes) -> tuple[str, str, frozenset[tuple[str, str]]] | None:
    """Key, time and fields of a line, in whatever order and with whatever blanks it is written."""
    row = any_row(line.rstrip(b"\r"), NOWHERE)
    return (row.urlkey, row.timestamp, frozenset((name, row.text(name)) for name in row.fields)) if row else None


def _identity(line: bytes) -> tuple[str, ...] | None:
    row = any_row(line, NOWHERE)
    return (row.urlkey, row.timestamp, row.url, row.text("filename"), row.text("offset")) if row is not None else None


def _file_of(path: Path) -> Path:
    """The file to write to. Creates a directory that does not exist yet."""
    if path.name.endswith(".cdxj") and not path.is_dir():
        return path
    if path.is_file() or path.name.endswith(ENDINGS):
        raise UsageError("rows can only be added to a directory or a .cdxj file")
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path / _ADDED


def _lines(file: Path) -> Iterator[bytes]:
    if not file.exists():
        return
    with storage_errors(file), open(file, "rb") as opened:
        skip_mark(opened)
        for line in filter(None, lines_of(opened)):
            if len(line) > MAX_LINE:
                raise UsageError(f"{file.name}: has a line of more than {MAX_LINE} bytes")
            yield line


def write_lines(file: Path, lines: Iterable[bytes]) -> int:
    """Replaces a file by one with these lines, and returns their number. Raises StorageFailed and StorageFull."""
    count = 0
    with atomic_stream(file) as out:
        for line in lines:
            out.write(line + b"\n")
            count += 1
    return count


@contextmanager
def locked(folder: Path, name: str = _LOCK) -> Iterator[None]:
    """Holds a lock of a folder, by default that of its index files, for which it waits."""
    with storage_errors(folder):
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
