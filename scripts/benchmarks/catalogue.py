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
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from archec.catalogue.documents import DueFobi
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Changes, Claim, Note, Obi, Position, Refipo, Version
from archec.digest import md5_hex, sha256_hex
from archec.history import History
from benchmarks.runner import ROOT, BenchmarkError, Report

FIRST = 1352481230
CHUNK = 2000
"""Documents of one batch."""
SAME = 1.2
"""How many times as long as a shallow page a deep one may take."""
_PAGE = 1000
_PLACES = 31
_READS = 5000
_ARCHIVE = 5000
"""Documents of one archive."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="documents; e.g. 1000000 10000000")
    parser.add_argument("--mongodb", metavar="URL|auto", help="an empty database, or auto: the tests' own server")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Every number of rows on SQLite, the fewest on MongoDB too."""
    if min(arguments.rows) < 10 * CHUNK:
        raise BenchmarkError(f"--rows must be {10 * CHUNK:,} or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    for rows in sorted(arguments.rows):
        place = folder / f"sqlite-{rows}"
        place.mkdir()
        _engine("SQLite", "sqlite:///bench.sqlite", place, rows, report)
        size = sum(file.stat().st_size for file in place.iterdir()) / 2**20
        report.add(f"SQLite, {rows:,} documents", "database", "MiB", [size])
    with mongodb(arguments.mongodb, folder, report) as url:
        if url is not None:
            _engine("MongoDB", url, folder, min(arguments.rows), report)


def _engine(name: str, url: str, folder: Path, rows: int, report: Report) -> None:
    group = f"{name}, {rows:,} documents"
    draw = random.Random(1)
    catalogue = open_catalogue(url, base=folder, create=True)
    try:
        if next(catalogue.scan(), None) is not None:
            raise BenchmarkError("this database holds a catalogue already: name an empty one")
        report.add(group, "upserts", "tobis/s", [_upserts(catalogue, rows)])
        for together in (1, 500):
            parts = [{handle(draw.randrange(rows)) for _ in range(together)} for _ in range(_READS // together)]
            began = time.perf_counter()
            found = sum(len(catalogue.obis("tobi", part)) for part in parts)
            report.add(group, f"reads of {together}", "tobis/s", [found / (time.perf_counter() - began)])
            if found != sum(map(len, parts)):
                raise BenchmarkError("documents are lost")

        def by_id(at: int) -> int:
            return sum(1 for _ in islice(catalogue.all("tobi", handle(at)), _PAGE))

        def by_stamp(at: int) -> int:
            return len(catalogue.changed("tobi", _stamp(at), handle(at), _PAGE))

        def by_due(at: int) -> int:
            return sum(1 for _ in islice(catalogue.due(0, DueFobi(0, _urls(at)[0])), _PAGE))

        for order, read in (("by id", by_id), ("by stamp", by_stamp), ("by due date", by_due)):
            pages(group, f"page of {_PAGE:,} {order}", _PAGE, read, {
                depth: [int(rows * (depth + draw.uniform(-0.02, 0.02))) for _ in range(_PLACES)] for depth in (0.1, 0.9)
            }, report)  # fmt: skip
    finally:
        catalogue.close()


def pages(
    group: str, name: str, size: int, read: Callable[[int], int], places: Mapping[float, list[int]], report: Report
) -> None:
    """Reads a page at places of two depths, turn by turn: milliseconds, and their ratio, which has a goal.

    ``read`` gives how many rows it got. The first two pages of each depth are read once more before.
    """
    times: dict[float, list[float]] = {depth: [] for depth in places}
    for turn in zip(*(at[:2] + at for at in places.values()), strict=True):
        for depth, at in zip(places, turn, strict=True):
            began = time.perf_counter()
            got = read(at)
            times[depth].append((time.perf_counter() - began) * 1000)
            if got != size:
                raise BenchmarkError(f"{name}: a page of {got} rows at {at}")
    shallow, deep = (report.add(group, f"{name} at {depth:.0%}", "ms", taken[2:]) for depth, taken in times.items())
    first, last = (f"{depth:.0%}" for depth in places)
    report.judge(f"{group}: {name}, at {last} / at {first}", deep.median / shallow.median, most=SAME)


def _upserts(catalogue: Catalogue, rows: int) -> float:
    seconds = 0.0
    for changes in chunks(rows):
        began = time.perf_counter()
        catalogue.write(changes)
        seconds += time.perf_counter() - began
    return rows / seconds


# -- documents in the shape and size of RePEc's: ids in ascending order, 1.3 files and one text each -------------


def handle(i: int) -> str:
    """The id of the i-th document."""
    return f"RePEc:a{i // _ARCHIVE:05d}:wpaper:{i % _ARCHIVE:06d}-x"


def _urls(i: int) -> list[str]:
    base = f"http://www.arch{i // _ARCHIVE:05d}.org/papers/wp{i % _ARCHIVE:06d}"
    return [f"{base}-{k}.pdf" for k in range(1 + (i % 10 < 3))]


def _stamp(i: int) -> int:
    return i // CHUNK // 50


def chunks(rows: int) -> Iterator[Changes]:
    """So many documents, as the batches that a run commits."""
    for start in range(0, rows, CHUNK):
        here = range(start, min(start + CHUNK, rows))
        tobis = [_tobi(i) for i in here]
        mentioned = [url for i in here for url in _urls(i)]
        yield Changes(Position(FIRST, start // CHUNK, start), obis=tobis, mentioned=mentioned)


def _tobi(i: int) -> Obi:
    state, text = sha256_hex(f"state {i}".encode()), md5_hex(f"text {i}".encode())
    refs = tuple(Refipo(url, "Application/pdf") for url in _urls(i))
    version = Version(state, text, 1500, text, "ReDIF-Paper 1.0", "The title of a paper, of some length", refs)
    path = f"RePEc/a{i // _ARCHIVE:05d}/wpaper/x.rdf"
    claims = (Claim(FIRST, FIRST + 1, state, path, i % _ARCHIVE, "utf-8"),)
    history, notes = History((FIRST,), (state,)), {FIRST: Note(FIRST + 1, "new")}
    return Obi(
        handle(i), "tobi", history, {state: version}, notes, handle(i), stamp=_stamp(i), claims=claims, place=path
    )


@contextmanager
def mongodb(named: str | None, folder: Path, report: Report) -> Iterator[str | None]:
    """The URL of a database that is dropped afterwards; None where there is none, which the report explains."""
    import pymongo

    sys.path.insert(0, str(ROOT / "tests"))
    from mongod import Mongod, NoMongod, binary

    server = None
    try:
        if named == "auto":
            server = Mongod(binary(), folder / "mongodb")
            server.start()
            named = server.url("archec_bench")
    except NoMongod as error:
        report.skipped["MongoDB"] = str(error)
        named = None
    else:
        if named is None:
            report.skipped["MongoDB"] = "not named (--mongodb URL|auto)"
    if named is None:
        yield None
        return
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(named)
    try:
        report.versions["MongoDB"] = str(client.server_info()["version"])
        report.versions["pymongo"] = pymongo.version
        yield named
        client.drop_database(client.get_default_database("archec").name)
    finally:
        client.close()
        if server is not None:
            server.kill()
