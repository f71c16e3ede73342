"""A nightly run over a directory that has not changed, compared with "rsync -an" between it and an identical copy.

The directory has FILES files with a template each, in archives of 1,000 files and series of 100. Two
runs come first, one that reads everything and one that finds nothing new. Memory is measured for a tenth of the files,
too: it must not grow with them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.runner import BenchmarkError, Finished, Report, archec, find, in_turn, run, version_of

GOAL = 1.0
FLAT = 0.8
_RSYNC = "rsync -an"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=200_000)


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    if find("rsync") is None:
        raise BenchmarkError("there is no rsync")
    report.versions["rsync"] = version_of("rsync", "--version")
    group = f"{arguments.files:,} files"
    big = _part(folder / "big", arguments.files, arguments.rounds)
    measures = report.rates(group, "files/s", arguments.files, big)
    report.compare(measures["archec"], measures[_RSYNC], least=GOAL)
    peaks = [one.peak / 1e6 for one in big["archec"]]
    small = [one.peak / 1e6 for one in _part(folder / "small", arguments.files // 10, arguments.rounds)["archec"]]
    few = report.add("memory", f"{arguments.files // 10:,} files", "MB", small)
    report.compare(few, report.add("memory", group, "MB", peaks), "few / many files, MB", least=FLAT)


def _part(place: Path, files: int, rounds: int) -> dict[str, list[Finished]]:
    place.mkdir()
    archec(place, "init", "--config", "config.yaml")
    root = place / "data" / "current" / "RePEc"
    for number in range(files):
        archive, series = f"a{number // 1000:05}", f"s{number // 100:05}"
        target = root / archive / series / f"{number}.rdf"
        if number % 100 == 0:
            target.parent.mkdir(parents=True)
        handle = f"RePEc:{archive}:{series}:{number}"
        target.write_text(f"Template-Type: ReDIF-Paper 1.0\nTitle: Paper {number}\nAuthor-Name: A\nHandle: {handle}\n")
    run(["cp", "-a", "data/current", "copy"], place)
    time.sleep(3)  # files with younger times are not remembered
    for _ in range(2):
        archec(place, "gather", "--no-fetch", "--json")

    def ours(number: int) -> Finished:
        done, value = archec(place, "gather", "--no-fetch", "--json", memory=True)
        if value["tobis"]["same"] != files:
            raise BenchmarkError(f"archec found {value['tobis']}")
        return done

    return in_turn(rounds, {"archec": ours, _RSYNC: lambda _: run(["rsync", "-an", "data/current/", "copy/"], place)})
