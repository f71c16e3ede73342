"""Removing what a run that was cut off left behind: temporary files, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable

from archec.store.directories import Directories
from archec.store.durable import Disk, failure, is_temp
from archec.store.layout import RUNS, Layout
from archec.tist import tist_path


def sweep_parts(layout: Layout, tists: Iterable[int]) -> int:
    """Removes the temporary files in the directories of these tists; how many there were.

    Only for who holds the run lock: another run's files on their way would go too.
    """
    disk = Disk()
    with Directories(layout) as directories:
        removed = 0
        for tist in tists:
            directory = tist_path(tist)
            removed += _sweep(directories, directory, disk)
            if layout.fanout:
                removed += sum(_sweep(directories, f"{directory}/{n:02x}", disk) for n in range(layout.fanout))
        return removed


def sweep_runs(layout: Layout) -> int:
    """Removes the temporary files beside the journals and in the root; how many there were."""
    disk = Disk()
    with Directories(layout) as directories:
        return _sweep(directories, RUNS, disk) + _sweep(directories, "", disk)


def _sweep(directories: Directories, directory: str, disk: Disk) -> int:
    fd = directories.find(directory)
    if fd is None:
        return 0
    where = f"{directories.layout.root}/{directory}"
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if is_temp(entry.name) and entry.is_file(follow_symlinks=False)]
        return sum(disk.unlink(name, fd, f"{where}/{name}") for name in names)
    except OSError as error:
        raise failure(error, where) from error
