"""Fetching: archec compared with aria2c, Scrapy and wget, from nginx on twenty loopback addresses.

Many small files, then some large ones. archec's time is that of the whole process of `archec gather` (reading the
data set again, planning, fetching, hashing, syncing, journal, catalogue, report) in an archive that knows the templates
already; "files phase" is the time that its own report gives for the files. The others only write files. All run in
turn in every round, each into a new folder, and must end with every file. Then the memory of archec for the small
files, and for a tenth and half of them, in runs of their own: caches of a fixed size are full after some ten thousand
files, so it is from half to all of them that memory must not grow.

nginx, aria2c and wget are looked for on PATH. Scrapy lives in an environment of its own: name its Python
with --scrapy (or ARCHEC_BENCH_SCRAPY). What is not there is left out.
"""

from __future__ import annotations

import argparse
import os
import pwd
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.runner import (
    BenchmarkError,
    Finished,
    Measure,
    Report,
    archec,
    find,
    free_port,
    in_turn,
    run,
    running,
    version_of,
)

HOSTS = 20
ARIA2C, SCRAPY, CPU, FLAT = 2.0, 6.0, 0.45, 0.8
CONFIGURATION = """
ReDIF_directory: RePEc
fetch:
  concurrency: 64
  delay: 0
  per_host: 4
  robots: ignore
  allow_networks: [127.0.0.0/8]
"""
_PIECE = 1 << 20
_NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ {listen} root {folder}/www; }}
}}
"""
_SPIDER = """
import sys
from pathlib import Path
import scrapy
from scrapy.crawler import CrawlerProcess

class Bodies(scrapy.Spider):
    name = "bodies"
    start_urls = Path(sys.argv[1]).read_text().split()

    def parse(self, response):
        Path("out", response.url.rpartition("/")[2]).write_bytes(response.body)

process = CrawlerProcess({
    "CONCURRENT_REQUESTS": 16, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, "DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "ERROR",
})
process.crawl(Bodies)
process.start()
"""


class Workload(NamedTuple):
    """URLs to fetch, all with bodies of ``size`` bytes."""

    name: str
    urls: Sequence[str]
    size: int

    @property
    def files(self) -> int:
        return len(self.urls)

    def listed(self, folder: Path) -> Path:
        """The URLs in a file, one a line."""
        path = folder / "urls"
        path.write_text("".join(f"{url}\n" for url in self.urls), encoding="ascii")
        return path

    def fetched(self, peer: str, command: Sequence[str | Path], folder: Path) -> Finished:
        """Runs the command of a peer in a new folder, where it must leave every file in ``out``."""
        (folder / "out").mkdir()
        self.listed(folder)
        done = run(command, folder)
        sizes = [path.stat().st_size for path in (folder / "out").iterdir()]
        if len(sizes) != self.files or set(sizes) != {self.size}:
            raise BenchmarkError(f"{peer} left {len(sizes)} files, {sum(sizes)} bytes, of {self.files}")
        return done


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=5000, help="small files")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a small file")
    parser.add_argument("--large-files", type=int, default=200)
    parser.add_argument("--large-size", type=int, default=2_000_000)
    parser.add_argument("--scrapy", type=Path, metavar="PYTHON", default=os.environ.get("ARCHEC_BENCH_SCRAPY"))


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    report.versions["uvloop"] = version("uvloop")
    peers = _peers(arguments.scrapy, folder, report)
    with nginx(folder / "nginx", HOSTS, report) as workload:
        small = workload("small", arguments.files, arguments.size)
        _side_by_side(arguments.rounds, folder, report, peers, small, "files/s", small.files)
        large = workload("large", arguments.large_files, arguments.large_size)
        _side_by_side(arguments.rounds, folder, report, peers, large, "MB/s", large.files * large.size / 1e6)
        _memory(folder, report, small)


def _peers(scrapy: Path | None, folder: Path, report: Report) -> dict[str, list[str | Path]]:
    """The commands of the peers that are there, as they are by default; they write to ``out`` what is in ``urls``."""
    commands: dict[str, list[str | Path]] = {}
    for name, arguments in (
        ("aria2c", ["--no-conf", "-q", "-j16", "-d", "out", "-i", "urls"]),
        ("wget", ["--no-config", "-q", "-P", "out", "-i", "urls"]),
    ):
        if program := find(name):
            commands[name] = [program, *arguments]
            report.versions[name] = version_of(program, "--version")
        else:
            report.skipped[name] = "not found"
    if scrapy is None:
        report.skipped["Scrapy"] = "not named (--scrapy PYTHON)"
        return commands
    try:
        asked = run([scrapy, "-c", "import scrapy; print(scrapy.__version__)"], folder)
        report.versions["Scrapy"] = asked.output.strip()
        commands["Scrapy"] = [scrapy, "-c", _SPIDER, "urls"]
    except BenchmarkError as error:
        report.skipped["Scrapy"] = str(error).splitlines()[-1]
    return commands


def _side_by_side(
    rounds: int,
    folder: Path,
    report: Report,
    peers: dict[str, list[str | Path]],
    workload: Workload,
    unit: str,
    amount: float,
) -> None:
    phases: list[float] = []

    def ours(number: int) -> Finished:
        done, seconds = _gathered(_place("archec", number), workload)
        phases.append(amount / seconds)
        return done

    def theirs(name: str) -> Callable[[int], Finished]:
        return lambda number: workload.fetched(name, peers[name], _place(name, number))

    def _place(name: str, number: int) -> Path:
        place = folder / f"{workload.name}-{name}-{number}"
        place.mkdir()
        return place

    group = f"{workload.files:,} files of {workload.size:,} bytes, {HOSTS} hosts"
    done = in_turn(rounds, {"archec": ours, **{name: theirs(name) for name in peers}})
    measures = report.rates(group, unit, amount, done)
    report.add(group, "archec, files phase", unit, phases)
    small = workload.name == "small"
    for name, goal in (("aria2c", ARIA2C), ("Scrapy", SCRAPY), ("wget", None)):
        if name in measures:
            report.compare(measures["archec"], measures[name], least=goal if small else None)
    if small:
        cpu = statistics.median(one.cpu for one in done["archec"]) / workload.files * 1000
        report.judge(f"{group}: archec, CPU a file", cpu, "ms", most=CPU)


def _gathered(place: Path, workload: Workload, *, memory: bool = False) -> tuple[Finished, float]:
    """A gather of the files into a new archive that knows their templates; and the seconds of its files phase."""
    write_papers(place, workload.urls)
    archec(place, "gather", "--no-fetch", "--json")
    done, value = archec(place, "gather", "--json", memory=memory)
    if value["fobis"] != {"new": workload.files} or value["stored_bytes"] < workload.files * workload.size:
        raise BenchmarkError(f"archec fetched {value['fobis']}, {value['stored_bytes']} bytes")
    return done, value["seconds"]["files"]


def _memory(folder: Path, report: Report, workload: Workload) -> None:
    """Runs of their own, as watching memory takes time."""
    def peak(part: Workload) -> Measure:
        place = folder / f"memory-{part.files}"
        place.mkdir()
        done, _ = _gathered(place, part, memory=True)
        return report.add("memory", f"{part.files:,} files", "MB", [done.peak / 1e6])

    few, half, whole = (peak(workload._replace(urls=workload.urls[: workload.files // part])) for part in (10, 2, 1))
    report.compare(few, whole, "a tenth / all files, MB")
    report.compare(half, whole, "half / all files, MB", least=FLAT)


def write_papers(folder: Path, urls: Sequence[str], series: int = 1) -> None:
    """A new archive in ``folder``, and a data set of templates that mention these URLs, divided among series."""
    for number in range(series):
        place = folder / "RePEc" / "bmk" / f"wpap{number:02d}"
        place.mkdir(parents=True)
        texts = [
            f"Template-Type: ReDIF-Paper 1.0\nTitle: Paper {n}\nAuthor-Name: A. Uthor\nFile-URL: {url}\n"
            f"File-Format: Application/pdf\nHandle: RePEc:bmk:wpap{number:02d}:{n:06d}\n"
            for n, url in enumerate(urls)
            if n % series == number
        ]
        for start in range(0, len(texts), 500):
            (place / f"{start:06d}.rdf").write_text("\n".join(texts[start : start + 500]), encoding="ascii")
    (folder / "config.yaml").write_text(CONFIGURATION, encoding="ascii")
    archec(folder, "init", "--config", "config.yaml")


@contextmanager
def nginx(folder: Path, hosts: int, report: Report) -> Iterator[Callable[[str, int, int], Workload]]:
    """nginx on so many loopback addresses; gives what makes files there: name, how many, bytes."""
    (folder / "www").mkdir(parents=True)
    addresses = [f"127.0.0.{2 + number}" for number in range(hosts)]

    def workload(name: str, files: int, size: int) -> Workload:
        """Half of each piece of a file is random and half is text, so that compressing it is work."""
        place = folder / "www" / name
        place.mkdir()
        draw = random.Random(f"{name} {files} {size}")
        text = Path(__file__).read_bytes() * (min(size, _PIECE) // 2000 + 2)
        for number in range(files):
            with (place / f"{number}.dat").open("wb") as file:
                for begin in range(0, size, _PIECE):
                    length = min(_PIECE, size - begin)
                    start = draw.randrange(len(text) - length // 2)
                    file.write(draw.randbytes(length - length // 2) + text[start : start + length // 2])
        return Workload(name, [f"http://{addresses[n % hosts]}:{port}/{name}/{n}.dat" for n in range(files)], size)

    with serving(folder, addresses, report) as port:
        yield workload


@contextmanager
def serving(folder: Path, addresses: Sequence[str], report: Report) -> Iterator[int]:
    """The port of nginx with one worker, which serves what is in ``www`` of ``folder`` on these addresses.

    Raises BenchmarkError where there is none, or it does not start.
    """
    program = find("nginx")
    if program is None:
        raise BenchmarkError("there is no nginx")
    port = free_port()
    listen = " ".join(f"listen {address}:{port};" for address in addresses)
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(_NGINX.format(folder=folder, user=user, listen=listen), encoding="utf-8")
    report.versions["nginx"] = version_of(program, "-v")
    with running([program, "-p", folder, "-c", configuration], folder, port, addresses[-1]):
        yield port
