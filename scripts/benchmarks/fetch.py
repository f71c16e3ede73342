"""Fetching: archec beside wget, aria2c and Scrapy, from nginx on twenty loopback addresses.

Many small files, some large ones, and many hosts that are slow to answer. archec's time is that of the
whole process of `archec gather` (reading the data set again, planning, fetching, hashing, syncing, journal,
catalogue, report) in an archive that knows the templates already; "files phase" is the time that its own
report gives for the files. The others only write files. All run in turn in every round, each into a new folder.

nginx, wget and aria2c are looked for on PATH. Scrapy lives in an environment of its own: name its Python
with --scrapy (or ARCHEC_BENCH_SCRAPY), or let --make-scrapy DIR make one with pip. What is not there is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.fetch_clients import Workload, archec_gather, aria2c, scrapy, tools, wget
from benchmarks.fetch_servers import Slow, nginx
from benchmarks.machine import Watch
from benchmarks.outcome import Measure, Report
from benchmarks.running import BenchmarkError, Finished, find, run

TOUCH = 2048
CONCURRENCY = 64
HOSTS = 20
PARTS = ("small", "large", "slow")
Client = Callable[[Workload, Path], Finished]


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--files", type=int, default=5000, help="small files")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a small file")
    parser.add_argument("--large-files", type=int, default=200)
    parser.add_argument("--large-size", type=int, default=2_000_000)
    parser.add_argument("--slow-hosts", type=int, default=200)
    parser.add_argument("--slow-files", type=int, default=16, help="files of each slow host")
    parser.add_argument("--latency", type=float, default=0.2, metavar="SECONDS", help="of a slow host")
    parser.add_argument("--scrapy", type=Path, metavar="PYTHON", default=os.environ.get("ARCHEC_BENCH_SCRAPY"))
    parser.add_argument("--make-scrapy", type=Path, metavar="DIR", help="make an environment with Scrapy there")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Runs the parts that were asked for."""
    report.versions["uvloop"] = _uvloop()
    if {"small", "large"} & set(arguments.parts):
        program = find("nginx")
        if program is None:
            report.skipped["nginx"] = "not found: no fetching of small and large files"
        else:
            clients = _clients(arguments, folder, report)
            with nginx(program, folder / "nginx", HOSTS) as server:
                report.versions["nginx"] = server.version
                if "small" in arguments.parts:
                    _small(arguments, folder, report, clients, server.workload)
                if "large" in arguments.parts:
                    _large(arguments, folder, report, clients, server.workload)
    if "slow" in arguments.parts:
        _slow(arguments, folder, report)


def _clients(arguments: argparse.Namespace, folder: Path, report: Report) -> dict[str, Client]:
    clients: dict[str, Client] = {}
    for name, make in (("wget", wget), ("aria2c", aria2c)):
        program = find(name)
        if program is None:
            report.skipped[name] = "not found"
        else:
            clients[name] = make(program)
            report.versions[name] = tools(program)
    python = arguments.scrapy
    if arguments.make_scrapy is not None:
        python = arguments.make_scrapy / "bin" / "python"
        if not python.exists():
            run([sys.executable, "-m", "venv", arguments.make_scrapy], folder)
            # Its own environment: pip may need the proxies that everything else here must not have.
            run([python, "-m", "pip", "install", "--quiet", "scrapy"], folder, more=dict(os.environ, PYTHONPATH=""))
    if python is None:
        report.skipped["Scrapy"] = "not named (--scrapy PYTHON or --make-scrapy DIR)"
    else:
        try:
            asked = [python, "-c", "import scrapy; print(scrapy.__version__)"]
            report.versions["Scrapy"] = run(asked, folder).output.strip()
            clients["Scrapy"] = scrapy(python)
        except BenchmarkError as error:
            report.skipped["Scrapy"] = str(error).splitlines()[-1]
    return clients


def _uvloop() -> str:
    try:
        return version("uvloop")
    except PackageNotFoundError:
        return "not installed"


Make = Callable[[str, int, int], Workload]


def _small(arguments: argparse.Namespace, folder: Path, report: Report, clients: dict[str, Client], make: Make) -> None:
    workload = make("small", arguments.files, arguments.size)
    whole, phase = _side_by_side(arguments, folder, report, clients, workload, "files/s", workload.files)
    for name, goal in (("wget", 1.0), ("aria2c", 3.0), ("Scrapy", 3.0)):
        if name in whole:
            report.compare(whole["archec"], whole[name], goal)
            report.compare(phase, whole[name])


def _large(arguments: argparse.Namespace, folder: Path, report: Report, clients: dict[str, Client], make: Make) -> None:
    workload = make("large", arguments.large_files, arguments.large_size)
    megabytes = workload.files * workload.size / 1e6
    whole, phase = _side_by_side(arguments, folder, report, clients, workload, "MB/s", megabytes)
    for name in ("wget", "aria2c", "Scrapy"):
        if name in whole:
            report.compare(whole["archec"], whole[name], 0.6 if name == "wget" else None)
            report.compare(phase, whole[name])


def _side_by_side(
    arguments: argparse.Namespace,
    folder: Path,
    report: Report,
    clients: dict[str, Client],
    workload: Workload,
    unit: str,
    amount: float,
) -> tuple[dict[str, Measure], Measure]:
    """Everyone in turn, in every round; rates of the whole processes, and of archec's files phase."""
    done: dict[str, list[Finished]] = {name: [] for name in ("archec", *clients)}
    phases: list[float] = []
    for number in range(arguments.rounds):
        for name in done:
            place = folder / f"{workload.name}-{name}-{number}"
            place.mkdir()
            if name == "archec":
                finished, seconds = archec_gather(workload, place, CONCURRENCY)
                phases.append(amount / seconds)
            else:
                finished = clients[name](workload, place)
            report.loads.append(finished.load)
            done[name].append(finished)
    group = f"{workload.files:,} files of {workload.size:,} bytes, {HOSTS} hosts"
    measures = {}
    for name, rounds in done.items():
        note = f"{statistics.median(one.cpu for one in rounds):.2f} s CPU"
        measures[name] = report.add(group, name, unit, [amount / one.wall for one in rounds], note)
        if name == "archec":
            phase = report.add(group, "archec, files phase", unit, phases)
    return measures, phase


def _slow(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Hosts that take their time: how much of what is possible is reached."""
    files = arguments.slow_hosts * arguments.slow_files
    rates: list[float] = []
    whole: list[float] = []
    there: list[float] = []
    in_flight = 0
    for number in range(arguments.rounds):
        place = folder / f"slow-{number}"
        place.mkdir()
        with Slow(arguments.slow_hosts, arguments.latency, folder) as server:
            watch = Watch()
            finished, seconds = archec_gather(server.workload(arguments.slow_files), place, CONCURRENCY)
            report.loads.append(watch.load())
        rates.append(files / seconds)
        whole.append(files / finished.wall)
        there.append(server.told["requests"] / max(server.told["seconds"], 1e-3))
        in_flight = max(in_flight, int(server.told["most"]))
    group = f"{files:,} files of {arguments.slow_hosts} hosts that answer after {arguments.latency * 1000:.0f} ms"
    possible = min(CONCURRENCY, 4 * arguments.slow_hosts) / arguments.latency
    most = report.add(group, "concurrency / latency", "files/s", [possible])
    report.add(group, "archec", "files/s", whole)
    phase = report.add(group, "archec, files phase", "files/s", rates)
    seen = report.add(group, "as the hosts see it", "files/s", there, f"at most {in_flight} requests under way")
    report.compare(phase, most, 0.85)
    report.compare(seen, most)
