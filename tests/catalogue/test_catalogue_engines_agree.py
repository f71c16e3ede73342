"""Random lots, written to two engines (and in part twice), give the same dumps byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from catalogue_data import checksum, fobi, lot, lots, tobi
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.catalogue.dump import dump
from archec.catalogue.interface import Catalogue
from archec.catalogue.lists import START, ObiKind, Place, named_by
from archec.catalogue.model import Changes, DataSet, Fobi, Run, SeenSet, TextPlace, Tobi
from archec.catalogue.open import open_catalogue

Pair = tuple[Catalogue, Catalogue]


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    catalogue = open_catalogue("sqlite:///c.sqlite", base=tmp_path_factory.mktemp("agree"), create=True)
    yield catalogue
    catalogue.close()


@pytest.fixture(scope="module")
def mongodb(fresh_mongodb_url: Callable[[], str], sqlite: Catalogue) -> Iterator[Catalogue]:
    catalogue = open_catalogue(fresh_mongodb_url(), base=Path(), create=True)
    yield catalogue
    catalogue.close()


def observed(catalogue: Catalogue) -> list[object]:
    """All that a catalogue can be asked."""
    tobis, fobis = list(catalogue.all_tobis()), list(catalogue.all_fobis())
    urls = sorted({url for tobi in tobis for url in named_by(tobi)})
    referring = {url: [tobi for tobi in tobis if url in named_by(tobi)] for url in urls}
    found = catalogue.referring([*urls, "none such"], 100)
    assert {url: [tobi for tobi in named if tobi.id] for url, named in found.items()} == referring
    for kind, obis in (("tobi", tobis), ("fobi", fobis)):
        check_places(catalogue, kind, obis)  # type: ignore[arg-type]
    return [
        list(catalogue.tobi_files()),
        list(catalogue.tobi_files("a", "c")),
        catalogue.file_states([*urls, *(fobi.id for fobi in fobis)]),
        list(dump(catalogue, everything=True)),
        list(dump(catalogue, everything=False)),
        list(catalogue.scan_tobis()),
        catalogue.changed_tobis(0, "", 100),
        catalogue.changed_tobis(3, "b", 2),
        catalogue.changed_fobis(0, "", 100),
        list(catalogue.due(5)),
        catalogue.counts(),
        catalogue.position(),
    ]


def check_places(catalogue: Catalogue, kind: ObiKind, obis: Sequence[Tobi | Fobi]) -> None:
    """The lists say what the documents say, from any place on. (No id is empty but here; scans pass it over.)"""
    incidences = [(obi.id, incidence) for obi in obis for incidence in obi.history.incidences()]
    at = sorted(Place(incidence.tist, obi) for obi, incidence in incidences)
    back = sorted(Place(incidence.tist, obi) for obi, incidence in incidences if incidence.kind == "returned")
    lost = sorted(Place(obi.history.lost, obi.id) for obi in obis if obi.history.lost)
    for read, expected in ((catalogue.incidences, at), (catalogue.returned, back), (catalogue.lost, lost)):
        assert [place for place in read(kind) if place.id] == expected
        for after in (expected[len(expected) // 2 :] or [START])[0], Place(5, ""):
            found = [place for place in read(kind, after) if place.id]
            assert found == [place for place in expected if place > after]


@settings(max_examples=40)
@given(st.lists(st.tuples(lots, st.booleans()), min_size=1, max_size=4))
def test_engines_agree(sqlite: Catalogue, mongodb: Catalogue, steps: list[tuple[Changes, bool]]) -> None:
    for catalogue in (sqlite, mongodb):
        catalogue.clear()
    for changes, twice in steps:
        sqlite.write(changes)
        for _ in range(1 + twice):
            mongodb.write(changes)
    assert observed(mongodb) == observed(sqlite)


def filled(tmp_path: Path) -> Catalogue:
    catalogue = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    sets = [DataSet(2, partial={"aaa": ("k2", "k1"), "b": ("lacking",)}), DataSet(1, partial={"aaa": ("k1",)})]
    catalogue.write(
        lot(
            3, tobis=[tobi("b", 2, 1), tobi("a", 1, 2, lost=True)], fobis=[fobi("u", 1), fobi("v")], mentioned=["w"],
            vi=[TextPlace(checksum("x"), 1, "a")], vo=[TextPlace(checksum("y"), 1, "u")],
            runs=[Run(9, "done"), Run(8)], data_sets=sets, seen=[SeenSet("k2", b"2"), SeenSet("k1", b"1")],
        )
    )  # fmt: skip
    return catalogue


def test_the_dump_of_what_is_held(tmp_path: Path) -> None:
    catalogue = filled(tmp_path)
    lines = list(dump(catalogue, everything=False))
    assert lines == [
        f'{{"collection":"mi","h":{{"1":"{checksum("a@1")}","2":null}},"id":"a"}}',
        f'{{"collection":"mi","h":{{"1":"{checksum("b@1")}","2":"{checksum("b@2")}"}},"id":"b"}}',
        f'{{"collection":"mo","h":{{"1":"{checksum("u@1")}"}},"id":"u"}}',
        f'{{"at":{{"id":"a","tist":1}},"collection":"vi","id":"{checksum("x")}"}}',
        f'{{"at":{{"id":"u","tist":1}},"collection":"vo","id":"{checksum("y")}"}}',
    ]
    catalogue.close()


def test_the_dump_of_everything(tmp_path: Path) -> None:
    catalogue = filled(tmp_path)
    documents = [json.loads(line) for line in dump(catalogue, everything=True)]
    order = [(document["collection"], document["id"]) for document in documents]
    assert order == [
        ("mi", "a"), ("mi", "b"), ("mo", "u"), ("mo", "v"), ("mo", "w"), ("vi", checksum("x")), ("vo", checksum("y")),
        ("data_sets", 1), ("data_sets", 2), ("runs", 8), ("runs", 9),
        ("seen", "k1"), ("seen", "k2"), ("seen", "lacking"), ("state", "position"),
    ]  # fmt: skip
    assert documents[0]["n"]["1"]["path"] == "RePEc/aaa/x.rdf"
    assert documents[3]["visit"]["outcome"] == "unreachable"
    assert [document["ids"] for document in documents[11:14]] == ["31", "32", None]
    assert documents[-1] == {"batch": 3, "collection": "state", "id": "position", "run": 1000, "stamp": 2003}
    catalogue.close()
