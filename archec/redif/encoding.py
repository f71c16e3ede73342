"""Detects the type of a file, and decodes it to UTF-8 text with LF line ends: pure functions.

A file with a byte-order mark is decoded by it, a file of valid UTF-8 as UTF-8, and any other line by line as UTF-8 or
cp1252. A file is valid UTF-8 exactly if each of its lines is, so lines can be judged one by one, and the parts of a
file separately. Decoding is lossless if the file has the encoding that its mark states.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

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


def begins_line(data: bytes, at: int) -> bool:
    """Whether a line begins at ``at``, or at form feeds directly before it."""
    while at and data[at - 1] == 12:
        at -= 1
    return at == 0 or data[at - 1] in b"\r\n"


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
    if not encoding and data[:2] == b"\xff\xfe":
        return data[2:], "utf-16le"
    if not encoding and data[:2] == b"\xfe\xff":
        return data[2:], "utf-16be"
    label = encoding or "utf-8"
    while data.startswith(BOM_UTF8):
        data, label = data[3:], encoding or "utf-8-bom"
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
