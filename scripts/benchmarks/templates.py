"""Templates: a first run and an unchanged rerun of a synthetic data set, with the memory they take.

scripts/make_data_set.py makes RePEc-2019-01-01.tar.gz, `archec gather -f` replays it into a new archive
with an SQLite catalogue, then the same contents as the data set of a year later. Memory is the largest sum
of the proportional set sizes of all processes, looked at four times a second. For scale, `tar` unpacks the
same tarball: it writes the files as they are, keeps no history and waits for no disk.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from pathlib import Path

from benchmarks.runner import ROOT, BenchmarkError, Finished, Report, archec, run

GOALS = {"first run": 5_000, "rerun": 25_000}
MEMORY, FLAT = 512, 1.15


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--templates", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--times", type=float, default=3, help="compare memory with so many times N (1: do not)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="the setting `workers`")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """N templates for each round, then so many times N for the memory."""
    report.versions["SQLite"] = sqlite3.sqlite_version
    count = arguments.templates
    rounds = [_one(folder / str(number), count, arguments.workers) for number in range(arguments.rounds)]
    _rates(report, count, rounds)
    if arguments.times != 1:
        more = int(count * arguments.times)
        large = _one(folder / "large", more, arguments.workers)
        _rates(report, more, [large])
        for name in GOALS:
            growth = large[name].peak / max(1, *(one[name].peak for one in rounds))
            report.judge(f"peak memory, {more:,} / {count:,} templates, {name}", growth, most=FLAT)


def _one(folder: Path, templates: int, workers: int) -> dict[str, Finished]:
    (folder / "unpacked").mkdir(parents=True)
    early, late = (folder / f"RePEc-{year}-01-01.tar.gz" for year in (2019, 2020))
    run([sys.executable, ROOT / "scripts" / "make_data_set.py", str(templates), early], folder)
    os.link(early, late)
    (folder / "config.yaml").write_text(f"workers: {workers}\n", encoding="utf-8")
    archec(folder, "init", "--config", "config.yaml")
    first, value = archec(folder, "gather", "--no-fetch", "--json", "-f", early, memory=True)
    rerun, again = archec(folder, "gather", "--no-fetch", "--json", "-f", late, memory=True)
    if again["tobis"]["same"] != value["tobis"]["new"] or value["templates"]["total"] != templates:
        raise BenchmarkError(f"the rerun is not unchanged: {value['tobis']}, then {again['tobis']}")
    tar = run(["tar", "-xzf", early, "-C", folder / "unpacked"], folder)
    return {"first run": first, "rerun": rerun, "tar -xzf, for scale": tar}


def _rates(report: Report, count: int, rounds: list[dict[str, Finished]]) -> None:
    group = f"{count:,} templates"
    done = {name: [one[name] for one in rounds] for name in rounds[0]}
    rates = report.rates(group, "templates/s", count, done)
    for name, goal in GOALS.items():
        report.add(group, f"{name}, CPU", "µs/template", [one.cpu / count * 1e6 for one in done[name]])
        peak = report.add(group, f"{name}, peak memory", "MiB", [one.peak / 2**20 for one in done[name]])
        report.judge(f"{group}: {name}", rates[name].median, "templates/s", least=goal)
        report.judge(f"{group}: {name}, memory", max(peak.values), "MiB", most=MEMORY)
