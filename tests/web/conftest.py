"""One hostile server for the tests of the fetcher."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from web_hostile import Hostile, hostile_server


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with hostile_server(3) as server:
        yield server
