"""SQLite files that this process cannot write, such as those on a read-only mount: whether, why, and how to read them.

An SQLite file with a write-ahead log is read with the help of ``-shm`` beside it, which even a reader makes. Where it
cannot be made and there is no log with anything in it, SQLite is told that the file does not change (``immutable``).
Else it must have both files as the last writer left them.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["reading_uri", "unwritable"]


def unwritable(path: Path) -> str:
    """Why the SQLite file at ``path``, there or still to be made, cannot be written; empty where it can.

    SQLite writes its folder, too. A folder that is not there is judged by the first one above it that is.
    """
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    for one in (folder, path):
        if one.exists() and not os.access(one, os.W_OK):
            try:
                read_only = bool(os.statvfs(one).f_flag & os.ST_RDONLY)
            except OSError:
                read_only = False
            return f"{one} is on a read-only file system" if read_only else f"no permission to write {one}"
    return ""


def reading_uri(path: Path) -> str:
    """The URI by which SQLite reads a file that this process cannot write."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    try:
        live = log.exists() and (log.stat().st_size > 0 or index.exists())
    except OSError:
        live = True
    return f"{path.as_uri()}?mode=ro" + ("" if live else "&immutable=1")
