"""``archec access sort``: sorts index files by bytes, in bounded memory."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from archec.access.feeding import locked
from archec.access.index_files import ENDINGS, MAX_LINE, is_header, is_index_line, lines_of, stamp_of, without_mark
from archec.access.zipnum import is_block
from archec.errors import ArchecError, Exit, storage_errors
from archec.store.durable import atomic_stream
from archec.store.sorting import SortedLines


class Unsortable(ArchecError):
    """The file is not an index. The message names it and the fault."""

    exit_code = Exit.CORRUPT


class Sorted(NamedTuple):
    """The result for a file: the number of its lines, the number of duplicates, and whether it was sorted already."""

    lines: int
    repeated: int
    was_sorted: bool


def sort_index(path: Path) -> Sorted:
    """Sorts an index file and replaces it as a whole. A header stays at the top; a byte order mark, empty lines and
    duplicates are removed. Starts over if rows are added meanwhile.

    Raises Unsortable, StorageFailed and StorageFull.
    """
    while (done := _sorted(path)) is None:
        pass
    return done


def _sorted(path: Path) -> Sorted | None:
    """None if the file has changed since it was read."""
    head, before, lines, in_order = b"", b"", 0, True
    with SortedLines(path.parent) as found, storage_errors(path):
        with open(path, "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            opener = gzip.open if file.read(2) == b"\x1f\x8b" else open
        with cast(IO[bytes], opener(path, "rb")) as plain:
            for number, line in enumerate(_lines(plain, path), 1):
                if number == 1 and line != (plain_line := without_mark(line)):
                    line, in_order = plain_line, False
                if not before and is_header(line):
                    head += line + b"\n"
                elif line.strip():
                    if not (before or b"CDX " in head or is_index_line(line) or is_block(line)):
                        raise Unsortable(f"{path}:{number}: is neither a line of CDXJ nor one of CDX")
                    in_order = in_order and line >= before
                    before = line
                    lines += 1
                    found.add(line)
                else:
                    in_order = False
        if in_order:
            return Sorted(lines, 0, True)
        kept = 0
        with locked(path.parent):
            if stamp_of(os.stat(path)) != stamp:
                return None
            with atomic_stream(path) as raw:
                out = cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)) if opener is gzip.open else raw
                out.write(head)
                for line in found:
                    out.write(line + b"\n")
                    kept += 1
                if out is not raw:
                    out.close()
    return Sorted(lines, lines - kept, False)


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        for number, line in enumerate(lines_of(file), 1):
            if len(line) >= MAX_LINE:
                raise Unsortable(f"{path}:{number}: has a line of more than {MAX_LINE} bytes")
            if b"\0" in line:
                raise Unsortable(f"{path}:{number}: is not text in UTF-8")
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Unsortable(f"{path}: is a damaged gzip file: {error}") from error


def folder_files(path: Path) -> list[Path]:
    """The index files of a directory, or the file itself."""
    if not path.is_dir():
        return [path]
    return sorted(Path(entry.path) for entry in os.scandir(path) if entry.name.endswith(ENDINGS))
