"""CoverageRow: figures, order, parts, over both engines; against a count by hand."""

from __future__ import annotations

import random

import pytest
from report_data import PAPER, file, lot, work

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.report.coverage import CoverageRow, coverage


def test_every_file_counts_once_for_each_work(catalogue: Catalogue) -> None:
    tobis = [
        work(
            "RePEc:a:s:1", {1: ["http://h/old"], 2: ["http://h/pdf", "http://h/pdf", "http://h/html", "http://h/lost"]}
        ),
        work("RePEc:a:s:2", {1: ["http://h/pdf"]}),
        work(
            "RePEc:a:s:3",
            {1: ["http://h/gone", "http://h/timeout", "http://h/robots", "http://h/bad", "http://h/none"]},
        ),
        work("RePEc:a:s:4", {1: []}),
        work("RePEc:a:s:5", {1: ["http://h/pdf"], 2: None}),
        work("RePEc:a:s", {1: ["http://h/pdf"]}, kind="ReDIF-Series 1.0"),
        work("RePEc:a:s:x", {1: ["http://h/pdf"]}, kind="ReDIF-Novel 1.0"),
        work("RePEc:a:t:1", {1: ["http://h/pdf"]}, kind="redif-article 1.0"),
    ]
    fobis = [
        file("http://h/pdf", {3: "1"}), file("http://h/html", {3: "2"}, "forbidden", kind="text/html"),
        file("http://h/lost", {3: "1", 4: None}, "gone"), file("http://h/gone", {}, "gone"),
        file("http://h/timeout", {}, "timeout"), file("http://h/robots", {}, "robots"),
        file("http://h/bad", {}, "bad-url"),
    ]  # fmt: skip
    catalogue.write(lot(1, obis=[*tobis, *fobis], mentioned=["http://h/none"]))
    assert list(coverage(catalogue)) == [
        CoverageRow(
            "a", "s", 4, 2, files=9, held=3, pdfs=2, lost=1, gone=1, unreachable=1, forbidden=1, never=1, other=1
        ),
        CoverageRow("a", "t", 1, 1, files=1, held=1, pdfs=1),
    ]


def test_order_and_works_outside_of_series(catalogue: Catalogue) -> None:
    ids = [
        "x",
        "RePEc:a:s:1",
        "RePEc:a:s-b:1",
        "RePEc:a:s",
        "RePEc:a:t",
        "RePEc:a-b:s:1",
        "RePEc:b:x",
        "a:b:c:d",
        "RePEc:c:s:1",
    ]
    catalogue.write(lot(1, obis=[work(obi, {1: []}) for obi in ids]))
    rows = [(row.archive, row.series, row.works) for row in coverage(catalogue)]
    assert rows == [
        ("a-b", "s", 1), ("a", "s-b", 1), ("a", "s", 1), ("a", "", 2), ("b", "", 1), ("c", "s", 1), ("", "", 2),
    ]  # fmt: skip


def test_of_an_archive_and_of_a_series(catalogue: Catalogue) -> None:
    ids = ["RePEc:a:s:1", "RePEc:a:s-b:1", "RePEc:a:t:1", "RePEc:aa:s:1", "RePEc:a-:s:1"]
    catalogue.write(lot(1, obis=[work(obi, {1: []}) for obi in ids]))
    assert [row.series for row in coverage(catalogue, archive="a")] == ["s-b", "s", "t"]
    assert [(row.archive, row.series) for row in coverage(catalogue, archive="a", series="s")] == [("a", "s")]
    assert list(coverage(catalogue, archive="b")) == []


def random_world(seed: int) -> tuple[list[Obi], list[Obi]]:
    draw = random.Random(seed)
    urls = [f"http://h/{i}" for i in range(300)]
    outcomes = ["", "gone", "forbidden", "timeout", "too-large", "same"]
    fobis = []
    for url in urls:
        entries: dict[int, str | None] = draw.choice([{}, {1: url}, {1: url, 2: None}, {1: url, 2: None, 3: url}])
        fobis.append(file(url, entries, draw.choice(outcomes), kind=draw.choice(["application/pdf", "text/html"])))
    tobis = []
    for number in range(1200):
        code = f"RePEc:{draw.choice('abcdefgh')}:{draw.choice('stuv')}:{number}"
        entries_of: dict[int, list[str] | None] = {1: draw.sample(urls, draw.randrange(4))}
        if draw.random() < 0.3:
            entries_of[2] = None
        tobis.append(work(code, entries_of, kind=draw.choice([PAPER, PAPER, "ReDIF-Series 1.0"])))  # type: ignore[arg-type]
    return tobis, fobis


def by_hand(tobis: list[Obi], fobis: list[Obi]) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Works, works with a file, files held, PDFs, by a way of its own."""
    known = {fobi.id: fobi for fobi in fobis}
    counted: dict[tuple[str, str], tuple[int, int, int, int]] = {}
    for tobi in tobis:
        state = tobi.history.states[-1]
        if state is None or tobi.versions[state].type != PAPER:
            continue
        held = [known[ref.url] for ref in tobi.versions[state].refs if known[ref.url].history.held]
        pdfs = [fobi for fobi in held if fobi.versions[fobi.history.states[-1] or ""].type == "application/pdf"]
        _, archive, series, _ = tobi.id.split(":")
        before = counted.get((archive, series), (0, 0, 0, 0))
        now = (1, bool(held), len(held), len(pdfs))
        counted[archive, series] = tuple(a + b for a, b in zip(before, now, strict=True))  # type: ignore[assignment]
    return counted


@pytest.mark.parametrize("seed", [1, 3])
def test_against_a_count_by_hand(catalogue: Catalogue, seed: int) -> None:
    tobis, fobis = random_world(seed)
    odd = [work(obi, {1: []}) for obi in ("a:b:c:d", "x", "RePEc:c:x", "RePEc:h", "RePEc:h:t:1-1")]
    catalogue.write(lot(1, obis=[*tobis, *odd, *fobis]))
    rows = list(coverage(catalogue))
    assert [(row.archive, row.works) for row in rows if not row.series] == [("c", 1), ("h", 1), ("", 2)]
    rows = [row for row in rows if row.series]
    expected = by_hand([*tobis, odd[-1]], fobis)
    assert {(r.archive, r.series): (r.works, r.with_file, r.held, r.pdfs) for r in rows} == expected
    for row in rows:
        states = (row.held, row.lost, row.gone, row.unreachable, row.forbidden, row.never, row.bad_urls, row.other)
        assert row.files == sum(states)
    assert sum(row.works for row in rows) == sum(works for works, *_ in expected.values())


def test_nothing(catalogue: Catalogue) -> None:
    assert list(coverage(catalogue)) == []
