"""The contract of :class:`archec.catalogue.interface.Catalogue`, over every engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalogue_data import HOSTILE, bare, checksum, fobi, lot, state, tobi, version
from msgspec.structs import replace

from archec.catalogue.documents import BytesPlace, DueFobi, FileState, Moment, ObiState, TextPlace, TobiFiles
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue, Checksum, Counts
from archec.catalogue.model import (
    TEXTS,
    DataSet,
    FilesetManifestFile,
    HostState,
    Ingest,
    KeyedSet,
    Kind,
    ManifestPart,
    Note,
    Obi,
    Position,
    Refipo,
    Run,
    Version,
    Visit,
    Visited,
)
from archec.errors import CatalogueError
from archec.history import History
from archec.ids import MAX_ID

Opener = Callable[..., Catalogue]


@pytest.fixture(params=["sqlite", "mongodb"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same fresh catalogue again and again; closes what it opened."""
    if request.param == "sqlite":
        url = "sqlite:///catalogue.sqlite"
    else:
        url = request.getfixturevalue("mongodb_url")
    opened: list[Catalogue] = []

    def open_it(*, create: bool = False, read_only: bool = False) -> Catalogue:
        opened.append(open_catalogue(url, base=tmp_path, create=create, read_only=read_only))
        return opened[-1]

    yield open_it
    for catalogue in opened:
        catalogue.close()


@pytest.fixture
def catalogue(opener: Opener) -> Catalogue:
    return opener(create=True)


def everything(catalogue: Catalogue) -> list[str]:
    return list(dump(catalogue, everything=True))


def test_an_engine_is_a_catalogue(catalogue: Catalogue) -> None:
    assert isinstance(catalogue, Catalogue)


def test_an_empty_one_holds_nothing(catalogue: Catalogue) -> None:
    assert catalogue.position() == Position()
    assert catalogue.counts() == Counts(0, 0, 0, 0, 0)
    assert catalogue.obis("tobi", ["a"]) == catalogue.obis("fobi", ["a"]) == {}
    assert [*catalogue.runs(), *catalogue.data_sets(), *catalogue.texts("tobi"), *catalogue.texts("fobi")] == []
    assert catalogue.keyed("x") is None
    assert [*catalogue.scan(), *catalogue.all("tobi"), *catalogue.all("fobi"), *catalogue.due(10**12)] == []
    assert list(dump(catalogue, everything=False)) == []


def test_documents_come_back_as_they_were(catalogue: Catalogue) -> None:
    tobis = [tobi("a"), tobi("b", 3, 1, 2), tobi("c", 1, 2, lost=True)]
    fobis = [fobi("u"), fobi("v", 4, 5, due=77)]
    runs = [Run(9, "gather", "done", 8, "tarball", "/x.tgz", "{}", '{"n":1}'), Run(7)]
    data_sets = [DataSet(5, 9, "x\0.$", "k1"), DataSet(5, 7), DataSet(4, 9)]
    catalogue.write(lot(1, *tobis, *fobis, runs=runs, data_sets=data_sets, sets=[KeyedSet("k1", b"\0\xff")]))
    assert catalogue.obis("tobi", ["a", "b", "c", "d"]) == {t.id: t for t in tobis}
    assert catalogue.obis("fobi", ["u", "v", "w"]) == {f.id: f for f in fobis}
    assert list(catalogue.runs()) == runs[::-1]
    assert catalogue.data_sets() == data_sets[::-1]
    assert catalogue.keyed("k1") == b"\0\xff"
    assert catalogue.position() == Position(1000, 1, 2001, state("batch 1"))


def test_reading_many_ids_at_once(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, *[tobi(f"t{i}") for i in range(2500)], mentioned=[f"f{i}" for i in range(2500)]))
    assert len(catalogue.obis("tobi", {f"t{i}" for i in range(5000)})) == 2500
    assert len(catalogue.obis("fobi", [f"f{i}" for i in range(5000)])) == 2500
    assert catalogue.obis("tobi", []) == {}


def test_reading_many_of_the_longest_ids_at_once(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobi("a")))
    longest = [str(i).ljust(MAX_ID, "\N{CJK UNIFIED IDEOGRAPH-4E2D}") for i in range(400)]
    assert catalogue.obis("tobi", [*longest, "a", ""]) == {"a": tobi("a")}


def test_a_later_write_replaces(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobi("a", 1), tobi("b", 1), fobi("u", 1)))
    catalogue.write(lot(2, tobi("a", 1, 2), fobi("u", 1, 2), runs=[Run(1)]))
    catalogue.write(lot(3, runs=[Run(1, state="done")]))
    assert catalogue.obis("tobi", ["a", "b"]) == {"a": tobi("a", 1, 2), "b": tobi("b", 1)}
    assert list(catalogue.all("fobi")) == [fobi("u", 1, 2)]
    assert list(catalogue.runs()) == [Run(1, state="done")]


def test_runs_by_tist_and_the_newest_ones_page_by_page(catalogue: Catalogue) -> None:
    runs = [Run(n, state="done", retracted="wrong" * (n == 4)) for n in (3, 1, 4, 15, 9)]
    catalogue.write(lot(1, runs=runs))
    assert [run.tist for run in catalogue.newest_runs(10**12, 2)] == [15, 9]
    assert [run.tist for run in catalogue.newest_runs(9, 2)] == [4, 3]
    assert catalogue.newest_runs(16, 1) == [Run(15, state="done")]
    assert catalogue.newest_runs(1, 5) == []
    assert (catalogue.run(9), catalogue.run(10)) == (runs[4], None)
    assert catalogue.retracted_runs() == {4}


def test_the_last_of_one_id_in_a_lot_wins(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobi("a", 1), tobi("a", 1, 2), fobi("u", 1), fobi("u", 2)))
    assert list(catalogue.all("tobi")) == [tobi("a", 1, 2)]
    assert list(catalogue.all("fobi")) == [fobi("u", 2)]


def test_the_same_lot_again_changes_nothing(catalogue: Catalogue) -> None:
    changes = lot(
        1, tobi("a", 1, 2), fobi("u", 1), mentioned=["u", "v"], runs=[Run(1)],
        visits=[Visited("u", Visit(60, "same"), 70)], data_sets=[DataSet(1, 1, "", "k")],
        sets=[KeyedSet("k", b'{"complete":true}')],
    )  # fmt: skip
    catalogue.write(changes)
    before = everything(catalogue)
    catalogue.write(changes)
    assert everything(catalogue) == before


def test_a_fobi_without_a_visit_is_due_by_the_visit_of_its_lot(catalogue: Catalogue) -> None:
    held = fobi("u", 1, due=5)
    visit = Visited("u", Visit(60, "same"), 70)
    catalogue.write(lot(1, replace(held, visit=None), visits=[visit]))
    assert catalogue.obis("fobi", ["u"]) == {"u": replace(held, visit=visit.visit, due=70)}
    catalogue.write(lot(2, held, visits=[visit]))
    assert catalogue.obis("fobi", ["u"]) == {"u": held}


def test_a_mention_never_replaces(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, fobi("u", 1, due=5), mentioned=["u", "w", "w"]))
    catalogue.write(lot(2, mentioned=["u", "w", "x"]))
    assert list(catalogue.all("fobi")) == [fobi("u", 1, due=5), bare("fobi", "w"), bare("fobi", "x")]
    catalogue.write(lot(3, fobi("w", 9, due=6)))
    assert catalogue.obis("fobi", ["w"]) == {"w": fobi("w", 9, due=6)}


def test_a_tobi_and_a_fobi_of_one_id_are_two_obis(catalogue: Catalogue) -> None:
    """A template may have a URL for a handle."""
    one, other = tobi("http://h/", 1, 2), fobi("http://h/", 1, 3)
    catalogue.write(lot(1, one, other))
    assert catalogue.obis("tobi", [one.id]) == {one.id: one}
    assert catalogue.obis("fobi", [one.id]) == {one.id: other}
    assert list(catalogue.incidences("tobi")) == [(1, one.id), (2, one.id)]
    assert list(catalogue.incidences("fobi")) == [(1, one.id), (3, one.id)]
    same = replace(other, history=one.history, versions=one.versions)
    catalogue.write(lot(2, same))
    catalogue.write(lot(3, tobi(one.id, 2)))
    assert list(catalogue.all("tobi")) == [tobi(one.id, 2)]
    assert [held.versions for held in catalogue.all("fobi")] == [one.versions]
    assert [list(catalogue.incidences(kind)) for kind in TEXTS] == [[(2, one.id)], [(1, one.id), (2, one.id)]]


def held_text(kind: Kind, obi: str, tist: int, *texts: str, target: str = "") -> Obi:
    """An obi that holds these texts from ``tist`` on, one a second; the first entry redirects to ``target``."""
    found = bare(kind, obi, {tist + n: f"{obi}@{tist + n}" for n in range(len(texts))})
    versions = {
        held: Version(held, checksum("x"), 1, text)
        for held, text in zip(found.history.states, texts, strict=True)
        if held is not None
    }
    return replace(found, versions=versions, notes={tist: Note(tist, "new", target=target)})


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_has_its_least_place(catalogue: Catalogue, kind: Kind) -> None:
    x, y, z = sorted((checksum("x"), checksum("y"), checksum("z")))
    places = [(5, "b"), (5, "c"), (5, "a\0"), (6, "f"), (10**10, "a"), (4, "z"), (5, "d")]
    for number, (tist, obi) in enumerate(places):
        catalogue.write(lot(number, held_text(kind, obi, tist, y, x)))
    assert list(catalogue.texts(kind)) == [TextPlace(x, 5, "z"), TextPlace(y, 4, "z")]
    catalogue.write(lot(8, held_text(kind, "q", 1, x), held_text(kind, "p", 1, x), held_text(kind, "r", 3, x)))
    assert list(catalogue.texts(kind)) == [TextPlace(x, 1, "p"), TextPlace(y, 4, "z")]
    catalogue.write(lot(9, held_text(kind, "z", 4, z), held_text(kind, "p", 1, z)))
    assert list(catalogue.texts(kind)) == [TextPlace(x, 1, "q"), TextPlace(y, 5, "a\0"), TextPlace(z, 1, "p")]
    assert list(catalogue.texts("fobi" if kind == "tobi" else "tobi")) == []


def test_a_redirect_is_no_place_of_a_text(catalogue: Catalogue) -> None:
    x = checksum("x")
    catalogue.write(lot(1, held_text("fobi", "u", 1, x, target="http://h/t"), held_text("fobi", "http://h/t", 9, x)))
    assert list(catalogue.texts("fobi")) == [TextPlace(x, 9, "http://h/t")]
    body = held_text("fobi", "v", 1, x, x, target="http://h/t")
    again = bare("fobi", "v", {1: "v@1", 2: None, 5: "v@1"})
    catalogue.write(lot(2, replace(body, history=again.history)))
    assert list(catalogue.texts("fobi")) == [TextPlace(x, 5, "v")]
    catalogue.write(lot(3, held_text("fobi", "v", 1, x, target="http://h/t")))
    assert list(catalogue.texts("fobi")) == [TextPlace(x, 9, "http://h/t")]


@pytest.mark.parametrize("count", [1000, 2500, 2501])
def test_pages_of_texts_neither_skip_nor_double(catalogue: Catalogue, count: int) -> None:
    common = checksum("of all")
    own = [held_text("tobi", f"{i:05d}", 7, common, checksum(f"{i}")) for i in range(count)]
    catalogue.write(lot(1, *own))
    texts = {common: TextPlace(common, 7, "00000")}
    texts.update((checksum(f"{i}"), TextPlace(checksum(f"{i}"), 8, f"{i:05d}")) for i in range(count))
    assert list(catalogue.texts("tobi")) == [texts[text] for text in sorted(texts)]


BAD = ("", "xyz", checksum("a")[:-2], checksum("a").upper(), " " + checksum("a")[1:], "\ud800")


@pytest.mark.parametrize("bad", BAD)
def test_only_a_checksum_is_a_checksum(catalogue: Catalogue, bad: str) -> None:
    good = tobi("a", 1, 2)
    newest = good.newest
    assert newest is not None
    for change in ({"text": bad}, {"md5": bad}, {"sha256": bad + bad}):
        wrong = replace(newest, **change)
        held = {**good.history.as_dict(), 2: wrong.sha256}
        obi = replace(good, history=History.of(held), versions={**good.versions, wrong.sha256: wrong})
        with pytest.raises(CatalogueError, match="not a checksum"):
            catalogue.write(lot(1, obi))
    assert catalogue.position().batch == 0
    assert list(catalogue.all("tobi")) == []


@pytest.mark.slow
def test_an_obi_of_many_files_and_versions(catalogue: Catalogue) -> None:
    """1,000 File-URLs and 100 versions; no document grows with them (and MongoDB takes none of more than 16 MB)."""
    urls = [f"http://h/{'path/' * 10}{n}.pdf" for n in range(1000)]
    texts = {tist: f"version {tist}" for tist in range(1, 101)}
    versions = {
        state(text): version(text, 10**5, "ReDIF-Paper 1.0", "T", tuple(Refipo(f"{url}?{tist % 2}") for url in urls))
        for tist, text in texts.items()
    }
    notes = {tist: Note(tist, "changed", reason="RePEc/aaa/x.rdf") for tist in texts}
    big = Obi("big", "tobi", History.of({t: state(text) for t, text in texts.items()}), versions, notes, "BIG", stamp=1)
    small = tobi("small", 5)
    changes = lot(1, big, small, mentioned=[f"{url}?0" for url in urls])
    catalogue.write(changes)
    assert catalogue.obis("tobi", ["big", "small"]) == {"big": big, "small": small}
    assert catalogue.referring([f"{urls[999]}?0", f"{urls[0]}?1"], 9) == {
        f"{urls[999]}?0": [big], f"{urls[0]}?1": [big],
    }  # fmt: skip
    files = next(catalogue.tobi_files())
    assert (files.files, files.former) == (tuple(f"{url}?0" for url in urls), tuple(sorted(f"{url}?1" for url in urls)))
    assert catalogue.counts() == Counts(2, 0, 0, 0, 1000)
    before = everything(catalogue)
    catalogue.write(changes)
    assert everything(catalogue) == before


def test_hostile_ids_come_back_and_sort_by_their_utf8(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, *[tobi(obi) for obi in HOSTILE], *[fobi(obi, 1) for obi in HOSTILE]))
    catalogue.write(lot(2, mentioned=[*HOSTILE, "a\0b"]))
    order = sorted(HOSTILE)
    assert order == sorted(HOSTILE, key=lambda obi: obi.encode())
    assert [one.id for one in catalogue.scan()] == order
    assert [t.id for t in catalogue.all("tobi")] == order
    assert [f.id for f in catalogue.changed("fobi", 0, "\U0010ffff")] == order
    assert [due.id for due in catalogue.due(0)] == sorted([*order, "a\0b"])
    assert catalogue.obis("tobi", HOSTILE) == {obi: tobi(obi) for obi in HOSTILE}
    assert catalogue.obis("fobi", HOSTILE) == {obi: fobi(obi, 1) for obi in HOSTILE}
    tists: dict[Kind, int] = {"tobi": 100, "fobi": 1}
    for kind, tist in tists.items():
        places = {checksum(f"text {obi}@{tist}"): obi for obi in HOSTILE}
        assert [*catalogue.texts(kind)] == [TextPlace(text, tist, places[text]) for text in sorted(places)]
        assert [place.id for place in catalogue.incidences(kind)] == order
    for obi in HOSTILE:
        assert next(catalogue.scan(obi), None) == next((s for s in catalogue.scan() if s.id > obi), None)


def test_what_is_not_text_is_unknown_and_cannot_be_written(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobi("a")))
    assert catalogue.obis("tobi", ["a", "\ud800"]) == {"a": tobi("a")}
    assert catalogue.obis("fobi", ["\udfff"]) == {}
    with pytest.raises(CatalogueError):
        catalogue.write(lot(2, mentioned=["\ud800"]))
    with pytest.raises(CatalogueError):
        list(catalogue.scan("\ud800"))
    with pytest.raises(CatalogueError):
        catalogue.write(lot(2, fobi("u", due=2**70)))
    assert catalogue.position().batch == 1


def test_scan_tells_the_newest_state(catalogue: Catalogue) -> None:
    one, many, gone = tobi("a", 5), tobi("b", 11, 3, 1000), tobi("c", 1, 2, lost=True)
    catalogue.write(lot(1, gone, many, one, bare("tobi", "d")))
    a, b, c, d = catalogue.scan()
    assert a == ObiState("a", 5, state("a@5"), None, "aaa/x.rdf", 5)
    assert isinstance(a, ObiState)
    expected = f'{{"3":"{state("b@3")}","11":"{state("b@11")}","1000":"{state("b@1000")}"}}'
    assert b == ObiState("b", 1000, state("b@1000"), expected, "aaa/x.rdf", 1000)
    assert c == ObiState("c", 2, None, f'{{"1":"{state("c@1")}","2":null}}', "aaa/x.rdf", 2)
    assert d == ObiState("d", 0, None, "{}")
    assert [s.id for s in catalogue.scan("b")] == ["c", "d"]
    assert [t.id for t in catalogue.all("tobi", "a")] == ["b", "c", "d"]
    assert catalogue.ids("tobi", "a", "c", 10) == ["a", "b"]
    assert catalogue.ids("tobi", "a\0", "\U0010ffff", 2) == ["b", "c"]
    assert catalogue.ids("fobi", "", "\U0010ffff", 2) == []


@pytest.mark.parametrize("count", [2000, *(pytest.param(count, marks=pytest.mark.slow) for count in (1999, 5001))])
def test_pages_neither_skip_nor_double(catalogue: Catalogue, count: int) -> None:
    ids = [f"{i:05d}" for i in range(count)]
    catalogue.write(lot(1, *[tobi(i, stamp=1 + int(i) % 3) for i in ids], mentioned=ids))
    assert [s.id for s in catalogue.scan()] == ids
    assert [t.id for t in catalogue.all("tobi")] == ids
    assert [f.id for f in catalogue.all("fobi")] == ids
    assert [d.id for d in catalogue.due(0)] == ids
    got: list[str] = []
    stamp, after = 0, ""
    while page := catalogue.changed("tobi", stamp, after, 700):
        assert len(page) <= 700
        got += [t.id for t in page]
        stamp, after = page[-1].stamp, page[-1].id
    assert got == sorted(ids, key=lambda i: (int(i) % 3, i))


def test_changed_begins_behind_the_pair(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, *[tobi(i, stamp=s) for i, s in [("a", 2), ("b", 1), ("c", 2), ("d", 3)]]))
    catalogue.write(lot(2, *[fobi(i, stamp=s) for i, s in [("a", 2), ("b", 1)]], mentioned=["m"]))
    assert [t.id for t in catalogue.changed("tobi", 0)] == ["b", "a", "c", "d"]
    assert [t.id for t in catalogue.changed("tobi", 2)] == ["a", "c", "d"]
    assert [t.id for t in catalogue.changed("tobi", 2, "a")] == ["c", "d"]
    assert [t.id for t in catalogue.changed("tobi", 2, "a", 1)] == ["c"]
    assert catalogue.changed("tobi", 3, "d") == []
    assert [f.id for f in catalogue.changed("fobi", 0)] == ["m", "b", "a"]
    assert [f.id for f in catalogue.changed("fobi", 1)] == ["b", "a"]
    assert catalogue.changed("tobi", 0, limit=1)[0] == tobi("b", stamp=1)


def test_due_goes_by_time_and_id(catalogue: Catalogue) -> None:
    fobis = [fobi(i, due=d) for i, d in [("a", 30), ("b", 10), ("c", 20), ("d", 20), ("e", 40)]]
    catalogue.write(lot(1, *fobis, mentioned=["z", "y"]))
    assert list(catalogue.due(30)) == [(0, "y"), (0, "z"), (10, "b"), (20, "c"), (20, "d"), (30, "a")]
    assert list(catalogue.due(29, DueFobi(20, "c"))) == [(20, "d")]
    assert list(catalogue.due(5, DueFobi(20, "c"))) == []
    assert isinstance(next(catalogue.due(0)), DueFobi)
    catalogue.write(lot(2, fobi("y", 1, due=25), fobi("b", due=99)))
    assert list(catalogue.due(30)) == [(0, "z"), (20, "c"), (20, "d"), (25, "y"), (30, "a")]
    assert list(catalogue.with_outcome(["unreachable", "denied"])) == ["a", "b", "c", "d", "e"]
    assert list(catalogue.with_outcome(["new"])) == ["y"]


def test_counts(catalogue: Catalogue) -> None:
    gone = bare("fobi", "g", {1: "g", 2: None})
    catalogue.write(lot(1, tobi("a"), tobi("b", 1, 2, lost=True), tobi("c", 1, 2)))
    catalogue.write(lot(2, fobi("u", 1), fobi("v"), gone, mentioned=["w", "x"]))
    assert catalogue.counts() == Counts(2, 1, 1, 1, 3)
    catalogue.write(lot(3, bare("fileset", "s", {3: "s"}), bare("fileset", "t", {2: "t", 3: None})))
    assert catalogue.counts() == Counts(2, 1, 1, 1, 3, 1, 1)


def test_hosts_against_which_something_is_known(catalogue: Catalogue) -> None:
    one, two = HostState("h.org", 5, 900, 2, "HTTP 503"), HostState("h.org:81", 5, fails=1)
    catalogue.write(lot(1, hosts=[HostState("h.org", 4, 7), two, one]))
    assert list(catalogue.hosts()) == [one, two]
    assert [line for line in everything(catalogue) if '"hosts"' in line] == [
        '{"collection":"hosts","fails":2,"host":"h.org","id":"h.org","reason":"HTTP 503","run":5,"until":900}',
        '{"collection":"hosts","fails":1,"host":"h.org:81","id":"h.org:81","run":5}',
    ]
    catalogue.write(lot(2, hosts=[HostState("h.org", 6), HostState("other", 6)]))
    assert list(catalogue.hosts()) == [two]
    catalogue.clear()
    assert list(catalogue.hosts()) == []


def test_files_of_a_host_that_are_gone(catalogue: Catalogue) -> None:
    held = ["http://h/", "http://h/a", "https://h/b", "ftp://h/c"]
    others = ["http://h.org/", "http://h-a/", "http://h:80/x", "http://g/"]
    catalogue.write(lot(1, *[fobi(url, 1) for url in (*held, *others)], fobi("http://h/never"), mentioned=["http://h/m"]))
    assert catalogue.gone_files("h", 0) == (4, 0)
    clocks = {held[0]: 0, held[1]: 80, held[2]: 0, others[0]: 0}
    gone = [Visited(url, Visit(60, "gone", clock=clock), 9) for url, clock in clocks.items()]
    catalogue.write(lot(2, bare("fobi", "http://h/lost", {1: "x", 2: None}), visits=gone))
    assert [catalogue.gone_files("h", since) for since in (0, 60, 61, 81)] == [(4, 3), (4, 3), (4, 1), (4, 0)]
    assert catalogue.gone_files("nobody", 0) == (0, 0)


def test_files_of_a_host_with_the_same_bytes(catalogue: Catalogue) -> None:
    same = [bare("fobi", url, {1: "x"}) for url in ("http://h/1", "http://h/2", "https://h/3", "http://h.org/1")]
    whole = [replace(obi, versions={state("x"): version("x", 1, "text/html")}) for obi in same]
    catalogue.write(lot(1, *whole, fobi("http://h/4", 1)))
    assert sorted(catalogue.sharing("h", state("x"), 9)) == ["http://h/1", "http://h/2", "https://h/3"]
    assert len(catalogue.sharing("h", state("x"), 2)) == 2
    assert catalogue.sharing("h", state("y"), 2) == []
    assert catalogue.held_bodies([state("x"), *map(state, map(str, range(1200)))]) == {state("x")}


def test_lists_of_what_happened(catalogue: Catalogue) -> None:
    back = bare("tobi", "b", {1: "x", 4: None, 9: "x"})
    away = bare("fobi", "u", {2: "y", 5: None})
    catalogue.write(lot(1, tobi("a", 1, 3, lost=True), back, tobi("c", 1), away, fobi("v")))
    assert list(catalogue.incidences("tobi")) == [(1, "a"), (1, "b"), (1, "c"), (3, "a"), (4, "b"), (9, "b")]
    assert list(catalogue.incidences("tobi", Moment(1, "b"))) == [(1, "c"), (3, "a"), (4, "b"), (9, "b")]
    assert list(catalogue.incidences("fobi")) == [(2, "u"), (5, "u")]
    of_run = [list(catalogue.incidences("tobi", run=run)) for run in (2, 4, 5)]
    assert of_run == [[(1, "a"), (1, "c")], [(3, "a")], []]
    assert list(catalogue.incidences("tobi", Moment(1, "a"), run=2)) == [(1, "c")]
    assert list(catalogue.lost("tobi")) == [(3, "a")]
    assert list(catalogue.lost("fobi")) == [(5, "u")]
    assert list(catalogue.lost("fobi", Moment(5, "u"))) == list(catalogue.returned("fobi")) == []
    assert list(catalogue.returned("tobi")) == [(9, "b")]
    assert all(isinstance(place, Moment) for place in catalogue.incidences("tobi"))
    catalogue.write(lot(2, tobi("a", 1, 2), tobi("b", 7), fobi("u", 2, 6)))
    assert list(catalogue.incidences("tobi")) == [(1, "a"), (1, "c"), (2, "a"), (7, "b")]
    assert list(catalogue.incidences("fobi")) == [(2, "u"), (6, "u")]
    assert [*catalogue.lost("tobi"), *catalogue.lost("fobi"), *catalogue.returned("tobi")] == []


@pytest.mark.parametrize("count", [2000, *(pytest.param(count, marks=pytest.mark.slow) for count in (1999, 4001))])
def test_pages_of_lists_neither_skip_nor_double(catalogue: Catalogue, count: int) -> None:
    ids = [f"{i:05d}" for i in range(count)]
    gone = [bare("fobi", i, {1 + int(i) % 3: i, 9: None}) for i in ids]
    catalogue.write(lot(1, *[tobi(i, 1 + int(i) % 3) for i in ids], *gone))
    expected = sorted((1 + int(i) % 3, i) for i in ids)
    assert list(catalogue.incidences("tobi")) == expected
    assert list(catalogue.incidences("fobi")) == [*expected, *((9, i) for i in ids)]
    assert list(catalogue.lost("fobi")) == [(9, i) for i in ids]
    assert [one.id for one in catalogue.tobi_files()] == ids
    assert [one.id for one in catalogue.tobi_files(ids[3], ids[-3])] == ids[4:-3]
    assert len(catalogue.file_states([*ids, "x"])) == count


def test_who_refers_to_a_file(catalogue: Catalogue) -> None:
    names = {i: tobi(i, 1, 2) for i in ("a", "b", "c")}
    catalogue.write(lot(1, names["b"], names["a"], mentioned=["http://h/all", "http://h/1.pdf"]))
    asked = ["http://h/all", "http://h/2.pdf", "http://h/none", "\ud800"]
    assert catalogue.referring(asked, 9) == {url: [names["a"], names["b"]] for url in asked[:2]}
    catalogue.write(lot(2, names["c"], fobi("http://h/all", 3)))
    assert catalogue.referring(asked[:1], 9) == {asked[0]: list(names.values())}
    assert [len(found) for found in catalogue.referring(asked, 1).values()] == [1, 1]
    catalogue.write(lot(3, bare("tobi", "a"), tobi("b", 1)))
    assert catalogue.referring(asked, 9) == {asked[0]: [tobi("b", 1), names["c"]], asked[1]: [names["c"]]}
    catalogue.write(lot(4, bare("tobi", "c"), bare("tobi", "b")))
    assert [one.id for one in catalogue.all("fobi")] == ["http://h/all"], "what was never visited, and nothing names"
    catalogue.clear()
    assert catalogue.referring(asked, 9) == {}


def test_files_that_thousands_of_tobis_name(catalogue: Catalogue) -> None:
    """More than one page of references, which may end at any of them."""
    every = [f"{i:04d}" for i in range(2600)]
    odd = [obi for obi in every if int(checksum(obi), 16) % 2]
    catalogue.write(lot(1, *[tobi(obi, 1 if obi in odd else 2) for obi in every]))
    for limit in (1, 50, 9000):
        found = catalogue.naming(["http://h/all", "http://h/1.pdf", "http://h/none", "http://h/2.pdf"], limit)
        assert {url: obis for url, obis in found.items() if obis} == {
            "http://h/all": every[:limit],
            "http://h/1.pdf": odd[:limit],
            "http://h/2.pdf": sorted({*every} - {*odd})[:limit],
        }


def test_files_of_tobis_and_their_states(catalogue: Catalogue) -> None:
    many = tobi("c", 1, 2)
    gone = replace(bare("fobi", "g", {1: "g@1", 2: None}), versions=fobi("g", 1).versions)
    catalogue.write(lot(1, tobi("a"), tobi("b", 1, 2, lost=True), many, mentioned=["m"]))
    catalogue.write(lot(2, fobi("u", 1), fobi("v"), gone))
    kind = "ReDIF-Paper 1.0"
    assert list(catalogue.tobi_files()) == [
        TobiFiles("a", 100, True, kind, ("http://h/100.pdf", "http://h/all")),
        TobiFiles("b", 2, False, kind, ("http://h/1.pdf", "http://h/all")),
        TobiFiles("c", 2, True, kind, ("http://h/2.pdf", "http://h/all"), ("http://h/1.pdf",)),
    ]
    assert catalogue.file_states(["u", "v", "g", "m", "x", "\ud800"]) == {
        "u": FileState(True, "application/pdf", "new", 1),
        "v": FileState(None, "", "unreachable"),
        "g": FileState(False, "application/pdf", "", 2),
        "m": FileState(),
    }


@pytest.mark.slow
def test_a_scan_may_write_behind_itself(catalogue: Catalogue) -> None:
    ids = [f"{i:05d}" for i in range(6000)]
    catalogue.write(lot(1, *[tobi(i, 1) for i in ids]))
    passed: list[str] = []
    for number, one in enumerate(catalogue.scan()):
        passed.append(one.id)
        if number % 1000 == 0:
            catalogue.write(lot(2 + number, *[tobi(i, 1, 2) for i in passed[-50:]], tobi("!" + one.id)))
    assert passed == ids


@pytest.mark.slow
def test_pages_are_whole_while_another_thread_writes(opener: Opener) -> None:
    writer, reader = opener(create=True), opener(read_only=True)
    ids = [f"{i:05d}" for i in range(4000)]
    writer.write(lot(0, *[tobi(i, 1) for i in ids], mentioned=ids))
    stop = threading.Event()

    def work() -> None:
        number = 1
        while not stop.is_set():
            some = ids[number * 37 % 3900 :][:60]
            writer.write(lot(number, *[tobi(i, 1, 1 + number) for i in some], *[fobi(i, 1) for i in some]))
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(4):
            assert [s.id for s in reader.scan()] == ids
            assert [f.id for f in reader.all("fobi")] == ids
            assert [t.id for t in writer.all("tobi")] == ids
    finally:
        stop.set()
        thread.join()


def test_reopening_finds_it_all(opener: Opener) -> None:
    first = opener(create=True)
    first.write(lot(1, tobi("a"), mentioned=["u"]))
    before = everything(first)
    first.close()
    assert everything(opener()) == everything(opener(read_only=True)) == everything(opener(create=True)) == before


def test_without_create_there_must_be_one(opener: Opener) -> None:
    for read_only in (True, False):
        with pytest.raises(CatalogueError) as caught:
            opener(read_only=read_only)
        assert "no " in caught.value.message
        assert "archec rebuild" in caught.value.hint


def test_read_only_refuses_to_write(opener: Opener) -> None:
    opener(create=True).write(lot(1, tobi("a")))
    reader = opener(read_only=True)
    for act in (lambda: reader.write(lot(2)), reader.clear):
        with pytest.raises(CatalogueError, match="reading only"):
            act()
    assert reader.position().batch == 1


def test_clear_empties_and_can_be_written_again(catalogue: Catalogue) -> None:
    changes = lot(1, tobi("a"), fobi("u", 1), runs=[Run(1)])
    catalogue.write(changes)
    before = everything(catalogue)
    catalogue.clear()
    assert catalogue.position() == Position()
    assert catalogue.counts() == Counts(0, 0, 0, 0, 0)
    assert len(everything(catalogue)) == 1
    catalogue.write(changes)
    assert everything(catalogue) == before


def test_a_large_set(catalogue: Catalogue) -> None:
    ids = bytes(range(256)) * 70_000
    catalogue.write(lot(1, sets=[KeyedSet("big", ids), KeyedSet("none", b"")]))
    assert catalogue.keyed("big") == ids
    assert catalogue.keyed("none") == b""


def test_a_closed_catalogue_says_so(opener: Opener) -> None:
    catalogue = opener(create=True)
    catalogue.close()
    with pytest.raises(CatalogueError):
        catalogue.position()


# -- filesets -------------------------------------------------------------------------------------


def test_filesets_manifests_and_ingests_come_back_as_they_were(catalogue: Catalogue) -> None:
    manifest = state("manifest")
    kept = Version(manifest, checksum("manifest"), 9, type="application/json", title="Data")
    history = History.of({5: manifest})
    fileset = Obi("fileset:zenodo:zenodo.org:7", "fileset", history, {manifest: kept}, {5: Note(5, "new")}, stamp=2)
    files = tuple(FilesetManifestFile(f"d/{n}", n, extra={"k.$": [None]}, status="success") for n in range(7))
    parts = [ManifestPart(manifest, 0, files[:4]), ManifestPart(manifest, 4, files[4:])]
    ingests = [Ingest("dataset", f"https://zenodo.org/records/{n}", 5, "success", state=manifest) for n in (2, 1)]
    for number in (1, 1, 2):  # again is as well as once
        catalogue.write(lot(number, fileset, manifests=parts, ingests=ingests))
    assert catalogue.obis("fileset", [fileset.id]) == {fileset.id: fileset}
    assert list(catalogue.manifest(manifest)) == list(files)
    assert list(catalogue.manifest(state("none"))) == []
    assert list(catalogue.manifests()) == [(manifest, n, file) for n, file in enumerate(files)]
    assert list(catalogue.ingests()) == ingests[::-1]
    assert catalogue.ingest("dataset", ingests[0].base_url) == ingests[0]
    assert catalogue.ingest("other", ingests[0].base_url) is None
    assert [json.loads(line)["collection"] for line in dump(catalogue, everything=False)] == ["mf"]
    collections = {json.loads(line)["collection"] for line in everything(catalogue)}
    assert collections == {"mf", "manifests", "ingests", "state"}
    changed = replace(ingests[0], status="platform-404")
    catalogue.write(lot(3, ingests=[changed]))
    assert catalogue.ingest("dataset", changed.base_url) == changed
    catalogue.clear()
    assert [*catalogue.manifests(), *catalogue.ingests(), *catalogue.all("fileset")] == []


def test_held_bytes_are_found_by_their_checksums(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, fobi("http://h/b", 7), fobi("http://h/a", 9, 11)))
    catalogue.write(lot(2, replace(fobi("http://h/b", 7), id="http://h/c")))
    checksums = [one for text in ("http://h/a@11", "http://h/b@7", "none") for one in (state(text), checksum(text))]
    a, b = BytesPlace("fobi", "http://h/a", 11, 5), BytesPlace("fobi", "http://h/b", 7, 5)
    assert catalogue.holding(checksums) == dict(zip(checksums, (a, a, b, b), strict=False))
    assert catalogue.holding(checksums[4:]) == catalogue.holding([]) == {}


@pytest.mark.parametrize(("checksum", "value"), [("sha256", "a" * 64), ("md5", "b" * 32), ("text", "c" * 32)])
def test_holders_of_a_checksum_are_told_once_each_by_id(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, checksum: Checksum, value: str
) -> None:
    for engine in ("sqlite", "mongo"):
        monkeypatch.setattr(f"archec.catalogue.{engine}._PAGE", 3)
    one = Version("a" * 64, "b" * 32, 5, "c" * 32)
    other = Version("d" * 64, "e" * 32, 5, "c" * 32)
    history, versions = History.of({1: one.sha256, 2: other.sha256}), {v.sha256: v for v in (one, other)}
    ids = [f"t{n:02d}" for n in range(10)]
    catalogue.write(lot(1, *(Obi(obi, "tobi", history, versions, stamp=1) for obi in ids), tobi("another")))
    assert list(catalogue.holders("tobi", checksum, value)) == ids
    assert list(catalogue.holders("fobi", checksum, value)) == []
