"""Stock pywb over a vault: its index agrees with ours, and it serves pages, redirects, revisits and templates.

pywb (GPL-3.0) is a peer in an environment of its own and no part of archec: ``ARCHEC_TEST_PYWB`` names the Python
of an environment into which it was installed with pip. Without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import httpx
import pytest
from export_support import PACKED, World, exported

from archec.errors import BadName
from archec.ids import normalise_url
from archec.urlkey import target_uri, urlkey

pytestmark = pytest.mark.slow

_KEYS = """
import json, sys
from pywb.utils.canonicalize import canonicalize
print(json.dumps([canonicalize(url) for url in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="session")
def pywb() -> Path:
    """The folder of pywb's programs."""
    python = os.environ.get("ARCHEC_TEST_PYWB")
    if not python:
        pytest.skip("ARCHEC_TEST_PYWB does not name the Python of an environment with pywb")
    return Path(python).absolute().parent


@pytest.fixture(scope="session")
def vault(pristine: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault as a collection of pywb."""
    folder = tmp_path_factory.mktemp("pywb") / "collections" / "vault"
    exported(pristine, folder)
    return folder


@pytest.fixture(scope="session")
def wayback(pywb: Path, vault: Path) -> Iterator[str]:
    """The address of pywb's server over the vault."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = vault.parents[1]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with open(folder / "log", "wb") as log, subprocess.Popen(
        [pywb / "wayback", "-b", "127.0.0.1", "-p", str(port)], cwd=folder, env=environ, stdout=log, stderr=log
    ) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
                    break
                except httpx.TransportError:
                    assert server.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/vault"
        finally:
            server.terminate()


def get(wayback: str, tist: int, uri: str, mode: str = "id_", **headers: str) -> httpx.Response:
    """A capture as it was recorded, followed nowhere."""
    when = datetime.fromtimestamp(tist, tz=timezone.utc).strftime("%Y%m%d%H%M%S")
    return httpx.get(f"{wayback}/{when}{mode}/{uri}", headers=headers, trust_env=False, timeout=30)


def test_pages_redirects_revisits_and_templates(wayback: str, pristine: World) -> None:
    urls, first, second = pristine.urls, pristine.first, pristine.second
    assert b"first" in get(wayback, first, urls["/b.html"]).content
    assert b"second" in get(wayback, second, urls["/b.html"]).content
    assert b"second" in get(wayback, second, urls["/b.html"], "mp_").content
    hop = get(wayback, first, urls["/hop"])
    assert (hop.status_code, hop.headers["location"]) == (302, urls["/old"])
    rewritten = get(wayback, first, urls["/hop"], "mp_")
    assert rewritten.headers["location"].endswith(f"mp_/{urls['/old']}")
    assert get(wayback, second, urls["/hop"]).status_code == 302
    for path, body in (("/a.pdf", b"%PDF-1.4\n% a"), ("/tagged", b"%PDF-1.4 tagged")):
        for tist in (first, second):
            found = get(wayback, tist, urls[path])
            assert (found.status_code, found.headers["content-type"]) == (200, "application/pdf")
            assert found.content.startswith(body)
    assert b"a directory" in get(wayback, first, urls["/dir/"]).content
    # Both URLs have one key, and pywb never serves the redirect from one to the other.
    found = get(wayback, second, urls["/dir"])
    assert found.headers["location"].endswith(f"id_/{urls['/dir/']}")
    packed = get(wayback, second, urls["/packed"], **{"Accept-Encoding": "gzip"})
    assert b"packed on its way" in packed.content
    assert len(PACKED) < len(packed.content)
    assert get(wayback, first, urls["/empty"]).content == b""
    tobi = get(wayback, 1_009_843_200, target_uri("RePEc:zzz:sss:1"))
    assert b"Title: Between" in tobi.content
    assert tobi.headers["memento-datetime"] == "Tue, 01 Jan 2002 00:00:00 GMT"


def test_its_own_index_is_the_same(pywb: Path, vault: Path) -> None:
    ours = sorted(line for path in (vault / "indexes").iterdir() for line in path.read_text().splitlines())
    ours = [line for line in ours if "urn:x-archec:lost:" not in line]  # metadata records, which pywb does not index
    command = [pywb / "cdx-indexer", "-j", "-r", "-d", "archive", "archive"]
    done = subprocess.run(command, cwd=vault, capture_output=True, text=True, check=True)
    theirs = sorted(done.stdout.splitlines())
    assert len(ours) == len(theirs) > 20

    def fields(line: str) -> tuple[str, str, dict[str, str]]:
        key, stamp, text = line.split(" ", 2)
        value = json.loads(text)
        value["digest"] = value["digest"].removeprefix("sha1:")
        value.pop("mime-detected", None)
        return key, stamp, value

    def order(found: tuple[str, str, dict[str, str]]) -> tuple[str, str]:
        return found[2]["filename"], found[2]["offset"].zfill(12)

    assert sorted(map(fields, ours), key=order) == sorted(map(fields, theirs), key=order)


def test_keys_are_those_of_pywb(pywb: Path) -> None:
    hosts = ("a.b", "www.nber.org", "www2.x.org", "www.www.x.y", "127.0.0.1:8080", "x.y.", "[2001:db8::1]:81", "mü.de")
    ends = (
        "", "/", "/a/", "/A//b.PDF", "/x/../y", "/%7Efoo/%20x%2Fy%e4", "/a%2525b", "/é%C3%89", "/?", "/?b=2&a=1&A=3",
        "/x?a=b%26c&&d", "/x?a", "/x;jsessionid=0123456789abcdef0123456789abcdef?y=1",
        "/(a0123456789bcdefghijklmn)/x.aspx", "/(a0123456789bcdefghijklmn)/x/(a0123456789bcdefghijklmn)/y.aspx",
        "/x?PHPSESSID=0123456789abcdef0123456789abcdef&z=1", "/x?z=1&sid=0123456789abcdef0123456789abcdef", "/x?z#y",
        "/x?cfid=1&cftoken=2&b=1", "/x?ASPSESSIONIDABCDEFGH=abcdefghijklmnopqrstuvwx", "/a+b|c^d`{}\"<>'()*~",
        "/%00%0A",
    )  # fmt: skip
    urls = [target_uri(handle) for handle in ("RePEc:aaa:sss:1", "RePEc:ü:%:x", "other:y")]
    for scheme in ("http", "https", "ftp"):
        for host in hosts:
            for end in ends:
                try:
                    urls.append(normalise_url(f"{scheme}://{host}{end}"))
                except BadName:
                    continue
    done = subprocess.run(
        [pywb / "python", "-I", "-c", _KEYS], input=json.dumps(urls), capture_output=True, text=True, check=True
    )
    theirs = dict(zip(urls, json.loads(done.stdout), strict=True))
    assert len(theirs) > 300
    assert {url: urlkey(url) for url in urls} == theirs
