"""Fixtures of the tests of filesets: a platform on loopback, and an archive that knows it as Zenodo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fileset_platform import Platform, playing
from fileset_support import Filesets, make_archive


@pytest.fixture
def platform() -> Iterator[Platform]:
    with playing() as server:
        yield server


@pytest.fixture
def filesets(platform: Platform, folder: Path) -> Filesets:
    """An archive whose Zenodo is the played platform."""
    return make_archive(folder, platform)
