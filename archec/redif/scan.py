"""Cuts a blob into raw templates with their handles, without parsing fields.

This is the hot path: a run does nothing else with millions of unchanged templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from archec.errors import BadName
from archec.ids import is_url, normalise_handle
from archec.redif.encoding import begins_line, decode, looks_binary, looks_html
from archec.redif.files import Blob
from archec.redif.problems import CODES, Problem, shown

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
