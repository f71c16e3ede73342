"""Output files of commands, written atomically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from archec.store.durable import atomic_stream, storage_errors


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

    ``mode`` is that of :func:`archec.store.durable.atomic_stream`. A device or a pipe (``/dev/null``) is written to
    directly; for a link the target is replaced, not the link. Raises :class:`StorageFailed`.
    """
    with storage_errors(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
    with atomic_stream(path.resolve(), mode=mode) as file:
        yield file
