"""The handle of a template as it is written: which lines of a template belong to its value.

A handle has no white space, so a line that follows it is only taken for the rest of it if it is one
word; what else stands under the last field of a file (a rule of dashes, a closing HTML tag, a lone
Ctrl-Z, prose) is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from archec.errors import BadName
from archec.ids import normalise_handle

__all__ = ["handle_in", "id_of"]

_REPEC = re.compile(r"repec[ \t]*:", re.I)
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9#-]*[ \t]*:")
_REST = re.compile(r"(?=\S*[^\W_])[^\s<>]+\s*")


def handle_in(first: str, following: Iterable[str]) -> str:
    """The raw handle from the rest of its ``Handle:`` line and the lines that follow that line.

    White space at line ends is dropped, where a handle is wrapped; blanks inside a line stay. ``""``
    where there is none.
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
    """The id of a raw handle, ``""`` where it has none."""
    try:
        return normalise_handle(handle)
    except BadName:
        return ""
