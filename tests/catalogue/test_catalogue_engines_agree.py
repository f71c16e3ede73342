"""Random lots, written to two engines (and in part twice), give the same dumps byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from catalogue_data import COVERAGES, HANDLES, HOSTILE, checksum, fobi, lot, lots, state, tobi
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.catalogue.documents import START, Moment, TextPlace
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import TEXTS, Changes, DataSet, Kind, Obi, Run

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
    tobis, fobis = list(catalogue.all("tobi")), list(catalogue.all("fobi"))
    urls = sorted({url for tobi in tobis for url in tobi.names})
    referring = {url: [tobi for tobi in tobis if url in tobi.names] for url in urls}
    found = catalogue.referring([*urls, "none such"], 100)
    # No id is empty but here; scans pass it over. A file that only such a tobi names is not among these.
    assert {url: own for url, named in found.items() if (own := [tobi for tobi in named if tobi.id])} == referring
    data_sets = catalogue.data_sets()
    for kind in TEXTS:
        check_places(catalogue, kind, tobis if kind == "tobi" else fobis)
        check_texts(catalogue, kind)
    return [
        list(catalogue.tobi_files()),
        list(catalogue.tobi_files("a", "c")),
        catalogue.file_states([*urls, *(fobi.id for fobi in fobis)]),
        list(dump(catalogue, everything=True)),
        list(dump(catalogue, everything=False)),
        list(catalogue.scan()),
        *(catalogue.obis(kind, ["a", "", *HOSTILE]) for kind in TEXTS),
        catalogue.changed("tobi", 0, "", 100),
        catalogue.changed("tobi", 3, "b", 2),
        catalogue.changed("fobi", 0, "", 100),
        list(catalogue.due(5)),
        catalogue.counts(),
        list(catalogue.runs()),
        data_sets,
        [catalogue.keyed(item.key) for item in (*HANDLES, *COVERAGES)],
        catalogue.position(),
    ]


def check_places(catalogue: Catalogue, kind: Kind, obis: Sequence[Obi]) -> None:
    """The lists say what the documents say, from any place on."""
    incidences = [(obi.id, incidence) for obi in obis for incidence in obi.history.incidences()]
    at = sorted(Moment(incidence.tist, obi) for obi, incidence in incidences)
    back = sorted(Moment(incidence.tist, obi) for obi, incidence in incidences if incidence.kind == "returned")
    lost = sorted(Moment(obi.history.lost, obi.id) for obi in obis if obi.history.lost)
    for read, expected in ((catalogue.incidences, at), (catalogue.returned, back), (catalogue.lost, lost)):
        assert [place for place in read(kind) if place.id] == expected
        for after in (expected[len(expected) // 2 :] or [START])[0], Moment(5, ""):
            found = [place for place in read(kind, after) if place.id]
            assert found == [place for place in expected if place > after]


def check_texts(catalogue: Catalogue, kind: Kind) -> None:
    """The texts are what going through all obis comes to; where an entry redirects, its bytes lie elsewhere."""
    least: dict[str, TextPlace] = {}
    for obi in (*catalogue.all(kind), *catalogue.obis(kind, [""]).values()):
        for tist, held in obi.history:
            text = obi.versions[held].text if held is not None else None
            if text is not None and not (tist in obi.notes and obi.notes[tist].target):
                least[text] = min(least.get(text, TextPlace(text, tist, obi.id)), TextPlace(text, tist, obi.id))
    assert list(catalogue.texts(kind)) == [least[text] for text in sorted(least)]


@pytest.mark.parametrize("examples", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_engines_agree(sqlite: Catalogue, mongodb: Catalogue, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(st.tuples(lots, st.booleans()), min_size=1, max_size=4))
    def any_lots(steps: list[tuple[Changes, bool]]) -> None:
        for catalogue in (sqlite, mongodb):
            catalogue.clear()
        for changes, twice in steps:
            sqlite.write(changes)
            for _ in range(1 + twice):
                mongodb.write(changes)
        assert observed(mongodb) == observed(sqlite)

    any_lots()


def filled(tmp_path: Path) -> Catalogue:
    catalogue = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    data_sets = [DataSet(2, 9, "y", COVERAGES[3].key), DataSet(1, 8, "x", COVERAGES[0].key), DataSet(2, 8)]
    catalogue.write(
        lot(
            3, tobi("b", 2, 1), tobi("a", 1, 2, lost=True), fobi("u", 1), fobi("v"), mentioned=["w"],
            runs=[Run(9, state="done"), Run(8)], data_sets=data_sets, sets=[*HANDLES, *COVERAGES],
        )
    )  # fmt: skip
    return catalogue


def entries(**tists: str | None) -> str:
    """The histories of a dump, of {tist: what is held then}."""

    def of(digest: Callable[[str], str]) -> str:
        return ",".join(f'"{t[1:]}":' + ("null" if held is None else f'"{digest(held)}"') for t, held in tists.items())

    return f'"h":{{{of(checksum)}}},"id":"%s","s":{{{of(state)}}}'


def test_the_dump_of_what_is_held(tmp_path: Path) -> None:
    catalogue = filled(tmp_path)
    lines = list(dump(catalogue, everything=False))
    texts = sorted((checksum(f"text {obi}@{tist}"), obi, tist) for obi, tist in (("a", 1), ("b", 1), ("b", 2)))
    assert lines == [
        f'{{"collection":"mi",{entries(t1="a@1", t2=None) % "a"}}}',
        f'{{"collection":"mi",{entries(t1="b@1", t2="b@2") % "b"}}}',
        f'{{"collection":"mo",{entries(t1="u@1") % "u"}}}',
        *(f'{{"at":{{"id":"{obi}","tist":{tist}}},"collection":"vi","id":"{text}"}}' for text, obi, tist in texts),
        f'{{"at":{{"id":"u","tist":1}},"collection":"vo","id":"{checksum("text u@1")}"}}',
    ]
    catalogue.close()


def test_the_dump_of_everything(tmp_path: Path) -> None:
    catalogue = filled(tmp_path)
    documents = [json.loads(line) for line in dump(catalogue, everything=True)]
    order = [(document["collection"], document["id"]) for document in documents]
    texts = sorted(checksum(f"text {held}") for held in ("a@1", "b@1", "b@2"))
    sets = sorted([COVERAGES[0].key, COVERAGES[3].key])
    assert order == [
        ("mi", "a"), ("mi", "b"), ("mo", "u"), ("mo", "v"), ("mo", "w"), *(("vi", text) for text in texts),
        ("vo", checksum("text u@1")), ("data_sets", 1), ("data_sets", 2), ("data_sets", 2), ("runs", 8), ("runs", 9),
        *(("sets", key) for key in sets), ("state", "position"),
    ]  # fmt: skip
    assert documents[0]["place"] == "aaa/x.rdf"
    assert documents[3]["visit"]["outcome"] == "unreachable"
    assert [document["run"] for document in documents if document["collection"] == "data_sets"] == [8, 8, 9]
    data = {document["id"]: document["data"] for document in documents if document["collection"] == "sets"}
    assert data == {item.key: item.data.decode() for item in (COVERAGES[0], COVERAGES[3])}
    head = state("batch 3")
    assert documents[-1] == {
        "batch": 3, "collection": "state", "id": "position", "run": 1000, "stamp": 2003, "head": head, "until": 0,
    }  # fmt: skip
    catalogue.close()
