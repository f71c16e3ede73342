"""Access: what a request for an index or a record costs, beside pywb over the same files.

A crawl of --urls pages with --captures captures each, a random page and time for each request, over one kept
connection; tokens are checked and audited. The CPU is that of the server's process. pywb, which is under the GPL and no
dependency, is measured where --pywb names the Python of an environment that has it. Then: the nearest ten of many
captures of one page, all captures of it as JSON, and pages of the index at both ends.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from benchmarks.runner import BenchmarkError, Report

_GROUP = "{urls:,} URLs x {captures} captures"
_MANY = "http://many.example.org/"
_BODY = 4300


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--urls", type=int, default=10_000)
    parser.add_argument("--captures", type=int, default=10)
    parser.add_argument("--one", type=int, default=100_000, help="captures of one URL")
    parser.add_argument("--requests", type=int, default=3000, help="requests of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pywb", metavar="PYTHON", help="the Python of an environment that has pywb")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Index and resource, beside pywb; then what depends on how much there is."""
    _crawl(folder, arguments.urls, arguments.captures, arguments.one)
    group = _GROUP.format(urls=arguments.urls, captures=arguments.captures)
    with _archec(folder) as ours, _pywb(folder, arguments.pywb, report) as theirs:
        servers = {"archec": ours} | ({"pywb": theirs} if theirs is not None else {})
        for name, path in (("index", "/c/index"), ("resource", "/c/resource")):
            costs = {server: [_cost(one, path, arguments)] for server, one in servers.items()}
            for _ in range(arguments.rounds - 1):
                for server, one in servers.items():
                    costs[server].append(_cost(one, path, arguments))
            for server, values in costs.items():
                report.add(group, f"{name}: {server}", "CPU ms/request", values)
            goal = {"index": 0.2, "resource": 0.33}[name]
            if "pywb" in costs:
                ratio = statistics.median(costs["archec"]) / statistics.median(costs["pywb"])
                report.judge(f"{name}: archec / pywb, CPU per request", ratio, most=goal)
        _one_page(servers, arguments, report)
        _pages(ours, arguments, report)


def _one_page(servers: dict[str, Server], arguments: argparse.Namespace, report: Report) -> None:
    """The nearest ten of many captures, and all of them."""
    group = f"{arguments.one:,} captures of one URL"
    near = f"/c/index?url={quote(_MANY)}&closest=2015&limit=10"
    everything = f"/c/index?url={quote(_MANY)}&output=json&limit={arguments.one}"
    for name, path, goal in (("closest, limit=10", near, 20.0), ("all as JSON", everything, 5.0)):
        times = {server: [_seconds(one, path) for _ in range(arguments.rounds)] for server, one in servers.items()}
        for server, values in times.items():
            report.add(group, f"{name}: {server}", "s", values)
        if "pywb" in times:
            ratio = statistics.median(times["pywb"]) / statistics.median(times["archec"])
            report.judge(f"{name}: pywb / archec, seconds", ratio, least=goal)


def _pages(ours: Server, arguments: argparse.Namespace, report: Report) -> None:
    """A page at the beginning and one at the end."""
    query = f"/c/cdx?url={quote(_MANY)}&output=json&pageSize=1"
    count = json.loads(ours.get(f"{query}&showNumPages=true"))["pages"]
    spans = {
        depth: [_seconds(ours, f"{query}&page={page}") for _ in range(21)] for depth, page in ((0, 0), (99, count - 2))
    }
    for depth, values in spans.items():
        report.add("pages", f"a page at {depth}%", "s", values)
    first, last = (statistics.median(values) for values in spans.values())
    report.judge("a page at 99% / at 0%, seconds", max(last, 0.001) / max(first, 0.001), most=1.2)


class Server:
    """A server by its port and process; requests go over one connection."""

    def __init__(self, port: int, pid: int, token: str) -> None:
        self._port, self._pid = port, pid
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def get(self, path: str) -> bytes:
        """The body of an answer that must be 200."""
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):  # a server that closes each connection
            self._connection = self._connected()
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise BenchmarkError(f"{path}: HTTP {answer.status}: {body[:200]!r}")
        return body

    def cpu(self) -> float:
        """Seconds of CPU that the process has taken."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cost(server: Server, path: str, arguments: argparse.Namespace) -> float:
    """Milliseconds of CPU of a request."""
    draw = random.Random(1)
    before = server.cpu()
    for _ in range(arguments.requests):
        url = quote(_url(draw.randrange(arguments.urls)))
        server.get(f"{path}?url={url}&closest={draw.randrange(2010, 2020)}0615120000&limit=10")
    return (server.cpu() - before) / arguments.requests * 1000


def _seconds(server: Server, path: str) -> float:
    began = time.perf_counter()
    server.get(path)
    return time.perf_counter() - began


@contextmanager
def _archec(folder: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "config.yaml").write_text(
        f"server: {{port: {port}, access_log: ''}}\naccess: {{audit: audit.jsonl}}\n"
        "collections: {c: {index: ./index, resource: ./warcs}}\n"
    )
    command = [sys.executable, "-m", "archec"]
    made = subprocess.run(
        [*command, "access", "token", "create", "bench"], cwd=folder, capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise BenchmarkError(made.stderr)
    with _running([*command, "serve"], folder, port) as pid:
        yield Server(port, pid, made.stdout.strip())


@contextmanager
def _pywb(folder: Path, python: str | None, report: Report) -> Iterator[Server | None]:
    if python is None:
        report.skipped["pywb"] = "not named (--pywb PYTHON)"
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = folder / "pywb"
    place.mkdir()
    (place / "config.yaml").write_text(
        f"collections: {{c: {{index: {folder}/index/, archive_paths: {folder}/warcs/}}}}\n"
    )
    version = subprocess.run(
        [python, "-c", "import pywb.version as v; print(v.__version__)"], capture_output=True, text=True, check=False
    )
    if version.returncode:
        raise BenchmarkError(f"{python}: {version.stderr.strip()[-200:]}")
    report.versions["pywb"] = version.stdout.strip()
    command = [python, "-c", "from pywb.apps.cli import warcserver; warcserver()", "-p", str(port)]
    with _running(command, place, port) as pid:
        yield Server(port, pid, "")


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[int]:
    with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            _wait(lambda: process.poll() is None, port, folder / "log")
            yield process.pid
        finally:
            process.terminate()


def _wait(alive: Callable[[], bool], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if not alive() or time.monotonic() > deadline:
                raise BenchmarkError(f"a server did not start: {log.read_text()[-500:]}") from None
            time.sleep(0.05)


def _crawl(folder: Path, urls: int, captures: int, one: int) -> None:
    """WARC files with their index."""
    from io import BytesIO

    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    from archec.access.query import key_of

    (folder / "warcs").mkdir()
    (folder / "index").mkdir()
    draw = random.Random(2)
    lines: list[bytes] = []
    with (folder / "warcs" / "a.warc.gz").open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for n in range(urls):
            for year in range(2010, 2010 + captures):
                stamp, url = f"{year}0101000000", _url(n)
                head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
                date = {"WARC-Date": f"{year}-01-01T00:00:00Z"}
                body = draw.randbytes(_BODY)
                record = writer.create_warc_record(
                    url, "response", BytesIO(body), warc_headers_dict=date, http_headers=head
                )
                offset = file.tell()
                writer.write_record(record)
                digest = record.rec_headers.get_header("WARC-Payload-Digest")
                value = {"url": url, "mime": "text/html", "status": "200", "digest": digest}
                place = {"length": str(file.tell() - offset), "offset": str(offset), "filename": "a.warc.gz"}
                lines.append(f"{key_of(url)} {stamp} {json.dumps(value | place)}\n".encode())
    key = key_of(_MANY)
    for n in range(one):
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(1262304000 + n * 3000))
        lines.append(f'{key} {stamp} {{"url": "{_MANY}", "mime": "text/html", "status": "200"}}\n'.encode())
    (folder / "index" / "index.cdxj").write_bytes(b"".join(sorted(lines)))


def _url(n: int) -> str:
    return f"http://host{n % 997}.example.org/page/{n}"
