"""The contract of :class:`archec.catalogue.interface.Catalogue`, over every engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from catalogue_data import HOSTILE, checksum, fobi, lot, tobi

from archec.catalogue.dump import dump
from archec.catalogue.interface import Catalogue, Counts
from archec.catalogue.lists import FileState, Place, TobiFiles
from archec.catalogue.model import (
    DataSet,
    DueFobi,
    Fobi,
    Position,
    Run,
    SeenSet,
    TextPlace,
    Tobi,
    TobiState,
)
from archec.catalogue.open import open_catalogue
from archec.errors import CatalogueError
from archec.history import History

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
    assert catalogue.tobis(["a"]) == catalogue.fobis(["a"]) == {}
    assert catalogue.runs() == catalogue.data_sets() == []
    assert catalogue.seen("x") is None
    assert catalogue.text("vi", checksum("x")) is None
    assert [*catalogue.scan_tobis(), *catalogue.all_tobis(), *catalogue.all_fobis(), *catalogue.due(10**12)] == []
    assert list(dump(catalogue, everything=False)) == []


def test_documents_come_back_as_they_were(catalogue: Catalogue) -> None:
    tobis = [tobi("a"), tobi("b", 3, 1, 2), tobi("c", 1, 2, lost=True)]
    fobis = [fobi("u"), fobi("v", 4, 5, due=77)]
    runs = [Run(9, "done", 8, "tarball", "/x.tgz", "{}", '{"n":1}'), Run(7)]
    sets = [DataSet(5, ("x",), True, frozenset({"aaa", ""}), {"b.$\0": ("k1", "k2"), "": ()}), DataSet(4)]
    catalogue.write(lot(1, tobis=tobis, fobis=fobis, runs=runs, data_sets=sets, seen=[SeenSet("k1", b"\0\xff")]))
    assert catalogue.tobis(["a", "b", "c", "d"]) == {t.id: t for t in tobis}
    assert catalogue.fobis(["u", "v", "w"]) == {f.id: f for f in fobis}
    assert catalogue.runs() == runs[::-1]
    assert catalogue.data_sets() == sets[::-1]
    assert catalogue.seen("k1") == b"\0\xff"
    assert catalogue.position() == Position(1000, 1, 2001)


def test_reading_many_ids_at_once(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi(f"t{i}") for i in range(2500)], mentioned=[f"f{i}" for i in range(2500)]))
    assert len(catalogue.tobis({f"t{i}" for i in range(5000)})) == 2500
    assert len(catalogue.fobis([f"f{i}" for i in range(5000)])) == 2500
    assert catalogue.tobis([]) == {}


def test_a_later_write_replaces(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi("a", 1), tobi("b", 1)], fobis=[fobi("u", 1)]))
    catalogue.write(lot(2, tobis=[tobi("a", 1, 2)], fobis=[fobi("u", 1, 2)], runs=[Run(1)]))
    catalogue.write(lot(3, runs=[Run(1, "done")]))
    assert catalogue.tobis(["a", "b"]) == {"a": tobi("a", 1, 2), "b": tobi("b", 1)}
    assert list(catalogue.all_fobis()) == [fobi("u", 1, 2)]
    assert catalogue.runs() == [Run(1, "done")]


def test_the_newest_runs_page_by_page(catalogue: Catalogue) -> None:
    runs = [Run(n, "done") for n in (3, 1, 4, 15, 9)]
    catalogue.write(lot(1, runs=runs))
    assert [run.tist for run in catalogue.newest_runs(10**12, 2)] == [15, 9]
    assert [run.tist for run in catalogue.newest_runs(9, 2)] == [4, 3]
    assert catalogue.newest_runs(16, 1) == [Run(15, "done")]
    assert catalogue.newest_runs(1, 5) == []


def test_the_last_of_one_id_in_a_lot_wins(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi("a", 1), tobi("a", 1, 2)], fobis=[fobi("u", 1), fobi("u", 2)]))
    assert list(catalogue.all_tobis()) == [tobi("a", 1, 2)]
    assert list(catalogue.all_fobis()) == [fobi("u", 2)]


def test_the_same_lot_again_changes_nothing(catalogue: Catalogue) -> None:
    place = TextPlace(checksum("x"), 3, "a")
    changes = lot(
        1, tobis=[tobi("a", 1, 2)], fobis=[fobi("u", 1)], mentioned=["u", "v"], vi=[place], runs=[Run(1)],
        data_sets=[DataSet(1)], seen=[SeenSet("k", b"12345678")],
    )  # fmt: skip
    catalogue.write(changes)
    before = everything(catalogue)
    catalogue.write(changes)
    assert everything(catalogue) == before


def test_a_mention_never_replaces(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, fobis=[fobi("u", 1, due=5)], mentioned=["u", "w", "w"]))
    catalogue.write(lot(2, mentioned=["u", "w", "x"]))
    assert list(catalogue.all_fobis()) == [fobi("u", 1, due=5), Fobi("w"), Fobi("x")]
    catalogue.write(lot(3, fobis=[fobi("w", 9, due=6)]))
    assert catalogue.fobis(["w"]) == {"w": fobi("w", 9, due=6)}


@pytest.mark.parametrize("which", ["vi", "vo"])
def test_a_text_keeps_its_least_place(catalogue: Catalogue, which: str) -> None:
    x, y = sorted((checksum("x"), checksum("y")))
    for number, (tist, obi) in enumerate([(5, "b"), (5, "c"), (5, "a\0"), (6, ""), (10**10, "a"), (4, "z"), (5, "")]):
        catalogue.write(lot(number, **{which: [TextPlace(y, tist, obi), TextPlace(x, 2, f"{number}")]}))
    catalogue.write(lot(9, **{which: [TextPlace(x, 1, "b"), TextPlace(x, 1, "a"), TextPlace(x, 3, "")]}))
    assert list(catalogue.texts(which)) == [TextPlace(x, 1, "a"), TextPlace(y, 4, "z")]  # type: ignore[arg-type]
    assert catalogue.text(which, y) == TextPlace(y, 4, "z")  # type: ignore[arg-type]
    for junk in ("", "x", y.upper() + "0", "\ud800", "é" * 32):
        assert catalogue.text(which, junk) is None  # type: ignore[arg-type]


def test_hostile_ids_come_back_and_sort_by_their_utf8(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi(obi) for obi in HOSTILE], fobis=[fobi(obi, 1) for obi in HOSTILE]))
    catalogue.write(lot(2, vi=[TextPlace(checksum(obi), 1, obi) for obi in HOSTILE], mentioned=[*HOSTILE, "a\0b"]))
    order = sorted(HOSTILE)
    assert order == sorted(HOSTILE, key=lambda obi: obi.encode())
    assert [state.id for state in catalogue.scan_tobis()] == order
    assert [t.id for t in catalogue.all_tobis()] == order
    assert [f.id for f in catalogue.changed_fobis(0, "\U0010ffff")] == order
    assert [due.id for due in catalogue.due(0)] == sorted([*order, "a\0b"])
    assert catalogue.tobis(HOSTILE) == {obi: tobi(obi) for obi in HOSTILE}
    for obi in HOSTILE:
        place = catalogue.text("vi", checksum(obi))
        assert place is not None
        assert place.id == obi
        assert next(catalogue.scan_tobis(obi), None) == next((s for s in catalogue.scan_tobis() if s.id > obi), None)


def test_what_is_not_text_is_unknown_and_cannot_be_written(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi("a")]))
    assert catalogue.tobis(["a", "\ud800"]) == {"a": tobi("a")}
    assert catalogue.fobis(["\udfff"]) == {}
    with pytest.raises(CatalogueError):
        catalogue.write(lot(2, mentioned=["\ud800"]))
    with pytest.raises(CatalogueError):
        list(catalogue.scan_tobis("\ud800"))
    with pytest.raises(CatalogueError):
        catalogue.write(lot(2, fobis=[fobi("u", due=2**70)]))
    assert catalogue.position().batch == 1


def test_scan_tells_the_newest_state(catalogue: Catalogue) -> None:
    one, many, gone = tobi("a", 5), tobi("b", 11, 3, 1000), tobi("c", 1, 2, lost=True)
    catalogue.write(lot(1, tobis=[gone, many, one, Tobi("d")]))
    a, b, c, d = catalogue.scan_tobis()
    assert a == TobiState("a", 5, checksum("a@5"), None)
    assert isinstance(a, TobiState)
    expected = f'{{"3":"{checksum("b@3")}","11":"{checksum("b@11")}","1000":"{checksum("b@1000")}"}}'
    assert b == TobiState("b", 1000, checksum("b@1000"), expected)
    assert c == TobiState("c", 2, None, f'{{"1":"{checksum("c@1")}","2":null}}')
    assert d == TobiState("d", 0, None, "{}")
    assert [s.id for s in catalogue.scan_tobis("b")] == ["c", "d"]
    assert [t.id for t in catalogue.all_tobis("a")] == ["b", "c", "d"]


@pytest.mark.parametrize("count", [1999, 2000, 5001])
def test_pages_neither_skip_nor_double(catalogue: Catalogue, count: int) -> None:
    ids = [f"{i:05d}" for i in range(count)]
    catalogue.write(lot(1, tobis=[tobi(i, stamp=1 + int(i) % 3) for i in ids], mentioned=ids))
    assert [s.id for s in catalogue.scan_tobis()] == ids
    assert [t.id for t in catalogue.all_tobis()] == ids
    assert [f.id for f in catalogue.all_fobis()] == ids
    assert [d.id for d in catalogue.due(0)] == ids
    got: list[str] = []
    stamp, after = 0, ""
    while page := catalogue.changed_tobis(stamp, after, 700):
        assert len(page) <= 700
        got += [t.id for t in page]
        stamp, after = page[-1].stamp, page[-1].id
    assert got == sorted(ids, key=lambda i: (int(i) % 3, i))


def test_changed_begins_behind_the_pair(catalogue: Catalogue) -> None:
    catalogue.write(lot(1, tobis=[tobi(i, stamp=s) for i, s in [("a", 2), ("b", 1), ("c", 2), ("d", 3)]]))
    catalogue.write(lot(2, fobis=[fobi(i, stamp=s) for i, s in [("a", 2), ("b", 1)]], mentioned=["m"]))
    assert [t.id for t in catalogue.changed_tobis(0)] == ["b", "a", "c", "d"]
    assert [t.id for t in catalogue.changed_tobis(2)] == ["a", "c", "d"]
    assert [t.id for t in catalogue.changed_tobis(2, "a")] == ["c", "d"]
    assert [t.id for t in catalogue.changed_tobis(2, "a", 1)] == ["c"]
    assert catalogue.changed_tobis(3, "d") == []
    assert [f.id for f in catalogue.changed_fobis(0)] == ["m", "b", "a"]
    assert [f.id for f in catalogue.changed_fobis(1)] == ["b", "a"]
    assert catalogue.changed_tobis(0, limit=1)[0] == tobi("b", stamp=1)


def test_due_goes_by_time_and_id(catalogue: Catalogue) -> None:
    fobis = [fobi(i, due=d) for i, d in [("a", 30), ("b", 10), ("c", 20), ("d", 20), ("e", 40)]]
    catalogue.write(lot(1, fobis=fobis, mentioned=["z", "y"]))
    assert list(catalogue.due(30)) == [(0, "y"), (0, "z"), (10, "b"), (20, "c"), (20, "d"), (30, "a")]
    assert list(catalogue.due(29, DueFobi(20, "c"))) == [(20, "d")]
    assert list(catalogue.due(5, DueFobi(20, "c"))) == []
    assert isinstance(next(catalogue.due(0)), DueFobi)
    catalogue.write(lot(2, fobis=[fobi("y", 1, due=25), fobi("b", due=99)]))
    assert list(catalogue.due(30)) == [(0, "z"), (20, "c"), (20, "d"), (25, "y"), (30, "a")]


def test_counts(catalogue: Catalogue) -> None:
    gone = Fobi("g", History.of({1: checksum("g"), 2: None}))
    catalogue.write(lot(1, tobis=[tobi("a"), tobi("b", 1, 2, lost=True), tobi("c", 1, 2)]))
    catalogue.write(lot(2, fobis=[fobi("u", 1), fobi("v"), gone], mentioned=["w", "x"]))
    assert catalogue.counts() == Counts(2, 1, 1, 1, 3)


def test_lists_of_what_happened(catalogue: Catalogue) -> None:
    back = Tobi("b", "B", History.of({1: checksum("x"), 4: None, 9: checksum("x")}))
    away = Fobi("u", History.of({2: checksum("y"), 5: None}))
    catalogue.write(lot(1, tobis=[tobi("a", 1, 3, lost=True), back, tobi("c", 1)], fobis=[away, fobi("v")]))
    assert list(catalogue.incidences("tobi")) == [(1, "a"), (1, "b"), (1, "c"), (3, "a"), (4, "b"), (9, "b")]
    assert list(catalogue.incidences("tobi", Place(1, "b"))) == [(1, "c"), (3, "a"), (4, "b"), (9, "b")]
    assert list(catalogue.incidences("fobi")) == [(2, "u"), (5, "u")]
    assert list(catalogue.lost("tobi")) == [(3, "a")]
    assert list(catalogue.lost("fobi")) == [(5, "u")]
    assert list(catalogue.lost("fobi", Place(5, "u"))) == list(catalogue.returned("fobi")) == []
    assert list(catalogue.returned("tobi")) == [(9, "b")]
    assert all(isinstance(place, Place) for place in catalogue.incidences("tobi"))
    catalogue.write(lot(2, tobis=[tobi("a", 1, 2), tobi("b", 7)], fobis=[fobi("u", 2, 6)]))
    assert list(catalogue.incidences("tobi")) == [(1, "a"), (1, "c"), (2, "a"), (7, "b")]
    assert list(catalogue.incidences("fobi")) == [(2, "u"), (6, "u")]
    assert [*catalogue.lost("tobi"), *catalogue.lost("fobi"), *catalogue.returned("tobi")] == []


@pytest.mark.parametrize("count", [1999, 2000, 4001])
def test_pages_of_lists_neither_skip_nor_double(catalogue: Catalogue, count: int) -> None:
    ids = [f"{i:05d}" for i in range(count)]
    gone = [Fobi(i, History.of({1 + int(i) % 3: checksum(i), 9: None})) for i in ids]
    catalogue.write(lot(1, tobis=[tobi(i, 1 + int(i) % 3) for i in ids], fobis=gone))
    expected = sorted((1 + int(i) % 3, i) for i in ids)
    assert list(catalogue.incidences("tobi")) == expected
    assert list(catalogue.incidences("fobi")) == [*expected, *((9, i) for i in ids)]
    assert list(catalogue.lost("fobi")) == [(9, i) for i in ids]
    assert [one.id for one in catalogue.tobi_files()] == ids
    assert [one.id for one in catalogue.tobi_files(ids[3], ids[-3])] == ids[4:-3]
    assert len(catalogue.file_states([*ids, "x"])) == count


def test_who_refers_to_a_file(catalogue: Catalogue) -> None:
    names = {i: tobi(i, 1, 2) for i in ("a", "b", "c")}
    catalogue.write(lot(1, tobis=[names["b"], names["a"]], mentioned=["http://h/all", "http://h/1.pdf"]))
    asked = ["http://h/all", "http://h/2.pdf", "http://h/none", "\ud800"]
    assert catalogue.referring(asked, 9) == {url: [names["a"], names["b"]] for url in asked[:2]}
    catalogue.write(lot(2, tobis=[names["c"]], fobis=[fobi("http://h/all", 3)]))
    assert catalogue.referring(asked[:1], 9) == {asked[0]: list(names.values())}
    assert [len(found) for found in catalogue.referring(asked, 1).values()] == [1, 1]
    catalogue.write(lot(3, tobis=[Tobi("a"), tobi("b", 1)]))
    assert catalogue.referring(asked, 9) == {asked[0]: [tobi("b", 1), names["c"]], asked[1]: [names["c"]]}
    catalogue.clear()
    assert catalogue.referring(asked, 9) == {}


def test_files_of_tobis_and_their_states(catalogue: Catalogue) -> None:
    many = tobi("c", 1, 2)
    gone = Fobi("g", History.of({1: checksum("g@1"), 2: None}), fobi("g", 1).versions)
    catalogue.write(lot(1, tobis=[tobi("a"), tobi("b", 1, 2, lost=True), many], mentioned=["m"]))
    catalogue.write(lot(2, fobis=[fobi("u", 1), fobi("v"), gone]))
    kind = "ReDIF-Paper 1.0"
    assert list(catalogue.tobi_files()) == [
        TobiFiles("a", 100, True, kind, ("http://h/100.pdf", "http://h/all")),
        TobiFiles("b", 2, False, kind, ("http://h/1.pdf", "http://h/all"), ("http://h/2.pdf",)),
        TobiFiles("c", 2, True, kind, ("http://h/2.pdf", "http://h/all"), ("http://h/1.pdf",)),
    ]
    assert catalogue.file_states(["u", "v", "g", "m", "x", "\ud800"]) == {
        "u": FileState(True, "application/pdf", "new", 1),
        "v": FileState(None, "", "unreachable"),
        "g": FileState(False, "application/pdf", "", 2),
        "m": FileState(),
    }


def test_ids_are_parted_evenly(catalogue: Catalogue) -> None:
    assert catalogue.split(4, 1) == []
    catalogue.write(lot(1, tobis=[tobi(f"{i:04d}") for i in range(3000)]))
    assert catalogue.split(1, 1) == catalogue.split(9, 2000) == []
    assert len(catalogue.split(9, 1400)) == 1
    cuts = catalogue.split(3, 10)
    assert cuts == sorted(cuts)
    edges = ["", *cuts, ""]
    sizes = [sum(1 for _ in catalogue.tobi_files(a, b)) for a, b in pairwise(edges)]
    assert all(600 < size < 1400 for size in sizes), sizes


def test_a_scan_may_write_behind_itself(catalogue: Catalogue) -> None:
    ids = [f"{i:05d}" for i in range(6000)]
    catalogue.write(lot(1, tobis=[tobi(i, 1) for i in ids]))
    passed: list[str] = []
    for number, state in enumerate(catalogue.scan_tobis()):
        passed.append(state.id)
        if number % 1000 == 0:
            catalogue.write(lot(2 + number, tobis=[tobi(i, 1, 2) for i in passed[-50:]] + [tobi("!" + state.id)]))
    assert passed == ids


def test_pages_are_whole_while_another_thread_writes(opener: Opener) -> None:
    writer, reader = opener(create=True), opener(read_only=True)
    ids = [f"{i:05d}" for i in range(4000)]
    writer.write(lot(0, tobis=[tobi(i, 1) for i in ids], mentioned=ids))
    stop = threading.Event()

    def work() -> None:
        number = 1
        while not stop.is_set():
            some = ids[number * 37 % 3900 :][:60]
            writer.write(lot(number, tobis=[tobi(i, 1, 1 + number) for i in some], fobis=[fobi(i, 1) for i in some]))
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(4):
            assert [s.id for s in reader.scan_tobis()] == ids
            assert [f.id for f in reader.all_fobis()] == ids
            assert [t.id for t in writer.all_tobis()] == ids
    finally:
        stop.set()
        thread.join()


def test_reopening_finds_it_all(opener: Opener) -> None:
    first = opener(create=True)
    first.write(lot(1, tobis=[tobi("a")], mentioned=["u"]))
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
    opener(create=True).write(lot(1, tobis=[tobi("a")]))
    reader = opener(read_only=True)
    for act in (lambda: reader.write(lot(2)), reader.clear):
        with pytest.raises(CatalogueError, match="reading only"):
            act()
    assert reader.position().batch == 1


def test_clear_empties_and_can_be_written_again(catalogue: Catalogue) -> None:
    changes = lot(1, tobis=[tobi("a")], fobis=[fobi("u", 1)], vi=[TextPlace(checksum("x"), 1, "a")], runs=[Run(1)])
    catalogue.write(changes)
    before = everything(catalogue)
    catalogue.clear()
    assert catalogue.position() == Position()
    assert catalogue.counts() == Counts(0, 0, 0, 0, 0)
    assert len(everything(catalogue)) == 1
    catalogue.write(changes)
    assert everything(catalogue) == before


def test_a_large_seen_set(catalogue: Catalogue) -> None:
    ids = bytes(range(256)) * 70_000
    catalogue.write(lot(1, seen=[SeenSet("big", ids), SeenSet("none", b"")]))
    assert catalogue.seen("big") == ids
    assert catalogue.seen("none") == b""


def test_a_closed_catalogue_says_so(opener: Opener) -> None:
    catalogue = opener(create=True)
    catalogue.close()
    with pytest.raises(CatalogueError):
        catalogue.position()
