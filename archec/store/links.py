"""Symbolic links of the obi store: how a redirect's link is written, and where one leads.

A link is followed by its text alone: it must be relative and name a place where an obi can be. The kernel
never follows one, so a planted link, absolute or through ``..``, is a fault and never a way to other files.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Literal, NamedTuple

from archec.errors import BadName
from archec.ids import MAX_NAME, file_name, is_url, slash_variant, unescape
from archec.store.directories import Directories
from archec.store.durable import failure
from archec.store.interface import Step
from archec.store.layout import Layout
from archec.tist import tist_of_path

MAX_HOPS = 64
"""Symbolic links and slash variants that are followed; no recorded chain of redirects is as long."""

_CUT_NAME = re.compile(r".+~[0-9a-f]{32}", re.S)
_FAN = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")


class DeadLink(NamedTuple):
    """Why a chain leads to no file. ``path`` is where: that of a link which escapes or of what is no file, else
    the chain's first."""

    kind: Literal["missing", "circle", "escapes", "not-a-file"]
    path: str
    message: str


class Chain(NamedTuple):
    """Where a path leads: ``path`` is that of a regular file, unless there is a ``fault``."""

    path: str
    hops: tuple[Step, ...]
    fault: DeadLink | None = None


def follow(directories: Directories, path: str, id: str | None) -> Chain:  # noqa: A002
    """Follows links, and URLs that differ by a final slash, from the obi ``id`` at a relative path.

    Raises :class:`CorruptArchive` where a directory of the store is none, :class:`StorageFailed` where the disk
    does not read.
    """
    layout, start = directories.layout, path
    hops: list[Step] = []
    seen = {path}
    goal: str | DeadLink | None
    while True:
        found = _look(directories, path)
        if isinstance(found, str):
            goal = _goal(layout, path, found)
        elif found is None:
            goal = _variant(directories, path, id)
            if goal is None:
                last = f"redirects to {hops[-1].name}, which is not held at {hops[-1].tist}" if hops else "is not there"
                goal = DeadLink("missing", start, last)
        elif stat.S_ISREG(found.st_mode):
            return Chain(path, tuple(hops))
        else:
            goal = DeadLink("not-a-file", path, "is neither a file nor a link")
        if not isinstance(goal, DeadLink) and (goal in seen or len(hops) >= MAX_HOPS):
            goal = DeadLink("circle", start, "redirects in a circle")
        if isinstance(goal, DeadLink):
            return Chain(path, tuple(hops), goal)
        seen.add(goal)
        path = goal
        directory, _, name = path.rpartition("/")
        id = id_of_name(name)  # noqa: A001
        hops.append(Step(tist_of_directory(layout, directory), id, name))


def link_text(layout: Layout, tist: int, id: str, to_tist: int, to_id: str) -> str:  # noqa: A002
    """The text of the symbolic link by which an obi redirects to another: relative, with ``/``."""
    directory, goal = layout.directory(tist, id), layout.directory(to_tist, to_id)
    if directory == goal:
        return file_name(to_id)
    return f"{'../' * layout.depth}{goal}/{file_name(to_id)}"


def id_of_name(name: str) -> str | None:
    """The id behind a name on disk; None where the name was cut, or is not one of an obi."""
    if len(name) > MAX_NAME - 3 and _CUT_NAME.fullmatch(name):
        return None
    if name in ("%2E", "%2E%2E"):
        return "." * (len(name) // 3)
    try:
        return unescape(name)
    except BadName:
        return None


def tist_of_directory(layout: Layout, directory: str) -> int:
    """The tist whose obis lie in a relative directory. Raises :class:`BadName` where it is none of a tist."""
    parts = directory.split("/")
    try:
        if len(parts) == layout.depth and (not layout.fanout or _FAN.fullmatch(parts[3])):
            return tist_of_path("/".join(parts[:3]))
    except ValueError:  # digits of another script, or too many
        pass
    raise BadName(f"{directory!r} is not the directory of a tist")


def _look(directories: Directories, path: str) -> str | os.stat_result | None:
    """What is at a relative path: the text of a link, the state of anything else, or None for nothing."""
    directory, _, name = path.rpartition("/")
    fd = directories.find(directory)
    if fd is None:
        return None
    try:
        state = os.lstat(name, dir_fd=fd)
        return os.readlink(name, dir_fd=fd) if stat.S_ISLNK(state.st_mode) else state
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure(error, f"{directories.layout.root}/{path}") from error


def _variant(directories: Directories, path: str, id: str | None) -> str | None:  # noqa: A002
    """The path of the same URL with or without its trailing slash, None where nothing is there."""
    other = slash_variant(id) if id is not None and is_url(id) and id.count("/") > 2 else None
    if other is None:
        return None
    layout = directories.layout
    there = layout.path(tist_of_directory(layout, path.rpartition("/")[0]), other)
    return there if _look(directories, there) is not None else None


def _goal(layout: Layout, path: str, text: str) -> str | DeadLink:
    """The path that a link at ``path`` leads to, by its text alone; directories are never links."""
    if text.startswith("/"):
        return DeadLink("escapes", path, f"is a link to an absolute path, {shown(text)}")
    parts = path.split("/")[:-1]
    for part in text.split("/"):
        if part == "..":
            if not parts:
                return DeadLink("escapes", path, f"is a link out of the archive, {shown(text)}")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    goal = "/".join(parts)
    try:
        if parts and _NAME.fullmatch(parts[-1]):
            tist_of_directory(layout, goal.rpartition("/")[0])
            return goal
    except BadName:
        pass
    return DeadLink("escapes", path, f"is a link to {shown(goal)}, where no object can be")


def shown(text: str) -> str:
    """A text from outside, fit for a message: ASCII, and not too long."""
    return ascii(text if len(text) <= 200 else text[:200] + "...")
