"""A small file system of our own, for tests of full disks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """Mounts a tmpfs with these options; skips the test where that is not possible."""
    with _mounted(place, "-t", "tmpfs", "-o", options, "none"):
        yield place


@contextmanager
def disk_in(image: Path, place: Path) -> Iterator[Path]:
    """Mounts the ext4 file system in a file, which is made if it is not there. A copy of the file has what a power
    failure would leave: what was not synced is kept in memory for minutes, and renames do not sync by themselves."""
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(64 << 20)
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("there is no mkfs.ext4 here")
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
    with _mounted(place, "-o", "loop,data=writeback,noauto_da_alloc,commit=300", str(image)):
        yield place


@contextmanager
def _mounted(place: Path, *what: str) -> Iterator[None]:
    place.mkdir(parents=True)
    try:
        command = ["mount", *what, str(place)]
        made = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        made = False
    if not made:
        pytest.skip("a small file system cannot be mounted here (it takes root)")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Writes a file until the disk is full."""
    with suppress(OSError), (place / "other").open("wb", buffering=0) as other:
        while True:
            other.write(bytes(4096))
