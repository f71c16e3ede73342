"""ZipNum: an index in compressed blocks, with a sorted summary that has the first line of each block.

A line of the summary is ``KEY TIME TAB PART TAB OFFSET TAB LENGTH TAB NUMBER``. A file next to it (``NAME.loc`` or
``location``: part TAB path) has the paths of the parts. Without it, parts are files of that name next to the summary.
In WACZ files, a line is ``KEY TIME {"offset": OFFSET, "length": LENGTH}``, and a line ``!meta`` before them names the
only part.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import orjson

from archec.access.errors import SourceFailed
from archec.access.index_files import MAX_LINE, IndexFile, SortedFile
from archec.access.rows import LineReader, any_row
from archec.files import read_file

_MAX_BLOCK = 64 << 20
"""Maximum size in bytes of a decompressed block."""
_ENDINGS = ("", ".gz", ".cdxj.gz", ".cdx.gz")
_ONLY = ""
"""The name of the part where lines of a summary name none."""


class SummaryLine(NamedTuple):
    """A line of a summary: the first key and time of a block, its place, and its number if the line has one."""

    urlkey: str
    part: str
    offset: int
    length: int
    lineno: int | None = None


def parse_block(line: bytes) -> SummaryLine:
    """Reads a line of a summary. Raises ValueError."""
    text = line.decode("utf-8")
    if text.count("\t") >= 3:
        start, part, *numbers = text.split("\t")[:5]
        return SummaryLine(start, part, *map(int, numbers))
    start, brace, rest = text.partition(" {")
    value = orjson.loads("{" + rest) if brace else {}
    part, offset, length = value.get("filename", _ONLY), value.get("offset"), value.get("length")
    if not (isinstance(part, str) and isinstance(offset, int) and isinstance(length, int)):
        raise ValueError("the line has no offset of a block")
    return SummaryLine(start, part, offset, length)


class ZipNum:
    """See the module docstring and :class:`archec.access.ordering.OrderedLines`."""

    def __init__(self, summary: SortedFile, folder: Path, places: dict[str, Path], name: str) -> None:
        self._summary, self._folder, self._places, self._name = summary, folder, places, name

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for block in blocks_of(self._summary, start, end):
            try:
                lines = self._lines(block)
            except SourceFailed:
                if block < start and next(self._summary.forward(start, end), b"") == start:
                    continue  # of the page before: this one begins with the next block
                raise
            for line in lines:
                if line >= end:
                    return
                if line >= start:
                    yield line

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for block in self._summary.backward(b"", end):
            for line in reversed(self._lines(block)):
                if line < start:
                    return
                if line < end:
                    yield line

    def _lines(self, block: bytes) -> list[bytes]:
        try:
            _, part, offset, length, _ = parse_block(block)
            return self._unpacked(part, offset, length).splitlines()
        except (ValueError, OverflowError) as error:
            raise SourceFailed(f"{self._name}: a line of the summary is not in the ZipNum format") from error
        except OSError as error:
            raise SourceFailed(f"{self._name}: a part cannot be read: {error.strerror}") from error
        except zlib.error as error:
            raise SourceFailed(f"{self._name}: a block is damaged") from error

    def _unpacked(self, part: str, offset: int, length: int) -> bytes:
        with open(self._path(part), "rb") as file:
            data = os.pread(file.fileno(), min(length, _MAX_BLOCK), offset)
        if len(data) != length:
            raise zlib.error("cut")
        unpacked: list[bytes] = []
        size = 0
        while data:
            decompressor = zlib.decompressobj(31)
            piece = decompressor.decompress(data, _MAX_BLOCK - size + 1)
            size += len(piece)
            if size > _MAX_BLOCK:
                raise SourceFailed(f"{self._name}: a block has more than {_MAX_BLOCK} bytes")
            if not decompressor.eof:
                raise zlib.error("cut")
            unpacked.append(piece)
            data = decompressor.unused_data
        return b"".join(unpacked)

    def _path(self, part: str) -> Path:
        if part in self._places:
            return self._places[part]
        name = Path(part).name
        for ending in _ENDINGS:
            if os.path.isfile(self._folder / (name + ending)):
                return self._folder / (name + ending)
        raise SourceFailed(f"{self._name}: there is no part {name}")


def blocks_of(summary: SortedFile, start: bytes, end: bytes) -> Iterator[bytes]:
    """The lines of a summary for the blocks that cover the lines from ``start`` (included) to ``end`` (excluded)."""
    return chain(islice(summary.backward(b"", start), 1), summary.forward(start, end))


class ZipNumFile(IndexFile):
    """A ZipNum index by the path of its summary."""

    def __init__(self, path: Path, name: str, shown_path: Path | None = None) -> None:
        super().__init__(path, name, is_block, shown_path)

    def lines(self, *, at_once: bool) -> tuple[ZipNum, LineReader]:
        summary, _ = self.opened(at_once=at_once)
        return ZipNum(summary, self.path.parent, _places(self.path), self.name), any_row


def is_block(line: bytes) -> bool:
    try:
        return bool(parse_block(line))
    except ValueError:
        return False


def _places(summary: Path) -> dict[str, Path]:
    places = _only_part(summary)
    for name in (f"{summary.stem}.loc", "location"):
        try:
            text = read_file(summary.with_name(name)).decode()
        except (OSError, UnicodeDecodeError):
            continue
        for line in text.splitlines():
            part, *paths = line.split("\t")
            for path in map(Path, paths):
                near = [path] if path.is_absolute() else [summary.parent / path, Path.cwd() / path]
                found = next((one for one in [*near, summary.parent / path.name] if os.path.isfile(one)), None)
                if found is not None:
                    places.setdefault(part, found)
    return places


def _only_part(summary: Path) -> dict[str, Path]:
    """The part that the line ``!meta`` of a summary names."""
    try:
        with open(summary, "rb") as file:
            line = file.readline(MAX_LINE)
        if not line.startswith(b"!meta"):
            return {}
        return {_ONLY: summary.with_name(Path(orjson.loads(line[line.index(b"{") :])["filename"]).name)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
