"""The canonical text of a template, and whether a change of it is cosmetic, one of File-URLs only, or another."""

from __future__ import annotations

import re
from typing import Literal

_UNTIDY = (b" \n", b"\t\n", b"\n\n", b"\n#", b"\r", b"\x0b\n", b"\x0c\n")
_FILE_URL = re.compile(rb"(?:[A-Za-z0-9#-]*-)?file-url[ \t]*:", re.I)
_FIELD_LINE = re.compile(rb"([A-Za-z][A-Za-z0-9#-]*)[ \t]*:(?!//)")


def canonical_text(text: bytes) -> bytes:
    """The text whose checksum is the text checksum of a tobi: without trailing blanks, blank lines and comments.

    All lines end in LF, whatever the line ends of ``text``. Idempotent.
    """
    if text.endswith(b"\n") and text[:1] not in b"#\n" and not any(sign in text for sign in _UNTIDY):
        return text
    lines = [line.rstrip() for line in text.splitlines()]
    return b"".join([line + b"\n" for line in lines if line and line[0] != 35])  # 35 is #


def difference(before: bytes, after: bytes) -> Literal["cosmetic", "file-url", "changed"]:
    """The difference of two texts: none in the canonical text, only in values of File-URLs, or any other."""
    one, other = canonical_text(before), canonical_text(after)
    if one == other:
        return "cosmetic"
    return "file-url" if _without_urls(one) == _without_urls(other) else "changed"


def _without_urls(text: bytes) -> bytes:
    kept: list[bytes] = []
    inside = False
    for line in text.splitlines():
        match = _FILE_URL.match(line)
        if match is not None:
            kept.append(match[0].lower())
            inside = True
        elif not inside or _FIELD_LINE.match(line):
            kept.append(line)
            inside = False
    return b"\n".join(kept)
