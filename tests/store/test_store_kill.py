"""kill -9 at every named step, and at random ones: what is left is whole, and the next run finishes it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from failpoint import killed_at

import archec
from archec.store import durable
from archec.store.durable import is_temp
from archec.store.journal import read_batches
from archec.store.layout import Layout, create, journals
from archec.store.reader import open_obi

TIST = 1352481230
BATCHES = 6
SIZE = 12

RUN = f"""
import json, sys
from pathlib import Path
from archec.store.journal import JournalWriter, tidy
from archec.store.layout import journals
from archec.store.layout import open_layout
from archec.store.lock import RunLock
from archec.store.writer import Writer, sweep_parts
from archec.store.writer import HardLink, Placement, Redirect

layout, tist = open_layout(Path(sys.argv[1])), {TIST}
with RunLock(layout), Writer(layout) as writer:
    tidy(layout)
    sweep_parts(layout, [tist, tist + 1])
    if journals(layout) and journals(layout)[0].finished:
        sys.exit(0)
    with JournalWriter(layout, tist) as journal:
        for k in range(journal.batches, {BATCHES}):
            batch = []
            for i in range({SIZE}):
                obi = f"http://h/{{k}}/{{i}}"
                stored = writer.put(tist, obi, obi.encode() * 500)
                batch.append(Placement(stored.temp, tist, obi, stored.sha256))
            links = [Redirect(tist, f"http://h/{{k}}/from", tist, f"http://h/{{k}}/0")]
            again = [HardLink(tist, f"http://h/{{k}}/1", tist + 1, f"http://h/{{k}}/1")]
            outcomes = writer.commit(batch, links, again)
            kinds = {{outcome.kind for outcome in outcomes}}
            assert kinds <= {{"stored", "adopted"}}, kinds
            journal.append([json.dumps([o.tist, o.id]) for o in outcomes], tist + k)
            print(k, flush=True)
        journal.finish()
"""

POINTS = [
    *(f"store.{step}:{n}" for step in ("before-sync", "after-sync", "after-rename", "after-fsync-dir") for n in (1, 4)),
    *(f"store.mid-rename:{n}" for n in (1, 2, 13, 40)),
    *(f"journal.{step}:{n}" for step in ("before-append", "mid-append", "after-append") for n in (1, BATCHES)),
    "journal.mid-finish",
    "journal.after-finish-rename",
]


def start(layout: Layout, point: str = "") -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1]), **(killed_at(point) if point else {})}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(layout.root)], stdout=subprocess.PIPE, text=True, env=environ
    )


def run(layout: Layout, point: str = "") -> int:
    with start(layout, point) as child:
        child.communicate()
    return child.returncode


def check_nothing_half_written(layout: Layout) -> int:
    """Every name holds the whole of what belongs there, and all that a journal tells of is held."""
    for folder, _, files in os.walk(layout.root / "032"):
        for name in files:
            path = Path(folder, name)
            if not is_temp(name) and not path.is_symlink():
                data = path.read_bytes()
                obi = data[: len(data) // 500]
                assert data == obi * 500
                assert path.name == layout.path(TIST, obi.decode()).rpartition("/")[2]
    batches = [batch for journal in journals(layout) for batch in read_batches(journal.path)]
    for batch in batches:
        for line in batch.lines:
            tist, obi = json.loads(line)
            with open_obi(layout, tist, obi) as file:
                assert file.read() == obi.replace("from", "0").encode() * 500
    return len(batches)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = create(tmp_path_factory.mktemp("undisturbed") / "archive")
    assert run(layout) == 0
    return layout


Names = Callable[[Layout], dict[str, str | bytes]]


def check_same(layout: Layout, undisturbed: Layout, names_in: Names) -> None:
    assert names_in(layout) == names_in(undisturbed)
    assert os.listdir(layout.runs) == [f"{TIST}.jsonl.gz"]
    mine, theirs = (list(read_batches(at.runs / f"{TIST}.jsonl.gz")) for at in (layout, undisturbed))
    assert mine == theirs


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_step(flat: Layout, undisturbed: Layout, names_in: Names, point: str) -> None:
    assert run(flat, point) == -signal.SIGKILL
    check_nothing_half_written(flat)
    assert run(flat) == 0
    assert check_nothing_half_written(flat) == BATCHES
    check_same(flat, undisturbed, names_in)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_again_and_again_at_any_instant(
    flat: Layout, undisturbed: Layout, names_in: Names, seed: int
) -> None:
    chance = random.Random(seed)
    committed = 0
    for _ in range(4):
        with start(flat) as child:
            assert child.stdout is not None
            for _ in range(chance.randrange(3)):
                line = child.stdout.readline()
                committed = max(committed, int(line or -1) + 1)
            child.kill()
            for line in child.stdout:
                committed = max(committed, int(line) + 1)
        assert check_nothing_half_written(flat) >= committed
    assert run(flat) == 0
    check_same(flat, undisturbed, names_in)


def test_every_fail_point_is_tried() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in Path(durable.__file__).parent.glob("*.py"))
    named = {part.split('"')[0] for part in source.split('hit("')[1:]}
    assert named == {point.partition(":")[0] for point in POINTS}


HITS = """
import sys
from archec.store.durable import armed, hit
for name in sys.argv[1:]:
    print(armed("a"), flush=True)
    hit(name)
"""


def hits(point: str, *names: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1])}
    environ |= killed_at(point) if point else {}
    return subprocess.run(
        [sys.executable, "-c", HITS, *names], capture_output=True, text=True, check=False, env=environ
    )


def test_unset_it_does_nothing() -> None:
    done = hits("", "a", "b")
    assert (done.returncode, done.stdout) == (0, "False\nFalse\n")


def test_no_variable_of_the_environment_arms_one() -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1])}
    environ |= {"ARCHEC_FAILPOINT": "a", "ARCHEC_TEST_FAILPOINT": "a"}
    done = subprocess.run([sys.executable, "-c", HITS, "a"], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (0, "False\n")


def test_a_fail_point_is_hit_once_at_least() -> None:
    with pytest.raises(ValueError, match="0 times"):
        durable.arm("a", 0)


def test_a_step_knows_that_its_next_hit_kills() -> None:
    done = hits("a:2", "b", "a", "b", "a", "b")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "False\nFalse\nTrue\nTrue\n")
