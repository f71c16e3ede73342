"""Random worlds replayed in random orders: the same dump always, and the one that an oracle predicts."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gather_support import check, histories, lines, make, run
from gather_worlds import CODES, HANDLES, DataSet, File, Template, oracle, worlds, write
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.catalogue.open import open_catalogue
from archec.config import Config
from archec.redif.difference import canonical_text
from archec.store.layout import open_layout
from archec.store.reader import open_obi

orders = st.lists(st.integers(0, 3), min_size=0, max_size=3)


def replay(config: Config, tarballs: list[Path], sets: list[DataSet], order: list[int]) -> None:
    for number in order:
        run(config, tarballs[number], complete=sets[number].complete, accept=["all"])


def check_texts(config: Config) -> None:
    """Every place in vi holds a file whose canonical text has that checksum."""
    layout = open_layout(config.store_path)
    catalogue = open_catalogue(config.database, base=config.base)
    try:
        for text, tist, obi in catalogue.texts("vi"):
            with open_obi(layout, tist, obi) as file:
                assert hashlib.md5(canonical_text(file.read())).hexdigest() == text
    finally:
        catalogue.close()


def play(folder: Path, sets: list[DataSet], shuffled: list[int], again: list[int]) -> None:
    tarballs = [write(one, folder, str(n)) for n, one in enumerate(sets)]
    first = make(folder / "first")
    replay(first, tarballs, sets, list(range(len(sets))))
    assert histories(first) == oracle(sets)
    check(first)
    check_texts(first)
    second = make(folder / "second", fanout=256 if len(again) % 2 else 0)
    order = shuffled + [n % len(sets) for n in again]
    replay(second, tarballs, sets, order)
    check(second)
    assert lines(second) == lines(first)


@st.composite
def plays(draw: st.DrawFn) -> tuple[list[DataSet], list[int], list[int]]:
    sets = draw(worlds())
    return sets, draw(st.permutations(range(len(sets)))), draw(orders)


@pytest.mark.parametrize("examples", [35, pytest.param(1000, marks=pytest.mark.slow)])
def test_any_world_in_any_order(memory_folder: Callable[[], Path], examples: int) -> None:
    @settings(max_examples=examples)
    @given(plays())
    def any_world(chosen: tuple[list[DataSet], list[int], list[int]]) -> None:
        folder = memory_folder()
        play(folder, *chosen)
        shutil.rmtree(folder)

    any_world()


def test_the_worlds_are_not_dull() -> None:
    """The generator gives losses, returns, restated contents and repeated handles, not only first sights."""
    kinds: set[str] = set()

    @settings(max_examples=120, database=None, derandomize=True)
    @given(worlds())
    def look(sets: list[DataSet]) -> None:
        for history in oracle(sets).values():
            states = list(history.values())
            kinds.update({"changed"} if None not in states and len(states) > 1 else ())
            kinds.update({"lost"} if None in states else ())
            kinds.update({"returned"} if None in states[:-1] else ())
        for one in sets:
            found = [t.handle for f in one.files for t in f.templates]
            kinds.update({"repeated"} if len(found) > len(set(found)) else ())
            kinds.update({"empty"} if not one.files else ())
        days = [one.day for one in sets]
        kinds.update({"one date"} if len(days) > len(set(days)) else ())

    look()
    assert kinds == {"changed", "lost", "returned", "repeated", "empty", "one date"}


def test_every_order_of_four(memory_folder: Callable[[], Path]) -> None:
    """One world in which everything happens to one handle, in all orders."""
    import itertools

    paper = HANDLES[2]
    own = f"RePEc/{CODES[0]}/sss/1.rdf"
    sets = [
        DataSet(1, frozenset(), (File(own, (Template(paper, 0),)),)),
        DataSet(2, frozenset(), (File(own, (Template(HANDLES[1], 0),)),)),
        DataSet(3, frozenset(), (File("RePEc/bbb/sss/1.rdf", (Template(paper, 0),)), File(own, spoilt=1))),
        DataSet(4, frozenset(), (File(own, (Template(paper, 1),)),)),
    ]
    folder = memory_folder()
    tarballs = [write(one, folder, str(n)) for n, one in enumerate(sets)]
    dumps: set[tuple[str, ...]] = set()
    for number, order in enumerate(itertools.permutations(range(4))):
        config = make(folder / str(number))
        replay(config, tarballs, sets, list(order))
        assert histories(config) == oracle(sets)
        check(config)
        dumps.add(tuple(lines(config)))
    assert len(dumps) == 1
