"""Quarantine: unexpected and bad files are moved below ``quarantine/``, with a record of their original place.

They keep their paths there, and ``moved.jsonl`` records what was moved, when and why. archec never reads them. Which
unexpected files are moved is decided by :mod:`archec.audit.check`, which bad ones by :mod:`archec.audit.repair`.
"""

from __future__ import annotations

import os
import time
from itertools import count

import orjson

from archec.audit.findings import Finding
from archec.errors import StorageFailed, storage_errors
from archec.redif.problems import shown
from archec.store.durable import Disk, append_durably
from archec.store.layout import Directories, Layout

QUARANTINE = "quarantine"
"""The quarantine directory in the archive directory."""

_RECORD = "moved.jsonl"


def quarantine(layout: Layout, path: str, why: Finding) -> str | None:
    """Moves the file at a relative path to quarantine, durably; returns its new path, None if there was nothing.

    If something was moved from this path before, the path is prefixed with ``again-2``, ``again-3`` ... ``why`` is
    recorded. Only while holding the run lock. Raises :class:`StorageFailed` if it cannot be moved.
    """
    disk = Disk()
    directory, _, name = path.rpartition("/")
    with Directories(layout, disk) as directories:
        old_fd = directories.find(directory)
        if old_fd is None:
            return None
        with storage_errors(f"{layout.root}/{path}"):
            try:
                os.lstat(name, dir_fd=old_fd)
            except FileNotFoundError:
                return None
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
    """Syncs a directory and all of its parents, because any of them may be new."""
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
