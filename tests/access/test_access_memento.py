"""TimeGates, mementos, TimeMaps and raw replay."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from access_support import LISTER, READER, client, configured, give_tokens, line, serving, write_index
from remote_archives import archives
from warc_files import Crawl

from archec.access.exchange import Exchange
from archec.access.memento import Addresses
from archec.access.query import joined
from archec.access.record import Record
from archec.access.replay import answer_replay
from archec.access.resource import Loaded
from archec.access.rows import NOWHERE, Row
from archec.access.sources import Errors
from archec.server.responses import in_pieces
from archec.warc.cdxj import timestamp

U = "http://a.org/x?b=2&a=1"
PART = "http://a.org/part"
STAMPS = ("20140101000000", "20150101000000", "20160101000000")
DATES = ("Wed, 01 Jan 2014 00:00:00 GMT", "Thu, 01 Jan 2015 00:00:00 GMT", "Fri, 01 Jan 2016 00:00:00 GMT")


ENDLESS = "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    crawl = Crawl(folder / "w" / "a.warc.gz")
    unsafe = {"Set-Cookie": "a=b", "Connection": "close", "ETag": '"old"', "X-Note": "n", "X_Accel-Redirect": "/"}
    for n, stamp in enumerate(STAMPS):
        crawl.response(U, stamp, f"version {n}".encode(), headers={**unsafe, "Last-Modified": DATES[n]})
    crawl.response("http://a.org/moved", STAMPS[0], b"", status="301 Moved", headers={"Location": "/x?a=1&b=2"})
    crawl.response("http://a.org/gone", STAMPS[0], b"gone", status="404 Not Found")
    crawl.response("http://a.org/odd", STAMPS[0], b"go away", status="999 Denied")
    twice = b"HTTP/1.1 302 Found\r\nLocation: /first\r\nLocation: /second\r\n\r\n"
    crawl.octets("http://a.org/twice", STAMPS[0], twice)
    latin = b"HTTP/1.1 302 Found\r\nLocation: /\xe9?\xc3\xa9\r\nX-Name: caf\xe9\r\n\r\n"
    crawl.octets("http://a.org/latin", STAMPS[0], latin)
    crawl.response("http://a.org/Case", STAMPS[0], b"", status="301 Moved", headers={"Location": "/case"})
    crawl.response("http://a.org/case", STAMPS[1], b"the page")
    unheard = b"HTTP/1.1 302 Found\r\nLocation: http://ex\xe9mple.org/\r\n\r\n"
    crawl.octets("http://a.org/unheard", STAMPS[0], unheard)
    crawl.response("http://a.org/dated", STAMPS[0], b"dated", headers={"Last-Modified": ENDLESS})
    packed = {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}
    crawl.response("http://a.org/chunks", STAMPS[0], b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", headers=packed)
    crawl.response(PART, STAMPS[0], b"cdefg", status="206 Partial Content", headers={"Content-Range": "bytes 2-6/9"})
    crawl.response("http://a.org/ä>x", STAMPS[0], b"odd")
    crawl.other("resource", "urn:x-repec:aaa:s:1", STAMPS[0], b"Template-Type: x", "text/plain; charset=utf-8")
    write_index(folder / "a.cdxj", [*crawl.close(), b'org,nourl)/ 20140101000000 {"mime": "a/b"}'])
    config = configured(folder, "collections: {a: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url:
        yield url


def rels(header: str) -> dict[str, tuple[str, str]]:
    """URI and datetime by relation."""
    found: dict[str, tuple[str, str]] = {}
    for uri, rest in re.findall(r'<([^>]*)>((?:; [a-z]+="[^"]*")*)', header):
        names = re.search(r'rel="([^"]*)"', rest)
        date = re.search(r'datetime="([^"]*)"', rest)
        for name in names[1].split() if names else ():
            found.setdefault(name, (uri, date[1] if date else ""))
    return found


def test_sources_that_fail_are_named_whatever_is_found(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response("http://a.org/", STAMPS[0], b"held")
    write_index(tmp_path / "a.cdxj", crawl.close())
    index = "{index_group: {a: a.cdxj, none: missing.cdxj}, resource: ./w}"
    config = configured(tmp_path, f"collections: {{a: {index}}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        for path, status in (
            ("/a/http://a.org/", 302), ("/a/http://no.org/", 404), ("/a/id_/http://no.org/", 404),
            ("/a/id_/http://a.org/", 200), ("/a/2014/http://a.org/", 302), (f"/a/{STAMPS[0]}id_/http://a.org/", 200),
            ("/a/2014/http://no.org/", 404), ("/a/timemap/link/http://no.org/", 404),
            ("/wayback/available?url=no.org", 200),
        ):  # fmt: skip
            answer = get.get(path)
            assert (answer.status_code, list(json.loads(answer.headers["reserrors"]))) == (status, ["none"]), path


@pytest.mark.parametrize(
    ("date", "chosen"),
    [
        ("", 2),
        ("Tue, 01 Jan 2013 00:00:00 GMT", 0),
        ("Sun, 01 Feb 2015 00:00:00 GMT", 1),
        ("Sat, 01 Jan 2028 00:00:00 GMT", 2),
    ],
)
def test_a_timegate_redirects_to_the_nearest(base: str, get: httpx.Client, date: str, chosen: int) -> None:
    answer = get.get(f"/a/{U}", headers={"Accept-Datetime": date} if date else {})
    assert answer.status_code == 302
    assert answer.headers["location"] == f"{base}/a/{STAMPS[chosen]}id_/{U}"
    assert answer.headers["vary"] == "accept-datetime"
    assert "memento-datetime" not in answer.headers
    found = rels(answer.headers["link"])
    assert found["original"][0] == U
    assert found["timemap"][0] == f"{base}/a/timemap/link/{U}"
    assert found["first"] == (f"{base}/a/{STAMPS[0]}id_/{U}", DATES[0])
    assert found["last"] == (f"{base}/a/{STAMPS[2]}id_/{U}", DATES[2])
    own = answer.headers["link"].partition(f'<{answer.headers["location"]}>; ')[2].partition(", <")[0]
    assert re.fullmatch(f'rel="[a-z ]*memento"; datetime="{DATES[chosen]}"', own)
    assert ("prev" in found, "next" in found) == (chosen > 0, chosen < 2)


def test_a_row_without_its_url_is_of_the_url_that_is_asked_for(base: str, get: httpx.Client) -> None:
    answer = get.get("/a/http://nourl.org/")
    assert answer.headers["location"] == f"{base}/a/{STAMPS[0]}id_/http://nourl.org/"
    assert rels(answer.headers["link"])["original"][0] == "http://nourl.org/"


def test_links_are_made_of_hosts_only(get: httpx.Client) -> None:
    for host, status in (("x.org:8080", 302), ("[::1]:80", 302), ('x"><y', 400), ("x.org/a", 400), ("x@y, z", 400)):
        answer = get.get(f"/a/{U}", headers={"Host": host})
        assert answer.status_code == status, host
        assert status == 400 or f"<http://{host}/a/timemap/" in answer.headers["link"]


def test_bad_dates_and_unknown_urls(get: httpx.Client) -> None:
    for date in ("yesterday", "2015-01-01", "Thu, 31 May 2007 20:35:00 CET", "Thu, 99 May 2007 20:35:00 GMT"):
        assert get.get(f"/a/{U}", headers={"Accept-Datetime": date}).status_code == 400
    for path in ("/a/http://none.org/", "/a/2014id_/http://none.org/", "/a/id_/http://none.org/"):
        answer = get.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("form", ["xml", "LINK", "x9"])
def test_other_forms_of_timemaps_are_refused(get: httpx.Client, form: str) -> None:
    answer = get.get(f"/a/timemap/{form}/{U}")
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert form in answer.json()["message"]


def test_a_memento_is_what_it_was(base: str, get: httpx.Client) -> None:
    for modifier in ("id_", "", "im_", "js_", "cs_", "if_", "mp_"):
        answer = get.get(f"/a/{STAMPS[1]}{modifier}/{U}")
        assert (answer.status_code, answer.content) == (200, b"version 1")
        headers = answer.headers
        assert headers["memento-datetime"] == DATES[1]
        assert headers["content-location"] == f"{base}/a/{STAMPS[1]}id_/{U}"
        assert "vary" not in headers
        assert headers["last-modified"] == DATES[1]
        assert "set-cookie" not in headers
        assert (headers["x-archive-orig-set-cookie"], headers["x-archive-orig-connection"]) == ("a=b", "close")
        assert (headers["x-archive-orig-etag"], headers["x-archive-orig-x-note"]) == ('"old"', "n")
        assert (headers["x-note"], headers["x-archive-orig-last-modified"]) == ("n", DATES[1])
        assert (headers["x-archive-orig-x_accel-redirect"], "x_accel-redirect" in headers) == ("/", False)
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert rels(headers["link"])["prev"][1] == DATES[0]


def test_an_inexact_stamp_leads_to_the_exact_one(base: str, get: httpx.Client) -> None:
    answer = get.get(f"/a/2014/{U}")
    assert answer.status_code == 302
    assert answer.headers["location"] == f"{base}/a/{STAMPS[1]}id_/{U}"
    assert "vary" not in answer.headers
    assert get.get(f"/a/{STAMPS[0]}/http:/a.org/x?a=1&b=2").status_code == 200


def test_a_timegate_that_answers_itself(base: str, get: httpx.Client) -> None:
    answer = get.get(f"/a/id_/{U}", headers={"Accept-Datetime": DATES[0]})
    assert (answer.status_code, answer.content) == (200, b"version 0")
    assert answer.headers["vary"] == "accept-datetime"
    assert answer.headers["content-location"] == f"{base}/a/{STAMPS[0]}id_/{U}"
    assert answer.headers["memento-datetime"] == DATES[0]


def test_links_are_those_of_the_memento_that_is_sent(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for url in ("http://a.org/", "https://a.org/"):
        crawl.response(url, STAMPS[0], url.encode())
    write_index(tmp_path / "a.cdxj", crawl.close())
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        for path in ("/a/id_/a.org", f"/a/{STAMPS[0]}id_/a.org"):
            answer = get.get(path)
            assert rels(answer.headers["link"])["original"][0] == answer.text
            assert answer.headers["content-location"] == f"{url}/a/{STAMPS[0]}id_/{answer.text}"


@pytest.mark.parametrize("stamp", ["20140101000000", "20140101000000123"])
@pytest.mark.parametrize("chain", ["c", "front"])
def test_of_captures_at_one_time_the_url_that_is_asked_for_is_sent(tmp_path: Path, stamp: str, chain: str) -> None:
    urls = ["http://s.org/", "http://www.s.org/", "https://s.org/"]
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for url in urls:
        crawl.response(url, "20140101000000", url.encode())
    told = [one.replace(b" 20140101000000 ", f" {stamp} ".encode()) for one in crawl.close()]
    write_index(tmp_path / "a.cdxj", told)
    behind = configured(tmp_path, "collections: {c: {index: a.cdxj, resource: ./w}}\naccess: {open: content}")
    with serving(behind) as base:
        (tmp_path / "front").mkdir()
        there = f"api_url: '{base}/c/index?url={{url}}', replay_url: '{base}/c/{{timestamp}}id_/{{url}}'"
        text = f"collections: {{front: {{index: {{type: cdx, {there}}}}}}}\naccess: {{open: content}}"
        front = configured(tmp_path / "front", text)
        with serving(front) as url, client(base if chain == "c" else url, "") as get:
            for one in urls:
                at = {"Accept-Datetime": "Thu, 02 Jan 2014 00:00:00 GMT"}
                for answer in (get.get(f"/{chain}/{one}"), get.get(f"/{chain}/{one}", headers=at)):
                    assert answer.headers["location"].endswith(f"/{chain}/{stamp}id_/{one}")
                sent = get.get(answer.headers["location"])
                assert (sent.text, sent.headers["content-location"]) == (one, answer.headers["location"])


def test_redirects_failures_chunks_and_templates(base: str, get: httpx.Client) -> None:
    moved = get.get(f"/a/{STAMPS[0]}id_/http://a.org/moved")
    assert moved.status_code == 301
    assert moved.headers["location"] == f"{base}/a/{STAMPS[0]}id_/http://a.org/x?a=1&b=2"
    assert "x-archive-orig-location" not in moved.headers
    twice = get.get(f"/a/{STAMPS[0]}id_/http://a.org/twice")
    assert twice.headers["location"] == f"{base}/a/{STAMPS[0]}id_/http://a.org/first"
    odd = get.get(f"/a/{STAMPS[0]}id_/http://a.org/odd")
    assert (odd.status_code, odd.content, "memento-datetime" in odd.headers) == (502, b"go away", True)
    gone = get.get(f"/a/{STAMPS[0]}id_/http://a.org/gone")
    assert (gone.status_code, gone.content, gone.headers["memento-datetime"]) == (404, b"gone", DATES[0])
    with get.stream("GET", f"/a/{STAMPS[0]}id_/http://a.org/chunks") as chunks:
        assert b"".join(chunks.iter_raw()) == b"abcde"
        assert chunks.headers["content-encoding"] == "gzip"
    template = get.get(f"/a/{STAMPS[0]}id_/urn:x-repec:aaa:s:1")
    assert (template.content, template.headers["content-type"]) == (b"Template-Type: x", "text/plain; charset=utf-8")


def test_ranges_tags_and_head(get: httpx.Client) -> None:
    path = f"/a/{STAMPS[1]}id_/{U}"
    for given, status, content, span in (
        ("bytes=0-2", 206, b"ver", "bytes 0-2/9"),
        ("bytes=8-", 206, b"1", "bytes 8-8/9"),
        ("bytes=-3", 206, b"n 1", "bytes 6-8/9"),
        ("bytes=9-", 416, b"", "bytes */9"),
        ("bytes=x", 200, b"version 1", ""),
        ("bytes=5-2", 200, b"version 1", ""),
    ):
        answer = get.get(path, headers={"Range": given})
        assert (answer.status_code, answer.content, answer.headers.get("content-range", "")) == (status, content, span)
    whole = get.get(path)
    tag = whole.headers["etag"]
    for known in ({"If-None-Match": f'"x", {tag}'}, {"If-None-Match": f"W/{tag}"}, {"If-None-Match": "*"},
                  {"If-Modified-Since": whole.headers["last-modified"]}, {"If-Modified-Since": DATES[2]}):  # fmt: skip
        assert get.get(path, headers=known).status_code == 304
    for other in ({"If-None-Match": '"x"'}, {"If-Modified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"}):
        assert get.get(path, headers=other).status_code == 200
    modified = whole.headers["last-modified"]
    for unit, given, status in (
        ("bytes", '"x"', 200), ("bytes", DATES[0], 200), ("bytes", tag, 206), ("Bytes", modified, 206),
    ):  # fmt: skip
        assert get.get(path, headers={"Range": f"{unit}=0-2", "If-Range": given}).status_code == status
    for demand, status in (
        ({"If-Match": '"x"'}, 412), ({"If-Match": f"W/{tag}"}, 412), ({"If-Match": f'"x", {tag}'}, 200),
        ({"If-Match": "*"}, 200), ({"If-Unmodified-Since": DATES[0]}, 412), ({"If-Unmodified-Since": modified}, 200),
        ({"If-Match": tag, "If-Unmodified-Since": DATES[0]}, 200),
        ({"If-None-Match": '"x"', "If-Modified-Since": modified}, 200),
    ):  # fmt: skip
        assert get.get(path, headers=demand).status_code == status, demand
    head = get.head(path, headers={"Range": "bytes=0-2"})
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "9")
    assert get.post(path).status_code == 405


def test_a_capture_of_an_error_or_a_redirect_ignores_preconditions(get: httpx.Client) -> None:
    for page, status in (("gone", 404), ("moved", 301)):
        path = f"/a/{STAMPS[0]}id_/http://a.org/{page}"
        tag = get.get(path).headers["etag"]
        for given in ({"If-None-Match": tag}, {"If-Match": '"x"'}):
            assert get.get(path, headers=given).status_code == status


def test_headers_keep_bytes_that_are_not_ascii(base: str, get: httpx.Client) -> None:
    answer = get.get(f"/a/{STAMPS[0]}id_/http://a.org/latin")
    assert answer.headers["location"] == f"{base}/a/{STAMPS[0]}id_/http://a.org/%E9?%C3%A9"
    raw = dict(answer.headers.raw)
    assert raw[b"x-name"] == raw[b"x-archive-orig-x-name"] == b"caf\xe9"


def test_dates_beyond_all_calendars_are_no_dates(get: httpx.Client) -> None:
    for given in ({}, {"If-Modified-Since": DATES[0]}):
        assert get.get(f"/a/{STAMPS[0]}id_/http://a.org/dated", headers=given).status_code == 200
    assert get.get(f"/a/{STAMPS[0]}id_/{U}", headers={"If-Unmodified-Since": ENDLESS}).status_code == 200


def test_a_redirect_to_a_host_that_is_no_text(get: httpx.Client) -> None:
    assert get.get("/a/resource?url=http://a.org/unheard").status_code == 200
    assert get.get(f"/a/{STAMPS[0]}id_/http://a.org/unheard").status_code == 302


def test_a_redirect_to_a_url_of_the_same_key_is_one_to_itself(get: httpx.Client) -> None:
    answer = get.get("/a/resource?url=http://a.org/Case")
    assert answer.content.endswith(b"the page\r\n\r\n")
    assert json.loads(answer.headers["reserrors"]) == {"a": "Self Redirect http://a.org/Case -> /case"}


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("x/y?z#f", "http://a.org/x/y?z#f"), ("//b.org/~x", "http://b.org/~x"), ("https://b.org:80/", "https://b.org:80/"),
        ("\\\\b.org\\x", "http://b.org/x"), ("///b.org/x", "http://b.org/x"), ("https:b.org/x", "https://b.org/x"),
        ("http:x", "http://a.org/x"), ("/\\b.org", "http://b.org/"), ("/x\t/y", "http://a.org/x/y"), ("//", ""),
        ("http://[", ""), ("mailto:x", "mailto:x"),
    ],
)  # fmt: skip
def test_a_redirect_leads_where_browsers_go(given: str, target: str) -> None:
    assert joined("http://a.org/p?q", given) == target


def test_a_part_that_was_captured_is_a_part(get: httpx.Client) -> None:
    path = f"/a/{STAMPS[0]}id_/{PART}"
    for given, status, content, span in (
        ("", 206, b"cdefg", "bytes 2-6/9"),
        ("bytes=3-4", 206, b"de", "bytes 3-4/9"),
        ("bytes=0-3", 206, b"cd", "bytes 2-3/9"),
        ("bytes=5-", 206, b"fg", "bytes 5-6/9"),
        ("bytes=-4", 206, b"fg", "bytes 5-6/9"),
        ("bytes=7-", 416, b"", "bytes */9"),
        ("bytes=-2", 416, b"", "bytes */9"),
    ):
        answer = get.get(path, headers={"Range": given} if given else {})
        assert (answer.status_code, answer.content, answer.headers["content-range"]) == (status, content, span)
        assert status == 416 or answer.headers["memento-datetime"] == DATES[0]


@pytest.mark.parametrize(
    ("told", "given", "status", "span"),
    [
        ("bytes 0-4/3", "bytes=0-1", 206, "bytes 0-4/3"),  # as it was, no range of it
        ("bytes 0-4/*", "bytes=0-1", 206, "bytes 0-1/*"),
        ("bytes 0-4/*", "bytes=9-", 416, ""),
    ],
)
def test_a_part_of_an_unknown_or_impossible_whole(told: str, given: str, status: int, span: str) -> None:
    http = f"HTTP/1.1 206 Partial Content\r\nContent-Range: {told}\r\n\r\n".encode()
    row = Row(b"", "org,a)/", STAMPS[0], {"url": U}, NOWHERE)
    exchange = Exchange({"method": "GET", "path": "/", "headers": [(b"range", given.encode())]}, None)  # type: ignore[arg-type]
    loaded = Loaded(row, Record((), http, 5, in_pieces(b"abcde")))
    answer = answer_replay(exchange, loaded, Addresses("http://x", U), "", Errors())
    assert (answer.status_code, answer.headers.get("content-range", "")) == (status, span)


def test_addresses_are_uris_whatever_the_url(base: str, get: httpx.Client) -> None:
    gate = get.get("/a/http://a.org/%C3%A4%3Ex")
    assert gate.headers["location"] == f"{base}/a/{STAMPS[0]}id_/http://a.org/%C3%A4%3Ex"
    assert get.get(gate.headers["location"]).content == b"odd"
    assert rels(gate.headers["link"])["first"][0] == gate.headers["location"]
    assert "<http://a.org/%C3%A4%3Ex>" in get.get("/a/index?url=a.org/ä>x&output=link").text
    record = get.get("/a/resource?url=a.org/ä>x").headers
    assert record["warc-target-uri"] == "http://a.org/%C3%A4%3Ex"
    assert json.loads(record["warcserver-cdx"].split(" ", 2)[2])["url"] == "http://a.org/ä>x"


def test_timemaps(base: str, get: httpx.Client) -> None:
    answer = get.get(f"/a/timemap/link/{U}")
    assert answer.headers["content-type"] == "application/link-format"
    assert "vary" not in answer.headers
    assert rels(get.get("/a/timemap/link/a.org/x?b=2&a=1").headers["link"])["original"][0] == U
    found = rels(answer.text.replace("\n", ""))
    assert found["self"][0] == f"{base}/a/timemap/link/{U}"
    assert f'from="{DATES[0]}"; until="{DATES[2]}"' in answer.text
    assert re.findall('datetime="([^"]*)"', answer.text) == list(DATES)
    value = get.get(f"/a/timemap/json/{U}").json()
    assert [one["uri"] for one in value["mementos"]["list"]] == [f"{base}/a/{stamp}id_/{U}" for stamp in STAMPS]
    assert value["mementos"]["first"]["datetime"] == "2014-01-01T00:00:00Z"
    assert [row[:14] for row in get.get(f"/a/timemap/cdxj/{U}").text.splitlines() if row[0] != "!"] == list(STAMPS)
    none = get.get("/a/timemap/link/http://none.org/")
    assert (none.status_code, none.text, none.headers["content-type"]) == (404, "", "application/link-format")
    unknown = get.get(f"/a/timemap/xml/{U}")
    assert unknown.status_code == 400
    assert "xml" in unknown.json()["message"]


@pytest.mark.parametrize("form", ["link", "json", "cdxj"])
def test_a_page_of_a_timemap_holds_up_nobody(get: httpx.Client, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """It is not written by the event loop."""
    places: list[bool] = []

    def noted(stamp: str) -> str:
        places.append(asyncio._get_running_loop() is not None)
        return stamp

    for name in ("http_date", "iso_date"):
        monkeypatch.setattr(f"archec.access.memento.{name}", noted)
    assert get.get(f"/a/timemap/{form}/{U}").status_code == 200
    assert set(places) == {False}


def test_an_impossible_time_is_a_possible_one_near_it(tmp_path: Path) -> None:
    times = ("00000000000000", "20140231000000", "20151301256199")
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for stamp in times:
        crawl.response("http://a.org/", stamp, stamp.encode())
    write_index(tmp_path / "a.cdxj", crawl.close())
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        listed = get.get("/a/timemap/json/a.org").json()["mementos"]["list"]
        dates = ["1000-01-01T00:00:00Z", "2014-02-28T00:00:00Z", "2015-12-01T23:59:59Z"]
        assert [one["datetime"] for one in listed] == dates
        listed = re.findall('datetime="([^"]*)"', get.get("/a/timemap/link/a.org").text)
        for uri, stamp, date in zip(times, times, listed, strict=True):
            answer = get.get(f"/a/{uri}id_/http://a.org/")
            assert (answer.text, answer.headers["memento-datetime"]) == (stamp, date)
        (tmp_path / "front").mkdir()
        source = f"memento+{base.replace('//', f'//x:{READER}@')}/a/"
        front = configured(tmp_path / "front", f"collections: {{m: '{source}'}}")
        give_tokens(front)
        with serving(front) as url, client(url) as ours:
            for stamp in times[1:]:
                assert stamp in ours.get(f"/m/resource?url=a.org&closest={stamp}").text


def test_a_timemap_names_a_memento_once_whatever_sources_have_it(tmp_path: Path) -> None:
    urls = ("http://a.org/", "https://a.org/")
    for name in "xy":
        write_index(tmp_path / f"{name}.cdxj", [line(url, STAMPS[0], filename=name) for url in urls])
    config = configured(tmp_path, "collections: {g: {index_group: {x: ./x.cdxj, y: ./y.cdxj}}}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        listed = get.get("/g/timemap/json/a.org").json()["mementos"]["list"]
        assert [one["uri"] for one in listed] == [f"{base}/g/{STAMPS[0]}id_/{url}" for url in urls]


def test_a_sequence_replays_the_step_whose_records_can_be_loaded(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response(U, STAMPS[0], b"held")
    write_index(tmp_path / "2.cdxj", crawl.close())
    write_index(tmp_path / "1.cdxj", [line(U, stamp, filename="gone.warc", offset=0) for stamp in STAMPS[1:]])
    steps = "[{index: 1.cdxj, resource: ./w}, {index: 2.cdxj, resource: ./w}]"
    config = configured(tmp_path, f"collections: {{s: {{sequence: {steps}}}}}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        for path in (f"/s/{U}", f"/s/id_/{U}", *(f"/s/{stamp}id_/{U}" for stamp in STAMPS)):
            answer = get.get(path, follow_redirects=True)
            assert (answer.text, answer.url) == ("held", f"{base}/s/{STAMPS[0]}id_/{U}"), path


def test_a_sequence_asks_no_later_step_for_what_the_first_one_has(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    crawl.response("http://a.org/", STAMPS[0], b"held")
    write_index(tmp_path / "1.cdxj", crawl.close())
    with archives() as remote:
        steps = f"[{{index: 1.cdxj, resource: ./w}}, {{index: memento+{remote.url}/wayback/, resource: $live}}]"
        config = configured(tmp_path, f"collections: {{s: {{sequence: {steps}}}}}")
        give_tokens(config)
        for token in (READER, LISTER):
            with serving(config) as base, client(base, token) as get:
                for stamp in ("2014", STAMPS[1], "20140101000000123"):
                    answer = get.get(f"/s/{stamp}id_/http://a.org/")
                    assert answer.headers["location"] == f"{base}/s/{STAMPS[0]}id_/http://a.org/", stamp
        assert remote.asked == []


def test_a_memento_is_found_among_any_number_of_another_server(tmp_path: Path) -> None:
    write_index(tmp_path / "a.cdxj", [line("http://a.org/", timestamp(10**9 + number)) for number in range(100_002)])
    with archives() as far:
        group = f"{{index_group: {{a: a.cdxj, far: 'cdx+{far.url}/none-cdx'}}, index_timeout: 30}}"
        config = configured(tmp_path, f"collections: {{a: a.cdxj, g: {group}}}\naccess: {{open: metadata}}")
        with serving(config) as url, client(url, "") as get:
            for date in ("", DATES[0], "Mon, 10 Sep 2001 00:00:00 GMT", "Mon, 01 Jan 2001 00:00:00 GMT"):
                told = [get.get(f"/{coll}/http://a.org/", headers={"Accept-Datetime": date}).headers for coll in "ag"]
                assert told[0]["link"] == told[1]["link"].replace("/g/", "/a/")
            (tmp_path / "front").mkdir()
            text = f"collections: {{a: {{index: 'cdx+{url}/a/cdx', index_timeout: 30}}}}\naccess: {{open: metadata}}"
            with serving(configured(tmp_path / "front", text)) as front, client(front, "") as ours:
                newest = get.get("/a/http://a.org/").headers["location"]
                assert ours.get("/a/http://a.org/").headers["location"] == newest.replace(url, front)
                assert ours.get("/a/index?url=a.org&limit=0").text.count("\n") == 100_002


def test_the_neighbours_of_a_memento_are_of_the_same_step(tmp_path: Path) -> None:
    write_index(tmp_path / "1.cdxj", [line(U, STAMPS[1])])
    write_index(tmp_path / "2.cdxj", [line(U, stamp) for stamp in STAMPS])
    config = configured(tmp_path, "collections: {s: {sequence: [{index: 1.cdxj}, {index: 2.cdxj}]}}")
    give_tokens(config)
    with serving(config) as base, client(base) as get:
        found = rels(get.get(f"/s/{U}").headers["link"])
        assert {date for _, date in found.values()} - {""} == {DATES[1]}
        assert not {"prev", "next"} & found.keys()


def test_pages_of_a_timemap(base: str, get: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archec.access.memento._PAGE", 2)
    first, second = get.get(f"/a/timemap/link/{U}"), get.get(f"/a/timemap/link/2/{U}")
    assert re.findall('datetime="([^"]*)"', first.text + second.text) == list(DATES)
    assert f'<{base}/a/timemap/link/2/{U}>; rel="timemap"' in first.text
    assert f'<{base}/a/timemap/link/1/{U}>; rel="timemap"' in second.text
    for form in ("json", "cdxj"):
        text = get.get(f"/a/timemap/{form}/2/{U}").text
        value = json.loads(re.findall('{"pages.*|^{.*', text)[0])
        assert [one["uri"] for one in value["pages"]] == [f"{base}/a/timemap/{form}/{number}/{U}" for number in (1, 2)]
    rels_of = [re.findall('"rel": "(.*?)"', get.get(f"/a/timemap/cdxj/{number}/{U}").text) for number in (1, 2)]
    assert rels_of == [["first memento", "memento"], ["last memento"]]
    value = get.get(f"/a/timemap/json/2/{U}").json()["mementos"]
    times = ["2014-01-01T00:00:00Z", "2016-01-01T00:00:00Z"]
    assert [value["first"]["datetime"], value["last"]["datetime"]] == times
    assert [one["datetime"] for one in value["list"]] == times[1:]


def test_web_and_available_are_those_of_the_default_collection(base: str, get: httpx.Client) -> None:
    answer = get.get(f"/web/2014/{U}")
    assert answer.headers["location"] == f"{base}/web/{STAMPS[1]}id_/{U}"
    assert get.get(f"/web/{STAMPS[0]}id_/{U}").content == b"version 0"
    available = get.get("/wayback/available", params={"url": U, "timestamp": "2013"}).json()
    found = available["archived_snapshots"]["closest"]
    assert (found["url"], found["timestamp"], found["available"]) == (f"{base}/web/{STAMPS[0]}id_/{U}", STAMPS[0], True)
    assert get.get("/wayback/available?url=none.org").json()["archived_snapshots"] == {}
