"""Nightly runs over a directory read what has changed, and conclude what a full reading concludes."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gather_support import archec_inline, change, check, make, run, template
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.config import Config
from archec.errors import ArchecError
from archec.gather import directory_cache
from archec.gather.options import Options
from archec.gather.run import dry_run
from archec.progress import Meter
from archec.redif import source
from archec.store import durable
from archec.tist import parse_when

POINTS = (
    ("store.mid-rename", 1), ("store.after-fsync-dir", 1), ("journal.after-append", 1), ("journal.after-append", 2),
    ("journal.mid-append", 3), ("catalogue.before-write", 2), ("catalogue.after-write", 3),
    ("journal.after-finish-rename", 1),
)  # fmt: skip


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder() / "a", {"max_loss_least": 100, "max_loss": "100%"})


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the file system is that of the machine."""
    monkeypatch.setattr(directory_cache, "_SLACK_NS", 0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are read."""
    paths: list[str] = []
    real = source.read_file

    def noted(file: int, status: os.stat_result, path: str, *rest: Any) -> Iterator[Any]:
        paths.append(path)
        return real(file, status, path, *rest)

    monkeypatch.setattr(source, "read_file", noted)
    monkeypatch.setattr(directory_cache, "read_file", noted)
    return paths


def write(config: Config, name: str, *texts: str) -> Path:
    path = config.data_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts))
    return path


def night(config: Config, read: list[str], **options: object) -> tuple[dict[str, int], list[str]]:
    """Counts of a run, and what it read."""
    read.clear()
    report = run(config, fetch=False, **options)
    assert report.whole
    return {kind: count for kind, count in report.tobis.items() if count}, list(read)


def filled(config: Config) -> None:
    for n in range(3):
        write(config, f"RePEc/aaa/sss/{n}.rdf", template(f"RePEc:aaa:sss:{n}"), template(f"RePEc:aaa:sss:x{n}"))


def test_only_what_changed_is_read(config: Config, read: list[str]) -> None:
    filled(config)
    everything = [f"RePEc/aaa/sss/{n}.rdf" for n in range(3)]
    assert night(config, read) == ({"new": 6}, everything)
    assert night(config, read) == ({"same": 6}, [])
    assert night(config, read) == ({"same": 6}, [])
    assert night(config, read) == ({"same": 6}, [])
    write(config, "RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", "News"))
    assert night(config, read) == ({"same": 4, "changed": 1, "lost": 1}, ["RePEc/aaa/sss/1.rdf"])
    (config.data_path / "RePEc/aaa/sss/2.rdf").unlink()
    assert night(config, read) == ({"same": 3, "lost": 2}, [])
    assert night(config, read, reread=True) == ({"same": 3}, everything[:2])
    assert night(config, read) == ({"same": 3}, [])


def when_read(
    monkeypatch: pytest.MonkeyPatch, directory: Path, before: Callable[[], object], after: Callable[[], object]
) -> None:
    """Does something before and after a directory is listed for the first time."""
    real, once = source._listing, [before, after]

    def listing(fd: int) -> tuple[list[str], dict[str, str]]:
        if not once or not os.path.samestat(os.fstat(fd), directory.stat()):
            return real(fd)
        once.pop(0)()
        found = real(fd)
        once.pop(0)()
        return found

    monkeypatch.setattr(source, "_listing", listing)


@pytest.mark.parametrize("moved", ["RePEc/aaa/sss/1.rdf", "RePEc/aaa/sss", "RePEc/aaa", "RePEc", "1.rdf"])
def test_what_is_moved_away_and_back_while_its_directory_is_read_is_not_lost(
    config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    filled(config)
    write(config, "1.rdf", template("RePEc:aaa"))
    night(config, read, complete=True)
    root, away = config.data_path, config.data_path.parent / "away"
    with monkeypatch.context() as patch:
        folder = (root / moved).parent
        when_read(patch, folder, lambda: (root / moved).rename(away), lambda: away.rename(root / moved))
        report = run(config, fetch=False, complete=True)
    assert report.problem_counts["changed-while-reading"] == 1
    assert report.tobis.get("lost", 0) == 0
    assert night(config, read, complete=True)[0] == {"same": 7}
    check(config)


def test_templates_that_were_seen_in_a_directory_that_changed_are_not_noted_again(
    config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(config)
    night(config, read, complete=True)
    (config.data_path / "RePEc/aaa/sss/1.rdf").unlink()
    with monkeypatch.context() as patch:
        when_read(patch, config.data_path, os.getpid, lambda: (config.data_path / "new").mkdir())
        report = run(config, fetch=False, complete=True)
    assert report.problem_counts["changed-while-reading"] == 1
    assert +report.tobis == {"same": 4}
    journal = gzip.decompress((config.store_path / "runs" / f"{report.run}.jsonl.gz").read_bytes())
    assert sorted(set(re.findall(rb'"id":"(RePEc:[^"]+)"', journal))) == [b"RePEc:aaa:sss:1", b"RePEc:aaa:sss:x1"]
    assert night(config, read, complete=True)[0] == {"same": 4, "lost": 2}
    check(config)


@pytest.mark.parametrize("nights", [1, 2])
def test_what_is_moved_to_a_directory_that_was_read_before_is_not_lost(
    config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch, nights: int
) -> None:
    filled(config)
    write(config, "RePEc/aaa/rrr/9.rdf", template("RePEc:aaa:rrr:9"))
    night(config, read)
    here, between, there = (config.data_path / "RePEc/aaa" / name for name in ("rrr", "rzz", "sss"))
    between.mkdir()
    for n in range(nights):
        with monkeypatch.context() as patch:
            when_read(patch, between, partial((there / f"{n}.rdf").rename, here / f"{n}.rdf"), os.getpid)
            report = run(config, fetch=False)
        assert report.problem_counts["changed-while-reading"] == 1
        assert report.tobis.get("lost", 0) == 0
    assert night(config, read)[0] == {"same": 7 - 2, "moved": 2}
    check(config)


def test_a_directory_whose_times_are_set_back_has_changed(
    config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(config)
    night(config, read)
    folder = config.data_path / "RePEc/aaa/sss"
    was = folder.stat()

    def back() -> None:
        (folder / "away").rename(folder / "1.rdf")
        os.utime(folder, ns=(was.st_atime_ns, was.st_mtime_ns))

    with monkeypatch.context() as patch:
        when_read(patch, folder, lambda: (folder / "1.rdf").rename(folder / "away"), back)
        report = run(config, fetch=False)
    assert report.problem_counts["changed-while-reading"] == 1
    assert report.tobis.get("lost", 0) == 0


def test_an_earlier_date_is_no_repetition_of_the_newest_data_set(config: Config, read: list[str]) -> None:
    filled(config)
    assert [night(config, read)[0] for _ in range(3)] == [{"new": 6}, {"same": 6}, {"same": 6}]
    for date in ("2013-01-01", "2012-01-01", "2014-01-01"):
        kind = "same" if date == "2014-01-01" else "new"
        assert night(config, read, as_of=parse_when(date))[0] == {kind: 6}
    assert night(config, read) == ({"same": 6}, [])
    assert archec_inline(config, "get", "RePEc:aaa:sss:1", "--at", "2012-06-01").code == 0
    assert archec_inline(config, "lost", "--returned").out == b""
    check(config)


def test_a_report_is_that_of_a_full_reading(config: Config) -> None:
    filled(config)
    write(config, "RePEc/aaa/sss/page.rdf", "<html>Not found</html>")
    write(config, "RePEc/aaa/sss/3.rdf", "Template-Type: ReDIF-Paper 1.0\nTitle: nobody\n")
    write(config, "RePEc/aaa/sss/3.rdf~", "old")
    found = []
    for reread in (True, False, False, False, True):
        value = run(config, fetch=False, reread=reread).as_value()
        kept = ("files", "templates", "tobis", "problems", "held_back")
        found.append({key: value[key] for key in kept} | {"whole": value["data_set"]["whole"]})
    assert found[1] == found[2] == found[3] == found[4]
    assert found[1]["problems"]["by_code"] == {"html-page": 1, "no-handle": 1}
    assert found[1]["files"]["others"] == ["RePEc/aaa/sss/3.rdf~"]


def test_a_copy_in_a_file_that_did_not_change_becomes_the_winner(config: Config, read: list[str]) -> None:
    write(config, "RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", "one"))
    write(config, "RePEc/aaa/sss/2.rdf", template("RePEc:aaa:sss:1", "two"))
    night(config, read)
    (config.data_path / "RePEc/aaa/sss/2.rdf").unlink()
    assert night(config, read) == ({"changed": 1}, ["RePEc/aaa/sss/1.rdf"])
    assert b"Title: one" in archec_inline(config, "get", "RePEc:aaa:sss:1").out


def test_a_file_with_fresh_times_is_not_trusted(
    config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    paths: list[str] = []
    real = source.read_file
    monkeypatch.setattr(source, "read_file", lambda file, *rest: (paths.append(rest[1]), real(file, *rest))[1])
    filled(config)
    for _ in range(3):
        paths.clear()
        run(config, fetch=False)
        assert len(paths) == 3


def test_times_that_lie_show_by_the_time_of_change(config: Config, read: list[str]) -> None:
    path = write(config, "RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", "one"))
    before = path.stat()
    night(config, read)
    path.write_text(path.read_text().replace("one", "two"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert night(config, read) == ({"changed": 1}, ["RePEc/aaa/sss/1.rdf"])


def test_a_memory_that_is_lost_damaged_or_of_another_archive_is_begun_anew(config: Config, read: list[str]) -> None:
    filled(config)
    memory = config.memory("reading.sqlite")
    night(config, read)
    memory.unlink()
    memory.mkdir()
    assert night(config, read) == ({"same": 6}, [f"RePEc/aaa/sss/{n}.rdf" for n in range(3)]), "it goes on without"
    memory.rmdir()
    assert night(config, read) == ({"same": 6}, [f"RePEc/aaa/sss/{n}.rdf" for n in range(3)])
    memory.write_bytes(b"not a database" * 1000)
    assert len(night(config, read)[1]) == 3
    other = make(config.base.parent / "b", {})
    shutil.copytree(config.data_path, other.data_path, dirs_exist_ok=True)
    shutil.copy(memory, other.memory("reading.sqlite"))
    assert night(other, read)[0] == {"new": 6}


def test_everything_is_read_after_a_while_and_where_rules_change(config: Config, read: list[str]) -> None:
    filled(config)
    write(config, "RePEc/aaa/sss/9.txt", template("RePEc:aaa:sss:9"))
    night(config, read)
    config = change(config, {"template_files": ["*.txt"], "max_loss": "100%"})
    everything = [f"RePEc/aaa/sss/{name}" for name in ("0.rdf", "1.rdf", "2.rdf", "9.txt")]
    assert night(config, read) == ({"same": 6, "new": 1}, everything)
    assert night(config, read)[1] == []
    with closing(sqlite3.connect(config.memory("reading.sqlite"))) as memory, memory:
        memory.execute("UPDATE about SET value = value - 31 * 86400 WHERE key = 'since'")
    assert len(night(config, read)[1]) == 4


def test_a_dry_run_reads_what_changed_only_and_remembers_nothing(config: Config, read: list[str]) -> None:
    filled(config)
    night(config, read)
    write(config, "RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", "News"))
    for _ in range(2):
        read.clear()
        report = dry_run(config, Options(), Meter())
        counts = {kind: count for kind, count in report.tobis.items() if count}
        assert (counts, read) == ({"same": 4, "changed": 1, "lost": 1}, ["RePEc/aaa/sss/1.rdf"])
    assert night(config, read)[0] == counts
    night(config, read)
    read.clear()
    assert (dict(dry_run(config, Options(), Meter()).tobis)["same"], read) == (5, [])
    read.clear()
    dry_run(config, Options(reread=True), Meter())
    assert len(read) == 3


def test_a_run_that_is_killed_remembers_nothing_false(config: Config, read: list[str]) -> None:
    """Wherever it dies: what the next run concludes is what a full reading would."""
    filled(config)
    night(config, read)
    for number, (point, hits) in enumerate(POINTS):
        write(config, f"RePEc/aaa/sss/{number % 3}.rdf", template(f"RePEc:aaa:sss:{number % 3}", f"News {number}"))
        child = os.fork()
        if not child:
            try:
                durable.arm(point, hits)
                run(config, fetch=False)
            finally:
                os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), point
        night(config, read)
        before = newest(config)
        assert night(config, read, reread=True)[0].keys() == {"same"}
        assert newest(config) == before
    assert all(title in str(archec_inline(config, "get", f"RePEc:aaa:sss:{n}").out) for n, title in enumerate(
        ("News 6", "News 7", "News 5")
    ))  # fmt: skip
    check(config)


# -- histories are those of a full reading ------------------------------------------------------------

FILES = ("RePEc/aaa/sss/1.rdf", "RePEc/aaa/sss/2.rdf", "RePEc/bbb/sss/1.rdf", "RePEc/all/x.rdf")
HANDLES = tuple(f"RePEc:{code}:sss:{n}" for code in ("aaa", "bbb") for n in range(2))
WRITES = st.tuples(
    st.just("write"), st.sampled_from(FILES), st.lists(st.sampled_from(HANDLES), max_size=3), st.sampled_from("AB")
)
EDITS = st.one_of(
    WRITES,
    WRITES,
    st.tuples(st.sampled_from(["remove", "touch", "lie", "page", "swap"]), st.sampled_from(FILES)),
    st.tuples(st.just("rmtree"), st.sampled_from(["RePEc/aaa", "RePEc/bbb/sss", "RePEc/all"])),
)


def edit(root: Path, what: str, name: str, *more: Any) -> None:
    path = root / name
    if what == "rmtree":
        shutil.rmtree(path, ignore_errors=True)
    elif what == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(template(handle, more[1]) for handle in more[0]))
    elif not path.exists():
        return
    elif what == "remove":
        path.unlink()
    elif what == "touch":
        os.utime(path)
    elif what == "page":
        path.write_text("<html>Not found</html>")
    elif what == "lie":
        before = path.stat()
        path.write_text(path.read_text().replace("Title: A", "Title: Z"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif what == "swap":
        others = [root / one for one in FILES if one != name and (root / one).exists()]
        if others:
            third = path.with_name("third")
            path.rename(third)
            others[0].rename(path)
            third.rename(others[0])


def histories(config: Config) -> list[tuple[object, ...]]:
    """The state of every template after each run, whatever the runs' tists."""
    runs = sorted(json.loads(line)["run"] for line in archec_inline(config, "runs", "--json").out.splitlines())
    number = {str(tist): at for at, tist in enumerate(runs)}
    rows = [json.loads(line) for line in archec_inline(config, "dump").out.splitlines()]
    return [
        (row["id"], sorted((number[tist], state) for tist, state in row["s"].items()))
        for row in rows
        if row["collection"] == "mi"
    ]


def newest(config: Config) -> dict[str, object]:
    rows = [json.loads(line) for line in archec_inline(config, "dump").out.splitlines()]
    return {row["id"]: row["s"][max(row["s"])] for row in rows if row["collection"] == "mi"}


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(EDITS, max_size=3), min_size=3, max_size=7))
def test_histories_are_those_of_a_full_reading(nights: list[list[tuple[Any, ...]]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        root = Path(folder) / "data"
        for name in FILES:
            edit(root, "write", name, [HANDLES[FILES.index(name) % 4]], "A")
        settings_ = {"ReDIF_directory": str(root), "max_loss_least": 100, "max_loss": "100%"}
        quick, full = make(Path(folder) / "quick", settings_), make(Path(folder) / "full", settings_)
        for edits in ([], *nights, [], []):
            for one in edits:
                edit(root, *one)
            root.mkdir(exist_ok=True)
            try:
                run(quick, fetch=False)
            except ArchecError as error:  # the directory is empty
                with pytest.raises(type(error)):
                    run(full, fetch=False, reread=True)
            else:
                run(full, fetch=False, reread=True)
            assert histories(quick) == histories(full)
