"""The resource API over WARC and ARC files, and over our own obi store."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import gzip
import io
import json
import shutil
import sys
import unittest.mock
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import httpx
import pytest
from access_support import LISTER, client, configured, give_tokens, line, rows, serving, write_index
from catalogue_data import fobi, lot, tobi
from fastwarc.warc import ArchiveIterator as FastWarc
from msgspec.structs import replace
from warc_files import Crawl
from warcio.archiveiterator import ArchiveIterator

from archec.access.key_ranges import groups_of
from archec.access.loading import ListResolver, PrefixResolver, WarcLoader
from archec.access.obi_source import OwnSource, ids_of, looking_up
from archec.access.posts import Asked
from archec.access.query import Arguments, parse_query
from archec.access.remote import Web
from archec.access.remote_records import RangeReader
from archec.access.rows import NOWHERE, Row, any_row, made_line
from archec.access.sources import Errors
from archec.archive.opening import opened
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Refipo
from archec.config import Config, parse
from archec.errors import CatalogueGone
from archec.export.run import export_warc
from archec.export.units import UnitSelection
from archec.export.writing import ExportRequest
from archec.progress import Meter
from archec.urlkey import target_uri, urlkey

S = "20140101000000"
ARC = (
    b"filedesc://a.arc 0.0.0.0 20140101000000 text/plain 76\n1 0 Test\nURL IP-address Archive-date Content-type "
    b"Archive-length\n" + b" " * 9 + b"\n"
)
ARC_BODY = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>arc</p>"
ARC_LINE = b"http://arc.org/ 192.0.2.1 20140101000000 text/html %d\n" % len(ARC_BODY)


HEAD_OF_RESPONSE = (
    "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.org/\r\nWARC-Date: 2014-01-01T00:00:00Z\r\n"
    "Content-Type: application/http\r\nContent-Length: %d\r\n\r\n"
)


def odd_response(http: str, more: str = "", version: str = "1.0") -> tuple[str, str]:
    """The head and the block of a response."""
    kind = f"Content-Type: application/http\r\nContent-Length: {len(http)}{more}"
    return f"WARC/{version}\r\nWARC-Type: response\r\nWARC-Target-URI: http://odd.org/\r\n{kind}", http


def odd_revisit(digest: str) -> tuple[str, str]:
    """The head and the block of a revisit of ``http://a.org/``."""
    refers = "WARC-Target-URI: http://odd.org/\r\nWARC-Refers-To-Target-URI: <http://a.org/>"
    return f"WARC/1.0\r\nWARC-Type: revisit\r\n{refers}\r\nWARC-Payload-Digest: {digest}\r\nContent-Length: 0", ""


ODD = {
    "cut": ("WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: 9", "abc"),
    "cut-large": ("WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: 999999", "x" * 200_000),
    "version": odd_response("HTTP/1.1 200 OK\r\n\r\nx", version="9.9"),
    "lengths": odd_response("HTTP/1.1 200 OK\r\n\r\nx", more="\r\nContent-Length: 7"),
    "astray-revisit": ("WARC/1.0\r\nWARC-Type: revisit\r\nWARC-Refers-To-Target-URI: ::\r\nContent-Length: 0", ""),
    "hex-revisit": odd_revisit(f"sha1:{sha1(b'<p>first</p>').hexdigest()}"),
    "dash-revisit": odd_revisit("-"),
    "other-revisit": odd_revisit(f"sha1:{sha1(b'<p>other</p>').hexdigest()}"),
    "no-http": odd_response("<p>0.9\r\n\r\nx"),
    "line-ends": tuple(part.replace("\r", "\r\r") for part in odd_response("HTTP/1.0 302 \r\nServer: x\r\n\r\n")),
    "not-ended": odd_response("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"),
    "type": odd_response("HTTP/1.1 200 OK\r\nContent-Type: a/\xe9b\r\n\r\nx"),
    "odd-chunks": odd_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx"),
    "cut-chunks": odd_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx"),
    "case": tuple(part.replace("/http", "/HTTP") for part in odd_response("HTTP/1 200\r\nContent-Type: a/b\r\n\r\nx")),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    one, plain = Crawl(folder / "warcs" / "one.warc.gz"), Crawl(folder / "warcs" / "two.warc", gzip=False)
    first = one.response("http://a.org/", S, b"<p>first</p>")
    one.revisit("http://a.org/", "20150101000000", first)
    one.revisit("http://other.org/copy", "20150101000000", first)
    to_itself = one.response("http://r.org/", S, b"", status="301 Moved", headers={"Location": "https://www.r.org"})
    one.revisit("http://r.org/", "20130101000000", to_itself, status="")
    one.response("http://r.org/", "20140101000001", b"second")
    moved = one.response("http://m.org/", S, b"", status="302 Found", headers={"Location": "http://m.org/x"})
    one.revisit("http://m.org/", "20150101000000", moved, status="302 Found")
    one.response("http://astray.org/", S, b"", status="302 Found", headers={"Location": "http://["})
    one.response("http://chunks.org/", S, b"3\r\nabc\r\n0\r\n\r\n", headers={"Transfer-Encoding": "chunked"})
    one.response("http://large.org/", S, b"0123456789" * 500_000)
    plain.other("resource", "ftp://f.org/x.txt", S, b"a file", "text/plain")
    plain.other("metadata", "http://a.org/meta", S, b"k: v\r\n", "application/warc-fields")
    plain.other("conversion", "http://a.org/conv", S, b"text", "text/plain")
    plain.raw(b"no record at all", "http://bad.org/", S)
    for name, (head, block) in ODD.items():
        data = f"{head}\r\n\r\n{block}\r\n\r\n".replace("//odd.org/", f"//{name}.org/")
        plain.raw(data.encode("latin-1"), f"http://{name}.org/", S)
    plain.other("resource", "http://cut.org/", "20140101000001", b"whole", "text/plain")
    lines = one.close() + plain.close()
    (folder / "warcs" / "a.arc.gz").write_bytes(gzip.compress(ARC) + gzip.compress(ARC_LINE + ARC_BODY + b"\n"))
    offset = len(gzip.compress(ARC))
    lines.append(line("http://arc.org/", S, offset=offset, filename="a.arc.gz"))
    lines += [
        line("http://gone.org/", S, offset="0", length="10", filename="missing.warc.gz"),
        line("http://gone.org/", "20140101000001", offset="0", length="10", filename="../one.warc.gz"),
        line("http://gone.org/", "20140101000002", offset="0", length="10", filename="/etc/passwd"),
        line("http://nothing.org/", S),
    ]
    write_index(folder / "index.cdxj", lines)
    write_index(folder / "i" / "x.cdxj", lines)
    (folder / "paths.txt").write_text(f"\ufeffone.warc.gz\t/nowhere/x\t{folder}/warcs/one.warc.gz\naaa\t/nowhere\n")
    config = configured(
        folder,
        """
collections:
  c: {index: index.cdxj, resource: ./warcs}
  slow: {index: index.cdxj, resource: [./nowhere, 'warc-prefix+./warcs']}
  listed: {index: ./i, resource: 'warc-index+./paths.txt'}
  seq: {sequence: [{index: index.cdxj, resource: ./nowhere}, {index: index.cdxj, resource: ./warcs}]}
access: {rules: [{url_prefix: 'http://large.org/', rights: withdrawn, reason: too large}]}
""",
    )
    give_tokens(config)
    with serving(config) as url:
        yield url


def record(answer: httpx.Response) -> Any:
    """The one record of an answer, which warcio and fastwarc find nothing wrong with."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/warc-record"
    found = list(ArchiveIterator(io.BytesIO(answer.content), check_digests=True))
    assert len(found) == 1
    again = next(iter(ArchiveIterator(io.BytesIO(answer.content), check_digests=True)))
    again.payload = again.content_stream().read()
    assert again.digest_checker.passed is not False, again.digest_checker.problems
    has_digest = again.rec_headers.get_header("WARC-Block-Digest") is not None  # without one it verifies nothing
    fast = next(iter(FastWarc(io.BytesIO(answer.content), verify_digests=has_digest)), None)
    assert fast is not None
    return again


def test_a_record_with_headers_that_say_where_it_is_from(get: httpx.Client) -> None:
    answer = get.get("/c/resource?url=http://a.org/")
    found = record(answer)
    assert found.payload == b"<p>first</p>"
    assert found.rec_headers.get_header("WARC-Target-URI") == "http://a.org/"
    headers = answer.headers
    assert headers["archive-source-coll"] == headers["warcserver-source-coll"] == "c"
    listed = get.get("/listed/resource?url=http://a.org/").headers
    assert (listed["archive-source-coll"], listed["warcserver-source-coll"]) == ("listed", "listed:x.cdxj")
    assert headers["memento-datetime"] == "Wed, 01 Jan 2014 00:00:00 GMT"
    assert headers["warc-target-uri"] == "http://a.org/"
    assert headers["warcserver-type"] == "warc"
    assert headers["warcserver-cdx"].startswith("org,a)/ 20140101000000 {")
    assert int(headers["content-length"]) == len(answer.content)
    packed = get.get("/c/resource?url=http://a.org/&compress=gzip")
    assert (packed.headers["content-encoding"], packed.content) == ("gzip", answer.content)
    for part in ('<http://a.org/>; rel="original"', "/c/http://a.org/>; rel=\"timegate\"", 'rel="timemap"'):
        assert part in headers["link"]
    head = get.head("/c/resource?url=http://a.org/")
    assert head.headers["memento-datetime"] == headers["memento-datetime"]
    assert head.content == b""


def test_revisits_have_the_payload_of_what_they_refer_to(get: httpx.Client) -> None:
    for url in ("http://a.org/", "http://other.org/copy"):
        found = record(get.get(f"/c/resource?url={url}&closest=2016"))
        assert found.payload == b"<p>first</p>"
        assert found.rec_type == "response"
        assert found.rec_headers.get_header("WARC-Target-URI") == url
        assert found.rec_headers.get_header("WARC-Date") == "2015-01-01T00:00:00Z"
        assert found.rec_headers.get_header("WARC-Refers-To-Target-URI") == "http://a.org/"
        assert found.rec_headers.get_header("WARC-Refers-To") is None
        assert found.http_headers.get_header("X-Visit") == "second"
        assert found.http_headers.get_header("Content-Length") == "12"
    for host in ("hex-revisit", "dash-revisit"):
        assert b"\r\n\r\n<p>first</p>\r\n\r\n" in get.get(f"/c/resource?url=http://{host}.org/").content
    assert get.get("/c/resource?url=http://other-revisit.org/").status_code == 404


def test_redirects(get: httpx.Client) -> None:
    answer = get.get("/c/resource?url=http://r.org/")  # neither the redirect to itself nor its revisit
    assert (record(answer).payload, answer.headers["warcserver-cdx"][:22]) == (b"second", "org,r)/ 20140101000001")
    found = record(get.get("/c/resource?url=http://m.org/&closest=2016"))
    assert (found.http_headers.get_statuscode(), found.payload) == ("302", b"")
    assert record(get.get("/c/resource?url=http://astray.org/")).http_headers.get_header("Location") == "http://["
    replayed = get.get(f"/c/{S}id_/http://astray.org/")
    assert (replayed.status_code, replayed.headers["x-archive-orig-location"]) == (302, "http://[")
    assert "location" not in replayed.headers


@pytest.mark.parametrize(
    ("url", "kind", "payload"),
    [
        ("http://chunks.org/", "response", b"abc"),
        ("ftp://f.org/x.txt", "resource", b"a file"),
        ("http://a.org/meta", "metadata", b"k: v\r\n"),
        ("http://a.org/conv", "conversion", b"text"),
        ("http://arc.org/", "response", b"<p>arc</p>"),
    ],
)
def test_records_of_every_kind(get: httpx.Client, url: str, kind: str, payload: bytes) -> None:
    found = record(get.get(f"/c/resource?url={url}"))
    assert (found.rec_type, found.payload) == (kind, payload)


def test_what_cannot_be_loaded_is_named(get: httpx.Client) -> None:
    answer = get.get("/c/resource?url=http://gone.org/")
    assert answer.status_code == 404
    assert answer.json()["message"] == "No Resource Found"
    assert json.loads(answer.headers["reserrors"]) == answer.json()["errors"]
    assert all(name in answer.json()["errors"]["c"] for name in ("missing.warc.gz", "../one.warc.gz", "/etc/passwd"))
    assert get.get("/c/resource?url=http://bad.org/").status_code == 404
    assert get.get("/c/resource?url=http://nothing.org/").status_code == 404
    assert get.get("/c/resource?url=http://unknown.org/").json() == {"message": "No Resource Found"}


def test_records_that_are_odd(get: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    cut = get.get("/c/resource?url=http://cut.org/")
    assert (record(cut).payload, json.loads(cut.headers["reserrors"])) == (b"whole", {"c": "two.warc: it is truncated"})
    with pytest.raises(httpx.RemoteProtocolError):
        get.get("/c/resource?url=http://cut-large.org/")
    told = [(one.name, one.levelname, one.getMessage(), one.exc_info) for one in caplog.records if one.levelno > 20]
    assert told == [("archec.server", "WARNING", "GET /c/resource was cut off: two.warc: it is truncated", None)]
    for host in ("version", "lengths", "astray-revisit"):
        assert get.get(f"/c/resource?url=http://{host}.org/").status_code == 404
    assert get.get(f"/c/{S}id_/http://line-ends.org/").headers["x-archive-orig-server"] == "x"
    for host, body, kind in (
        ("not-ended", "", "text/plain"), ("type", "x", "a/?b"), ("odd-chunks", "-1\r\nx", "application/octet-stream"),
        ("cut-chunks", "x", "application/octet-stream"), ("case", "x", "a/b"),
        ("no-http", "<p>0.9\r\n\r\nx", "application/octet-stream"),
    ):  # fmt: skip
        assert record(get.get(f"/c/resource?url=http://{host}.org/")).rec_type == "response"
        answer = get.get(f"/c/{S}id_/http://{host}.org/")
        assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, body, kind)


def test_a_row_that_points_to_a_record_of_another_url_is_broken(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response("http://a.org/", S, b"of a")
    crawl.response("https://www.b.org:443/P/?jsessionid=0123456789abcdef0123456789abcdef", S, b"of b")
    of_a, of_b = (json.loads(one.split(b" ", 2)[2]) for one in crawl.close())
    of_a["url"], of_b["url"] = "http://b.org/p", "http://b.org/p?__wb_method=POST&x=1"
    rows = [f"org,b)/p {S} {json.dumps(of_a)}", f"org,b)/p 20150101000000 {json.dumps(of_b)}"]
    write_index(tmp_path / "i.cdxj", [one.encode() for one in rows])
    config = configured(tmp_path, "collections: {c: {index: i.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url, client(url) as one:
        answer = one.get("/c/resource?url=b.org/p")
        assert record(answer).payload == b"of b"
        assert json.loads(answer.headers["reserrors"]) == {"c": "a.warc.gz: the record there is of another URL"}


def test_other_places_lists_and_steps_are_tried_in_turn(
    get: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "paths.txt").write_text("a\tw/a\thttp://h/a\n")
    monkeypatch.chdir(tmp_path)
    places = ListResolver(tmp_path / "list" / "paths.txt").places("a")
    assert [one.path for one in places] == [f"{tmp_path}/list/w/a", f"{tmp_path}/w/a", "http://h/a"]
    for coll in ("slow", "listed", "seq"):
        assert record(get.get(f"/{coll}/resource?url=http://a.org/")).payload == b"<p>first</p>"


def test_accept_datetime_negotiates(get: httpx.Client) -> None:
    date = {"Accept-Datetime": "Thu, 31 Dec 2015 20:35:00 GMT"}
    found = get.get("/c/resource?url=http://a.org/", headers=date)
    assert found.headers["memento-datetime"] == "Thu, 01 Jan 2015 00:00:00 GMT"
    assert found.headers["vary"] == get.get("/c/resource?url=http://a.org/").headers["vary"] == "accept-datetime"
    assert "vary" not in get.get("/c/resource?url=http://a.org/&closest=2015", headers=date).headers
    assert get.get("/c/resource?url=http://a.org/", headers={"Accept-Datetime": "yesterday"}).status_code == 400


def test_content_is_for_those_who_may_have_it(base: str, get: httpx.Client) -> None:
    with client(base, LISTER) as lister:
        assert lister.get("/c/resource?url=http://a.org/").status_code == 403
        assert lister.get("/c/resource?url=http://unknown.org/").status_code == 404
    withdrawn = get.get("/c/resource?url=http://large.org/")
    assert (withdrawn.status_code, withdrawn.json()["message"]) == (451, "Withdrawn: too large")
    assert rows(get.get("/c/index?url=http://large.org/&output=json").text)[0]["access"] == "withdrawn"


def test_a_row_opens_no_record_of_another_url(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "warcs" / "a.warc.gz")
    old = crawl.response("http://secret.org/", "20200101000000", b"secret")
    crawl.revisit("http://open.org/again", S, old)
    crawl.response("http://open.org/", S, b"shown")
    crawl.response("http://open.org/a.pdf", S, b"closed", headers={"Content-Type": "application/pdf"})
    told = crawl.close()
    secret, paper = (json.loads(told[place].split(b" ", 2)[2]) for place in (0, 3))
    lies = [
        (urlkey("http://open.org/lie"), S, {**secret, "url": "http://open.org/lie"}),
        (urlkey("http://secret.org/"), "20200101000000", {**secret, "url": "http://open.org/"}),
        (urlkey("http://open.org/a.pdf"), S, {**paper, "mime": "text/html"}),
    ]
    write_index(tmp_path / "index.cdxj", [made_line(*one) for one in lies] + told[1:3])
    rules = (
        "{host: secret.org, rights: withdrawn}, "
        "{url_prefix: 'http://open.org/a.pdf', mime: application/pdf, rights: closed}, {rights: open}"
    )
    config = configured(
        tmp_path, f"collections: {{c: {{index: index.cdxj, resource: ./warcs}}}}\naccess: {{rules: [{rules}]}}"
    )
    with serving(config) as url, client(url, "") as get:
        assert record(get.get("/c/resource?url=http://open.org/")).payload == b"shown"
        assert get.get("/c/resource?url=http://open.org/lie").status_code == 404
        assert get.get(f"/c/{S}id_/http://open.org/lie").status_code == 404
        assert get.get("/c/resource?url=http://open.org/a.pdf").status_code == 403
        assert b"secret" not in get.get("/c/resource?url=http://open.org/again").content
        place = {"Range": f"bytes={secret['offset']}-{int(secret['offset']) + int(secret['length']) - 1}"}
        assert get.get("/c/warc/a.warc.gz", headers=place).status_code == 451


def test_requests_in_the_body_of_a_post(get: httpx.Client) -> None:
    for path in ("/c/resource-post", "/c/resource/postreq"):
        for body in ("GET /\r\nUser-Agent: x\r\n\r\n", "GET / HTTP/1.1\n\n", "GET /"):
            assert record(get.post(f"{path}?url=http://a.org/", content=body)).payload == b"<p>first</p>"
        assert get.post(f"{path}?url=http://a.org/", content="").status_code == 400
        assert get.post(f"{path}?url=http://a.org/", content="what is this").status_code == 400
        assert get.get(f"{path}?url=http://a.org/").status_code == 405
    assert get.post("/c/index/postreq?url=http://a.org/", content="GET /").text


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        *((path, "GET, HEAD") for path in ("/c/cdx?url=a.org", "/c/list_sources", "/c/warc/a.warc.gz", "/c/http://a.org/")),
        *((path, "GET, HEAD") for path in ("/cdx/search/cdx?url=a.org", "/wayback/available?url=a.org", "/web/http://a.org/")),
        *((path, "GET, HEAD, POST") for path in ("/c", "/c/", "/c/delete", "/c/index?url=a.org")),
        ("/c/resource-post?url=a.org", "POST"),
    ],
)  # fmt: skip
def test_methods_that_a_path_does_not_take(get: httpx.Client, path: str, methods: str) -> None:
    for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "PROPFIND"} - set(methods.split(", ")):
        answer = get.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, f"{methods}, OPTIONS")
    answer = get.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, f"{methods}, OPTIONS", b"")


def test_posts_are_looked_up_by_their_own_key(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "p.warc.gz")
    crawl.response("http://p.org/", S, b"posted")
    posted = crawl.close()[0].replace(b"org,p)/ ", b"org,p)/?__wb_method=post&a=1&b=two ")
    write_index(tmp_path / "p.cdxj", [posted])
    config = configured(tmp_path, "collections: {p: {index: p.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        assert record(get.post("/p/resource?url=http://p.org/", data={"b": "two", "a": "1"})).payload == b"posted"
        assert record(get.post("/p/resource?url=http://p.org/", json={"x": {"a": 1}, "b": "two"})).payload == b"posted"
        body = "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\na=1&b=two"
        assert record(get.post("/p/resource-post?url=http://p.org/", content=body)).payload == b"posted"
        assert get.post("/p/resource?url=http://p.org/", data={"a": "2"}).status_code == 404
        assert get.post("/p/index?url=http://p.org/", data={"b": "two", "a": "1"}).text
        assert not get.post("/p/index?url=http://p.org/").text
        row = rows(get.get("/p/index?url=p.org/*&output=json").text)[0]
        at = {"Range": f"bytes={row['offset']}-{int(row['offset']) + int(row['length']) - 1}"}
        assert get.get("/p/warc/p.warc.gz", headers=at).status_code == 206


# -- our own archive --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(demo: Config) -> Iterator[tuple[str, Config]]:
    collections = parse("collections: {own: $archive}", demo.base / "config.yaml").collections
    config = dataclasses.replace(
        demo, collections=collections, server=dataclasses.replace(demo.server, port=0, access_log="")
    )
    give_tokens(config)
    with opened(config) as archive, serving(config, archive) as url:
        yield url, config


@pytest.fixture(scope="module")
def vault(own: tuple[str, Config], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "vault"
    with opened(own[1]) as archive:
        export_warc(archive, ExportRequest(folder, UnitSelection(), 0, False, False), Meter(), print)
    return folder


def test_every_state_is_a_row_and_its_record_is_that_of_the_export(own: tuple[str, Config], vault: Path) -> None:
    url, config = own
    with opened(config) as archive:
        ids = [obi.id for kind in ("tobi", "fobi") for obi in archive.catalogue.all(kind) if len(obi.history)]
    exported: dict[tuple[str, str], bytes] = {}
    for path in (vault / "archive").rglob("*.warc.gz"):
        data = path.read_bytes()
        members = ArchiveIterator(io.BytesIO(data))
        for one in members:
            at = members.get_record_offset()
            one.content_stream().read()
            raw = gzip.decompress(data[at : at + members.get_record_length()])
            key = (one.rec_headers.get_header("WARC-Target-URI") or "", one.rec_headers.get_header("WARC-Date"))
            exported[key] = raw
    seen = 0
    with client(url) as get:
        for obi in ids:
            for row in rows(get.get("/own/index", params={"url": obi, "output": "json"}).text):
                assert "filename" not in row
                assert row["obi"] in ids
                assert row["digest"].startswith("sha256:")
                assert row["source_type"] == "archec"
                answer = get.get("/own/resource", params={"url": row["url"], "closest": row["timestamp"]})
                record(answer)
                date = answer.content.partition(b"WARC-Date: ")[2][:20].decode()
                # Of two URLs that differ by a trailing slash only, which have the same key, the first is given.
                assert answer.content == exported[answer.headers["warc-target-uri"], date]
                seen += 1
    assert seen > 10


def test_a_vault_is_a_collection_as_its_docs_say(own: tuple[str, Config], vault: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "export.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    config = configured(tmp_path, f"{text.replace('/srv/vault', str(vault))}  whole: {vault}\n")
    give_tokens(config)
    with opened(own[1]) as archive:
        obis = [obi for kind in ("tobi", "fobi") for obi in archive.catalogue.all(kind) if len(obi.history)]
    with serving(config) as url, client(url) as get:
        for obi in obis:
            answer = get.get("/vault/resource", params={"url": target_uri(obi.id)})
            assert answer.status_code == 200, answer.text
        hint = json.loads(get.get(f"/whole/index?url={target_uri(obis[0].id)}").headers["reserrors"])["whole"]
        assert hint.endswith("its directory indexes has")


def test_stretches_of_the_own_archive(own: tuple[str, Config]) -> None:
    url, config = own
    with opened(config) as archive:
        every = [obi for kind in ("tobi", "fobi") for obi in archive.catalogue.all(kind)]
    stamps = {(urlkey(target_uri(obi.id)), obi.id, tist) for obi in every for tist, state in obi.history if state}
    tobi = next(obi for obi in every if obi.kind == "tobi")
    host = next(obi.id for obi in every if obi.kind == "fobi").split("/")[2]
    key = urlkey(f"http://{host}/").partition(")")[0]
    queries = {
        f"http://{host}/*": (f"{key})/",),
        f"{host}&matchType=host": (f"{key})/",),
        f"*.{host}": (f"{key})/", f"{key},"),
        "*.1": ("1,",),
        "urn:x-repec:*": ("urn:x-repec:",),
        ":".join(target_uri(tobi.id).split(":")[:3]).upper() + "*": (":".join(target_uri(tobi.id).split(":")[:3]),),
    }
    with client(url) as get:
        for query, begins in queries.items():
            asked = f"/own/index?output=json&url={query}"
            found = rows(get.get(asked).text)
            seen = {(row["urlkey"], row["obi"], row["tist"]) for row in found}
            assert seen == {one for one in stamps if one[0].startswith(begins)}, query
            assert seen
            keys = [(row["urlkey"], row["timestamp"]) for row in found]
            assert keys == sorted(keys)
            assert rows(get.get(f"{asked}&sort=reverse").text) == found[::-1]
            assert rows(get.get(f"{asked}&limit=2").text) == found[:2]
        text = get.get("/cdx/search/cdx?url=urn:x-repec:*&limit=3&showResumeKey=true&gzip=false").text
        one, _, resume = text.strip().rpartition("\n\n")
        rest = get.get(f"/cdx/search/cdx?url=urn:x-repec:*&gzip=false&resumeKey={resume}").text
        whole = get.get("/cdx/search/cdx?url=urn:x-repec:*&gzip=false").text
        assert {line.split()[3] for line in whole.splitlines()} == {"text/plain"}
        assert f"{one}\n{rest}" == whole
        assert get.get("/own/resource", params={"url": tobi.handle}).status_code == 200


def test_the_hosts_of_a_domain_are_found_without_reading_their_files() -> None:
    ids = sorted(f"http{'s' * (n % 2)}://h{n % 50}.org/{n}" for n in range(5000))
    catalogue = unittest.mock.Mock()
    catalogue.ids.side_effect = lambda kind, low, high, limit: [one for one in ids if low <= one < high][:limit]
    query = parse_query(Arguments([("url", "*.org")]))
    assert len(groups_of(catalogue, query, *query.bounds())) == 50
    assert catalogue.ids.call_count == 50 + 3


def test_every_host_that_has_the_key_of_a_url_is_found(folder: Path) -> None:
    hosts = ["x.org", "www.x.org", "www0.x.org", "www3.x.org", "www12.x.org", "www2024.x.org"]
    others = ["www3.y.org", "www5", "www7a.x.org", "www9-x.org", "ww3.x.org", "www3x.org", "a.www3.x.org", "www5:8080"]
    schemes = ("http", "https", "ftp")
    obis = [fobi(f"{schemes[n % 3]}://{host}/p", 10 + n) for n, host in enumerate([*hosts, *others])]
    with closing(open_catalogue("sqlite:///c", base=folder, create=True)) as catalogue:
        catalogue.write(lot(1, *obis[1:]))
        layout = unittest.mock.Mock(runs=folder)
        source = OwnSource("own", unittest.mock.Mock(catalogue=catalogue, work=folder, layout=layout))

        def found(**given: str) -> list[str]:
            parts = source.parts(parse_query(Arguments([*given.items()])), Errors())
            return sorted(row.url.split("/")[2] for part in parts for row in part)

        assert found(url="x.org/p") == sorted(hosts[1:])
        catalogue.write(lot(2, obis[0]))
        for host in hosts:
            assert found(url=f"{host}/p") == found(url=host, matchType="host") == sorted(hosts)
        assert found(url="*.x.org") == sorted([*hosts, "www7a.x.org", "ww3.x.org", "a.www3.x.org"])


def test_a_file_is_of_the_templates_that_name_it_on_any_host_with_its_key(folder: Path) -> None:
    paper = tobi("RePEc:aaa:s:1")
    refs = (Refipo("http://www3.x.org/p", "application/pdf"),)
    paper = replace(paper, versions={key: replace(one, refs=refs) for key, one in paper.versions.items()})
    with closing(open_catalogue("sqlite:///c", base=folder, create=True)) as catalogue:
        catalogue.write(lot(1, paper, fobi("http://www3.x.org/p", 10)))
        assert works_of("https://www3.x.org/p", catalogue) == (paper.id,)
        assert works_of("https://x.org/p", catalogue) == (paper.id,)
        assert works_of("https://www.x.org/p", catalogue) == (paper.id,)


def test_a_file_is_of_the_templates_that_name_it_without_the_last_slash(folder: Path) -> None:
    paper = tobi("RePEc:aaa:s:1")
    refs = tuple(Refipo(f"http://x.org/{path}", "application/pdf") for path in ("p", "q/", "r/"))
    paper = replace(paper, versions={key: replace(one, refs=refs) for key, one in paper.versions.items()})
    with closing(open_catalogue("sqlite:///c", base=folder, create=True)) as catalogue:
        catalogue.write(lot(1, paper, *(fobi(one.url, 10) for one in refs)))
        assert works_of("http://x.org/p/", catalogue) == (paper.id,)
        assert works_of("http://x.org/q", catalogue) == (paper.id,)
        assert works_of("http://x.org/r//", catalogue) == (paper.id,)


def test_a_file_is_found_on_a_host_of_which_the_catalogue_has_too_many_numbered_ones(folder: Path) -> None:
    files = [fobi(f"http://www{n}.x.org/p", 10) for n in range(1010)]
    with closing(open_catalogue("sqlite:///c", base=folder, create=True)) as catalogue:
        catalogue.write(lot(1, *files))
        assert all(one.id in ids_of(one.id, catalogue) for one in files)


def test_a_file_is_found_after_a_rebuild_during_which_it_was_looked_up(folder: Path) -> None:
    file = fobi("http://x.org/p", 10)
    with closing(open_catalogue("sqlite:///c", base=folder, create=True)) as catalogue:
        catalogue.write(lot(1, file))
        just_read = catalogue.position()
        catalogue.clear()
        ids_of(file.id, catalogue, just_read)
        catalogue.write(lot(1, file))
        assert catalogue.position() == just_read
        assert file.id in ids_of(file.id, catalogue)


def works_of(url: str, catalogue: Catalogue) -> tuple[str, ...]:
    row = any_row(line(url, S), NOWHERE)
    assert row is not None
    return looking_up([unittest.mock.Mock(catalogue=catalogue)], lambda: True)(row).works


def test_a_file_and_the_templates_that_name_it_are_of_one_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = tobi("RePEc:aaa:s:1")
    refs = (Refipo("http://x.org/p", "application/pdf"),)
    paper = replace(paper, versions={key: replace(one, refs=refs) for key, one in paper.versions.items()})
    row = any_row(line("http://x.org/p", S), NOWHERE)
    assert row is not None
    with (
        closing(open_catalogue("sqlite:///c", base=folder, create=True)) as written,
        closing(open_catalogue("sqlite:///c", base=folder, read_only=True)) as read,
    ):
        written.write(lot(1, fobi("http://x.org/p", 10)))
        referring = read.referring
        with monkeypatch.context() as patched:
            patched.setattr(read, "referring", lambda *given: written.write(lot(2, paper)) or referring(*given))
            assert looking_up([unittest.mock.Mock(catalogue=read)], lambda: True)(row).works == ()
        assert looking_up([unittest.mock.Mock(catalogue=read)], lambda: True)(row).works == (paper.id,)


def test_a_loss_is_told_by_timemap_and_timegate(own: tuple[str, Config]) -> None:
    url, config = own
    with opened(config) as archive:
        lost = [one for kind in ("tobi", "fobi") for one in archive.catalogue.lost(kind)]
        assert lost
        held = next(obi.id for obi in archive.catalogue.all("tobi") if obi.history.held)
    with client(url) as get:
        for moment in lost:
            uri = target_uri(moment.id)
            told = get.get(f"/own/timemap/json/{uri}").json()["archec.lost"]
            assert told["from"] == moment.tist
            assert 0 < told["seen"] < moment.tist
            link = get.get(f"/own/{uri}").headers["link"]
            assert f'; rel="archec.lost"; seen="{told["seen"]}"; from="{told["from"]}"' in link
            assert all(row["tist"] < moment.tist for row in rows(get.get(f"/own/index?url={uri}&output=json").text))
        assert "archec.lost" not in get.get(f"/own/timemap/json/{target_uri(held)}").json()
        escaped = get.get(f"/own/timemap/json/{quote(held, safe='')}").json()
        assert escaped["mementos"] == get.get(f"/own/timemap/json/{held}").json()["mementos"]


def test_a_loss_is_told_only_by_collections_that_have_the_archive(own: tuple[str, Config], tmp_path: Path) -> None:
    with opened(own[1]) as archive:
        uri = target_uri(next(archive.catalogue.lost("fobi")).id)
        write_index(tmp_path / "a.cdxj", [line(uri, S)])
        config = configured(tmp_path, "collections: {own: $archive, others: a.cdxj}")
        give_tokens(config)
        with serving(config, archive) as url, client(url) as get:
            for name in ("own", "others"):
                told = "archec.lost" in get.get(f"/{name}/timemap/json/{uri}").json()
                assert told == ("archec.lost" in get.get(f"/{name}/{uri}").headers["link"]) == (name == "own")


def test_a_catalogue_that_fails_stops_no_other_source(
    own: tuple[str, Config], vault: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = f"index: {vault / 'indexes'}, resource: {vault / 'archive'}"
    text = f"""
        near: {{{files}}}
        only: $archive
        group: {{index_group: {{own: $archive, near: {vault / "indexes"}}}, resource: {vault / "archive"}}}
        steps: {{sequence: [{{index: $archive}}, {{{files}}}]}}
    """
    config = dataclasses.replace(own[1], collections=parse(f"collections:{text}", own[1].base / "x").collections)
    lines = (one for path in (vault / "indexes").iterdir() for one in path.read_text().splitlines())
    url = next(json.loads(one[one.index("{") :])["url"] for one in lines if '"status"' in one)
    with opened(config) as archive, serving(config, archive) as base, client(base) as get:

        def gone(*_: object, **__: object) -> NoReturn:
            raise CatalogueGone("the server of the catalogue is gone")

        monkeypatch.setattr(archive.catalogue, "obis", gone)
        host = f"index?url={url}&matchType=host"
        wanted = {path: get.get(f"/near/{path}") for path in (f"index?url={url}", host, f"resource?url={url}", url)}
        for name, told in (("group", "own"), ("steps", "steps")):
            for path, near in wanted.items():
                answer = get.get(f"/{name}/{path}")
                assert answer.status_code == near.status_code, (name, path)
                assert len(answer.content.splitlines()) == len(near.content.splitlines())
                assert json.loads(answer.headers["reserrors"]) == {told: "its catalogue cannot be read"}
        answers = [get.get(f"/only/{path}") for path in wanted]
        assert [one.status_code for one in answers] == [200, 200, 404, 404]
        assert all("its catalogue cannot be read" in one.headers["reserrors"] for one in answers[:1] + answers[2:])
    assert "the server of the catalogue is gone" in caplog.text


def test_a_catalogue_that_was_replaced_is_a_fault(own: tuple[str, Config], tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.sqlite"
    shutil.copy(own[1].base / "data" / "catalogue.sqlite", catalogue)
    config = dataclasses.replace(own[1], database=f"sqlite:///{catalogue}")
    with opened(config) as archive, serving(config, archive) as url, client(url) as get:
        assert get.get("/healthz").status_code == 200
        shutil.copy(catalogue, tmp_path / "new")
        (tmp_path / "new").rename(catalogue)
        answer = get.get("/healthz")
        assert (answer.status_code, "was replaced: restart the server" in answer.text) == (503, True)


@pytest.mark.parametrize("packed", [True, False])
def test_a_record_leaves_no_unfinished_generator(tmp_path: Path, *, packed: bool) -> None:
    """The event loop would have to end each of them in a task of its own, after the answer."""
    data = (HEAD_OF_RESPONSE % len(ARC_BODY)).encode() + ARC_BODY + b"\r\n\r\n"
    data = gzip.compress(data) if packed else data
    (tmp_path / "a.warc").write_bytes(data)
    fields = {"url": "http://a.org/", "filename": "a.warc", "offset": "0", "length": str(len(data))}
    loader = WarcLoader(PrefixResolver(str(tmp_path)), RangeReader(Web(), 1.0))
    left: list[object] = []

    async def load() -> bytes:
        sys.set_asyncgen_hooks(finalizer=left.append)
        record = await loader.load(Row(b"", "org,a)/", S, fields, NOWHERE), Asked())
        assert record is not None
        read = record.http + b"".join([piece async for piece in record.body])
        await record.close()
        del record
        gc.collect()
        return read

    assert asyncio.run(load()) == ARC_BODY
    assert left == []
