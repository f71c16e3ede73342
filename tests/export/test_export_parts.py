"""The parts of the export by themselves: order, names, keys, visits, headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archec.catalogue.documents import ObiState
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange, encode
from archec.catalogue.model import Ingest, Kind, Note, Obi, Position, Version, Visit
from archec.errors import BadName, UsageError
from archec.export.observations import Unchanged, Visits, collect_visits, hash_of, line_of, observation_of, of_fobi
from archec.export.units import OTHER, Unit, UnitSelection, selection, tobis_of, unit_of, units
from archec.history import History
from archec.ids import normalise_handle
from archec.store.journal import NO_BATCH, JournalWriter
from archec.store.layout import create
from archec.store.sorting import SortedLines
from archec.warc.cdxj import prefix
from archec.warc.records import Observation

# -- sorting ----------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=4).map(lambda data: data.replace(b"\n", b"n"))))
@settings(max_examples=60)
def test_lines_come_in_order_and_once(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.getbasetemp()
    with SortedLines(folder, in_memory=200) as sorted_lines:
        for line in lines:
            sorted_lines.add(line)
        assert sorted_lines.empty == (not lines)
        assert list(sorted_lines) == sorted(set(lines))
        assert list(sorted_lines) == sorted(set(lines))


def test_many_runs_become_one(tmp_path: Path) -> None:
    with SortedLines(tmp_path, in_memory=100) as sorted_lines:
        for n in range(300):
            sorted_lines.add(f"{n * 7919 % 300:05d}".encode())
        assert list(sorted_lines) == [f"{n:05d}".encode() for n in range(300)]


# -- units ------------------------------------------------------------------------------------------


class FakeCatalogue:
    """The lists of a catalogue that the units are read from."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = sorted(set(ids))

    def scan(self, after: str = "") -> Iterator[ObiState]:
        return (ObiState(obi, 1, None, None) for obi in self.ids if obi > after)

    def all(self, kind: Kind, after: str = "") -> Iterator[Obi]:
        return (Obi(obi, kind) for obi in self.ids if obi > after)

    def obis(self, kind: Kind, ids: list[str]) -> dict[str, Obi]:
        return {obi: Obi(obi, kind) for obi in ids if obi in self.ids}

    def ingests(self) -> Iterator[Ingest]:
        return iter(())


CODES = st.sampled_from(["a", "aa", "aaa", "aab", "a+b", "a-b", "a9", "a;", "\U0010ffff", "", "é", ".", "..", "/"])
HANDLES = st.one_of(
    st.builds(lambda *parts: ":".join(("RePEc", *parts)), CODES, CODES, CODES),
    st.builds(lambda *parts: ":".join(("RePEc", *parts)), CODES, CODES),
    st.builds(lambda code: f"RePEc:{code}", CODES),
    st.sampled_from(["x", "repec", "RePEc", "zzz:a:b", "RePEb:a:b", "RePEd"]),
)


def _normal(handle: str) -> str:
    try:
        return normalise_handle(handle)
    except BadName:
        return "other"


@given(st.lists(HANDLES.map(_normal), max_size=30))
def test_every_template_is_in_one_unit(ids: list[str]) -> None:
    catalogue = cast(Catalogue, FakeCatalogue(ids))
    found = list(units(catalogue, UnitSelection()))
    assert sorted(found) == sorted({unit_of(obi) for obi in ids})
    placed = [(unit, tobi.id) for unit in found for tobi in tobis_of(catalogue, unit)]
    assert sorted(placed) == sorted((unit_of(obi), obi) for obi in set(ids))
    for archive in {unit.archive for unit in found if unit.archive}:
        wanted = {unit for unit in found if unit.archive == archive}
        assert sorted(units(catalogue, UnitSelection(archive))) == sorted(wanted)


@given(st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90)), min_size=2, max_size=2, unique=True))
@example([("." + 90 * "a", ""), ("", "")])
def test_no_two_units_share_a_name(pair: list[tuple[str, str]]) -> None:
    one, other = (unit_of(_normal(f"RePEc:{a.replace(':', '')}:{s.replace(':', '')}:1")) for a, s in pair)
    for unit in (one, other):
        for name in (unit.name, unit.folder):
            assert "/" not in name
            assert not name.startswith(".")
            assert name.isascii()
            assert len(name) < 240
    assert (one.name == other.name) == (one == other)


def test_selection() -> None:
    assert selection(None, None) == UnitSelection()
    assert selection("RePEc:AAA", None) == selection("aaa", None) == UnitSelection("aaa")
    assert selection("aaa", "sss") == selection(None, "aaa:sss") == selection("aaa", "RePEc:aaa:SSS")
    for archive, series in ((None, "sss"), ("a:b", None), ("aaa", "bbb:sss"), (None, "a:b:c"), (None, "a:")):
        with pytest.raises(UsageError):
            selection(archive, series)
    assert (OTHER.handle, Unit("aaa", "").handle, Unit("aaa", "s").handle) == ("other", "RePEc:aaa", "RePEc:aaa:s")


# -- observations -----------------------------------------------------------------------------------

URL = "http://h.example/a"


def fobi(target: str = "", status: int = 200) -> Obi:
    versions = [Version(x * 64, x * 32, size, None, "text/html") for x, size in (("a", 3), ("b", 4))]
    return Obi(
        URL,
        "fobi",
        History.of({100: "a" * 64, 200: None, 300: "b" * 64}),
        {version.sha256: version for version in versions},
        {
            100: Note(100, "new", status=status, target=target, headers=(("content-type", "text/html"),)),
            200: Note(200, "lost"),
            300: Note(300, "returned", status=status, target=target),
        },
    )


def visits(*found: Unchanged) -> Visits:
    return cast(Visits, SimpleNamespace(of=lambda url: iter(found)))


def seen(obi: Obi, *found: Unchanged, since: int = 0) -> list[tuple[str, int, int]]:
    return sorted((s.kind, s.tist, s.noted) for s in of_fobi(obi, visits(*found), since))


def test_visits_become_revisits_of_what_was_held_then() -> None:
    noted = [("response", 100, 100), ("response", 300, 300)]
    assert seen(fobi()) == noted
    found = [Unchanged(tist, False, "") for tist in (50, 100, 150, 250, 300, 400)]
    assert seen(fobi(), *found) == [*noted, ("revisit", 150, 100), ("revisit", 400, 300)]
    assert seen(fobi(), *found, since=350) == [("response", 300, 300), ("revisit", 400, 300)]
    assert seen(fobi(), since=350) == []


def test_another_redirect_to_the_same_bytes_is_no_revisit() -> None:
    way, other = hash_of("http://h.example/b"), hash_of("http://h.example/c")
    obi = fobi("http://h.example/b", 301)
    found = seen(obi, Unchanged(150, True, way), Unchanged(160, False, other), Unchanged(170, False, ""))
    assert found == [("redirect", 100, 100), ("redirect", 300, 300), ("revisit", 150, 100)]
    assert seen(fobi(), Unchanged(150, False, way)) == [("response", 100, 100), ("response", 300, 300)]


def test_ftp_is_a_resource() -> None:
    obi = Obi("ftp://h.example/a", "fobi", fobi().history, fobi().versions, fobi().notes)
    assert {kind for kind, _, _ in seen(obi)} == {"resource"}


def test_lines_hold_all_and_sort_by_their_prefix() -> None:
    one = Observation("response", URL, 1_000_000_000, 1_000_000_000, "a" * 64, 3, "text/html", 200, (("a", "b"),))
    start, back = observation_of(line_of(one))
    assert back == one
    assert start == prefix(URL, 1_000_000_000) == b'example,h)/a 20010909014640 {"url":"http://h.example/a"'


def test_visits_are_looked_up(tmp_path: Path) -> None:
    rows: list[tuple[str, int, str, str]] = [
        (url, tist, flag, target)
        for url in (URL, "http://h.example/b", "http://h.example/c")
        for tist, flag, target in ((5, "s", "0" * 16), (1_352_481_230, "m", hash_of("http://t.example/")))
    ]
    lines = sorted(f"{hash_of(url)}{tist:012d}{flag}{target}{'old':32}\n" for url, tist, flag, target in rows)
    (tmp_path / "visits").write_text("".join(lines), encoding="ascii")
    found = Visits(tmp_path / "visits")
    wanted = [Unchanged(5, False, "", "old"), Unchanged(1_352_481_230, True, hash_of("http://t.example/"), "old")]
    assert list(found.of(URL)) == wanted
    assert list(found.of("http://h.example/none")) == []
    (tmp_path / "none").touch()
    assert list(Visits(tmp_path / "none").of(URL)) == []


def test_no_journal_is_read_for_an_empty_archive(tmp_path: Path) -> None:
    path = collect_visits(create(tmp_path / "archive"), Position(), 0, tmp_path, lambda lines: None)
    assert path.read_bytes() == b""


def test_visits_of_a_run_that_was_retracted_are_left_out(tmp_path: Path) -> None:
    layout = create(tmp_path / "archive")
    with JournalWriter(layout, 7, head=NO_BATCH) as journal:
        journal.append([encode(ObiChange("fobi", URL, visit=Visit(7, "same")))], 7)
    for retracted, lines in ((set(), 1), ({8}, 1), ({7}, 0)):
        path = collect_visits(layout, Position(7, 1), 0, tmp_path, lambda lines: None, retracted=retracted)
        assert path.read_bytes().count(b"\n") == lines
