"""The machine: what it is, who else uses it, and the traps that it sets for measurements."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["BUSY", "Load", "Watch", "about", "cpu_seconds", "descendants", "file_creation", "touch_memory"]

BUSY = 0.2
"""Cores used by others, on average, from which on a measurement is not to be trusted."""
_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _STEAL = 0, 1, 2, 7


class Load(NamedTuple):
    """Cores that others used and that the hypervisor withheld, on average over ``seconds``."""

    others: float
    steal: float
    seconds: float

    @classmethod
    def mean(cls, loads: Iterable[Load]) -> Load:
        """The mean, each load weighing as long as it lasted."""
        listed = list(loads)
        total = sum(load.seconds for load in listed)
        if not total:
            return cls(0.0, 0.0, 0.0)
        others = sum(load.others * load.seconds for load in listed) / total
        return cls(others, sum(load.steal * load.seconds for load in listed) / total, total)


class Watch:
    """Measures the load from its making to :meth:`load`.

    What this process and its descendants use is their own, servers that they started included. Interrupts
    count for nobody: the kernel moves loopback packets in them.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = self._now()

    def load(self) -> Load:
        """The load so far."""
        seconds = max(time.monotonic() - self._began, 1 / _TICKS)
        used, steal, own = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return Load(max(0.0, used - own) / seconds, steal / seconds, seconds)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds of CPU that all, that the hypervisor, that this process and its descendants have used."""
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        for pid in descendants(os.getpid()):
            fields = _stat(pid)
            if fields:
                own += sum(int(field) for field in fields[11:15]) / _TICKS
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return (ticks[_USER] + ticks[_NICE] + ticks[_SYSTEM]) / _TICKS, ticks[_STEAL] / _TICKS, own


def descendants(pid: int) -> Iterator[int]:
    """The children of a process, their children and so on, as far as they still run."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
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


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a running process has used, all its threads; 0 where it is gone."""
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:13]) / _TICKS if fields else 0.0


def about(folder: Path) -> dict[str, str]:
    """What a reader must know of the machine; ``folder`` is where files are written."""
    return {
        "cpu": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": file_system(folder),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(folder: Path) -> str:
    """The type of the file system that a folder lies in."""
    best, kind = "", "unknown"
    path = str(folder.resolve())
    for line in Path("/proc/mounts").read_text(errors="replace").splitlines():
        _, mount, this = line.split()[:3]
        if len(mount) >= len(best) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, this
    return kind


_TOUCH = """
import mmap, sys
size = int(sys.argv[1])
with mmap.mmap(-1, size) as memory:
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
"""


def touch_memory(size: int) -> None:
    """Writes to ``size`` bytes of memory (at most half of what is free) and gives them back.

    The first touch of a page is slow on a virtual machine; whoever comes first would pay for it.
    """
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            size = min(size, int(line.split()[1]) * 1024 // 2)
    if size > 0:
        subprocess.run([sys.executable, "-c", _TOUCH, str(size)], check=True)


def file_creation(folder: Path, files: int) -> float:
    """Mean microseconds to create a file in ``folder``, which is made: about 20 where all is well.

    ext4 passes over the inodes that were freed in the last five minutes, one by one, for every file that is
    created: after a large deletion, by whomever, it takes up to a hundred times as long.
    """
    folder.mkdir()
    began = time.perf_counter()
    for number in range(files):
        os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
    return (time.perf_counter() - began) / files * 1e6
