"""Verifying: archec verify beside md5sum over the same files, with a warm cache.

An archive of templates, one of larger files, and one of both, each made by the store, the journal and the
catalogue that a run writes. archec reads every file, compares it with the journals and the catalogue, and
writes down what it has checked; md5sum reads the files in the order in which they lie in their directories,
in one process and in two. A first round, which fills the page cache, is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from pathlib import Path

from archec.catalogue.model import FobiNote, FobiVersion, TobiNote, TobiVersion, Visit
from archec.catalogue.open import open_catalogue
from archec.catalogue.records import FobiVisit, Record, RunEnd, RunStart, TobiChange
from archec.config import Config, as_yaml, load
from archec.gather.commit import Committer, Item
from archec.store.journal import JournalWriter
from archec.store.layout import create
from archec.store.temp import Stored
from archec.store.writer import Placement, Writer
from benchmarks.outcome import Measure, Report
from benchmarks.running import BenchmarkError, Finished, archec, find, found_version, run

TOUCH = 256
GOAL = 0.8
_RUN = 1352481230
_MD5SUM, _TWO = "md5sum", "md5sum, two processes"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--templates", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1_000, help="larger files")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of a larger file, on average")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Files, both, templates."""
    md5sum = find("md5sum")
    if md5sum is None:
        raise BenchmarkError("there is no md5sum")
    report.versions["md5sum"] = found_version([md5sum, "--version"])
    for name, templates, files in (
        ("files", 0, arguments.files),
        ("both", arguments.templates, arguments.files),
        ("templates", arguments.templates, 0),
    ):
        place = folder / name
        place.mkdir()
        config = _fill(place, templates=templates, files=files, size=arguments.size)
        _part(arguments.rounds, config, md5sum, report)


def _part(rounds: int, config: Config, md5sum: str, report: Report) -> None:
    listed = config.base / "files"
    count, size = _list(config, listed)
    one = ["xargs", "-a", listed, "-d", "\\n", "-n", "1000", md5sum]
    two = [*one[:-1], "-P2", md5sum]
    done: dict[str, list[Finished]] = {"archec": [], _MD5SUM: [], _TWO: []}
    for _ in range(rounds + 1):
        finished, value = archec(config.base, "verify", "--json")
        if value["files"] < count:
            raise BenchmarkError(f"archec verified {value['checked']:,} of {count:,} files")
        done["archec"].append(finished)
        done[_MD5SUM].append(run(one, config.base))
        done[_TWO].append(run(two, config.base))
    group = f"{count:,} files, {size / 1e6:,.0f} MB"
    measures: dict[str, Measure] = {}
    for name, runs in done.items():
        counted = runs[1:]
        report.loads.extend(each.load for each in counted)
        note = f"{statistics.median(each.cpu for each in counted):.2f} s CPU"
        measures[name] = report.add(group, name, "MB/s", [size / 1e6 / each.wall for each in counted], note)
        report.add(group, name, "files/s", [count / each.wall for each in counted])
    report.compare(measures["archec"], measures[_MD5SUM], GOAL)
    report.compare(measures["archec"], measures[_TWO])


def _list(config: Config, listed: Path) -> tuple[int, int]:
    """Writes down the files of the obi store; how many there are, and their bytes."""
    count = size = 0
    with listed.open("w", encoding="utf-8") as names:
        for folder, _, found in os.walk(config.store_path):
            if "/runs" in folder or folder == str(config.store_path):
                continue
            for name in found:
                path = os.path.join(folder, name)
                names.write(f"{path}\n")
                count, size = count + 1, size + os.path.getsize(path)
    return count, size


def _fill(folder: Path, *, templates: int, files: int, size: int) -> Config:
    """An archive of one run that noted so many templates and files of about ``size`` bytes."""
    (folder / "config.yaml").write_text(as_yaml({"min_free": 0}), encoding="utf-8")
    config = load(folder / "config.yaml", environ={})
    layout = create(config.store_path)
    config.work_path.mkdir(parents=True)
    rnd = random.Random(1)
    catalogue = open_catalogue(config.database, base=config.base, create=True)
    try:
        with JournalWriter(layout, _RUN) as journal, Writer(layout) as writer:
            committer = Committer(writer, journal, catalogue, run=_RUN)
            committer.add(Item(RunStart(_RUN, _RUN, "directory", str(folder), "{}", "1")))
            for number in range(templates):
                obi = f"RePEc:aaa:sssss{number // 50 % 1000:04}:{number:07}"
                text = f"Template-Type: ReDIF-Paper 1.0\nTitle: {rnd.random()}\nAbstract: {'a ' * rnd.randrange(700)}\n"
                stored = writer.put(_RUN, obi, text.encode())
                committer.add(_item(obi, stored, _tobi(obi, stored)))
            for number in range(files):
                obi = f"http://www.example.org/papers/{number:06}.pdf"
                stored = writer.put(_RUN, obi, rnd.randbytes(rnd.randrange(size // 2, size * 3 // 2)))
                committer.add(_item(obi, stored, _fobi(obi, stored)))
            committer.add(Item(RunEnd(_RUN, "done", "{}")))
            committer.commit()
            journal.finish()
    finally:
        catalogue.close()
    return config


def _item(obi: str, stored: Stored, record: Record) -> Item:
    return Item(record, Placement(stored.temp, _RUN, obi, stored.md5), fresh=obi.startswith("RePEc:"))


def _tobi(obi: str, stored: Stored) -> TobiChange:
    version = TobiVersion(stored.md5, stored.size, stored.md5, "ReDIF-Paper", "A title")
    note = TobiNote(_RUN, "new", "RePEc/aaa/sssss/papers.rdf", 1, "ascii")
    return TobiChange(obi, obi, {_RUN: stored.md5}, {_RUN: note}, version=version)


def _fobi(obi: str, stored: Stored) -> FobiVisit:
    version = FobiVersion(stored.md5, stored.size, None, "application/pdf")
    note = FobiNote(_RUN, "new", 200)
    return FobiVisit(obi, Visit(_RUN, "new", 200, checked=_RUN), _RUN + 86400, {_RUN: stored.md5}, version, note)
