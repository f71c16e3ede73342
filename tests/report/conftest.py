"""Fixtures of the reports' tests: an empty catalogue of each engine, and an empty obi store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.store.layout import Layout, create


@pytest.fixture(params=["sqlite", "mongodb"])
def catalogue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalogue]:
    url = "sqlite:///c.sqlite" if request.param == "sqlite" else request.getfixturevalue("mongodb_url")
    with open_catalogue(url, base=tmp_path, create=True) as found:
        yield found


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return create(tmp_path / "archive")
