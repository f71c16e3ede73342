"""What is lost and what came back, over both engines."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from report_data import file, lot, opened, version_of, work

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi
from archec.report import lost as module
from archec.report.lost import MOST_WORKS, Lost, LostQuery, lost, returned
from archec.store.layout import Layout

NOW = 10_000
ALL = LostQuery(NOW)


@pytest.fixture
def world(catalogue: Catalogue) -> Catalogue:
    """Lost: a:s:2 at 50, u at 60, v at 40, b:s:1 at 70; back: a:s:3 at 90 (changed), w at 30 (the same)."""
    tobis = [
        work("RePEc:a:s:1", {10: ["http://h/u", "http://h/x"]}, title="One"),
        work("RePEc:a:s:2", {10: ["http://h/u"], 20: ["http://h/x", "http://h/y"], 50: None}, title="Two"),
        work("RePEc:a:s:3", {10: ["http://h/w"], 40: None, 90: ["http://h/w", "http://h/v"]}),
        work("RePEc:b:s:1", {10: [], 70: None}),
    ]
    fobis = [
        file("http://h/u", {11: "1", 12: "2", 60: None}, "gone"),
        file("http://h/v", {11: "1", 40: None}, "gone", reason="HTTP status 410"),
        file("http://h/w", {11: "1", 20: None, 30: "1"}),
        file("http://h/x", {11: "1"}),
    ]
    catalogue.write(lot(1, obis=[*tobis, *fobis], mentioned=["http://h/y"]))
    return catalogue


def ids(layout: Layout, catalogue: Catalogue, query: LostQuery) -> list[str]:
    return [one.id for one in lost(opened(layout, catalogue), query)]


def test_lost_by_time(layout: Layout, world: Catalogue) -> None:
    found = list(lost(opened(layout, world), ALL))
    assert [(one.lost, one.id) for one in found] == [
        (40, "http://h/v"), (50, "RePEc:a:s:2"), (60, "http://h/u"), (70, "RePEc:b:s:1"),
    ]  # fmt: skip
    two, held = found[1], version_of("RePEc:a:s:2 http://h/x+http://h/y")
    assert two == Lost(
        "RePEc:a:s:2", "tobi", 20, 20, 50, "not there", held.md5, held.sha256, None, "RePEc:a:s:2", "Two"
    )
    assert held.sha256 == world.obis("tobi", [two.id])[two.id].history.at(20)
    assert (found[2].noted, found[2].reason) == (12, "HTTP status 404")
    assert (found[2].md5, found[2].sha256) == (version_of("2").md5, version_of("2").sha256)


def test_a_lost_file_tells_of_its_works(layout: Layout, world: Catalogue) -> None:
    one, two = next(one for one in lost(opened(layout, world), ALL) if one.id == "http://h/u").works
    assert (one.id, one.title, one.held, one.names, one.rendering) == ("RePEc:a:s:1", "One", True, True, "http://h/x")
    assert (two.id, two.title, two.held, two.names, two.rendering) == ("RePEc:a:s:2", "Two", False, False, "http://h/x")
    (three,) = next(one for one in lost(opened(layout, world), ALL) if one.id == "http://h/v").works
    assert three.rendering == "http://h/w"


def test_what_is_asked_for(layout: Layout, world: Catalogue) -> None:
    assert ids(layout, world, ALL._replace(kinds=("tobi",))) == ["RePEc:a:s:2", "RePEc:b:s:1"]
    assert ids(layout, world, ALL._replace(since=50, until=70)) == ["RePEc:a:s:2", "http://h/u"]
    assert ids(layout, world, ALL._replace(at_least=NOW - 50)) == ["http://h/v", "RePEc:a:s:2"]
    assert ids(layout, world, ALL._replace(at_least=NOW - 49.5)) == ["http://h/v"]
    assert ids(layout, world, ALL._replace(reason="STATUS 41")) == ["http://h/v"]
    assert ids(layout, world, ALL._replace(archive="zzz")) == []


@pytest.mark.parametrize("small", [0, 2, 10_000])
def test_of_an_archive(layout: Layout, world: Catalogue, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", small)
    query = ALL._replace(archive="a")
    assert ids(layout, world, query) == ["http://h/v", "RePEc:a:s:2", "http://h/u"]
    assert ids(layout, world, query._replace(since=41, until=60)) == ["RePEc:a:s:2"]
    assert ids(layout, world, ALL._replace(archive="b")) == ["RePEc:b:s:1"]
    assert [one.id for one in returned(opened(layout, world), query)] == ["http://h/w", "RePEc:a:s:3"]
    assert list(returned(opened(layout, world), ALL._replace(archive="b"))) == []


def test_a_file_that_many_name(layout: Layout, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", 3)
    tobis = [work(f"RePEc:a:s:{i:02d}", {10: ["http://h/u"]}) for i in range(40)]
    catalogue.write(
        lot(1, obis=[*tobis, work("RePEc:b:s:1", {10: ["http://h/u"]}), file("http://h/u", {1: "", 2: None})])
    )
    (one,) = lost(opened(layout, catalogue), ALL)
    assert (len(one.works), one.more) == (MOST_WORKS, True)
    assert (
        ids(layout, catalogue, ALL._replace(archive="b"))
        == ids(layout, catalogue, ALL._replace(archive="a"))
        == [one.id]
    )


def test_returned(layout: Layout, world: Catalogue) -> None:
    first, second = returned(opened(layout, world), ALL)
    assert (first.id, first.lost, first.returned, first.same) == ("http://h/w", 20, 30, True)
    assert (second.id, second.lost, second.returned, second.same) == ("RePEc:a:s:3", 40, 90, False)
    assert (first.reason, second.reason) == ("HTTP status 404", "not there")
    assert [one.id for one in returned(opened(layout, world), ALL._replace(at_least=11))] == ["RePEc:a:s:3"]
    assert [one.id for one in returned(opened(layout, world), ALL._replace(until=90))] == ["http://h/w"]
    assert [one.id for one in returned(opened(layout, world), ALL._replace(kinds=("fobi",), since=31))] == []


def test_nothing_is_lost(layout: Layout, catalogue: Catalogue) -> None:
    assert [*lost(opened(layout, catalogue), ALL), *returned(opened(layout, catalogue), ALL)] == []


def test_lists_are_lazy(layout: Layout, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row costs a few documents, however many there are."""
    fobis = [file(f"http://h/{i:05d}", {1: str(i), 2 + i % 3: None}) for i in range(600)]
    catalogue.write(lot(1, obis=fobis))
    read = 0
    before = catalogue.obis

    def counted(kind: Kind, ids: Collection[str]) -> dict[str, Obi]:
        nonlocal read
        read += len(ids)
        return before(kind, ids)

    monkeypatch.setattr(catalogue, "obis", counted)
    rows = lost(opened(layout, catalogue), ALL)
    assert next(rows).id == "http://h/00000"
    assert read < 50
    assert len({one.id for one in rows}) == 599
