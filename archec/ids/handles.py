"""Handles: the id of a tobi is its normalised RePEc handle (design, sections 1 and 4)."""

from __future__ import annotations

from archec.errors import BadName
from archec.ids.limits import MAX_ID

__all__ = ["archive_of", "item_of", "normalise_handle", "series_of"]


def normalise_handle(raw: str) -> str:
    """The id of a tobi: white space removed, ``RePEc:`` prefix, the rest lower-case.

    A handle that does not begin with ``repec:`` (in any case) is kept without that prefix: archec
    does not invent an identity. Raises :class:`BadName` for an empty one and one of over MAX_ID characters.
    """
    text = "".join(raw.split()).lower()
    if not text or text == "repec:":
        raise BadName("the handle is empty")
    if len(text) > MAX_ID:
        raise BadName(f"the handle {text[:50]!r}... has {len(text)} characters, more than {MAX_ID}")
    return "RePEc:" + text[6:] if text.startswith("repec:") else text


def archive_of(handle: str) -> str:
    """The archive code of a normalised handle: ``RePEc:aaa:ssssss:1`` -> ``aaa``; else ``""``."""
    parts = handle.split(":", 2)
    return parts[1] if len(parts) > 1 and parts[0] == "RePEc" else ""


def series_of(handle: str) -> str:
    """The series code of a normalised handle, ``""`` where it names none."""
    parts = handle.split(":", 3)
    return parts[2] if len(parts) > 2 and parts[0] == "RePEc" else ""


def item_of(handle: str) -> str:
    """The item part of a normalised handle, ``""`` where it names an archive or a series."""
    parts = handle.split(":", 3)
    return parts[3] if len(parts) > 3 and parts[0] == "RePEc" else ""
