"""Output files of commands, written atomically."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from archec.errors import StorageFailed


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file of mode 0644, replacing an existing one.

    A program that reads it at the same time, such as a metrics collector, sees the old contents or the new ones. Raises
    :class:`StorageFailed`.
    """
    with open_whole(path, mode=0o644) as file:
        file.write(data)


@contextmanager
def open_whole(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file that gets its name at the end of the block, or not at all after an error.

    ``mode`` is its mode; by default that of the file it replaces, or as set by the umask. A device or a pipe
    (``/dev/null``) is written to directly; for a link the target is replaced, not the link. Raises
    :class:`StorageFailed`.
    """
    with _translated(path):
        special = path.exists() and not path.is_file()
    if special:
        with _translated(path), path.open("wb") as file:
            yield file
        return
    with _translated(path):
        goal = Path(os.path.realpath(path))
        temp = goal.with_name(f".archec-{secrets.token_hex(8)}.part")
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with _translated(path), open(fd, "wb") as file:
            yield file
            file.flush()
            if mode is not None or goal.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(goal.stat().st_mode) if mode is None else mode)
            os.fsync(file.fileno())
        with _translated(path):
            os.replace(temp, goal)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raises an OSError as :class:`StorageFailed`."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"{path}: {error.strerror}") from error
