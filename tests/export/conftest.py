"""Fixtures of the export's tests: an archive gathered from a small site, and copies of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from export_support import World, clone, gather_world


@pytest.fixture(scope="session")
def pristine(memory_folder: Callable[[], Path]) -> World:
    """The archive as it was gathered; only to be read."""
    return gather_world(memory_folder() / "pristine")


@pytest.fixture
def world(pristine: World, memory_folder: Callable[[], Path]) -> World:
    """A copy of it, to be damaged or to grow."""
    return clone(pristine, memory_folder() / "copy")
