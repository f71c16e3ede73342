"""The items that a source yields: blobs, directories, files that do not count or could not be read; and decoding.

The names of files decide which of them count; large files are cut into parts. A file with a byte-order mark is decoded
by it, a file of valid UTF-8 as UTF-8, and any other line by line as UTF-8 or cp1252. A file is valid UTF-8 exactly if
each of its lines is, so lines can be judged one by one, and the parts of a file separately. Decoding is lossless if the
file has the encoding that its mark states.
"""

from __future__ import annotations

import codecs
import fnmatch
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from archec.redif.problems import Problem, shown

BOM_UTF8 = b"\xef\xbb\xbf"
BOM_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_MAGIC = (b"%PDF", b"%!PS", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x1f\x8b", b"BZh", b"\x7fELF",
          b"\xd0\xcf\x11\xe0", b"{\\rtf", b"Rar!", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # fmt: skip
_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|title|script|style|meta|iframe|table|div|h[1-3]|br|b|p|pre)[\s/>]", re.I
)
_RETURNS = re.compile(rb"\r+\n?")
_HIGH = re.compile(rb"[\x80-\xff]")
_LATER = b"\n" + BOM_UTF8
_LATER_MARK = re.compile(rb"\n(?:\xef\xbb\xbf)+(?=template-type[ \t]*:)", re.I)
_CP1252 = "".join(
    bytes((byte,)).decode("cp1252") if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(byte) for byte in range(256)
)
"""cp1252, with the five bytes that it leaves undefined decoded as the C1 controls of the same number."""


class Decoded(NamedTuple):
    """The text of a file.

    ``data`` is UTF-8 with LF line ends and without a byte-order mark. ``encoding`` is ``ascii``, ``utf-8``,
    ``utf-8-bom``, ``utf-16le``, ``utf-16be``, ``cp1252`` or ``mixed``. ``trouble`` is the problem code of a damaged
    encoding (``mixed-encoding``, ``utf-16-damaged``), else ``""``.
    """

    data: bytes
    encoding: str
    trouble: str = ""


def looks_binary(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is not text: a known format, or NULs without a UTF-16 mark."""
    if head.startswith(BOM_UTF16):
        return False
    return head.startswith(_MAGIC) or b"\0" in head[:4096]


def looks_html(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a web page."""
    return _HTML.search(head, 0, 4096) is not None


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


def count_lines(data: bytes) -> int:
    """The number of line ends of any kind in ``data``."""
    return with_lf(data).count(b"\n")


def decode(data: bytes, encoding: str = "") -> Decoded:
    """Decodes ``data``. ``encoding`` is that of the blob; it is not empty if ``data`` was already converted to UTF-8.

    Byte-order marks before later templates are removed too: they come from concatenated files.
    """
    data, label = _bare(data, encoding)
    if label.startswith("utf-16") and not encoding:
        decoded = _utf16(data, label)
    elif data.isascii():
        return Decoded(data, "ascii" if label == "utf-8" else label)
    else:
        try:
            codecs.utf_8_decode(data, "strict", True)
            decoded = Decoded(data, label, _shifted(data) if encoding else "")
        except UnicodeDecodeError:
            decoded = _by_line(data)
    if b"\xef" in decoded.data and _LATER in decoded.data:
        return decoded._replace(data=_LATER_MARK.sub(b"\n", decoded.data))
    return decoded


def _bare(data: bytes, encoding: str) -> tuple[bytes, str]:
    """``data`` without its byte-order mark and, unless it is UTF-16, with LF line ends; and the encoding."""
    if encoding:
        return with_lf(data), encoding
    if data[:2] == b"\xff\xfe":
        return data[2:], "utf-16le"
    if data[:2] == b"\xfe\xff":
        return data[2:], "utf-16be"
    label = "utf-8"
    while data.startswith(BOM_UTF8):
        data, label = data[3:], "utf-8-bom"
    return with_lf(data), label


def _utf16(data: bytes, encoding: str) -> Decoded:
    trouble = ""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        trouble = "utf-16-damaged"
        text = data.decode(encoding, "replace")
    # Replacing the usual line end before encoding takes a fraction of the time that with_lf takes for it.
    utf8 = with_lf(text.lstrip("\ufeff").replace("\r\n", "\n").encode("utf-8"))
    return Decoded(utf8, encoding, trouble or _shifted(utf8))


def _shifted(utf8: bytes) -> str:
    """The problem of UTF-16 that is shifted by a byte: LF and CR become U+0A00 and U+0D00, which no text contains."""
    return "utf-16-damaged" if b"\xe0\xa8\x80" in utf8 or b"\xe0\xb4\x80" in utf8 else ""


def _by_line(data: bytes) -> Decoded:
    """Decodes each line that is not UTF-8 as cp1252. Only examines lines with bytes above 127."""
    if codecs.utf_8_decode(data, "ignore", True)[0].isascii():  # nothing above 127 is UTF-8
        return Decoded(_from_cp1252(data), "cp1252")
    pieces: list[bytes] = []
    done = 0
    utf8 = False
    while (match := _HIGH.search(data, done)) is not None:
        start = data.rfind(b"\n", done, match.start()) + 1 or done
        end = data.find(b"\n", match.end())
        end = len(data) if end < 0 else end
        line = data[start:end]
        try:
            codecs.utf_8_decode(line, "strict", True)
            utf8 = True
        except UnicodeDecodeError:
            line = _from_cp1252(line)
        pieces += (data[done:start], line)
        done = end
    pieces.append(data[done:])
    return Decoded(b"".join(pieces), "mixed" if utf8 else "cp1252", "mixed-encoding" if utf8 else "")


def _from_cp1252(data: bytes) -> bytes:
    return codecs.charmap_decode(data, "strict", _CP1252)[0].encode("utf-8")


PART = 4 * 1024 * 1024
"""Maximum size of a blob, and of a single template, in bytes."""

HEAD = 64 * 1024
"""Number of bytes kept of a large file without templates."""

_START = b"template-type"
_COLON = re.compile(rb"[ \t]*:")
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


class Source(ABC):
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

    @abstractmethod
    def close(self) -> None:
        """Ends the iteration, and closes open files. May be called repeatedly."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
            cut = _first_start(buffer)
            gone = cut if cut is not None else max(0, len(buffer) - _OVERLAP)
            line += count_lines(bytes(buffer[:gone]))
            del buffer[:gone]
            skipping = cut is None
        elif len(buffer) >= PART:
            cut = _last_start(buffer)
            if cut:
                data = bytes(buffer[:cut])
                yield Blob(path, data, part, False, line, member, encoding)
                part, line = part + 1, line + count_lines(data)
                del buffer[:cut]
            elif part == 0 and _first_start(buffer, 0) is None:
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


def _last_start(buffer: bytearray) -> int | None:
    """The offset of the last template, unless that is the beginning of the buffer."""
    lower = bytes(buffer).lower()
    at = len(lower)
    while (at := lower.rfind(_START, 1, at)) > 0:
        start = _line_start(lower, at)
        if start:
            return start
    return None


def _first_start(buffer: bytearray, after: int = 1) -> int | None:
    """The offset of the first template at ``after`` or later."""
    lower = bytes(buffer).lower()
    at = after - 1
    while (at := lower.find(_START, at + 1)) >= 0:
        start = _line_start(lower, at)
        if start is not None and start >= after:
            return start
    return None


def _line_start(lower: bytes, at: int) -> int | None:
    """The offset of the template that begins at ``at``, including its byte-order mark; None if none begins there."""
    if _COLON.match(lower, at + len(_START)) is None:
        return None
    if lower.startswith(BOM_UTF8, max(0, at - 3)) and at >= 3:
        at -= 3
    return at if begins_line(lower, at) else None


def begins_line(data: bytes, at: int) -> bool:
    """Whether a line begins at ``at``, or at form feeds directly before it."""
    while at and data[at - 1] == 12:
        at -= 1
    return at == 0 or data[at - 1] in b"\r\n"
