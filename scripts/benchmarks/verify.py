"""Verifying: archec verify compared with md5sum and then sha256sum over the same files, with a warm cache.

An archive of larger files, which an HTTP server of Python's standard library has, one of templates, and one of both.
archec reads every file, compares it with the journals and the catalogue, and writes down what it has checked; the
others read the files in the order in which they lie in their directories, in one process. A first round, which fills
the page cache, is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.fetch import write_papers
from benchmarks.runner import (
    ROOT,
    BenchmarkError,
    Finished,
    Report,
    archec,
    find,
    free_port,
    in_turn,
    run,
    running,
    version_of,
)

GOAL = 0.6
_SUMS = "md5sum, then sha256sum"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--templates", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1_000, help="larger files")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of a larger file, on average")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    if find("md5sum") is None or find("sha256sum") is None:
        raise BenchmarkError("there is no md5sum or no sha256sum")
    report.versions["md5sum and sha256sum"] = version_of("md5sum", "--version")
    tarball = folder / "RePEc-2019-01-01.tar.gz"
    run([sys.executable, ROOT / "scripts" / "make_data_set.py", str(arguments.templates), tarball], folder)
    for name in ("files", "both", "templates"):
        place = folder / name
        place.mkdir()
        if name == "templates":
            archec(place, "init", "--config", "config.yaml")
        else:
            with _served(place / "www", arguments.files, arguments.size) as urls:
                write_papers(place, urls)
                archec(place, "gather", "--json")
        if name != "files":
            archec(place, "gather", "--no-fetch", "-f", tarball)
        _part(arguments.rounds, place, report)


def _part(rounds: int, place: Path, report: Report) -> None:
    listed = place / "listed"
    count, size = _list(place / "archive", listed)

    def ours(number: int) -> Finished:
        done, value = archec(place, "verify", "--json")
        if value["files"] < count:
            raise BenchmarkError(f"archec verified {value['files']:,} of {count:,} files")
        return done

    sums = "xargs -a listed -d '\\n' -n 1000 md5sum; xargs -a listed -d '\\n' -n 1000 sha256sum"
    done = in_turn(rounds + 1, {"archec": ours, _SUMS: lambda _: run(["sh", "-ec", sums], place)})
    counted = {name: runs[1:] for name, runs in done.items()}
    group = f"{count:,} files, {size / 1e6:,.0f} MB"
    measures = report.rates(group, "MB/s", size / 1e6, counted)
    for name, runs in counted.items():
        report.add(group, name, "files/s", [count / one.wall for one in runs])
    report.compare(measures["archec"], measures[_SUMS], least=GOAL)


def _list(store: Path, listed: Path) -> tuple[int, int]:
    """Writes down the files of the obi store; how many there are, and their bytes."""
    count = size = 0
    with listed.open("w", encoding="utf-8") as names:
        for folder, _, found in os.walk(store):
            if Path(folder) not in (store, store / "runs"):
                for name in found:
                    names.write(f"{folder}/{name}\n")
                    count, size = count + 1, size + os.path.getsize(f"{folder}/{name}")
    return count, size


@contextmanager
def _served(folder: Path, files: int, size: int) -> Iterator[list[str]]:
    """The URLs of so many new files of about ``size`` random bytes."""
    folder.mkdir()
    draw = random.Random(1)
    for number in range(files):
        (folder / f"{number}.dat").write_bytes(draw.randbytes(draw.randrange(size // 2, size * 3 // 2)))
    port = free_port()
    with running([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], folder, port):
        yield [f"http://127.0.0.1:{port}/{number}.dat" for number in range(files)]
