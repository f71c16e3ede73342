"""Exporting: archec export warc compared with wget --warc-file, the same bytes from nginx on loopback.

archec has gathered the files already and writes them from its obi store; wget fetches them, one after the other
over connections that it keeps, and writes nothing but its WARC file (-O /dev/null). Both compress each record.
The files belong to several series, as those of an archive do; "one series" is the case in which archec has nothing to
divide among processes. Rates are bytes of files by the time of the whole process.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from benchmarks.fetch import Workload, nginx, write_papers
from benchmarks.runner import BenchmarkError, Finished, Report, archec, find, in_turn, run, version_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=4000, help="small files")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a small file")
    parser.add_argument("--large-files", type=int, default=100)
    parser.add_argument("--large-size", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=8)


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    wget = find("wget")
    if wget is None:
        raise BenchmarkError("there is no wget")
    report.versions |= {"wget": version_of(wget, "--version"), "warcio": version("warcio")}
    small, large = (arguments.files, arguments.size), (arguments.large_files, arguments.large_size)
    with nginx(folder / "nginx", 4, report) as workload:
        for name, (files, size), series in (
            ("small", small, arguments.series),
            ("large", large, arguments.series),
            ("one", small, 1),
        ):
            group = f"{files:,} files of {size:,} bytes, {series} series"
            _part(arguments.rounds, folder / name, report, workload(name, files, size), wget, group, series)


def _part(
    rounds: int, folder: Path, report: Report, workload: Workload, wget: str, group: str, series: int
) -> None:
    folder.mkdir()
    write_papers(folder, workload.urls, series)
    _, value = archec(folder, "gather", "--json")
    if value["fobis"] != {"new": workload.files}:
        raise BenchmarkError(f"archec fetched {value['fobis']} of {workload.files} files")
    listed = workload.listed(folder)

    def ours(number: int) -> Finished:
        done, value = archec(folder, "export", "warc", folder / f"vault-{number}", "--json")
        if value["records"].get("response") != workload.files:
            raise BenchmarkError(f"archec exported {value['records']} of {workload.files} files")
        return done

    def theirs(number: int) -> Finished:
        out = folder / f"wget-{number}"
        done = run([wget, "--no-config", "-q", "-O", "/dev/null", "--warc-file", out, "-i", listed], folder)
        if Path(f"{out}.warc.gz").stat().st_size < workload.files * workload.size / 4:
            raise BenchmarkError("wget has not written all files")
        return done

    done = in_turn(rounds, {"archec": ours, "wget": theirs})
    measures = report.rates(group, "MB/s", workload.files * workload.size / 1e6, done)
    report.compare(measures["archec"], measures["wget"])
