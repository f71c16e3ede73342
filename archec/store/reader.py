"""Safe reading of the obi store: follows redirects within it, but never out of it.

Its directories are opened without following links (:class:`archec.store.layout.Directories`). A redirect's link is read
as text, the file is opened with O_NOFOLLOW. The text of a link must be relative and lead to a path where an obi can be.
The kernel never follows links, so a planted link (absolute, or with ``..``) is an error and never leads to other files.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from archec.closing import Closing
from archec.digest import Digests, sha256_hex
from archec.errors import BadName, CorruptArchive, NotHeld, failure, storage_errors
from archec.ids import is_url, slash_variant
from archec.store.durable import is_temp
from archec.store.layout import Directories, Layout, file_name, id_of_name, tist_of_path

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # never waits for a pipe

MAX_HOPS = 64
"""Maximum number of symbolic links and slash variants that are followed; recorded redirect chains are shorter."""

_FAN = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")


def held_tists(layout: Layout) -> Iterator[int]:
    """The tists whose directories contain anything but temporary files; directories with other names, and unreadable
    ones, are skipped."""
    for first in _three_digits(layout.root):
        for second in _three_digits(first):
            for directory in _listed(second):
                with suppress(BadName, ValueError):
                    tist = tist_of_path(str(directory.relative_to(layout.root)))
                    if any(not is_temp(path.name) for path in _listed(directory)):
                        yield tist


def _three_digits(directory: Path) -> Iterator[Path]:
    return (path for path in _listed(directory) if len(path.name) == 3 and path.name.isdigit())


def _listed(directory: Path) -> Iterator[Path]:
    """What is in a directory; nothing if it is not a directory or cannot be read."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield directory / entry.name
    except OSError:
        return


class _HeldFile(io.FileIO):
    """An open file of the store. An error while it is read is a :class:`StorageFailed` that names it."""

    def __init__(self, fd: int, where: str) -> None:
        super().__init__(fd, "rb")
        self._where = where

    def readinto(self, buffer: Any) -> int:
        with storage_errors(self._where):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with storage_errors(self._where):
            return super().readall()


class Reader(Closing):
    """Reads many obis and keeps their directories open. A context manager, not thread-safe.

    Every method raises :class:`NotHeld` if nothing was noted, :class:`CorruptArchive` for links that leave the store,
    loop or dangle, and :class:`StorageFailed` if the disk cannot be read.
    """

    def __init__(self, layout: Layout, directories: Directories | None = None) -> None:
        self.layout = layout
        self._directories = directories or Directories(layout)

    def locate(self, tist: int, id: str) -> Chain:  # noqa: A002
        """The redirects to the regular file with what was noted of an obi at ``tist``; without a fault."""
        chain = follow(self._directories, self.layout.path(tist, id), id)
        fault = chain.fault
        if fault is None:
            return chain
        if fault.kind == "missing" and not chain.hops:
            raise NotHeld(f"nothing was noted of {shown(id)} at {tist}")
        raise CorruptArchive(f"{self.layout.root}/{fault.path}: {fault.message}")

    def open(self, tist: int, id: str) -> BinaryIO:  # noqa: A002
        """Opens what was noted of an obi at ``tist`` for reading."""
        return self.open_path(self.locate(tist, id).path)

    def open_path(self, path: str) -> BinaryIO:
        """Opens the file at a relative path from :meth:`locate` for reading; links are not followed."""
        directory, _, name = path.rpartition("/")
        where = f"{self.layout.root}/{path}"
        dir_fd = self._directories.find(directory)
        if dir_fd is None:
            raise NotHeld(f"{where}: is not held")
        try:
            fd = os.open(name, _OPEN, dir_fd=dir_fd)
        except FileNotFoundError:
            raise NotHeld(f"{where}: is not held") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise CorruptArchive(f"{where}: is not a file") from error
            raise failure(error, where) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CorruptArchive(f"{where}: is not a file")
        return io.BufferedReader(_HeldFile(fd, where))

    def read(self, tist: int, id: str, sha256: str | None = None) -> bytes:  # noqa: A002
        """All bytes noted of an obi at ``tist``; for small files. Raises CorruptArchive if their sha256 is another."""
        # A regular file under its own name needs no further checks, which saves three quarters of the time.
        directory = self._directories.find(self.layout.directory(tist, id))
        data = self._plain(directory, tist, id) if directory is not None else None
        if data is None:
            with self.open(tist, id) as file:
                data = file.read()
        if sha256 is not None:
            compare(f"{self.layout.root}/{self.layout.path(tist, id)}", sha256_hex(data), sha256)
        return data

    def _plain(self, directory: int, tist: int, id: str) -> bytes | None:  # noqa: A002
        """The bytes of a regular file that one system call reads; None if there is none."""
        try:
            fd = os.open(file_name(id), _OPEN, dir_fd=directory)
        except OSError:
            return None  # a link, or nothing: needs the full check
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                return None
            data = os.read(fd, state.st_size + 1)
            return data if len(data) == state.st_size else None
        except OSError as error:
            raise failure(error, self.layout.root / self.layout.path(tist, id)) from error
        finally:
            os.close(fd)

    def close(self) -> None:
        """Closes the directories; may be called repeatedly."""
        self._directories.close()


# -- single obis ---------------------------------------------------------------------------------------------


def locate(layout: Layout, tist: int, id: str) -> Chain:  # noqa: A002
    """Like :meth:`Reader.locate`, for a single obi."""
    with Reader(layout) as reader:
        return reader.locate(tist, id)


def open_obi(layout: Layout, tist: int, id: str) -> BinaryIO:  # noqa: A002
    """Like :meth:`Reader.open`, for a single obi."""
    with Reader(layout) as reader:
        return reader.open(tist, id)


def open_held(layout: Layout, path: str) -> BinaryIO:
    """Like :meth:`Reader.open_path`, for a single file."""
    with Reader(layout) as reader:
        return reader.open_path(path)


def digest(layout: Layout, tist: int, id: str) -> Digests:  # noqa: A002
    """The checksums and the size of what was noted of an obi at ``tist``."""
    with open_obi(layout, tist, id) as file:
        return Digests.of(file)


def compare(where: str, found: str, noted: str) -> None:
    """Raises :class:`CorruptArchive` if bytes with the sha256 ``found`` lie where others were noted."""
    if found != noted:
        raise corrupt(f"{where}: has sha256 {found}, but {noted} was noted")


def corrupt(message: str) -> CorruptArchive:
    return CorruptArchive(message, hint="'archec verify --repair-from COPY' restores good bytes from a second copy")


def missing(layout: Layout, path: str, sha256: str) -> CorruptArchive:
    """The error for a file of the store that is not at its path."""
    return corrupt(f"{layout.root}/{path}: is missing, but sha256 {sha256} was noted there")


# -- links ----------------------------------------------------------------------------------------


class LinkStep(NamedTuple):
    """One step of a chain of redirects; ``id`` is None if the name on disk is truncated (the journal has the id)."""

    tist: int
    id: str | None
    name: str


class DeadLink(NamedTuple):
    """The reason why a chain does not lead to a file. ``path`` is the link that escapes or the object that is not a
    file, otherwise the start of the chain."""

    kind: Literal["missing", "circle", "escapes", "not-a-file"]
    path: str
    message: str


class Chain(NamedTuple):
    """The end of a chain of redirects: ``path`` is that of a regular file, unless there is a ``fault``."""

    path: str
    hops: tuple[LinkStep, ...]
    fault: DeadLink | None = None


def follow(directories: Directories, path: str, id: str | None) -> Chain:  # noqa: A002
    """Follows links, and URLs that differ by a trailing slash, from the obi ``id`` at a relative path.

    Raises :class:`CorruptArchive` if a directory of the store is not a directory, :class:`StorageFailed` if the disk
    cannot be read.
    """
    layout, start = directories.layout, path
    hops: list[LinkStep] = []
    seen = {path}
    goal: str | DeadLink | None
    while True:
        found = look(directories, path)
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
        hops.append(LinkStep(tist_of_directory(layout, directory), id, name))


def link_text(layout: Layout, tist: int, id: str, to_tist: int, to_id: str) -> str:  # noqa: A002
    """The text of the symbolic link by which an obi redirects to another: relative, with ``/``."""
    directory, goal = layout.directory(tist, id), layout.directory(to_tist, to_id)
    if directory == goal:
        return file_name(to_id)
    return f"{'../' * layout.depth}{goal}/{file_name(to_id)}"


def tist_of_directory(layout: Layout, directory: str) -> int:
    """The tist of a relative directory of obis. Raises :class:`BadName`."""
    parts = directory.split("/")
    with suppress(ValueError):  # digits of other scripts, or too many
        if len(parts) == layout.depth and (not layout.fanout or _FAN.fullmatch(parts[3])):
            return tist_of_path("/".join(parts[:3]))
    raise BadName(f"{directory!r} is not the directory of a tist")


def look(directories: Directories, path: str) -> str | os.stat_result | None:
    """The text of a link at a relative path, the stat result of anything else, or None if there is nothing."""
    directory, _, name = path.rpartition("/")
    fd = directories.find(directory)
    if fd is None:
        return None
    with storage_errors(f"{directories.layout.root}/{path}"), suppress(FileNotFoundError):
        state = os.lstat(name, dir_fd=fd)
        return os.readlink(name, dir_fd=fd) if stat.S_ISLNK(state.st_mode) else state
    return None


def _variant(directories: Directories, path: str, id: str | None) -> str | None:  # noqa: A002
    """The path of the same URL with or without its trailing slash, None if there is nothing."""
    other = slash_variant(id) if id is not None and is_url(id) and id.count("/") > 2 else None
    if other is None:
        return None
    layout = directories.layout
    there = layout.path(tist_of_directory(layout, path.rpartition("/")[0]), other)
    return there if look(directories, there) is not None else None


def _goal(layout: Layout, path: str, text: str) -> str | DeadLink:
    """The target of a link at ``path``, computed from its text; directories are never links."""
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
    with suppress(BadName):
        if parts and _NAME.fullmatch(parts[-1]):
            tist_of_directory(layout, goal.rpartition("/")[0])
            return goal
    return DeadLink("escapes", path, f"is a link to {shown(goal)}, where no object can be")


def shown(text: str) -> str:
    """Text from outside for a message: ASCII, and truncated."""
    return ascii(text if len(text) <= 200 else text[:200] + "...")
