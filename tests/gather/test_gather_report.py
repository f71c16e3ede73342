"""The report of a run that broke off: what the killed attempt did counts; failures say why; hosts; totals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failpoint import killed_at
from gather_site import Answer, Site, page, pdf
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    catalogue_of,
    change,
    check,
    end,
    environment,
    make,
    outcomes,
    resuming,
    run,
    start_cli,
    tarball,
    template,
    until,
    write_papers,
)
from msgspec.structs import replace

from archec.archive.report import Hosts, Report
from archec.archive.runs import stored_before
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Changes, Note, Version, Visit
from archec.catalogue.sqlite import SQLiteCatalogue
from archec.config import Config
from archec.errors import CatalogueGone, DataSetError, UsageError
from archec.gather.template_phase import TemplatePhase


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder() / "a", {"fetch.host_failures": 1000})


def reports(config: Config) -> list[dict[str, Any]]:
    """The reports of all runs, oldest first."""
    with catalogue_of(config) as catalogue:
        return [{"recorded": run.state, **json.loads(run.report or "{}")} for run in catalogue.runs()]


def many_files(config: Config, site: Site, count: int = 60) -> None:
    for n in range(count):
        site[f"/{n}"] = pdf(f"the {n}th") if n % 6 else page("gone", 404) if n % 12 else page("sick", 500)
    write_papers(config, [site.url(f"/{n}") for n in range(count)])


def gather_killed_at(config: Config, point: str) -> None:
    """A run in chunks of ten files, or its resumption, that is killed."""
    code = "import archec.gather.file_phase as p; p._CHUNK = p._LAST_CHUNK = 10; import archec.cli.main as c; c.main()"
    command = [sys.executable, "-c", code, "gather", *resuming(config), "--config", str(config.base / "config.yaml")]
    done = subprocess.run(command, capture_output=True, check=False, env=environment(killed_at(point)))
    assert done.returncode == -signal.SIGKILL, done.stderr


POINTS = ["catalogue.after-write:4", "store.after-fsync-dir:2", "catalogue.before-write:4"]
SOME = [POINTS[0], *(pytest.param(point, marks=pytest.mark.slow) for point in POINTS[1:])]


@pytest.mark.parametrize("point", SOME)
@pytest.mark.parametrize("resume", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_visits_of_a_killed_attempt_count(config: Config, site: Site, point: str, resume: bool) -> None:
    config = change(config, {"fetch.delay": "50ms"})
    many_files(config, site)
    # In small lots; a kill, a stop at a budget, a kill: none of them may make forget what was before it.
    gather_killed_at(config, point)
    done = archec_inline(config, "gather", "--resume", "--max-files", 5)
    assert done.code == 5, done.err
    gather_killed_at(config, "catalogue.before-write:2")
    done = archec_inline(config, "gather", *(["--resume"] if resume else []), "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    if not resume:
        first, second = reports(config)
        assert first["state"] == "interrupted"
        assert 5 < sum(first["fobis"].values()) < 60
        assert second["tobis"]["same"] == 60
        assert first["stored_bytes"] + second["stored_bytes"] == second["totals"]["stored_bytes"]
    if resume:
        assert told["fobis"] == {"gone": 5, "new": 50, "server-error": 5}
        assert told["tobis"]["new"] == 60
        assert told["hosts"]["visited"] == 1
        assert told["hosts"]["largest"][0]["outcomes"] == told["fobis"]
        assert told["fetch"]["requests"] >= 60
    stored = sum(path.stat().st_size for path in config.store_path.glob("[0-9]*/**/*") if path.is_file())
    assert told["totals"]["stored_bytes"] == stored
    assert (told["totals"]["fobis_held"], told["totals"]["tobis_held"]) == (50, 60)
    assert len(outcomes(config)) == 60
    check(config)


@pytest.mark.parametrize("resume", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_templates_of_a_killed_attempt_count(memory_folder: Callable[[], Path], resume: bool) -> None:
    folder = memory_folder()
    config = make(folder / "a")
    texts = [template(f"RePEc:aaa:sss:{n}") for n in range(8100)]
    file = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/p.rdf", "\n".join(texts).encode())])
    arguments = ["gather", "-f", file, "--no-fetch"]
    assert archec_cli(config, *arguments, env=killed_at("catalogue.after-write:2")).code == -signal.SIGKILL
    done = archec_inline(config, *arguments, *(["--resume"] if resume else []), "--json")
    assert done.code == 0, done.err
    found = reports(config)
    if resume:
        assert (found[0]["tobis"]["new"], found[0]["tobis"]["same"]) == (8100, 0)
    else:
        assert found[0]["recorded"] == found[0]["state"] == "interrupted"
        assert found[0]["tobis"]["new"] == found[1]["tobis"]["same"] > 0
    stored = sum(len(text.encode()) for text in texts)
    assert abs(found[-1]["totals"]["stored_bytes"] - stored) < 9000


def test_a_run_that_fails_says_why(config: Config, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    many_files(config, site, 3)

    def broken(*arguments: object) -> None:
        raise DataSetError("the tape\x1b[31m tore")

    with monkeypatch.context() as patch:
        patch.setattr(TemplatePhase, "merge", broken)
        with pytest.raises(DataSetError):
            run(config)
    (failed,) = reports(config)
    assert (failed["recorded"], failed["message"]) == ("failed", "the tape\x1b[31m tore")
    with pytest.raises(UsageError, match="may have changed since"):
        run(config, resume=True)
    assert run(config).state == "done"
    before, found = reports(config)
    assert (before["recorded"], before["message"]) == ("interrupted", "the tape\x1b[31m tore")
    assert (found["recorded"], found["message"], found["fobis"]) == ("done", "", {"new": 2, "server-error": 1})
    check(config)


def test_a_failed_run_that_nobody_resumes(config: Config, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    many_files(config, site, 3)
    with monkeypatch.context() as patch:
        patch.setattr(TemplatePhase, "merge", lambda *arguments: (_ for _ in ()).throw(DataSetError("torn")))
        with pytest.raises(DataSetError):
            run(config)
    assert run(config).state == "done"
    first, second = reports(config)
    assert (first["recorded"], first["message"]) == ("interrupted", "torn")
    assert second["recorded"] == "done"
    check(config)


def test_a_catalogue_that_missed_a_batch_is_not_written_to(
    config: Config, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would pass over that batch forever."""
    many_files(config, site, 20)
    write, calls = SQLiteCatalogue.write, [0]

    def shaky(self: SQLiteCatalogue, changes: Changes) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise CatalogueGone("the server went away for a moment")
        write(self, changes)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteCatalogue, "write", shaky)
        with pytest.raises(CatalogueGone):
            run(config)
    assert calls[0] == 3
    assert run(config, resume=True).state == "done"
    check(config)


def test_a_stopped_run_keeps_its_requests_and_seconds(config: Config, site: Site) -> None:
    """Ctrl-C after ten of twenty files: what the first part did is in the report, and in that of the whole."""
    gate = threading.Event()

    def late(before: int) -> Answer:
        gate.wait(60)
        return pdf("late")

    for n in range(10):
        site[f"/{n}"] = Answer(200, bytes([n]) * 100, {"Content-Type": "application/octet-stream"})
    site["/late"] = late
    write_papers(config, [site.url(path) for path in (*(f"/{n}" for n in range(10)), "/late")])
    child = start_cli(config, "gather")
    try:
        assert until(lambda: site.count("/late") > 0 and sum(site.count(f"/{n}") for n in range(10)) == 10)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    finally:
        gate.set()
        end(child)
    assert child.returncode == 130, err
    told = json.loads(err.decode().splitlines()[-1].removeprefix("archec-run "))
    (stopped,) = reports(config)
    assert (stopped["recorded"], told["state"]) == ("interrupted", "interrupted")
    assert (stopped["fetch"]["requests"], stopped["fobis"]) == (told["requests"], told["fobis"])
    assert set(stopped["seconds"]) == {"templates", "files"}
    done = archec_inline(config, "gather", "--resume", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["fobis"] == {"new": 11}
    assert report["fetch"]["requests"] >= 11
    assert report["seconds"]["templates"] == stopped["seconds"]["templates"]
    assert report["seconds"]["files"] > stopped["seconds"]["files"]
    check(config)


def test_totals_of_runs_that_have_none(config: Config, site: Site) -> None:
    many_files(config, site, 3)
    first = run(config)
    site["/1"] = pdf("another text")
    second = run(config)
    assert second.totals["stored_bytes"] == first.stored_bytes + second.stored_bytes
    with catalogue_of(config) as catalogue:
        assert stored_before(catalogue, second.run) == first.stored_bytes
        assert stored_before(catalogue) == second.totals["stored_bytes"]
        assert stored_before(catalogue, first.run) == 0


def test_hosts_in_trouble() -> None:
    hosts = Hosts()
    for n in range(300):
        hosts.visited(f"h{n:03}", "unreachable" if n < 150 else "new")
    hosts.visited("h000", "timeout")
    hosts.put_off("h299", "unreachable", 7)
    figures = hosts.figures()
    assert (figures.visited, figures.in_trouble) == (300, 151)
    assert figures.by_outcome == {"new": 150, "unreachable": 150}
    assert len(figures.trouble) == 100
    assert [item.host for item in figures.trouble[:2]] == ["h299", "h000"]
    assert len(figures.largest) == 30
    again = Hosts()
    again.restore(figures)
    (item,) = again.figures().trouble
    assert (item.host, item.deferred, item.reasons) == ("h299", 7, {"unreachable": 7})


def test_problems_have_their_own_lines_and_are_told_once(config: Config) -> None:
    folder = config.data_path / "aaa" / "sss"
    folder.mkdir(parents=True)
    bad = "Template-Type: ReDIF-Paper 1.0\nTitle: T\n<<<<<<< HEAD\nFile-URL: hhttp://x/\nFile-URL: http://a:b:c/\n"
    (folder / "papers.rdf").write_text(bad + "Handle: RePEc:aaa:sss:1\n", encoding="utf-8")
    found = sorted((problem.line, problem.code) for problem in run(config, fetch=False).problems)
    assert found == [(3, "conflict-marker"), (4, "bad-url"), (5, "bad-url")]


def test_what_could_not_be_kept_is_taken_back() -> None:
    report = Report(10, 10, "tarball", "x")
    before = report.as_value()
    version = Version("0" * 64, "0" * 32, 7, None, "text/html")
    visit = Visit(tist=10, outcome="new", status=200)
    note = Note(10, "returned", status=200, suspect="empty")
    records = [
        ObiChange("fobi", "http://h/a", "", {10: version.sha256}, (), version, {10: note}, visit, 20),
        ObiChange("fobi", "http://h/b", visit=replace(visit, outcome="gone"), due=20),
    ]
    for record in records:
        report.visited(record)
    report.stored_bytes += version.size
    assert report.as_value() != before
    for record in records:
        report.forget(record)
    assert report.as_value() == before
