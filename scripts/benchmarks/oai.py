"""OAI-PMH: what a page of 100 records costs at the beginning of a list and at its end.

Pages of the index behind ListRecords, at the first record and at 99 % of ten million items on SQLite and of a million
on MongoDB, of everything and of a set, at 61 places around each depth, turn by turn. What follows, reading and writing
the records of a page, is the same at any depth. MongoDB is measured where --mongodb names an empty database, or says
`auto`: the server of the tests then.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import time
from pathlib import Path

from archec.oai.index import Index, IndexEntry, ListQuery
from archec.oai.repository import open_index
from benchmarks.catalogue import handle, mongodb, pages
from benchmarks.runner import BenchmarkError, Report

_FIRST = 1_700_000_000
_SETS = ("archive:bmk:wpaper", "type:paper")
_PAGE = 100
_PLACES = 61
_CHUNK = 10_000
_FEWEST = 20_000


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000_000, help="items of the index on SQLite")
    parser.add_argument("--mongodb-rows", type=int, default=1_000_000, help="items of the index on MongoDB")
    parser.add_argument("--mongodb", metavar="URL|auto", help="an empty database, or auto: the tests' own server")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    if min(arguments.rows, arguments.mongodb_rows) < _FEWEST:
        raise BenchmarkError(f"--rows and --mongodb-rows must be {_FEWEST:,} or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    _depth("SQLite", "sqlite:///", arguments.rows, folder, report)
    with mongodb(arguments.mongodb, folder, report) as url:
        if url is not None:
            _depth("MongoDB", url, arguments.mongodb_rows, folder, report)


def _depth(engine: str, url: str, rows: int, folder: Path, report: Report) -> None:
    group = f"{engine}, {rows:,} items"
    draw = random.Random(1)
    index = open_index(url, folder / "oai.sqlite")
    try:
        if index.earliest() is not None:
            raise BenchmarkError("this database holds an index already: name an empty one")
        began = time.perf_counter()
        _fill(index, rows)
        report.add(group, "making the index", "items/s", [rows / (time.perf_counter() - began)])
        for name, set_ in (("page of 100", ""), ("page of 100 of a set", "type:paper")):
            query = ListQuery(("tobi",), set_, 0, _FIRST + rows)

            def read(at: int, query: ListQuery = query) -> int:
                row = index.find(handle(at))
                if row is None:
                    raise BenchmarkError(f"record {at} is lost")
                return len(index.page(query, row.key, _PAGE))

            pages(group, name, _PAGE, read, {
                depth: [int(rows * (depth + draw.uniform(0, 0.005))) for _ in range(_PLACES)] for depth in (0, 0.99)
            }, report)  # fmt: skip
    finally:
        index.close()


def _fill(index: Index, rows: int) -> None:
    """Items of which one of fifty is deleted, 500 of a second."""
    for start in range(0, rows, _CHUNK):
        part = ((n, handle(n)) for n in range(start, min(start + _CHUNK, rows)))
        entries = [IndexEntry("tobi", name, name, _FIRST + n // 500, n, n % 50 == 49, _SETS) for n, name in part]
        index.publish(entries, index.state(), time.time)
        if start % (rows // 10) < _CHUNK:
            print(f"index: {start:,} of {rows:,} items", file=sys.stderr, flush=True)
    index.publish([], index.state()._replace(ready=True), time.time)
