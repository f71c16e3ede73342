"""Fixtures of the tests of the access layer."""

from collections.abc import Iterator

import httpx
import pytest
from access_support import client


@pytest.fixture
def get(base: str) -> Iterator[httpx.Client]:
    """A client of the server of a module, at its fixture ``base``."""
    with client(base) as one:
        yield one
