"""Fixtures of the audit's tests: one archive with all that an archive can hold, gathered once and copied."""

from collections.abc import Callable
from pathlib import Path

import pytest
from audit_support import World, clone, gather_world


@pytest.fixture(scope="session")
def pristine(memory_folder: Callable[[], Path]) -> World:
    """The archive as it was gathered; only to be read."""
    return gather_world(memory_folder() / "pristine")


@pytest.fixture
def world(pristine: World, memory_folder: Callable[[], Path]) -> World:
    """A copy of it, to be damaged."""
    return clone(pristine, memory_folder() / "damaged")
