#!/usr/bin/env python3
"""Measures ``archec verify`` against md5sum over the same files, with a warm cache.

    python scripts/bench_verify.py [--templates 100000] [--files 2000] [--size 1000000] [--rounds 3]

Makes an archive of templates and one of larger files, then lets both read it by turns, md5sum in one process and
in two. Prints wall time and CPU time of the best round, and the rate of archec as a share of md5sum's.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from archec.catalogue.model import FobiNote, FobiVersion, TobiNote, TobiVersion, Visit
from archec.catalogue.open import open_catalogue
from archec.catalogue.records import FobiVisit, Record, RunEnd, RunStart, TobiChange
from archec.config import Config, as_yaml, load
from archec.gather.commit import Committer, Item
from archec.store.journal import JournalWriter
from archec.store.layout import create
from archec.store.temp import Stored
from archec.store.writer import Placement, Writer

RUN = 1352481230


class Cost(NamedTuple):
    """Seconds: on the clock, and of processor time."""

    wall: float
    cpu: float


def fill(folder: Path, *, templates: int, files: int, size: int) -> Config:
    """An archive of one run that noted so many templates and files of about ``size`` bytes."""
    (folder / "config.yaml").write_text(as_yaml({"min_free": 0}), encoding="utf-8")
    config = load(folder / "config.yaml", environ={})
    layout = create(config.store_path)
    config.work_path.mkdir(parents=True)
    rnd = random.Random(1)
    catalogue = open_catalogue(config.database, base=config.base, create=True)
    try:
        with JournalWriter(layout, RUN) as journal, Writer(layout) as writer:
            committer = Committer(writer, journal, catalogue, run=RUN)
            committer.add(Item(RunStart(RUN, RUN, "directory", str(folder), "{}", "1")))
            for number in range(templates):
                obi = f"RePEc:aaa:sssss{number // 50 % 1000:04}:{number:07}"
                text = f"Template-Type: ReDIF-Paper 1.0\nTitle: {rnd.random()}\nAbstract: {'a ' * rnd.randrange(700)}\n"
                stored = writer.put(RUN, obi, text.encode())
                committer.add(item(obi, stored, tobi(obi, stored)))
            for number in range(files):
                obi = f"http://www.example.org/papers/{number:06}.pdf"
                stored = writer.put(RUN, obi, rnd.randbytes(rnd.randrange(size // 2, size * 3 // 2)))
                committer.add(item(obi, stored, fobi(obi, stored)))
            committer.add(Item(RunEnd(RUN, "done", "{}")))
            committer.commit()
            journal.finish()
    finally:
        catalogue.close()
    return config


def item(obi: str, stored: Stored, record: Record) -> Item:
    return Item(record, Placement(stored.temp, RUN, obi, stored.md5), fresh=obi.startswith("RePEc:"))


def tobi(obi: str, stored: Stored) -> TobiChange:
    version = TobiVersion(stored.md5, stored.size, stored.md5, "ReDIF-Paper", "A title")
    note = TobiNote(RUN, "new", "RePEc/aaa/sssss/papers.rdf", 1, "ascii")
    return TobiChange(obi, obi, {RUN: stored.md5}, {RUN: note}, version=version)


def fobi(obi: str, stored: Stored) -> FobiVisit:
    version = FobiVersion(stored.md5, stored.size, None, "application/pdf")
    note = FobiNote(RUN, "new", 200)
    return FobiVisit(obi, Visit(RUN, "new", 200, checked=RUN), RUN + 86400, {RUN: stored.md5}, version, note)


def cost(work: Callable[[], object]) -> Cost:
    """What it costs, with the processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    work()
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compare(config: Config, rounds: int) -> None:
    listed = config.base / "files"
    with listed.open("w", encoding="utf-8") as names:
        count = size = 0
        for folder, _, found in os.walk(config.store_path):
            for name in found:
                path = os.path.join(folder, name)
                if "/runs" not in folder and folder != str(config.store_path) and not os.path.islink(path):
                    names.write(f"{path}\n")
                    count, size = count + 1, size + os.path.getsize(path)
    md5sum = ["xargs", "-a", str(listed), "-d", "\\n", "-n", "1000"]
    verify = [sys.executable, "-m", "archec", "verify", "--config", str(config.base / "config.yaml")]
    commands = {"md5sum": [*md5sum, "md5sum"], "md5sum, two": [*md5sum, "-P2", "md5sum"], "archec verify": verify}
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            costs[name].append(cost(lambda command=command: run(command)))  # type: ignore[misc]
    print(f"{count:,} files, {size / 1e6:,.0f} MB")
    best = {name: Cost(min(c.wall for c in of[1:]), min(c.cpu for c in of[1:])) for name, of in costs.items()}
    for name, (wall, cpu) in best.items():
        rates = f"{size / wall / 1e6:7.0f} MB/s  {count / wall:9,.0f} files/s"
        print(f"  {name:<14} {wall:7.2f} s  {cpu:7.2f} s CPU  {rates}")
    for name in ("md5sum", "md5sum, two"):
        print(f"  archec verify: {best[name].wall / best['archec verify'].wall:.0%} of the rate of {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for templates, files in ((given.templates, 0), (0, given.files), (given.templates, given.files)):
        if templates or files:
            with tempfile.TemporaryDirectory(prefix="archec-bench-") as folder:
                compare(fill(Path(folder), templates=templates, files=files, size=given.size), given.rounds)


if __name__ == "__main__":
    main()
