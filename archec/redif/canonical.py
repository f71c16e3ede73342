"""Comparing the texts of templates apart from what does not matter: pure functions on bytes."""

from __future__ import annotations

import re

__all__ = ["canonical_text", "only_file_urls_differ"]

_UNTIDY = (b" \n", b"\t\n", b"\n\n", b"\n#", b"\r", b"\x0b\n", b"\x0c\n")
_FILE_URL = re.compile(rb"(?:[A-Za-z0-9#-]*-)?file-url[ \t]*:", re.I)
_FIELD = re.compile(rb"([A-Za-z][A-Za-z0-9#-]*)[ \t]*:(?!//)")


def canonical_text(text: bytes) -> bytes:
    """The text of which vi's checksum is taken: trailing blanks, blank and comment lines dropped.

    The same for any line end; every line that is left ends in LF. Idempotent.
    """
    if text.endswith(b"\n") and text[:1] not in b"#\n" and not any(sign in text for sign in _UNTIDY):
        return text
    lines = [line.rstrip() for line in text.splitlines()]
    return b"".join([line + b"\n" for line in lines if line and line[0] != 35])


def only_file_urls_differ(a: bytes, b: bytes) -> bool:
    """Whether two texts have the same canonical text once the values of their File-URLs are removed.

    Also true where they do not differ at all.
    """
    return a == b or _without_urls(canonical_text(a)) == _without_urls(canonical_text(b))


def _without_urls(text: bytes) -> bytes:
    kept: list[bytes] = []
    inside = False
    for line in text.splitlines():
        match = _FILE_URL.match(line)
        if match is not None:
            kept.append(match[0].lower())
            inside = True
        elif not inside or _FIELD.match(line):
            kept.append(line)
            inside = False
    return b"\n".join(kept)
