"""Handles, whose normalised form is the id of a tobi, and ids of all kinds in any spelling."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Literal

from archec.errors import BadName
from archec.ids.filesets import is_fileset, parse_fileset
from archec.ids.names import MAX_ID, unescape
from archec.ids.urls import is_url, normalise_url

_STORE_NAME = re.compile(r"(?:RePEc%3A|(?:https?|ftp)%3A%2F%2F)", re.I)


def normalise_handle(raw: str) -> str:
    """The id of a tobi: white space removed, ``RePEc:`` prefix, the rest lower-case.

    A handle that does not begin with ``repec:`` (in any case) does not get that prefix: archec does not invent
    identities. Raises BadName for an empty handle, for one of more than MAX_ID characters, for a URL and for
    the id of a fileset, so that ids of tobis, fobis and filesets, and their names in the obi store, never collide.
    """
    text = "".join(raw.split()).lower()
    if not text or text == "repec:":
        raise BadName("the handle is empty")
    if is_url(text):
        raise BadName(f"the handle {text[:50]!r} is a URL")
    if is_fileset(text):
        raise BadName(f"the handle {text[:50]!r} is the id of a fileset")
    if len(text) > MAX_ID:
        raise BadName(f"the handle {text[:50]!r}... has {len(text)} characters, more than {MAX_ID}")
    return "RePEc:" + text[6:] if text.startswith("repec:") else text


def archive_of(handle: str) -> str:
    """The archive code of a normalised handle (``aaa`` of ``RePEc:aaa:ssssss:1``), or ``""``."""
    parts = handle.split(":", 2)
    return parts[1] if len(parts) > 1 and parts[0] == "RePEc" else ""


def series_of(handle: str) -> str:
    """The series code of a normalised handle (``ssssss`` of ``RePEc:aaa:ssssss:1``), or ``""``."""
    parts = handle.split(":", 3)
    return parts[2] if len(parts) > 2 and parts[0] == "RePEc" else ""


def item_of(handle: str) -> str:
    """The rest of a normalised handle after its series, ``""`` for an archive or a series."""
    parts = handle.split(":", 3)
    return parts[3] if len(parts) > 3 and parts[0] == "RePEc" else ""


def normalise(raw: str) -> tuple[Literal["tobi", "fobi", "fileset"], str]:
    """``("tobi", id)``, ``("fobi", id)`` or ``("fileset", id)`` for a handle, URL or fileset's id in any spelling."""
    if is_fileset(raw):
        return "fileset", parse_fileset(raw).obi
    if is_url(raw):
        return "fobi", normalise_url(raw)
    return "tobi", normalise_handle(raw)


def typed(raw: str) -> str:
    """The id in typed or pasted text.

    Removes ``<...>`` around it and ``URL:`` before it, and unescapes a name in the obi store. Anything else is returned
    unchanged.
    """
    text = raw.strip()
    if text[:1] == "<" and text[-1:] == ">":
        text = text[1:-1].strip()
    if text[:4].lower() == "url:":
        text = text[4:].lstrip()
    if _STORE_NAME.match(text):
        with suppress(BadName):
            text = unescape(text)
    return text
