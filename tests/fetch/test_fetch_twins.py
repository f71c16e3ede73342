"""Worker processes that are started early, and their twins."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from fetch_hostile import Hostile
from fetch_support import QUICK, collect_all, settings

from archec.fetch.pool import FetchPool
from archec.fetch.sink import FolderSink
from archec.fetch.spares import Spares
from archec.fetch.task import Hop, Task
from archec.fetch.twins import Twin, adopting


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def fetched(fetching: FetchPool, hostile: Hostile, count: int = 60) -> list[Hop]:
    fetching.submit([Task(hostile.url(f"/ok/{n}", 1 + n % 3)) for n in range(count)])
    return collect_all(fetching, 30)


def pool(folder: Path, spares: Spares, workers: int = 3) -> FetchPool:
    return FetchPool(settings(workers=workers), "test", FolderSink(folder), QUICK, spares=spares)


@pytest.fixture(autouse=True)
def twins_are_known_here() -> None:
    if not adopting(True):
        pytest.skip("this system has no pidfd_open, or adopts no orphans")
    adopting(False)


def test_twins_are_children_that_fetch(hostile: Hostile, tmp_path: Path) -> None:
    with Spares(1) as spares:
        spares.fill(3)
        with pool(tmp_path, spares) as fetching:
            pids = fetching.pids
            assert len(set(pids)) == 3
            assert [parent_of(pid) for pid in pids] == [os.getpid()] * 3
            assert {hop.kind for hop in fetched(fetching, hostile)} == {"body"}
            assert fetching.pids == pids, "each of them did its part"
        assert alive(pids) == []


def test_twins_that_nobody_took_are_ended() -> None:
    with Spares(1) as spares:
        spares.fill(3)
        spares.fill(2)
        first, twin = spares.take(), spares.take()
        assert first is not None
        assert twin is not None
        pids = [first.process.pid, twin.process.pid]
        assert spares.take() is None
        for spare in (first, twin):
            spare.socket.close()
            spare.process.wait(30)  # a worker without orders leaves when nobody speaks to it any more
        assert alive(pids) == []


def test_workers_whose_run_fails_at_once_leave_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    for count in (1, 2, 3):
        with Spares(1) as spares:
            spares.fill(count)
            first = spares._spares[0]
            first.socket.close()
            assert first.process.wait(60) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_that_is_killed_is_replaced(hostile: Hostile, tmp_path: Path, which: int) -> None:
    with Spares(1) as spares:
        spares.fill(3)
        with pool(tmp_path, spares) as fetching:
            before = fetching.pids
            os.kill(before[which], signal.SIGKILL)
            assert {hop.kind for hop in fetched(fetching, hostile)} == {"body"}
            assert len(set(fetching.pids) - set(before)) == 1
            after = fetching.pids
        assert alive([*before, *after]) == []


def test_no_twins_of_the_dead(hostile: Hostile, tmp_path: Path) -> None:
    with Spares(1) as spares:
        first = spares.take()
        assert first is not None
        first.process.kill()
        first.process.wait()
        spares._spares.append(first)
        spares.fill(3)
        with pool(tmp_path, spares) as fetching:
            assert {hop.kind for hop in fetched(fetching, hostile)} == {"body"}


def test_a_twin_that_does_not_end(tmp_path: Path) -> None:
    with Spares(1) as spares:
        spares.fill(2)
        spare = spares.take()
        assert spare is not None
        assert isinstance(spare.process, Twin)
        with pytest.raises(subprocess.TimeoutExpired):
            spare.process.wait(0.0)
        spare.process.kill()
        spare.process.wait(30)
        spare.process.wait(30)
        assert alive([spare.process.pid]) == []
        spare.socket.close()


def test_systems_without_it_start_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with Spares(1) as spares:
        spares.fill(2)
        found = [spares.take(), spares.take()]
        for spare in found:
            assert spare is not None
            assert isinstance(spare.process, subprocess.Popen)
            spare.socket.close()
            spare.process.wait(30)
