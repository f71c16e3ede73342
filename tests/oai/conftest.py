"""Fixtures of the tests of OAI-PMH."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oai_support import World, file, paper


@pytest.fixture
def memory_path(memory_folder: Callable[[], Path]) -> Path:
    return memory_folder()


@pytest.fixture
def world(memory_path: Path) -> Iterator[World]:
    """An empty repository."""
    made = World(memory_path / "world")
    yield made
    made.close()


@pytest.fixture
def small(world: World) -> World:
    """A repository with some of everything: templates of three kinds, files, losses."""
    world.show(
        paper("RePEc:aaa", 0, kind="ReDIF-Archive", title="The Triple A Archive"),
        paper("RePEc:aaa:wpaper", 0, kind="ReDIF-Series", title="Working Papers"),
        *(paper(f"RePEc:aaa:wpaper:{n}", 0, title=f"Paper {n}") for n in range(5)),
        paper("RePEc:bbb:journl:1", 0, kind="ReDIF-Article"),
        file("http://www.nber.org/a.pdf", 0),
        file("http://www.nber.org:8080/b.svg", 0, type_="image/svg+xml"),
    )
    world.clock.pass_(60)
    world.show(
        paper("RePEc:aaa:wpaper:3", 0, title="Paper 3", lost=True), file("http://www.nber.org/gone.pdf", 0, lost=True)
    )
    return world
