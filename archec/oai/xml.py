"""Writing XML as text: escapes, what XML 1.0 cannot hold, the frame of every answer.

Answers are put together from strings, not from a tree: a page of a hundred records costs a tenth so.
Everything that comes from data goes through :func:`text` or :func:`attribute`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["DECLARATION", "attribute", "attributes", "clean", "element", "is_clean", "text"]

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What is no character of XML 1.0 (its production 2); lone surrogates are among it."""


def is_clean(value: str) -> bool:
    """Whether XML 1.0 can hold every character of ``value``."""
    return value.isprintable() or _ILLEGAL.search(value) is None


def clean(value: str) -> str:
    """``value`` without the characters that XML 1.0 cannot hold."""
    return value if value.isprintable() else _ILLEGAL.sub("", value)


def text(value: str) -> str:
    """``value`` as character data."""
    if not value.isprintable():
        value = _ILLEGAL.sub("", value)
        if "\r" in value:
            value = value.replace("\r", "&#13;") if "&" not in value else "&#13;".join(map(text, value.split("\r")))
            return value.replace("<", "&lt;").replace(">", "&gt;") if "&#13;" not in value else _after_returns(value)
    if "&" in value:
        value = value.replace("&", "&amp;")
    if "<" in value:
        value = value.replace("<", "&lt;")
    if ">" in value:
        value = value.replace(">", "&gt;")
    return value
