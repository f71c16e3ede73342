"""Large files in parts: cut where a template starts, so that memory stays flat for any size."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from archec.redif.items import PART, Blob, Unread
from archec.redif.lines import count_lines
from archec.redif.sniff import BOM_UTF8

__all__ = ["HEAD", "in_parts"]

HEAD = 64 * 1024
"""Bytes by which a large file that is no template file is judged."""

_START = b"template-type"
_COLON = re.compile(rb"[ \t]*:")
_OVERLAP = 256
_UTF16 = {b"\xff\xfe": "utf-16le", b"\xfe\xff": "utf-16be"}


def in_parts(path: str, member: int, chunks: Iterator[bytes]) -> Iterator[Blob | Unread]:
    """A file of more than :data:`PART` bytes as blobs, UTF-16 turned into UTF-8.

    A template of more than :data:`PART` bytes is left out and reported, and the file with it. Where
    the first :data:`PART` bytes hold no template at all, only the beginning is given and ``chunks``
    is not read further. What ``chunks`` raises goes through.
    """
    first = next(chunks, b"")
    encoding = _UTF16.get(first[:2], "")
    decoder = _Utf16(encoding) if encoding else None
    utf8 = decoder.utf8(first[2:], chunks) if decoder else _prepend(first, chunks)
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


def _prepend(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


class _Utf16:
    """Turns chunks of UTF-16 into UTF-8; what is no UTF-16 becomes U+FFFD and is remembered."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self.damaged = False

    def utf8(self, first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in _prepend(first, chunks):
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
    """Where the last template starts that is not the one at the very beginning."""
    lower = bytes(buffer).lower()
    at = len(lower)
    while (at := lower.rfind(_START, 1, at)) > 0:
        start = _line_start(lower, at)
        if start:
            return start
    return None


def _first_start(buffer: bytearray, after: int = 1) -> int | None:
    """Where the first template starts, at ``after`` or later."""
    lower = bytes(buffer).lower()
    at = after - 1
    while (at := lower.find(_START, at + 1)) >= 0:
        start = _line_start(lower, at)
        if start is not None and start >= after:
            return start
    return None


def _line_start(lower: bytes, at: int) -> int | None:
    """``at`` (or its byte-order mark), if a template does start there; None if not."""
    if _COLON.match(lower, at + len(_START)) is None:
        return None
    if lower.startswith(BOM_UTF8, max(0, at - 3)) and at >= 3:
        at -= 3
    return at if at == 0 or lower[at - 1] in b"\r\n" else None
