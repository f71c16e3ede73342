from __future__ import annotations

from hypothesis import given
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


@given(worlds)
def test_entries_come_in_any_order(world: dict[int, str | None]) -> None:
    """A loss of what was never held is none."""
    history = History()
    for tist in sorted(world, reverse=True):
        history = history.changed({tist: world[tist]})
    entries = dict(sorted(world.items()))
    while entries and next(iter(entries.values())) is None:
        del entries[next(iter(entries))]
    assert history.changed(world).as_dict() == entries


@given(worlds)
def test_a_history_tells_the_state_at_any_time(world: dict[int, str | None]) -> None:
    history = History.of(compressed(world))
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


@given(worlds, st.integers(0, 13), st.sampled_from(["a", "b"]))
def test_a_state_is_noted_at_any_time(world: dict[int, str | None], when: int, state: str) -> None:
    """Unless it is the state as of then, or another is held from exactly then on; the history stays in normal form."""
    history = History.of(compressed(world))
    drop = history.noting(when, state)
    held = history.as_dict().get(when) is not None
    assert (drop is None) == (history.at(when) == state or held)
    if drop is not None and when not in history.tists:
        after = history.changed({when: state}, drop)
        assert after.at(when) == state
        assert after.as_dict() == compressed({**history.as_dict(), when: state})
