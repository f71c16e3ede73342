"""The console script: what it begins early is used, or gone again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from archec.__main__ import _fetches, main
from archec.errors import ArchecError
from archec.fetch.spares import Spares, new_spare


def left_behind(*arguments: str, cwd: Path) -> tuple[int, bool]:
    """The exit code of a command, and whether a process that it started is still there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "archec", *arguments],
        cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    code = process.wait(60)
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return code, False
    return code, True


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("gather", "--no-such-option"), 2),
        (("gather", "--max-bytes", "many"), 2),
        (("gather", "--config", "missing.yaml"), 1),
        (("gather", "--dry-run"), 0),
        (("gather",), 0),
        (("gather", "--no-fetch"), 0),
    ],
)
def test_no_process_is_left(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    assert left_behind("init", ".", cwd=tmp_path) == (0, False)
    assert left_behind(*arguments, cwd=tmp_path) == (code, False)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gather", True),
        ("gather -f RePEc_2009-05-01.tar.gz", True),
        ("gather --no-fetch", False),
        ("gather --json --dry-run", False),
        ("gather --help", False),
        ("history gather", False),
        ("", False),
    ],
)
def test_which_commands_fetch(line: str, expected: bool) -> None:
    assert _fetches(line.split()) is expected


def test_an_early_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(spares: Spares, count: int) -> None:
        if count:
            raise KeyboardInterrupt

    monkeypatch.setattr(Spares, "fill", interrupted)
    monkeypatch.setattr(sys, "argv", ["archec", "gather"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130


def test_what_lies_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    spare = new_spare()
    spare.socket.close()
    assert spare.process.wait(60) == 0


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(ArchecError, match="cannot be started: Resource temporarily unavailable"):
        Spares(1)
