"""Ten years of nightly runs: what they cost every command, a run of its own, and a rebuild.

Some nightly runs over a directory of 2,300 archives take place as they would; in each a few templates change, and the
file of one archive cannot be read, another one each night. Their journals are then repeated, at later tists, of other
archives each time and in one chain, until there are as many as asked for. Memory is the peak of the process that
prints.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import sys
from pathlib import Path

from archec.store.journal import JournalWriter, read_batches
from archec.store.layout import JournalFile, Layout, journals, open_layout
from benchmarks.runner import BenchmarkError, Report, archec, run

SECONDS, MEMORY, OVERHEAD = 1.0, 100, 1.0
"""Goals: of a command that reads, in seconds and MiB, and of what a run takes longer than among few runs."""
_CHANGED = 5
_FEW = 10
"""Templates that change in a night; parts into which the journals are divided to see that a rebuild is linear."""
_COMMANDS = (
    "status", "metrics", "runs", "runs last", "history RePEc:a0000:sss:1", "lost", "changes --since 2100-01-01",
    "coverage", "report --json",
)  # fmt: skip
_CODE = re.compile(rb"\ba([0-9]{4})\b")
_MEASURED = """
import atexit, sys
def told():
    with open("/proc/self/status") as status, open({place!r}, "w") as out:
        out.write(next(line for line in status if line.startswith("VmHWM")).split()[1])
atexit.register(told)
from archec.cli.main import main
main()
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3650, help="nightly runs")
    parser.add_argument("--real", type=int, default=20, help="how many of them take place; the others are repetitions")
    parser.add_argument("--archives", type=int, default=2300, help="archives in the directory")
    parser.add_argument("--rounds", type=int, default=3, help="times that each command runs")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    if arguments.runs < arguments.real or arguments.real < 2 or arguments.archives < _CHANGED:
        raise BenchmarkError(f"--runs must be --real or more, which is 2 or more; --archives {_CHANGED} or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    place = folder / "archive"
    archec(folder, "init", place)
    group = f"{arguments.runs:,} runs over {arguments.archives:,} archives"
    for night in range(arguments.real):
        _write_data_set(place / "data" / "current", arguments.archives, night)
        archec(place, "gather", "--no-fetch")
    among_few = [archec(place, "gather", "--no-fetch")[0].wall for _ in range(arguments.rounds)]
    layout = open_layout(place / "archive")
    _repeat(layout, arguments.runs - len(journals(layout)), arguments.real, arguments.archives)
    _rebuilds(arguments, folder, place, group, report)
    for command in _COMMANDS:
        walls, peaks = zip(*(_measured(folder, place, *command.split()) for _ in range(arguments.rounds)), strict=True)
        measured = report.add(group, command, "s", walls, f"{max(peaks):.0f} MiB")
        report.judge(f"{command}: time", measured.median, "s", most=SECONDS)
        report.judge(f"{command}: memory", max(peaks), "MiB", most=MEMORY)
    few = report.add(group, f"a run, among {arguments.real} others", "s", among_few)
    for _ in range(2):  # the first finds what the repeated journals have changed, the second nothing
        archec(place, "gather", "--no-fetch")
    many = [archec(place, "gather", "--no-fetch")[0].wall for _ in range(arguments.rounds)]
    among_all = report.add(group, "a run, among all of them", "s", many)
    report.judge("a run's overhead", among_all.median - few.median, "s", most=OVERHEAD)


def _measured(folder: Path, place: Path, *arguments: str) -> tuple[float, float]:
    """Seconds and MiB that a command took."""
    peak = folder / "peak"
    done = run([sys.executable, "-c", _MEASURED.format(place=str(peak)), *arguments], place)
    return done.wall, int(peak.read_text()) / 1024


def _rebuilds(arguments: argparse.Namespace, folder: Path, place: Path, group: str, report: Report) -> None:
    """Rebuilds from the first tenth of the journals, from all, and for good."""
    layout = open_layout(place / "archive")
    part = folder / "part"
    archec(folder, "init", part)
    some = journals(layout)[: max(arguments.real, arguments.runs // _FEW)]
    for journal in some:
        os.link(journal.path, part / "archive" / "runs" / journal.path.name)
    first, _ = archec(part, "rebuild")
    whole, _ = archec(place, "rebuild", memory=True)
    count = len(journals(layout))
    report.add(group, f"rebuild of {len(some):,} runs", "s", [first.wall])
    report.add(group, f"rebuild of {count:,} runs", "s", [whole.wall], f"{whole.peak / 2**20:.0f} MiB")
    ratio = whole.wall / count / (first.wall / len(some))
    report.judge("rebuild: time of a run among all / among a tenth", ratio, most=1.5)


# -- the archive ----------------------------------------------------------------------------------


def _write_data_set(folder: Path, archives: int, night: int) -> None:
    for n in range(archives):
        code = f"a{n:04d}"
        directory = folder / "RePEc" / code / "sss"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "papers.rdf"
        if night and n not in _touched(archives, night) | _touched(archives, night - 1):
            continue
        if n == night % archives:
            path.write_text("<!DOCTYPE html><html><body>not today</body></html>")
            continue
        title = f"Title of night {night if n in _touched(archives, night) else 0}"
        path.write_text("".join(
            f"Template-Type: ReDIF-Paper 1.0\nTitle: {title} {k}\nHandle: RePEc:{code}:sss:{k}\n\n" for k in range(3)
        ))  # fmt: skip


def _touched(archives: int, night: int) -> set[int]:
    return {night % archives, *((night * _CHANGED + k) % archives for k in range(_CHANGED))}


def _repeat(layout: Layout, count: int, cycle: int, archives: int) -> None:
    """Adds journals after the last one: those of the last ``cycle`` runs, again and again, at later tists and each time
    of other archives."""
    models = journals(layout)[-cycle:]
    head = [batch.sha256 for batch in read_batches(models[-1].path)][-1]
    tist = models[-1].tist
    for n in range(count):
        tist += 1
        cycles, model = divmod(n, len(models))
        shift = (cycles + 1) * cycle * _CHANGED
        head = _repeated(layout, models[model], tist, head, shift, archives)


def _repeated(layout: Layout, model: JournalFile, tist: int, head: str, shift: int, archives: int) -> str:
    """Writes a journal like another at a later tist, of the archives that come ``shift`` later; the new head."""
    old = re.compile(rb"(?<![0-9a-f])%d(?![0-9a-f])" % model.tist)

    def repeated(line: bytes) -> bytes:
        return _CODE.sub(
            lambda code: b"a%04d" % ((int(code[1]) + shift) % archives), old.sub(str(tist).encode(), line)
        )

    with JournalWriter(layout, tist, head=head) as journal:
        for batch in read_batches(model.path):
            journal.append([repeated(line) for line in batch.lines], tist)
        journal.finish()
        return journal.head
