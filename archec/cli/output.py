"""Output: files that commands write for others to read, whole or not at all; and text that is safe to show."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from archec.errors import StorageFailed

__all__ = ["shown", "write_whole"]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: object) -> str:
    """Text for a terminal: control characters, and those that turn the direction, are escaped."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name beside its own, then renames it; mode 0644.

    Whoever reads the file sees the old contents or the new ones. Raises :class:`StorageFailed`.
    """
    temp = ""
    try:
        fd, temp = tempfile.mkstemp(prefix=".archec-", suffix=".part", dir=path.parent)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(temp, path)
    except OSError as error:
        if temp:
            with suppress(OSError):
                os.unlink(temp)
        raise StorageFailed(f"{path}: {error.strerror}") from error
