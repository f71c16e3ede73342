from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from archec.history import History

#: What each data set of a random world sees of one obi: an md5, None (covered, absent), or nothing at all.
worlds = st.dictionaries(st.integers(1, 12), st.sampled_from(["a", "b", "c", None, "unknown"]), min_size=1, max_size=10)


def compressed(world: dict[int, str | None]) -> dict[int, str | None]:
    """The history that the observations mean, made the plain way."""
    kept: dict[int, str | None] = {}
    before: str | None = None
    for tist in sorted(world):
        state = world[tist]
        if state != "unknown" and state != before:
            kept[tist] = state
            before = state
    return kept


def replay(world: dict[int, str | None], order: list[int]) -> History:
    history, known = History(), set[int]()
    for tist in order:
        if world[tist] == "unknown":
            continue

        def following(after: int, before: int | None) -> int | None:
            return min((t for t in known if t > after and (before is None or t < before)), default=None)

        history = history.apply(history.observe(tist, world[tist], following))
        known.add(tist)
    return history


@settings(max_examples=500)
@given(worlds, st.randoms(use_true_random=False))
def test_any_order_of_replay_gives_the_same_history(world: dict[int, str | None], rnd: random.Random) -> None:
    order = sorted(world)
    rnd.shuffle(order)
    assert replay(world, order).as_dict() == compressed(world)


@given(worlds, st.randoms(use_true_random=False))
def test_replaying_again_changes_nothing(world: dict[int, str | None], rnd: random.Random) -> None:
    order = sorted(world) * 2
    rnd.shuffle(order)
    assert replay(world, order).as_dict() == compressed(world)


@given(worlds)
def test_a_history_tells_the_state_at_any_time(world: dict[int, str | None]) -> None:
    history = replay(world, sorted(world))
    state: str | None = None
    for tist in range(14):
        if world.get(tist, "unknown") != "unknown":
            state = world[tist]
        assert history.at(tist) == state
    assert history.held == (state is not None)
    assert (history.lost is not None) == (len(history) > 0 and state is None)


def test_incidences() -> None:
    history = History.of({10: "a", 20: "b", 30: None, 40: "b", 50: None})
    assert [(i.tist, i.kind) for i in history.incidences()] == [
        (10, "appeared"),
        (20, "changed"),
        (30, "lost"),
        (40, "returned"),
        (50, "lost"),
    ]
    assert history.found == 10
    assert history.noted == (10, 20, 40)
    assert history.lost == 50
    assert History().incidences() is not None
    assert list(History().incidences()) == []


def test_a_late_data_set_splits_a_stretch() -> None:
    """D1: A and D3: A are known; D2, which comes late, has B. D3 is stated again."""
    history = History.of({1: "A"})
    change = history.observe(2, "B", lambda after, before: 3)
    assert history.apply(change).as_dict() == {1: "A", 2: "B", 3: "A"}


def test_an_entry_that_repeats_the_one_before_it_goes() -> None:
    history = History.of({3: "A"})
    change = history.observe(1, "A", lambda after, before: None)
    assert change.drop == (3,)
    assert history.apply(change).as_dict() == {1: "A"}


def test_two_data_sets_of_one_date_that_disagree() -> None:
    history = History.of({1: "A"})
    assert history.conflicts(1, "B")
    assert not history.conflicts(1, "A")
    assert not history.conflicts(2, "B")
    assert not history.observe(1, "B")
