"""The pool with real worker processes: results, and every way in which a worker may go wrong."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from archec.config import TextConfig
from archec.demo.papers import write_objects, write_pdf
from archec.text.checksum import REASONS, TextDone, TextPool

PDF, HTML, PLAIN, GZIP = "application/pdf", "text/html", "text/plain", "application/gzip"
CONFIG = TextConfig(workers=1, timeout=20.0, max_memory=300_000_000, max_size=60_000_000)
ENOUGH = 60.0

Put = Callable[[str, bytes | str], str]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(name: str, data: bytes | str) -> str:
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    return write


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def config(**changes: object) -> TextConfig:
    return dataclasses.replace(CONFIG, **changes)


def collect_all(pool: TextPool) -> dict[str, TextDone]:
    done: dict[str, TextDone] = {}
    until = time.monotonic() + ENOUGH
    while pool.pending:
        assert time.monotonic() < until, f"still pending: {pool.pending}"
        for one in pool.collect(1.0):
            assert one.key not in done
            assert one.reason in REASONS
            assert (one.md5 is None) == bool(one.reason)
            done[one.key] = one
    return done


# -- the ordinary ---------------------------------------------------------------------------------


def test_real_files_of_every_kind(put: Put) -> None:
    with TextPool(config(workers=2)) as pool:
        pool.extract("pdf", put("a", write_pdf(["A paper"])), PDF, "")
        pool.extract("html", put("b", "<!DOCTYPE html><p>A page"), HTML, "")
        pool.extract("plain", put("c", "A text"), PLAIN, "")
        pool.extract("packed", put("d", gzip.compress(b"A text")), PLAIN, "gzip")
        pool.extract("scan", put("e", write_pdf([""])), PDF, "")
        pool.extract("absent", "/absent\n\u2013\udc80", PLAIN, "")
        assert pool.pending == 6
        done = collect_all(pool)
        assert pool.collect(5.0) == []
    assert done == {
        "pdf": TextDone("pdf", md5("A paper"), ""),
        "html": TextDone("html", md5("A page"), ""),
        "plain": TextDone("plain", md5("A text"), ""),
        "packed": TextDone("packed", md5("A text"), ""),
        "scan": TextDone("scan", None, "empty"),
        "absent": TextDone("absent", None, "unreadable"),
    }


def test_many_small_files_over_two_workers(put: Put, tmp_path: Path) -> None:
    with TextPool(config(workers=2)) as pool:
        for number in range(1500):
            pool.extract(f"k{number}", put(f"f{number}", f"text {number}"), PLAIN, "")
        done = collect_all(pool)
    assert done == {f"k{number}": TextDone(f"k{number}", md5(f"text {number}"), "") for number in range(1500)}


def test_names_that_fill_the_pipe(put: Put) -> None:
    with TextPool(config(timeout=2.0), "text_hooks:obeying") as pool:
        pool.extract("hang", put("a", "hang"), PLAIN, "")
        for number in range(400):
            pool.extract(str(number), "/absent" + "/x" * 1900, PLAIN, "")
        done = collect_all(pool)
    assert done.pop("hang").reason == "timeout"
    assert {one.reason for one in done.values()} == {"damaged"}
    assert len(done) == 400


def test_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with TextPool(CONFIG) as pool:
        assert pool.wants(PDF, 1)
        assert pool.wants("text/html; charset=utf-8", 60_000_000)
        assert not pool.wants(PDF, 60_000_001)
        assert not pool.wants(PDF, 0)
        assert not pool.wants("image/png", 10)
        assert not pool.wants("application/octet-stream", 10)
    with TextPool(config(enabled=False)) as pool:
        assert not pool.wants(PDF, 1)
    monkeypatch.setenv("PATH", "/nowhere")
    with TextPool(CONFIG) as pool:
        assert not pool.wants("application/postscript", 10)


def test_an_unused_pool_starts_nothing_and_closes_twice() -> None:
    pool = TextPool(CONFIG)
    assert pool.collect(5.0) == []
    assert pool.pids == []
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.extract("a", "/a", PLAIN, "")


def test_too_large_a_file_is_never_opened(put: Put) -> None:
    with TextPool(config(max_size=10)) as pool:
        pool.extract("a", put("a", "12345678901"), PLAIN, "")
        assert collect_all(pool)["a"].reason == "too-large"


def test_parsers_are_not_loaded_into_the_run() -> None:
    code = "import sys, archec.text.checksum; sys.exit(not {'lxml', 'pypdfium2'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)}).returncode == 0


# -- what goes wrong ------------------------------------------------------------------------------


def spoil(put: Put, order: str, reason: str, **changes: object) -> None:
    """One file does ``order``; it gets ``reason``, and its neighbours get their results."""
    with TextPool(config(**changes), "text_hooks:obeying") as pool:
        for number in range(6):
            pool.extract(f"before{number}", put(f"b{number}", f"b{number}"), PLAIN, "")
        pool.extract("bad", put("bad", order), PLAIN, "")
        for number in range(6):
            pool.extract(f"after{number}", put(f"a{number}", f"a{number}"), PLAIN, "")
        done = collect_all(pool)
        pids = pool.pids
    bad = done.pop("bad")
    assert (bad.md5, bad.reason) == (None, reason)
    assert len(done) == 12
    assert all(one.md5 is not None for one in done.values())
    assert_gone(pids)


def assert_gone(pids: list[int]) -> None:
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("order", "reason", "changes"),
    [
        ("hang", "timeout", {"timeout": 1.0}),
        ("burn", "timeout", {"timeout": 1.0}),
        ("segfault", "crashed", {}),
        ("leave", "crashed", {}),
        ("raise", "damaged", {}),
        ("eat", "memory", {}),
        ("lie", "crashed", {}),
    ],
)
def test_a_bad_file_costs_itself_only(put: Put, order: str, reason: str, changes: dict[str, object]) -> None:
    spoil(put, order, reason, **changes)


@pytest.mark.parametrize("order", ["print", "interrupt"])
def test_noise_and_interrupts_change_nothing(put: Put, order: str) -> None:
    with TextPool(CONFIG, "text_hooks:obeying") as pool:
        pool.extract("a", put("a", order), PLAIN, "")
        assert collect_all(pool)["a"].md5 == md5(order)


def test_a_stopped_worker_holds_up_nothing_for_ever(put: Put) -> None:
    with TextPool(CONFIG, "text_hooks:obeying", silence=1.0) as pool:
        pool.extract("stopped", put("a", "stop"), PLAIN, "")
        pool.extract("next", put("b", "b"), PLAIN, "")
        done = collect_all(pool)
    assert done["stopped"].reason == "internal"
    assert done["next"].md5 == md5("b")


def test_many_bad_files(put: Put) -> None:
    orders = ["segfault", "fine", "leave", "eat", "fine", "segfault", "segfault", "raise", "fine"]
    with TextPool(config(workers=2), "text_hooks:obeying") as pool:
        for number, order in enumerate(orders):
            pool.extract(str(number), put(f"f{number}", f"{order} {number}"), PLAIN, "")
        done = collect_all(pool)
    expected = {"segfault": "crashed", "leave": "crashed", "eat": "memory", "raise": "damaged", "fine": ""}
    assert [done[str(number)].reason for number in range(len(orders))] == [expected[order] for order in orders]


def test_killed_from_outside(put: Put, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with TextPool(CONFIG, "text_hooks:obeying") as pool:
        pool.extract("killed", put("a", f"note {note}"), PLAIN, "")
        pool.extract("next", put("b", "b"), PLAIN, "")
        until = time.monotonic() + ENOUGH
        while not note.exists() or not note.read_text().endswith("\n"):
            assert time.monotonic() < until
            assert pool.collect(0.05) == []
        os.kill(int(note.read_text()), signal.SIGKILL)
        done = collect_all(pool)
    assert done["killed"].md5 == md5(f"note {note}")
    assert done["next"].md5 == md5("b")


def test_killed_while_idle(put: Put) -> None:
    with TextPool(CONFIG) as pool:
        for _ in range(3):
            pool.extract("a", put("a", "text"), PLAIN, "")
            assert collect_all(pool)["a"].md5 == md5("text")
            os.kill(pool.pids[0], signal.SIGKILL)


def test_results_wait_while_the_run_is_busy(put: Put) -> None:
    """A deadline is not held against files that were done while nobody collected."""
    with TextPool(config(timeout=1.0), "text_hooks:obeying") as pool:
        pool.extract("first", put("a", "a"), PLAIN, "")
        collect_all(pool)
        for number in range(20):
            pool.extract(str(number), put(f"f{number}", "x"), PLAIN, "")
        pool.collect(0.0)
        time.sleep(1.5)
        done = collect_all(pool)
    assert all(one.md5 for one in done.values())


def test_answers_that_the_pool_does_not_know_are_crashes(put: Put) -> None:
    with TextPool(CONFIG, "text_hooks:unknown") as pool:
        pool.extract("a", put("a", "a"), PLAIN, "")
        assert collect_all(pool)["a"].reason == "crashed"


def test_leaving_in_the_middle_leaves_no_process(put: Put) -> None:
    with TextPool(config(workers=2), "text_hooks:obeying") as pool:
        for number in range(4):
            pool.extract(str(number), put(f"f{number}", "hang"), GZIP, "")
        until = time.monotonic() + ENOUGH
        while len(pids := pool.pids) < 2:
            assert time.monotonic() < until
            assert pool.collect(0.05) == []
    assert pool.pids == []
    assert_gone(pids)


def test_workers_that_cannot_start(put: Put, caplog: pytest.LogCaptureFixture) -> None:
    with TextPool(CONFIG, "no_such_module:text_md5") as pool:
        for number in range(40):
            pool.extract(str(number), put(f"f{number}", "x"), PLAIN, "")
        done = collect_all(pool)
        pool.extract("late", put("late", "x"), PLAIN, "")
        assert collect_all(pool)["late"].reason == "no-worker"
    assert {one.reason for one in done.values()} == {"no-worker"}
    assert "no_such_module" in caplog.text


def test_a_system_that_refuses_processes(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with TextPool(CONFIG) as pool:
        pool.extract("a", put("a", "x"), PLAIN, "")
        assert collect_all(pool)["a"].reason == "no-worker"


# -- hostile files, the real extractors ------------------------------------------------------------


def test_hostile_files(put: Put) -> None:
    packed = zlib.compress(b" " * 400_000_000, 1)
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    bomb = write_objects([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        stream,
    ])
    files = {
        "pdf bomb": (bomb, PDF, ""),
        "pdf arrays": (b"%PDF-1.4\n1 0 obj " + b"[" * 5_000_000, PDF, ""),
        "pdf dictionaries": (b"%PDF-1.4\ntrailer " + b"<</Root " * 1_000_000, PDF, ""),
        "gzip bomb": (gzip.compress(b"a" * 100_000_000, 1), PLAIN, "gzip"),
        "gzip in gzip": (gzip.compress(gzip.compress(b"%PDF-1.4" + b"a" * 100_000_000, 1)), GZIP, "gzip"),
        "html deep": (b"<html>" + b"<div>x" * 1_000_000, HTML, ""),
        "html attributes": (b"<html><p " + b"a=b " * 2_000_000, HTML, ""),
        "one word": (b"x" * 50_000_000, PLAIN, ""),
    }
    with TextPool(config(workers=2)) as pool:
        for key, (data, kind, encoding) in files.items():
            pool.extract(key, put(key, data), kind, encoding)
        pool.extract("good", put("good", write_pdf(["Still here"])), PDF, "")
        done = collect_all(pool)
    assert done["good"].md5 == md5("Still here")
    assert done["gzip bomb"].reason == done["gzip in gzip"].reason == "bomb"
    for key in ("pdf bomb", "pdf arrays", "pdf dictionaries"):
        assert done[key].md5 is None
    assert done["html deep"].reason in ("", "memory", "damaged", "crashed")


@pytest.mark.slow
def test_a_page_of_fifty_megabytes_nested_to_the_end(put: Put) -> None:
    with TextPool(config(timeout=60.0)) as pool:
        pool.extract("deep", put("deep", b"<html>" + b"<div>x" * 8_000_000), HTML, "")
        pool.extract("good", put("good", "<html><p>Still here"), HTML, "")
        done = collect_all(pool)
    assert done["good"].md5 == md5("Still here")
    assert done["deep"].reason in ("", "memory", "crashed", "timeout")


def test_a_worker_ends_with_its_parent(put: Put, tmp_path: Path) -> None:
    """The run is killed outright: its workers see the end of their pipe and go."""
    path = put("a", "text")
    code = (
        "import os, signal; from archec.config import TextConfig; from archec.text.checksum import TextPool\n"
        "pool = TextPool(TextConfig())\n"
        f"pool.extract('a', {path!r}, 'text/plain', '')\n"
        "while not pool.collect(1.0): pass\n"
        "print(pool.pids[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True
    )
    assert run.returncode == -signal.SIGKILL
    worker, until = int(run.stdout), time.monotonic() + ENOUGH
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.02)
