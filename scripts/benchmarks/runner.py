"""What all benchmarks share: programs run in turn and measured, the machine they run on, and the report.

The machine sets traps for measurements; docs/benchmarks.md lists them with what is done about each here.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUSY = 0.2
"""Cores used by others, on average, from which on a measurement is not to be trusted."""
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """A benchmark could not be carried out; the message says why."""


# -- programs -------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """A command that has ended well.

    ``wall`` and ``cpu`` are seconds, the latter of all its processes. ``peak`` is the largest sum of their
    proportional set sizes in bytes, looked at four times a second; 0 where memory was not watched.
    """

    wall: float
    cpu: float
    peak: int
    output: str


def environment() -> dict[str, str]:
    """This environment without proxies and settings of archec, with the packages of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHEC_")}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return kept | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}", "LC_ALL": "C.UTF-8"}


def run(command: Sequence[str | Path], folder: Path, *, memory: bool = False) -> Finished:
    """Runs a command in ``folder``. What others have left unwritten is written first.

    Raises BenchmarkError where it cannot be started, or fails.
    """
    os.sync()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
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
            peak = sampler.stop() if sampler else 0
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output, errors = out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
    if process.returncode:
        shown = " ".join(str(word) for word in command)
        raise BenchmarkError(f"{shown}\nexit code {process.returncode}\n{errors[-2000:] or output[-2000:]}")
    return Finished(wall, usage.ru_utime + usage.ru_stime, peak, output)


def archec(folder: Path, *arguments: str | Path, memory: bool = False) -> tuple[Finished, dict[str, Any]]:
    """Runs an archec command there; gives what it cost and the JSON that it printed ({} without ``--json``)."""
    done = run([sys.executable, "-m", "archec", *arguments], folder, memory=memory)
    return done, json.loads(done.output) if "--json" in arguments else {}


def find(program: str) -> str | None:
    """The path of a program, also where PATH lacks the folders for administrators."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return shutil.which(program, path=path)


def version_of(*command: str | Path) -> str:
    """The first word with a digit and a dot in what a command prints of itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    for word in (done.stdout + done.stderr).replace("/", " ").split():
        if "." in word and word.strip("v()")[:1].isdigit():
            return word.strip("v(),")
    return "unknown"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(command: Sequence[str | Path], folder: Path, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """The id of the process of a server that listens there. Raises BenchmarkError where it does not start."""
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(
        command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection((host, port), 1).close()
                    break
                except OSError as error:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise BenchmarkError(f"{command[0]} did not start: {log.read_text()[-500:]}") from error
                    time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()


class _Sampler(threading.Thread):
    """Watches the memory of a process and its descendants.

    ``wait4`` cannot tell it: a child is born with its parent's peak, and children are not summed.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._peak = 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while True:
            self._peak = max(self._peak, sum(map(_proportional_size, (self._pid, *_descendants(self._pid)))))
            if self._ended.wait(0.25):
                return

    def stop(self) -> int:
        """The peak in bytes."""
        self._ended.set()
        self.join()
        return self._peak


def _proportional_size(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has ended
        pass
    return 0


# -- the machine ----------------------------------------------------------------------------------


class Load(NamedTuple):
    """Cores that others used and that the hypervisor withheld, on average."""

    others: float
    steal: float


NO_LOAD = Load(0.0, 0.0)


class Watch:
    """Measures the load by others from its making on.

    What this process and its descendants use is their own, servers that they started included. Interrupts
    count for nobody: the kernel moves loopback packets in them.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = self._now()

    def load(self) -> Load:
        seconds = max(time.monotonic() - self._began, 1 / _TICKS)
        used, steal, own = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return Load(max(0.0, used - own) / seconds, steal / seconds)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds of CPU that all, that the hypervisor, that this process and its descendants have used."""
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        for pid in _descendants(os.getpid()):
            own += sum(int(ticks) for ticks in _stat(pid)[11:15]) / _TICKS
        all_processors = Path("/proc/stat").read_text().split("\n", 1)[0]
        user, nice, system, _, _, _, _, steal, *_ = map(int, all_processors.split()[1:])
        return (user + nice + system) / _TICKS, steal / _TICKS, own


def _descendants(pid: int) -> Iterator[int]:
    """The children of a process, their children and so on, as far as they still run."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    todo = list(children.get(pid, ()))
    while todo:
        yield (found := todo.pop())
        todo += children.get(found, ())


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; [] where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def about(folder: Path) -> dict[str, str]:
    """What a reader must know of the machine; ``folder`` is where files are written."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(errors="replace").splitlines()]
    above = [(len(mount), kind) for mount, kind in mounts if folder.resolve().is_relative_to(mount)]
    return {
        "cpu": f"{cpu}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": max(above, default=(0, "unknown"))[1],
    }


_TOUCH = """
import mmap, sys
with mmap.mmap(-1, int(sys.argv[1])) as memory:
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
"""


def touch_memory(size: int) -> None:
    """Writes to ``size`` bytes of memory, at most half of what is free, and gives them back."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            size = min(size, int(line.split()[1]) * 1024 // 2)
    if size > 0:
        subprocess.run([sys.executable, "-c", _TOUCH, str(size)], check=True)


def file_creation(folder: Path, files: int) -> float:
    """Mean microseconds to create a file in ``folder``, which is made: about 20 where all is well."""
    folder.mkdir()
    began = time.perf_counter()
    for number in range(files):
        os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
    return (time.perf_counter() - began) / files * 1e6


# -- the report -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measure:
    """Something measured once in each round. ``group`` is the table it stands in."""

    group: str
    name: str
    unit: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_value(self) -> dict[str, Any]:
        return asdict(self) | {"median": _rounded(self.median), "values": [_rounded(value) for value in self.values]}


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio or another figure that is to be judged: its goal is ``least`` or ``most``, if it has one."""

    name: str
    value: float
    unit: str = "x"
    least: float | None = None
    most: float | None = None

    @property
    def goal(self) -> str:
        """The goal in words, empty where there is none."""
        if self.least is not None:
            return f"at least {_number(self.least, self.unit)}"
        return f"at most {_number(self.most, self.unit)}" if self.most is not None else ""

    @property
    def met(self) -> bool:
        """Whether the goal is met; a figure without one meets it."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def as_value(self) -> dict[str, Any]:
        value = {"name": self.name, "value": _rounded(self.value), "unit": self.unit}
        return value | ({"goal": self.goal, "met": self.met} if self.goal else {})


@dataclass(slots=True)
class Report:
    """All that a benchmark has to say."""

    benchmark: str
    date: str
    machine: dict[str, str]
    arguments: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    measures: list[Measure] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    load: Load = NO_LOAD
    warnings: list[str] = field(default_factory=list)

    def add(self, group: str, name: str, unit: str, values: Sequence[float], note: str = "") -> Measure:
        measure = Measure(group, name, unit, tuple(values), note)
        self.measures.append(measure)
        return measure

    def rates(self, group: str, unit: str, amount: float, done: Mapping[str, Sequence[Finished]]) -> dict[str, Measure]:
        """Adds, for everyone who was run in turn, ``amount`` by the time of the whole process."""
        return {
            name: self.add(
                group, name, unit, [amount / one.wall for one in runs],
                f"{statistics.median(one.cpu for one in runs):.2f} s CPU",
            )
            for name, runs in done.items()
        }  # fmt: skip

    def judge(
        self, name: str, value: float, unit: str = "x", *, least: float | None = None, most: float | None = None
    ) -> None:
        self.figures.append(Figure(name, value, unit, least, most))

    def compare(
        self, one: Measure, other: Measure, name: str = "", *, least: float | None = None, most: float | None = None
    ) -> None:
        """Adds the ratio of two measures, and its goal.

        It is the median of the ratios of the rounds, in which the two ran one after the other: what others
        do to the machine in the meantime matters less to it than to the ratio of the medians.
        """
        ratio = statistics.median(a / b for a, b in zip(one.values, other.values, strict=True))
        self.judge(name or f"{one.group}: {one.name} / {other.name}", ratio, least=least, most=most)

    def as_value(self) -> dict[str, Any]:
        others, steal = map(_rounded, self.load)
        return {
            "benchmark": self.benchmark,
            "date": self.date,
            "machine": self.machine,
            "versions": self.versions,
            "arguments": self.arguments,
            "load": {"others_cores": others, "steal_cores": steal, "busy": self.load.others > BUSY},
            "warnings": self.warnings,
            "skipped": self.skipped,
            "measures": [measure.as_value() for measure in self.measures],
            "ratios": [figure.as_value() for figure in self.figures],
        }

    def as_text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"{self.benchmark}, {self.date}"
        yield "machine:  " + ", ".join(self.machine.values())
        yield "versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield f"load:     others used {self.load.others:.2f} cores on average, steal {self.load.steal:.2f}"
        for peer, why in self.skipped.items():
            yield f"skipped:  {peer}: {why}"
        for warning in self.warnings:
            yield f"WARNING:  {warning}"
        group = ""
        for one in self.measures:
            if one.group != group:
                group = one.group
                yield f"\n{group}"
            spread = f"({_number(min(one.values))} to {_number(max(one.values))})" if len(one.values) > 1 else ""
            yield f"  {one.name:34}{_number(one.median):>10} {one.unit:<12}{spread:<20} {one.note}".rstrip()
        if self.figures:
            yield "\nratios and goals"
        width = max((len(figure.name) for figure in self.figures), default=0) + 2
        for figure in self.figures:
            verdict = ("met" if figure.met else "MISSED") if figure.goal else ""
            yield f"  {figure.name:{width}}{_number(figure.value, figure.unit):>14}  {figure.goal:28}{verdict}".rstrip()


def in_turn(rounds: int, programs: Mapping[str, Callable[[int], Finished]]) -> dict[str, list[Finished]]:
    """Runs everyone once in every round, so that all of them feel what the machine does meanwhile.

    Each gets the number of the round, to work in a new folder: nothing is deleted before the benchmark's end.
    """
    done: dict[str, list[Finished]] = {name: [] for name in programs}
    for number in range(rounds):
        for name, program in programs.items():
            done[name].append(program(number))
    return done


def _number(value: float, unit: str = "") -> str:
    """A number with about three digits that count, and its unit."""
    digits = 0 if value == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}" + (f" {unit}" if unit not in ("", "x") else unit)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
