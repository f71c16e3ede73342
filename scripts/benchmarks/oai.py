"""OAI-PMH: what a page of 100 records costs at any depth, and archec beside pyoai and oai-repo.

Depth: ListRecords at the first record and at 99 % of an index of ten million items, SQLite, and of a million on
MongoDB: everything between the arguments of a request and its answer, without HTTP, with records that are made as
they are asked for. Turn by turn at places around each depth.

Side by side: everybody serves the same 100,000 records from memory over HTTP, in pages of 100; "archec, an archive"
serves them from a real archive: catalogue, files, templates that are parsed. Server CPU per page is that of a walk
over the whole list by a client that parses nothing; then Sickle harvests it all.

pyoai and oai-repo live in an environment of their own with uvicorn: name its Python with --peers (or
ARCHEC_BENCH_OAI_PEERS), or let --make-peers DIR make one with pip. MongoDB is measured where --mongodb names an
empty database, or says `auto`: the server of the tests then.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from archec.oai.index import Index, open_index
from archec.oai.provider import answer
from archec.oai.repository import Repository
from archec.oai.request import parse_pairs
from archec.oai.token import Token
from benchmarks.catalogue import mongodb
from benchmarks.machine import Watch
from benchmarks.oai_archec import fill, repository
from benchmarks.oai_records import handle, stamp
from benchmarks.oai_servers import PAGE, Site, archive, serving, sickle, walk
from benchmarks.outcome import Measure, Report, at_most
from benchmarks.running import BenchmarkError, run

TOUCH = 1024
PARTS = ("depth", "peers")
PACKAGES = ("pyoai", "oai-repo", "uvicorn", "httptools", "uvloop", "setuptools<81")
MODULES = {"pyoai": "oaipmh.server", "oai-repo": "oai_repo"}
_PLACES = 61
_FEWEST = 20_000
_SPREAD = 0.005
"""Pages are taken from this share of all records around a depth."""


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=10_000_000, help="items of the index on SQLite")
    parser.add_argument("--mongodb-rows", type=int, default=1_000_000, help="items of the index on MongoDB")
    parser.add_argument("--mongodb", metavar="URL|auto", help="an empty database, or auto: the tests' own server")
    parser.add_argument("--records", type=int, default=100_000, help="records that everybody serves")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", default=os.environ.get("ARCHEC_BENCH_OAI_PEERS"))
    parser.add_argument("--make-peers", type=Path, metavar="DIR", help="make an environment with the peers there")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Runs the parts that were asked for."""
    report.versions["SQLite"] = sqlite3.sqlite_version
    if min(arguments.rows, arguments.mongodb_rows) < _FEWEST or arguments.records < PAGE:
        raise BenchmarkError(f"--rows and --mongodb-rows must be {_FEWEST:,} or more, --records {PAGE}")
    if "depth" in arguments.parts:
        _depth("SQLite", "sqlite:///", arguments.rows, folder, report)
        if arguments.mongodb is None:
            report.skipped["MongoDB"] = "not named (--mongodb URL|auto)"
        else:
            with mongodb(arguments.mongodb, folder, report) as url:
                if url is not None:
                    _depth("MongoDB", url, arguments.mongodb_rows, folder, report)
    if "peers" in arguments.parts:
        _peers(arguments, folder, report)


# -- depth ----------------------------------------------------------------------------------------


def _depth(engine: str, url: str, rows: int, folder: Path, report: Report) -> None:
    group = f"{engine}, {rows:,} items"
    watch = Watch()
    index = open_index(url, folder / "oai-depth.sqlite")
    try:
        if index.earliest() is not None:
            raise BenchmarkError("this database holds an index already: name an empty one")
        began = time.perf_counter()
        fill(index, rows, _teller(rows))
        report.add(group, "making the index", "items/s", [rows / (time.perf_counter() - began)])
        _pages(group, repository(folder, index), index, rows, report)
    finally:
        index.close()
    report.loads.append(watch.load())


def _pages(group: str, repo: Repository, index: Index, rows: int, report: Report) -> None:
    """A page of everything and one of a set, at the beginning and at 99 %, turn by turn."""
    draw = random.Random(1)
    generation = index.state().generation
    for name, set_ in (("page of 100", ""), ("page of 100 of a set", "type:paper")):
        times: dict[float, list[float]] = {0.0: [], 0.99: []}
        for _ in range(_PLACES + 3):
            for depth, taken in times.items():
                at = int(rows * (depth + draw.uniform(0, _SPREAD)))
                taken.append(_page(repo, index, generation, set_, at, rows))
        kept = [report.add(group, f"{name} at {depth:.0%}", "ms", taken[3:]) for depth, taken in times.items()]
        ratio = statistics.median(kept[1].values) / statistics.median(kept[0].values)
        report.figures.append(at_most(f"{group}: {name}, at 99 % / at 0", ratio, 1.2, "x"))


def _page(repo: Repository, index: Index, generation: str, set_: str, at: int, rows: int) -> float:
    """Milliseconds of one page behind record ``at``."""
    place = index.find(handle(at))
    if place is None:
        raise BenchmarkError(f"record {at} is lost")
    now = time.time()
    token = Token(
        "ListRecords", "oai_dc", set_, 0, int(now), stamp(at), place.place.key, rows, at + 1, int(now) + 3600,
        generation,
    )  # fmt: skip
    pairs = parse_pairs(urlencode({"verb": "ListRecords", "resumptionToken": repo.tokens.write(token)}).encode())
    began = time.perf_counter()
    found = answer(repo, pairs, "http://bench.example.org/oai", now)
    taken = time.perf_counter() - began
    if found.code or found.body.count(b"<record>") != PAGE:
        raise BenchmarkError(f"a page at {at} has {found.body.count(b'<record>')} records {found.code}")
    return taken * 1000


def _teller(rows: int) -> Callable[[int], None]:
    last = [0]

    def told(done: int) -> None:
        if done * 10 // rows > last[0]:
            last[0] = done * 10 // rows
            print(f"index: {done:,} of {rows:,} items", file=sys.stderr, flush=True)

    return told


# -- side by side ---------------------------------------------------------------------------------


def _peers(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    count = arguments.records
    place, held = folder / "memory", folder / "archive"
    place.mkdir()
    archive(held, count)
    ours = [sys.executable, "-m", "benchmarks.oai_archec", str(count), place, "{port}"]
    real = [sys.executable, "-m", "archec", "serve", "--port", "{port}", "--config", "config.yaml"]
    with ExitStack() as stack:
        sites = [
            stack.enter_context(serving("archec", ours, place)),
            stack.enter_context(serving("archec, an archive", real, held)),
        ]
        for name, peer in _environment(arguments, folder, report).items():
            command = [peer, "-W", "ignore", "-m", "benchmarks.oai_peer", name, str(count), "{port}"]
            sites.append(stack.enter_context(serving(name, command, place)))
        _side_by_side(arguments, folder, report, sites)


def _environment(arguments: argparse.Namespace, folder: Path, report: Report) -> dict[str, Path]:
    """The Python for each peer that is there."""
    python = arguments.peers
    if arguments.make_peers is not None:
        python = arguments.make_peers / "bin" / "python"
        if not python.exists():
            run([sys.executable, "-m", "venv", arguments.make_peers], folder)
            # Its own environment: pip may need the proxies that everything else here must not have.
            run([python, "-m", "pip", "install", "--quiet", *PACKAGES], folder, more=dict(os.environ, PYTHONPATH=""))
    found: dict[str, Path] = {}
    for name, module in MODULES.items():
        if python is None:
            report.skipped[name] = "not named (--peers PYTHON or --make-peers DIR)"
            continue
        shim = "import sys, types; m = types.ModuleType('cgi'); m.parse_qs = None; sys.modules['cgi'] = m; "
        asked = f"import {module}, uvicorn; from importlib.metadata import version; print(version('{name}'))"
        try:
            report.versions[name] = run([python, "-W", "ignore", "-c", shim + asked], folder).output.strip()
            found[name] = python
        except BenchmarkError as error:
            report.skipped[name] = str(error).splitlines()[-1]
    return found


def _side_by_side(arguments: argparse.Namespace, folder: Path, report: Report, sites: list[Site]) -> None:
    """A walk and a harvest of each, in turn, in every round."""
    group = f"{arguments.records:,} records, pages of {PAGE}"
    cpu: dict[str, list[float]] = {site.name: [] for site in sites}
    rate: dict[str, list[float]] = {site.name: [] for site in sites}
    harvest: dict[str, list[float]] = {site.name: [] for site in sites}
    notes: dict[str, str] = {}
    for number in range(arguments.rounds + 1):
        for site in sites:
            watch = Watch()
            done = walk(site)
            report.loads.append(watch.load())
            if number == 0:  # the first walk of each only warms it up
                notes[site.name] = f"{done.size / done.pages / 1000:.0f} kB a page"
                _all_there(site, done.records, arguments.records)
                continue
            cpu[site.name].append(done.cpu / done.pages * 1000)
            rate[site.name].append(done.pages / done.wall)
            watch = Watch()
            seconds, got = sickle(site, folder)
            report.loads.append(watch.load())
            _all_there(site, got, arguments.records)
            harvest[site.name].append(seconds)
    measures = {
        name: report.add(group, f"{name}, server CPU", "ms/page", values, notes[name]) for name, values in cpu.items()
    }
    for name, values in rate.items():
        report.add(group, f"{name}, walk", "pages/s", values)
    harvests = {name: report.add(group, f"{name}, Sickle", "s", values) for name, values in harvest.items()}
    ours = sites[0].name
    for name in harvests:
        if name in MODULES:
            _at_most(report, measures[ours], measures[name], f"server CPU: archec / {name}", 0.5)
            _at_most(report, harvests[ours], harvests[name], f"Sickle: archec / {name}", 1.0)
    report.figures.append(at_most("archec, an archive: server CPU", measures[sites[1].name].median, 10, "ms/page"))


def _at_most(report: Report, one: Measure, other: Measure, name: str, limit: float) -> None:
    ratio = statistics.median(a / b for a, b in zip(one.values, other.values, strict=True))
    report.figures.append(at_most(name, ratio, limit, "x"))


def _all_there(site: Site, got: int, wanted: int) -> None:
    """All records, but for the deleted ones of oai-repo, which has no way to send them."""
    from benchmarks.oai_records import is_deleted

    if site.name == "oai-repo":
        wanted -= sum(map(is_deleted, range(wanted)))
    if got != wanted:
        raise BenchmarkError(f"{site.name} gave {got} records of {wanted}")
