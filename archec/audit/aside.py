"""Moving aside: a bad file goes to ``quarantine/`` under its own path, whole, before a good one takes its place."""

from __future__ import annotations

import os
from itertools import count

from archec.audit.walk import QUARANTINE
from archec.errors import StorageFailed
from archec.store.directories import Directories
from archec.store.durable import Disk, failure
from archec.store.layout import Layout

__all__ = ["move_aside"]


def move_aside(layout: Layout, path: str, disk: Disk) -> str | None:
    """Moves what lies at a relative path to quarantine, durably; its new path, None where there was nothing.

    Where a file was moved aside from this path before, ``again-2``, ``again-3`` ... stand before the path.
    Only for who holds the run lock.
    """
    directory, _, name = path.rpartition("/")
    with Directories(layout, disk) as directories:
        old_fd = directories.make(directory)
        try:
            os.lstat(name, dir_fd=old_fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, f"{layout.root}/{path}") from error
        for number in count(1):
            goal = f"{QUARANTINE}/{directory}" if number == 1 else f"{QUARANTINE}/again-{number}/{directory}"
            new_fd = directories.make(goal)
            done = disk.rename_noreplace(name, old_fd, name, new_fd, f"{layout.root}/{goal}/{name}")
            if done == "exists":
                continue
            if done == "gone":
                raise StorageFailed(f"{layout.root}/{path}: has gone while it was to be moved aside")
            _sync(layout, directories, disk, goal)
            disk.fsync_dir(old_fd, f"{layout.root}/{directory}")
            return f"{goal}/{name}"
    raise AssertionError("count() has no end")


def _sync(layout: Layout, directories: Directories, disk: Disk, directory: str) -> None:
    """Brings a directory and those above it to the disk: they may be new."""
    while True:
        disk.fsync_dir(directories.make(directory), f"{layout.root}/{directory}")
        if not directory:
            return
        directory = directory.rpartition("/")[0]
