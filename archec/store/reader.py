"""Safe reading of the obi store: follows redirects inside it, and nothing out of it.

Directories are opened one by one without following links; a redirect's symbolic link is read as text,
must be relative and must name a place where an obi can be; the file is opened by O_NOFOLLOW. So a
planted link, absolute or through ``..``, is a :class:`CorruptArchive` and never a way to other files.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import BinaryIO, NamedTuple

from archec.digest import Digests
from archec.errors import BadName, CorruptArchive, NotHeld
from archec.ids import MAX_NAME, file_name, is_url, slash_variant, unescape
from archec.store.directories import open_directory, open_root
from archec.store.durable import failure
from archec.store.layout import Layout
from archec.tist import tist_of_path

MAX_HOPS = 64
"""Symbolic links and slash variants that are followed; no recorded chain of redirects is as long."""

_CUT_NAME = re.compile(r".+~[0-9a-f]{32}", re.S)
_FAN = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")
OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How a file of the store is opened: never through a link, never waiting for one that is no file."""
_BUFFER = 1 << 18


class Hop(NamedTuple):
    """One step of a chain of redirects; ``id`` is None where the name on disk was cut (the journal knows)."""

    tist: int
    id: str | None
    name: str


class Located(NamedTuple):
    """Where an obi's bytes are: a relative path, and the steps that led there from its own name."""

    path: str
    hops: tuple[Hop, ...]


class Digest(NamedTuple):
    """Hex digests and size in bytes of what is held."""

    md5: str
    sha256: str
    size: int


def locate(layout: Layout, tist: int, id: str) -> Located:  # noqa: A002
    """The regular file that holds what was noted of an obi at ``tist``.

    Raises :class:`NotHeld` where there is no such name, :class:`CorruptArchive` for links that leave
    the store, loop or lead to nothing.
    """
    root = open_root(layout)
    try:
        return _locate(layout, root, tist, id)[0]
    finally:
        os.close(root)


def open_obi(layout: Layout, tist: int, id: str) -> BinaryIO:  # noqa: A002
    """What was noted of an obi at ``tist``, open for reading. Raises as :func:`locate` does."""
    root = open_root(layout)
    try:
        return _open_at(layout, root, _locate(layout, root, tist, id)[0].path)
    finally:
        os.close(root)


def open_held(layout: Layout, path: str) -> BinaryIO:
    """The file at a relative path that :func:`locate` gave, open for reading; follows no link."""
    root = open_root(layout)
    try:
        return _open_at(layout, root, path)
    finally:
        os.close(root)


def digest(layout: Layout, tist: int, id: str) -> Digest:  # noqa: A002
    """The digests and the size of what was noted of an obi at ``tist``. Raises as :func:`locate` does."""
    digests = Digests()
    with open_obi(layout, tist, id) as file:
        try:
            while data := file.read(_BUFFER):
                digests.update(data)
        except OSError as error:
            raise failure(error, layout.root / layout.path(tist, id)) from error
    return Digest(digests.md5, digests.sha256, digests.size)


def target(layout: Layout, tist: int, id: str, to_tist: int, to_id: str) -> str:  # noqa: A002
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


# -- step by step ---------------------------------------------------------------------------------


def _locate(layout: Layout, root: int, tist: int, id: str) -> tuple[Located, os.stat_result]:  # noqa: A002
    start = path = layout.path(tist, id)
    current: str | None = id
    hops: list[Hop] = []
    seen = {path}
    while True:
        found = _look(layout, root, path)
        if found is None:
            path = _variant(layout, root, path, current)
            if path == "":
                break
        elif isinstance(found, str):
            path = _resolve(layout, path, found)
        else:
            return Located(path, tuple(hops)), found
        if path in seen or len(hops) >= MAX_HOPS:
            raise CorruptArchive(f"{layout.root}/{start}: its redirects go round in a circle")
        seen.add(path)
        directory, _, name = path.rpartition("/")
        current = id_of_name(name)
        hops.append(Hop(_tist_of(layout, directory), current, name))
    if hops:
        last = hops[-1]
        raise CorruptArchive(f"{layout.root}/{start}: redirects to {last.name}, which is not held at {last.tist}")
    raise NotHeld(f"nothing was noted of {_shown(id)} at {tist}")


def _look(layout: Layout, root: int, path: str) -> str | os.stat_result | None:
    """What is at a relative path: the text of a link, a regular file's state, or None for nothing."""
    directory, _, name = path.rpartition("/")
    fd = open_directory(layout, root, directory)
    if fd is None:
        return None
    try:
        state = os.lstat(name, dir_fd=fd)
        if stat.S_ISLNK(state.st_mode):
            return os.readlink(name, dir_fd=fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure(error, f"{layout.root}/{path}") from error
    finally:
        os.close(fd)
    if not stat.S_ISREG(state.st_mode):
        raise CorruptArchive(f"{layout.root}/{path}: is neither a file nor a link")
    return state


def _variant(layout: Layout, root: int, path: str, id: str | None) -> str:  # noqa: A002
    """The path of the same URL with or without its trailing slash, ``""`` where nothing is there."""
    other = slash_variant(id) if id is not None and is_url(id) and id.count("/") > 2 else None
    if other is None:
        return ""
    tist = _tist_of(layout, path.rpartition("/")[0])
    there = layout.path(tist, other)
    return there if _look(layout, root, there) is not None else ""


def _resolve(layout: Layout, path: str, text: str) -> str:
    """The path that a link at ``path`` leads to, by its text alone; directories are never links."""
    where = f"{layout.root}/{path}"
    if text.startswith("/"):
        raise CorruptArchive(f"{where}: is a link to an absolute path, {_shown(text)}")
    parts = path.split("/")[:-1]
    for part in text.split("/"):
        if part == "..":
            if not parts:
                raise CorruptArchive(f"{where}: is a link out of the archive, {_shown(text)}")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    goal = "/".join(parts)
    name = parts[-1] if parts else ""
    if len(parts) != layout.depth + 1 or not _NAME.fullmatch(name):
        raise CorruptArchive(f"{where}: is a link to {_shown(goal)}, where no object can be")
    _tist_of(layout, goal.rpartition("/")[0])
    return goal


def _tist_of(layout: Layout, directory: str) -> int:
    parts = directory.split("/")
    try:
        if len(parts) != layout.depth or (layout.fanout and not _FAN.fullmatch(parts[3])):
            raise BadName(f"{directory!r} is not the directory of a tist")
        return tist_of_path("/".join(parts[:3]))
    except (BadName, ValueError) as error:
        raise CorruptArchive(f"{layout.root}/{_shown(directory)}: is not the directory of a tist") from error


def _open_at(layout: Layout, root: int, path: str) -> BinaryIO:
    directory, _, name = path.rpartition("/")
    where = f"{layout.root}/{path}"
    dir_fd = open_directory(layout, root, directory)
    if dir_fd is None:
        raise NotHeld(f"{where}: is not held")
    try:
        fd = os.open(name, OPEN_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        raise NotHeld(f"{where}: is not held") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise CorruptArchive(f"{where}: is not a file") from error
        raise failure(error, where) from error
    finally:
        os.close(dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CorruptArchive(f"{where}: is not a file")
    return open(fd, "rb")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 200 else text[:200] + "...")
