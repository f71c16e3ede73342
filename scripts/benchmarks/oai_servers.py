"""OAI-PMH servers as processes of their own, and those who harvest them."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.fetch_servers import free_port, wait_for
from benchmarks.machine import cpu_seconds
from benchmarks.oai_records import DELETED, template
from benchmarks.running import BenchmarkError, archec, environment, run

__all__ = ["PAGE", "Site", "Walk", "archive", "serving", "sickle", "walk"]

PAGE = 100
"""Records of a page."""
_TOKEN = re.compile(rb"<resumptionToken[^>]*>([^<]+)</resumptionToken>")
_FILE = 500
"""Templates of one file."""
_CONFIGURATION = """
ReDIF_directory: RePEc
server: {access_log: ""}
oai: {repositoryIdentifier: bench.example.org}
"""
_HARVEST = """
import sys
from sickle import Sickle
found = Sickle(sys.argv[1]).ListRecords(metadataPrefix="oai_dc", ignore_deleted=False)
print(sum(1 for _ in found))
"""


class Site(NamedTuple):
    """A server: who it is, its process, its port."""

    name: str
    pid: int
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/oai"


class Walk(NamedTuple):
    """A walk over a whole list: its pages, seconds, CPU seconds of the server, bytes and records."""

    pages: int
    wall: float
    cpu: float
    size: int
    records: int


@contextmanager
def serving(name: str, command: Sequence[str | Path], folder: Path) -> Iterator[Site]:
    """A server process, from the time when it answers. ``{port}`` in a word of the command is its port."""
    port = free_port("127.0.0.1")
    log = folder / f"{name.replace(' ', '-')}.log"
    words = [str(word).replace("{port}", str(port)) for word in command]
    with (
        open(log, "wb") as out,
        subprocess.Popen(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out) as one,
    ):
        try:
            wait_for(one, f"127.0.0.1:{port}", log, patience=600.0)
            _until_open(port, log)
            yield Site(name, one.pid, port)
        finally:
            one.terminate()
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()


def _until_open(port: int, log: Path) -> None:
    """Waits until a list is given: archec's index is made first."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            client.request("GET", "/oai?verb=ListRecords&metadataPrefix=oai_dc")
            answer = client.getresponse()
            answer.read()
        finally:
            client.close()
        if answer.status == 200:
            return
        time.sleep(0.2)
    raise BenchmarkError(f"no list is given: {log.read_text(errors='replace')[-1000:]}")


def walk(site: Site) -> Walk:
    """Takes a whole list as fast as the server gives it, without parsing it."""
    client = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    pages = size = records = 0
    before, began = cpu_seconds(site.pid), time.perf_counter()
    rest = "metadataPrefix=oai_dc"
    try:
        while rest:
            client.request("GET", f"/oai?verb=ListRecords&{rest}", headers={"Accept-Encoding": "identity"})
            body = client.getresponse().read()
            pages, size, records = pages + 1, size + len(body), records + body.count(b"<record>")
            token = _TOKEN.search(body, max(0, len(body) - 2000))
            rest = f"resumptionToken={_escaped(token[1])}" if token else ""
    finally:
        client.close()
    return Walk(pages, time.perf_counter() - began, cpu_seconds(site.pid) - before, size, records)


def _escaped(token: bytes) -> str:
    return token.decode("ascii").replace("%", "%25").replace("+", "%2B").replace("&amp;", "%26").replace("=", "%3D")


def sickle(site: Site, folder: Path) -> tuple[float, int]:
    """A full harvest with Sickle, in a process of its own: its seconds, and the records that it got."""
    done = run([sys.executable, "-c", _HARVEST, site.url], folder)
    return done.wall, int(done.output)


def archive(folder: Path, count: int) -> None:
    """An archive with these records, of which those that are deleted were lost in a second run."""
    folder.mkdir()
    (folder / "config.yaml").write_text(_CONFIGURATION, encoding="ascii")
    place = folder / "RePEc" / "bmk" / "wpaper"
    place.mkdir(parents=True)
    archec(folder, "init", "--config", "config.yaml")
    for lost in (False, True):
        for start in range(0, count, _FILE):
            part = range(start, min(count, start + _FILE))
            texts = [template(n) for n in part if not (lost and n % DELETED == DELETED - 1)]
            (place / f"{start:08d}.rdf").write_text("\n".join(texts), encoding="ascii")
        archec(folder, "gather", "--no-fetch", "--json")
    os.sync()
