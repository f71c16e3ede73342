"""Fixtures of the tests of gathering."""

from pathlib import Path

import pytest
from gather_support import make

from archec.config import Config


@pytest.fixture
def config(folder: Path) -> Config:
    """A fresh archive."""
    return make(folder / "archive")
