"""The console script: no process outlives it, and Ctrl-C is no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gather_support import archec_inline, marked

from archec.__main__ import main


def left_behind(*arguments: str, cwd: Path) -> tuple[int, bool]:
    """The exit code of a command, and whether a process that it started is still there."""
    mark = f"archec-test-{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.run(
        [sys.executable, "-m", "archec", *arguments],
        cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "ARCHEC_TEST_MARK": mark},
    )  # fmt: skip
    return process.returncode, bool(marked(mark))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("init", "another"), 0),
        (("gather", "--no-such-option"), 2),
        (("gather", "--max-bytes", "many"), 2),
        (("gather", "--config", "missing.yaml"), 1),
        (("gather", "--dry-run"), 0),
        (("gather",), 0),
        (("gather", "--no-fetch"), 0),
    ],
)
def test_no_process_is_left(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    assert archec_inline(None, "init", tmp_path).code == 0
    assert left_behind(*arguments, cwd=tmp_path) == (code, False)


def test_an_interrupt_at_the_first_import_is_no_traceback() -> None:
    interrupted = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name not in ("archec", "archec.__main__", *sys.builtin_module_names):
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from archec.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_interrupt_that_an_import_swallows_ends_the_command() -> None:
    """As that of a module written in C does."""
    swallowing = """
import signal, sys
class Swallowing:
    def find_spec(self, name, *_):
        if name == "archec.cli.serve":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass
sys.meta_path.insert(0, Swallowing())
sys.argv = ["archec", "serve", "--help"]
from archec.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", swallowing], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_early_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("archec.cli.main.main", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.code == 130


def test_an_interrupt_at_the_exit_is_no_traceback() -> None:
    late = """
import atexit, signal, sys
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv = ["archec", "--version"]
from archec.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, check=False)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (-signal.SIGINT, b"archec,", b"")
