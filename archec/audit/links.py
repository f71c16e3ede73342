"""Symbolic links of the obi store: each must lead, by its text alone, to where an obi is."""

from __future__ import annotations

import os
import re
import stat

from archec.audit.folders import Folders
from archec.errors import BadName, CorruptArchive
from archec.ids import is_url, slash_variant
from archec.store.layout import Layout
from archec.store.reader import MAX_HOPS, id_of_name
from archec.tist import tist_of_path

__all__ = ["judge"]

_FAN = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")


def judge(layout: Layout, folders: Folders, path: str, text: str) -> tuple[str, str] | None:
    """What is wrong with the link at a relative path that says ``text``: code and message, or None.

    Follows it from link to link as the reader does, opens nothing but directories, never by a link.
    """
    seen = {path}
    while True:
        goal = _goal(layout, path, text)
        if goal is None:
            return "link-escapes", f"leads to {text[:200]!a}, where no obi can be"
        if goal in seen or len(seen) > MAX_HOPS:
            return "link-dangling", "goes round in a circle"
        seen.add(goal)
        found = _look(layout, folders, goal)
        if found is None:
            return "link-dangling", f"leads to {goal}, where there is nothing"
        if found == "":
            return None
        path, text = goal, found


def _goal(layout: Layout, path: str, text: str) -> str | None:
    """The relative path that a link leads to, None where no obi can be there."""
    if text.startswith("/"):
        return None
    parts = path.split("/")[:-1]
    for part in text.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if len(parts) != layout.depth + 1 or not _NAME.fullmatch(parts[-1]):
        return None
    if layout.fanout and not _FAN.fullmatch(parts[3]):
        return None
    try:
        tist_of_path("/".join(parts[:3]))
    except (BadName, ValueError):
        return None
    return "/".join(parts)


def _look(layout: Layout, folders: Folders, path: str) -> str | None:
    """The text of a link at ``path`` or at its variant by a final slash; "" for a file, None for nothing."""
    found = _read(folders, path)
    if found is not None:
        return found
    directory, _, name = path.rpartition("/")
    obi = id_of_name(name)
    variant = slash_variant(obi) if obi is not None and is_url(obi) and obi.count("/") > 2 else None
    if variant is None:
        return None
    tist = tist_of_path("/".join(directory.split("/")[:3]))
    return _read(folders, layout.path(tist, variant))


def _read(folders: Folders, path: str) -> str | None:
    directory, _, name = path.rpartition("/")
    try:
        fd = folders.fd(directory)
        if fd is None:
            return None
        state = os.lstat(name, dir_fd=fd)
        if stat.S_ISLNK(state.st_mode):
            return os.readlink(name, dir_fd=fd) or None
    except (OSError, CorruptArchive):
        return None
    return "" if stat.S_ISREG(state.st_mode) else None
