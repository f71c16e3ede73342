"""Incidences by time and by run, over both engines."""

from __future__ import annotations

import pytest
from report_data import file, lot, version_of, work

from archec.archive.runs import newest_gathering, run_named
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Run
from archec.report.changes import ChangesQuery, changes, changes_of_runs


@pytest.fixture
def world(catalogue: Catalogue) -> Catalogue:
    how = {20: "file-url", 30: "changed", 40: "lost", 50: "returned"}
    a = work("RePEc:a:s:1", {10: ["http://h/1"], 20: ["http://h/2"], 30: [], 40: None, 50: []}, how=how, stamp=2001)
    b = work("RePEc:a:s:2", {5: [], 30: ["http://h/1"]}, how={5: "restated", 30: "cosmetic"}, run=1500, stamp=2002)
    u = file("http://h/1", {15: "x", 35: "y"}, suspect="page instead of PDF", run=1500, stamp=2001)
    catalogue.write(lot(1, obis=[a, b, u], runs=[Run(1000, state="done"), Run(1500, state="done")]))
    return catalogue


def test_in_the_order_of_time(world: Catalogue) -> None:
    assert [(one.tist, one.id[-3:], one.what, one.how) for one in changes(world)] == [
        (5, "s:2", "new", "restated"),
        (10, "s:1", "new", ""),
        (15, "h/1", "new", ""),
        (20, "s:1", "changed", "file-url"),
        (30, "s:1", "changed", "content"),
        (30, "s:2", "changed", "cosmetic"),
        (35, "h/1", "changed", "content"),
        (40, "s:1", "lost", ""),
        (50, "s:1", "returned", ""),
    ]
    assert [one.tist for one in changes(world, ChangesQuery(30))] == [30, 30, 35, 40, 50]
    assert list(changes(world, ChangesQuery(51))) == []


def test_what_is_told(world: Catalogue) -> None:
    by_tist = {one.tist: one for one in changes(world)}
    assert by_tist[40].reason == "not there"
    assert (by_tist[40].md5, by_tist[40].sha256, by_tist[40].title) == (None, None, "A title")
    assert (by_tist[35].md5, by_tist[35].sha256) == (version_of("y").md5, version_of("y").sha256)
    assert (by_tist[35].suspect, by_tist[35].kind, by_tist[35].run) == ("page instead of PDF", "fobi", 1500)
    assert by_tist[10].handle == "RePEc:a:s:1"


def test_of_runs(world: Catalogue) -> None:
    assert [(one.tist, one.id[-3:]) for one in changes_of_runs(world, 1500)] == [
        (5, "s:2"),
        (15, "h/1"),
        (30, "s:2"),
        (35, "h/1"),
    ]
    assert len(list(changes_of_runs(world, 1000))) == 9
    by_run = sorted(changes(world), key=lambda one: (one.run, one.tist, one.id))
    assert by_run == list(changes_of_runs(world, 1000))
    before = ChangesQuery(until_run=1500)
    assert list(changes_of_runs(world, 1000, before)) == list(changes(world, before)) == by_run[:5]
    assert [one.run for one in changes_of_runs(world, 1000)] == [1000] * 5 + [1500] * 4
    assert list(changes_of_runs(world, 2003)) == []


@pytest.mark.parametrize(
    ("text", "run"),
    [("1500", 1500), ("last", 1500), (" Last", 1500), ("1501", 1501), ("1970-01-01T00:25:00Z", 1500), ("²", None)],
)
def test_a_run_is_named_by_its_tist(world: Catalogue, text: str, run: int | None) -> None:
    assert run_named(lambda: newest_gathering(world), text) == run


def test_many_at_one_tist(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, obis=[work(f"RePEc:a:s:{i:04d}", {1: [], 2: None}) for i in range(2500)]))
    found = [(one.tist, one.id) for one in changes(catalogue)]
    assert found == sorted(set(found))
    assert len(found) == 5000


def test_a_part_is_asked_for(world: Catalogue) -> None:
    world.write(lot(2, obis=[work("RePEc:b:s:1", {12: ["http://h/9"]}, stamp=2003), file("http://h/9", {16: "z"})]))

    def told(query: ChangesQuery) -> list[tuple[int, str]]:
        return [(one.tist, one.id[-3:]) for one in changes(world, query)]

    assert told(ChangesQuery(12, 20)) == [(12, "s:1"), (15, "h/1"), (16, "h/9")]
    assert told(ChangesQuery(kinds=("fobi",))) == [(15, "h/1"), (16, "h/9"), (35, "h/1")]
    assert told(ChangesQuery(archive="b")) == [(12, "s:1"), (16, "h/9")]
    assert told(ChangesQuery(archive="a", until=16)) == [(5, "s:2"), (10, "s:1"), (15, "h/1")]
    of_runs = changes_of_runs(world, 1500, ChangesQuery(until=30, archive="a"))
    assert [(one.tist, one.id[-3:]) for one in of_runs] == [(5, "s:2"), (15, "h/1")]
    assert not list(changes_of_runs(world, 1500, ChangesQuery(archive="b", kinds=("tobi",), until=12)))
