"""Filesets: `archec fileset ingest` compared with wget and the sums, pooch and zenodo_get, from nginx on loopback.

A record of a played Zenodo with many small files, then one with some large ones. archec's time is that of the whole
process into a new archive: the files verified, with MD5, SHA-1 and SHA-256, durable, journalled, catalogued. Then the
same record again, of which nothing has changed. Compared with `wget -i`, `sync` and the three sums of the same files;
pooch and zenodo_get, which verify MD5. All run in turn in every round, each into a new folder, and must end with every
file.

The latter two live in environments of their own: name their Pythons with --pooch and --zenodo-get (or
ARCHEC_BENCH_POOCH and ARCHEC_BENCH_ZENODO_GET). What is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from archec.cli.common import digests_of
from benchmarks.fetch import Workload, nginx
from benchmarks.runner import BenchmarkError, Finished, Report, archec, find, in_turn, run, version_of

SUMS, SMALL, LARGE, MEMORY = 1.0, 3.0, 1.2, 200.0
CONFIGURATION = """
fetch: {{allow_networks: [127.0.0.0/8], delay: 0, robots: ignore}}
fileset: {{platforms: {{zenodo: {{hosts: ['{host}'], rate: none}}}}}}
"""
_SUMS = """
set -e
wget --no-config -q -P out -i urls
sync
for sum in md5sum sha1sum sha256sum; do find out -type f -print0 | xargs -0 $sum > $sum.txt; done
"""
_POOCH = """
import json, pooch, sys
files = json.load(open("record.json"))["files"]
pooch.get_logger().setLevel("ERROR")
fetcher = pooch.create(
    path="out", base_url="", registry={row["key"]: row["checksum"] for row in files},
    urls={row["key"]: row["links"]["self"] for row in files},
)
for name in fetcher.registry:
    fetcher.fetch(name)
"""
_ZENODO_GET = """
import sys
import httpx2
from zenodo_get.zget import cli
host, port, record = sys.argv.pop(1), int(sys.argv.pop(1)), sys.argv[1]
send = httpx2.HTTPTransport.handle_request
def here(self, request):
    request.url = request.url.copy_with(scheme="http", host=host, port=port)
    request.headers["host"] = f"{host}:{port}"
    return send(self, request)
httpx2.HTTPTransport.handle_request = here
sys.argv += ["-o", "out", "-v", "0"]
cli()
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=2000, help="small files")
    parser.add_argument("--size", type=int, default=100_000, help="bytes of a small file")
    parser.add_argument("--large-files", type=int, default=4)
    parser.add_argument("--large-size", type=int, default=1_000_000_000)
    parser.add_argument("--pooch", type=Path, metavar="PYTHON", default=os.environ.get("ARCHEC_BENCH_POOCH"))
    parser.add_argument("--zenodo-get", type=Path, metavar="PYTHON", default=os.environ.get("ARCHEC_BENCH_ZENODO_GET"))


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    peers = _peers(arguments, folder, report)
    with nginx(folder / "nginx", 1, report) as workload:
        small = workload("small", arguments.files, arguments.size)
        _side_by_side(arguments.rounds, folder, report, peers, small, "files/s", small.files)
        large = workload("large", arguments.large_files, arguments.large_size)
        _side_by_side(arguments.rounds, folder, report, peers, large, "MB/s", large.files * large.size / 1e6)


def _peers(arguments: argparse.Namespace, folder: Path, report: Report) -> dict[str, list[str | Path]]:
    """The commands of the peers that are there; they write to ``out``. ``{...}`` is filled in for each record."""
    commands: dict[str, list[str | Path]] = {}
    if wget := find("wget"):
        report.versions["wget"] = version_of(wget, "--version")
        commands["wget, sync, sums"] = ["sh", "-c", _SUMS]
    else:
        report.skipped["wget, sync, sums"] = "wget is not found"
    for name, module, python, words in (
        ("pooch", "pooch", arguments.pooch, [_POOCH]),
        ("zenodo_get", "zenodo_get", arguments.zenodo_get, [_ZENODO_GET, "{host}", "{port}", "{record}"]),
    ):
        if python is None:
            report.skipped[name] = f"not named (--{name.replace('_', '-')} PYTHON)"
            continue
        try:
            asked = run(
                [python, "-c", f"import {module}; from importlib.metadata import version; print(version('{module}'))"],
                folder,
            )
        except BenchmarkError as error:
            report.skipped[name] = str(error).splitlines()[-1]
            continue
        report.versions[name] = asked.output.strip()
        commands[name] = [python, "-c", *words]
    return commands


def _record(workload: Workload, folder: Path, number: int) -> tuple[str, str]:
    """Makes the record of a workload below nginx's root; its URL and its JSON."""
    root = folder / "nginx" / "www"
    origin = workload.urls[0].rpartition(f"/{workload.name}/")[0]
    rows = []
    for url in workload.urls:
        path = root / urlsplit(url).path.lstrip("/")
        md5 = digests_of(path).md5
        rows.append({
            "id": path.name, "key": path.name, "size": workload.size, "checksum": f"md5:{md5}", "links": {"self": url},
        })  # fmt: skip
    body = json.dumps({
        "id": number, "conceptrecid": str(number - 1), "status": "published", "submitted": True,
        "metadata": {"title": workload.name, "access_right": "open"}, "files": rows,
    })  # fmt: skip
    (root / "api" / "records").mkdir(parents=True, exist_ok=True)
    (root / "api" / "records" / str(number)).write_text(body, encoding="ascii")
    return f"{origin}/records/{number}", body


def _side_by_side(
    rounds: int, folder: Path, report: Report, peers: dict[str, list[str | Path]], workload: Workload, unit: str,
    amount: float,
) -> None:  # fmt: skip
    number = 7 if workload.name == "small" else 9
    url, record = _record(workload, folder, number)
    host, _, port = urlsplit(url).netloc.partition(":")
    again: list[Finished] = []

    def place_of(name: str, turn: int) -> Path:
        place = folder / f"{workload.name}-{name.partition(',')[0]}-{turn}"
        place.mkdir()
        return place

    def ours(turn: int) -> Finished:
        place = place_of("archec", turn)
        (place / "config.yaml").write_text(CONFIGURATION.format(host=f"{host}:{port}"), encoding="ascii")
        archec(place, "init", "--config", "config.yaml")
        ingest = ("fileset", "ingest", "--max-files", str(max(workload.files, 1)), url)
        done, _ = archec(place, *ingest, memory=True)
        value = json.loads(done.output)
        if not value["hit"] or value["total_size"] != workload.files * workload.size:
            raise BenchmarkError(f"archec: {value['status']}: {value['message']}")
        unchanged, _ = archec(place, *ingest)
        if json.loads(unchanged.output)["status"] != "success-existing":
            raise BenchmarkError(f"archec, again: {unchanged.output[:300]}")
        again.append(unchanged)
        return done

    def theirs(name: str) -> Callable[[int], Finished]:
        def fetched(turn: int) -> Finished:
            place = place_of(name, turn)
            (place / "record.json").write_text(record, encoding="ascii")
            filled = {"{host}": host, "{port}": port, "{record}": str(number)}
            return workload.fetched(name, [filled.get(str(word), word) for word in peers[name]], place)

        return fetched

    group = f"{workload.files:,} files of {workload.size:,} bytes"
    done = in_turn(rounds, {"archec": ours, **{name: theirs(name) for name in peers}})
    measures = report.rates(group, unit, amount, done)
    report.add(group, "archec, unchanged", "s", [one.wall for one in again])
    goal = SMALL if workload.name == "small" else LARGE
    for name, least in (("wget, sync, sums", SUMS), ("pooch", goal), ("zenodo_get", goal)):
        if name in measures:
            report.compare(measures["archec"], measures[name], least=least)
    report.judge(f"{group}: archec, memory", max(one.peak for one in done["archec"]) / 1e6, "MB", most=MEMORY)
