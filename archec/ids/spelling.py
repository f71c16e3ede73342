"""Spelling: the id behind what a template says or somebody types, be it a handle or a URL."""

from __future__ import annotations

import re
from contextlib import suppress

from archec.errors import BadName
from archec.ids.handles import normalise_handle
from archec.ids.names import unescape
from archec.ids.urls import is_url, normalise_url

__all__ = ["normalise", "typed"]

_STORE_NAME = re.compile(r"(?:RePEc%3A|(?:https?|ftp)%3A%2F%2F)", re.I)


def normalise(raw: str) -> tuple[str, str]:
    """``("tobi", id)`` or ``("fobi", id)`` of any spelling of a handle or a URL."""
    if is_url(raw):
        return "fobi", normalise_url(raw)
    return "tobi", normalise_handle(raw)


def typed(raw: str) -> str:
    """What somebody means who types or pastes an id: without ``<...>`` around it, without ``URL:`` before it, and
    with the escapes of a name in the obi store undone. What has none of these stays as it is."""
    text = raw.strip()
    if text[:1] == "<" and text[-1:] == ">":
        text = text[1:-1].strip()
    if text[:4].lower() == "url:":
        text = text[4:].lstrip()
    if _STORE_NAME.match(text):
        with suppress(BadName):
            text = unescape(text)
    return text
