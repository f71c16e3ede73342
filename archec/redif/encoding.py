"""Any file's bytes as UTF-8 with LF line ends; lossless wherever the file is what its mark says.

The rule (design, section 4): a byte-order mark; else UTF-8 if the file is valid; else line by line
UTF-8 or cp1252. A file is valid UTF-8 exactly where each of its lines is, so that lines can be
judged one by one and parts of a file one after the other.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from archec.redif.lines import with_lf
from archec.redif.sniff import BOM_UTF8

__all__ = ["Decoded", "decode"]

_HIGH = re.compile(rb"[\x80-\xff]")
_LATER = b"\n" + BOM_UTF8
_LATER_MARK = re.compile(rb"\n(?:\xef\xbb\xbf)+(?=template-type[ \t]*:)", re.I)
_CP1252 = "".join(
    bytes((byte,)).decode("cp1252") if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(byte) for byte in range(256)
)
"""cp1252 with the five bytes that it leaves undefined as the C1 controls of the same number."""


class Decoded(NamedTuple):
    """A file's text.

    ``data`` is UTF-8 with LF line ends and without a mark. ``encoding`` is ``ascii``, ``utf-8``,
    ``utf-8-bom``, ``utf-16le``, ``utf-16be``, ``cp1252`` or ``mixed``. ``trouble`` is the code of
    what is wrong with the encoding (``mixed-encoding``, ``utf-16-damaged``), else ``""``.
    """

    data: bytes
    encoding: str
    trouble: str = ""


def decode(data: bytes, encoding: str = "") -> Decoded:
    """The text behind ``data``; ``encoding`` as in a blob: not empty where it is UTF-8 already.

    Byte-order marks at the beginning of a later template (files that were put together) go too.
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
    """``data`` without its mark, and the encoding that the mark names; LF as line end but in UTF-16."""
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
    # The usual line end here, where a search takes a fraction of the time.
    utf8 = with_lf(text.lstrip("\ufeff").replace("\r\n", "\n").encode("utf-8"))
    return Decoded(utf8, encoding, trouble or _shifted(utf8))


def _shifted(utf8: bytes) -> str:
    """Whether UTF-16 slipped by a byte: LF and CR then read as U+0A00 and U+0D00, which nobody uses."""
    return "utf-16-damaged" if b"\xe0\xa8\x80" in utf8 or b"\xe0\xb4\x80" in utf8 else ""


def _by_line(data: bytes) -> Decoded:
    """Each line that is not UTF-8 read as cp1252; only lines with bytes above 127 are looked at."""
    if codecs.utf_8_decode(data, "ignore", True)[0].isascii():  # no line above 127 is UTF-8
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
