"""Fixtures of the tests of gathering and of the command line."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archec.config import Config
from archec.demo.show import make_archive, play
from archec.gather.progress import Silent


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Makes fresh folders on a file system in memory where there is one: hundreds of small archives."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path_factory.getbasetemp())
    top = Path(tempfile.mkdtemp(prefix="archec-test-", dir=base))
    try:
        yield lambda: Path(tempfile.mkdtemp(dir=top))
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(scope="module")
def demo(memory_folder: Callable[[], Path]) -> Config:
    """The archive of the demo, after its three gatherings."""
    config = make_archive(memory_folder() / "demo")
    for _ in play(config, Silent()):
        pass
    return config
