"""Handles as templates spell them: pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from archec.errors import BadName
from archec.ids import normalise_handle

_REPEC = re.compile(r"repec[ \t]*:", re.I)
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9#-]*[ \t]*:")
_REST = re.compile(r"(?=\S*[^\W_])[^\s<>]+\s*")
_MARKUP = re.compile(r"(?:\s*</?(?:a|b|body|br|div|font|html|i|p|pre|span|td|tr)\b[^<>]*>)+\s*\Z", re.I)


def handle_in(first: str, following: Iterable[str]) -> str:
    """The raw handle from the rest of its ``Handle:`` line and the lines that follow; ``""`` if there is none.

    A handle has no white space, so a following line is part of it only if it is a single word. Anything else after
    the last field of a file (a rule of dashes, a closing HTML tag, a lone Ctrl-Z, prose) is not. White space at the
    ends of the lines of a wrapped handle is removed, blanks inside a line are kept.
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
        if handle and not _REST.fullmatch(bare):
            break
        handle += bare
    return handle


def id_of(handle: str) -> str:
    """The id of a raw handle, ``""`` if it is not valid. HTML tags at its end are no part of it."""
    if handle[-1:] == ">" and len(handle) < 1000:
        handle = _MARKUP.sub("", handle)
    try:
        return normalise_handle(handle)
    except BadName:
        return ""
