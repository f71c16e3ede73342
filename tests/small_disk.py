"""A small file system of our own, for tests of full disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """Mounts a tmpfs with these options; skips the test where that is not possible."""
    place.mkdir(parents=True)
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        made = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        made = False
    if not made:
        pytest.skip("a small file system cannot be mounted here (it takes root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Writes a file until the disk is full."""
    with suppress(OSError), (place / "other").open("wb", buffering=0) as other:
        while True:
            other.write(bytes(4096))
