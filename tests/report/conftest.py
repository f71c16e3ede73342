"""Fixtures of the reports' tests: an empty catalogue of each engine, and an empty obi store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report_data import Place

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.store.layout import Layout, create


@pytest.fixture(params=["sqlite", "mongodb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    url = "sqlite:///c.sqlite" if request.param == "sqlite" else request.getfixturevalue("mongodb_url")
    catalogue = open_catalogue(url, base=tmp_path, create=True)
    yield Place(catalogue, url, tmp_path)
    catalogue.close()


@pytest.fixture
def catalogue(place: Place) -> Catalogue:
    return place.catalogue


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return create(tmp_path / "archive")
