"""Opens a data set as a source: a directory tree, which is read here, or a tarball.

A directory tree is read in byte order of the names; links are never followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from archec.errors import DataSetError, hint_of, is_out_of_resources, unreadable_directory
from archec.redif.files import (
    PART,
    Blob,
    DataSetSource,
    Directory,
    Item,
    Known,
    Other,
    Unread,
    in_parts,
    template_names,
)
from archec.redif.tarball import Tarball

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 64
_CHUNK = 512 * 1024


Unchanged = Callable[[str, os.stat_result], bool]
"""Whether a file, given its path and status, has not changed since it was read before."""


def open_source(
    path: Path, *, max_file: int, patterns: Sequence[str] = (), unchanged: Unchanged | None = None
) -> DataSetSource:
    """Opens the data set at ``path``: a directory, or a tarball, plain or compressed by gzip, zstd, xz or bzip2.

    The content decides, not the name; ``path`` itself may be a symbolic link. Files of more than ``max_file`` bytes
    are not read; ``patterns`` match further files that count besides ``.rdf`` and ``.redif``. Files of a directory for
    which ``unchanged`` is true are ``Known``. Raises DataSetError if ``path`` cannot be read as a data set.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataSetError(f"cannot open the data set {path}: {reason}") from error
    if stat.S_ISDIR(mode):
        return DirectoryTree(path, max_file=max_file, patterns=patterns, unchanged=unchanged)
    if stat.S_ISREG(mode):
        return Tarball(path, max_file=max_file, patterns=patterns)
    raise DataSetError(f"{path} is neither a directory nor a tarball")


class DirectoryTree(DataSetSource):
    """A directory as a source. Raises DataSetError if the root cannot be opened.

    Every file is opened relative to its open directory, so that nothing moved or replaced by a link in the meantime
    can lead out of the tree. The names of one directory per level are in memory, and the path of each directory: one
    in which names have come or gone until everything is read is ``Unread``, as what is missing in it may have been
    moved to where it was not seen.
    """

    def __init__(
        self, path: Path, *, max_file: int, patterns: Sequence[str] = (), unchanged: Unchanged | None = None
    ) -> None:
        super().__init__()
        self._max_file = max_file
        self._unchanged = unchanged
        self._counts = template_names(patterns)
        self._now = int(time.time())
        self._member = 0
        self._open: list[int] = []
        self._read_at: list[tuple[str, int]] = []
        self._items: Generator[Item, None, None] | None = None
        try:
            root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._open.append(root)
            os.scandir(root).close()
        except OSError as error:
            self.close()
            raise unreadable_directory(path, error) from error
        self._items = self._read(root)

    def __iter__(self) -> Iterator[Item]:
        return iter(()) if self._items is None else self._items

    def close(self) -> None:
        if self._items is not None:
            self._items.close()
            self._items = None
        while self._open:
            os.close(self._open.pop())

    def _read(self, root: int) -> Generator[Item, None, None]:
        for item in chain(self._below(root, ""), self._changed(root)):
            yield item._replace(member=self._member) if type(item) is Unread else item
        self.whole = True

    def _below(self, directory: int, prefix: str) -> Iterator[Item]:
        self._read_at.append((prefix or "./", os.stat(directory).st_ctime_ns))
        try:
            names, kinds = _listing(directory)
        except OSError as error:
            yield Unread.of(prefix or "./", *_why(error))
            return
        for name in names:
            path = prefix + name
            kind = kinds.get(name, "file")
            self._member += 1
            if kind == "link":
                yield Unread.of(path, "link", "a symbolic link, which is not followed")
            elif kind != "directory" and not self._counts(path):
                yield Other(path)
            elif not name.isascii() and any("\udc80" <= char <= "\udcff" for char in name):
                yield Unread.of(path + "/" * (kind == "directory"), "bad-name", "the name is not UTF-8")
            elif kind == "directory":
                yield from self._descend(directory, name, path)
            elif kind == "other":
                yield Unread.of(path, "bad-member", "a device, pipe or socket")
            else:
                yield from self._file(directory, name, path)

    def _changed(self, root: int) -> Iterator[Item]:
        """The directories that have changed since they were read. Unlike their times, rsync does not reset ctime."""
        for prefix, ctime in self._read_at:
            try:
                if os.stat(prefix, dir_fd=root).st_ctime_ns == ctime:
                    continue
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:  # unlike the parts of which it was opened
                    continue
            self._member += 1
            yield Unread.of(prefix, "changed-while-reading", "files or directories in it came or went")

    def _descend(self, parent: int, name: str, path: str) -> Iterator[Item]:
        if len(self._open) > _MAX_DEPTH:
            yield Unread.of(path + "/", "too-deep", f"archec descends {_MAX_DEPTH} levels")
            return
        try:
            directory = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except OSError as error:
            yield Unread.of(path + "/", *_why(error))
            return
        self._open.append(directory)
        yield Directory(path + "/")
        yield from self._below(directory, path + "/")
        os.close(self._open.pop())

    def _file(self, directory: int, name: str, path: str) -> Iterator[Item]:
        if self._unchanged is not None:
            with suppress(OSError):  # opening the file will report the error
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if self._unchanged(path, status):
                    self.files += 1
                    self.bytes_read += status.st_size
                    yield Known(path, self._member)
                    return
        try:
            file = os.open(name, _OPEN_FILE, dir_fd=directory)
        except OSError as error:
            yield Unread.of(path, *_why(error))
            return
        try:
            status = os.fstat(file)
            mtime = int(status.st_mtime)
            if self.newest < mtime <= self._now:
                self.newest = mtime
            for item in read_file(file, status, path, self._member, self._max_file):
                if isinstance(item, Blob) and item.part == 0:
                    self.files += 1
                    self.bytes_read += status.st_size
                yield item
        finally:
            os.close(file)


def open_below(root: Path, path: str) -> int:
    """Opens a file below a directory without following links. Raises OSError."""
    *directories, name = path.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for directory in directories:
            below = os.open(directory, _OPEN_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, _OPEN_FILE, dir_fd=here)
    finally:
        os.close(here)


def read_file(file: int, status: os.stat_result, path: str, member: int, max_file: int) -> Iterator[Blob | Unread]:
    """The blobs of an open file; ``status`` is its ``fstat`` result from when it was opened."""
    size = status.st_size
    try:
        if not stat.S_ISREG(status.st_mode):
            yield Unread.of(path, "bad-member", "a device, pipe or socket")
            return
        if size > max_file:
            yield Unread.of(path, "too-large", f"{size} bytes are more than max_file = {max_file}")
        elif size > PART:
            yield from in_parts(path, member, _chunks(file, size))
        else:
            yield Blob(path, b"".join(_chunks(file, size)), 0, True, 1, member)
    except _Changed:
        yield Unread.of(path, "changed-while-reading", f"it had {size} bytes when it was opened")
    except OSError as error:
        yield Unread.of(path, *_why(error))


class _Changed(Exception):
    """The file no longer has the size it had when it was opened."""


def _chunks(file: int, size: int) -> Iterator[bytes]:
    have, most = 0, 0
    while have <= size:
        most = min(size - have, _CHUNK) + 1
        chunk = os.read(file, most)
        have += len(chunk)
        if not chunk or have > size:
            break
        yield chunk
        if have == size and len(chunk) < most:
            return  # the end was seen
    if have != size:
        raise _Changed


def _listing(directory: int) -> tuple[list[str], dict[str, str]]:
    """The names in a directory in byte order, and the kinds of those that are not regular files."""
    names: list[str] = []
    kinds: dict[str, str] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            names.append(name)
            if entry.is_symlink():
                kinds[name] = "link"
            elif entry.is_dir(follow_symlinks=False):
                kinds[name] = "directory"
            elif not entry.is_file(follow_symlinks=False):
                kinds[name] = "other"
    names.sort(key=os.fsencode)
    return names, kinds


def _why(error: OSError) -> tuple[str, str]:
    """The code and message for a file or directory that cannot be read. Raises DataSetError if the fault is not its."""
    if is_out_of_resources(error):
        raise DataSetError(f"cannot read the data set: {error.strerror}", hint=hint_of(error, ""))
    if error.errno == errno.ELOOP:
        return "link", "a symbolic link, which is not followed"
    if error.errno == errno.ENOENT:
        return "changed-while-reading", "it vanished before it could be opened"
    return "unreadable", f"cannot be read: {error.strerror}"
