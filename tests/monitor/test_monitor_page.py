"""The page of ``archec report``: self-contained, harmless whatever it is told, the same as its JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from gather_support import archec_inline, catalogue_of, environment, make, run, write_papers
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.archive.report import HostFigures, Hosts, ProblemFigures, RunReport
from archec.monitor.page import Account, page
from archec.monitor.plots import coverage_by_archive, hosts_plot, series_of
from archec.monitor.runs import RunView
from archec.monitor.status import PendingLosses
from archec.redif.problems import Problem
from archec.report.changes import Incident
from archec.report.coverage import CoverageRow
from archec.tist import MAX_TIST

EVIL = "</title></svg><script>alert('x')</script><img src=x onerror=alert(1)>&\"'$x^2$\x00\x1b[31m\u202e\udc80"

FORBIDDEN = {"script", "img", "iframe", "object", "embed", "link", "base", "a", "image"}


class Look(HTMLParser):
    """The elements of a page, with their attributes; whether they are closed in order."""

    VOID = frozenset(("meta", "br", "img"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_harmless(text: str) -> Look:
    look = Look(text)
    assert look.open == []
    assert not {tag for tag, _ in look.tags} & FORBIDDEN
    ids = [attrs["id"] for _, attrs in look.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in look.tags:
        for name, value in attrs.items():
            assert not name.startswith("on"), name
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#"), value
    assert not re.search(r"url\((?!#)", text)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    return look


def account_of(text: str, count: int = 3) -> Account:
    hosts = Hosts()
    for n in range(count):
        hosts.visited(text + str(n), "timeout")
        hosts.visited(str(n), text)
    report = RunReport(
        message=text,
        tobis={"new": 5, text: 7, "lost": 2},
        fobis={text: 1},
        held_back={text: 3},
        hosts=hosts.figures(),
        problems=ProblemFigures({text: 4}, [Problem(text, 3, text, text)] * 3),
        seconds={"templates": 3.5},
        stored_bytes=77,
    )
    view = RunView(1_700_000_000, "done", "done", 1_300_000_000, "gather", "tarball", text, text, report)
    rows = tuple(CoverageRow(text, "", 3, 2) for _ in range(count))
    return Account(text, 1_700_000_001, view, series_of([view] * 3), rows)


def test_hostile_text_is_harmless() -> None:
    text = page(account_of(EVIL))
    look = assert_harmless(text)
    assert len([tag for tag, _ in look.tags if tag == "svg"]) == 4
    assert "&lt;script&gt;" in text


@settings(max_examples=50)
@given(st.text(st.characters(), max_size=60))
def test_any_text_is_harmless(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("incidences_plot", "growth_plot", "hosts_plot", "coverage_plot"):
            patch.setattr(f"archec.monitor.page.{name}", lambda *arguments: "<svg ></svg>")
        assert_harmless(page(account_of(text, 2)))


def test_labels_of_a_plot_are_harmless() -> None:
    names = (EVIL, "$\\frac{1}{0}$", "--><b>", "\u4e2d\u6587", "")
    hosts = [HostFigures(text, 3, 1, {"timeout": 3}, {"timeout": 1}) for text in names]
    picture = hosts_plot(hosts)
    assert_harmless(picture)
    assert 'id="host-' in picture


@pytest.mark.slow
def test_a_page_is_of_bounded_size() -> None:
    account = account_of("x" * 300, 5000)
    text = page(account)
    assert_harmless(text)
    assert len(text) < 1_000_000


def test_an_empty_account() -> None:
    view = RunView(1_700_000_000, "running", "running", 0, "gather", "directory", "", "{}")
    assert_harmless(page(Account("", 1, view, series_of([]), (), (PendingLosses(EVIL, 3, 1, EVIL),))))


def test_the_command_writes_the_page(memory_folder: Callable[[], Path], tmp_path: Path) -> None:
    config = make(memory_folder() / "a", {"name": EVIL.replace("\x00", "").replace("\udc80", "").replace("\x1b", "")})
    write_papers(config, ["http://127.0.0.9:9/a", "http://127.0.0.9:9/b"])
    first = run(config)
    out = tmp_path / "report.html"
    done = archec_inline(config, "report", "-o", out)
    assert (done.code, done.out, f"archec: {out}: written\n" in done.err) == (0, b"", True), done.err
    assert_harmless(out.read_text())
    assert str(first.run) in out.read_text()
    done = archec_inline(config, "report", first.run, "--json")
    value = json.loads(done.out)
    assert value["run"]["run"] == first.run
    assert value["coverage"][0]["archive"] == "aaa"
    assert value["coverage"][0]["works"] == 2
    assert value["hosts"][0]["deferred"] == 2, "no host showed that there is a network"
    assert sum(item["tobis"]["new"] for item in value["incidences"]) == 2
    assert value["growth"][-1]["tobis_held"] == 2
    assert archec_inline(config, "report", "7", "--json").code == 7
    assert archec_inline(config, "report").code == 2


def test_tables_and_names_of_what_was_lost() -> None:
    when = 1_700_000_000
    lost = Incident(when, "RePEc:a:s:1", "tobi", "lost", "", when, None, None, "RePEc:A:s:1", "A title")
    text = page(dataclasses.replace(account_of("x"), lost=(lost,)))
    look = assert_harmless(text)
    assert {attrs.get("scope") for tag, attrs in look.tags if tag == "th"} == {"col", "row"}
    # What scrolls in a narrow window can be reached and scrolled by keyboard.
    scrolling = [attrs for tag, attrs in look.tags if tag == "figure" or attrs.get("class") == "wide"]
    assert {attrs.get("tabindex") for attrs in scrolling} == {"0"}
    assert [tag for tag, _ in look.tags].count("main") == 1
    assert '<th scope="row">RePEc:A:s:1</th><td>A title</td>' in text
    assert "Of 2 in all" in text
    labels = ("date of the data set (UTC)", "date of the run (UTC)", "templates", "files", "host", "archive", "works")
    for label in labels:
        assert f">{label}</text>" in text


@given(st.lists(st.integers(1, MAX_TIST), min_size=1, max_size=9))
def test_stretches_of_time_begin_on_calendar_dates(tists: list[int]) -> None:
    report = RunReport(tobis={"new": 1})
    views = [RunView(tist, "done", "done", tist, "gather", "directory", "", "{}", report) for tist in tists]
    bins = series_of(views).incidences
    assert len(bins) <= 60
    assert sum(one.tobis["new"] for one in bins) == len(tists)
    assert all(one.start % 86400 == 0 for one in bins)
    assert all(one.end == other.start for one, other in pairwise(bins))
    starts = [datetime.fromtimestamp(0, tz=timezone.utc) + timedelta(seconds=one.start) for one in bins]
    if any(one.day != 1 for one in starts):
        assert len({one.weekday() for one in starts}) == 1 or all(one.end - one.start == 86400 for one in bins)


@pytest.mark.slow
def test_a_browser_shows_it_at_both_widths(tmp_path: Path) -> None:
    """The page is no wider than the window: what is wider scrolls in its own frame."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium is installed")
    (tmp_path / "report.html").write_bytes(page(account_of("long-word " * 30)).encode("utf-8", "replace"))
    frames = "".join(
        f'<iframe src="report.html" style="border:0;width:{width}px;height:900px"'
        ' onload="document.body.append(` ${this.contentDocument.documentElement.scrollWidth}`)"></iframe>'
        for width in (400, 1200)
    )
    (tmp_path / "frames.html").write_text(f"<body>{frames}</body>")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"]
    done = subprocess.run(
        [*command, "--allow-file-access-from-files", f"--user-data-dir={tmp_path}/profile", f"file://{tmp_path}/frames.html"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert sorted(map(int, done.stdout.rpartition("</iframe>")[2].partition("<")[0].split())) == [400, 1200], done


def test_without_matplotlib(memory_folder: Callable[[], Path], tmp_path: Path) -> None:
    config = make(memory_folder() / "a")
    write_papers(config, [])
    run(config)
    code = "import sys; sys.modules['matplotlib'] = None; from archec.cli.main import main; main()"
    path = config.base / "config.yaml"
    for arguments, wanted in (("-o", 1), ("--json", 0)):
        command = [sys.executable, "-c", code, "report", arguments, *([str(tmp_path / "x.html")] if wanted else [])]
        done = subprocess.run(
            [*command, "--config", str(path)], capture_output=True, text=True, check=False, env=environment()
        )
        assert done.returncode == wanted, done.stderr
        assert ("pip install 'archec[report]'" in done.stderr) == bool(wanted)
    assert not (tmp_path / "x.html").exists()


def test_coverage_is_summed_over_series(memory_folder: Callable[[], Path]) -> None:

    config = make(memory_folder() / "a")
    write_papers(config, ["http://127.0.0.9:9/a"])
    write_papers(config, ["http://127.0.0.9:9/a", "http://127.0.0.9:9/c"], archive="bbb")
    run(config, fetch=False)
    with catalogue_of(config) as catalogue:
        assert [(row.archive, row.series, row.works) for row in coverage_by_archive(catalogue)] == [
            ("bbb", "", 2), ("aaa", "", 1),
        ]  # fmt: skip
