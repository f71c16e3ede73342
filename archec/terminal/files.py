"""Output files of commands, written atomically."""

from __future__ import annotations

from pathlib import Path

from archec.store.durable import open_whole


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file of mode 0644, replacing an existing one.

    A program that reads it at the same time, such as a metrics collector, sees the old contents or the new ones. Raises
    :class:`StorageFailed`.
    """
    with open_whole(path, mode=0o644) as file:
        file.write(data)
