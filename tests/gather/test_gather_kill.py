"""kill -9 of the real command at every named step and at random instants: the next run makes it good."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import failpoint
import pytest
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    behind,
    check,
    histories,
    kill,
    lines,
    make,
    resuming,
    run,
    start_cli,
    store_files,
    tarball,
    template,
    until,
)
from small_disk import disk_in

from archec.archive import commit
from archec.config import Config, load
from archec.store import durable
from archec.store.layout import journals, open_layout

POINTS = [
    *(f"store.{step}:1" for step in ("before-sync", "after-sync", "after-rename", "after-fsync-dir")),
    "store.mid-rename:3",
    *(f"journal.{step}-append:{n}" for step, n in (("before", 2), ("mid", 1), ("mid", 2), ("after", 2))),
    "journal.mid-finish:1",
    "journal.after-finish-rename:1",
    *(f"catalogue.{step}-write:{n}" for step, n in (("before", 1), ("before", 3), ("after", 2))),
]
MOST_HITS = 60


def papers(code: str, count: int, title: str, *, without: int = 0) -> Member:
    texts = [template(f"RePEc:{code}:sss:{n}", f"{title} {n}") for n in range(without, count)]
    return Member(f"RePEc/{code}/sss/papers.rdf", "\n".join(texts).encode())


class Story:
    """An archive that knows two data sets, a third one that falls between them, and how it ends undisturbed."""

    def __init__(self, folder: Path, size: int) -> None:
        first = tarball(folder / "RePEc_2001-01-01.tar", [papers("aaa", size, "old"), papers("bbb", 9, "old")])
        last = tarball(folder / "RePEc_2001-01-03.tar", [papers("aaa", size, "old"), papers("bbb", 9, "new")])
        self.file = tarball(
            folder / "RePEc_2001-01-02.tar", [papers("aaa", size // 2, "mid", without=2), papers("bbb", 12, "new")]
        )
        self.base = make(folder / "base", {"max_loss": "100%"})
        run(self.base, first)
        run(self.base, last)
        undisturbed = self.copy(folder / "undisturbed")
        run(undisturbed, self.file)
        self.lines = lines(undisturbed)
        self.files = store_files(open_layout(undisturbed.store_path))
        check(undisturbed)

    def copy(self, folder: Path) -> Config:
        shutil.copytree(self.base.base, folder)
        return load(folder / "config.yaml", environ={})

    def assert_good(self, config: Config) -> None:
        check(config)
        assert lines(config) == self.lines
        assert store_files(open_layout(config.store_path)) == self.files

    def carry_on(self, config: Config, *, resume: bool) -> None:
        done = archec_inline(config, "gather", "-f", self.file, "--no-fetch", *resuming(config, wanted=resume))
        assert done.code == 0, done.err
        self.assert_good(config)


@pytest.fixture(scope="module")
def story(memory_folder: Callable[[], Path]) -> Story:
    return Story(memory_folder(), 30)


@pytest.fixture(scope="module")
def long_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("long"), 5000)


def killed_at(config: Config, story: Story, point: str, *more: str) -> bool:
    """Runs until a fail point kills the process; whether it did."""
    done = archec_cli(config, "gather", "-f", story.file, "--no-fetch", *more, env=failpoint.killed_at(point))
    assert done.code in (-signal.SIGKILL, 0), done.err
    return done.code != 0


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_power_fails_at_a_named_step(story: Story, folder: Path, point: str) -> None:
    with disk_in(folder / "disk", folder / "before") as place:
        config = story.copy(place / "archive")
        subprocess.run(["sync", "-f", place], check=True)
        assert killed_at(config, story, point)
        shutil.copyfile(folder / "disk", folder / "left")
    with disk_in(folder / "left", folder / "after") as place:
        story.carry_on(load(place / "archive" / "config.yaml", environ={}), resume=True)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_step(story: Story, folder: Path, point: str) -> None:
    config = story.copy(folder / "a")
    assert killed_at(config, story, point)
    check(config, whole=False) if "catalogue" not in point and "after-append" not in point else None
    story.carry_on(config, resume=POINTS.index(point) % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("name", sorted({point.partition(":")[0] for point in POINTS}))
def test_killed_at_every_hit_of_a_step(story: Story, folder: Path, name: str, resume: bool) -> None:
    for hits in range(1, MOST_HITS):
        config = story.copy(folder / str(hits))
        more = killed_at(config, story, f"{name}:{hits}")
        story.carry_on(config, resume=resume)
        if not more:
            return
    raise AssertionError(f"{name} was hit more than {MOST_HITS} times")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_killed_again_and_again(story: Story, folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = story.copy(folder / "a")
    for _ in range(6):
        point = f"{chance.choice(POINTS).partition(':')[0]}:{chance.randrange(1, 9)}"
        killed_at(config, story, point, *resuming(config, wanted=chance.random() < 0.7))
    story.carry_on(config, resume=chance.random() < 0.5)


def at_any_instant(config: Config, story: Story, chance: random.Random, times: int, spread: float) -> None:
    for _ in range(times):
        before = set(os.listdir(config.store_path / "runs"))
        child = start_cli(config, "gather", "-f", story.file, "--no-fetch", *resuming(config))
        until(lambda: child.poll() is not None or set(os.listdir(config.store_path / "runs")) != before, 10.0)  # noqa: B023
        time.sleep(chance.random() * spread)
        kill(child)
        check(config, whole=False) if not behind(config) else None
    story.carry_on(config, resume=chance.random() < 0.5)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_at_any_instant(story: Story, folder: Path, seed: int) -> None:
    at_any_instant(story.copy(folder / "a"), story, random.Random(seed), 3, 0.08)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_long_run_killed_at_any_instant(long_story: Story, tmp_path: Path, seed: int) -> None:
    at_any_instant(long_story.copy(tmp_path / "a"), long_story, random.Random(seed), 5, 1.5)


@pytest.mark.parametrize("resume", [True, False])
def test_losses_that_were_held_back_are_told_after_a_kill(folder: Path, resume: bool) -> None:
    """Whenever the run died, its end says that losses are held back."""
    config = make(folder / "a", {"max_loss_least": 5})
    run(config, tarball(folder / "RePEc_2001-01-01.tar", [papers("aaa", 30, "old")]))
    file = tarball(folder / "RePEc_2001-01-02.tar", [papers("aaa", 10, "old")])
    for hits in (2, 3):
        arguments = ["gather", "-f", file, "--no-fetch"]
        done = archec_cli(config, *arguments, env=failpoint.killed_at(f"catalogue.after-write:{hits}"))
        assert done.code == -signal.SIGKILL
        done = archec_inline(config, *arguments, *resuming(config, wanted=resume))
        assert done.code == 3, (hits, done.out)
        assert b"held back" in done.out
        check(config)


@pytest.mark.slow
def test_a_directory_that_was_read_in_part_is_read_anew_at_another_tist(folder: Path) -> None:
    """What the killed run noted stays; it is no data set, so what it lacked is not lost then."""
    config = make(folder / "a", {"max_loss": "100%", "workers": 1})
    papers_in = config.data_path / "aaa" / "sss"
    papers_in.mkdir(parents=True)
    rdf = papers_in / "p.rdf"
    rdf.write_text("\n".join(template(f"RePEc:aaa:sss:{n}", "old") for n in range(8100)))
    done = archec_cli(config, "gather", "--no-fetch", env=failpoint.killed_at("catalogue.after-write:2"))
    assert done.code == -signal.SIGKILL
    noted = histories(config)
    assert 0 < len(noted) < 8100
    rdf.write_text("\n".join(template(f"RePEc:aaa:sss:{n}", "new") for n in range(1, 8100)))
    refused = archec_inline(config, "gather", "--resume", "--no-fetch")
    assert (refused.code, "cannot be resumed" in refused.err) == (2, True)
    report = json.loads(archec_inline(config, "gather", "--no-fetch", "--json").out)
    assert report["templates"]["conflicts"] == 0
    first, second = (journal.tist for journal in journals(open_layout(config.store_path)))
    assert second > first
    found = histories(config)
    assert len(found) == 8100
    assert all(set(history) <= {first, second} for history in found.values())
    assert found["RePEc:aaa:sss:0"][second] is None
    assert all(noted[obi][first] == found[obi][first] for obi in noted)
    states = [json.loads(row)["state"] for row in archec_inline(config, "runs", "--json").out.splitlines()]
    assert states == ["done", "interrupted"]
    dump = [json.loads(line) for line in lines(config, everything=True)]
    assert [row["id"] for row in dump if row["collection"] == "data_sets" and row.get("whole", True)] == [second]
    check(config)


def test_another_tarball_in_the_place_of_the_one_that_was_read_is_refused(story: Story, folder: Path) -> None:
    config = story.copy(folder / "a")
    file = folder / "RePEc_2002-01-01.tar"
    shutil.copy(story.file, file)
    arguments = ("gather", "-f", file, "--no-fetch")
    assert archec_cli(config, *arguments, env=failpoint.killed_at("catalogue.after-write:2")).code == -signal.SIGKILL
    (journal,) = [journal for journal in journals(open_layout(config.store_path)) if not journal.finished]
    start = json.loads(journal.path.read_bytes().splitlines()[0])
    assert start["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    before = journal.path.read_bytes()
    with file.open("ab") as tail:
        tail.write(bytes(512))
    done = archec_inline(config, *arguments, "--resume")
    assert (done.code, start["sha256"] in done.err) == (1, True), done.err
    assert journal.path.read_bytes() == before
    shutil.copy(story.file, file)
    assert archec_inline(config, *arguments, "--resume").code == 0
    check(config)


def test_scratch_space_of_a_killed_run_goes(story: Story, folder: Path) -> None:
    config = story.copy(folder / "a")
    assert killed_at(config, story, "store.after-sync")
    assert list(config.work_path.iterdir())
    story.carry_on(config, resume=False)
    assert not list(config.work_path.iterdir())


def test_every_fail_point_is_tried() -> None:
    text = "".join(
        path.read_text(encoding="utf-8")
        for module in (durable, commit)
        for path in Path(module.__file__ or "").parent.glob("*.py")
    )
    named = set(re.findall(r"\bhit\(\"([a-z.-]+)\"\)", text))
    assert named == {point.partition(":")[0] for point in POINTS}
