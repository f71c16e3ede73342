"""The index API over files: queries, forms, errors, and that its rows are those of a plain scan."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx
import pytest
from access_support import client, configured, give_tokens, line, rows, serving, write_index
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.access.collection import Collection, Lookup, Step, is_short
from archec.access.errors import Refused, SourceFailed
from archec.access.gate import Viewer
from archec.access.index_folders import FileSource
from archec.access.query import Arguments, all_of, key_of, parse_query
from archec.access.resource import load
from archec.access.rows import NOWHERE, any_row, as_cdxj, as_json, as_text
from archec.access.rules import Rules
from archec.access.sources import Errors
from archec.access.stamps import seconds
from archec.cli.access import access
from archec.urlkey import urlkey

CDX11 = (
    " CDX N b a m s k r M S V g\n"
    "org,cdx)/ 20110101000000 http://cdx.org/ text/html 200 AAAA - - 500 10 a.warc.gz\n"
    "org,cdx)/ 20120101000000 http://cdx.org/ text/html 404 BBBB - - 600 20 a.warc.gz\n"
)
ANYBODY = Viewer(None, "", Rules(open="content"))
CDX9 = "org,nine)/ 20110101000000 http://nine.org/ text/html 200 AAAA - 10 a.arc.gz\n"
CDX10 = "org,ten)/ 20110101000000 http://ten.org/ text/html 200 AAAA - - 10 a.arc.gz\n"
MIXED = f'{CDX10}org,ten)/ 20120101000000 {{"url": "http://ten.org/", "offset": "20"}}\n{CDX9.replace("nine", "ten-9")}'


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    write_index(
        folder / "one" / "a.cdxj",
        [
            line("http://example.org/", "20140101000000", length="10", offset=0, filename="a.warc.gz"),
            line("http://example.org/", "20150101000000", status=301, length=20),
            line("http://example.org/", "20160101000000500", mime="warc/revisit", digest="sha1:20140101000000"),
            line("http://example.org/a", "20140601000000"),
            line("http://www.sub.example.org/x?b=2&a=1", "20140601000000"),
            line("http://example.organic/", "20140601000000"),
        ],
    )
    (folder / "one" / "b.cdx").write_bytes(BOM_UTF8 + CDX11.encode())
    (folder / "one" / "c.cdx.gz").write_bytes(gzip.compress(CDX9.encode()))
    (folder / "one" / "d.cdx").write_text(MIXED)
    (folder / "one" / "e.cdxj").write_bytes(
        BOM_UTF8 + b'\n!context ["a"]\n!meta {}\n' + line("http://mark.org/", "20140101000000") + b"\n"
    )
    (folder / "one" / "f.cdxj").write_bytes(line("http://a.org/", "20140101000000") + b"\n\n")
    unsorted = [line("http://z.org/", "20140101000000"), line("http://b.org/", "20140101000000")]
    (folder / "one" / "bad.cdxj").write_bytes(b"\n".join(unsorted) + b"\n")
    write_index(folder / "two.cdxj", [line("http://example.org/", "20150101000000", n=1)])
    config = configured(
        folder,
        """
collections:
  one: ./one
  both: {index_group: {one: ./one, two: two.cdxj}}
  none: ./missing
  fall: {sequence: [{index: ./missing}, {index: ./two.cdxj}, {index: ./one}]}
""",
    )
    give_tokens(config)
    with serving(config) as url:
        yield url


def found(get: httpx.Client, query: str, coll: str = "one") -> list[dict[str, Any]]:
    answer = get.get(f"/{coll}/index?output=json&{query}")
    assert answer.status_code == 200, answer.text
    return rows(answer.text)


def stamps(get: httpx.Client, query: str, coll: str = "one") -> list[str]:
    return [row["timestamp"] for row in found(get, query, coll)]


def test_a_row_has_its_own_fields_in_their_order_with_their_types_and_its_source(get: httpx.Client) -> None:
    answer = get.get("/one/index?url=http://example.org/&limit=1&output=json")
    assert answer.headers["content-type"] == "text/x-ndjson"
    row = json.loads(answer.text)
    own = ["url", "mime", "status", "digest", "length", "offset", "filename"]
    assert list(row) == ["urlkey", "timestamp", *own, "source", "source-coll", "source_type"]
    assert (row["length"], row["offset"]) == ("10", 0)
    assert (row["source"], row["source-coll"], row["source_type"]) == ("one:a.cdxj", "one", "file")


def test_the_four_forms(get: httpx.Client) -> None:
    plain = get.get("/one/index?url=example.org&limit=1")
    assert plain.headers["content-type"] == "text/x-cdxj"
    key, stamp, value = plain.text.split(" ", 2)
    assert (key, stamp, json.loads(value)["url"]) == ("org,example)/", "20140101000000", "http://example.org/")
    text = get.get("/one/index?url=example.org&limit=1&output=text&fl=timestamp,url,nothing")
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text == "20140101000000 http://example.org/\n"
    without_status = any_row(b'a)/ 20140101000000 {"url":"u","mime":"m","digest":"d"}', NOWHERE)
    assert without_status is not None
    assert as_text(without_status, ("digest", "status", "url", "x")) == b"u - d\n"
    links = get.get("/one/index?url=example.org&output=link&limit=2")
    assert links.headers["content-type"] == "application/link-format"
    assert links.text == (
        '<http://example.org/>; rel="memento"; datetime="Wed, 01 Jan 2014 00:00:00 GMT"; collection="one",\n'
        '<http://example.org/>; rel="memento"; datetime="Thu, 01 Jan 2015 00:00:00 GMT"; collection="one"\n'
    )
    bare = rows(get.get("/one/index?url=example.org&limit=1&output=json&nosource=true").text)[0]
    assert "filename" in bare
    assert not {"source", "source-coll", "source_type"} & set(bare)
    fields = get.get("/one/index?url=example.org&limit=1&fields=status,url,urlkey").text
    assert fields == 'org,example)/ 20140101000000 {"url":"http://example.org/","status":"200"}\n'
    row = any_row(line("http://example.org/", "20140101000000", page="\u00c5\U0001f600"), NOWHERE)
    assert row is not None
    raw = any_row('a)/ 20140101000000 {"url":"u","page":"\u00c5\U0001f600"}'.encode(), NOWHERE)
    assert raw is not None
    assert as_json(row).isascii()
    assert [json.loads(as_json(one))["page"] for one in (row, raw)] == ["\u00c5\U0001f600"] * 2
    assert as_cdxj(raw) == b'a)/ 20140101000000 {"url":"u","page":"\\u00c5\\ud83d\\ude00"}\n'


def test_queries(get: httpx.Client) -> None:
    assert stamps(get, "url=example.org") == ["20140101000000", "20150101000000", "20160101000000500"]
    assert stamps(get, "url=example.org&closest=2014") == ["20150101000000", "20140101000000", "20160101000000500"]
    assert stamps(get, "url=example.org&closest=20140101&limit=1") == ["20140101000000"]
    assert stamps(get, "url=example.org&sort=reverse&limit=1") == ["20160101000000500"]
    assert stamps(get, "url=example.org&closest=2014&sort=reverse")[0] == "20150101000000"
    assert stamps(get, "url=example.org&from=2015") == ["20150101000000", "20160101000000500"]
    assert stamps(get, "url=example.org&to=20160101000000") == [
        "20140101000000", "20150101000000", "20160101000000500"
    ]  # fmt: skip
    assert stamps(get, "url=example.org&filter==status:301") == ["20150101000000"]
    assert stamps(get, "url=example.org&filter=!mime:revisit&filter=~status:2..") == ["20140101000000"]
    assert stamps(get, "url=example.org&filter=statuscode:301") == ["20150101000000"]
    assert stamps(get, "url=example.org&content_type=warc/revisit") == ["20160101000000500"]
    assert stamps(get, "url=example.org&limit=0") == stamps(get, "url=example.org")
    assert {row["url"] for row in found(get, "url=example.org/*")} == {"http://example.org/", "http://example.org/a"}
    assert len(found(get, "url=*.example.org")) == 5
    assert len(found(get, "url=example.org&matchType=host")) == 4
    assert len(found(get, "url=http://sub.example.org/x?a=1%26b=2")) == 1
    assert found(get, "url=nothing.org") == []


def test_revisits_are_resolved_and_times_collapsed(get: httpx.Client) -> None:
    last = found(get, "url=example.org&resolveRevisits=1")[-1]
    assert (last["orig.length"], last["orig.offset"], last["orig.filename"]) == ("10", 0, "a.warc.gz")
    assert last["mime"] == "text/html"
    resolved = "url=example.org&resolveRevisits=1&filter=!"
    assert last in found(get, resolved + "warc/revisit")  # the whole row is that of the answer, not of the index
    assert found(get, resolved + "orig.length") == []
    assert len(found(get, "url=*.example.org&collapseTime=4")) == 4
    assert len(found(get, "url=example.org/*&collapseTime=2")) == 3


def test_cdx_with_and_without_header_and_packed(get: httpx.Client) -> None:
    eleven, nine, ten = (found(get, f"url={host}")[0] for host in ("cdx.org", "nine.org", "ten.org"))
    assert (eleven["mime"], eleven["length"], eleven["offset"], eleven["filename"]) == (
        "text/html", "500", "10", "a.warc.gz",
    )  # fmt: skip
    assert "length" not in nine
    assert (nine["offset"], nine["filename"], nine["source"]) == ("10", "a.arc.gz", "one:c.cdx.gz")
    assert ten["robotflags"] == "-"
    assert stamps(get, "url=cdx.org&closest=2012&limit=1") == ["20120101000000"]
    assert [row["offset"] for row in found(get, "url=ten.org") + found(get, "url=ten-9.org")] == ["10", "20", "10"]


def test_a_byte_order_mark_and_headers_hide_no_line(get: httpx.Client) -> None:
    assert stamps(get, "url=mark.org") == stamps(get, "url=mark.org&sort=reverse") == ["20140101000000"]
    assert stamps(get, "url=cdx.org") == ["20110101000000", "20120101000000"]  # nor a header


def test_an_unsorted_file_alone_is_left_out_and_named_with_its_line(get: httpx.Client) -> None:
    answer = get.get("/one/index?url=example.org")
    told = json.loads(answer.headers["ResErrors"])
    assert answer.status_code == 200
    assert re.fullmatch(r"/.*/one/bad\.cdxj:2: is not sorted \(.*archec access sort.*\)", told["one:bad.cdxj"])
    assert told["one:f.cdxj"].partition("f.cdxj:")[2].startswith("2: is not sorted")  # an empty line
    health = get.get("/healthz")
    assert health.status_code == 503
    assert "bad.cdxj:2" in health.text
    with client(str(get.base_url), "") as anybody:
        faults = anybody.get("/healthz").json()["faults"]
    assert faults == {"access": "an index cannot be used: see the log"}


def test_a_missing_folder_is_an_empty_source(get: httpx.Client) -> None:
    answer = get.get("/none/index?url=example.org")
    assert (answer.status_code, answer.text) == (200, "")
    assert "none" in json.loads(answer.headers["ResErrors"])
    assert "missing" not in get.get("/healthz").text


def test_what_is_no_file_costs_nothing_else(tmp_path: Path) -> None:
    write_index(tmp_path / "one" / "a.cdxj", [line("http://a.org/", "20140101000000")])
    (tmp_path / "one" / "loop.cdxj").symlink_to("loop.cdxj")
    (tmp_path / "one" / "lost.cdxj").symlink_to("nothing")
    (tmp_path / "one" / "folder.cdxj").mkdir()
    os.mkfifo(tmp_path / "pipe.cdxj")
    config = configured(tmp_path, "collections: {one: ./one, pipe: ./pipe.cdxj}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        answer = get.get("/one/index?url=a.org")
        assert answer.text.startswith("org,a)/ 20140101000000")
        assert set(json.loads(answer.headers["reserrors"])) == {"one:loop.cdxj", "one:lost.cdxj"}
        answer = get.get("/pipe/index?url=a.org")
        assert json.loads(answer.headers["reserrors"]) == {"pipe": f"{tmp_path}/pipe.cdxj: is not a file"}


def test_groups_and_sequences(get: httpx.Client) -> None:
    assert [row["source"] for row in found(get, "url=example.org&from=2015&to=2015", "both")] == ["two", "one:a.cdxj"]
    assert {row["source-coll"] for row in found(get, "url=example.org&sources=two", "both")} == {"two"}
    assert {row["source-coll"] for row in found(get, "url=example.org&sources=!two", "both")} == {"one"}
    assert [len(found(get, f"url=example.org&limit=1&sources={name}")) for name in ("one", "two", "!one")] == [1, 0, 0]
    for names, count in (("*", 2), ("one,two", 2), ("!one,two", 0), ("!one,!two", 0), ("nobody", 0)):
        asked = found(get, f"url=example.org&sources={names}", "both")
        assert len({row["source-coll"] for row in asked}) == count, names
    assert [row["n"] for row in found(get, "url=example.org", "fall")] == [1]
    assert len(found(get, "url=cdx.org", "fall")) == 2
    sources = get.get("/both/list_sources").json()
    assert sources == {"sources": {"one": "file", "two": "file"}}
    assert get.get("/fall/list_sources").json() == {"sources": {"fall": ["file", "file", "file"]}}
    assert get.get("/both").json() == {"modes": ["list_sources", "index", "resource"]}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", 'The "url" param is required'),
        ("url=a.org&limit=-1", "limit"),
        ("url=a.org&limit=abc", "limit"),
        ("url=a.org&matchType=most", "Invalid match_type: most"),
        ("url=a.org&matchtype=prefix", "write matchType"),
        ("url=a.org&output=xml", "output=xml not supported"),
        ("url=a.org&page=x", "Invalid value for page= param: x"),
        ("url=a.org&closest=yesterday", "closest"),
        ("url=a.org&from=2x", "from"),
        ("url=a.org&sort=up", "sort"),
        ("url=a.org&filter=~status:(", "filter"),
        ("url=a.org&filter=~status:(?=2)", "RE2"),
        ("url=a.org&collapseTime=x", "collapseTime"),
        ("url=http://[/", "url"),
        ("url=*", "url=* is not"),
        ("url=" + "a" * 9000, "url"),
    ],
)
def test_bad_values_are_400_and_named(get: httpx.Client, query: str, told: str) -> None:
    answer = get.get(f"/one/index?{query}")
    assert answer.status_code == 400
    assert told in answer.json()["message"]


def test_messages_of_pywb_are_its_words(get: httpx.Client) -> None:
    for query, message in {
        "output=foo": "output=foo not supported",
        "matchType=foo": "Invalid match_type: foo",
        "pageSize=foo": "Invalid value for pageSize= param: foo",
    }.items():
        assert get.get(f"/one/index?url=a.org&{query}").json() == {"message": message}
    assert get.get("/one/timemap/foo/a.org").json() == {"message": "output=foo not supported"}


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.Shop.org:80/a b", "org,shop)/a%20b"),
        ("https://user:pw@shop.org:8443/p", "org,shop:8443)/p"),
        ("http://shop.org/?b&a=&a", "org,shop)/?a&a=&b"),
        ("urn:pageinfo:http://shop.org/", "urn:pageinfo:http://shop.org"),
        ("urn:text:https://Shop.org/A b/?d=1&c=2#e", "urn:text:https://shop.org/a%20b?c=2&d=1"),
        ("mailto:A@b.c", "mailto:a@b.c"),
        ("METADATA://www.Shop.org/a b?d=1&c=2", "org,shop)/a%20b?c=2&d=1"),
    ],
)
def test_urls_have_the_keys_that_pywb_makes(url: str, key: str) -> None:
    assert key_of(url) == key


def test_cdx_says_404_for_json_only(get: httpx.Client) -> None:
    answer = get.get("/one/cdx?url=nothing.org&output=json")
    assert answer.status_code == 404
    assert "No Captures found" in answer.json()["message"]
    assert get.get("/one/cdx?url=nothing.org").status_code == 200


def test_many_rows_stream(get: httpx.Client, base: str, tmp_path: Path) -> None:
    lines = [line(f"http://many.org/{n:05d}", "20140101000000") for n in range(20_000)]
    write_index(tmp_path / "many.cdxj", lines)
    config = configured(tmp_path, "collections: {many: many.cdxj}")
    give_tokens(config)
    with serving(config) as url, client(url) as own:
        answer = own.get("/many/index?url=many.org/*&output=json")
        assert "content-length" not in answer.headers
        assert [row["url"] for row in rows(answer.text)] == [f"http://many.org/{n:05d}" for n in range(20_000)]
        last = own.get("/many/index?url=many.org/*&output=json&sort=reverse&limit=2").text
        assert [row["url"] for row in rows(last)] == ["http://many.org/19999", "http://many.org/19998"]


def test_new_and_changed_files_are_seen_without_restart(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    config = configured(tmp_path, "collections: {a: ./in}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        assert found(get, "url=a.org", "a") == []
        write_index(tmp_path / "in" / "a.cdxj", [line("http://a.org/", "20140101000000")])
        assert len(found(get, "url=a.org", "a")) == 1
        write_index(tmp_path / "in" / "b.cdxj", [line("http://a.org/", "20150101000000")])
        assert len(found(get, "url=a.org", "a")) == 2
        bad = tmp_path / "in" / "b.cdxj"
        bad.write_bytes(bad.read_bytes() + line("http://a.com/", "20140101000000") + b"\n")
        assert "b.cdxj" in get.get("/a/index?url=a.org").headers["reserrors"]
        assert get.get("/healthz").status_code == 503
        assert CliRunner().invoke(access, ["sort", str(bad)]).exit_code == 0
        assert get.get("/healthz").status_code == 200  # although nobody has used it since
        more = [line("http://a.org/", "20140101000000"), line("http://a.org/", "20140101000001")]
        write_index(tmp_path / "in" / "new", more).rename(tmp_path / "in" / "a.cdxj")
        assert len(found(get, "url=a.org", "a")) == 3
        (tmp_path / "in" / "b.cdxj").unlink()
        assert len(found(get, "url=a.org", "a")) == 2


# -- rows are those of a plain scan -----------------------------------------------------------------

HOSTS = ("a.org", "b.org", "sub.a.org", "a.organic")
urls = st.builds(lambda host, path: f"http://{host}/{path}", st.sampled_from(HOSTS), st.sampled_from(["", "x", "x/y"]))
times = st.builds(
    lambda y, m, d, s, ms: f"20{y:02d}{m:02d}{d:02d}0000{s:02d}{ms}",
    st.integers(0, 20), st.integers(1, 12), st.integers(1, 28), st.integers(0, 2), st.sampled_from(["", "", "250"]),
)  # fmt: skip
statuses = st.sampled_from(["200", "404"])
index_lines = st.builds(lambda url, stamp, status: line(url, stamp, status=status), urls, times, statuses)
queries = st.fixed_dictionaries(
    {
        "url": st.sampled_from(["a.org", "a.org/x", "a.org/*", "*.a.org", "b.org/x/y", "sub.a.org/"]),
        "limit": st.sampled_from(["0", "1", "2", "7", "100000"]),
    },
    optional={
        "closest": st.sampled_from(["2010", "20120301", "20051231235959"]),
        "from": st.sampled_from(["2003", "201001"]),
        "to": st.sampled_from(["2015", "20181231"]),
        "sort": st.just("reverse"),
        "filter": st.sampled_from(["=status:200", "!status:4", "~timestamp:201"]),
        "collapseTime": st.sampled_from(["0", "2", "4", "6"]),
    },
)


def scanned(lines: Sequence[bytes], query: dict[str, str]) -> list[bytes]:
    """What a plain scan over all lines gives."""
    url = query["url"]
    key = urlkey(f"http://{url.strip('*.')}" if "/" in url.strip("*.") else f"http://{url.strip('*.')}/")

    def matches(found: str) -> bool:
        if url.startswith("*."):
            host = key.partition(")")[0]
            return found.startswith((f"{host})", f"{host},"))
        return found.startswith(key) if url.endswith("*") else found == key

    kept = []
    for one in sorted(lines):
        found, stamp, value = one.decode().split(" ", 2)
        status = json.loads(value)["status"]
        tests = {"=status:200": status == "200", "!status:4": "4" not in status, "~timestamp:201": stamp[:3] == "201"}
        late = "from" in query and stamp < query["from"].ljust(14, "0")
        early = "to" in query and stamp > query["to"].ljust(17, "9")
        if matches(found) and tests.get(query.get("filter", ""), True) and not late and not early:
            kept.append((one, stamp, status))
    if "collapseTime" in query:
        digits, last, some = int(query["collapseTime"]), None, []
        for one in kept:
            if (one[1][:digits], one[2]) != last:
                some.append(one)
            last = (one[1][:digits], one[2])
        kept = some
    if "closest" in query:
        wanted = seconds(parse_query(Arguments([("url", "a.org"), ("closest", query["closest"])])).closest)
        kept.sort(key=lambda one: (abs(seconds(one[1]) - wanted), one[0]))
    elif "sort" in query:
        kept.reverse()
    return [one[0] for one in kept][: int(query["limit"]) or None]


@settings(max_examples=40)
@given(st.lists(index_lines, max_size=40), st.lists(queries, min_size=1, max_size=8), st.integers(1, 3))
def test_rows_are_those_of_a_plain_scan(
    memory_folder: Any, lines: list[bytes], asked: list[dict[str, str]], parts: int
) -> None:
    import asyncio
    from contextlib import ExitStack

    from archec.access.build import Builder
    from archec.access.collection import Lookup

    folder = memory_folder()
    lines = sorted(set(lines))
    (folder / "in").mkdir()
    for n in range(parts):
        write_index(folder / "in" / f"{n}.cdxj", lines[n::parts])
    config = configured(folder, "collections: {a: ./in}")
    collection = Builder(config, None, ExitStack()).collections(config.collections)["a"]

    async def answered(query: dict[str, str]) -> list[bytes]:
        lookup = Lookup(collection, ANYBODY)
        got = [row.line for row in await lookup.rows(parse_query(Arguments(list(query.items()))))]
        assert not lookup.errors
        return got

    for query in asked:
        assert asyncio.run(answered(query)) == scanned(lines, query), query


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    from archec.access.index_files import IndexFile

    path = write_index(tmp_path / "a.cdxj", [line(f"http://a.org/{n}", "20140101000000") for n in range(5000)])
    lines, _ = IndexFile(path, "a").opened()
    reading = lines.forward(b"", b"z")
    next(reading)
    os.truncate(path, 1000)
    with pytest.raises(SourceFailed, match="was truncated"):
        list(reading)


def test_what_is_appended_while_a_file_is_read_is_no_part_of_that_answer(tmp_path: Path) -> None:
    from archec.access.index_files import IndexFile

    given = [line(f"http://a.org/{n:04}", "20140101000000") for n in range(5000)]
    path = write_index(tmp_path / "a.cdxj", given)
    file = IndexFile(path, "a")
    reading = file.opened()[0].forward(b"", b"z")
    read = [next(reading)]
    with path.open("ab") as out:
        out.write(given[0] + b"\norg,b)/ 2014010100")
    assert [*read, *reading] == given
    with pytest.raises(SourceFailed, match=":5001: is not sorted"):
        file.opened()


def test_of_a_large_directory_few_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archec.access.index_folders._MAX_OPEN", 2)
    for n in range(5):
        write_index(tmp_path / f"{n}.cdxj", [line("http://a.org/", f"201{n}0101000000")])
    source = FileSource("a", "file", tmp_path)
    source.prepare()
    for _ in range(2):
        parts = source.parts(parse_query(Arguments([("url", "a.org")])), Errors())
        assert sorted(row.timestamp[:4] for part in parts for row in part) == ["2010", "2011", "2012", "2013", "2014"]
        del parts
        held = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
        assert sorted(path for path in held if path.startswith(str(tmp_path))) == [
            str(tmp_path / "0.cdxj"), str(tmp_path / "1.cdxj")
        ]  # fmt: skip


def test_an_answer_that_is_cut_is_no_whole_one_although_another_step_of_the_name_failed(tmp_path: Path) -> None:
    long = "x" * 10_000
    lines = [line(f"http://a.org/{n:04d}", "20140101000000", digest=long) for n in range(2000)]
    path = write_index(tmp_path / "a.cdxj", lines)
    config = configured(tmp_path, "collections: {s: {sequence: [./none.cdxj, ./a.cdxj]}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get, get.stream("GET", "/s/index?url=a.org/*") as answer:
        assert json.loads(answer.headers["reserrors"]) == {"s": "s: cannot be read: No such file or directory"}
        reading = answer.iter_bytes()
        next(reading)
        os.truncate(path, 1000)
        with pytest.raises(httpx.RemoteProtocolError):
            list(reading)


def test_a_query_that_may_skip_many_rows_is_left_to_a_thread() -> None:
    url = ("url", "a.org")
    assert is_short(parse_query(Arguments([url])))
    for skips in (("filter", "x"), ("collapseTime", "0"), ("resolveRevisits", "1"), ("matchType", "host")):
        assert not is_short(parse_query(Arguments([url, skips]))), skips


def test_many_captures_without_a_record_hold_up_nobody(tmp_path: Path) -> None:
    write_index(tmp_path / "a.cdxj", [line("http://a.org/", f"2014{n:010}") for n in range(100)])
    loader = Mock(load=AsyncMock(side_effect=lambda *_: seen.append(turns)))
    step = Step((FileSource("a", "file", tmp_path / "a.cdxj"),), (), (loader,), 5.0, False)
    seen: list[int] = []
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> None:
        other = asyncio.create_task(others())
        with pytest.raises(Refused, match="No Resource Found"):
            await load(Lookup(Collection("a", (step,)), ANYBODY), all_of("http://a.org/"))
        other.cancel()

    asyncio.run(ask())
    assert len(set(seen)) == len(seen) == 100


pieces = st.builds(lambda text, times: text.encode() * times, st.text("ab", min_size=1, max_size=3), st.integers(1, 20))


@settings(max_examples=60)
@given(st.lists(pieces, max_size=30), st.lists(st.tuples(pieces, pieces), min_size=1, max_size=5), st.integers(0, 6))
def test_a_sorted_file_is_read_alike_in_steps_of_any_size(
    memory_folder: Any, lines: list[bytes], stretches: list[tuple[bytes, bytes]], power: int
) -> None:
    from archec.access import index_files

    path = memory_folder() / "a"
    path.write_bytes(b"\n".join(sorted(lines)) + b"\n" * (power % 2))
    step = 1 << power
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("_PROBE", step), ("_WINDOW", 2 * step), ("_BLOCK", 4 * step), ("_REMEMBERED", step)):
            patch.setattr(index_files, name, size)
        file = index_files.SortedFile(os.open(path, os.O_RDONLY), 0, "a")
        for start, end in stretches * 2:
            wanted = [one for one in sorted(lines) if start <= one < end]
            assert list(file.backward(start, end)) == wanted[::-1]
            assert list(file.forward(start, end)) == wanted
