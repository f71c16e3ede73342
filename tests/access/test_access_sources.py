"""Indexes in Redis, ZipNum and WACZ files, folders of WARC files; and what 'archec access explain' says."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import zipfile
from base64 import b32encode
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_support import client, configured, give_tokens, line, rows, serving, write_index
from click.testing import CliRunner
from warc_files import Crawl

from archec.access import index_files, wacz
from archec.access.index_files import SortedFile
from archec.access.obi_source import Wholeness, looking_up, subjects_of
from archec.access.rows import RowOrigin, any_row
from archec.access.rules import Level, Rules
from archec.access.tokens import Token, hash_of
from archec.archive.opening import opened, rebuild
from archec.catalogue.model import Position
from archec.catalogue.sqlite import SQLiteCatalogue
from archec.cli.access import access
from archec.config import Config, RuleConfig, load, parse
from archec.errors import CatalogueError, NotHeld, UsageError
from archec.urlkey import target_uri

S = "20140101000000"
STAMPS = ("20130101000000", S, "20150101000000")
ARC_FIELDS = b"1 0 Test\nURL IP-address Archive-date Content-type Archive-length\n"


def asked(get: httpx.Client, coll: str, query: str) -> list[dict[str, Any]]:
    answer = get.get(f"/{coll}/index?output=json&{query}")
    assert "reserrors" not in answer.headers, answer.headers["reserrors"]
    return rows(answer.text)


def all_orders(get: httpx.Client, coll: str, url: str, stamps: Sequence[str]) -> None:
    """The captures of a URL forwards, backwards, and from the middle one outwards."""

    def found(query: str) -> list[str]:
        return [row["timestamp"] for row in asked(get, coll, f"url={url}&{query}")]

    assert found("") == list(stamps)
    assert found("sort=reverse") == list(stamps)[::-1]
    assert found(f"closest={stamps[1]}&limit=1") == [stamps[1]]
    assert found(f"from={stamps[1]}&to={stamps[1]}") == [stamps[1]]


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("there is no redis-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield port
        server.terminate()


def test_redis(redis_port: int, tmp_path: Path) -> None:
    import redis

    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for stamp in STAMPS:
        crawl.response("http://a.org/", stamp, stamp.encode())
    store = redis.Redis(port=redis_port, db=3, protocol=2)
    store.zadd("coll:one", dict.fromkeys(crawl.close(), 0))
    store.zadd("coll:two", {line(f"http://many.org/{n:05d}", S): 0 for n in range(1200)})
    store.hset("paths", "a.warc.gz", str(tmp_path / "w" / "a.warc.gz"))
    url = f"redis://127.0.0.1:{redis_port}/3"
    config = configured(
        tmp_path,
        f"""
collections:
  one: {{index: '{url}/coll:one', resource: 'warc-index+{url}/paths'}}
  all: {{index: {{type: redis, redis_url: '{url}/coll:*'}}}}
  gone: redis://127.0.0.1:1/x
""",
    )
    give_tokens(config)
    with serving(config) as base, client(base) as get, store:
        all_orders(get, "one", "a.org", STAMPS)
        assert get.get("/one/resource?url=a.org").status_code == 200
        many = [row["url"] for row in asked(get, "all", "url=many.org/*")]
        assert many == [f"http://many.org/{n:05d}" for n in range(1200)]
        assert asked(get, "all", "url=many.org/*&sort=reverse&limit=1")[0]["url"] == many[-1]
        assert "Redis" in json.loads(get.get("/gone/index?url=a.org").headers["reserrors"])["gone"]


def test_a_redis_that_says_nothing_holds_up_nobody_else(tmp_path: Path) -> None:
    write_index(tmp_path / "a.cdxj", [line("http://a.org/", S)])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"redis://127.0.0.1:{silent.getsockname()[1]}/key"
        config = configured(tmp_path, f"collections: {{r: {{index: '{place}', index_timeout: 0.8}}, a: a.cdxj}}")
        give_tokens(config)
        with serving(config) as base, client(base) as get, ThreadPoolExecutor(1) as others:
            hanging = others.submit(httpx.get, f"{base}/r/index?url=a.org&closest=2014", headers=get.headers)
            silent.accept()  # it has been asked
            assert get.get("/a/index?url=a.org").text
            assert not hanging.done()
            assert "r" in json.loads(hanging.result().headers["reserrors"])
            assert hanging.result().elapsed.total_seconds() < 1.6


@pytest.mark.parametrize("key", ["key", "key*"])
def test_a_redis_that_keeps_failing_is_left_out_for_a_while(tmp_path: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"redis://127.0.0.1:{silent.getsockname()[1]}/{key}"
        config = configured(tmp_path, f"collections: {{r: {{index: '{place}', index_timeout: 0.2}}}}")
        give_tokens(config)
        with serving(config) as base, client(base) as get:
            reasons = [json.loads(get.get("/r/index?url=a.org").headers["reserrors"])["r"] for _ in range(4)]
            assert ["left out" in reason for reason in reasons] == [False, False, False, True]
            assert get.get("/r/list_sources").json()["left_out"] == ["r"]


def test_a_key_that_is_no_index_costs_a_redis_nothing_else(redis_port: int, tmp_path: Path) -> None:
    import redis

    config = configured(tmp_path, f"collections: {{r: 'redis://127.0.0.1:{redis_port}/4/mixed:*'}}")
    give_tokens(config)
    with redis.Redis(port=redis_port, db=4, protocol=2) as store, serving(config) as base, client(base) as get:
        store.set("mixed:a", "text")
        store.zadd("mixed:b", {line("http://a.org/", S): 0})
        for _ in range(5):
            answer = get.get("/r/index?url=a.org")
            assert answer.text.count("\n") == 1
            assert "Redis refuses the request: WRONGTYPE" in answer.headers["reserrors"]


def test_a_redis_that_fails_is_not_asked_again_and_again(tmp_path: Path) -> None:
    """Nor does one that has the paths of files keep the next place from being tried."""
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response("http://a.org/", S, b"page")
    write_index(tmp_path / "a.cdxj", crawl.close())
    with socket.create_server(("127.0.0.1", 0)) as port, ThreadPoolExecutor(1) as others:
        place = f"redis://127.0.0.1:{port.getsockname()[1]}/key"
        text = f"collections: {{r: '{place}', p: {{index: a.cdxj, resource: ['warc-index+{place}', ./w]}}}}"
        config = configured(tmp_path, text)
        give_tokens(config)
        with serving(config) as base, client(base) as get:
            for path, answered in (("/r/index?url=a.org", b""), ("/p/resource?url=a.org", b"page\r\n\r\n")):
                port.settimeout(10)
                asked = others.submit(get.get, path)
                for _ in range(2):
                    port.accept()[0].close()
                assert asked.result(4).content.endswith(answered)
                port.settimeout(0)
                with pytest.raises(BlockingIOError):
                    port.accept()


def zipnum(folder: Path, lines: Sequence[bytes], block: int = 4) -> None:
    """A ZipNum index with few lines in a block."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered, summary, data = sorted(lines), [], b""
    for number, at in enumerate(range(0, len(ordered), block)):
        packed = gzip.compress(b"".join(one + b"\n" for one in ordered[at : at + block]))
        head = b" ".join(ordered[at].split(b" ")[:2])
        summary.append(head + f"\tpart-0\t{len(data)}\t{len(packed)}\t{number + 1}".encode())
        data += packed
    (folder / "index.idx").write_bytes(b"".join(one + b"\n" for one in summary))
    (folder / "part-0.gz").write_bytes(data)


def test_zipnum(tmp_path: Path) -> None:
    lines = [line("http://a.org/", stamp) for stamp in STAMPS]
    lines += [line(f"http://many.org/{n:05d}", S) for n in range(100)]
    zipnum(tmp_path / "z", lines)
    (tmp_path / "z" / "part-0.cdx.gz").symlink_to("part-0.gz")
    config = configured(tmp_path, "collections: {z: zipnum+./z/index.idx, folder: ./z}")
    give_tokens(config, Token("feeder", hash_of("feeder"), ("write",)))
    with serving(config) as base, client(base) as get:
        all_orders(get, "z", "a.org", STAMPS)
        assert [len(asked(get, coll, "url=many.org/*")) for coll in ("z", "folder")] == [100, 100]
        backwards = asked(get, "z", "url=many.org/*&sort=reverse")
        assert backwards == asked(get, "z", "url=many.org/*")[::-1]
        blocks = asked(get, "z", "url=many.org/*&showPagedIndex=true&limit=2")
        summary = (tmp_path / "z" / "index.idx").read_text().splitlines(keepends=True)
        assert [list(one) for one in blocks] == [["urlkey", "part", "offset", "length", "lineno"]] * 2
        assert blocks[0]["urlkey"] <= "org,many)/00000 " < blocks[1]["urlkey"]
        text = get.get("/z/index?url=many.org/*&showPagedIndex=true&output=text").text
        own = summary[blocks[0]["lineno"] - 1 :]
        assert text == "".join(own)
        for size in (1, 3, 10):
            query = f"url=many.org/*&pageSize={size}"
            pages = -(-len(own) // size)
            counted = get.get(f"/z/cdx?{query.removesuffix('&pageSize=10')}&showNumPages=true").json()
            assert counted == {"pages": pages, "pageSize": size, "blocks": len(own)}
            paged = [row["url"] for page in range(pages) for row in asked(get, "z", f"{query}&page={page}")]
            assert paged == [f"http://many.org/{n:05d}" for n in range(100)]
        text = get.get("/z/index?url=many.org/*&showPagedIndex=true&output=text&page=2&pageSize=3").text
        assert text == "".join(own[6:9])
        for none in ("many.org/00000x", "before.example", "zzz.zz"):
            counted = get.get(f"/z/cdx?url={none}&showNumPages=true").json()
            assert (counted["pages"], counted["blocks"]) == (0, 0)
        with client(base, "feeder") as feeder:
            assert feeder.get("/z/index?url=many.org/*&showPagedIndex=true").status_code == 403
        whole = (tmp_path / "z" / "part-0.gz").read_bytes()
        for damaged in (b"no gzip at all" * 100, whole[:-1], b""):
            (tmp_path / "z" / "part-0.gz").write_bytes(damaged)
            assert "damaged" in get.get("/z/index?url=many.org/00099").headers["reserrors"]


def test_a_missing_part_of_a_zipnum_index_costs_its_own_pages_only(tmp_path: Path) -> None:
    zipnum(tmp_path / "z", [line(f"http://many.org/{n:05d}", S) for n in range(40)])
    summary = (tmp_path / "z" / "index.idx").read_bytes().splitlines(keepends=True)
    (tmp_path / "z" / "index.idx").write_bytes(
        b"".join(one.replace(b"part-0", b"gone" if number < 4 else b"part-0") for number, one in enumerate(summary))
    )
    config = configured(tmp_path, "collections: {z: zipnum+./z/index.idx}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        query = "/z/index?url=many.org/*&pageSize=2&page="
        pages = [get.get(f"{query}{page}") for page in range(5)]
        assert [one.text.count("\n") for one in pages] == [0, 0, 8, 8, 8]
        assert ["reserrors" in one.headers for one in pages] == [True, True, False, False, False]
        assert "gone" in get.get("/z/index?url=many.org/00015").headers["reserrors"]


def test_wacz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for stamp in STAMPS:
        crawl.response("http://a.org/", stamp, stamp.encode())
    write_index(tmp_path / "index.cdxj", crawl.close())
    with zipfile.ZipFile(tmp_path / "a.wacz", "w") as packed:
        packed.write(tmp_path / "index.cdxj", "indexes/index.cdx", zipfile.ZIP_DEFLATED)
        packed.write(tmp_path / "w" / "a.warc.gz", "archive/a.warc.gz", zipfile.ZIP_STORED)
        packed.writestr("datapackage.json", "{}")
    with zipfile.ZipFile(tmp_path / "deflated.wacz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(tmp_path / "index.cdxj", "indexes/index.cdx")
        packed.write(tmp_path / "w" / "a.warc.gz", "archive/a.warc.gz")
    zipnum(tmp_path / "z", (tmp_path / "index.cdxj").read_bytes().splitlines(), block=2)
    summary = b'!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}\n'
    for one in (tmp_path / "z" / "index.idx").read_bytes().splitlines():
        start, _, offset, length, _ = one.split(b"\t")
        summary += b'%b {"offset": %b, "length": %b, "digest": "sha256:0"}\n' % (start, offset, length)
    with zipfile.ZipFile(tmp_path / "z.wacz", "w") as packed:
        packed.writestr("indexes/sub/index.idx", summary)
        packed.write(tmp_path / "z" / "part-0.gz", "indexes/sub/index.cdx.gz")
        packed.writestr(f"indexes/{'l' * 200}/{'m' * 100}.cdxj", b"")
        packed.write(tmp_path / "w" / "a.warc.gz", "archive/a.warc.gz")
    (tmp_path / "bad.wacz").write_bytes(b"no zip")
    monkeypatch.setattr(wacz, "_MAX_DIRECTORY", 1000)
    for module in (wacz, index_files):
        monkeypatch.setattr(module, "MAX_UNPACKED", 10_000)
    bombs = {"many": {f"archive/{n}": b"" for n in range(30)}, "large": {"indexes/a.cdx": bytes(10_001)}}
    bombs |= {"name": {"indexes/é.cdx": b""}, "long": {f"indexes/{'n' * 300}.cdx": b""}}
    bombs["packed"] = {"indexes/a.cdx.gz": gzip.compress(bytes(10_001))}
    for name, files in bombs.items():
        with zipfile.ZipFile(tmp_path / f"{name}.wacz", "w", zipfile.ZIP_DEFLATED) as packed:
            for path, data in files.items():
                packed.writestr(path, data)
    other = Crawl(tmp_path / "other" / "a.warc.gz")
    other.response("http://b.org/", STAMPS[0], b"other")
    with zipfile.ZipFile(tmp_path / "other.wacz", "w") as packed:
        packed.writestr("indexes/index.cdx", other.close()[0])
        packed.write(tmp_path / "other" / "a.warc.gz", "archive/a.warc.gz")
    (tmp_path / "name.wacz").write_bytes((tmp_path / "name.wacz").read_bytes().replace("é".encode(), b"\xff9"))
    text = "collections: {g: {index_group: {o: ./other.wacz, a: ./a.wacz}}, z: ./z.wacz, "
    text += "deflated: ./deflated.wacz, a: ./a.wacz, b: {index: ./index.cdxj, resource: ./a.wacz}, bad: ./bad.wacz"
    text += "".join(f", {name}: ./{name}.wacz" for name in bombs) + "}"
    config = configured(tmp_path, text)
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        all_orders(get, "a", "a.org", STAMPS)
        all_orders(get, "z", "a.org", STAMPS)
        assert [row["offset"] for row in asked(get, "z", "url=a.org&showPagedIndex=true")] == [0, int(offset)]
        assert b"other" in get.get("/g/resource?url=b.org").content
        for coll in ("a", "b", "g", "z"):
            assert STAMPS[0].encode() in get.get(f"/{coll}/resource?url=a.org").content
        assert "WACZ" in get.get("/bad/index?url=a.org").headers["reserrors"]
        reason = "a.warc.gz is compressed in deflated.wacz, where it must be stored as it is"
        assert get.get("/deflated/resource?url=a.org").json()["errors"]["deflated:index.cdx"].startswith(reason)
        assert get.get("/a/cdx?url=a.org&showNumPages=true").json()["pages"] == 1
        assert len(rows(get.get("/a/cdx?url=a.org&page=0&output=json").text)) == len(STAMPS)
        assert get.get("/bad/cdx?url=a.org&showNumPages=true").json()["pages"] == 0
        reasons = dict.fromkeys(("large", "packed"), "10000 bytes when")
        reasons |= {"many": "1000 bytes", "name": "not a readable WACZ", "long": 'WACZ file: File name too long"'}
        for name, reason in reasons.items():
            assert reason in get.get(f"/{name}/index?url=a.org").headers["reserrors"]
            assert f"{name}:" in get.get("/healthz").json()["faults"]["access"]


def test_a_wacz_with_indexes_in_subfolders_and_one_that_replaces_it(tmp_path: Path) -> None:
    """All its indexes count, whatever their names; another file in its place is noticed by more than its time."""
    file = tmp_path / "a.wacz"

    def pack(hosts: str) -> Path:
        made = tmp_path / "new.wacz"
        with zipfile.ZipFile(made, "w") as packed:
            for host in hosts:
                packed.writestr(f"indexes/{host}/index.cdxj", line(f"http://{host}.org/", STAMPS[0]))
        os.utime(made, (1_000_000_000, 1_000_000_000))
        return made.rename(file)

    pack("ab")
    config = configured(tmp_path, "collections: {a: ./a.wacz}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        assert [row["url"] for row in asked(get, "a", "url=*.org")] == ["http://a.org/", "http://b.org/"]
        pack("bc")
        assert [row["url"] for row in asked(get, "a", "url=*.org")] == ["http://b.org/", "http://c.org/"]


def test_what_killed_servers_have_extracted_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.wacz", "w") as packed:
        packed.writestr("indexes/index.cdxj", line("http://a.org/", S))
    config = configured(tmp_path, "collections: {a: ./a.wacz}")
    give_tokens(config)
    old = tmp_path / "archec-wacz-old" / "0"
    old.mkdir(parents=True)
    with serving(config) as base, client(base) as get:
        assert get.get("/a/index?url=a.org").text
        (used,) = tmp_path.glob("archec-wacz-*")
        with serving(config) as other, client(other) as again:
            assert again.get("/a/index?url=a.org").text
            assert used.exists(), "another process uses it"
            assert len(set(tmp_path.glob("archec-wacz-*"))) == 2
    assert not list(tmp_path.glob("archec-wacz-*"))


def test_the_directory_one_is_in_is_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own name, and without what only looks like a file."""
    crawl = Crawl(tmp_path / "w" / "sub" / "a.warc.gz")
    crawl.response("http://a.org/", S, b"first")
    crawl.close()
    os.mkfifo(tmp_path / "w" / "pipe.warc.gz")
    (tmp_path / "w" / "lost.warc").symlink_to("nothing")
    for folder, name in (("w", "."), ("w/sub", "..")):
        monkeypatch.chdir(tmp_path / folder)
        run = CliRunner().invoke(access, ["index", "--json", name])
        assert run.exit_code == 0, run.output
        assert json.loads(run.stdout)["index"] == str(tmp_path / "w.cdxj")
    assert (tmp_path / "w.cdxj").read_bytes().startswith(b"org,a)/ ")


def test_folders_of_warc_files_are_indexed_and_served(tmp_path: Path) -> None:
    one = Crawl(tmp_path / "w" / "sub" / "one.warc.gz")
    first = one.response("http://a.org/", STAMPS[0], b"first")
    one.revisit("http://a.org/", STAMPS[1], first)
    one.other("metadata", "http://a.org/meta", S, b"x", "text/plain")
    one.close()
    config = configured(tmp_path, "collections: {w: warc+./w}")
    give_tokens(config)

    def index() -> dict[str, Any]:
        run = CliRunner().invoke(access, ["index", "--json", str(tmp_path / "w")])
        assert run.exit_code == 0, run.output
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    with serving(config) as base, client(base) as get:
        assert "w" in json.loads(get.get("/w/index?url=a.org").headers["reserrors"])
        assert (index()["read"], index()["read"]) == (1, 0)
        assert [row["timestamp"] for row in asked(get, "w", "url=a.org")] == list(STAMPS[:2])
        assert b"first" in get.get("/w/resource?url=a.org&closest=2014").content
        two = Crawl(tmp_path / "w" / "two.warc", gzip=False)
        two.response("http://a.org/", STAMPS[2], b"second")
        two.close()
        done = index()
        assert (done["files"], done["read"], done["rows"]) == (2, 1, 4)
        assert b"second" in get.get("/w/resource?url=a.org&closest=2016").content
        (tmp_path / "w" / "two.warc").unlink()
        assert index()["rows"] == 3
        posted = Crawl(tmp_path / "w" / "posted.warc.gz")
        posted.request("http://p.org/", S, b"b=two&a=1", "application/x-www-form-urlencoded")
        posted.response("http://p.org/", S, b"answer", headers={"Content-Type": "Text/x charset=utf-8"})
        posted.request("http://a.org/", "20130101000000", b"", "text/plain", "HEAD")
        posted.response("http://a.org/", "20130101000000", b"")
        posted.close()
        body = b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\nno gzip"
        arc = [(b"filedesc://a.arc 0.0.0.0", ARC_FIELDS), (b"http://arc.org/b c 192.0.2.1", body)]
        name = b"dns:arc.org 192.0.2.9 20140101000000 text/dns 3\nA 1\n"
        (tmp_path / "w" / "a.arc").write_bytes(
            b"".join(b"%s 20140101000000 text/plain %d\n%s\n" % (place, len(data), data) for place, data in arc) + name
        )
        assert index()["rows"] == 7
        assert b"first" in get.get("/w/resource?url=a.org").content  # no response to HEAD
        (looked_up,) = asked(get, "w", "url=dns:arc.org")
        assert (looked_up["mime"], "status" in looked_up) == ("text/dns", False)
        assert b"answer" in get.post("/w/resource?url=p.org", data={"a": "1", "b": "two"}).content
        assert [row["mime"] for row in asked(get, "w", "url=p.org*")] == ["Text/x"]
        (old,) = asked(get, "w", "url=http://arc.org/b c")
        assert old["digest"] == "sha1:" + b32encode(hashlib.sha1(b"no gzip").digest()).decode()
        assert get.get("/w/resource?url=http://arc.org/b%20c").content.endswith(b"no gzip\r\n\r\n")
        cut = Crawl(tmp_path / "w" / "cut.warc", gzip=False)
        cut.response("http://cut.org/", S, b"x" * 1000)
        cut.close()
        (tmp_path / "w" / "cut.warc").write_bytes((tmp_path / "w" / "cut.warc").read_bytes()[:900])
        for _ in range(2):
            run = CliRunner().invoke(access, ["index", str(tmp_path / "w")])
            assert run.exit_code == 6
            assert f"{tmp_path}/w/cut.warc: is truncated in the record at 0" in run.stderr


@pytest.mark.parametrize("is_request_first", [True, False])
def test_each_of_several_posts_in_a_second_has_its_own_response(tmp_path: Path, *, is_request_first: bool) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for body in ("1", "2", "3"):
        if is_request_first:
            crawl.request("http://p.org/", S, f"k={body}".encode(), "application/x-www-form-urlencoded")
        answer = crawl.response("http://p.org/", S, body.encode())
        if not is_request_first:
            crawl.request("http://p.org/", S, f"k={body}".encode(), "application/x-www-form-urlencoded")
    crawl.revisit("http://p.org/", "20150101000000", answer)
    crawl.request("http://p.org/", "20150101000000", b"k=3", "application/x-www-form-urlencoded")
    crawl.close()
    assert CliRunner().invoke(access, ["index", str(tmp_path / "w")]).exit_code == 0
    config = configured(tmp_path, "collections: {w: warc+./w}\naccess: {open: content}")
    with serving(config) as base, client(base, "") as get:
        for body in ("1", "2", "3"):
            loaded = get.post("/w/resource?url=p.org", data={"k": body})
            assert loaded.content.endswith(f"\r\n\r\n{body}\r\n\r\n".encode())
        again = get.post("/w/resource?url=p.org&closest=2015", data={"k": "3"})
        assert again.headers["memento-datetime"] == "Thu, 01 Jan 2015 00:00:00 GMT"
        assert again.content.endswith(b"\r\n\r\n3\r\n\r\n")


def test_a_head_has_its_own_captures_or_those_of_get(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response("http://a.org/", S, b"page")
    for url in ("http://a.org/", "http://b.org/"):
        crawl.request(url, "20150101000000", b"", "text/plain", "HEAD")
        crawl.response(url, "20150101000000", b"", headers={"Content-Length": "99"})
    crawl.response("http://c.org/", S, b"page")
    crawl.close()
    assert CliRunner().invoke(access, ["index", str(tmp_path / "w")]).exit_code == 0
    config = configured(tmp_path, "collections: {w: warc+./w}\naccess: {open: content}")
    with serving(config) as base, client(base, "") as get:
        for host, method, date, length in (
            ("a", "GET", "01 Jan 2014", "4"), ("a", "HEAD", "01 Jan 2015", "99"), ("b", "HEAD", "01 Jan 2015", "99"),
            ("c", "HEAD", "01 Jan 2014", "4"), ("a.org&closest=20140101&x=", "HEAD", "01 Jan 2014", "4"),
            ("a.org&closest=20150101&x=", "HEAD", "01 Jan 2015", "99"),
            ("b.org&closest=20140101&x=", "HEAD", "01 Jan 2015", "99"),
        ):  # fmt: skip
            loaded = get.post(f"/w/resource-post?url={host}.org", content=f"{method} /\r\n\r\n")
            assert (loaded.status_code, loaded.headers["memento-datetime"][5:16]) == (200, date), (host, method)
            assert f"Content-Length: {length}\r\n\r\n" in loaded.text
        assert get.post("/w/resource-post?url=b.org", content="GET /").status_code == 404


def test_metadata_of_another_record_is_no_capture(tmp_path: Path) -> None:
    """Heritrix writes one with the URL and the time of each response."""
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    page = crawl.response("http://a.org/", S, b"page").rec_headers.get_header("WARC-Record-ID")
    fields = "application/warc-fields"
    crawl.other("metadata", "http://a.org/", S, b"via: x\r\n", fields, **{"WARC-Concurrent-To": page})
    crawl.other("metadata", "http://a.org/", S, b"via: x\r\n", fields, **{"WARC-Refers-To": page})
    crawl.other("metadata", "metadata://a.org/own", S, b"k: v\r\n", fields)
    crawl.other("metadata", "urn:x-archec:lost:http://a.org/", S, b"k: v\r\n", fields, **{"WARC-Refers-To": page})
    crawl.close()
    run = CliRunner().invoke(access, ["index", str(tmp_path / "w")])
    assert run.exit_code == 0
    found = [json.loads(row.split(" ", 2)[2]) for row in (tmp_path / "w.cdxj").read_text().splitlines()]
    assert [row["mime"] for row in found] == ["text/html", fields, fields]


def test_explain_says_which_rule_decides(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        """
collections: {a: a.cdxj}
access:
  rules:
    - {host: secret.org, rights: withdrawn, reason: asked for}
    - {networks: [10.0.0.0/8], rights: open}
    - {url_prefix: 'http://a.org/p', rights: metadata}
""",
    )
    give_tokens(config, Token("old", hash_of("old"), ("content",), (), int(time.time()) - 1))

    def said(*arguments: str) -> dict[str, Any]:
        run = CliRunner().invoke(access, ["explain", "--json", *arguments, "--config", str(config.file)])
        assert run.exit_code == 0, run.output
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    assert said("http://x.org/") | {"mime": ""} == {
        "id": "http://x.org/", "depends_on_address": "rule 2", "url": "http://x.org/", "held": False,
        "anybody": "nothing", "by": "access.open", "withdrawn": False, "mime": "", "reason": "",
    }  # fmt: skip
    assert said("a.org/p/1")["by"] == "rule 3"
    assert said("http://x.org/", "--address", "10.1.1.1")["anybody"] == "content"
    withdrawn = said("http://www.secret.org/", "--token", "reader")
    assert (withdrawn["withdrawn"], withdrawn["reason"], withdrawn["token"]) == (True, "asked for", "metadata")
    assert said("http://x.org/", "--token", "old")["token"] == "nothing"
    own = said("http://x.org/", "--token", "reader")
    assert (own["token"], own["collections"]) == ("content", None)
    plain = CliRunner().invoke(access, ["explain", "http://a.org/p", "--config", str(config.file)])
    nothing = "    there is no archive; rows of indexes are judged by their own time and media type\n"
    nothing = f"    rule 2 depends on the address: give --address\n{nothing}"
    assert plain.stdout == f"http://a.org/p: metadata is public, by rule 3\n{nothing}"
    assert said("RePEc:AAA:wpaper:1")["id"] == "RePEc:aaa:wpaper:1"
    fileset = said("fileset:Zenodo:zenodo.org:1@2", "--address", "10.1.1.1")
    assert (fileset["id"], fileset["url"]) == (
        "fileset:zenodo:zenodo.org:1", "urn:x-archec:fileset:zenodo:zenodo.org:1"
    )  # fmt: skip
    assert (fileset["by"], "depends_on_address" in fileset) == ("rule 2", False)
    assert "depends_on_address" not in said("http://secret.org/")
    no_address = ["explain", "x.org", "--address", "foo", "--config", str(config.file)]
    assert isinstance(CliRunner().invoke(access, no_address).exception, UsageError)
    unknown = CliRunner().invoke(access, ["explain", "x.org", "--token", "zzz", "--config", str(config.file)])
    assert unknown.exit_code != 0
    config.file.write_text(config.file.read_text().replace("access:", "access:\n  open: metadata"))
    withdrawn = said("http://www.secret.org/")
    assert (withdrawn["withdrawn"], withdrawn["anybody"]) == (True, "metadata"), "its row is in the index"


@pytest.mark.parametrize(("rights", "items", "by_oai"), [
    ("withdrawn", "both", True), ("closed", "tobi", True), ("withdrawn", "fobi", False), ("open", "both", False),
])  # fmt: skip
def test_explain_says_that_oai_gives_templates_to_everybody(
    demo: Config, rights: str, items: str, by_oai: bool
) -> None:
    file = demo.file.with_name("explained.yaml")
    text = demo.file.read_text().replace("  rules: []", f"  rules: [{{archive: dmo, rights: {rights}}}]")
    file.write_text(text.replace("  items: both", f"  items: {items}"))
    with opened(demo) as archive:
        tobi = next(one.id for one in archive.catalogue.all("tobi") if one.history.lost is None)
    explain = ["explain", tobi, "--config", str(file)]
    assert ("/oai gives the template to everybody" in CliRunner().invoke(access, explain).stdout) == by_oai
    assert ("oai" in json.loads(CliRunner().invoke(access, [*explain, "--json"]).stdout)) == by_oai


@pytest.mark.parametrize("doi", ["10.9999/nope", "doi:10.9999/nope", "https://doi.org/10.9999/nope"])
def test_explain_takes_no_doi_for_a_url(demo: Config, doi: str, tmp_path: Path) -> None:
    """It would speak of the host 10.9999."""
    run = CliRunner().invoke(access, ["explain", doi, "--config", str(demo.file)])
    if doi.startswith("https:"):
        assert run.stdout.startswith(f"{doi}: nothing is public")
    else:
        assert isinstance(run.exception, NotHeld)
        assert "archec fileset list" in str(run.exception)
    address = CliRunner().invoke(access, ["explain", "10.1.2.3", "--config", str(demo.file)])
    assert address.stdout.startswith("http://10.1.2.3/: nothing is public")
    without = configured(tmp_path, "collections: {a: a.cdxj}").file
    unknown = CliRunner().invoke(access, ["explain", "doi:10.9999/nope", "--config", str(without)])
    assert isinstance(unknown.exception, UsageError)
    assert "url=" not in str(unknown.exception)


def test_rules_about_archives_hold_for_their_files(demo: Config) -> None:
    is_open = Rules((RuleConfig(rights="open", archive="dmo"),))
    is_closed = Rules((RuleConfig(rights="closed", archive="dmo"), RuleConfig(rights="open")))
    with opened(demo) as archive:
        look_up, unnamed = looking_up([archive], Wholeness([archive])), 0
        for obi in (one for kind in ("tobi", "fobi") for one in archive.catalogue.all(kind) if len(one.history)):
            row = any_row(line(target_uri(obi.id), S), RowOrigin("v", "v", "file"))
            assert row is not None
            for subject in (look_up(row), *subjects_of(archive, obi.id)):
                assert is_closed.decide(subject, "", 0).level is Level.NOTHING
                is_named = is_open.decide(subject, "", 0).level is Level.CONTENT
                assert is_named == bool(subject.handle or subject.works)
                unnamed += not is_named  # a file to which others redirect
        assert unnamed


def test_a_file_is_judged_alike_in_all_sources_and_under_all_its_urls(demo: Config) -> None:
    with opened(demo) as archive:
        look_up = looking_up([archive], Wholeness([archive]))
        for obi in archive.catalogue.all("fobi"):
            told = set()
            for url in (obi.id, obi.id.replace("http:", "https:"), f"{obi.id.rstrip('/')}/"):
                for kind in ("archec", "file"):
                    row = any_row(line(url, S, obi=url, tist=1), RowOrigin("a", "a", kind))
                    assert row is not None
                    told.add(look_up(row)._replace(url=""))
            assert len(told) == 1, obi.id
            if obi.id.endswith("queues/"):  # a template has it without the slash
                assert told.pop().works


def test_no_rule_opens_a_file_while_the_catalogue_is_rebuilt(demo: Config, tmp_path: Path) -> None:
    """What is not there yet might close it."""
    shutil.copytree(demo.base, tmp_path / "copy", symlinks=True)
    config = load(tmp_path / "copy" / "config.yaml")
    rules = Rules((RuleConfig(rights="closed", archive="other"), RuleConfig(rights="open")))

    def levels(is_whole: Wholeness) -> set[Level]:
        look_up = looking_up([archive], is_whole)
        return {rules.decide(look_up(row), "", 0).level for row in files}

    with opened(config) as archive:
        named = [one for one in archive.catalogue.all("fobi") if archive.catalogue.referring([one.id], 1)]
        made = (any_row(line(one.id, S), RowOrigin("v", "v", "file")) for one in named if one.history)
        files = [row for row in made if row is not None]
        running = Wholeness([archive])
        assert Level.CONTENT in levels(running)
        written = SQLiteCatalogue(config.database, config.base / "data/catalogue.sqlite", create=True)
        written.clear()
        started = Wholeness([archive])
        assert levels(running) == levels(started) == {Level.NOTHING}
        rebuild(archive.layout, written)
        written.close()
        assert Level.CONTENT in levels(running) & levels(started)


def test_commits_during_concurrent_requests_are_no_rebuild(demo: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(demo) as archive:
        is_whole, now = Wholeness([archive]), archive.catalogue.position()
        told = iter((now, now._replace(batch=now.batch + 1)))

        def position() -> Position:
            found = next(told)
            assert found is not now or is_whole(), "another request, after a commit"
            return found

        monkeypatch.setattr(archive.catalogue, "position", position)
        assert is_whole()


def test_an_archive_whose_catalogue_is_being_rebuilt_says_so(demo: Config, tmp_path: Path) -> None:
    shutil.copytree(demo.base, tmp_path / "copy", symlinks=True)
    own = load(tmp_path / "copy" / "config.yaml")
    config = parse("collections: {own: $archive}\naccess: {open: content}\n", own.base / "config.yaml")
    server = dataclasses.replace(own.server, port=0, access_log="")
    config = dataclasses.replace(own, collections=config.collections, access=config.access, server=server)
    with opened(config) as archive, serving(config, archive) as base, client(base, "") as get:
        url = next(one.id for one in archive.catalogue.all("fobi") if one.history.lost is None and one.history)
        path = f"/own/index?url={url}&output=json"
        whole = get.get(path)
        assert whole.text
        assert "ResErrors" not in whole.headers
        written = SQLiteCatalogue(config.database, config.base / "data/catalogue.sqlite", create=True)
        written.clear()
        meanwhile = get.get(path)
        assert (meanwhile.status_code, meanwhile.text) == (200, "")
        reason = {"own": "its catalogue lacks what journals say (is it being rebuilt?): rows may be missing"}
        assert json.loads(meanwhile.headers["ResErrors"]) == reason
        assert get.get(f"/own/resource?url={url}").json()["errors"] == reason
        rebuild(archive.layout, written)
        written.close()
        after = get.get(path)
        assert (after.text, "ResErrors" in after.headers) == (whole.text, False)


def test_rules_that_need_a_catalogue_which_cannot_be_read(demo: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise CatalogueError("/srv/catalogue: is damaged")

    text = "collections: {own: $archive}\naccess: {rules: [{archive: dmo, rights: closed}, {rights: open}]}"
    config = parse(text, demo.base / "config.yaml")
    server = dataclasses.replace(demo.server, port=0, access_log="")
    config = dataclasses.replace(demo, collections=config.collections, access=config.access, server=server)
    with opened(config) as archive, serving(config, archive) as base, client(base, "") as get:
        monkeypatch.setattr(SQLiteCatalogue, "referring", fails)
        answer = get.get("/own/index?url=RePEc:dmo")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
        assert answer.json() == {"message": "Temporarily unavailable"}


def test_what_is_hidden_takes_the_work_of_what_is_not_there(demo: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
collections:
  own: $archive
  file: {demo.base}/one.cdxj
  both: {{sequence: [{{index: $archive}}, {{index: {demo.base}/one.cdxj}}]}}
access: {{rules: [{{archive: dmo, rights: closed}}, {{host: secret.org, rights: closed}}, {{rights: open}}]}}
"""
    config = parse(text, demo.base / "config.yaml")
    server = dataclasses.replace(demo.server, port=0, access_log="")
    config = dataclasses.replace(demo, collections=config.collections, access=config.access, server=server)
    write_index(demo.base / "one.cdxj", [line("http://secret.org/x", one, filename="a", offset=0) for one in STAMPS])
    give_tokens(config)
    work: list[str] = []
    catalogue = [(SQLiteCatalogue, name) for name in ("obis", "referring", "ids", "position")]
    for owner, name in (*catalogue, (SortedFile, "_pread"), (os, "open")):
        done = getattr(owner, name)

        def counted(*given: Any, done: Any = done, name: str = name, **options: Any) -> Any:
            work.append(name)
            return done(*given, **options)

        monkeypatch.setattr(owner, name, counted)
    paths = ["index?url={}", "index?url={}&closest=2014", "resource?url={}", "cdx?url={}&output=json", "{}", "id_/{}"]
    paths += [f"{S}id_/{{}}", "timemap/json/{}", "timemap/link/{}"]
    posts = [f"{mode}?url={{}}&{method}" for mode in ("resource-post", "index/postreq") for method in ("HEAD", "POST")]
    with opened(config) as archive, serving(config, archive) as base, client(base, "") as get:
        file = next(obi.id for obi in archive.catalogue.all("fobi") if len(obi.history))
        for coll, hidden in (("own", file), ("both", file), ("file", "http://secret.org/x")):
            for path in (*paths, *posts):
                seen = []
                given = {"method": "GET"}
                if path in posts:
                    given = {"method": "POST", "content": f"{path.partition('&')[2]} /"}
                for url in (hidden, hidden[:-1] + "~"):
                    get.request(url=f"/{coll}/{path.format(url)}", **given)
                    work.clear()
                    answer = get.request(url=f"/{coll}/{path.format(url)}", **given)
                    headers = {name: value for name, value in answer.headers.items() if name != "date"}
                    seen.append((answer.status_code, answer.text.replace(url, ""), headers, Counter(work)))
                assert seen[0] == seen[1], (coll, path)
                assert bool(seen[0][3]) == (coll != "file"), path  # a rule about a host needs no look at what there is
