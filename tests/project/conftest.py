"""Fixtures of the project's own tests."""

from __future__ import annotations

import pytest
from readme_blocks import Played, demo_output


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One demo for all tests that only look at what it left."""
    folder = tmp_path_factory.mktemp("demo") / "archive"
    return Played(folder, demo_output(folder))
