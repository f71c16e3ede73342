"""Fixtures of the tests of hostile input, which share what the tests of gathering and of the fetcher have."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for _room in ("gather", "fetch"):
    sys.path.append(str(Path(__file__).parents[1] / _room))

from gather_fixtures import memory_folder as memory_folder  # noqa: E402 - the path is set just above


@pytest.fixture
def folder(memory_folder: Callable[[], Path]) -> Path:
    """A fresh folder."""
    return memory_folder()


@pytest.fixture
def site() -> Iterator[object]:
    """A web server on loopback whose answers a test sets."""
    from gather_site import Site

    with Site() as made:
        yield made
