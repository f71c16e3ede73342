"""Whole commands over tarballs: damage, several in one command, check-tarball."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import failpoint
import pytest
from gather_site import Site, pdf
from gather_support import Member, archec_cli, archec_inline, make, tarball, template

from archec.config import Config
from archec.gather.dataset import OverallMeter
from archec.progress import Meter

DAYS = ("2001-01-01", "2001-01-02", "2001-01-03")


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder() / "a", {"max_loss_least": 5})


@pytest.fixture
def days(tmp_path: Path) -> list[Path]:
    """Three data sets; the title of the one template in them is their day."""
    folder = tmp_path / "tarballs"
    folder.mkdir()
    return [
        tarball(
            folder / f"RePEc_{day}.tar.gz",
            [Member("RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", day).encode()), Member("RePEc/aaa/x.pdf", b"x")],
        )
        for day in DAYS
    ]


def rows(out: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def read(out: bytes) -> list[str]:
    """The data sets of the reports that a command printed."""
    found = [row["data_set"] for row in rows(out)]
    return [Path(one["source"]).name for one in found if isinstance(one, dict)]


# -- several data sets in one command -----------------------------------------------------------------


def test_several_data_sets_are_read_oldest_first(config: Config, days: list[Path]) -> None:
    done = archec_inline(config, "gather", "-f", days[2], "-f", days[0], days[1], "--no-fetch", "--json")
    assert done.code == 0
    assert read(done.out) == [path.name for path in days]
    assert [json.loads(line)["tobis"].get("changed") for line in done.out.splitlines()] == [0, 1, 1]


def test_a_folder_stands_for_its_tarballs(config: Config, days: list[Path], tmp_path: Path) -> None:
    (days[0].parent / "notes.txt").write_text("not a tarball")
    done = archec_inline(config, "gather", "-f", days[1], days[0].parent, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (0, [path.name for path in days])
    tree = tmp_path / "RePEc_2001-02-01"
    (tree / "RePEc/aaa/sss").mkdir(parents=True)
    (tree / "RePEc/aaa/sss/1.rdf").write_text(template("RePEc:aaa:sss:1", "tree"))
    done = archec_inline(config, "gather", "-f", tree, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (0, [tree.name])


def test_nothing_is_read_where_one_is_missing_or_has_no_clear_date(config: Config, days: list[Path]) -> None:
    odd = days[0].rename(days[0].with_name("RePEc_01-02-2001.tar.gz"))
    assert archec_inline(config, "gather", days[1], odd, "--no-fetch").code == 2
    assert archec_inline(config, "gather", days[1], days[0], "--no-fetch").code == 1
    assert archec_inline(config, "gather", days[1], days[2], "--as-of", "2001-01-01", "--no-fetch").code == 2
    assert archec_inline(config, "runs", "--json").out == b""


def test_every_name_without_a_clear_date_is_told(config: Config, days: list[Path]) -> None:
    names = ("x_01-02-2001.tar.gz", "2001-02-30.tar.gz")
    odd = [day.rename(day.with_name(name)) for day, name in zip(days, names, strict=False)]
    done = archec_inline(config, "gather", "-f", odd[0].parent, "--no-fetch")
    assert done.code == 2
    assert all(path.name in done.err for path in odd)
    assert "rename these files" in done.err
    assert archec_inline(config, "runs", "--json").out == b""


def test_one_that_is_no_tarball_does_not_stop_the_others(config: Config, days: list[Path]) -> None:
    days[1].write_text("<html>503</html>")
    done = archec_inline(config, "gather", *days, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (1, [days[0].name, days[2].name])
    assert f"{days[1]} cannot be read as a tarball" in done.err


def test_a_pipe_is_not_waited_for(config: Config, days: list[Path]) -> None:
    days[1].unlink()
    os.mkfifo(days[1])
    done = archec_inline(config, "gather", "-f", days[0].parent, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (1, [days[0].name, days[2].name])
    assert f"{days[1]} is neither a directory nor a tarball (a pipe is to be written to a file first)" in done.err


@pytest.mark.parametrize("command", ["gather --no-fetch -f", "init", "export warc", "man", "redif", "get x -o"])
def test_an_empty_path_is_not_the_working_directory(config: Config, command: str, tmp_path: Path) -> None:
    used = None if command in ("init", "man", "redif") else config
    done = archec_inline(used, *command.split(), "", cwd=tmp_path)
    assert (done.code, "the path is empty" in done.err) == (2, True), done
    assert not list(tmp_path.iterdir())


def test_one_that_was_retracted_does_not_stop_the_others(config: Config, days: list[Path]) -> None:
    assert archec_inline(config, "gather", "-f", days[0], "--no-fetch").code == 0
    (run,) = (row["run"] for row in rows(archec_inline(config, "runs", "--json").out))
    assert archec_inline(config, "retract", run, "--reason", "not RePEc").code == 0
    assert archec_inline(config, "gather", "-f", days[0], "--dry-run").code == 2
    done = archec_inline(config, "gather", *days, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (2, [path.name for path in days[1:]])
    assert "was retracted: not RePEc" in done.err
    said = [json.loads(line.partition(" ")[2]) for line in done.err.splitlines() if line.startswith("archec-run ")]
    assert [(line["state"], line["exit"], line["run"] is None) for line in said] == [
        ("usage", 2, True), ("done", 0, False), ("done", 2, False),
    ]  # fmt: skip
    assert "was retracted: not RePEc" in said[-1]["message"]
    days[1].write_text("<html>503</html>")
    days[2].write_text("<html>503</html>")
    done = archec_inline(config, "gather", *days, "--no-fetch")
    last = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
    assert (done.code, last["exit"], f"{days[2]} cannot be read as a tarball" in last["message"]) == (1, 1, True)


def test_what_was_read_is_known_by_its_bytes(config: Config, days: list[Path]) -> None:
    """Whatever its name is now; another file of that name is read."""
    first, second = days[:2]
    assert archec_inline(config, "gather", first, second, "--no-fetch").code == 0
    renamed = first.rename(first.with_name("RePEc-2001-01-01.tar.gz"))
    second.write_bytes(gzip.compress(gzip.decompress(second.read_bytes()), mtime=7))
    done = archec_inline(config, "gather", renamed, second, "--no-fetch", "--resume", "--json")
    assert (done.code, read(done.out)) == (0, [second.name])
    assert "1 of 2 data sets were read before" in done.err


def test_a_damaged_one_notes_nothing_and_does_not_stop_the_others(config: Config, days: list[Path]) -> None:
    good = days[1].read_bytes()
    os.truncate(days[1], len(good) - 9)
    done = archec_inline(config, "gather", *days, "--no-fetch", "--json")
    assert (done.code, read(done.out)) == (8, [path.name for path in days])
    assert [json.loads(line)["state"] for line in done.out.splitlines()] == ["done", "damaged", "done"]
    salvaged = archec_inline(config, "gather", *days, "--no-fetch", "--salvage", "--resume", "--json")
    assert (salvaged.code, read(salvaged.out)) == (0, [days[1].name])
    days[1].write_bytes(good)
    whole = archec_inline(config, "gather", *days, "--no-fetch", "--resume", "--json")
    assert (whole.code, read(whole.out)) == (0, [days[1].name])
    dump = rows(archec_inline(config, "dump").out)
    assert [len(row["h"]) for row in dump if row["collection"] == "mi"] == [3]  # type: ignore[arg-type]


def test_a_damaged_one_without_a_date_does_not_stop_the_others(config: Config, days: list[Path]) -> None:
    undated, other = (days[n].rename(days[n].with_name(f"{name}.tar.gz")) for n, name in enumerate("ab"))
    os.truncate(undated, undated.stat().st_size - 9)
    done = archec_inline(config, "gather", "--salvage", "--no-fetch", "--json", undated, other, days[2])
    assert (done.code, read(done.out)) == (2, [days[2].name, other.name])
    assert "give its date with --as-of" in done.err


def test_files_are_fetched_although_the_last_one_is_damaged(config: Config, days: list[Path], site: Site) -> None:
    site["/a"] = pdf("a")
    text = template("RePEc:aaa:sss:1", "now", [site.url("/a")]).encode()
    tarball(days[1], [Member("RePEc/aaa/sss/1.rdf", text)])
    os.truncate(days[2], days[2].stat().st_size - 9)
    done = archec_inline(config, "gather", *days, "--json")
    assert (done.code, read(done.out)) == (8, [days[n].name for n in (0, 1, 2, 1)])
    assert [row["fobis"] for row in rows(done.out)] == [{}, {}, {}, {"new": 1}]
    ends = [json.loads(line.partition(" ")[2]) for line in done.err.splitlines() if line.startswith("archec-run")]
    assert [(one["state"], one["exit"]) for one in ends] == [("done", 0), ("done", 0), ("damaged", 8), ("done", 8)]
    again = archec_inline(config, "gather", *days, "--json", "--resume")
    assert (again.code, read(again.out), site.count("/a")) == (8, [days[2].name, days[1].name], 2)


@pytest.mark.parametrize("point", ["journal.after-append:2", "journal.after-append:7"])
def test_a_killed_command_is_resumed(config: Config, days: list[Path], point: str) -> None:
    command = ("gather", *days, "--no-fetch", "--json")
    killed = archec_cli(config, *command, env=failpoint.killed_at(point))
    assert killed.code < 0
    before = read(killed.out)
    done = archec_inline(config, *command, "--resume")
    assert (done.code, before + read(done.out)) == (0, [path.name for path in days])
    again = archec_inline(config, *command, "--resume")
    assert (again.code, again.out) == (0, b"")
    assert '"state": "done", "exit": 0' in again.err
    assert "3 of 3 data sets were read before" in again.err
    dump = rows(archec_inline(config, "dump").out)
    assert [len(row["h"]) for row in dump if row["collection"] == "mi"] == [3]  # type: ignore[arg-type]


class Notes(Meter):
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, name: str, total: int | None) -> None:
        self.phases.append(name)

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        self.notes.append(note)


def test_the_time_that_all_data_sets_will_take_is_shown() -> None:
    now, notes = [0.0], Notes()
    overall = OverallMeter(notes, [100, 300], clock=lambda: now[0])
    for size, seconds in ((100, 10.0), (150, 25.0)):
        overall.next()
        overall.phase("reading templates", size)
        now[0] = seconds
        overall.at(size, "5 templates")
        overall.phase("merging templates", None)
        overall.at(3)
    assert notes.phases[::2] == ["reading templates (1 of 2)", "reading templates (2 of 2)"]
    assert notes.notes == ["5 templates, all data sets in about 30s", "", "5 templates, all data sets in about 15s", ""]


# -- check-tarball ------------------------------------------------------------------------------------


def test_check_tarball_of_a_whole_one(config: Config, days: list[Path]) -> None:
    done = archec_inline(config, "check-tarball", days[0], "--json")
    other, found = rows(done.out)
    assert done.code == 0
    assert (other["type"], other["path"]) == ("other", "RePEc/aaa/x.pdf")
    assert (found["whole"], found["damage"], found["date_time"]) == (True, "", "2001-01-01T00:00:00Z")
    assert (found["dated_by"], found["archives"]) == ("the name", ["aaa"])
    assert found["templates"] == {"total": 1, "by_type": {"ReDIF-Paper": 1}}
    assert found["files"] == {"read": 1, "unreadable": 0, "other": 1}
    text = archec_inline(config, "check-tarball", days[0]).out.decode()
    assert "RePEc_2001-01-01.tar.gz: whole" in text
    assert "RePEc/aaa/x.pdf" in text


def test_check_tarball_of_damaged_ones(config: Config, days: list[Path], tmp_path: Path) -> None:
    before = sorted(config.base.rglob("*"))
    data = bytearray(days[0].read_bytes())
    data[-6] ^= 1
    days[0].write_bytes(data)
    os.truncate(days[1], days[1].stat().st_size // 2)
    days[2].write_text("<html>503</html>")
    for paths, code in ((days[:1], 8), (days[1:2], 8), (days[2:], 1), (days, 1)):
        done = archec_inline(config, "check-tarball", *paths)
        assert (done.code, done.out.count(b": damaged\n")) == (code, len(set(paths) & set(days[:2]))), done
    found = rows(archec_inline(config, "check-tarball", days[0], "--json").out)[-1]
    assert found["whole"] is False
    assert f"before byte {days[0].stat().st_size - 4:,} of the file" in str(found["damage"])
    assert "at byte 10,240 of its contents, after RePEc/aaa/x.pdf" in str(found["damage"])
    assert found["templates"] == {"total": 1, "by_type": {"ReDIF-Paper": 1}}
    assert sorted(config.base.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "code", "date", "why"),
    [
        ("RePEc.tar.gz", 0, "2001-09-09T01:46:40Z", "the newest member"),
        ("RePEc_01-05-2009.tar.gz", 2, None, "none: RePEc_01-05-2009.tar.gz: 01-05-2009 is not a date"),
    ],
)
def test_check_tarball_says_why_it_has_its_date(
    config: Config, days: list[Path], name: str, code: int, date: str | None, why: str
) -> None:
    done = archec_inline(config, "check-tarball", days[0].rename(days[0].with_name(name)), "--json")
    found = rows(done.out)[-1]
    assert (done.code, found["date_time"]) == (code, date)
    assert str(found["dated_by"]).startswith(why)


def test_check_tarball_needs_no_archive(tmp_path: Path, days: list[Path]) -> None:
    plain = tmp_path / "RePEc_2001-01-01.tar"
    plain.write_bytes(gzip.decompress(days[0].read_bytes()))
    done = archec_inline(None, "check-tarball", plain, cwd=tmp_path)
    assert done.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RePEc_2001-01-01.tar", "tarballs"]
