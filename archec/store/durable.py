"""Every durable operation of archec: the one layer above the file system.

POSIX guarantees little: bytes are on disk after ``fsync`` of the file, a name is on disk after
``fsync`` of its directory, and only ``rename`` creates a complete file atomically. :class:`Disk` holds these
operations one by one, so that tests can record or break each; :func:`atomic_write` combines them
for a single small file. Names are relative to an open directory; ``path`` is for messages only.

Errors of the operating system become those of :func:`archec.errors.failure`, which name the path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Literal

from archec.errors import failure, storage_errors

Data = bytes | bytearray | memoryview

_RENAME_NOREPLACE = 1
_SYNC_FILE_RANGE_WRITE = 2
_FUSE = 0x65735546
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_LINK = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | _AT_ONCE
_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TEMP = re.compile(r"\.\+[0-9]+-[0-9]+\.part")


def temp_name(n: int) -> str:
    """A temporary name of this process: ``.+<process id>-<n>.part``.

    The ``+`` distinguishes it from all names of obis: an escaped id never contains one.
    """
    return f".+{os.getpid()}-{n}.part"


def is_temp(name: str) -> bool:
    """Whether a file name has the form of :func:`temp_name`."""
    return _TEMP.fullmatch(name) is not None


def _libc_function(name: str, *argtypes: Any) -> Callable[..., int] | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        return None
    function.argtypes = argtypes
    function.restype = ctypes.c_int
    call: Callable[..., int] = function
    return call


class Disk:
    """The durable operations of the file system. Tests replace it by a recording one."""

    def __init__(self) -> None:
        self._syncfs = _libc_function("syncfs", ctypes.c_int)
        self._sync_file_range = _libc_function(
            "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
        )
        self._renameat2 = _libc_function(
            "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
        )

    # -- creating and writing files -----------------------------------------------------------------

    def create(self, name: str, dir_fd: int, path: str) -> int | None:
        """A new file, open for writing, read-only for everyone else; None if the name is taken."""
        with storage_errors(path), suppress(FileExistsError):
            return os.open(name, _NEW, 0o444, dir_fd=dir_fd)
        return None

    def reopen(self, name: str, dir_fd: int, path: str, *, append: bool) -> int | None:
        """An existing file, open for reading, or also for appending although it is read-only for its owner, too; None
        if it does not exist."""
        with storage_errors(path), suppress(FileNotFoundError):
            fd = os.open(name, _READ, dir_fd=dir_fd)
            if not append:
                return fd
            try:
                mode = stat.S_IMODE(os.fstat(fd).st_mode)
                os.fchmod(fd, mode | stat.S_IWUSR)
                try:
                    return os.open(name, _APPEND, dir_fd=dir_fd)
                finally:
                    os.fchmod(fd, mode)
            finally:
                os.close(fd)
        return None

    def write(self, fd: int, data: Data, path: str) -> None:
        """Writes all of ``data``."""
        with storage_errors(path):
            while (done := os.write(fd, data)) != len(data):
                data = memoryview(data)[done:]

    def close(self, fd: int, path: str) -> None:
        """Closes the file; a network file system may report a failed write only now."""
        with storage_errors(path):
            os.close(fd)

    def truncate(self, fd: int, size: int, path: str) -> None:
        with storage_errors(path):
            os.ftruncate(fd, size)

    # -- durability ---------------------------------------------------------------------------

    def has_syncfs(self, fd: int) -> bool:
        """Whether ``syncfs`` can be trusted on this file system.

        It can since Linux 5.8, where it reports failed writes, but not on FUSE, where it does not reach the
        process behind the mount.
        """
        if self._syncfs is None or _kernel() < (5, 8):
            return False
        statfs = _libc_function("fstatfs", ctypes.c_int, ctypes.c_char_p)
        buffer = ctypes.create_string_buffer(512)
        if statfs is None or statfs(fd, buffer) != 0:
            return False
        return ctypes.c_long.from_buffer(buffer).value != _FUSE

    def syncfs(self, fd: int, path: str) -> None:
        """Syncs everything written so far on the file system of ``fd``.

        Reports writes that failed since ``fd`` was opened: keep one open from before the first.
        """
        if self._syncfs is None:
            raise failure(OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)), path)
        if self._syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise failure(OSError(number, os.strerror(number)), path)

    def fsync(self, fd: int, path: str) -> None:
        with storage_errors(path):
            os.fsync(fd)

    def begin_sync(self, fd: int) -> None:
        """Starts writing a file to the disk without waiting; a hint that may have no effect.

        Without it, all bytes of a batch would be written at its end, while everything waits.
        """
        if self._sync_file_range is not None:
            self._sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)

    def fdatasync(self, fd: int, path: str) -> None:
        """Syncs the bytes and the size of one file."""
        with storage_errors(path):
            os.fdatasync(fd)

    def fsync_dir(self, fd: int, path: str) -> None:
        """Syncs the names in a directory."""
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems: names are durable at once
                raise failure(error, path) from error

    # -- names ------------------------------------------------------------------------------------

    def mkdir(self, name: str, dir_fd: int, path: str) -> None:
        """Creates a directory, unless it exists."""
        with storage_errors(path), suppress(FileExistsError):
            os.mkdir(name, dir_fd=dir_fd)

    def rename_noreplace(
        self, old: str, old_fd: int, new: str, new_fd: int, path: str
    ) -> Literal["done", "exists", "gone"]:
        """Renames without overwriting: ``exists`` if ``new`` exists, ``gone`` if ``old`` does not.

        If the kernel or the file system lacks RENAME_NOREPLACE, the name is looked up first; the
        archive's lock prevents races.
        """
        # ``link`` and then ``unlink`` would not overwrite either, but not every file system has hard links, and a kill
        # between the two leaves both names. Python has no binding for renameat2.
        if self._renameat2 is not None:
            if self._renameat2(old_fd, os.fsencode(old), new_fd, os.fsencode(new), _RENAME_NOREPLACE) == 0:
                return "done"
            number = ctypes.get_errno()
            if number == errno.EEXIST:
                return "exists"
            if number == errno.ENOENT:
                return "gone"
            if number not in _UNSUPPORTED:
                raise failure(OSError(number, os.strerror(number)), path)
        with storage_errors(path):
            with suppress(FileNotFoundError):
                os.lstat(new, dir_fd=new_fd)
                return "exists"
            with suppress(FileNotFoundError):
                os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)
                return "done"
        return "gone"

    def replace(self, old: str, new: str, dir_fd: int, path: str) -> None:
        """Renames within a directory and replaces an existing file: never used for the name of an obi."""
        with storage_errors(path):
            os.replace(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def symlink(self, target: str, name: str, dir_fd: int, path: str) -> bool:
        """Creates a symbolic link; False if the name exists."""
        with storage_errors(path), suppress(FileExistsError):
            os.symlink(target, name, dir_fd=dir_fd)
            return True
        return False

    def link(
        self, old: str, old_fd: int, new: str, new_fd: int, path: str
    ) -> Literal["done", "exists", "gone", "refused"]:
        """Creates a hard link; ``refused`` if the file system does not support it (or its limit is reached)."""
        try:
            os.link(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)
        except FileExistsError:
            return "exists"
        except FileNotFoundError:
            return "gone"
        except OSError as error:
            if error.errno in _NO_LINK:
                return "refused"
            raise failure(error, path) from error
        return "done"

    def unlink(self, name: str, dir_fd: int, path: str) -> bool:
        """Removes a name; False if it does not exist. Only for temporary files and the plain form of finished
        journals."""
        with storage_errors(path), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=dir_fd)
            return True
        return False


def _kernel() -> tuple[int, int]:
    match = re.match(r"([0-9]+)\.([0-9]+)", os.uname().release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def create_temp(
    disk: Disk, dir_fd: int, directory: str, numbers: Iterator[int] | None = None
) -> tuple[int, str]:
    """A new temporary file in an open directory, and its name with the next free number of ``numbers``."""
    numbers = numbers or count()
    while True:
        name = temp_name(next(numbers))
        fd = disk.create(name, dir_fd, directory)
        if fd is not None:
            return fd, name


@contextmanager
def open_directory(path: str | Path) -> Iterator[int]:
    """An open directory, closed at the end of the block."""
    with storage_errors(path):
        fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def temporary_file(disk: Disk, dir_fd: int, directory: str) -> Iterator[tuple[int, str]]:
    """A new temporary file, open for writing, and its name. The block must rename it; it is closed at the end of the
    block, and removed after an exception."""
    fd, name = create_temp(disk, dir_fd, directory)
    try:
        yield fd, name
    except BaseException:
        disk.unlink(name, dir_fd, f"{directory}/{name}")
        raise
    finally:
        os.close(fd)


def fsync_file(path: str | Path, *, disk: Disk | None = None) -> None:
    """Syncs a file. Does nothing if it is gone."""
    where = os.fspath(path)
    with storage_errors(where), suppress(FileNotFoundError):
        fd = os.open(where, _READ)
        try:
            (disk or Disk()).fsync(fd, where)
        finally:
            os.close(fd)


def fsync_dir(path: str | Path, *, disk: Disk | None = None) -> None:
    """Syncs the names in the directory at ``path``."""
    with open_directory(path) as fd:
        (disk or Disk()).fsync_dir(fd, os.fspath(path))


@contextmanager
def _taking_place(disk: Disk, where: str, *, once: bool = False) -> Iterator[int]:
    """A temporary file, open for writing, that durably replaces ``where`` at the end of the block, or not at all after
    an exception. With ``once`` it does not replace an existing file, but raises FileExistsError."""
    folder, name = os.path.split(where)
    folder = folder or "."
    with open_directory(folder) as dir_fd:
        with temporary_file(disk, dir_fd, folder) as (fd, temp):
            yield fd
            disk.fsync(fd, where)
            if not once:
                disk.replace(temp, name, dir_fd, where)
            elif disk.rename_noreplace(temp, dir_fd, name, dir_fd, where) != "done":
                raise FileExistsError(where)
        disk.fsync_dir(dir_fd, folder)


def atomic_write(path: str | Path, data: bytes, *, disk: Disk | None = None) -> None:
    """Writes a small file atomically and durably; replaces an existing one.

    Not for obis: those go through :class:`archec.store.writer.Writer`, which never replaces.
    """
    disk, where = disk or Disk(), os.fspath(path)
    with _taking_place(disk, where) as fd:
        disk.write(fd, data, where)


def write_once(path: str | Path, data: bytes, *, mode: int) -> bool:
    """Writes a small file atomically and durably, with this mode from the start; returns False if it exists."""
    disk, where = Disk(), os.fspath(path)
    try:
        with _taking_place(disk, where, once=True) as fd:
            with storage_errors(where):
                os.fchmod(fd, mode)
            disk.write(fd, data, where)
    except FileExistsError:
        return False
    return True


def append_durably(path: str | Path, data: bytes, *, disk: Disk) -> None:
    """Appends to a small file, which is created if it does not exist. A kill may leave a part of ``data``."""
    where = os.fspath(path)
    with storage_errors(where):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _AT_ONCE, 0o644)
    try:
        disk.write(fd, data, where)
        disk.fsync(fd, where)
    finally:
        os.close(fd)
    fsync_dir(os.path.dirname(where) or ".", disk=disk)


def _mode(created: int, path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return stat.S_IMODE(os.fstat(created).st_mode) | stat.S_IWUSR


@contextmanager
def atomic_stream(path: str | Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file of any size that durably replaces ``path`` at the end of the block, or not at all after an exception.

    ``mode`` is its mode from the start. The default is the mode of the file it replaces, or else read permission for
    everybody and write permission for the owner, as limited by the umask."""
    where = os.fspath(path)
    with _taking_place(Disk(), where) as fd, storage_errors(where), open(fd, "wb", closefd=False) as file:
        os.fchmod(fd, _mode(fd, where) if mode is None else mode)
        yield file


@contextmanager
def open_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name at the end of the block, or not at all after an error.

    Its mode is that of :func:`atomic_stream`. A device or a pipe (``/dev/null``) is written to
    directly; for a link the target is replaced, not the link. Raises :class:`StorageFailed`.
    """
    with storage_errors(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
    with atomic_stream(path.resolve()) as file:
        yield file


# -- steps at which a test can kill the process, as a power cut or kill -9 would -----------------
# Nothing is armed unless a test has called arm(); an unarmed fail point costs one lookup in an empty map.

_armed: dict[str, int] = {}
"""Number of hits that each armed fail point still survives; process-wide."""
_signals: dict[str, int] = {}


def arm(name: str, times: int = 1, number: int = signal.SIGKILL) -> None:
    """Makes the ``times``-th ``hit(name)`` from now on kill this process, or send it another signal."""
    if times < 1:
        raise ValueError(f"a fail point is hit once or more, not {times} times")
    _armed[name], _signals[name] = times, number


def armed(name: str) -> bool:
    """Whether the next ``hit(name)`` kills, for a step that is to be killed in the middle."""
    return _armed.get(name) == 1


def hit(name: str) -> None:
    """Kills the process with the signal of this fail point, if it is armed and its count is reached."""
    if name in _armed:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), _signals[name])
