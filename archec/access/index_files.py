"""Sorted files of CDXJ and CDX lines: checked once, then searched by bisection.

Files are read with ``pread`` instead of being memory-mapped: if a file is truncated while it is read, the query fails
with an error instead of the process with a signal.
"""

from __future__ import annotations

import gzip
import os
import stat
import tempfile
import threading
import weakref
import zlib
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

from archec.access.errors import MayBlock, SourceFailed
from archec.access.ordering import OrderedLines
from archec.access.rows import CDX_COLUMNS, CDX_FORMS, LineReader, any_row, cdx_reader

_BLOCK = 1 << 16
_PROBE = 1 << 10
_WINDOW = 1 << 13
"""Size in bytes below which a range is read as a whole instead of being bisected further."""
_REMEMBERED = 200
"""Bytes of a line that are cached per probe."""
_MAX_PROBES = 4096
"""Maximum number of cached probes. Every search begins with the same ones."""
ENDINGS = (".cdxj", ".cdx", ".cdxj.gz", ".cdx.gz")
"""Suffixes of index files, except ZipNum indexes."""
MAX_LINE = 1 << 20
"""Maximum length of a line of an index."""
MAX_UNPACKED = 4 << 30
"""Maximum size in bytes of an index that is decompressed."""
_GZIP = b"\x1f\x8b"


class Stamp(NamedTuple):
    """Identifies a version of a file: if it is equal, the file has not changed."""

    size: int
    mtime: int
    inode: int


class FileInspection(NamedTuple):
    """The result of one pass over a file: where its lines begin (after a header) and the function that parses them, or
    its ``fault``."""

    begin: int = 0
    read: LineReader = any_row
    fault: str = ""


class SortedFile:
    """The lines of an open file (see :class:`archec.access.ordering.OrderedLines`). It is closed once nothing uses
    the object."""

    def __init__(self, descriptor: int, begin: int, name: str) -> None:
        self._descriptor, self._begin, self._name = descriptor, begin, name
        weakref.finalize(self, os.close, descriptor)
        self.size = os.fstat(descriptor).st_size
        """Size of the file in bytes when it was opened."""
        self._last = (b"", (begin, 0, list[bytes](), begin))
        self._probes: dict[tuple[int, int], tuple[int, bytes, int]] = {}

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        _, before, lines, at = self._found(start)
        rest, block = b"", _PROBE * 4
        lines = lines[before:]
        while True:
            for line in lines:
                if line >= end:
                    return
                if line:
                    yield line
            if at >= self.size:
                break
            data, block = self._pread(block, at), _BLOCK
            at += len(data)
            *lines, rest = (rest + data).split(b"\n")
            self._check_length(rest)
        if rest and rest < end:
            yield rest

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        at, before, lines, _ = self._found(end)
        rest, block = b"", _PROBE * 4
        lines = lines[:before]
        while True:
            for line in reversed(lines):
                if line and line < start:
                    return
                if line:
                    yield line
            if at <= self._begin:
                break
            data, block = self._pread(min(block, at - self._begin), max(self._begin, at - block)), _BLOCK
            at -= len(data)
            rest, *lines = (data + rest).split(b"\n")
            self._check_length(rest)
        if rest and rest >= start:
            yield rest

    def find(self, key: bytes) -> int:
        """The position of the first line that is not less than ``key``."""
        begin, before, lines, end = self._found(key)
        return min(begin + sum(map(len, lines[:before])) + before, end)

    def _found(self, key: bytes) -> tuple[int, int, list[bytes], int]:
        """A part of the file that has the first line that is not less than ``key``: where it begins, how many of its
        lines are before that one, its lines, and where it ends."""
        known, found = self._last
        if key == known:  # a query for the closest rows reads from the same line in both directions
            return found
        low, high = self._begin, self.size
        needed, probes = len(key), self._probes
        while high - low > _WINDOW:
            span = (low, high)
            probe = probes.get(span) if needed <= _REMEMBERED else None
            if probe is None:
                probe = self._line_at((low + high) // 2, low, high, max(needed, _REMEMBERED))
                if len(probes) < _MAX_PROBES:
                    probes[span] = probe
            begin, line, after = probe
            if line[:needed] < key:
                low = after
            else:
                high = begin
        lines = self._pread(high - low, low).removesuffix(b"\n").split(b"\n")
        found = (low, bisect_left(lines, key), lines, high)
        self._last = (key, found)
        return found

    def key_at(self, position: int) -> bytes:
        """The line that contains the byte at ``position``."""
        _, line, _ = self._line_at(position, self._begin, self.size, MAX_LINE)
        return line

    def _line_at(self, position: int, low: int, high: int, needed: int) -> tuple[int, bytes, int]:
        """Start, first ``needed`` bytes, and end (the start of the next line) of the line at ``position``. The first
        line begins at ``low``."""
        reach = _PROBE
        while True:
            left = max(low, position - reach)
            data = self._pread(min(high, position + reach) - left, left)
            begin = data.rfind(b"\n", 0, position - left) + 1
            end = data.find(b"\n", position - left)
            if (begin or left == low) and (end >= 0 or left + len(data) >= high):
                end = len(data) if end < 0 else end
                return left + begin, data[begin : min(end, begin + needed)], min(left + end + 1, high)
            if reach > 2 * MAX_LINE:
                raise SourceFailed(f"{self._name}: has a line of more than {MAX_LINE} bytes")
            reach *= 4

    def _pread(self, size: int, at: int) -> bytes:
        size = min(size, self.size - at)  # lines that have been appended since are not checked yet
        try:
            data = os.pread(self._descriptor, size, at)
        except OSError as error:
            raise SourceFailed(f"{self._name}: cannot be read: {error.strerror}") from error
        if len(data) < size:
            raise SourceFailed(f"{self._name}: was truncated while it was read")
        return data

    def _check_length(self, rest: bytes) -> None:
        if len(rest) > MAX_LINE:
            raise SourceFailed(f"{self._name}: has a line of more than {MAX_LINE} bytes")


Form = Callable[[bytes], bool]
"""Whether the first line of a file has the expected format."""


class IndexFile:
    """A sorted file by its path. It is opened and checked on first use, and again after it has changed. Messages call
    it ``shown_path``, by default its path."""

    def __init__(self, path: Path, name: str, form: Form | None = None, shown_path: Path | None = None) -> None:
        self.path = path
        self.name, self._form = name, form or is_index_line
        self._shown = os.fsencode(shown_path or path).decode("utf-8", "backslashreplace")
        self._known: tuple[Stamp | None, FileInspection | None, SortedFile | None] = (None, None, None)
        """Replaced as a whole, because it is read without the lock."""
        self._lock = threading.Lock()

    def opened(self, *, at_once: bool = False) -> tuple[SortedFile, LineReader]:
        """Returns the lines of the file and the function that parses them. Raises SourceFailed if the file cannot be
        read or is not sorted. With ``at_once``, raises MayBlock instead of opening it, as it may have to be
        checked."""
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):
                raise SourceFailed(f"{self._shown}: is not a file")
            stamp = stamp_of(status)
            known, found, lines = self._known
            if stamp != known or found is None or (lines is None and not found.fault):
                if at_once:
                    raise MayBlock
                with self._lock:
                    lines, found = self._opened(stamp)
        except OSError as error:
            raise SourceFailed(f"{self._shown}: cannot be read: {error.strerror}") from error
        if lines is None:
            raise SourceFailed(found.fault)
        return lines, found.read

    def lines(self, *, at_once: bool) -> tuple[OrderedLines, LineReader]:
        """Returns the lines that answer queries and the function that parses them. Raises as ``opened`` does."""
        return self.opened(at_once=at_once)

    def forget(self) -> None:
        """Closes the file until it is used again. It need not be checked again then."""
        stamp, found, _ = self._known
        self._known = (stamp, found, None)

    @property
    def fault(self) -> str:
        """The fault that the last check found, or "" if there is none or the file has changed since."""
        stamp, found, _ = self._known
        if found is None or not found.fault:
            return ""
        try:
            return found.fault if stamp_of(os.stat(self.path)) == stamp else ""
        except OSError:
            return ""

    def _opened(self, stamp: Stamp) -> tuple[SortedFile | None, FileInspection]:
        checked, known, lines = self._known
        if stamp != checked:
            known = None
        if known is not None and (known.fault or lines is not None):
            return lines, known
        with open(self.path, "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            try:
                with _plain(file, self._shown) as plain:
                    found = known or check_sorted(plain, self._shown, self._form)
                    lines = SortedFile(os.dup(plain.fileno()), found.begin, self.name)
            except SourceFailed as error:
                found, lines = FileInspection(fault=error.message), None
        self._known = (stamp, found, lines)
        return lines, found


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def newer_of(path: Path) -> Path:
    """The small file next to an index file that collects added rows. Its name sorts before that of the index file: it
    must be read first, so that no row is missed while the two are merged."""
    return path.with_name(f"{path.stem},new.cdxj")


def without_mark(start: bytes) -> bytes:
    """The start of a file without its byte order mark, which is not part of the first line."""
    return start.removeprefix(BOM_UTF8)


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the rest of a file as lines without line ends; of those of more than MAX_LINE bytes a beginning that is
    longer than MAX_LINE, too."""
    rest, is_cut = b"", False
    while block := file.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines[is_cut:]:
            yield line if len(line) > MAX_LINE else line.rstrip(b"\r")
        is_cut = is_cut and not lines
        if len(rest) > MAX_LINE and not is_cut:
            yield rest[: MAX_LINE + 1]
            is_cut = True
        rest = b"" if is_cut else rest
    if rest:
        yield rest.rstrip(b"\r")


def skip_mark(file: IO[bytes]) -> int:
    """Seeks to the first byte after the byte order mark, and returns its position."""
    file.seek(0)
    start = file.read(len(BOM_UTF8))
    return file.seek(len(start) - len(without_mark(start)))


def check_sorted(file: BinaryIO, name: str, form: Form) -> FileInspection:
    """Reads a whole file, checks that its lines are sorted and have the expected format, and reads its header. Raises
    SourceFailed."""
    begin, number, before = skip_mark(file), 0, b""
    read: LineReader = any_row
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise SourceFailed(f"{name}:{number}: has a line of more than {MAX_LINE} bytes")
        if not before and is_header(line):
            begin += len(line)
            try:
                read = by_header(line) if b"CDX " in line else read
            except ValueError as error:
                raise SourceFailed(f"{name}:{number}: {error}") from error
            continue
        if line < before:
            raise SourceFailed(f"{name}:{number}: is not sorted ('archec access sort' fixes it)")
        if not before and read is any_row and not form(line):
            raise SourceFailed(f"{name}:{number}: is neither a line of CDXJ nor one of CDX")
        before = line
    return FileInspection(begin, read)


def is_header(line: bytes) -> bool:
    """Whether a line before the rows is a header: empty, the columns of CDX, or metadata of CDXJ."""
    return line.strip()[:4] in (b"", b"CDX ") or line.startswith(b"!")


def by_header(line: bytes) -> LineReader:
    letters = line.decode("latin-1").split()[1:]
    if letters[:2] not in (["N", "b"], ["A", "b"]):
        raise ValueError("the columns of its header do not begin with N b")
    unknown = [letter for letter in letters[1:] if letter not in CDX_COLUMNS]
    names = ["urlkey", *(CDX_COLUMNS.get(letter, letter) for letter in letters[1:])]
    if len(set(names)) < len(names):
        raise ValueError(f"a column of its header is repeated: {' '.join(letters)} {' '.join(unknown)}".rstrip())
    return cdx_reader(names)


def is_index_line(line: bytes) -> bool:
    """Whether a line looks like one of CDXJ, or of CDX without a header."""
    parts = line.rstrip(b"\r\n").split(b" ")
    return len(parts) > 2 and parts[1].isdigit() and (len(parts) in CDX_FORMS or parts[2].startswith(b"{"))


@contextmanager
def _plain(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yields the file itself, or a temporary file with its decompressed contents if it is a gzip file."""
    if os.pread(file.fileno(), 2, 0) != _GZIP:
        yield file
        return
    try:
        with tempfile.TemporaryFile("w+b") as plain:
            with gzip.GzipFile(fileobj=file) as packed:
                while data := packed.read(_BLOCK):
                    if plain.tell() + len(data) > MAX_UNPACKED:
                        raise SourceFailed(f"{name}: is larger than {MAX_UNPACKED} bytes when it is unpacked")
                    plain.write(data)
            plain.flush()
            yield plain
    except (OSError, EOFError, zlib.error) as error:
        raise SourceFailed(f"{name}: is a gzip file that cannot be decompressed: {error}") from error
