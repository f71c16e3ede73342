"""Fixtures of the tests of hostile input."""

from collections.abc import Iterator

import pytest
from gather_site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server on loopback whose answers a test sets."""
    with Site() as made:
        yield made
