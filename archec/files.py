"""Opens files that may have been replaced by something else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_file(path: str | Path) -> BinaryIO:
    """A file, open for reading. It never waits for a named pipe, nor opens a device, that is in its place.

    Raises OSError.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "is not a file")
    # It may be replaced in between; of a directory this says what it is.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def read_file(path: str | Path, most: int = -1) -> bytes:
    """The bytes of a small file, or its first ``most``. Raises OSError, like :func:`open_file`."""
    with open_file(path) as file:
        return file.read(most)
