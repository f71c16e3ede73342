"""Random worlds: whatever happens to data sets, and in whatever order, the archive is what an oracle predicts."""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gather_play import Player, histories_of, play, play_seed
from gather_support import catalogue_of, check, lines, make, run
from gather_worlds import (
    CODES,
    HANDLES,
    LINK,
    Act,
    DataSet,
    File,
    Template,
    World,
    guarded,
    oracle,
    some_set,
    some_world,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.config import Config
from archec.gather import operator_decisions
from archec.redif.template import canonical_text
from archec.store.layout import open_layout
from archec.store.reader import open_obi


@pytest.mark.parametrize("examples", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_any_world(memory_folder: Callable[[], Path], examples: int) -> None:
    """What fails is made small: its data sets, and what happens to them."""

    @settings(max_examples=examples)
    @given(st.randoms(use_true_random=False))
    def any_world(chance: random.Random) -> None:
        folder = memory_folder()
        try:
            play(folder, some_world(chance))
        finally:
            shutil.rmtree(folder)

    any_world()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_500_worlds(memory_folder: Callable[[], Path], part: int) -> None:
    folder = memory_folder()
    for seed in range(part * 50, part * 50 + 50):
        play_seed(folder, seed)


def test_the_worlds_are_not_dull() -> None:
    """The generator gives all that the rules speak of, and all that may happen to data sets."""
    kinds: set[str] = set()
    for seed in range(150):
        world = some_world(random.Random(seed))
        for states in map(list, (history.values() for history in oracle(world.sets).values())):
            kinds.update({"changed"} if None not in states and len(states) > 1 else ())
            kinds.update({"lost"} if None in states else ())
            kinds.update({"returned"} if None in states[:-1] else ())
        for one in world.sets:
            found = [t.handle for f in one.files for t in f.templates]
            kinds.update({"repeated"} if len(found) > len(set(found)) else ())
            kinds.update({"empty"} if not one.files else ())
            kinds.update({"link"} if any(f.spoilt == LINK for f in one.files) else ())
            kinds.update({"directory"} if any(f.is_directory for f in one.files) else ())
            kinds.update({"spoilt"} if any(f.spoilt not in (None, LINK) for f in one.files) else ())
        days = [one.day for one in world.sets]
        kinds.update({"one date"} if len(days) > len(set(days)) else ())
        kinds.update(act.what for act in world.acts)
    assert kinds == {
        *("changed", "lost", "returned", "repeated", "empty", "link", "spoilt", "one date"),
        *("gather", "refused", "salvage", "retract", "undo", "kill", "kill-retract", "directory"),
    }


@pytest.mark.parametrize("worlds", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_losses_are_accepted_by_either_command(memory_folder: Callable[[], Path], worlds: int) -> None:
    """As an option of gather or afterwards, and late or at once: they count from the first data set on."""
    folder = memory_folder()
    for seed in range(worlds):
        chance, sets = random.Random(seed), list[DataSet]()
        for day in range(1, 7):
            sets.append(replace(some_set(chance, sets[-1:]), day=day, cut=None))
        accepted = [chance.random() < 0.3 for _ in sets]
        tarballs = [write(one, folder, str(n)) for n, one in enumerate(sets)]
        first, second = make(folder / f"{seed}-first"), make(folder / f"{seed}-second")
        for one, file, accept in zip(sets, tarballs, accepted, strict=True):
            run(first, file, complete=one.complete, accept=["all"] if accept else [])
            report = run(second, file, complete=one.complete)
            if accept and report.held_back:
                assert not operator_decisions.accept(second, report.run, ()).back
        assert histories_of(first) == histories_of(second) == guarded(sets, accepted), seed
        assert lines(first) == lines(second)
        check(first)


def check_texts(config: Config) -> None:
    """Every place in vi holds a file whose canonical text has that checksum."""
    layout = open_layout(config.store_path)
    with catalogue_of(config) as catalogue:
        for text, tist, obi in catalogue.texts("tobi"):
            with open_obi(layout, catalogue.obis("tobi", [obi])[obi].bytes_at(tist), obi) as file:
                assert hashlib.md5(canonical_text(file.read())).hexdigest() == text


@pytest.mark.slow
def test_every_order_of_four(memory_folder: Callable[[], Path]) -> None:
    """One world in which everything happens to one handle, in all orders."""
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
        player = Player(make(folder / str(number)), World(sets, []), tarballs)
        for one in order:
            player.act(Act("gather", one))
        assert histories_of(player.config) == oracle(sets)
        check(player.config)
        check_texts(player.config)
        dumps.add(tuple(lines(player.config)))
    assert len(dumps) == 1
