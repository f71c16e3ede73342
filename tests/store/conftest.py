"""Fixtures of the obi store's tests: a store of either layout, a writer, a fake disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_fakes import FakeDisk

from archec.store.layout import Layout, create
from archec.store.writer import Writer


@pytest.fixture
def fake_disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture(params=[0, 256], ids=["flat", "fan"])
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    return create(tmp_path / "archive", fanout=request.param)


@pytest.fixture
def flat(tmp_path: Path) -> Layout:
    return create(tmp_path / "archive")


@pytest.fixture
def writer(layout: Layout) -> Iterator[Writer]:
    with Writer(layout) as made:
        yield made


@pytest.fixture
def names_in() -> Callable[[Layout], dict[str, str | bytes]]:
    """All that lies in a store but its own files: relative path -> bytes, or the text of a link as str."""

    def walk(layout: Layout) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = {}
        for folder, _, files in os.walk(layout.root):
            for name in files:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, layout.root)
                if relative.count("/") < 3:
                    continue
                found[relative] = os.readlink(path) if os.path.islink(path) else Path(path).read_bytes()
        return found

    return walk
