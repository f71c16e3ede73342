"""Running a command and measuring it: time, CPU, memory of all its processes, load by others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import Load, Watch, descendants

__all__ = ["ROOT", "BenchmarkError", "Finished", "archec", "environment", "find", "found_version", "run"]

ROOT = Path(__file__).resolve().parents[2]
_SAMPLES = 0.25


class BenchmarkError(Exception):
    """A benchmark could not be carried out; the message says why."""


class Finished(NamedTuple):
    """A command that has ended well.

    ``wall`` and ``cpu`` are seconds, the latter of all its processes. ``peak`` is the largest sum of their
    proportional set sizes, ``largest`` the largest resident set that one of them ever had, in bytes; both
    are 0 where memory was not watched. (What ``wait4`` says of it is no use: a child is born with its
    parent's peak.)
    """

    wall: float
    cpu: float
    peak: int
    largest: int
    load: Load
    output: str


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without proxies and settings of archec, with the packages of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHEC_")}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return kept | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}", "LC_ALL": "C.UTF-8"} | dict(more or {})


def run(
    command: Sequence[str | Path],
    folder: Path,
    *,
    memory: bool = False,
    more: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Finished:
    """Runs a command in ``folder``. What others have left unwritten is written first.

    Raises BenchmarkError where it cannot be started, or ends with a code that is not in ``codes``.
    """
    os.sync()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        watch = Watch()
        began = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, cwd=folder, env=environment(more), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        except OSError as error:
            raise BenchmarkError(f"{command[0]}: {error.strerror}") from error
        sampler = _Sampler(process.pid) if memory else None
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            wall = time.perf_counter() - began
            peak, largest = sampler.stop() if sampler else (0, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        load = watch.load()
        out.seek(0)
        err.seek(0)
        output, errors = out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
    if process.returncode not in codes:
        shown = " ".join(str(word) for word in command)
        raise BenchmarkError(f"{shown}\nexit code {process.returncode}\n{errors[-2000:] or output[-2000:]}")
    return Finished(wall, usage.ru_utime + usage.ru_stime, peak, largest, load, output)


class _Sampler(threading.Thread):
    """Looks at the memory of a process and its descendants, four times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._peak = self._largest = 0
        self._stop_now = threading.Event()
        self.start()

    def run(self) -> None:
        while True:
            pids = (self._pid, *descendants(self._pid))
            self._peak = max(self._peak, sum(_bytes(pid, "smaps_rollup", "Pss:") for pid in pids))
            self._largest = max(self._largest, *(_bytes(pid, "status", "VmHWM:") for pid in pids))
            if self._stop_now.wait(_SAMPLES):
                return

    def stop(self) -> tuple[int, int]:
        """The peak of all and that of the largest, in bytes."""
        self._stop_now.set()
        self.join()
        return self._peak, self._largest


def _bytes(pid: int, file: str, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def archec(folder: Path, *arguments: str | Path, memory: bool = False) -> tuple[Finished, dict[str, Any]]:
    """Runs an archec command there; gives what it cost and the JSON that it printed ({} where it did not)."""
    done = run([sys.executable, "-m", "archec", *arguments], folder, memory=memory)
    return done, json.loads(done.output) if "--json" in arguments else {}


def find(program: str) -> str | None:
    """The path of a program, also where PATH lacks the folders for administrators."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return shutil.which(program, path=path)


def found_version(command: Sequence[str | Path]) -> str:
    """The first word with a digit and a dot in what a command prints of itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    for word in (done.stdout + done.stderr).replace("/", " ").split():
        if "." in word and word.strip("v()")[:1].isdigit():
            return word.strip("v(),")
    return "unknown"
