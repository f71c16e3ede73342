"""Output: files that commands write for others to read, whole or not at all; and text that is safe to show."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from archec.errors import StorageFailed

__all__ = ["json_line", "shown", "whole", "write_whole"]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: object) -> str:
    """Text for a terminal: control characters, and those that turn the direction, are escaped."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def json_line(value: object) -> str:
    """A value as JSON on one line, as readable as may be on a terminal: what :func:`shown` escapes is escaped."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name beside its own, then renames it; mode 0644.

    So whoever reads it meanwhile, such as a collector of metrics, sees the old figures or the new ones. Raises
    :class:`StorageFailed`.
    """
    with whole(path, mode=0o644) as file:
        file.write(data)


@contextmanager
def whole(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to be written whole or not at all: it has its name when the block is left, and never after an error.

    ``mode``: of the file; else that of the file which is there already, or what the umask leaves. A name that is a
    device or a pipe (``/dev/null``) is written to as it is, a link's target is replaced, not the link. Raises
    :class:`StorageFailed`.
    """
    with _told(path):
        special = path.exists() and not path.is_file()
    if special:
        with _told(path), path.open("wb") as file:
            yield file
        return
    with _told(path):
        goal = Path(os.path.realpath(path))
        temp = goal.with_name(f".archec-{secrets.token_hex(8)}.part")
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with _told(path), open(fd, "wb") as file:
            yield file
            file.flush()
            if mode is not None or goal.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(goal.stat().st_mode) if mode is None else mode)
            os.fsync(file.fileno())
        with _told(path):
            os.replace(temp, goal)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what the system says of a file that is written into :class:`StorageFailed`."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"{path}: {error.strerror}") from error
