"""The items that a source yields: blobs, directories, files that do not count and files that could not be read.

The names of files decide which of them count; large files are cut into parts.
"""

from __future__ import annotations

import codecs
import fnmatch
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from archec.closing import Closing
from archec.redif.problems import Problem, shown

PART = 4 * 1024 * 1024
"""Maximum size of a blob, and of a single template, in bytes."""

HEAD = 64 * 1024
"""Number of bytes kept of a large file without templates."""

BOM_UTF8 = b"\xef\xbb\xbf"
_RETURNS = re.compile(rb"\r+\n?")
_START = re.compile(rb"template-type[ \t]*:")
_OVERLAP = 256
_UTF16 = {b"\xff\xfe": "utf-16le", b"\xfe\xff": "utf-16be"}


class Blob(NamedTuple):
    """A file, or a part of one that is larger than PART.

    ``path`` is relative, without a leading ``./``. ``part`` counts from 0, and ``last`` is true for the file's last
    part; every part but the first begins with a template. ``first_line`` is the line number in the file at which
    ``data`` begins. ``member`` numbers the members of the source: if a tarball has a path twice, the greater number
    counts. ``encoding`` is ``""`` if ``data`` is as in the file, else the encoding from which ``data`` was converted to
    UTF-8. If the first PART bytes of a large file have no template, ``data`` is only its beginning.
    """

    path: str
    data: bytes
    part: int = 0
    last: bool = True
    first_line: int = 1
    member: int = 0
    encoding: str = ""


class Directory(NamedTuple):
    """A directory of the source, empty or not; ``path`` ends in ``/``."""

    path: str


class Unread(NamedTuple):
    """A file or directory (``path`` ends in ``/``) that exists but could not be read, and the reason.

    It is no evidence of absence. Parts of it may have been yielded before, with the same ``member``. ``path``
    may contain surrogate escapes and ``..``: look it up with ``place``, never open it.
    """

    path: str
    problem: Problem
    member: int = 0

    @classmethod
    def of(cls, path: str, code: str, message: str, line: int = 0) -> Unread:
        return cls(path, Problem(shown(path), line, code, message))


class Other(NamedTuple):
    """A file that does not count, because its name is not that of a template file; it is never read."""

    path: str


class Known(NamedTuple):
    """A file that has not changed since it was read before; it is not read again."""

    path: str
    member: int


Item = Blob | Directory | Unread | Other | Known


class DataSetSource(Closing):
    """A data set that is read once, from its first file to its last; also a context manager.

    ``newest`` is the newest modification time so far that is not in the future, as a tist, or 0 if there is none.
    ``files`` and ``bytes_read`` are the number and the total size of the files read so far, without those that are
    ``Unread`` from the start. ``size`` is that of the tarball on disk, or 0 for a directory, whose size is unknown.
    ``whole``: everything was read to a clean end; otherwise ``damage`` says why it ended early. ``warnings`` are
    oddities of the data set as a whole that are not damage; they are complete once everything was read.
    """

    def __init__(self) -> None:
        self.newest = self.files = self.bytes_read = self.size = 0
        self.whole = False
        self.damage: Problem | None = None
        self.warnings: list[Problem] = []

    @property
    def position(self) -> int:
        """Number of bytes consumed so far: of the tarball on disk, or of the files of a directory."""
        return self.bytes_read

    @abstractmethod
    def __iter__(self) -> Iterator[Item]: ...


def is_template_name(path: str) -> bool:
    """Whether a file is named like a template file: ``.rdf`` or ``.redif``, in any case."""
    return path.lower().endswith((".rdf", ".redif"))


def template_names(patterns: Sequence[str]) -> Callable[[str], bool]:
    """The rule for the files of a data set that count: those named as templates, and those that match ``patterns``.

    Patterns are shell patterns in any case: for the file name, or for the whole path if they contain a slash.
    """
    if not patterns:
        return is_template_name
    regex = re.compile("|".join(fnmatch.translate(f"/{p}" if "/" in p else f"*/{p}") for p in patterns), re.I)
    return lambda path: is_template_name(path) or regex.match(f"/{path}") is not None


def with_lf(data: bytes) -> bytes:
    """``data`` with LF as its only line end, in place of any mix of CR, LF, CR LF and CR CR LF. Idempotent.

    CRs before an LF belong to the same line end: CR CR LF comes from writing CR LF in text mode a second time. Every
    other CR is a line end of its own.
    """
    if b"\r" not in data:
        return data
    if b"\n" not in data:
        return data.replace(b"\r", b"\n")
    data = data.replace(b"\r\n", b"\n")
    if b"\r" not in data:
        return data
    data = data.replace(b"\r\n", b"\n")
    if b"\r\n" not in data:
        return data.replace(b"\r", b"\n")
    return _RETURNS.sub(lambda run: b"\n" if run[0][-1:] == b"\n" else b"\n" * len(run[0]), data)


def begins_line(data: bytes, at: int) -> bool:
    """Whether a line begins at ``at``, or at form feeds directly before it."""
    while at and data[at - 1] == 12:
        at -= 1
    return at == 0 or data[at - 1] in b"\r\n"


def count_lines(data: bytes) -> int:
    """The number of line ends of any kind in ``data``."""
    return with_lf(data).count(b"\n")


def in_parts(path: str, member: int, chunks: Iterator[bytes]) -> Iterator[Blob | Unread]:
    """Splits a file of more than PART bytes into blobs that each begin with a template; converts UTF-16 to UTF-8.

    Memory is bounded for files of any size. A template of more than PART bytes is skipped, and the file reported
    as unread. If the first PART bytes contain no template, only the beginning is yielded, and ``chunks`` is not read
    further. Exceptions of ``chunks`` are passed on.
    """
    first = next(chunks, b"")
    encoding = _UTF16.get(first[:2], "")
    decoder = _Utf16(encoding) if encoding else None
    utf8 = decoder.utf8(first[2:], chunks) if decoder else chain([first], chunks)
    buffer = bytearray()
    part, line, skipping = 0, 1, False
    for chunk in utf8:
        buffer += chunk
        if skipping:
            starts = [start for start in _starts(buffer) if start]
            gone = starts[0] if starts else max(0, len(buffer) - _OVERLAP)
            line += count_lines(bytes(buffer[:gone]))
            del buffer[:gone]
            skipping = not starts
        elif len(buffer) >= PART:
            starts = _starts(buffer)
            if starts and (cut := starts[-1]):
                data = bytes(buffer[:cut])
                yield Blob(path, data, part, False, line, member, encoding)
                part, line = part + 1, line + count_lines(data)
                del buffer[:cut]
            elif part == 0 and not starts:
                yield Blob(path, bytes(buffer[:HEAD]), 0, True, 1, member, encoding)
                return
            else:
                yield Unread.of(path, "too-large", f"a template is larger than {PART} bytes and left out", line)
                part, skipping = max(part, 1), True
    yield Blob(path, b"" if skipping else bytes(buffer), part, True, line, member, encoding)
    if decoder and decoder.damaged:
        yield Unread.of(path, "utf-16-damaged", "the file is marked as UTF-16 but is not UTF-16 throughout")


class _Utf16:
    """Converts chunks of UTF-16 to UTF-8. Invalid input becomes U+FFFD and sets ``damaged``."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self.damaged = False

    def utf8(self, first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chain([first], chunks):
            yield self._decode(chunk, False)
        yield self._decode(b"", True)

    def _decode(self, chunk: bytes, final: bool) -> bytes:
        state = self._decoder.getstate()
        try:
            text = self._decoder.decode(chunk, final)
        except UnicodeDecodeError:
            self.damaged = True
            self._decoder = codecs.getincrementaldecoder(self._encoding)("replace")
            self._decoder.setstate(state)
            text = self._decoder.decode(chunk, final)
        return text.encode("utf-8")


def _starts(buffer: bytearray) -> list[int]:
    """The offsets of templates, byte-order marks included."""
    lower = bytes(buffer).lower()
    starts = []
    for match in _START.finditer(lower):
        at = match.start()
        while lower[max(at - 3, 0) : at] == BOM_UTF8:
            at -= 3
        if begins_line(lower, at):
            starts.append(at)
    return starts
