"""Templates: a first run and an unchanged rerun of a synthetic data set, with the memory they take.

scripts/make_data_set.py makes RePEc-2019-01-01.tar.gz, `archec gather -f` replays it into a new archive
with an SQLite catalogue, then the same contents as the data set of a year later. Memory is the largest sum
of the proportional set sizes of all processes, looked at four times a second. For scale, `tar` unpacks the
same tarball: it writes the files as they are, keeps no history and waits for no disk.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.outcome import Measure, Report, at_least, at_most
from benchmarks.running import ROOT, BenchmarkError, Finished, archec, run

TOUCH = 1024
FIRST, RERUN, MEMORY, FLAT = 6_000, 30_000, 512, 1.15


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--templates", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--times", type=float, default=3, help="compare memory with so many times N (1: do not)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="the setting `workers`")


class _Pass(NamedTuple):
    """What one data set took."""

    templates: int
    first: Finished
    rerun: Finished
    report: dict[str, Any]
    again: dict[str, Any]
    tar: Finished


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """N templates for each round, then so many times N for the memory."""
    import sqlite3

    report.versions["SQLite"] = sqlite3.sqlite_version
    rounds = [_one(folder / str(number), arguments, report) for number in range(arguments.rounds)]
    _rates(report, rounds)
    if arguments.times == 1:
        return
    arguments.templates = int(arguments.templates * arguments.times)
    large = _one(folder / "large", arguments, report)
    _rates(report, [large])
    for name, small_peak, large_peak in (
        ("first run", max(one.first.peak for one in rounds), large.first.peak),
        ("rerun", max(one.rerun.peak for one in rounds), large.rerun.peak),
    ):
        of = f"peak memory, {large.templates:,} / {rounds[0].templates:,} templates, {name}"
        report.figures.append(at_most(of, large_peak / max(1, small_peak), FLAT, "x"))


def _one(folder: Path, arguments: argparse.Namespace, report: Report) -> _Pass:
    """A new archive, in a new folder; nothing is deleted before the end of the benchmark."""
    folder.mkdir()
    (folder / "unpacked").mkdir()
    early, late = (folder / f"RePEc-{year}-01-01.tar.gz" for year in (2019, 2020))
    run([sys.executable, ROOT / "scripts" / "make_data_set.py", str(arguments.templates), early], folder)
    os.link(early, late)
    (folder / "config.yaml").write_text(f"workers: {arguments.workers}\n", encoding="utf-8")
    archec(folder, "init", "--config", "config.yaml")
    first, told = archec(folder, "gather", "--no-fetch", "--json", "-f", early, memory=True)
    rerun, again = archec(folder, "gather", "--no-fetch", "--json", "-f", late, memory=True)
    if again["tobis"]["same"] != told["tobis"]["new"] or not told["tobis"]["new"]:
        raise BenchmarkError(f"the rerun is not unchanged: {told['tobis']}, then {again['tobis']}")
    tar = run(["tar", "-xzf", early, "-C", folder / "unpacked"], folder)
    report.loads += (first.load, rerun.load, tar.load)
    return _Pass(told["templates"]["total"], first, rerun, told, again, tar)


def _rates(report: Report, rounds: list[_Pass]) -> None:
    count = rounds[0].templates
    group = f"{count:,} templates, {rounds[0].report['files']['read']:,} files"
    runs = (("first run", FIRST, [(one.first, one.report) for one in rounds]),
            ("rerun", RERUN, [(one.rerun, one.again) for one in rounds]))  # fmt: skip
    rates: dict[str, Measure] = {}
    for name, goal, done in runs:
        cores = f"{sum(one.cpu for one, _ in done) / sum(one.wall for one, _ in done):.2f} cores"
        rate = report.add(group, name, "templates/s", [count / one.wall for one, _ in done], cores)
        rates[name] = rate
        told = [count / sum(value["seconds"].values()) for _, value in done]
        report.add(group, f"{name}, its own seconds", "templates/s", told)
        report.add(group, f"{name}, CPU", "µs/template", [one.cpu / count * 1e6 for one, _ in done])
        peak = report.add(group, f"{name}, peak memory", "MiB", [one.peak / 2**20 for one, _ in done])
        report.add(group, f"{name}, largest process", "MiB", [one.largest / 2**20 for one, _ in done])
        report.figures.append(at_least(f"{count:,} templates: {name}", rate.median, goal, "templates/s"))
        report.figures.append(at_most(f"{count:,} templates: {name}, memory", max(peak.values), MEMORY, "MiB"))
    stored = [one.report["tobis"]["new"] / one.first.wall for one in rounds]
    report.add(group, "first run, stored", "tobis/s", stored)
    plain = report.add(group, "tar -xzf, for scale", "templates/s", [count / one.tar.wall for one in rounds])
    report.compare(rates["first run"], plain, name=f"{count:,} templates: first run / tar -xzf")
