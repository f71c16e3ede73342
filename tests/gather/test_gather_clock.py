"""The clock: a run stops where evidence contradicts it, and a run from the future silences nothing."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from failpoint import clock_ahead
from gather_site import Site, pdf
from gather_support import archec_cli, archec_inline, check, histories, make, outcomes, run, write_papers

from archec.archive.journal_records import records
from archec.catalogue.journal_lines import ClockReading, RunStart
from archec.config import Config
from archec.gather.clock_check import doubt_of
from archec.store.layout import journals, open_layout

DAY = 86400
NOW = 1_800_000_000


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder(), {"fetch.revisit_min": "1h", "fetch.revisit_max": "365d"})


@pytest.mark.parametrize(
    ("before", "now", "offsets", "doubted"),
    [
        (ClockReading(NOW), ClockReading(NOW + 90 * DAY), (), False),
        (ClockReading(NOW), ClockReading(NOW + 91 * DAY), (), True),
        (ClockReading(NOW), ClockReading(NOW - 9000 * DAY), (), False),
        (ClockReading(NOW, "a", 5), ClockReading(NOW + 99 * DAY, "b", 5), (), True),
        (ClockReading(NOW, "a", 5), ClockReading(NOW + 99 * DAY, "a", 5 + 99 * DAY), (), False),
        (ClockReading(NOW, "a", 5), ClockReading(NOW + 2 * DAY, "a", 5 + DAY / 2), (), True),
        (ClockReading(NOW, "a", 5), ClockReading(NOW - 2 * DAY, "a", 5), (), True),
        (ClockReading(NOW), ClockReading(NOW + 999 * DAY), (0, 5, 9e9), False),
        (ClockReading(NOW), ClockReading(NOW + 999 * DAY), (0, 5), True),
        (ClockReading(NOW, "a", 5), ClockReading(NOW, "a", 5), (2 * DAY, 2 * DAY, 0), True),
        (ClockReading(NOW, "a", 5), ClockReading(NOW - 9 * DAY, "a", 5), (0, 0, 0), False),
    ],
)
def test_evidence(before: ClockReading, now: ClockReading, offsets: tuple[float, ...], doubted: bool) -> None:
    assert bool(doubt_of(before, now, offsets)) is doubted


def test_web_servers_contradict_the_clock(config: Config) -> None:
    with ExitStack() as stack:
        sites = [stack.enter_context(Site(f"127.0.0.{n}")) for n in range(1, 4)]
        for site in sites:
            site["/a"] = pdf(site.url("/a"))
        write_papers(config, [site.url("/a") for site in sites])
        assert archec_inline(config, "gather").code == 0
        known = journals(open_layout(config.store_path))
        done = archec_cli(config, "gather", env=clock_ahead(2 * DAY))
        assert done.code == 1, done.err
        assert "3 web servers say" in done.err
        assert "--trust-clock" in done.err
        assert journals(open_layout(config.store_path)) == known, "nothing was stamped"
        assert all(site.count("/a") == 1 for site in sites)
        assert archec_inline(config, "gather").code == 0


def test_the_boot_clock_contradicts_the_clock(config: Config, site: Site) -> None:
    site["/a"] = pdf("a")
    write_papers(config, [site.url("/a")])
    run(config)
    done = archec_cli(config, "gather", env=clock_ahead(3000 * DAY))
    assert done.code == 1, done.err
    assert "since the machine was booted" in done.err
    assert archec_cli(config, "gather", env=clock_ahead(DAY / 2)).code == 0
    assert archec_cli(config, "gather", "--trust-clock", env=clock_ahead(3000 * DAY)).code == 0


@pytest.mark.parametrize("kind", ["retract", "losses", "fileset", "fork"])
def test_a_run_of_any_kind_is_evidence(config: Config, folder: Path, kind: str) -> None:
    write_papers(config, [f"http://127.0.0.1/{n}" for n in range(9)])
    first = run(config, fetch=False).run
    saved = folder / "saved"
    shutil.copytree(config.store_path, saved)
    write_papers(config, ["http://127.0.0.1/0"])
    run(config, fetch=False)
    if kind == "fork":
        shutil.rmtree(config.store_path)
        saved.rename(config.store_path)
    command = {
        "retract": ("retract", first, "--reason", "none"),
        "losses": ("losses", "accept", "last"),
        "fileset": ("fileset", "ingest", "http://127.0.0.1/"),
        "fork": ("fork", "--reason", "none"),
    }[kind]
    done = archec_inline(config, *command)
    layout = open_layout(config.store_path)
    start = next(records(journals(layout)[-1].path, RunStart))
    assert start.kind == kind, done.err
    done = archec_cli(config, "gather", "--no-fetch", env=clock_ahead(60 * DAY))
    assert (done.code, "since the machine was booted" in done.err) == (1, True), done.err
    assert archec_inline(config, "gather", "--no-fetch").code in (0, 3)


@pytest.mark.parametrize("moment", [-5 * DAY, 300_000_000_000])
def test_a_clock_that_no_tist_can_say_stamps_nothing(config: Config, moment: float) -> None:
    ingest = ("fileset", "ingest", "http://127.0.0.1/")
    for command in (("gather", "--no-fetch"), ingest, ("seal", "-o", config.base / "seal")):
        done = archec_cli(config, *command, env=clock_ahead(moment - time.time()))
        assert (done.code, "is before 1970 or after 9999 (set the clock)" in done.err) == (1, True), done.err
        assert journals(open_layout(config.store_path)) == []
    assert archec_inline(config, "check").code == 0


def test_after_a_run_from_the_future_all_goes_on(config: Config, site: Site) -> None:
    """The first run has a clock of another decade. Then tists go on by seconds, and visits are due by the clock."""
    site["/a"], site["/b"] = pdf("a"), pdf("b")
    write_papers(config, [site.url("/a"), site.url("/b")])
    assert archec_cli(config, "gather", env=clock_ahead(4000 * DAY)).code == 0, "a first run never stops"
    site["/b"] = pdf("b, revised")
    assert archec_inline(config, "gather", "--trust-clock").code == 0
    assert outcomes(config) == {site.url("/a"): "same", site.url("/b"): "changed"}
    first, second = histories(config)[site.url("/b")]
    assert second - first == 1
    assert b"ahead of it" in archec_inline(config, "status").out
    metrics = archec_inline(config, "metrics").out
    assert b"archec_tist_ahead_seconds 3.4" in metrics
    (success,) = re.findall(rb"(?m)^archec_last_success_time_seconds (.*)", metrics)
    assert float(success) <= time.time(), "the alert that no run has completed is not silenced"
    site.forget()
    assert archec_inline(config, "gather").code == 0
    assert not site.asked, "nothing is due again before its time"
    assert archec_cli(config, "gather", env=clock_ahead(DAY / 2)).code == 0
    assert site.count("/a") == site.count("/b") == 1
    check(config)


def test_a_loss_is_confirmed_by_the_clock(memory_folder: Callable[[], Path]) -> None:
    config = make(memory_folder(), {"lost_grace": "1h", "fetch.revisit_min": "1h"})
    with Site() as site:
        site["/a"] = pdf("a")
        write_papers(config, [site.url("/a")])
        assert archec_cli(config, "gather", env=clock_ahead(4000 * DAY)).code == 0
        del site.answers["/a"]
        assert archec_inline(config, "gather", "--trust-clock").code == 0
        assert archec_cli(config, "gather", env=clock_ahead(1000)).code == 0
        assert site.count("/a") == 2, "a second visit has to wait"
        assert list(histories(config)[site.url("/a")].values())[-1] is not None
        assert archec_cli(config, "gather", env=clock_ahead(4000)).code == 0
        assert list(histories(config)[site.url("/a")].values())[-1] is None
        check(config)
