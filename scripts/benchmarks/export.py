"""Exporting: archec export warc beside wget --warc-file, the same bytes from nginx on loopback.

archec has gathered the files already and writes them from its obi store; wget fetches them, one after the other
over connections that it keeps, and writes nothing but its WARC file (-O /dev/null). Both compress each record.
The files are half random, half text, so that compressing them is work. They belong to several series, as those
of an archive do; "one series" is the case in which archec has nothing to divide among processes. Rates are
bytes of files by the time of the whole process.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from importlib.metadata import version
from pathlib import Path

from benchmarks.fetch_clients import Workload
from benchmarks.fetch_servers import Nginx, nginx
from benchmarks.outcome import Measure, Report
from benchmarks.running import BenchmarkError, Finished, archec, find, found_version, run

TOUCH = 1024
GOAL = 0.6
_HOSTS = 4
_CONFIGURATION = """
ReDIF_directory: RePEc
fetch:
  concurrency: 32
  delay: 0
  per_host: 8
  robots: ignore
  allow_networks: [127.0.0.0/8]
"""


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=4000, help="small files")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a small file")
    parser.add_argument("--large-files", type=int, default=100)
    parser.add_argument("--large-size", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=8)


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Small files, large files, and small files of one series."""
    programs = {name: find(name) for name in ("nginx", "wget")}
    for name, program in programs.items():
        if program is None:
            raise BenchmarkError(f"there is no {name}")
    wget = str(programs["wget"])
    report.versions["wget"] = found_version([wget, "--version"])
    report.versions["warcio"] = version("warcio")
    with nginx(str(programs["nginx"]), folder / "nginx", _HOSTS) as server:
        report.versions["nginx"] = server.version
        small, large = (arguments.files, arguments.size), (arguments.large_files, arguments.large_size)
        for name, (files, size), series in (
            ("small", small, arguments.series),
            ("large", large, arguments.series),
            ("one", small, 1),
        ):
            workload = _workload(server, folder / "nginx" / "www" / name, name, files, size)
            group = f"{files:,} files of {size:,} bytes, {series} series"
            _part(arguments.rounds, folder / name, report, workload, wget, group, series)


def _workload(server: Nginx, place: Path, name: str, files: int, size: int) -> Workload:
    """As the server makes it, but half of each file is text."""
    workload = server.workload(name, files, size)
    words = Path(__file__).read_bytes() * (size // 2000 + 2)
    draw = random.Random(name)
    for path in place.iterdir():
        half = size // 2
        start = draw.randrange(len(words) - half)
        path.write_bytes(draw.randbytes(size - half) + words[start : start + half])
    return workload


def _part(
    rounds: int, folder: Path, report: Report, workload: Workload, wget: str, group: str, series: int
) -> None:
    folder.mkdir()
    _gather(workload, folder, series)
    listed = workload.listed(folder)
    ours: list[Finished] = []
    theirs: list[Finished] = []
    sizes = (0, 0)
    for number in range(rounds):
        vault = folder / f"vault-{number}"
        done, value = archec(folder, "export", "warc", vault, "--json")
        if value["records"].get("response") != workload.files:
            raise BenchmarkError(f"archec exported {value['records']} of {workload.files} files")
        ours.append(done)
        out = folder / f"wget-{number}"
        command = [wget, "--no-config", "-q", "-O", "/dev/null", "--warc-file", out, "-i", listed]
        theirs.append(run(command, folder))
        sizes = (value["warc_bytes"], Path(f"{out}.warc.gz").stat().st_size)
        if sizes[1] < workload.files * workload.size / 4:
            raise BenchmarkError(f"wget wrote {sizes[1]} bytes")
    measures: list[Measure] = []
    amount = workload.files * workload.size / 1e6
    for name, done_rounds, size in (("archec", ours, sizes[0]), ("wget", theirs, sizes[1])):
        report.loads.extend(one.load for one in done_rounds)
        note = f"{statistics.median(one.cpu for one in done_rounds):.2f} s CPU, {size / 1e6:.1f} MB of WARC"
        measures.append(report.add(group, name, "MB/s", [amount / one.wall for one in done_rounds], note))
        report.add(group, name, "files/s", [workload.files / one.wall for one in done_rounds])
    report.compare(measures[0], measures[1], GOAL)


def _gather(workload: Workload, folder: Path, series: int) -> None:
    """An archive that holds the files, each mentioned by a template of one of the series."""
    place = folder / "RePEc" / "bmk"
    for number in range(series):
        texts = [
            f"Template-Type: ReDIF-Paper 1.0\nTitle: Paper {n}\nAuthor-Name: A. Uthor\nFile-URL: {url}\n"
            f"File-Format: Application/pdf\nHandle: RePEc:bmk:wpap{number:02d}:{n:06d}\n"
            for n, url in enumerate(workload.urls)
            if n % series == number
        ]
        target = place / f"wpap{number:02d}"
        target.mkdir(parents=True)
        (target / "papers.rdf").write_text("\n".join(texts), encoding="ascii")
    (folder / "config.yaml").write_text(_CONFIGURATION, encoding="ascii")
    archec(folder, "init", "--config", "config.yaml")
    _, value = archec(folder, "gather", "--json")
    if value["fobis"] != {"new": workload.files}:
        raise BenchmarkError(f"archec fetched {json.dumps(value['fobis'])} of {workload.files} files")
