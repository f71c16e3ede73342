"""Running it: the lock, budgets, signals, dry runs, a full disk; always with the real command."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from failpoint import killed_at
from gather_site import Answer, Site, moved, pdf
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    behind,
    catalogue_of,
    change,
    check,
    end,
    histories,
    lines,
    make,
    outcomes,
    resuming,
    run,
    start_cli,
    store_files,
    tarball,
    template,
    temporary_files,
    until,
    write_papers,
)
from small_disk import small_disk

from archec.archive.budget import Budget
from archec.config import Config
from archec.fileset.context import IngestOptions
from archec.fileset.run import run_ingest
from archec.progress import Meter
from archec.report.changes import changes_of_runs
from archec.store.durable import temp_name
from archec.store.layout import journals, open_layout, tist_path
from archec.store.lock import RunLock, holder


def many(path: Path, count: int, title: str = "A title") -> Path:
    texts = [template(f"RePEc:aaa:sss:{n}", f"{title} {n}") for n in range(count)]
    return tarball(path, [Member("RePEc/aaa/sss/p.rdf", "\n".join(texts).encode())])


@contextmanager
def slow_run(config: Config, site: Site, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that is in the middle of fetching: it has one file, and waits for the target of another."""
    gate = threading.Event()

    def stuck(before: int) -> Answer:
        gate.wait(60)
        return pdf("at last")

    config = change(config, {"fetch.per_host": 1})
    site["/a"] = Answer(200, b"\0\1\2", {"Content-Type": "application/octet-stream"})
    site["/b"], site["/stuck"] = moved("/stuck"), stuck
    write_papers(config, [site.url("/a"), site.url("/b")])
    child = start_cli(config, "gather", *arguments)
    try:
        assert until(lambda: site.count("/stuck") > 0)
        yield child
    finally:
        gate.set()
        end(child)


# -- the lock -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_run_says_who_is_there_and_leaves(config: Config, site: Site) -> None:
    with slow_run(config, site) as child:
        for command in (["gather"], ["gather", "--no-fetch"], ["rebuild"]):
            done = archec_inline(config, *command)
            assert done.code == 4, done
            assert str(child.pid) in done.err
            assert "gather" in done.err
        assert archec_inline(config, "gather", "--dry-run").code == 0, "a dry run needs no lock"
        done = archec_inline(config, "history", "RePEc:aaa:sss:0")
        assert done.code == 0, "reading goes on"
    assert archec_inline(config, "gather").code == 0
    check(config)


def test_a_run_that_was_asked_to_waits_for_another(config: Config, folder: Path) -> None:
    file = many(folder / "RePEc_2001-01-01.tar", 3)
    with RunLock(open_layout(config.store_path), "verify"):
        refused = archec_inline(config, "gather", "-f", str(file), "--no-fetch")
        assert refused.code == 4
        child = start_cli(config, "gather", "--wait", "-f", str(file), "--no-fetch")
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=2)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert len(histories(config)) == 3


READING = (
    "history RePEc:aaa:sss:1", "get RePEc:aaa:sss:1", "dump", "lost", "changes", "coverage", "runs", "status",
    "metrics",
)  # fmt: skip


def test_reading_commands_never_make_a_catalogue(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 3))
    known = lines(config, everything=True)
    for path in config.base.glob("data/catalogue.sqlite*"):
        path.unlink()
    before = everything(folder)
    for command in (*READING, "serve --port 0", "verify --sample 5%"):
        done = archec_inline(config, *command.split())
        assert done.code in (1, 6), (command, done)
        assert "archec rebuild" in done.err + done.out.decode(), command
    for path in config.base.glob("data/*.fixity.sqlite*"):
        path.unlink()
    assert everything(folder) == before
    assert archec_inline(config, "rebuild").code == 0
    assert lines(config, everything=True) == known


def test_reading_commands_warn_of_a_catalogue_that_is_behind_and_read_on(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 3))
    older = {path: path.read_bytes() for path in config.base.glob("data/catalogue.sqlite*")}
    run(config, many(folder / "RePEc_2001-02-01.tar", 3, "Another"))
    for path in config.base.glob("data/catalogue.sqlite*"):
        path.unlink()
    for path, data in older.items():
        path.write_bytes(data)
    for command in READING:
        done = archec_inline(config, *command.split())
        assert (done.code, "is behind the journals" in done.err) == (0, True), (command, done)
    layout = open_layout(config.store_path)
    with RunLock(layout, "gather"):
        active = holder(layout)
        assert active is not None
        done = archec_inline(config, "history", "RePEc:aaa:sss:1")
        assert (done.code, done.err) == (0, ""), "behind an active run"
        now = holder(layout)
        assert now is not None
        assert now._replace(quiet=0) == active._replace(quiet=0), "the command took no lock"
    with RunLock(layout, "rebuild"):
        done = archec_inline(config, "history", "RePEc:aaa:sss:1")
        assert (done.code, "is being rebuilt" in done.err) == (0, True), "what it has is not all"
    assert behind(config)
    assert archec_inline(config, "check", "--fix").code == 0
    assert not behind(config)
    assert archec_inline(config, "history", "RePEc:aaa:sss:1").err == ""


def test_reading_commands_warn_of_a_catalogue_of_another_archive_and_read_on(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 3))
    shutil.rmtree(config.store_path / "runs")
    for command in READING:
        done = archec_inline(config, *command.split())
        assert (done.code, "behind" in done.err) == (0, False), (command, done)
        assert "which has no journal" in done.err, (command, done)


def test_reading_commands_warn_of_a_journal_that_is_none_and_read_on(config: Config, folder: Path) -> None:
    tarball = many(folder / "RePEc_2001-01-01.tar", 3)
    done = archec_cli(config, "gather", "-f", tarball, "--no-fetch", env=killed_at("catalogue.after-write:2"))
    assert done.code == -signal.SIGKILL
    (journal,) = config.store_path.glob("runs/*.jsonl")
    journal.unlink()
    journal.mkdir()
    for command in ("history RePEc:aaa:sss:1", "get RePEc:aaa:sss:1", "dump", "lost", "changes", "coverage"):
        done = archec_inline(config, *command.split())
        assert (done.code, f"{journal.name}: is not a file" in done.err) == (0, True), (command, done)
    assert archec_inline(config, "check").code == 6


def test_what_a_run_noted_is_found_though_its_tist_is_ahead_of_the_clock(config: Config, folder: Path) -> None:
    """Several runs begin within one second: their tists grow all the same, and so do the stamps."""
    runs = [run(config, many(folder / f"RePEc_2001-01-0{n}.tar", n)).run for n in range(1, 6)]
    with catalogue_of(config) as catalogue:
        for n, tist in enumerate(runs, 1):
            found = list(changes_of_runs(catalogue, tist))
            assert [one.run for one in found] == runs[n - 1 :]


def test_a_run_that_its_budget_stopped_leaves_nothing_to_catch_up_with(config: Config, site: Site) -> None:
    write_papers(config, site.fill(3))
    assert archec_inline(config, "gather", "--max-files", 1).code == 5
    older = {path: path.read_bytes() for path in config.base.glob("data/catalogue.sqlite*")}
    layout = open_layout(config.store_path)
    assert not behind(config)
    assert archec_inline(config, "gather", "--max-files", 1, "--resume").code == 5
    assert len(journals(layout)) == 1
    for path in config.base.glob("data/catalogue.sqlite*"):
        path.unlink()
    for path, data in older.items():
        path.write_bytes(data)
    assert behind(config), "an older copy of the catalogue was put back"


# -- budgets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [("--max-files", 0), ("--max-bytes", "0"), ("--max-time", "0s")])
def test_a_budget_of_nothing_is_refused(config: Config, budget: tuple[str, object]) -> None:
    done = archec_inline(config, "gather", *budget)
    assert (done.code, done.out) == (2, b"")
    assert budget[0] in done.err


@pytest.mark.slow
@pytest.mark.parametrize("budget", [("--max-files", "3"), ("--max-bytes", "70"), ("--max-time", "1ms")])
def test_a_budget_stops_a_run_that_can_be_resumed(config: Config, site: Site, budget: tuple[str, str]) -> None:
    config = change(config, {"fetch.per_host": 1, "fetch.delay": "20ms"})
    write_papers(config, site.fill(40))
    done = archec_inline(config, "gather", *budget, "--json")
    assert done.code == 5, done.err
    report = json.loads(done.out)
    assert report["state"] == "budget"
    fetched = report["fobis"].get("new", 0)
    assert fetched < 40
    if budget[0] == "--max-files":
        assert fetched == 3
        done = archec_inline(config, "gather", "--resume", *budget, "--json")
        assert (done.code, json.loads(done.out)["fobis"]["new"]) == (5, 6)
    check(config)
    done = archec_inline(config, "gather", "--resume", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["state"], report["fobis"], report["tobis"]["new"]) == ("done", {"new": 40}, 40)
    asked = [site.count(f"/{n}") for n in range(40)]
    again = int(budget[0] == "--max-bytes")  # the answer that was in flight when the bytes were used up
    assert (max(asked), sum(asked)) == (1 + again, 40 + again)
    assert len({tist for history in histories(config).values() for tist in history}) == 1, "it is one run"
    check(config)


@pytest.mark.slow
def test_a_budget_that_is_enough(config: Config, site: Site) -> None:
    write_papers(config, site.fill(3))
    assert archec_inline(config, "gather", "--max-files", 3).code == 0
    assert archec_inline(config, "gather", "--max-files", 2).code == 5
    assert archec_inline(config, "gather", "--max-files", 9).code == 0
    assert temporary_files(config) == []


def test_new_files_come_first(config: Config, site: Site) -> None:
    for n in range(8):
        site[f"/{n}"] = pdf(str(n))
    write_papers(config, [site.url(f"/{n}") for n in range(4)])
    run(config)
    write_papers(config, [site.url(f"/{n}") for n in range(8)])
    site.forget()
    done = archec_inline(config, "gather", "--max-files", 4)
    assert done.code == 5
    assert sorted(path for path, _ in site.asked) == ["/4", "/5", "/6", "/7"]


def test_a_plain_run_after_a_budget_begins_anew(config: Config, site: Site) -> None:
    write_papers(config, site.fill(5))
    assert archec_inline(config, "gather", "--max-files", 2).code == 5
    assert archec_inline(config, "gather").code == 0
    assert set(outcomes(config).values()) == {"new", "same"}
    check(config)


def test_resume_with_another_tarball(config: Config, site: Site, folder: Path) -> None:
    site["/0"], site["/1"] = pdf("0"), pdf("1")
    write_papers(config, [site.url("/0"), site.url("/1")])
    assert archec_inline(config, "gather", "--max-files", 1).code == 5
    done = archec_inline(config, "gather", "--resume", "-f", many(folder / "RePEc_2001-01-01.tar", 1))
    assert done.code == 2
    assert archec_inline(config, "gather", "--resume", "--no-fetch").code == 2, "it would end without its files"
    assert archec_inline(config, "gather", "--resume").code == 0
    before = [journal.tist for journal in journals(open_layout(config.store_path))]
    assert archec_inline(config, "gather", "--resume").code == 2, "nothing to resume"
    assert [journal.tist for journal in journals(open_layout(config.store_path))] == before
    check(config)


# -- signals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_it_fetches(config: Config, site: Site, number: int, group: bool) -> None:
    with slow_run(config, site) as child:
        if group:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
        _, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert temporary_files(config) == []
    check(config)
    assert site.url("/a") in histories(config), "what had come is kept"
    done = archec_inline(config, "gather", "--resume")
    assert done.code == 0, done.err
    assert site.count("/a") == 1
    assert len({tist for history in histories(config).values() for tist in history}) == 1
    check(config)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_while_it_reads(folder: Path, number: int) -> None:
    config = make(folder / "archive", {"workers": 2})
    file = many(folder / "RePEc_2001-01-01.tar", 4_000)
    child = start_cli(config, "gather", "-f", str(file), "--no-fetch")
    journal = config.store_path / "runs"
    assert until(lambda: any(path.stat().st_size for path in journal.iterdir()))
    os.killpg(child.pid, number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert b"Traceback" not in err
    done = archec_inline(config, "gather", "--resume", "--no-fetch")
    assert done.code == 0, done.err
    assert len(histories(config)) == 4_000
    assert temporary_files(config) == []
    plain = make(folder / "plain")
    run(plain, file)
    assert lines(plain) == lines(config)


# -- dry runs -----------------------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, bytes]:
    """All names below a folder, with their bytes and times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = data + str((state.st_mode, state.st_mtime_ns if not path.is_dir() else 0)).encode()
    return found


def test_a_dry_run_changes_nothing(config: Config, folder: Path, site: Site) -> None:
    site["/0"], site["/1"] = pdf("0"), moved("/0")
    write_papers(config, [site.url("/0"), site.url("/1")])
    before = everything(folder)
    done = archec_inline(config, "gather", "--dry-run", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["tobis"]["new"], report["fobis"]) == (2, {"due": 2})
    assert everything(folder) == before, "not even a catalogue"
    assert not site.asked
    run(config)
    write_papers(config, [site.url("/new")], title="Another title")
    before, asked = everything(folder), len(site.asked)
    done = archec_inline(config, "gather", "--dry-run", "--json")
    report = json.loads(done.out)
    assert (done.code, report["state"], report["tobis"]["changed"], report["tobis"]["lost"]) == (0, "dry-run", 1, 1)
    assert report["fobis"] == {"due": 3}, "with the one that is not known yet"
    assert everything(folder) == before
    assert len(site.asked) == asked
    check(config)


def test_a_dry_run_over_what_a_killed_run_left(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 5))
    file = many(folder / "RePEc_2001-01-02.tar", 5, "Another")
    done = archec_cli(config, "gather", "-f", file, env=killed_at("catalogue.before-write:2"))
    assert done.code == -signal.SIGKILL
    before = everything(folder)
    assert archec_inline(config, "gather", "-f", file, "--dry-run").code == 0
    after = everything(folder)
    assert {path for path in before | after if before.get(path) != after.get(path)} <= {
        str(config.base / "data/catalogue.sqlite-shm")
    }


def test_a_dry_run_refuses_journals_of_version_1(config: Config, folder: Path) -> None:
    file = many(folder / "RePEc_2001-01-01.tar", 5)
    run(config, file)
    old = sorted((config.store_path / "runs").iterdir())[-1]
    line = b'{"type":"run","tist":1}\n{"type":"batch","n":1,"lines":1,"stamp":1,"xxh3":"%032d"}\n' % 0
    old.chmod(0o644)
    old.write_bytes(gzip.compress(line))
    done = archec_inline(config, "gather", "-f", file, "--dry-run")
    assert done.code == 1
    assert f"{old}: is a journal of version 1" in done.err


def test_a_dry_run_says_that_losses_would_be_held_back(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 60))
    file = many(folder / "RePEc_2001-01-02.tar", 3)
    done = archec_inline(config, "gather", "-f", file, "--dry-run", "--json")
    assert done.code == 3
    assert json.loads(done.out)["held_back"] == {"aaa": 57}
    done = archec_inline(config, "gather", "-f", file, "--dry-run", "--accept-losses", "RePEc:AAA", "--json")
    assert (done.code, json.loads(done.out)["tobis"]["lost"]) == (0, 57)
    assert archec_inline(config, "gather", "-f", file, "--no-fetch").code == 3
    assert archec_inline(config, "gather", "-f", file, "--no-fetch", "--accept-losses", "aaa").code == 0
    check(config)


# -- a full disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["all", *(pytest.param(what, marks=pytest.mark.slow) for what in ("store", "database", "work"))]
)
def test_a_full_disk(folder: Path, what: str) -> None:
    """Whatever of the archive lies on the disk that is full: the run stops cleanly, and continues with more room."""
    count = 1500
    file = many(folder / "RePEc_2001-01-01.tar", count)
    with ExitStack() as stack:
        place = stack.enter_context(small_disk(folder / "small", "size=10000000"))
        filler = place / "filler"
        room = {"store": 2_500_000, "database": 600_000, "work": 100_000, "all": 2_500_000}[what]
        filler.write_bytes(bytes(10_000_000 - room))
        inside: dict[str, object] = {
            "store": {"object_store": str(place / "archive")},
            "database": {"database": f"sqlite:///{place}/catalogue.sqlite"},
            "work": {"work_directory": str(place / "work")},
            "all": {
                "object_store": str(place / "archive"),
                "database": f"sqlite:///{place}/catalogue.sqlite",
                "work_directory": str(place / "work"),
            },
        }[what]  # type: ignore[assignment]
        config = make(folder / "archive", inside)  # type: ignore[arg-type]
        done = archec_inline(config, "gather", "-f", file, "--no-fetch")
        assert done.code == 1, done
        assert "no space left" in done.err.lower(), done.err
        assert "Traceback" not in done.err
        told = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
        journals = b"".join(path.read_bytes() for path in config.store_path.glob("runs/*.jsonl"))
        kept = journals.count(b'{"type":"obi","kind":"tobi"')
        assert told.get("tobis", {}).get("new", 0) == kept <= count
        assert bool(told.get("stored_bytes")) == bool(kept)
        (listed,) = map(json.loads, archec_inline(config, "runs", "--json").out.splitlines())
        assert (listed["state"], "no space left" in listed["message"].lower()) == ("failed", True)
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=200m", str(place)], check=True)
        done = archec_inline(config, "gather", "-f", file, "--no-fetch", "--resume")
        assert done.code == 0, done.err
        assert temporary_files(config) == []
        check(config)
        plain = make(folder / "plain")
        run(plain, file)
        assert lines(plain) == lines(config)
        assert store_files(open_layout(plain.store_path)) == store_files(open_layout(config.store_path))


def test_a_disk_that_gets_full_while_fetching(folder: Path, site: Site) -> None:
    with small_disk(folder / "small", "size=6m") as place:
        config = make(folder / "archive", {"object_store": str(place / "archive")})
        for n in range(20):
            site[f"/{n}"] = Answer(200, bytes([65 + n]) * 500_000, {"Content-Type": "application/octet-stream"})
        write_papers(config, [site.url(f"/{n}") for n in range(20)])
        done = archec_inline(config, "gather")
        assert done.code == 1, done
        assert "no space left" in done.err.lower()
        assert "Traceback" not in done.err
        check(config)
        subprocess.run(["mount", "-o", "remount,size=100m", str(place)], check=True)
        done = archec_inline(config, "gather", "--resume")
        assert done.code == 0, done.err
        assert temporary_files(config) == []
        assert set(outcomes(config).values()) == {"new"}
        check(config)


def test_a_disk_that_is_kept_from_getting_full(folder: Path) -> None:
    with small_disk(folder / "small", "size=20m") as place:
        config = make(folder / "archive", {"object_store": str(place / "archive"), "min_free": "50%"})
        (place / "filler").write_bytes(bytes(12_000_000))
        file = many(folder / "RePEc_2001-01-01.tar", 5)
        done = archec_inline(config, "gather", "-f", file, "--no-fetch")
        assert done.code == 1
        assert "50.0% of the disk" in done.err
        status = archec_inline(config, "status")
        assert "failed before it began" in status.out.decode()
        assert (status.err, journals(open_layout(config.store_path))) == ("", [])
        (place / "filler").unlink()
        assert archec_inline(config, "gather", "-f", file, "--no-fetch").code == 0
        check(config)


def test_inodes_are_kept_free_like_space(folder: Path) -> None:
    with small_disk(folder / "small", "size=20m,nr_inodes=200") as place:
        config = make(folder / "archive", {"object_store": str(place / "archive"), "min_free": "50%"})
        for n in range(120):
            (place / str(n)).touch()
        done = archec_inline(config, "gather", "-f", many(folder / "RePEc_2001-01-01.tar", 5), "--no-fetch")
        assert (done.code, "less than 50.0% of the disk's inodes is free" in done.err) == (1, True), done
        assert b"LOW: runs stop" in archec_inline(config, "status").out


def test_inodes_that_run_out_while_fetching(folder: Path, site: Site) -> None:
    with small_disk(folder / "small", "size=20m,nr_inodes=60") as place:
        config = make(folder / "archive", {"object_store": str(place / "archive"), "min_free": "0%"})
        for n in range(30):
            site[f"/{n}"] = Answer(200, b"%d" % n, {"Content-Type": "application/octet-stream"})
        write_papers(config, [site.url(f"/{n}") for n in range(30)])
        done = archec_inline(config, "gather")
        assert (done.code, "inodes (see 'df -i')" in done.err) == (1, True), done
        check(config)


def test_checks_where_no_space_is_left_find_what_there_is(folder: Path) -> None:
    with small_disk(folder / "small", "size=8m") as place:
        config = make(place / "archive")
        run(config, many(folder / "RePEc_2001-01-01.tar", 3))
        for remembered in (False, True):
            with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
            for command in (("verify",), ("check",), ("check", "--quick")):
                done = archec_inline(config, *command)
                assert (done.code, done.err) == (0, ""), done
                assert b"nothing of this check is remembered: no space left" in done.out
                assert b"0 wrong" in done.out
            (place / "filler").unlink()
            assert archec_inline(config, "verify").code == 0, remembered
        (victim := next(config.store_path.rglob("RePEc%3A*"))).chmod(0o644)
        victim.write_bytes(b"other")
        (place / "filler").write_bytes(bytes(shutil.disk_usage(place).free))
        assert archec_inline(config, "verify").code == 6


def test_a_catalogue_of_another_archive(config: Config, folder: Path) -> None:
    run(config, many(folder / "RePEc_2001-01-01.tar", 3))
    other = make(folder / "other")
    shutil.copy(config.base / "data/catalogue.sqlite", other.base / "data/catalogue.sqlite")
    done = archec_inline(other, "gather", "--no-fetch")
    assert done.code == 6, done.err
    assert "set another 'database'" in done.err
    assert archec_inline(other, "rebuild").code == 6, "a rebuild forgets no newer head"
    (other.base / "data/catalogue.sqlite").unlink()
    assert archec_inline(other, "gather", "--no-fetch").code == 0
    check(other)


def test_a_catalogue_of_what_was_believed_after_a_run(config: Config, folder: Path) -> None:
    """It has what the catalogue had then, commands read it, and nothing is added to it."""
    first = run(config, many(folder / "RePEc_2001-01-01.tar", 3)).run
    before = lines(config, everything=True)
    run(config, many(folder / "RePEc_2001-02-01.tar", 3, "Another"))
    then = {"ARCHEC_DATABASE": "sqlite:///then.sqlite"}
    made = archec_inline(config, "rebuild", "--until", first, "--database", then["ARCHEC_DATABASE"])
    assert made.code == 0, made.err
    found = lines(dataclasses.replace(config, database=then["ARCHEC_DATABASE"]), everything=True)
    assert found[:-1] == before[:-1]
    assert json.loads(found[-1])["until"] == first
    for command in (*READING, "check"):
        done = archec_inline(config, *command.split(), env=then)
        assert (done.code, "warning" in done.err) == (0, False), (command, done)
    refused = ("gather --no-fetch", "gather --dry-run", f"retract {first} --reason no", "fileset ingest http://127.0.0.1/")
    for command in refused:
        done = archec_inline(config, *command.split(), env=then)
        assert (done.code, f"as of run {first}" in done.err) == (1, True), (command, done)
    assert lines(dataclasses.replace(config, database=then["ARCHEC_DATABASE"]), everything=True) == found
    for command in ("--until 0", f"--until {first}", f"--until {first} --database {config.database}"):
        assert archec_inline(config, "rebuild", *command.split()).code == 2
    none = f"sqlite:///{config.base}/none.sqlite"
    missing = archec_inline(config, "rebuild", "--until", "1", "--database", none)
    assert not (config.base / "none.sqlite").exists()
    assert (missing.code, "no run 1" in missing.err) == (7, True)
    assert archec_inline(config, "rebuild", "--until", "last", "--database", none).code == 0


def test_a_budget_that_is_used_up_while_a_target_is_read(config: Config, site: Site) -> None:
    """The bytes are used up, the text of a file is still being taken out, and others wait for that file."""
    gate = threading.Event()

    def late(before: int) -> Answer:
        gate.wait(0.5)
        return pdf("late")

    site["/a"], site["/c"] = moved("/b"), late
    site["/b"] = Answer(200, b"<!DOCTYPE html><p>words</p>" * 1000, {"Content-Type": "text/html"})
    for n in range(50):
        site[f"/d{n}"] = pdf(str(n))
    write_papers(config, [site.url(path) for path in ("/a", "/c", *(f"/d{n}" for n in range(50)))])
    done = archec_inline(config, "gather", "--max-bytes", "20000", "--json")
    assert done.code in (0, 5), done.err
    check(config)
    done = archec_inline(config, "gather", *resuming(config), "--json")
    assert done.code == 0, done.err
    assert set(outcomes(config).values()) <= {"new", "same", "not-modified"}
    check(config)


@pytest.mark.parametrize("file", [None, "RePEc_2020-01-02.tar"])
def test_what_a_stopped_gathering_left_goes_with_an_ingest(config: Config, site: Site, file: str | None) -> None:
    """Its scratch space, answers that it had received, temporary files at its own tist and at that of its data set."""
    text, source = template("RePEc:aaa:sss:1", urls=site.fill(2)), None
    if file is None:
        (config.data_path / "p.rdf").write_text(text)
    else:
        source = tarball(config.base / file, [Member("RePEc/aaa/sss/p.rdf", text.encode())])
    stopped = run(config, source, fetch=True, budget=Budget(files=1))
    assert stopped.state == "budget"
    (config.work_path / str(stopped.run)).mkdir(parents=True)
    (config.work_path / f"{stopped.run}.received").touch()
    for tist in {stopped.run, stopped.data_set}:
        (config.store_path / tist_path(tist) / temp_name(1)).touch()
    run_ingest(config, iter(()), IngestOptions(), Meter(), lambda result, file: None)
    assert temporary_files(config) == []
    assert [journal.finished for journal in journals(open_layout(config.store_path))] == [True, True]
    check(config)
