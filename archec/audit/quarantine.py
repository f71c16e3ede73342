"""Quarantine: what belongs nowhere, or is bad, is set aside below ``quarantine/``, with a record of where it lay.

It keeps its path there, and ``moved.jsonl`` says of each what was moved when and why. archec never reads it.
"""

from __future__ import annotations

import os
import time
from itertools import count

import orjson

from archec.audit.findings import Finding
from archec.errors import StorageFailed
from archec.redif.problems import shown
from archec.store.directories import Directories
from archec.store.durable import Disk, append_durably, failure
from archec.store.layout import Layout

QUARANTINE = "quarantine"
"""The directory in the archive folder where what is set aside goes."""

_RECORD = "moved.jsonl"


def set_aside(layout: Layout, path: str, why: Finding, disk: Disk | None = None) -> str | None:
    """Moves what lies at a relative path to quarantine, durably; its new path, None where there was nothing.

    Where something was moved from this path before, ``again-2``, ``again-3`` ... stand before the path. ``why`` goes
    into the record. Only while holding the run lock. Raises :class:`StorageFailed` where it cannot be moved.
    """
    disk = disk or Disk()
    directory, _, name = path.rpartition("/")
    with Directories(layout, disk) as directories:
        old_fd = directories.find(directory)
        if old_fd is None:
            return None
        try:
            os.lstat(name, dir_fd=old_fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, f"{layout.root}/{path}") from error
        for number in count(1):
            parts = (QUARANTINE, f"again-{number}" if number > 1 else "", directory)
            goal = "/".join(filter(None, parts))
            new_fd = directories.make(goal)
            done = disk.rename_noreplace(name, old_fd, name, new_fd, f"{layout.root}/{goal}/{name}")
            if done == "exists":
                continue
            if done == "gone":
                raise StorageFailed(f"{layout.root}/{path}: disappeared while it was to be moved to quarantine")
            _sync(layout, directories, disk, goal)
            disk.fsync_dir(old_fd, f"{layout.root}/{directory}")
            _record(layout, f"{goal}/{name}", path, why, disk)
            return f"{goal}/{name}"
    raise AssertionError("count() has no end")


def _sync(layout: Layout, directories: Directories, disk: Disk, goal: str) -> None:
    """Makes the names of a directory and of all above it durable: any of them may be new."""
    while True:
        disk.fsync_dir(directories.make(goal), f"{layout.root}/{goal}")
        if not goal:
            return
        goal = goal.rpartition("/")[0]


def _record(layout: Layout, moved: str, path: str, why: Finding, disk: Disk) -> None:
    line = {
        "time": int(time.time()), "path": shown(path), "moved": shown(moved),
        "finding": why.code, "message": why.message, "sha256": why.sha256, "found": why.found,
    }  # fmt: skip
    append_durably(layout.root / QUARANTINE / _RECORD, orjson.dumps(line) + b"\n", disk=disk)
