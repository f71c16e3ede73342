"""The run lock: one run at a time, whatever the file says."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import archec
from archec.errors import CorruptArchive, Exit, LockHeld, StorageFailed
from archec.store.layout import Layout
from archec.store.lock import LOCK, RunLock, holder

HOLD = """
import sys
from pathlib import Path
from archec.store.layout import Layout
from archec.store.lock import RunLock
with RunLock(Layout(Path(sys.argv[1])), "a test"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start(layout: Layout) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1])}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(layout.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_run_is_told_who_holds_it(flat: Layout) -> None:
    with start(flat) as child:
        with pytest.raises(LockHeld) as caught, RunLock(flat):
            pass
        assert f"a test, process {child.pid} on {os.uname().nodename}, since 2" in caught.value.message
        assert caught.value.exit_code == Exit.LOCKED
        who = holder(flat)
        assert who is not None
        assert who.pid == child.pid
        child.communicate("done\n")
    assert holder(flat) is None
    with RunLock(flat):
        pass


def test_a_run_that_may_hang_is_named_with_a_remedy(flat: Layout) -> None:
    with start(flat) as child:
        about = json.loads((flat.root / LOCK).read_bytes())
        now, about["since"] = about["since"], about["since"] - 40 * 3600
        (flat.root / LOCK).write_text(json.dumps(about))
        for journalled, told in ((7 * 3600, "7h"), (5 * 3600, ""), (50 * 3600, "1d 16h")):
            (journal := flat.runs / f"{about['since']}.jsonl").touch()
            os.utime(journal, (now - journalled, now - journalled))
            with pytest.raises(LockHeld) as caught, RunLock(flat):
                pass
            assert (f", nothing journalled for {told}" in caught.value.message) == bool(told)
            assert (f"'kill {child.pid}' on " in caught.value.hint) == bool(told)
        child.communicate("done\n")


def test_a_killed_run_holds_nothing(flat: Layout) -> None:
    with start(flat) as child:
        child.kill()
        child.communicate()
    assert b'"pid"' in (flat.root / LOCK).read_bytes()
    assert holder(flat) is None
    with RunLock(flat, "gather"):
        who = holder(flat)
        assert who is not None
        assert (who.pid, who.what) == (os.getpid(), "gather")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"pid":"x"}', b'{"pid":1e999}', b"[" * 5000])
def test_the_text_is_only_text(flat: Layout, content: bytes) -> None:
    (flat.root / LOCK).write_bytes(content)
    assert holder(flat) is None
    with RunLock(flat):
        (flat.root / LOCK).write_bytes(content)
        assert str(holder(flat)) == "an unknown run"
        with pytest.raises(LockHeld, match="an unknown one"), RunLock(flat):
            pass


def test_the_same_lock_twice_and_again(flat: Layout) -> None:
    for _ in range(2):
        with RunLock(flat) as lock:
            with pytest.raises(LockHeld, match="another run is active"), RunLock(flat):
                pass
            assert holder(flat) is not None
        lock.close()
        assert holder(flat) is None


def test_looking_never_takes_it(flat: Layout) -> None:
    assert holder(flat) is None
    assert not (flat.root / LOCK).exists()
    with RunLock(flat):
        pass
    for _ in range(50):
        assert holder(flat) is None
        with RunLock(flat):
            assert holder(flat) is not None


def test_somebody_looking_does_not_keep_a_run_out(flat: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    (flat.root / LOCK).touch()
    with open(flat.root / LOCK, "rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
        with RunLock(flat):
            assert holder(flat) is not None


def test_a_lock_that_is_a_link_or_a_pipe(flat: Layout, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"text")
    lock = flat.root / LOCK
    for make in (lambda: lock.symlink_to(tmp_path / "other"), lambda: os.mkfifo(lock)):
        make()
        with pytest.raises(StorageFailed, match=f"{lock}: is not a file") as caught, RunLock(flat):
            pass
        assert caught.value.hint == "move it away: archec creates this file for its lock"
        with pytest.raises(StorageFailed, match=f"{lock}: is not a file"):
            holder(flat)
        lock.unlink()
    assert (tmp_path / "other").read_bytes() == b"text"


def test_a_held_file_in_its_place_is_not_written_to(flat: Layout) -> None:
    held = flat.root / LOCK
    held.write_bytes(b"held\n")
    held.chmod(0o444)
    with pytest.raises(CorruptArchive if os.access(held, os.W_OK) else StorageFailed), RunLock(flat):
        pass
    assert held.read_bytes() == b"held\n"
