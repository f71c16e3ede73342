"""The catalogue: upserts, point reads, and pages at 10 % and at 90 % of the rows, on SQLite and MongoDB.

Rates are of the clock, with the time to make the documents left out. A page has 1,000 documents; its time
is the median of 31 places around each depth, turn by turn, and is to be the same at any depth. MongoDB is
measured with the fewest --rows and only where --mongodb names an empty database, or says `auto`: the server
of the tests then.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DueFobi
from archec.catalogue.open import open_catalogue
from benchmarks.catalogue_documents import FIRST, LOT, SECOND, handle, lots, stamp_of, urls
from benchmarks.machine import Watch
from benchmarks.outcome import Measure, Report, at_most
from benchmarks.running import ROOT, BenchmarkError

TOUCH = 512
PAGE = 1000
PLACES = 31
DEPTHS = (0.1, 0.9)
_READS, _TOGETHER = 5000, 500


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="documents; e.g. 1000000 10000000")
    parser.add_argument("--mongodb", metavar="URL|auto", help="an empty database, or auto: the tests' own server")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Every number of rows on SQLite, the fewest on MongoDB too, with the ratio between the two."""
    if min(arguments.rows) < 10 * LOT:
        raise BenchmarkError(f"--rows must be {10 * LOT:,} or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    rows = sorted(arguments.rows)
    first: dict[str, Measure] = {}
    for count in rows:
        place = folder / f"sqlite-{count}"
        place.mkdir()
        watch = Watch()
        catalogue = open_catalogue("sqlite:///bench.sqlite", base=place, create=True)
        try:
            measures = _measure(catalogue, f"SQLite, {count:,} documents", count, report)
        finally:
            catalogue.close()
        report.loads.append(watch.load())
        first = first or measures
        size = sum(file.stat().st_size for file in place.iterdir()) / 2**20
        report.add(f"SQLite, {count:,} documents", "database", "MiB", [size])
    if arguments.mongodb is None:
        report.skipped["MongoDB"] = "not named (--mongodb URL|auto)"
        return
    with mongodb(arguments.mongodb, folder, report) as url:
        if url is None:
            return
        watch = Watch()
        catalogue = open_catalogue(url, base=folder, create=True)
        try:
            if next(catalogue.scan_tobis(), None) is not None:
                raise BenchmarkError("this database holds a catalogue already: name an empty one")
            other = _measure(catalogue, f"MongoDB, {rows[0]:,} documents", rows[0], report)
        finally:
            catalogue.close()
        report.loads.append(watch.load())
    for name, one in first.items():
        report.compare(one, other[name], name=f"SQLite / MongoDB: {name}, {one.unit}")


class _Clock:
    """Sums the time of the blocks it measures."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


def _measure(catalogue: Catalogue, group: str, rows: int, report: Report) -> dict[str, Measure]:
    draw = random.Random(1)
    some = range(rows // 2, rows // 2 + max(LOT, rows // 10))
    measures = [report.add(group, "first upsert", "tobis/s", [_upserts(catalogue, range(rows), FIRST)])]
    measures += _point_reads(catalogue, group, rows, draw, report)

    def by_id(at: int) -> int:
        return sum(1 for _ in islice(catalogue.all_tobis(handle(at)), PAGE))

    def by_stamp(at: int) -> int:
        return len(catalogue.changed_tobis(stamp_of(at), handle(at), PAGE))

    def by_due(at: int) -> int:
        return sum(1 for _ in islice(catalogue.due(0, DueFobi(0, urls(at)[0])), PAGE))

    for name, read in (("by id", by_id), ("by stamp", by_stamp), ("by due date", by_due)):
        measures += _pages(group, f"page of {PAGE:,} {name}", rows, draw, read, report)
    clock, count = _Clock(), 0
    with clock.running():
        for _ in catalogue.scan_tobis():
            count += 1
    measures.append(report.add(group, "scan for a merge", "tobis/s", [count / clock.seconds]))
    measures.append(report.add(group, "second upsert", "tobis/s", [_upserts(catalogue, some, FIRST, SECOND)]))
    return {measure.name: measure for measure in measures}


def _upserts(catalogue: Catalogue, rows: range, *tists: int) -> float:
    clock = _Clock()
    for changes in lots(rows, 0, *tists):
        with clock.running():
            catalogue.write(changes)
    return len(rows) / clock.seconds


def _point_reads(catalogue: Catalogue, group: str, rows: int, draw: random.Random, report: Report) -> list[Measure]:
    ids = [handle(draw.randrange(rows)) for _ in range(_READS)]
    one, many = _Clock(), _Clock()
    with one.running():
        alone = sum(len(catalogue.tobis((obi,))) for obi in ids)
    with many.running():
        parts = [set(ids[i : i + _TOGETHER]) for i in range(0, len(ids), _TOGETHER)]
        together = sum(len(catalogue.tobis(part)) for part in parts)
    if alone != len(ids) or together != sum(map(len, parts)):
        raise BenchmarkError("documents are lost")
    return [
        report.add(group, "point reads", "tobis/s", [len(ids) / one.seconds]),
        report.add(group, f"reads of {_TOGETHER}", "tobis/s", [len(ids) / many.seconds]),
    ]


def _pages(
    group: str, name: str, rows: int, draw: random.Random, read: Callable[[int], int], report: Report
) -> list[Measure]:
    """A page at each depth, turn by turn; their ratio is a figure with a goal."""
    times: dict[float, list[float]] = {depth: [] for depth in DEPTHS}
    for _ in range(PLACES + 2):
        for depth, taken in times.items():
            at = int(rows * (depth + draw.uniform(-0.02, 0.02)))
            clock = _Clock()
            with clock.running():
                got = read(at)
            if got != PAGE:
                raise BenchmarkError(f"{name}: a page of {got} documents at {at}")
            taken.append(clock.seconds * 1000)
    measures = [report.add(group, f"{name} at {depth:.0%}", "ms", taken[2:]) for depth, taken in times.items()]
    shallow, deep = (statistics.median(taken[2:]) for taken in times.values())
    report.figures.append(at_most(f"{group}: {name}, at 90 % / at 10 %", deep / shallow, 1.2, "x"))
    return measures


@contextmanager
def mongodb(named: str, folder: Path, report: Report) -> Iterator[str | None]:
    """The URL of a database that is dropped afterwards; None where there is none, which the report explains."""
    import pymongo

    sys.path.insert(0, str(ROOT / "tests"))
    from mongod import Mongod, NoMongod, binary

    server, url = None, named
    try:
        if named == "auto":
            server = Mongod(binary(), folder / "mongodb")
            server.start()
            url = server.url("archec_bench")
    except NoMongod as error:
        report.skipped["MongoDB"] = str(error)
        yield None
        return
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(url)
    try:
        report.versions["MongoDB"] = str(client.server_info()["version"])
        report.versions["pymongo"] = pymongo.version
        yield url
        client.drop_database(client.get_default_database("archec").name)
    finally:
        client.close()
        if server is not None:
            server.kill()
