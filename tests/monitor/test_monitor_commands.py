"""``archec runs``, ``status``, ``metrics``: what an operator and a monitoring system are told."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failpoint import killed_at
from gather_site import Answer, Site, page, pdf
from gather_support import (
    Done,
    Member,
    archec_cli,
    archec_inline,
    change,
    end,
    make,
    run,
    start_cli,
    tarball,
    template,
    until,
    write_papers,
)
from prometheus_client.parser import text_string_to_metric_families

from archec.catalogue.engines import open_catalogue
from archec.config import Config
from archec.store.layout import open_layout
from archec.store.lock import holder


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder() / "a", {"max_loss_least": 5})


def told(config: Config, *arguments: object) -> Any:
    """The JSON that a command prints: one value, or a list of lines."""
    done = archec_inline(config, *arguments, "--json")
    assert done.code == 0, done.err
    values = [json.loads(line) for line in done.out.splitlines()]
    return values[0] if len(values) == 1 else values


def last_line(done: Done) -> dict[str, Any]:
    """The machine's line, which must be the last one on stderr."""
    word, _, value = done.err.splitlines()[-1].partition(" ")
    assert word == "archec-run", done.err
    assert done.err.count("archec-run ") == 1
    found = json.loads(value)
    assert found["exit"] == done.code
    return dict(found)


def papers(folder: Path, date: str, count: int) -> Path:
    texts = [template(f"RePEc:aaa:sss:{n}") for n in range(count)]
    return tarball(folder / f"RePEc_{date}.tar", [Member("RePEc/aaa/sss/p.rdf", "\n".join(texts).encode())])


# -- runs -----------------------------------------------------------------------------------------


def test_runs_newest_first(demo: Config) -> None:
    rows = told(demo, "runs")
    assert [row["state"] for row in rows] == ["done"] * 3
    assert [row["run"] for row in rows] == sorted((row["run"] for row in rows), reverse=True)
    assert rows[-1]["tobis"]["new"] == 15
    assert rows[-1]["seconds"] > 0
    table = archec_inline(demo, "runs").out.decode().splitlines()
    assert [line.split()[0] for line in table] == ["run", *(str(row["run"]) for row in rows)]
    assert told(demo, "runs", "--limit", 1)["run"] == rows[0]["run"]


def test_one_run_in_full(demo: Config) -> None:
    rows = told(demo, "runs")
    last = told(demo, "runs", "last")
    assert last["run"] == rows[0]["run"]
    assert last["report"]["totals"]["tobis_held"] == 15
    assert told(demo, "runs", rows[2]["run"])["report"]["tobis"]["new"] == 15
    text = archec_inline(demo, "runs", "last").out.decode()
    assert f"{last['run']}  {last['run_time']}  done" in text


@pytest.mark.parametrize(
    ("name", "code"), [("1", 7), ("nonsense", 2), ("9" * 30, 2), ("-", 2), ("\x1b[2J", 2), ("1999-01-01", 7)]
)
def test_a_run_that_is_not_there(demo: Config, name: str, code: int) -> None:
    done = archec_inline(demo, "runs", name)
    assert done.code == code, done.err
    assert not done.out


def test_an_archive_without_runs(config: Config) -> None:
    open_catalogue(config.database, base=config.base, create=True).close()
    assert archec_inline(config, "runs", "last").code == 7
    assert archec_inline(config, "runs").out.count(b"\n") == 1
    found = told(config, "status")
    assert found["last"] is None
    assert b"none yet" in archec_inline(config, "status").out
    assert archec_inline(config, "metrics").code == 0


def test_states(config: Config, folder_of_tarballs: Path, site: Site) -> None:
    run(config, papers(folder_of_tarballs, "2001-01-01", 30))
    assert run(config, papers(folder_of_tarballs, "2001-01-02", 3)).held_back == {"aaa": 27}
    site["/a"], site["/b"] = pdf("a"), pdf("b")
    write_papers(config, [site.url("/a"), site.url("/b")], archive="bbb")
    assert archec_inline(config, "gather", "--max-files", 1).code == 5
    assert [row["state"] for row in told(config, "runs")] == ["budget", "held-back", "done"]
    assert [row["resumable"] for row in told(config, "runs")] == [True, False, False]
    assert b"budget" in archec_inline(config, "runs").out
    assert b"resumable: archec gather --resume" in archec_inline(config, "status").out
    assert archec_inline(config, "gather", "--max-files", 1).code == 5
    assert archec_inline(config, "gather", "--resume").code == 0
    assert [row["state"] for row in told(config, "runs")] == ["done", "budget", "held-back", "done"]
    assert not any(row["resumable"] for row in told(config, "runs"))


@pytest.mark.parametrize(
    "report", ['{"tobis":{}}', '{"hosts":{"in_trouble":3,"trouble":[{}]}}', '{"hosts":{"trouble":[1]}}', "[]", "{"]
)
def test_a_report_that_archec_did_not_write(config: Config, report: str) -> None:
    write_papers(config, [])
    run = archec_inline(config, "gather", "--no-fetch")
    assert run.code == 0
    with sqlite3.connect(config.base / "data/catalogue.sqlite") as database:
        database.execute("UPDATE runs SET doc = json_set(doc, '$.report', ?)", (report,))
    for command in ("runs", "runs last", "runs last --json", "status", "metrics", "report --json"):
        done = archec_inline(config, *command.split())
        assert done.code == 0, (command, done.err)
    database.close()


@pytest.fixture
def folder_of_tarballs(memory_folder: Callable[[], Path]) -> Path:
    return memory_folder()


# -- status ---------------------------------------------------------------------------------------


def test_status_of_the_demo(demo: Config) -> None:
    found = told(demo, "status")
    assert found["obis"] == {
        "tobis_held": 15, "tobis_lost": 0, "fobis_held": 14, "fobis_lost": 1, "fobis_never": 1,
        "filesets_held": 0, "filesets_lost": 0,
    }  # fmt: skip
    stored = [path for path in demo.store_path.glob("[0-9]*/**/*") if path.is_file() and not path.is_symlink()]
    assert found["stored_bytes"] == sum(path.stat().st_size for path in stored)
    assert found["disk"]["free"] > 0
    fixity = found["fixity"]
    assert (fixity["oldest"], fixity["bad"], fixity["damaged"], fixity["uncounted"]) == (None, 0, "", 3)
    assert found["last"]["run"] == found["success"] == found["hosts_run"]
    text = archec_inline(demo, "status").out.decode()
    assert len(text.splitlines()) < 24
    for label in ("templates", "files", "stored", "disk", "last run", "due", "hosts", "held back", "fixity"):
        assert f"\n{label} " in text


def test_losses_await_a_decision_until_there_is_one(config: Config, folder_of_tarballs: Path) -> None:
    run(config, papers(folder_of_tarballs, "2001-01-01", 30))
    file = papers(folder_of_tarballs, "2001-01-02", 3)
    held_back = run(config, file)
    (item,) = told(config, "status")["held_back"]
    assert (item["archive"], item["losses"], item["run"]) == ("aaa", 27, held_back.run)
    assert b"27 of aaa" in archec_inline(config, "status").out
    run(config, file, accept=["aaa"])
    assert told(config, "status")["held_back"] == []


def test_what_is_due(config: Config, site: Site) -> None:
    site["/a"] = pdf("a")
    write_papers(config, [site.url("/a"), site.url("/b")])
    open_catalogue(config.database, base=config.base, create=True).close()
    assert told(config, "status")["due"] == {"now": 0, "more": False, "next": None}
    run(config, fetch=False)
    assert told(config, "status")["due"] == {"now": 2, "more": False, "next": 0}
    config = change(config, {"fetch.revisit_min": "7d", "fetch.revisit_max": "9d"})
    assert archec_inline(config, "gather").code == 0
    found = told(config, "status")
    assert found["due"]["now"] == 0
    assert found["due"]["next"] > found["now"] + 6 * 86400


def test_hosts_in_trouble_and_checks(config: Config, site: Site) -> None:
    site["/a"] = page("sick", 500)
    write_papers(config, [site.url("/a")])
    run(config)
    assert archec_inline(config, "verify").code == 0
    found = told(config, "status")
    assert found["hosts_in_trouble"] == 1
    assert found["hosts"][0]["outcomes"] == {"server-error": 1}
    assert abs(found["fixity"]["oldest"] - found["now"]) < 100
    assert b"server-error" in archec_inline(config, "status").out


def test_losses_that_were_accepted_await_nothing(config: Config, folder_of_tarballs: Path) -> None:
    run(config, papers(folder_of_tarballs, "2001-01-01", 30))
    held_back = run(config, papers(folder_of_tarballs, "2001-01-02", 3))

    def waiting() -> list[float]:
        return [
            len(archec_inline(config, "losses").out.splitlines()),
            sum(item["losses"] for item in told(config, "status")["held_back"]),
            samples(archec_inline(config, "metrics").out.decode())["archec_losses_held_back"],
            sum(item["losses"] for item in told(config, "report", held_back.run)["held_back"]),
        ]

    assert waiting() == [27] * 4
    assert archec_inline(config, "losses", "accept", held_back.run, "RePEc:aaa:sss:7").code == 0
    assert waiting() == [26] * 4
    assert f"archec losses accept {held_back.run} aaa" in archec_inline(config, "status").out.decode()
    assert archec_inline(config, "losses", "accept", "last", "").code == 2
    assert archec_inline(config, "losses", "accept", "last", "aaa").code == 0
    assert waiting() == [0] * 4
    decision, _, gathering, _ = told(config, "runs")
    assert (decision["kind"], decision["data_set"]["time"]) == ("losses", "")
    listed = [line.split()[3] for line in archec_inline(config, "runs").out.decode().splitlines() if line[0] != " "]
    assert listed == ["kind", "losses", "losses", "gather", "gather"]
    shown = archec_inline(config, "runs", decision["run"]).out.decode()
    assert "kind        losses" in shown
    assert "26 lost" in shown
    assert "1970" not in shown
    assert archec_inline(config, "retract", gathering["run"], "--reason", "wrong").code == 0
    (retraction, *_) = told(config, "runs")
    figures = [told(config, "runs", row["run"])["report"]["data_set"] for row in (retraction, decision)]
    assert [(one["kind"], one["time"][:4]) for one in figures] == [("tarball", "2001"), ("none", "")]
    shown = archec_inline(config, "runs", retraction["run"]).out.decode()
    assert "kind        retract" in shown
    assert "as of 2001-01-02" in shown
    assert "held back     nothing" in archec_inline(config, "status").out.decode()


# -- metrics --------------------------------------------------------------------------------------


def samples(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, key
            found[key] = sample.value
    return found


def test_metrics_are_read_by_prometheus_own_parser(demo: Config) -> None:
    found = samples(archec_inline(demo, "metrics").out.decode())
    assert found["archec_obis{kind=fobi,state=lost}"] == 1
    assert found["archec_last_run_state{state=done}"] == 1
    assert found["archec_last_run_state{state=failed}"] == 0
    assert found["archec_last_run_tobis{what=returned}"] == 1
    assert found["archec_losses_held_back"] == 0
    rows = told(demo, "metrics")
    assert {row["name"] for row in rows} == {key.partition("{")[0] for key in found}


def test_metrics_into_a_file_whole_or_not_at_all(demo: Config, tmp_path: Path) -> None:
    path = tmp_path / "archec.prom"
    assert archec_inline(demo, "metrics", "-o", path).out == b""
    assert samples(path.read_text())["archec_obis{kind=tobi,state=held}"] == 15
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["archec.prom"]
    path.unlink()
    before = os.umask(0o077)
    try:
        assert archec_inline(demo, "metrics", "-o", path).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    done = archec_inline(demo, "metrics", "-o", path)
    assert done.code in (1, 2)
    done = archec_inline(demo, "metrics", "-o", tmp_path / "nowhere" / "x.prom")
    assert done.code == 1
    assert os.listdir(tmp_path) == ["archec.prom"]


# -- the last line of a log -----------------------------------------------------------------------


def test_the_last_line_of_a_run(config: Config, site: Site) -> None:
    site["/a"], site["/b"] = pdf("a"), pdf("b")
    write_papers(config, [site.url("/a"), site.url("/b")])
    found = last_line(archec_inline(config, "gather", "--dry-run"))
    assert (found["state"], found["exit"]) == ("dry-run", 0)
    found = last_line(archec_inline(config, "gather", "--max-files", 1))
    assert (found["state"], found["exit"], found["fobis"], found["tobis"]) == ("budget", 5, {"new": 1}, {"new": 2})
    done = archec_inline(config, "gather", "--resume", "--json")
    found = last_line(done)
    assert (found["state"], found["run"]) == ("done", json.loads(done.out)["run"])
    assert found["stored_bytes"] == json.loads(done.out)["stored_bytes"]


def test_the_last_line_of_a_run_that_could_not_be(config: Config) -> None:
    for arguments, code, state in (
        (["-f", "/nowhere.tar"], 1, "failed"),
        (["--no-such-option"], 2, "usage"),
        (["--max-time", "forever"], 2, "usage"),
    ):
        found = last_line(archec_inline(config, "gather", *arguments))
        assert (found["exit"], found["state"], found["run"]) == (code, state, None)
        assert found["message"]
    done = archec_inline(None, "gather", "--config", config.base / "none.yaml")
    assert last_line(done)["state"] == "failed"
    assert "archec-run" not in archec_inline(config, "gather", "--help").err
    assert "archec-run" not in archec_inline(config, "runs", "7").err


def test_the_last_line_where_the_lock_is_held_or_a_signal_comes(config: Config, site: Site) -> None:
    gate = threading.Event()

    def stuck(before: int) -> Any:
        gate.wait(60)
        return pdf("late")

    # A file without a text to take out, so that it is done with as soon as it is there.
    site["/a"], site["/stuck"] = Answer(200, bytes(100), {"Content-Type": "application/octet-stream"}), stuck
    write_papers(config, [site.url("/a"), site.url("/stuck")])
    child = start_cli(config, "gather")
    try:
        assert until(lambda: site.count("/stuck") > 0 < site.count("/a"))
        assert until(lambda: any(path.stat().st_size for path in config.work_path.glob("*.received"))), "/a has come"
        found = last_line(archec_inline(config, "gather"))
        assert (found["exit"], found["state"], found["run"]) == (4, "locked", None)
        assert str(child.pid) in found["message"]
        assert told(config, "runs")["state"] == "running"
        assert told(config, "status")["at_work"]
        child.send_signal(signal.SIGTERM)
        gate.set()
        _, err = child.communicate(timeout=60)
        found = last_line(Done(child.returncode, b"", err.decode()))
        assert "archec: interrupted; work done so far is kept; 'archec gather --resume' continues\n" in err.decode()
        assert (found["exit"], found["state"]) == (130, "interrupted")
        assert found["run"] == told(config, "runs")["run"]
    finally:
        gate.set()
        end(child)
    assert holder(open_layout(config.store_path)) is None
    stopped = told(config, "runs")
    assert (stopped["state"], stopped["resumable"]) == ("interrupted", True)
    # What was committed counts, whether or not the run had come to say so.
    assert stopped["tobis"]["new"] == 2
    assert stopped["fobis"] == {"new": 1} == found["fobis"]
    assert {kind: count for kind, count in stopped["tobis"].items() if count} == found["tobis"]
    assert stopped["stored_bytes"] == found["stored_bytes"]
    assert told(config, "status")["stored_bytes"] == stopped["stored_bytes"] > 0
    carried = archec_inline(config, "gather", "--resume")
    assert f"archec: continuing run {stopped['run']} of" in carried.err
    assert carried.code == 0
    again = archec_inline(config, "gather", "--resume")
    assert (again.code, "there is no gathering to resume" in again.err) == (2, True)


def test_the_last_line_after_a_bug(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*arguments: object, **more: object) -> None:
        raise RuntimeError("a bug\nin two lines")

    monkeypatch.setattr("archec.gather.run.choose", bug)
    done = archec_inline(config, "gather")
    assert "Traceback" in done.err
    found = last_line(done)
    assert (found["exit"], found["state"]) == (1, "failed")
    assert "a bug" in found["message"]


def test_repeated_handles_are_listed(config: Config, tmp_path: Path) -> None:
    write_papers(config, [])
    folder = config.data_path / "aaa" / "sss"
    for name, handles in (("1.rdf", "12"), ("2.rdf", "22"), ("3.rdf", "31")):
        (folder / name).write_text("".join(template(f"RePEc:aaa:sss:{one}") for one in handles))
    listed = tmp_path / "repeated.txt"
    for arguments in (["--dry-run"], ["--no-fetch"], ["--no-fetch"]):  # also where nothing has changed
        listed.unlink(missing_ok=True)
        done = archec_inline(config, "gather", *arguments, "--repeated", listed)
        assert "3 repeated handles" in done.out.decode()
        assert listed.read_text() == (
            "RePEc:aaa:sss:1\t2\taaa/sss/3.rdf:4\taaa/sss/1.rdf:1\n"
            "RePEc:aaa:sss:2\t3\taaa/sss/2.rdf:4\taaa/sss/1.rdf:4\taaa/sss/2.rdf:1\n"
        )
    expected = listed.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "stdout").symlink_to("pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    archec_inline(config, "gather", "--no-fetch", "--repeated", tmp_path / "stdout")
    assert (os.read(reader, 1000), (tmp_path / "stdout").is_symlink()) == (expected, True), "as for /dev/stdout"
    os.close(reader)


def test_a_killed_run_whose_journal_is_damaged(config: Config) -> None:
    write_papers(config, [])
    assert archec_cli(config, "gather", "--no-fetch", env=killed_at("catalogue.after-write:2")).code == -signal.SIGKILL
    (journal,) = open_layout(config.store_path).runs.glob("*.jsonl")
    data = bytearray(journal.read_bytes())
    data[20] ^= 2
    journal.write_bytes(data)
    assert "verify --repair-from" in told(config, "runs")["message"]
    for command in ("status", "runs", "metrics"):
        assert archec_inline(config, command).code == 0
    assert archec_inline(config, "gather", "--no-fetch").code == 6
