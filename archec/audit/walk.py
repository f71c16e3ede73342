"""Walk: every name in the obi store as it lies on the disk, streamed; what has no business there is told.

No link is followed. ``quarantine/`` and ``lost+found`` are passed over.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from archec.audit.findings import Finding
from archec.errors import BadName
from archec.redif.problems import shown
from archec.store.directories import open_root
from archec.store.durable import failure, is_temp
from archec.store.layout import DESCRIPTOR, NAMASTE, RUNS, Layout
from archec.store.lock import LOCK
from archec.tist import tist_of_path

__all__ = ["QUARANTINE", "Place", "Tell", "walk"]

QUARANTINE = "quarantine"
"""The directory in the archive folder where a bad file goes before a good copy takes its place."""

_OURS = frozenset({DESCRIPTOR, NAMASTE, LOCK, RUNS, QUARANTINE, "lost+found"})
_THREE = re.compile(r"[0-9]{3}")
_DIGITS = re.compile(r"[0-9]{1,12}")
_FAN = re.compile(r"[0-9a-f]{2}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Tell = Callable[[Finding], None]
Kind = Literal["file", "link", "temp", "other"]


class Place(NamedTuple):
    """A name where obis lie: its tist, its directory (relative), its name, what it is; ``text`` is that of a link."""

    tist: int
    directory: str
    name: str
    kind: Kind
    text: str

    @property
    def path(self) -> str:
        """The relative path."""
        return f"{self.directory}/{self.name}"


def walk(layout: Layout, tell: Tell) -> Iterator[Place]:
    """All names at the depth of obis, directory by directory; what lies elsewhere is told.

    Raises :class:`archec.errors.StorageFailed` where the disk refuses to list a directory.
    """
    root = open_root(layout)
    try:
        yield from _descend(layout, root, "", 0, tell)
    finally:
        os.close(root)


def _descend(layout: Layout, fd: int, directory: str, depth: int, tell: Tell) -> Iterator[Place]:
    if depth == layout.depth:
        yield from _places(layout, fd, directory)
        return
    for name in _names(layout, fd, directory):
        path = f"{directory}/{name}" if directory else name
        if not depth and (name in _OURS or is_temp(name)):
            continue
        wrong = _misfit(layout, fd, name, path, depth)
        if wrong is not None:
            tell(Finding(wrong[0], shown(path), wrong[1]))
            continue
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
        except OSError as error:
            raise failure(error, f"{layout.root}/{path}") from error
        try:
            yield from _descend(layout, inner, path, depth + 1, tell)
        finally:
            os.close(inner)


def _names(layout: Layout, fd: int, directory: str) -> list[str]:
    """The names in a directory of directories; there are at most some thousand."""
    try:
        with os.scandir(fd) as entries:
            return sorted(entry.name for entry in entries)
    except OSError as error:
        raise failure(error, f"{layout.root}/{directory}") from error


def _misfit(layout: Layout, fd: int, name: str, path: str, depth: int) -> tuple[str, str] | None:
    """Why a name is not that of a directory of the store; None where it is."""
    pattern = (_THREE, _THREE, _DIGITS, _FAN)[depth]
    fits = pattern.fullmatch(name) is not None
    if fits and depth == 2:
        try:
            tist_of_path(path)
        except (BadName, ValueError):
            fits = False
    try:
        mode = os.lstat(name, dir_fd=fd).st_mode
    except OSError as error:
        raise failure(error, f"{layout.root}/{path}") from error
    if not fits:
        return "unexpected", f"{_kind(mode)} that is no part of the store"
    if not stat.S_ISDIR(mode):
        return "directory-link", f"{_kind(mode)} where a directory of the store should be"
    return None


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    return "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device, pipe or socket"


def _places(layout: Layout, fd: int, directory: str) -> Iterator[Place]:
    tist = tist_of_path("/".join(directory.split("/")[:3]))
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    kind: Kind = "temp" if name.startswith(".+") and is_temp(name) else "file"
                    yield Place(tist, directory, name, kind, "")
                elif entry.is_symlink():
                    yield Place(tist, directory, name, "link", os.readlink(name, dir_fd=fd))
                else:
                    yield Place(tist, directory, name, "other", "")
    except OSError as error:
        raise failure(error, f"{layout.root}/{directory}") from error
