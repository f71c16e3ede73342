"""Access: what a request for an index or a record costs, beside pywb over the same files.

A crawl of --urls pages with --captures captures each, a random page and time for each request, over one kept
connection; tokens are checked and audited. The CPU is that of the server's process. pywb, which is under the GPL and no
dependency, is measured where --pywb names the Python of an environment that has it. Then: the nearest ten of many
captures of one page, all captures of it as JSON; pages of a large index at both ends; the memory of answers with all
its rows and of a large record; a group of three remotes, for which an nginx stands; the own store beside a CDXJ file
with its rows; a source that says nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from benchmarks.access_servers import Server
from benchmarks.fetch import serving
from benchmarks.runner import BenchmarkError, Report, free_port, running

_GROUP = "{urls:,} URLs x {captures} captures"
_MANY = "http://many.example.org/"
_BIG = "http://big.example.org/"
_CANNED = "http://canned.example.org/"
_BODY = 4300
_TIMEOUT = 1.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--urls", type=int, default=10_000)
    parser.add_argument("--captures", type=int, default=10)
    parser.add_argument("--one", type=int, default=100_000, help="captures of one URL")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the index that is read by pages")
    parser.add_argument("--record", type=int, default=5000, help="MB of the largest record")
    parser.add_argument("--own", type=int, default=2000, help="files in the own store, with five states each")
    parser.add_argument("--requests", type=int, default=3000, help="requests of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pywb", metavar="PYTHON", help="the Python of an environment that has pywb")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Index and resource, beside pywb; then what depends on how much there is."""
    _crawl(folder, arguments.urls, arguments.captures, arguments.one)
    group = _GROUP.format(urls=arguments.urls, captures=arguments.captures)
    with ExitStack() as stack:
        remotes = _remotes(stack, folder, report)
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # it takes connections and says nothing
        _own_store(folder, arguments.own)
        _big(folder, arguments.rows)
        _records(folder, arguments.record)
        ours = stack.enter_context(_archec(folder, remotes, silent.getsockname()[1]))
        theirs = stack.enter_context(_pywb(folder, arguments.pywb, remotes, report))
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
        _memory(ours, arguments, report)
        if remotes:
            _group(servers, arguments, report)
        _own_and_copy(ours, folder, arguments, report)
        took = [_seconds(ours, f"/silent/index?url={quote(_url(0))}&closest=2015") for _ in range(arguments.rounds)]
        report.add("a source that says nothing", f"a group with a time of {_TIMEOUT} s", "s", took)
        report.judge("a source that says nothing: seconds / its time", max(took) / _TIMEOUT, most=1.1)


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
    first = [servers["archec"].first_byte(everything) for _ in range(arguments.rounds)]
    report.add(group, "all as JSON, the first byte: archec", "s", first)
    report.judge("all as JSON: the first byte, seconds", statistics.median(first), "s", most=0.1)


def _group(servers: dict[str, Server], arguments: argparse.Namespace, report: Report) -> None:
    """A group of three remotes, which give the same answer at once."""
    path = f"/g/index?url={quote(_CANNED)}&closest=2015&limit=10"
    costs: dict[str, float] = {}
    rates: dict[str, float] = {}
    for name, server in servers.items():
        count = max(32, arguments.requests // (1 if name == "archec" else 10))
        server.get(path)
        found, before = [], server.cpu()
        for _ in range(arguments.rounds):
            found.append(server.rate(path, count, 32))
        costs[name] = (server.cpu() - before) / (arguments.rounds * (count // 32 * 32)) * 1000
        rates[name] = statistics.median(found)
        report.add("a group of three remotes", f"32 connections: {name}", "requests/s", found)
        report.add("a group of three remotes", name, "CPU ms/request", [costs[name]])
    if "pywb" in servers:
        report.judge("group: archec / pywb, CPU per request", costs["archec"] / costs["pywb"], most=0.1)
        report.judge("group: archec / pywb, requests a second", rates["archec"] / rates["pywb"], least=5.0)


def _own_and_copy(ours: Server, folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    """The own store, and the same rows in a CDXJ file."""
    (folder / "copy.cdxj").write_bytes(ours.get("/own/index?url=*.example.org&limit=100000000"))
    ours.get(f"/copy/index?url={quote(_url(0))}")
    costs = {
        coll: [_cost(ours, f"/{coll}/index", arguments, arguments.own) for _ in range(arguments.rounds)]
        for coll in ("own", "copy")
    }
    for coll, name in (("own", "own store"), ("copy", "CDXJ")):
        report.add(f"{arguments.own:,} files in the own store", name, "CPU ms/request", costs[coll])
    ratio = statistics.median(costs["own"]) / statistics.median(costs["copy"])
    report.judge("own store / CDXJ, CPU per request", ratio, most=1.5)


def _pages(ours: Server, arguments: argparse.Namespace, report: Report) -> None:
    """A page at the beginning and one at the end."""
    query = f"/big/cdx?url={quote(_BIG)}*&output=json&pageSize=1"
    count = json.loads(ours.get(f"{query}&showNumPages=true"))["pages"]
    spans = {
        depth: [_seconds(ours, f"{query}&page={page}") for _ in range(21)] for depth, page in ((0, 0), (99, count - 2))
    }
    for depth, values in spans.items():
        report.add("pages", f"a page at {depth}%", "s", values)
    first, last = (statistics.median(values) for values in spans.values())
    ratio = max(last, 0.001) / max(first, 0.001)
    report.judge(f"a page of {arguments.rows:,} rows at 99% / at 0%, seconds", ratio, most=1.2)


def _memory(ours: Server, arguments: argparse.Namespace, report: Report) -> None:
    """What answers of one size take, and those that are ten times as large."""
    for name, unit, whole, path in (
        ("an index", "rows", arguments.rows, f"/big/index?url={quote(_BIG)}*&limit="),
        ("a record", "MB", arguments.record, "/large/resource?url=http://large.example.org/"),
    ):
        peaks = [ours.peak(f"{path}{size}") for size in (whole // 10, whole)]
        for size, value in zip((whole // 10, whole), peaks, strict=True):
            report.add("memory of an answer", f"{name} of {size:,} {unit}", "MiB", [value])
        report.judge(f"{name} ten times as large: more memory", peaks[1] - peaks[0], "MiB", most=16.0)


def _cost(server: Server, path: str, arguments: argparse.Namespace, urls: int = 0) -> float:
    """Milliseconds of CPU of a request."""
    urls = urls or arguments.urls
    draw = random.Random(1)
    before = server.cpu()
    for _ in range(arguments.requests):
        url = quote(_url(draw.randrange(urls)))
        server.get(f"{path}?url={url}&closest={draw.randrange(2010, 2020)}0615120000&limit=10")
    return (server.cpu() - before) / arguments.requests * 1000


def _seconds(server: Server, path: str) -> float:
    began = time.perf_counter()
    server.get(path)
    return time.perf_counter() - began


@contextmanager
def _archec(folder: Path, remotes: str, silent: int) -> Iterator[Server]:
    port = free_port()
    (folder / "config.yaml").write_text(f"""\
server: {{port: {port}, access_log: ''}}
access: {{audit: audit.jsonl}}
collections:
  c: {{index: ./index, resource: ./warcs}}
  own: $archive
  copy: ./copy.cdxj
  big: ./big.cdxj
  large: {{index: ./large.cdxj, resource: .}}
  silent:
    index_group: {{near: ./index, far: 'cdx+http://127.0.0.1:{silent}/x-cdx'}}
    index_timeout: {_TIMEOUT}
{remotes}""")
    command = [sys.executable, "-m", "archec"]
    made = subprocess.run(
        [*command, "access", "token", "create", "bench"], cwd=folder, capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise BenchmarkError(made.stderr)
    with running([*command, "serve"], folder, port) as pid:
        server = Server(port, pid, made.stdout.strip())
        while not server.get(f"/big/index?url={quote(_BIG)}*&limit=1"):  # it goes through each index once
            time.sleep(0.1)
        yield server


@contextmanager
def _pywb(folder: Path, python: str | None, remotes: str, report: Report) -> Iterator[Server | None]:
    if python is None:
        report.skipped["pywb"] = "not named (--pywb PYTHON)"
        yield None
        return
    port = free_port()
    place = folder / "pywb"
    place.mkdir()
    (place / "config.yaml").write_text(
        f"collections:\n  c: {{index: {folder}/index/, archive_paths: {folder}/warcs/}}\n{remotes}"
    )
    version = subprocess.run(
        [python, "-c", "import pywb.version as v; print(v.__version__)"], capture_output=True, text=True, check=False
    )
    if version.returncode:
        raise BenchmarkError(f"{python}: {version.stderr.strip()[-200:]}")
    report.versions["pywb"] = version.stdout.strip()
    command = [python, "-c", "from pywb.apps.cli import warcserver; warcserver()", "-p", str(port)]
    with running(command, place, port) as pid:
        yield Server(port, pid, "")


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


def _remotes(stack: ExitStack, folder: Path, report: Report) -> str:
    """The collection ``g``, three remotes of which each gives ten rows; nothing where there is no nginx."""
    from archec.access.query import key_of

    key = key_of(_CANNED)
    lines = [f'{key} {year}0101000000 {{"url": "{_CANNED}", "mime": "text/html"}}\n' for year in range(2010, 2020)]
    root = folder / "nginx" / "www"
    root.mkdir(parents=True)
    for name in "xyz":
        (root / f"{name}-cdx").write_text("".join(lines))
    try:
        port = stack.enter_context(serving(root.parent, ["127.0.0.1"], report))
    except BenchmarkError as error:
        report.skipped["a group of remotes"] = str(error)
        return ""
    group = ", ".join(f"{name}: 'cdx+http://127.0.0.1:{port}/{name}-cdx'" for name in "xyz")
    return f"  g: {{index_group: {{{group}}}, timeout: 5}}\n"


def _big(folder: Path, rows: int) -> None:
    """An index of many URLs."""
    from archec.access.query import key_of

    key = key_of(_BIG)
    line = f'{key}%09d 20140101000000 {{"url": "{_BIG}%09d", "mime": "text/html"}}\n'
    with (folder / "big.cdxj").open("w", encoding="ascii") as file:
        for first in range(0, rows, 1000):
            file.write("".join([line % (n, n) for n in range(first, min(first + 1000, rows))]))


def _records(folder: Path, megabytes: int) -> None:
    """Two records of zeros in sparse files, with their index."""
    lines: list[str] = []
    for size in (megabytes // 10, megabytes):
        http = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n"
        length = len(http) + size * 1_000_000
        head = (
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2014-01-01T00:00:00Z\r\n"
            f"WARC-Target-URI: http://large.example.org/{size}\r\nContent-Type: application/http\r\n"
            f"Content-Length: {length}\r\n\r\n"
        ).encode()
        with (folder / f"{size}.warc").open("wb") as file:
            file.write(head + http)
            file.seek(len(head) + length)
            file.write(b"\r\n\r\n")
            place = f'"offset": "0", "length": "{file.tell()}", "filename": "{size}.warc"'
        key, url = f"org,example,large)/{size}", f"http://large.example.org/{size}"
        lines.append(f'{key} 20140101000000 {{"url": "{url}", {place}}}\n')
    (folder / "large.cdxj").write_text("".join(sorted(lines)))


def _own_store(folder: Path, urls: int) -> None:
    """An archive with the states of files."""
    from archec.archive.commit import CommitItem, Committer
    from archec.catalogue.engines import open_catalogue
    from archec.catalogue.journal_lines import ObiChange, RunStart
    from archec.catalogue.model import Note, Version
    from archec.config import Config
    from archec.store.journal import JournalWriter
    from archec.store.layout import create, open_store
    from archec.store.writer import Placement, Writer

    config = Config(base=folder)
    (folder / "data").mkdir()
    create(config.store_path)
    layout = open_store(config)
    catalogue = open_catalogue(config.database, base=config.base, create=True)
    headers = (("Content-Type", "text/html"),)
    for year in range(2010, 2015):
        run = 1262304000 + (year - 2010) * 31_556_952
        with closing(JournalWriter(layout, run)) as journal, closing(Writer(layout)) as writer:
            committer = Committer(writer, journal, catalogue)
            committer.add(CommitItem(RunStart(run)))
            for n in range(urls):
                url = _url(n)
                stored = writer.put(run, url, f"<p>{n} in {year}".encode())
                version = Version(stored.sha256, stored.md5, stored.size, None, "text/html")
                note = Note(run, "changed", status=200, headers=headers)
                change = ObiChange("fobi", url, "", {run: stored.sha256}, (), version, {run: note})
                committer.add(CommitItem(change, Placement(stored.temp, run, url, stored.sha256)))
            committer.commit()
    catalogue.close()


def _url(n: int) -> str:
    return f"http://host{n % 997}.example.org/page/{n}"
