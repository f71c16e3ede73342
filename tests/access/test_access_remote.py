"""Indexes and records of other servers: what is asked of them, and what becomes of those that fail or lie."""

from __future__ import annotations

import asyncio
import io
import json
import random
import socket
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from access_support import WRITER, client, configured, give_tokens, line, rows, serving, write_index
from remote_archives import STAMPS, Archives, U, archives
from warc_files import Crawl
from warcio.archiveiterator import ArchiveIterator

from archec.access import remote_indexes
from archec.access.errors import SourceFailed
from archec.access.index_files import MAX_LINE
from archec.access.loading import PrefixResolver
from archec.access.remote import Fetched, UrlTemplate, Web, fetch, followed, spooled
from archec.config import FetchConfig
from archec.web.door import Response, Sender
from archec.web.messages import Request, origin_at


@pytest.fixture(scope="module")
def there() -> Iterator[Archives]:
    with archives() as server, archives() as other:
        server.other = other.url.replace("127.0.0.1", "127.0.0.2")
        yield server


@pytest.fixture(scope="module")
def base(there: Archives, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    crawl = Crawl(folder / "w" / "a.warc.gz")
    crawl.response(U, "20130101000000", b"near")
    write_index(folder / "a.cdxj", crawl.close())
    there.warcs = folder / "w"
    url, secret = there.url, there.url.replace("//", "//me:pass@")
    config = configured(
        folder,
        f"""
collections:
  pywb: cdx+{url}/pywb/all-cdx
  ia: cdx+{url}/ia/cdx/search/cdx /pywb/all/
  seed: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}&closest={{timestamp}}',
          replay_url: '{url}/pywb/all/{{timestamp}}id_/{{url}}'}}, resource: $live}}
  lies: cdx+{url}/lies-cdx
  colls: {{index_group: {{p: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
           replay_url: '{url}/{{src_coll}}/{{timestamp}}id_/{{url}}'}}, near: a.cdxj}}}}
  mem: memento+{url}/wayback/
  pages2: {{index: {{type: memento, timemap_url: '{url}/pages/2/1/{{url}}', replay_url: '{url}/{{url}}'}}}}
  pages3: {{index: {{type: memento, timemap_url: '{url}/pages/3/1/{{url}}', replay_url: '{url}/{{url}}'}}}}
  pages101: {{index: {{type: memento, timemap_url: '{url}/pages/101/1/{{url}}', replay_url: '{url}/{{url}}'}}}}
  bare: {{index: {{type: memento, timegate_url: '{url}/bare/{{url}}',
          replay_url: '{url}/pywb/all/{{timestamp}}id_/{{url}}'}}}}
  mapped: {{index: {{type: memento, timegate_url: '{url}/pywb/all/{STAMPS[0]}id_/{{url}}',
            timemap_url: '{url}/wayback/timemap/link/{{url}}', replay_url: '{url}/pywb/all/{{timestamp}}id_/{{url}}'}}}}
  refusing: {{index: {{type: memento, timegate_url: '{url}/refusing/{{url}}', replay_url: '{url}/{{url}}'}}}}
  errors: {{index: {{type: memento, timegate_url: '{url}/errors/{{url}}', replay_url: '{url}/errors/{{url}}'}}}}
  inexact: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
             replay_url: '{url}/inexact/{{timestamp}}id_/{{url}}'}}}}
  private: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
             replay_url: '{url}/private/{{timestamp}}id_/{{url}}'}}}}
  secret: {{index: {{type: cdx, api_url: '{secret}/pywb/all-cdx?url={{url}}',
            replay_url: '{secret}/again/{{timestamp}}id_/{{url}}'}}}}
  secret-mem: memento+{secret}/wayback/
  secret-bare: {{index: {{type: memento, timegate_url: '{secret}/bare/{{url}}',
                 replay_url: '{secret}/pywb/all/{{timestamp}}id_/{{url}}'}}}}
  packed: cdx+{url}/packed-cdx
  twice: cdx+{url}/twice-cdx
  members: cdx+{url}/members-cdx
  page: cdx+{url}/page-cdx
  picky: {{index: {{type: cdx, api_url: '{url}/picky-cdx?url={{url}}',
           replay_url: '{url}/pywb/all/{{timestamp}}id_/{{url}}'}}}}
  page-mem: {{index: {{type: memento, timemap_url: '{url}/page-cdx?url={{url}}',
              replay_url: '{url}/{{timestamp}}/{{url}}'}}}}
  empty: cdx+{url}/empty-cdx
  listed: {{index: 'memento+{url}/listed/', index_timeout: 0.1}}
  alien: {{index: 'cdx+{url}/alien-cdx', index_timeout: 0.5}}
  drips: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
           replay_url: '{url}/drips/{{timestamp}}id_/{{url}}'}}, index_timeout: 0.3}}
  astray: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
            replay_url: '{url}/astray/{{timestamp}}id_/{{url}}'}}}}
  many:
    index_group: {{pywb: 'cdx+{url}/pywb/all-cdx', mem: 'memento+{url}/wayback/', hang: 'cdx+{url}/hangs-cdx',
                  drip: 'cdx+{url}/drips-cdx', flood: 'cdx+{url}/floods-cdx', near: a.cdxj}}
    resource: [$live, ./w]
    index_timeout: 0.5
  seq:
    sequence:
      - {{index: 'cdx+{url}/hangs-cdx', index_timeout: 0.3}}
      - {{index: 'cdx+{url}/fails-cdx'}}
      - {{index: 'cdx+{url}/inexact/none-cdx'}}
      - {{index: 'cdx+{url}/pywb/all-cdx'}}
  fails: cdx+{url}/fails-cdx
  silent: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
           replay_url: '{url}/hangs/{{timestamp}}id_/{{url}}'}}, index_timeout: 0.3}}
  stalls: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
           replay_url: '{url}/large/{{timestamp}}id_/{{url}}'}}, index_timeout: 0.3}}
  floods: {{index: 'cdx+{url}/floods-cdx', index_timeout: 0.3}}
  endless: {{index: {{type: cdx, api_url: '{url}/pywb/all-cdx?url={{url}}',
            replay_url: '{url}/floods/{{timestamp}}id_/{{url}}'}}, index_timeout: 25}}
  large: {{index: 'cdx+{url}/large-cdx', index_timeout: 25}}
  moved: cdx+{url}/redirects/pywb/all-cdx
  moved-mem: memento+{url}/redirects/wayback/
  moved-warcs: {{index: a.cdxj, resource: '{url}/redirects/warcs'}}
  led: cdx+{url}/private-cdx
  live: $live
  slow: {{index: a.cdxj, resource: ['{url}/hangs/', ./w], index_timeout: 0.3}}
  dripping: {{index: a.cdxj, resource: ['{url}/drips/', ./w], index_timeout: 0.3}}
  warcs: {{index: a.cdxj, resource: '{url}/warcs'}}
access: {{live: on}}
fetch: {{allow_networks: [127.0.0.1/32]}}
""",
    )
    give_tokens(config)
    with serving(config) as own:
        yield own


def found(get: httpx.Client, coll: str, query: str = "", **headers: str) -> list[dict[str, Any]]:
    return rows(get.get(f"/{coll}/index?output=json&url={U}&{query}").text)


def record(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    one = next(iter(ArchiveIterator(io.BytesIO(answer.content))))
    one.payload = one.content_stream().read()
    return one


def test_rows_have_the_address_of_their_capture(there: Archives, get: httpx.Client) -> None:
    first = found(get, "pywb")[0]
    assert first["live_url"] == first["load_url"] == f"{there.url}/pywb/all/{STAMPS[0]}id_/{U}"
    assert list(first)[-3:] == ["source", "source-coll", "source_type"]
    assert first["source_type"] == "cdx"
    assert found(get, "seed") == [{**row, "source": "seed", "source-coll": "seed"} for row in found(get, "pywb")]
    assert [row["timestamp"] for row in found(get, "ia")] == list(STAMPS)
    assert found(get, "ia")[0]["live_url"] == f"{there.url}/ia/cdx/search/pywb/all/{STAMPS[0]}id_/{U}"
    mementos = found(get, "mem")
    assert [(row["timestamp"], row["source_type"]) for row in mementos] == [(stamp, "memento") for stamp in STAMPS]
    assert mementos[0]["load_url"] == f"{there.url}/wayback/{STAMPS[0]}id_/{U}"
    assert [row["timestamp"] for row in found(get, "mem", "closest=2016")] == [STAMPS[0]]


def test_a_timegate_needs_no_more_than_the_headers_it_must_have(get: httpx.Client, there: Archives) -> None:
    (row,) = found(get, "bare", "closest=2015")
    assert (row["timestamp"], row["memento_url"]) == (STAMPS[0], f"{there.url}/pywb/all/{STAMPS[0]}id_/{U}")
    assert record(get.get(f"/bare/resource?url={U}&closest=2015")).payload == b"first"


def test_a_question_that_a_timegate_cannot_answer_is_no_failure_of_it(get: httpx.Client) -> None:
    for _ in range(4):
        answer = get.get(f"/bare/index?url={U}")
        assert json.loads(answer.headers["reserrors"]) == {"bare": "it has no TimeMap: use closest"}


def test_a_timemap_has_more_than_a_timegate_that_names_its_memento_only(get: httpx.Client) -> None:
    assert [row["timestamp"] for row in found(get, "mapped", "closest=2015")] == list(reversed(STAMPS))


def test_a_memento_of_an_error_is_one(get: httpx.Client) -> None:
    (row,) = found(get, "errors", "closest=2015")
    assert row["timestamp"] == STAMPS[0]
    loaded = record(get.get(f"/errors/resource?url={U}&closest=2015"))
    assert (loaded.http_headers.get_statuscode(), loaded.payload) == ("404", b"no such page")


def test_a_memento_that_is_refused_is_no_failure_of_its_timegate(get: httpx.Client) -> None:
    for _ in range(4):
        answer = get.get(f"/refusing/index?url={U}&closest=2015")
        assert json.loads(answer.headers["reserrors"]) == {"refusing": "its memento cannot be had: HTTP 403"}


def test_a_source_that_fails_for_a_head_has_its_captures_of_get(get: httpx.Client) -> None:
    for _ in range(4):  # nor is it left out for its failures
        loaded = get.post(f"/picky/resource-post?url={U}", content="HEAD /\r\n\r\n")
        assert record(loaded).payload == b"first"
        assert json.loads(loaded.headers["reserrors"]) == {"picky": "its answer is not CDX"}


def test_a_timemap_of_which_only_a_part_is_read_is_named(
    get: httpx.Client, there: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pages, most, asked in ((2, 100_000, 2), (3, 100_000, 3), (101, 100_000, 100), (2, 3, 2)):
        there.asked.clear()
        with monkeypatch.context() as patched:
            patched.setattr(remote_indexes, "MAX_SORTED", most)
            told = json.loads(get.get(f"/pages{pages}/index?url={U}").headers.get("reserrors", "{}"))
        reason = "only a part of its TimeMap could be read: rows may be missing"
        assert told == ({} if (pages, most) == (2, 100_000) else {f"pages{pages}": reason})
        assert len(there.asked) == asked


def test_queries_go_on_to_those_who_understand_them(there: Archives, get: httpx.Client) -> None:
    there.asked.clear()
    found(get, "pywb", "closest=20140101&from=2013&to=2016&limit=3&filter==status:200")
    found(get, "ia", "filter==status:200&filter=!mime:x&limit=3")
    found(get, "ia", "sort=reverse&limit=1")
    pywb, ia, backwards = (parse_qs(urlsplit(path).query) for _, path, _, _ in there.asked)
    assert pywb == {
        "url": [U], "closest": ["20140101235959"], "sort": ["closest"], "from": ["2013"], "to": ["2016"],
        "filter": ["=status:200"], "limit": ["3"],
    }  # fmt: skip
    assert ia["filter"] == ["statuscode:200", "!mimetype:.*x.*"]
    assert ia["limit"] == ["3"]
    assert "limit" not in backwards
    assert [row["timestamp"] for row in found(get, "ia", "sort=reverse&limit=1")] == [STAMPS[1]]
    assert [row["timestamp"] for row in found(get, "pywb", "closest=2015&collapseTime=3")] == [STAMPS[0]]


def test_the_first_captures_do_not_take_all_of_another_server(there: Archives, get: httpx.Client) -> None:
    for query, asked in (
        ("limit=1", "2"), ("limit=1&offset=3&showResumeKey=true", "5"), ("limit=1&filter=statuscode:200", "1000000000"),
        ("limit=-1", "1000000000"), ("", "1000000000"),
    ):  # fmt: skip
        there.asked.clear()
        assert get.get(f"/cdx/search/cdx?collection=pywb&url={U}&{query}").status_code == 200
        (limit,) = (parse_qs(urlsplit(path).query)["limit"] for _, path, _, _ in there.asked)
        assert limit == [asked], query
    there.asked.clear()
    newest = get.get(f"/wayback/available?url={U}").json()["archived_snapshots"]["closest"]
    assert newest["timestamp"] == STAMPS[1]
    assert [parse_qs(urlsplit(path).query)["limit"] for _, path, _, _ in there.asked] == [["1000"]]


@pytest.mark.parametrize("most", [4, 100_000], ids=["long", "short"])
def test_an_index_before_another_gives_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Long answers of the other are not sorted here."""
    monkeypatch.setattr("archec.access.remote_indexes.MAX_SORTED", most)
    given = [
        line(U, "20140228000000", mime="warc/revisit", status="-", digest="A"),
        line(U, "20130101000000", digest="A", length="404"),
        line(U, "20141001000000", status="404"),
        line(U, "20141101000000", status="404", length="200"),
        line("http://example.org/a", "20150101000000", digest="A"),
    ]
    write_index(tmp_path / "there" / "a.cdxj", given)
    behind = configured(tmp_path / "there", "collections: {a: a.cdxj}\naccess: {open: metadata}")
    queries = (
        "resolveRevisits=1&filter==status:200", "resolveRevisits=1&from=2014", "filter=s:404", "filter=source:a",
        "filter==mimetype:text/html", "filter=!source-coll:a", "collapseTime=4&limit=2", "limit=2",
        "collapseTime=4&closest=2013&limit=2", "to=20141", "from=20141", "to=2014022", "closest=2013&from=201411",
        "filter=!~digest:A&limit=1",
    )  # fmt: skip
    with serving(behind) as there:
        front = configured(
            tmp_path,
            f"""
collections:
  a: cdx+{there}/a/cdx
  ia: cdx+{there}/cdx/search/cdx
  mem: memento+{there}/a/
access: {{open: metadata}}
""",
        )
        with serving(front) as here, client(here, "") as get, client(there, "") as own:
            for query in queries:
                asked = f"index?url={U}&output=text&fl=urlkey,timestamp,url,status,digest,length&{query}"
                assert get.get(f"/a/{asked}").text == own.get(f"/a/{asked}").text, query
            table = "/cdx/search/cdx?url=example.org/*&resolveRevisits=true&from=2014&fl=timestamp,mimetype,length"
            assert get.get(f"{table}&collection=ia").text == own.get(table).text
            monkeypatch.undo()
            in_time = f"index?url={U}&fl=timestamp&output=text&closest=20130101&from=20140101&to=20140301"
            assert get.get(f"/mem/{in_time}").text == "20140228000000\n"


def test_a_timegate_over_another_index_names_the_same_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it asks for the nearest captures only, which may all be later or earlier than the memento, and although
    a long answer of the other cannot be sorted here."""
    monkeypatch.setattr("archec.access.memento.MAX_SAME", 4)
    monkeypatch.setattr("archec.access.remote_indexes.MAX_SORTED", 10)
    days = ["20050101", "20050102", *(f"201001{day:02}" for day in range(1, 10)), "20150101", "20150102"]
    write_index(tmp_path / "there" / "a.cdxj", [line(U, f"{day}000000") for day in days])
    with serving(configured(tmp_path / "there", "collections: {a: a.cdxj}\naccess: {open: metadata}")) as there:
        front = configured(
            tmp_path,
            f"""
collections:
  a: cdx+{there}/a/cdx
  ia: cdx+{there}/cdx/search/cdx
access: {{open: metadata}}
""",
        )
        with serving(front) as here, client(here, "") as get, client(there, "") as own:
            for year in ("", *range(2003, 2018)):
                asked = {"Accept-Datetime": f"Wed, 01 Jul {year} 00:00:00 GMT"} if year else {}
                right = own.get(f"/a/{U}", headers=asked).headers["link"].replace(there, here)
                assert get.get(f"/a/{U}", headers=asked).headers["link"] == right, year
                assert get.get(f"/ia/{U}", headers=asked).headers["link"] == right.replace("/a/", "/ia/"), year


def test_a_memento_of_another_archive_keeps_its_etag(get: httpx.Client) -> None:
    path = f"/mem/{STAMPS[0]}id_/{U}"
    tag = get.get(path).headers["etag"]
    assert get.get(path, headers={"If-Match": tag}).status_code == 200
    assert get.get(path, headers={"If-None-Match": tag}).status_code == 304


def test_lies_are_left_out(there: Archives, get: httpx.Client) -> None:
    answer = found(get, "lies")
    assert [row["timestamp"] for row in answer] == [*STAMPS, "20160101000000"]
    assert answer[-1]["live_url"] == f"{there.url}/lies/20160101000000id_/{U}"
    assert json.loads(get.get(f"/page/index?url={U}").headers["reserrors"]) == {"page": "its answer is not CDX"}
    for _ in range(4):
        told = json.loads(get.get(f"/page-mem/index?url={U}").headers["reserrors"])
        assert told == {"page-mem": "its answer is not a TimeMap"}


def test_an_answer_is_cut_into_lines_wherever_its_blocks_end() -> None:
    data = b"".join(b"%d %b\n" % (n, b"x" * (n * 7 % 3000)) for n in range(500)) + b"last"
    assert list(Fetched("", {}, io.BytesIO(data), 0).lines()) == data.split(b"\n")
    too_long = b"y" * (3 << 20)
    parts = list(Fetched("", {}, io.BytesIO(too_long + b"\nnext"), 0).lines())
    assert parts == [too_long[: MAX_LINE + 1], b"next"]


def test_a_large_answer_holds_up_nobody(get: httpx.Client) -> None:
    """Neither one of empty lines, nor one of rows of other URLs, nor a TimeMap."""
    told = json.loads(get.get(f"/empty/index?url={U}").headers["reserrors"])
    assert told == {"empty": "its answer is not CDX"}
    for _ in range(4):
        told = json.loads(get.get(f"/page-mem/index?url={U}").headers["reserrors"])
        assert told == {"page-mem": "its answer is not a TimeMap"}
    told = json.loads(get.get(f"/alien/index?url={U}").headers["reserrors"])
    assert told == {"alien": "no answer within 0.5 s"}
    told = json.loads(get.get(f"/listed/index?url={U}").headers["reserrors"])
    assert told == {"listed": "no answer within 0.1 s"}


def test_an_answer_is_unpacked_once_at_most(get: httpx.Client) -> None:
    assert [row["timestamp"] for row in found(get, "packed")] == [STAMPS[0]]
    assert [row["timestamp"] for row in found(get, "members")] == list(STAMPS)
    told = get.get(f"/twice/index?url={U}").headers["reserrors"]
    assert json.loads(told) == {"twice": "its answer has an encoding that was not requested"}


def test_no_url_leads_out_of_the_path_of_a_template(there: Archives, get: httpx.Client) -> None:
    get.get("/mem/index?url=http://x/../../../secret")
    assert there.asked[-1][1] == "/wayback/timemap/link/http://x/secret"
    for url in ("urn:x/../../secret", "../%2E%2e/./secret"):
        assert UrlTemplate("http://h/tm/{url}").filled({"url": url}) in ("http://h/tm/urn:x/secret", "http://h/tm/secret")
    values = {"c": "..", "url": "http://x/?a=/../b"}
    assert UrlTemplate("http://h/{c}/{url}").filled(values) == "http://h/http://x/?a=/../b"


def test_a_body_of_unknown_size_has_limits(get: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get.get(f"/drips/resource?url={U}").json()["errors"] == {"drips": "no answer within 0.3 s"}

    async def is_large() -> None:
        with open("/dev/null", "wb", buffering=0) as file:
            await spooled(answer(b"12345"), file)

    with monkeypatch.context() as patched:
        patched.setattr("archec.access.remote.MAX_ANSWER", 4)
        with pytest.raises(SourceFailed, match="larger than 4 bytes"):
            asyncio.run(is_large())

    told = get.get(f"/large/index?url={U}").headers["reserrors"]
    assert json.loads(told) == {"large": "its answer is larger than 4294967296 bytes"}
    monkeypatch.setattr("archec.access.remote._MAX_EXTENSION", 0.2)
    assert json.loads(get.get(f"/floods/index?url={U}").headers["reserrors"]) == {"floods": "no answer within 0.3 s"}

    async def fills() -> None:
        with open("/dev/full", "wb", buffering=0) as full:
            await spooled(answer(b"x"), full)

    with pytest.raises(SourceFailed, match="No space left"):
        asyncio.run(fills())


def answer(body: bytes) -> Response:
    """A response with this body."""
    pieces = [body, b""]

    async def read() -> bytes:
        return pieces.pop(0)

    return Response(Request("GET", origin_at("http://h"), b"/"), 200, [], read, lambda: None)


async def asked_of(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ask: Callable[[Web, int], Awaitable[None]],
) -> None:
    """Asks a server on a port of 127.0.0.1, under the policy for other archives."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    web = Web()
    async with server, Sender(FetchConfig(), "archec", "remote") as web.sender:
        await ask(web, server.sockets[0].getsockname()[1])


def test_what_unpacks_to_much_does_not_extend_the_time() -> None:
    """A few bytes that arrive now and then are few bytes, whatever they unpack to."""

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
        packing = zlib.compressobj(9, zlib.DEFLATED, 31)
        with suppress(ConnectionError), closing(writer):
            for _ in range(200):
                writer.write(packing.compress(b"\n" * 300_000) + packing.flush(zlib.Z_SYNC_FLUSH))
                await writer.drain()
                await asyncio.sleep(0.05)

    async def ask(web: Web, port: int) -> None:
        url = f"http://127.0.0.1:{port}/"
        with pytest.raises(SourceFailed, match=r"no answer within 0\.3 s"):
            await fetch(web, "GET", url, url, 0.3)

    asyncio.run(asked_of(drips, ask))


@pytest.mark.parametrize("end", ["#@", "?@", "/@"])
def test_no_redirect_takes_a_password_to_another_host(end: str) -> None:
    """What comes after the host of a URL is no host, whoever reads it."""
    secret = b"Authorization: Basic bWU6cGFzcw=="
    asked: list[bytes] = []

    async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        host, port = writer.get_extra_info("sockname")
        where = f"Location: http://{host}:{port}{end}127.0.0.2:9/meta\r\n" if len(asked) == 1 else ""
        head = f"HTTP/1.1 {302 if where else 200} -\r\nContent-Length: 0\r\n{where}\r\n"
        writer.write(head.encode())
        await writer.drain()
        writer.close()

    async def ask(web: Web, port: int) -> None:
        url = f"http://me:pass@127.0.0.1:{port}/cdx"
        response, _ = await followed(web, "GET", url, url)
        response.close()
        assert response.request.origin.port == port

    asyncio.run(asked_of(redirects, ask))
    assert [secret in one for one in asked] == [True, True]


def test_what_an_archec_says_of_its_sources_is_passed_on(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[1], b"whole")
    gone = line(U, STAMPS[0], filename="gone.warc.gz", offset="0", length="9")
    write_index(tmp_path / "a.cdxj", [*crawl.close(), gone])
    one = "index_group: {near: a.cdxj, lost: no.cdxj}, resource: ./w"
    behind = configured(tmp_path, f"collections: {{c: {{{one}}}}}\naccess: {{open: content}}")
    with serving(behind) as url:
        (tmp_path / "front").mkdir()
        replay = f"{url}/c/resource?url={{url}}&from={{timestamp}}"
        source = f"{{type: cdx, api_url: '{url}/c/index?url={{url}}', replay_url: '{replay}'}}"
        front = configured(
            tmp_path / "front", f"collections: {{f: {{index: {source}}}}}\naccess: {{open: content, cache: 5m}}"
        )
        with serving(front) as base, client(base, "") as get:
            for _ in range(2):  # such an answer is not cached
                answer = get.get(f"/f/index?url={U}")
                assert (answer.status_code, answer.text.count("\n")) == (200, 2)
                assert json.loads(answer.headers["reserrors"])["f"].startswith("lost: lost: cannot be read")
            loaded = get.get(f"/f/resource?url={U}")
            assert record(loaded).payload == b"whole"
            assert "near: gone.warc.gz" in json.loads(loaded.headers["reserrors"])["f"]


def test_an_index_without_replay_url_is_of_warc_files(tmp_path: Path) -> None:
    """As OutbackCDX tells users of pywb to write it: it has no captures itself."""
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[0], b"whole")
    write_index(tmp_path / "a.cdxj", crawl.close())
    with serving(configured(tmp_path, "collections: {c: ./a.cdxj}\naccess: {open: metadata}")) as url:
        (tmp_path / "front").mkdir()
        source = f"{{type: cdx, api_url: '{url}/c/cdx?url={{url}}', replay_url: ''}}"
        text = f"collections: {{f: {{index: {source}, resource: [$live, ../w]}}}}\naccess: {{open: content}}"
        with serving(configured(tmp_path / "front", text)) as base, client(base, "") as get:
            (row,) = found(get, "f")
            assert not {"live_url", "load_url"} & set(row)
            assert record(get.get(f"/f/resource?url={U}")).payload == b"whole"
            assert get.get(f"/f/{STAMPS[0]}id_/{U}").content == b"whole"


def test_a_memento_of_an_archec_has_the_headers_that_it_had(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    had = {"Date": "then", "Set-Cookie": "a=b", "Link": "<x>", "ETag": '"old"', "X-Note": "n", "Server": "s"}
    crawl.response(U, STAMPS[0], b"whole", headers={**had, "Content-Encoding": "odd"})
    write_index(tmp_path / "a.cdxj", crawl.close())
    one = "index_group: {near: a.cdxj, gone: no.cdxj}, resource: ./w"
    behind = configured(tmp_path, f"collections: {{c: {{{one}}}}}\naccess: {{open: content}}")
    with serving(behind) as url:
        (tmp_path / "front").mkdir()
        text = f"collections: {{c: cdx+{url}/c/cdx, m: memento+{url}/c/}}\naccess: {{open: content}}"
        with serving(configured(tmp_path / "front", text)) as base, client(base, "") as get, client(url, "") as own:
            for name in ("c", "m"):
                first, second = own.get(f"/c/{STAMPS[0]}id_/{U}"), get.get(f"/{name}/{STAMPS[0]}id_/{U}")
                told = [{k: v for k, v in one.headers.items() if k.startswith("x-")} for one in (first, second)]
                assert told[0] == told[1] | {"x-archive-orig-content-encoding": "odd"}
                assert {key: told[1][f"x-archive-orig-{key.lower()}"] for key in had} == had
                assert second.headers["content-encoding"] == "odd"
                assert "gone: " in json.loads(second.headers["reserrors"])[name]
                http = dict(record(get.get(f"/{name}/resource?url={U}")).http_headers.headers)
                assert {key.title() for key in http} == {key.title() for key in had} | {
                    "Content-Type", "Content-Encoding", "Content-Length"
                }  # fmt: skip


def test_a_memento_of_an_archec_has_no_headers_of_that_archec(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.octets(U, STAMPS[0], b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nwhole")
    crawl.other("resource", "http://b.org/", STAMPS[0], b"text", "text/plain")
    write_index(tmp_path / "a.cdxj", crawl.close())
    behind = configured(tmp_path, "collections: {c: {index: a.cdxj, resource: ./w}}\naccess: {open: content}")
    with serving(behind) as url:
        (tmp_path / "front").mkdir()
        text = f"collections: {{c: cdx+{url}/c/cdx}}\naccess: {{open: content}}"
        with serving(configured(tmp_path / "front", text)) as base, client(base, "") as get:
            for page, mime, size in ((U, "text/html", "5"), ("http://b.org/", "text/plain", "4")):
                http = record(get.get(f"/c/resource?url={page}")).http_headers.headers
                assert {name.title(): value for name, value in http} == {"Content-Type": mime, "Content-Length": size}


def test_posts_are_looked_up_in_other_indexes_but_not_loaded_with_get(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[0], b"shown")
    crawl.response(U, STAMPS[0], b"posted")
    shown, posted = crawl.close()
    write_index(tmp_path / "a.cdxj", [shown, posted.replace(b" ", b"?__wb_method=post&k=v ", 1)])
    behind = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}}\naccess: {open: content}")
    (tmp_path / "front").mkdir()
    with serving(behind) as url:
        source = f"'cdx+{url}/a/cdx'"
        colls = f"{{files: {{index: {source}, resource: ../w}}, replay: {source}, mem: 'memento+{url}/a/'}}"
        front = configured(tmp_path / "front", f"collections: {colls}\naccess: {{open: content}}")
        with serving(front) as base, client(base, "") as get:
            assert record(get.post(f"/files/resource?url={U}", data={"k": "v"})).payload == b"posted"
            assert get.post(f"/files/resource?url={U}", data={"k": "w"}).json() == {"message": "No Resource Found"}
            answer = get.post(f"/replay/resource?url={U}", data={"k": "v"})
            assert (answer.status_code, "GET" in answer.json()["errors"]["replay"]) == (404, True)
            assert record(get.get(f"/replay/resource?url={U}")).payload == b"shown"
            assert get.post(f"/mem/index?url={U}", data={"k": "v"}).text == ""
            assert get.post(f"/mem/resource?url={U}", data={"k": "v"}).json() == {"message": "No Resource Found"}
            assert record(get.get(f"/mem/resource?url={U}")).payload == b"shown"


def test_an_index_that_cannot_reverse_many_captures_says_what_to_do(
    get: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one["timestamp"] for one in found(get, "ia", "sort=reverse")] == [*reversed(STAMPS)]
    monkeypatch.setattr(remote_indexes, "MAX_SORTED", 2)
    answer = get.get(f"/ia/index?url={U}&sort=reverse")
    assert (answer.status_code, answer.text) == (200, "")
    assert "from and to" in json.loads(answer.headers["reserrors"])["ia"]


def test_a_group_answers_with_what_came_in_time(get: httpx.Client) -> None:
    begun = time.monotonic()
    answer = get.get(f"/many/index?output=json&url={U}&closest=2012")
    assert time.monotonic() - begun < 3
    told = json.loads(answer.headers["reserrors"])
    assert json.loads(get.get(f"/many/timemap/json/{U}").headers["reserrors"]).keys() == told.keys()
    assert told == dict.fromkeys(("hang", "drip", "flood"), "no answer within 0.5 s")
    assert {row["source"] for row in rows(answer.text)} == {"pywb", "mem", "near"}
    assert record(get.get(f"/many/resource?url={U}&closest=2012")).payload == b"near"
    assert get.get("/many/list_sources").json()["left_out"] == ["hang", "drip", "flood"]


def test_an_index_that_hangs_is_asked_once_for_a_memento(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[0], b"near")
    write_index(tmp_path / "a.cdxj", crawl.close())
    with archives() as far:
        hangs = f"cdx+{far.url}/hangs-cdx"
        group = f"{{index_group: {{near: a.cdxj, far: '{hangs}'}}, resource: ./w, index_timeout: 0.3}}"
        steps = f"[{{index: '{hangs}', index_timeout: 0.3}}, {{index: a.cdxj, resource: ./w}}]"
        collections = f"collections: {{g: {group}, s: {{sequence: {steps}}}}}"
        config = configured(tmp_path, f"{collections}\naccess: {{open: content}}")
        with serving(config) as base, client(base, "") as get:
            for name in ("g", "s"):
                answer = get.get(f"/{name}/{STAMPS[0]}id_/{U}")
                assert (answer.text, "no answer" in answer.headers["reserrors"]) == ("near", True)
        assert len(far.asked) == 2


def test_a_sequence_falls_through(get: httpx.Client) -> None:
    assert [row["timestamp"] for row in found(get, "seq")] == list(STAMPS)
    assert record(get.get(f"/seq/resource?url={U}")).payload == b"first"


def test_a_source_that_keeps_failing_is_left_out_for_a_while(there: Archives, get: httpx.Client) -> None:
    told = [json.loads(get.get(f"/fails/index?url={U}").headers["reserrors"])["fails"] for _ in range(4)]
    assert told[:3] == ["HTTP 500"] * 3
    assert "left out" in told[3]
    assert get.get("/fails/list_sources").json()["left_out"] == ["fails"]
    assert "archec_access_sources_left_out 0" not in get.get("/metrics").text


def test_captures_become_records(there: Archives, get: httpx.Client) -> None:
    for coll in ("pywb", "mem", "inexact"):
        one = record(get.get(f"/{coll}/resource?url={U}"))
        assert one.payload == b"first"
        assert one.rec_headers.get_header("WARC-Target-URI") == U
        assert one.rec_headers.get_header("WARC-Date") == "2014-01-01T00:00:00Z"
        assert one.rec_headers.get_header("WARC-Source-URI").startswith(there.url)
        assert one.http_headers.get_header("X-Own") == "kept"
        assert one.http_headers.get_header("Link") is None
        assert one.http_headers.get_header("Content-Length") == "5"


def test_a_password_is_used_and_not_shown(there: Archives, get: httpx.Client) -> None:
    for coll, more in (("secret", ""), ("secret-mem", ""), ("secret-bare", "&closest=2014")):
        there.asked.clear()
        answers = [get.get(f"/{coll}/{mode}?url={U}{more}") for mode in ("index", "resource")]
        assert record(answers[1]).payload == b"first"
        assert [asked[2].get("Authorization") for asked in there.asked] == ["Basic bWU6cGFzcw=="] * len(there.asked)
        for answer in answers:
            assert b"me:pass" not in answer.content
            assert "me:pass" not in str(answer.headers)


def test_clients_do_not_learn_the_address_of_a_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.3", 0)) as taken:
        port = taken.getsockname()[1]
    source = f"cdx+http://127.0.0.3:{port}/c"
    config = configured(tmp_path, f"collections: {{c: '{source}'}}\naccess: {{open: content}}")
    with serving(config) as base, client(base, "") as get:
        assert json.loads(get.get(f"/c/index?url={U}").headers["reserrors"]) == {"c": "no connection (unreachable)"}
    assert any("127.0.0.3" in one for one in caplog.messages), "for the operator"


def test_redirects_are_judged_like_strangers(there: Archives, get: httpx.Client) -> None:
    answer = get.get(f"/private/resource?url={U}")
    assert answer.status_code == 404
    assert answer.json()["errors"]["private"] == "no connection (blocked-address)"
    other = get.get(f"/inexact/resource?url={U}&from=2015")  # leads to the capture of 2014
    assert other.headers["memento-datetime"] == "Wed, 01 Jan 2014 00:00:00 GMT"
    assert get.get(f"/astray/resource?url={U}").json()["errors"] == {"astray": "it redirects to an invalid URL"}
    assert "(blocked-address)" in json.loads(get.get(f"/led/index?url={U}").headers["reserrors"])["led"]
    for coll in ("moved", "moved-mem"):
        assert [row["timestamp"] for row in found(get, coll)] == list(STAMPS)
    assert [row["timestamp"] for row in found(get, "moved-mem", "closest=2014")] == [STAMPS[0]]
    assert record(get.get(f"/moved-warcs/resource?url={U}")).payload == b"near"


def test_warc_files_elsewhere_are_read_by_ranges(get: httpx.Client) -> None:
    assert record(get.get(f"/warcs/resource?url={U}")).payload == b"near"
    assert PrefixResolver("http://h/w").places("a/b c%2e%2e/x?y#z")[0].path == "http://h/w/a/b%20c%252e%252e/x%3Fy%23z"


def test_collections_of_other_archives_are_named_in_the_query(get: httpx.Client, there: Archives) -> None:
    for query in ("sources=p:left", "sources=p&param.p.src_coll=left", "sources=p&param.src_coll=left"):
        rows = found(get, "colls", query)
        assert {row["live_url"] for row in rows} == {f"{there.url}/left/{stamp}id_/{U}" for stamp in STAMPS}
        assert {(row["source"], row["source-coll"]) for row in rows} == {("p:left", "p")}
    assert found(get, "colls", "sources=p")[0]["live_url"] == f"{there.url}//{STAMPS[0]}id_/{U}"


def test_a_timegate_that_answers_itself_asks_an_index_for_the_nearest(
    get: httpx.Client, there: Archives
) -> None:
    there.asked.clear()
    answer = get.get(f"/pywb/id_/{U}", headers={"Accept-Datetime": "Wed, 01 Jan 2014 00:00:00 GMT"})
    assert answer.status_code == 200, answer.text
    asked = [parse_qs(urlsplit(path).query) for _, path, _, _ in there.asked if "id_/" not in path]
    wanted = [["20140101000000"], [answer.headers["content-location"].partition("/pywb/")[2][:14]]]
    assert ([one["closest"] for one in asked], asked[0]["limit"]) == (wanted, ["1000"])


def test_a_server_that_gives_no_record_in_time_is_asked_once(get: httpx.Client, there: Archives) -> None:
    answer = get.get(f"/silent/resource?url={U}")
    assert (answer.status_code, answer.json()["errors"]) == (404, {"silent": "no answer within 0.3 s"})
    assert len([path for _, path, _, _ in there.asked if path.startswith("/hangs/")]) == 1
    answer = get.get(f"/stalls/resource?url={U}")  # it announces a body and does not send it
    assert (answer.status_code, answer.json()["errors"]) == (404, {"stalls": "no answer within 0.3 s"})
    for coll in ("slow", "dripping"):
        loaded = get.get(f"/{coll}/resource?url={U}")  # of the next place
        assert (loaded.status_code, record(loaded).payload) == (200, b"near")
        assert "no answer within 0.3 s" in json.loads(loaded.headers["reserrors"])[coll]
        assert loaded.elapsed.total_seconds() < 5


def test_a_place_that_fails_is_named_also_where_another_one_has_the_record(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[0], b"near")
    write_index(tmp_path / "a.cdxj", crawl.close())
    whole = (tmp_path / "w" / "a.warc.gz").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "a.warc.gz").write_bytes(whole[:-60])
    with archives() as far:
        (tmp_path / "list.txt").write_text(f"a.warc.gz\t{far.url}/fails/a\t{tmp_path}/w/a.warc.gz\n")
        absent = f"./none, ./a.cdxj, '{far.url}/absent/', warc-prefix+./cut/absent"
        places = {
            "absent": (f"[{absent}, ./w]", None),
            "fails": (f"[{absent}, '{far.url}/fails/', ./w]", {"fails": "a.warc.gz: HTTP 500"}),
            "cut": (f"[./cut, {absent}, ./w]", {"cut": "a.warc.gz: it is truncated"}),
            "listed": ("warc-index+./list.txt", {"listed": "a.warc.gz: HTTP 500"}),
        }
        text = "\n".join(f"  {name}: {{index: a.cdxj, resource: {place}}}" for name, (place, _) in places.items())
        config = configured(tmp_path, f"collections:\n{text}\naccess: {{open: content}}")
        with serving(config) as base, client(base, "") as get:
            for name, (_, errors) in places.items():
                answer = get.get(f"/{name}/resource?url={U}")
                assert record(answer).payload == b"near"
                assert json.loads(answer.headers.get("reserrors", "null")) == errors


@pytest.mark.parametrize("end", [".warc", ".warc.gz"])
def test_another_file_of_the_same_name_is_no_failure(tmp_path: Path, end: str) -> None:
    """Whether it has another record at that place, the middle of one, or an end before it."""
    lines = []
    for folder, sizes in (("one", (5, 900)), ("two", (5, 50, 70, 2000, 5))):
        crawl = Crawl(tmp_path / folder / f"a{end}")
        for number, size in enumerate(sizes):
            crawl.response(f"http://{folder}.org/{number}", STAMPS[0], random.Random(number).randbytes(size))
        lines += crawl.close()
    write_index(tmp_path / "a.cdxj", lines)
    text = "collections: {c: {index: a.cdxj, resource: [./one, ./two]}}\naccess: {open: content}"
    with serving(configured(tmp_path, text)) as base, client(base, "") as get:
        for number in range(5):
            answer = get.get(f"/c/resource?url=http://two.org/{number}")
            assert (answer.status_code, answer.headers.get("reserrors")) == (200, None), number


def test_a_server_that_gives_no_warc_file_in_time_is_asked_once(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "b.warc.gz")
    crawl.response(U, "20160101000000", b"near")
    gone = [line(U, stamp, filename="a.warc", offset="0", length="9") for stamp in STAMPS]
    write_index(tmp_path / "a.cdxj", [*gone, *crawl.close()])
    with archives() as far:
        resource = f"resource: ['{far.url}/hangs/', ./w], index_timeout: 0.3"
        text = f"collections: {{a: {{index: a.cdxj, {resource}}}}}\naccess: {{open: content}}"
        with serving(configured(tmp_path, text)) as base, client(base, "") as get:
            assert record(get.get(f"/a/resource?url={U}")).payload == b"near"
        assert len(far.asked) == 1


def test_a_server_that_sends_without_end_is_asked_once(
    get: httpx.Client, there: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archec.access.remote.MAX_ANSWER", 100_000)
    answer = get.get(f"/endless/resource?url={U}")
    assert (answer.status_code, answer.json()["errors"]) == (404, {"endless": "its answer is larger than 100000 bytes"})
    assert len([path for _, path, _, _ in there.asked if path.startswith("/floods/")]) == 1


def test_the_live_web_is_for_those_with_the_right(base: str, there: Archives, get: httpx.Client) -> None:
    target = f"{there.url}/live/x"
    assert get.get(f"/live/index?url={target}").text == ""
    with client(base, WRITER) as writer:
        row = rows(writer.get(f"/live/index?url={target}&output=json").text)[0]
        assert (row["live_url"], row["is_live"], row["source_type"]) == (target, "true", "live")
        one = record(writer.get(f"/live/resource?url={target}"))
        assert (one.payload, one.http_headers.get_statuscode()) == (b"GET ", "201")
        posted = record(writer.post(f"/live/resource?url={target}", content=b"k=v", headers={"Content-Type": "a/b"}))
        assert posted.payload == b"POST k=v"
        assert posted.http_headers.get_header("X-Type") == "a/b"
        assert there.asked[-1][2].get("Authorization") is None
        raw = "POST / HTTP/1.1\r\nContent-Type: c/d\r\nX-Mine: 1\r\n\r\nbody"
        again = record(writer.post(f"/live/resource-post?url={target}", content=raw))
        assert (again.payload, there.asked[-1][2]["X-Mine"]) == (b"POST body", "1")
        raw = "POST /\nCookie: a=1\nX: 1\nContent-Length: 4\nUpgrade: x\ncookie: b=2\nX: 2\n\nbody and more"
        again = record(writer.post(f"/live/resource-post?url={target}", content=raw))
        sent = there.asked[-1][2]
        assert (again.payload, sent["Cookie"], sent["X"]) == (b"POST body", "a=1; b=2", "1, 2")
        assert "Upgrade" not in sent
        for wrong in ("X-\u00e9: 1", "X Y: 1", "X: a\rb", "X: a\0b", "Transfer-Encoding: chunked"):
            answer = writer.post(f"/live/resource-post?url={target}", content=f"POST /\n{wrong}\n\nbody")
            assert answer.status_code == 400, wrong
        raw = "POST /\nContent-Type: c/\u00e9\n\nbody"
        kept = writer.post(f"/live/resource-post?url={target}", content=raw).content
        assert "X-Type: c/\u00e9\r\n".encode() in kept  # the bytes of a header are as they were sent
        large = b"x" * 300_000  # more than server.max_body allows elsewhere
        assert record(writer.post(f"/live/resource?url={target}", content=large)).payload == b"POST " + large
        raw = "POST /\n\n" + large.decode()
        assert record(writer.post(f"/live/resource-post?url={target}", content=raw)).payload == b"POST " + large
        assert writer.put(f"/live/resource?url={target}", content=b"x").status_code == 405
        head = record(writer.post(f"/live/resource-post?url={target}", content="HEAD /"))
        assert (there.asked[-1][0], head.payload) == ("HEAD", b"")
        private = writer.get(f"/live/resource?url={there.other}/live/x")
        assert private.status_code == 404
        gate = writer.get(f"/live/{target}")
        assert (gate.status_code, "index and resource" in gate.headers["reserrors"]) == (404, True)


def test_the_live_index_is_off_as_shipped(tmp_path: Path) -> None:
    config = configured(tmp_path, "collections: {live: $live}")
    give_tokens(config)
    with serving(config) as url, client(url, WRITER) as writer:
        answer = writer.get("/live/index?url=http://x.org/")
        assert answer.text == ""
        assert "access.live" in json.loads(answer.headers["reserrors"])["live"]


def test_answers_are_used_again_where_a_cache_is_on(there: Archives, tmp_path: Path) -> None:
    config = configured(tmp_path, f"collections: {{p: 'cdx+{there.url}/pywb/all-cdx'}}\naccess: {{cache: 5m}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        there.asked.clear()
        assert found(get, "p") == found(get, "p")
        assert len(there.asked) == 1
        assert get.post(f"/p/index?url={U}", data={"a": "1"}).text == ""
        assert len(found(get, "p")) == len(STAMPS)
        table = f"/cdx/search/cdx?url={U}&fl=timestamp"
        first, _, rest = get.get(f"{table}&limit=1&showResumeKey=true").text.partition("\n\n")
        assert [first, *get.get(f"{table}&resumeKey={rest.strip()}").text.split()] == get.get(table).text.split()
