"""Stock pywb as a client of ours (CDX, Memento, groups, sequences), and as a source of ours.

pywb (GPL-3.0) is a peer in an environment of its own and no part of archec. So is cdxj-indexer, which needs packages
under the AGPL. ``ARCHEC_TEST_PYWB`` names the Python of an environment into which both were installed with pip; without
it these tests are skipped.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from access_support import READER, client, configured, give_tokens, rows, serving, write_index
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from warc_files import Crawl

from archec.access.posts import Asked, PostedBody, key_of_request
from archec.cli.access import access
from archec.config import Config

pytestmark = pytest.mark.slow

DOCS = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
STAMPS = ("20140101000000", "20150101000000")
U = "http://a.org/x"


@pytest.fixture(scope="module")
def pywb() -> str:
    python = os.environ.get("ARCHEC_TEST_PYWB")
    if not python:
        pytest.skip("ARCHEC_TEST_PYWB does not name the Python of an environment with pywb")
    return python


@contextmanager
def running(python: str, folder: Path, text: str, program: str) -> Iterator[str]:
    """The base URL of one of pywb's servers with this configuration."""
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, "-c", f"from pywb.apps.cli import {program}; {program}()", "-p", str(port)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def crawl(folder: Path) -> None:
    one = Crawl(folder / "w" / "a.warc.gz")
    for n, stamp in enumerate(STAMPS):
        one.response(U, stamp, f"version {n}".encode())
    write_index(folder / "a.cdxj", one.close())


def test_pywb_asks_us(pywb: str, tmp_path: Path) -> None:
    crawl(tmp_path)
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}, none: ./missing.cdxj}")
    give_tokens(config)
    with serving(config) as url:
        here = url.replace("http://", f"http://pywb:{READER}@")
        text = f"""
collections:
  cdx: cdx+{here}/a/cdx /a/
  mem: memento+{here}/a/
  group: {{index_group: {{none: 'cdx+{here}/none/cdx', a: 'cdx+{here}/a/cdx /../a/'}}, timeout: 5}}
  seq: {{sequence: [{{index: 'cdx+{here}/none/cdx', name: none}}, {{index: 'memento+{here}/a/', name: mem}}]}}
"""
        with running(pywb, tmp_path / "pywb", text, "warcserver") as there, httpx.Client(base_url=there) as get:
            for coll in ("cdx", "mem", "group"):
                found = rows(get.get(f"/{coll}/index?url={U}&output=json&closest=2014", timeout=30).text)
                assert found, coll
                assert {row["timestamp"] for row in found} <= set(STAMPS)
            for coll in ("mem", "seq"):
                answer = get.get(f"/{coll}/resource?url={U}&closest=20140101000000", timeout=30)
                assert answer.status_code == 200, answer.text
                assert b"version 0" in answer.content


def test_pywb_in_front_of_us_shows_pages_and_templates(pywb: str, demo: Config, tmp_path: Path) -> None:
    crawl(tmp_path)
    config = configured(tmp_path, f"collections: {{a: {{index: a.cdxj, resource: ./w}}, own: archec+{demo.file}}}")
    give_tokens(config)
    with serving(config) as url:
        here = url.replace("http://", f"pywb:{READER}@")
        head, _, each = DOCS.split("```text pywb\n")[1].split("```")[0].replace("SERVER", here).partition("\n")
        text = f"{head}\n{each.replace('COLL', 'a')}{each.replace('COLL', 'own')}"
        with running(pywb, tmp_path / "pywb", text, "wayback") as there, httpx.Client(base_url=there) as get:
            assert get.get(f"/a/20140101id_/{U}", timeout=30).text == "version 0"
            template = get.get("/own/2036id_/urn:x-repec:dmo:wpaper:2011-11", timeout=30)
            assert template.status_code == 200, template.text
            assert template.text.startswith("Template-Type: ")


def test_we_ask_pywb(pywb: str, tmp_path: Path) -> None:
    crawl(tmp_path)
    theirs = f"collections: {{a: {{index: {tmp_path}/a.cdxj, archive_paths: {tmp_path}/w/}}}}"
    with running(pywb, tmp_path / "server", theirs, "wayback") as there:
        config = configured(
            tmp_path,
            f"""
collections:
  server: cdx+{there}/a/cdx
  mem: memento+{there}/a/
  group: {{index_group: {{cdx: 'cdx+{there}/a/cdx', mem: 'memento+{there}/a/'}}}}
""",
        )
        give_tokens(config)
        with serving(config) as url, client(url) as get:
            for coll in ("server", "mem", "group"):
                found = rows(get.get(f"/{coll}/index?url={U}&output=json").text)
                assert {row["timestamp"] for row in found} == set(STAMPS), coll
                answer = get.get(f"/{coll}/resource?url={U}&closest=20150101000000")
                assert answer.status_code == 200, answer.text
                assert b"version 1" in answer.content


def test_the_same_queries_have_the_same_rows(pywb: str, tmp_path: Path) -> None:
    crawl(tmp_path)
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    theirs = f"collections: {{a: {{index: {tmp_path}/a.cdxj, archive_paths: {tmp_path}/w/}}}}"
    queries = (
        f"url={U}", f"url={U}&closest=2014", f"url={U}&sort=reverse&limit=1", "url=a.org/*",
        "url=*.a.org&filter=!=status:404",
        f"url={U}&from=2015", f"url={U}&to=2014", f"url={U}&collapseTime=2", f"url={U}&fields=timestamp,url",
        f"url={U}&resolveRevisits=1", "url=none.org",
    )  # fmt: skip
    with running(pywb, tmp_path / "server", theirs, "warcserver") as there, serving(config) as url, client(url) as get:
        for query in queries:
            ours = rows(get.get(f"/a/index?output=json&{query}").text)
            other = rows(httpx.get(f"{there}/a/index?output=json&{query}").text)
            assert [{k: v for k, v in row.items() if k != "source_type"} for row in ours] == other, query


def test_the_index_agrees_with_that_of_cdxj_indexer(pywb: str, tmp_path: Path) -> None:
    program = [pywb, "-c", "from cdxj_indexer.main import main; main()"]
    if subprocess.run([*program, "--help"], capture_output=True, check=False).returncode:
        pytest.skip("cdxj-indexer is not installed beside pywb")
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    first = crawl.response("http://www.a.org/Path?b=2&a=1", STAMPS[0], b"first")
    crawl.revisit("http://www.a.org/Path?b=2&a=1", STAMPS[1], first)
    crawl.response("http://a.org/moved", STAMPS[0], b"", status="301 Moved", headers={"Location": "/x"})
    crawl.close()
    assert CliRunner().invoke(access, ["index", str(tmp_path / "w")]).exit_code == 0
    theirs = ["-s", "-o", str(tmp_path / "other.cdxj"), str(tmp_path / "w" / "a.warc.gz")]
    subprocess.run([*program, *theirs], check=True)

    def known(path: Path) -> list[tuple[str, ...]]:
        found = [one.split(" ", 2) for one in path.read_text().splitlines()]
        names = ("url", "mime", "offset", "length", "digest", "filename")
        return [(key, stamp, *(json.loads(value)[name] for name in names)) for key, stamp, value in found]

    def plain(values: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return [tuple(value.rpartition("sha1:")[2] for value in row) for row in values]

    assert plain(known(tmp_path / "w.cdxj")) == plain(known(tmp_path / "other.cdxj"))


_THEIR_KEYS = """
import base64, io, json, sys
from pywb.utils.canonicalize import canonicalize
from pywb.warcserver.inputrequest import MethodQueryCanonicalizer
for line in sys.stdin:
    method, kind, body = json.loads(line)
    data = base64.b64decode(body)
    made = MethodQueryCanonicalizer(method, kind, len(data), io.BytesIO(data))
    print(json.dumps(canonicalize(made.append_query("http://www.a.org/p?b=2"))))
"""
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("a b\u00e9")
_NAMES = st.sampled_from(["a", "b", "a.2_"])
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner))
_TEXTS = st.text("ab=&+% #\n?;/\u00e9", max_size=30)
_PARTS = st.lists(st.tuples(st.sampled_from(['name="a"', "name=b", "filename=f; name=c", "x"]), st.binary(max_size=9)))


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    kind = draw(st.sampled_from(["application/x-www-form-urlencoded", "application/json", "text/plain", "a/b", ""]))
    if draw(st.booleans()):
        ends = draw(st.sampled_from([b"\r\n", b"\n"]))
        parts = [b"Content-Disposition: form-data; " + one.encode() + ends * 2 + data for one, data in draw(_PARTS)]
        return "multipart/form-data; boundary=xx", b"".join(b"--xx" + ends + one + ends for one in parts) + b"--xx--"
    if kind.endswith(("json", "plain")):
        return kind, json.dumps(draw(_VALUES)).encode()
    return kind, draw(_TEXTS).encode()


def test_posts_have_the_keys_of_pywb(pywb: str) -> None:
    asked: list[tuple[str, str, bytes]] = []

    @settings(database=None, max_examples=300, derandomize=True)
    @given(st.sampled_from(["POST", "PUT", "PATCH"]), _bodies())
    def collect(method: str, made: tuple[str, bytes]) -> None:
        asked.append((method, *made))

    collect()
    lines = "".join(json.dumps([method, kind, b64encode(body).decode()]) + "\n" for method, kind, body in asked)
    run = subprocess.run([pywb, "-c", _THEIR_KEYS], input=lines, capture_output=True, text=True, check=True)
    theirs = [json.loads(one) for one in run.stdout.splitlines()]
    for (method, kind, body), key in zip(asked, theirs, strict=True):
        request = Asked(method, (("Content-Type", kind),), PostedBody(io.BytesIO(body)))
        assert key_of_request("http://www.a.org/p?b=2", request) == key, (method, kind, body)
