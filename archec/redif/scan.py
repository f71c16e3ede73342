"""Decodes a blob to UTF-8 text with LF line ends, and cuts it into raw templates with their handles, without parsing
fields: pure functions.

This is the hot path: a run does nothing else with millions of unchanged templates.

A file with a byte-order mark is decoded by it, a file of valid UTF-8 as UTF-8, and any other line by line as UTF-8 or
cp1252. A file is valid UTF-8 exactly if each of its lines is, so lines can be judged one by one, and the parts of a
file separately. Decoding is lossless if the file has the encoding that its mark states.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from archec.errors import BadName
from archec.ids import is_url, normalise_handle
from archec.redif.files import BOM_UTF8, Blob, begins_line, with_lf
from archec.redif.problems import CODES, Problem, shown

BOM_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_MAGIC = (b"%PDF", b"%!PS", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x1f\x8b", b"BZh", b"\x7fELF",
          b"\xd0\xcf\x11\xe0", b"{\\rtf", b"Rar!", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # fmt: skip
_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|title|script|style|meta|iframe|table|div|h[1-3]|br|b|p|pre)[\s/>]", re.I
)
_HIGH = re.compile(rb"[\x80-\xff]")
_LATER = b"\n" + BOM_UTF8
_LATER_MARK = re.compile(rb"\n(?:\xef\xbb\xbf)+(?=template-type[ \t]*:)", re.I)
_CP1252 = "".join(
    bytes((byte,)).decode("cp1252") if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(byte) for byte in range(256)
)
"""cp1252, with the five bytes that it leaves undefined decoded as the C1 controls of the same number."""
_START = b"template-type"
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9#-]*[ \t]*:")
_COLON = re.compile(rb"[ \t]*:")
_HANDLE = re.compile(rb"\nhandle[ \t]*:[ \t]*")
_ONE_LINE = re.compile(rb"\nhandle[ \t]*:[ \t]*([^\s\x1a]+)[ \t]*(?=\n(?:\n|\Z|[a-z][a-z0-9#-]*[ \t]*:))")
_COMMENTED = re.compile(rb"^#[ \t]*template-type[ \t]*:", re.I | re.M)
_NOT_COMMENT = re.compile(rb"^(?:[^#\s]|[ \t]+\S)", re.M)
_CONFLICT = re.compile(rb"^<<<<<<<(?: |$)", re.M)
_REPEC = re.compile(r"repec[ \t]*:", re.I)
_REST = re.compile(r"(?=\S*[^\W_])[^\s<>]+\s*")
_MARKUP = re.compile(r"(?:\s*</?(?:a|b|body|br|div|font|html|i|p|pre|span|td|tr)\b[^<>]*>)+\s*\Z", re.I)
_ENCODING_TROUBLE = {
    "mixed-encoding": "some lines are UTF-8, others are read as cp1252",
    "utf-16-damaged": "the file is marked as UTF-16 but is not UTF-16 throughout",
}

FOUND_BY_SCAN = frozenset({"no-handle", "bad-handle", "two-handles", "conflict-marker"})
"""Codes of problems that both scanning and parsing find; only one of them must report them."""


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


class RawTemplate(NamedTuple):
    """A template as found in a blob.

    ``kind`` is the text after ``Template-Type:``. ``handle`` is the raw handle and ``id`` its normalised form, both
    ``""`` if there is none. ``text`` is the tobi file (UTF-8, LF, from the Template-Type line to the last line that is
    neither blank nor a comment). ``line`` is its first line in the file, ``index`` its position in the blob, from 0.
    """

    kind: str
    handle: str
    id: str
    text: bytes
    line: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed


class Scan(NamedTuple):
    """The contents of a blob. ``read`` is false if the file is no evidence that other templates are absent."""

    templates: list[RawTemplate]
    problems: list[Problem]
    encoding: str
    read: bool


def scan(blob: Blob) -> Scan:
    """The raw templates of a blob. Everything wrong becomes a problem; nothing is raised."""
    data, encoding, trouble = decode(blob.data, blob.encoding)
    problems: list[Problem] = []
    read = True
    if trouble:
        read = trouble != "utf-16-damaged"
        problems.append(Problem(shown(blob.path), 0, trouble, _ENCODING_TROUBLE[trouble]))
    lower = data.lower()
    starts = template_starts(lower)
    if not starts:
        if blob.part == 0:
            read = _without_templates(blob, data, problems) and read
        return Scan([], problems, encoding, read)
    templates: list[RawTemplate] = []
    line = blob.first_line
    counted = 0
    last = len(starts) - 1
    for index, start in enumerate(starts):
        line += data.count(b"\n", counted, start)
        counted = start
        end = len(data) if index == last else starts[index + 1]
        text = _kept(data[start:end])
        kind, handle, again = _head(text)
        obi = id_of(handle) if handle else ""
        templates.append(RawTemplate(kind, handle, obi, text, line, index))
        if again or not obi:
            problems.append(_handle_problem(blob.path, line, kind, handle, obi, again))
    if b"<<<<<<<" in data and (match := _CONFLICT.search(data)) is not None:
        at = blob.first_line + data.count(b"\n", 0, match.start())
        problems.append(Problem(shown(blob.path), at, "conflict-marker", "a conflict marker of a merge"))
    return Scan(templates, problems, encoding, read)


def template_starts(lower: bytes) -> list[int]:
    """The offsets of templates in a text that has been decoded and lower-cased."""
    starts: list[int] = []
    at = lower.find(_START)
    while at >= 0:
        if begins_line(lower, at) and (
            lower[at + 13 : at + 14] == b":" or _COLON.match(lower, at + 13) is not None
        ):
            starts.append(at)
        at = lower.find(_START, at + 13)
    return starts


def _kept(text: bytes) -> bytes:
    """``text`` up to and including its last line that is neither blank nor a comment."""
    bare = text.rstrip()
    if bare[bare.rfind(b"\n") + 1] == 35:  # the last line is a comment
        lines = bare.split(b"\n")
        while lines[-1][:1] == b"#" or not lines[-1].strip():
            lines.pop()
        return b"\n".join(lines) + b"\n"
    end = text.find(b"\n", len(bare))
    return text[: end + 1] if end >= 0 else text + b"\n"


def _head(text: bytes) -> tuple[str, str, bool]:
    """Kind and handle of a template as written, and whether there is a second handle."""
    if b"\x0c" in text:
        text = text.replace(b"\n\x0c", b"\n")
    lower = text.lower()
    colon = text.find(b":") + 1
    kind = text[colon : text.find(b"\n")].strip().decode("utf-8") or _next_line(text)
    handle = ""
    at = lower.find(b"\nhandle")
    while at >= 0:
        match = _ONE_LINE.match(lower, at)
        if match is not None:
            if handle:
                return kind, handle, True
            handle = text[match.start(1) : match.end(1)].decode("utf-8")
        else:
            match = _HANDLE.match(lower, at)
            if match is not None:
                if handle:
                    return kind, handle, True
                lines = _lines(text, match.end())
                handle = handle_in(next(lines, ""), lines)
        at = lower.find(b"\nhandle", at + 7)
    return kind, handle, False


def _lines(text: bytes, at: int) -> Iterator[str]:
    """The lines of a text from an offset on."""
    while at < len(text):
        end = text.find(b"\n", at)
        yield text[at:end].decode("utf-8")
        at = end + 1


def _next_line(text: bytes) -> str:
    """The kind of a template whose first line does not have it: the next line, unless that is a field."""
    for line in _lines(text, text.find(b"\n") + 1):
        if line[:1] != "#" and line.strip():
            return "" if _FIELD.match(line) else line.strip()
    return ""


def _handle_problem(path: str, line: int, kind: str, handle: str, obi: str, again: bool) -> Problem:
    kind = kind[:80]
    if again:
        return Problem(shown(path), line, "two-handles", f"{kind} has more than one handle; {obi} is the first")
    if is_url(handle):
        message = f"{kind}: {handle[:80]!r} is a URL, and no handle; the template is not stored"
        return Problem(shown(path), line, "bad-handle", message)
    return Problem(shown(path), line, "no-handle", f"{kind} has no valid handle; it is not stored")


def _without_templates(blob: Blob, data: bytes, problems: list[Problem]) -> bool:
    """Reports a file without templates. Returns whether it is evidence of absence."""
    if not data.strip(b"\0 \t\n\r\x0b\x0c\x1a"):
        code = "empty"
    elif looks_html(data):
        code = "html-page"
    elif looks_binary(blob.data) or looks_binary(data):
        code = "binary"
    elif _COMMENTED.search(data) and not _NOT_COMMENT.search(data):
        code = "commented-out"
    else:
        code = "no-template"
    problems.append(Problem(shown(blob.path), 0, code, CODES[code]))
    return code == "commented-out"


# -- raw handles ----------------------------------------------------------------------------------


def handle_in(first: str, following: Iterable[str]) -> str:
    """The raw handle from the rest of its ``Handle:`` line and the lines that follow; ``""`` if there is none.

    A handle has no white space, so a following line is part of it only if it is a single word. Anything else after
    the last field of a file (a rule of dashes, a closing HTML tag, a lone Ctrl-Z, prose) is not. White space at the
    ends of the lines of a wrapped handle is removed; blanks inside a line are kept.
    """
    handle = first.strip(" \t\n\r\x0b\x0c\x1a")
    for line in following:
        bare = line.strip(" \t\n\r\x0b\x0c\x1a")
        if not bare:
            if handle and line[:1] != "\x1a":
                break
            continue
        if line[0] == "#":
            continue
        if _FIELD.match(line) and (handle or not _REPEC.match(line)):
            break
        if not _REST.fullmatch(bare) and (handle or not _REPEC.match(bare)):
            break
        handle += bare
    return handle


def id_of(handle: str) -> str:
    """The id of a raw handle, ``""`` if it is not valid. HTML tags at its end are ignored."""
    if handle[-1:] == ">" and len(handle) < 1000:
        handle = _MARKUP.sub("", handle)
    try:
        return normalise_handle(handle)
    except BadName:
        return ""
