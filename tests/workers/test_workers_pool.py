"""A pool with real worker processes: results, their order, and all ways in which a worker may go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from workers_jobs import obeying, pids_of

from archec.errors import ArchecError, StorageFull
from archec.workers.child import Limits
from archec.workers.pool import FAULTS, Pool

ENOUGH = 60.0
UNLIMITED = Limits()
SHORT = 2.0
"""A silence that is noticed soon."""


def pool(folder: Path, *, workers: int = 1, limits: Limits = UNLIMITED, silence: float = 60.0) -> Pool[str, str]:
    return Pool("workers_jobs:obeying", [folder], str, workers=workers, limits=limits, silence=silence)


def doubling(workers: int, silence: float = 60.0) -> Pool[bytes, bytes]:
    return Pool("workers_jobs:doubling", [], bytes, workers=workers, ordered=True, silence=silence)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ENOUGH
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process is no more; one that nobody has waited for yet (in a container without an init) counts."""
    try:
        return b") Z " in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return True


def all_of(pool: Pool[str, str]) -> dict[str, str]:
    """What each item came to: its answer, its fault, or the name of the error."""
    results = {}
    deadline = time.monotonic() + ENOUGH
    while pool.pending:
        assert time.monotonic() < deadline, f"still pending: {pool.pending}"
        pool.wait(1.0)
        for done in pool.results():
            assert done.item not in results
            results[done.item] = done.answer or done.fault or type(done.error).__name__
    return results


# -- the ordinary ---------------------------------------------------------------------------------


def test_results_and_their_items(tmp_path: Path) -> None:
    items = [f"item {number}" for number in range(500)]
    with pool(tmp_path, workers=3) as workers:
        for item in items:
            workers.submit(item)
        assert all_of(workers) == {item: item.upper() for item in items}
        assert 1 <= len(workers.pids) <= 3
        assert list(workers.results(0)) == []


def test_order_where_it_is_asked_for(tmp_path: Path) -> None:
    items = [f"sleep 0.{3 if number % 7 == 0 else 0}{number:02}" for number in range(30)]
    workers: Pool[str, str] = Pool("workers_jobs:obeying", [tmp_path], str, workers=3, ordered=True)
    with workers:
        seen: list[str] = []
        for item in items:
            workers.submit(item)
            seen += [done.item for done in workers.results(at_most=10)]
            assert workers.pending <= 10
        assert seen != items
        seen += [done.item for done in workers.results(at_most=0)]
    assert seen == items


def test_large_items_and_answers() -> None:
    """Both sides send at the same time more than the pipe holds."""
    items = [bytes([number]) * 3_000_000 for number in range(10)]
    with doubling(workers=2) as workers:
        for item in items:
            workers.submit(item)
        assert [done.result() for done in workers.results(at_most=0)] == [item * 2 for item in items]


def test_names_of_files_that_are_not_utf_8() -> None:
    root, item = Path("/\udcff"), Path("a\udc80")
    workers: Pool[Path, Path] = Pool("workers_jobs:paths", [root], Path, workers=1)
    with workers:
        workers.submit(item)
        assert [done.result() for done in workers.results(at_most=0)] == [root / item]


def test_little_work_is_done_here(tmp_path: Path) -> None:
    here = obeying(tmp_path)
    with Pool("workers_jobs:obeying", [tmp_path], str, workers=2, here=here, inline=120, ordered=True) as workers:
        for number in range(4):
            workers.submit(f"small{number}", 30)
        assert workers.pids == []
        workers.submit("large", 30)
        workers.submit("small again", 0)
        assert [done.result() for done in workers.results(at_most=0)] == [
            "SMALL0", "SMALL1", "SMALL2", "SMALL3", "LARGE", "SMALL AGAIN"
        ]  # fmt: skip
    assert pids_of(tmp_path, "small3") == [os.getpid()] != pids_of(tmp_path, "large")


def test_a_pool_that_is_not_used_starts_nothing_and_closes_twice(tmp_path: Path) -> None:
    workers = pool(tmp_path)
    workers.wait(5.0)
    assert list(workers.results(at_most=0)) == []
    assert workers.pids == []
    workers.close()
    workers.close()
    with pytest.raises(ValueError, match="closed"):
        workers.submit("late")


def test_what_the_work_raises_is_raised_here(tmp_path: Path) -> None:
    workers: Pool[str, str] = Pool("workers_jobs:obeying", [tmp_path], str, workers=1, ordered=True)
    with workers:
        for item in ("full", "raise", "fine"):
            workers.submit(item)
        full, broken, fine = workers.results(at_most=0)
    with pytest.raises(StorageFull, match="no space") as caught:
        full.result()
    assert caught.value.hint == "make some"
    with pytest.raises(RuntimeError, match=r"(?s)in a worker process.*workers_jobs.py.*KeyError: 'of no use'"):
        broken.result()
    assert fine.result() == "FINE"


# -- workers that go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "fault", "limits"),
    [
        ("kill", "crashed", Limits()),
        ("leave", "crashed", Limits()),
        ("babble", "crashed", Limits()),
        ("eat", "memory", Limits(memory=300_000_000)),
        ("sleep 3600", "timeout", Limits(seconds=1.0)),
        ("burn", "timeout", Limits(seconds=1.0)),
    ],
)
def test_a_bad_item_costs_itself_only(tmp_path: Path, order: str, fault: str, limits: Limits) -> None:
    with pool(tmp_path, limits=limits) as workers:
        for item in ("before", order, "after", "later"):
            workers.submit(item)
        assert all_of(workers) == {"before": "BEFORE", order: fault, "after": "AFTER", "later": "LATER"}
    assert len(pids_of(tmp_path, order)) == (2 if fault == "crashed" else 1)


@pytest.mark.parametrize("order", ["kill-once", "interrupt"])
def test_what_happens_once_costs_nothing(tmp_path: Path, order: str) -> None:
    with pool(tmp_path) as workers:
        workers.submit(order)
        workers.submit("next")
        assert all_of(workers) == {order: order.upper(), "next": "NEXT"}


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    with pool(tmp_path, silence=SHORT) as workers:
        workers.submit("stop-once")
        workers.submit("next")
        assert all_of(workers) == {"stop-once": "STOP-ONCE", "next": "NEXT"}
    assert all(map(gone, pids_of(tmp_path, "stop-once")))


def test_an_item_that_silences_two_workers_is_an_internal_fault(tmp_path: Path) -> None:
    with pool(tmp_path, workers=2, silence=SHORT) as workers:
        for item in ("before", "stop", "after"):
            workers.submit(item)
        assert all_of(workers) == {"before": "BEFORE", "stop": "internal", "after": "AFTER"}
    pids = pids_of(tmp_path, "stop")
    assert len(pids) == 2
    assert all(map(gone, pids))


def test_a_stopped_worker_that_is_sent_more_than_its_pipe_holds() -> None:
    with doubling(workers=1, silence=SHORT) as workers:
        workers.submit(b"a")
        assert [done.result() for done in workers.results(at_most=0)] == [b"aa"]
        os.kill(workers.pids[0], signal.SIGSTOP)
        for _ in range(3):
            workers.submit(b"a" * 5_000_000)
        assert [len(done.result()) for done in workers.results(at_most=0)] == [10_000_000] * 3


def test_a_long_item_is_not_silence(tmp_path: Path) -> None:
    with pool(tmp_path, silence=SHORT) as workers:
        workers.submit(f"sleep {2 * SHORT}")
        assert all_of(workers) == {f"sleep {2 * SHORT}": f"SLEEP {2 * SHORT}"}
    assert len(pids_of(tmp_path, "sleep")) == 1


def test_answers_of_another_type_are_faults() -> None:
    workers: Pool[str, str] = Pool("workers_jobs:lying", [], str, workers=1)
    with workers:
        workers.submit("a")
        assert [done.fault for done in workers.results(at_most=0)] == ["crashed"]


def test_a_fault_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pool(tmp_path) as workers:
        workers.submit("kill")
        (done,) = workers.results(at_most=0)
    with pytest.raises(ArchecError, match="worker process died") as caught:
        done.result("run it again")
    assert (caught.value.message, caught.value.hint) == (FAULTS["crashed"], "run it again")


@pytest.mark.parametrize("function", ["no_such_module:obeying", "workers_jobs:nothing", "workers_jobs:obeying"])
def test_workers_that_cannot_start(function: str, caplog: pytest.LogCaptureFixture) -> None:
    workers: Pool[str, str] = Pool(function, [], str, workers=2)
    with workers:
        for number in range(20):
            workers.submit(str(number))
        assert [done.fault for done in workers.results(at_most=0)] == ["no-worker"] * 20
        workers.submit("late")
        assert [done.fault for done in workers.results(at_most=0)] == ["no-worker"]
    assert "a worker process cannot be started: " in caplog.text


def test_a_system_that_refuses_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen
    with pool(tmp_path, workers=2) as workers:
        workers.submit("first")
        assert all_of(workers) == {"first": "FIRST"}

        def refuse(*arguments: object, **options: object) -> None:
            raise BlockingIOError("no more processes")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        for number in range(20):
            workers.submit(f"item {number}")
        assert set(all_of(workers).values()) == {f"ITEM {number}" for number in range(20)}
        assert len(workers.pids) == 1
        os.kill(workers.pids[0], signal.SIGKILL)
        workers.submit("last")
        assert all_of(workers) == {"last": "no-worker"}
    monkeypatch.setattr(subprocess, "Popen", started)


# -- no process is left ---------------------------------------------------------------------------


def test_leaving_in_the_middle_leaves_no_process(tmp_path: Path) -> None:
    with pool(tmp_path, workers=2) as workers:
        for item in ("child", "sleep 3600", "sleep 3601", "next"):
            workers.submit(item)
        until(lambda: bool(pids_of(tmp_path, "grandchild")) and len(workers.pids) == 2)
        pids = [*workers.pids, *pids_of(tmp_path, "grandchild")]
    assert workers.pids == []
    assert len(list(workers.results(at_most=0))) < 4, "nothing is waited for"
    assert len(pids) == 3
    until(lambda: all(map(gone, pids)))
    assert not [thread for thread in threading.enumerate() if thread.name == "worker"]


def test_leaving_while_workers_start_leaves_no_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pids: list[int] = []
    for _ in range(5):
        with pool(tmp_path, workers=2) as workers:
            workers.submit("a")
            workers.submit("b")
            pids += workers.pids
    assert all(map(gone, pids))
    assert caplog.text == ""


PARENT = """
import signal, sys
from archec.workers.pool import Pool
signal.alarm(120)  # should the test itself be killed
try:
    with Pool("workers_jobs:obeying", [sys.argv[1]], str, workers=2) as pool:
        pool.submit("child")
        pool.submit("sleep 3600")
        list(pool.results(at_most=0))
except KeyboardInterrupt:
    print("interrupted", pool.pids, flush=True)
"""


def parent(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A process with a pool that is busy, and the processes below it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    until(lambda: bool(pids_of(tmp_path, "grandchild") and pids_of(tmp_path, "sleep")))
    return process, [pid for item in ("child", "grandchild", "sleep") for pid in pids_of(tmp_path, item)]


def test_workers_and_what_they_started_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process, pids = parent(tmp_path)
    process.kill()
    process.communicate()
    assert len(pids) == 3
    until(lambda: all(map(gone, pids)))


def test_an_interrupt_reaches_the_parent_only(tmp_path: Path) -> None:
    process, pids = parent(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=ENOUGH)
    assert (out, err, process.returncode) == ("interrupted []\n", "", 0)
    until(lambda: all(map(gone, pids)))


# -- what a worker imports ------------------------------------------------------------------------


def test_what_lies_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("json", "msgspec", "select", "gc", "resource", "sitecustomize", "archec"):
        (folder / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(folder)
    for entry in ("", ".", str(folder)):
        monkeypatch.syspath_prepend(entry)
    with pool(tmp_path) as workers:
        workers.submit("a")
        assert all_of(workers) == {"a": "A"}
