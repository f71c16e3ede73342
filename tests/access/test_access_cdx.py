"""The CDX server: the dialect of the Internet Archive, pages, rows that crawlers add, ranges of WARC files."""

from __future__ import annotations

import asyncio
import gzip
import heapq
import io
import json
import os
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_support import LISTER, READER, WRITER, client, configured, give_tokens, line, rows, serving, write_index
from click.testing import CliRunner
from gather_support import archec_inline, make
from hypothesis import given, settings
from hypothesis import strategies as st
from warc_files import Crawl
from warcio.archiveiterator import ArchiveIterator

from archec.access.feeding import add, parse_rows, remove
from archec.access.index_files import MAX_LINE, newer_of
from archec.access.index_folders import FileSource
from archec.access.query import Arguments, parse_query
from archec.access.sources import Errors
from archec.cli.access import access
from archec.errors import UsageError

S = ("20140101000000", "20140601000000", "20150101000000", "20160101000000")
IA = "/cdx/search/cdx"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    crawl = Crawl(folder / "w" / "a.warc.gz")
    for n, stamp in enumerate(S):
        crawl.response("http://a.org/", stamp, b"same" if n < 3 else b"other", status="200 OK" if n else "404 No")
    write_index(folder / "a.cdxj", crawl.close())
    many = [line(f"http://many.org/{n:06d}", S[0], padding="x" * 200) for n in range(12_000)]
    write_index(folder / "many.cdxj", many)
    again = [(S[0], {"mime": "text/html", "status": "404", "digest": "A"})]
    again += [(S[1], {"mime": "warc/revisit", "digest": "A"}), (S[2], {"mime": "warc/revisit", "digest": "B"})]
    found = [f"org,a)/ {stamp} {json.dumps({'url': 'http://a.org/', **more})}".encode() for stamp, more in again]
    write_index(folder / "again.cdxj", found)
    (folder / "fed").mkdir()
    write_index(folder / "spelled.cdxj", [line("http://spelled.org/\u00c5", S[0])])
    config = configured(
        folder,
        """
collections:
  a: {index: a.cdxj, resource: ./w}
  many: many.cdxj
  group: {index_group: {a: a.cdxj, m: many.cdxj}}
  again: again.cdxj
  twice: {index_group: {one: a.cdxj, two: a.cdxj}}
  seq: {sequence: [again.cdxj, a.cdxj]}
  fed: ./fed
  spelled: spelled.cdxj
""",
    )
    give_tokens(config)
    with serving(config) as url:
        yield url


def lines(get: httpx.Client, query: str) -> list[list[str]]:
    answer = get.get(f"{IA}?url=a.org&{query}")
    assert answer.status_code == 200, answer.text
    return [one.split(" ") for one in answer.text.splitlines()]


def test_seven_fields(get: httpx.Client) -> None:
    first = lines(get, "")[0]
    assert first[:5] == ["org,a)/", S[0], "http://a.org/", "text/html", "404"]
    assert len(first) == 7
    answer = get.get(f"{IA}?url=a.org")
    assert answer.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in get.get(f"{IA}?url=a.org&gzip=false").headers
    table = get.get(f"{IA}?url=a.org&output=json").json()
    assert table[0] == ["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]
    assert [row[1] for row in table[1:]] == list(S)
    assert get.get(f"{IA}?url=none.org").text == ""
    assert get.get(f"{IA}?url=none.org&output=json").json() == []
    assert lines(get, "fl=timestamp,statuscode&limit=1") == [[S[0], "404"]]
    assert get.get(f"{IA}?url=spelled.org/*&collection=spelled&fl=original").text == "http://spelled.org/%C3%85\n"


def test_parameters_of_the_dialect(get: httpx.Client) -> None:
    def stamps(query: str) -> list[str]:
        return [row[1] for row in lines(get, query)]

    assert stamps("limit=-100000") == list(S)
    assert stamps("limit=-2") == list(S[2:])
    assert stamps("offset=1&limit=2") == list(S[1:3])
    assert stamps("filter=statuscode:2..") == list(S[1:])
    assert stamps("filter=statuscode:2") == []
    assert stamps("filter=!statuscode:404") == list(S[1:])
    assert stamps("filter=~statuscode:0") == list(S)
    assert stamps("filter=~!statuscode:40") == list(S[1:])
    assert stamps("filter=4:404") == stamps("filter=.* 404 .*") == [S[0]]
    assert stamps("filter=~/ 2014") == list(S[:2])
    assert stamps("collapse=timestamp:4") == [S[0], S[2], S[3]]
    assert stamps("collapse=digest") == [S[0], S[3]]
    assert stamps("collapse=statuscode&collapse=digest") == [S[0]]
    assert stamps("from=2015&to=2015") == [S[2]]
    assert [row[7] for row in lines(get, "showDupeCount=true")] == ["0", "1", "2", "0"]
    named = "fl=dupecount,timestamp&showDupeCount=true&showSkipCount=true&limit=2"
    assert lines(get, named) == [["0", S[0], "0"], ["1", S[1], "0"]]
    assert [row[7:] for row in lines(get, "collapse=digest&showSkipCount=true&lastSkipTimestamp=true")] == [
        [S[2], "2"], [S[3], "0"],
    ]  # fmt: skip
    filtered = "filter=timestamp:201[46]01.*&showSkipCount=true&lastSkipTimestamp=true"
    assert [row[7:] for row in lines(get, filtered)] == [[S[2], "2"], [S[3], "0"]]
    for bad in (
        "filter=statuscode:(", "filter=(", "collapse=a:b:c", "limit=x", "limit=-100001", "output=xml", "resumeKey=%21",
    ):  # fmt: skip
        assert get.get(f"{IA}?url=a.org&{bad}").status_code == 400, bad
    assert "-100000 or more" in get.get(f"{IA}?url=a.org&limit=-100001").text
    assert get.get(f"{IA}?url=a.org&collection=zzz").status_code == 404
    assert get.get(f"{IA}?url=many.org/000001&collection=many").text


def test_revisits_get_type_and_status_of_their_original(get: httpx.Client) -> None:
    def values(query: str) -> list[list[str]]:
        return [one[1:2] + one[3:5] + one[7:] for one in lines(get, f"collection=again&{query}")]

    page, none = ["text/html", "404"], ["warc/revisit", "-"]
    assert values("") == [[S[0], *page], [S[1], *none], [S[2], *none]]
    whole = [[S[0], *page], [S[1], *page], [S[2], *none]]
    assert values("resolveRevisits=true") == whole
    assert values("resolveRevisits=true&sort=reverse") == whole[::-1]
    assert values("resolveRevisits=true&filter=statuscode:404") == whole[:2]
    assert values("resolveRevisits=true&from=201406&sort=reverse") == whole[:0:-1]
    assert values("filter=statuscode:-") == [[S[1], *none], [S[2], *none]]
    counted = [[S[0], *page, "0"], [S[1], "text/html", "-", "1"], [S[2], *none, "0"]]
    assert values("showDupeCount=true") == counted
    query = "url=a.org*&collection=again&resolveRevisits=true&limit=1"
    assert [one.split(" ")[3:5] for one in resumed(get, query)] == [row[1:] for row in whole]


def test_a_sequence_falls_through_where_filters_or_times_leave_nothing(get: httpx.Client) -> None:
    assert {one[5] for one in lines(get, "collection=seq")} == {"A", "B"}
    for query in ("filter=original:.*&filter=mimetype:text/.*&filter=statuscode:200", "resolveRevisits=true&from=2016"):
        assert [one[1] for one in lines(get, f"collection=seq&{query}")][-1] == S[3], query
    assert lines(get, "collection=seq&offset=9") == []


@pytest.mark.parametrize(
    "query",
    [
        "/many/index?closest=2014", "/many/index?collapseTime=4&reverse=1", "/many/index?resolveRevisits=1&reverse=1",
        f"{IA}?collection=many&resolveRevisits=true&sort=reverse", f"{IA}?collection=many&closest=2014&sort=closest",
    ],
)  # fmt: skip
def test_sorting_many_rows_holds_up_nobody(get: httpx.Client, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """It is not done by the event loop."""
    places: list[bool] = []

    def noted(sort: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            places.append(asyncio._get_running_loop() is not None)
            return sort(*args, **named)

        return call

    for name in ("nlargest", "nsmallest"):
        monkeypatch.setattr(heapq, name, noted(getattr(heapq, name)))
    assert get.get(f"{query}&url=many.org&matchType=domain&limit=1").status_code == 200
    assert places == [False]


def resumed(get: httpx.Client, query: str) -> list[str]:
    """All lines of a query, asked for part by part."""
    found, key = [], ""
    while True:
        body, _, rest = get.get(f"{IA}?{query}&showResumeKey=true&resumeKey={key}").text.partition("\n\n")
        found += body.splitlines()
        key = rest.strip()
        if not key:
            return found


def test_resume_keys_lead_through_everything_once(get: httpx.Client) -> None:
    found = resumed(get, "url=many.org/*&collection=many&limit=5000")
    assert [one.split(" ")[2] for one in found] == [f"http://many.org/{n:06d}" for n in range(12_000)]
    for query in ("collection=twice", "collection=twice&to=2015", "sort=reverse", "collapse=digest", "from=20140601",
                  "closest=20150601", "collection=twice&closest=2014&sort=closest"):  # fmt: skip
        whole = get.get(f"{IA}?url=a.org&{query}").text.splitlines()
        assert len(whole) > 1
        assert resumed(get, f"url=a.org&{query}&limit=1") == whole, query
    assert resumed(get, "url=a.org&offset=1&limit=1") == get.get(f"{IA}?url=a.org").text.splitlines()[1:]


def test_pages(get: httpx.Client) -> None:
    query = "url=many.org/*&output=json"
    shown = get.get(f"/many/cdx?{query}&showNumPages=true").json()
    assert set(shown) == {"pages", "pageSize", "blocks"}
    assert shown["pages"] > 3
    assert get.get(f"{IA}?{query}&showNumPages=true&collection=many").text == f"{shown['pages']}\n"
    whole = [row["url"] for row in rows(get.get(f"/many/cdx?{query}").text)]
    paged = [
        row["url"] for page in range(shown["pages"]) for row in rows(get.get(f"/many/cdx?{query}&page={page}").text)
    ]
    assert paged == whole
    beyond = get.get(f"/many/cdx?{query}&page={shown['pages']}")
    assert beyond.status_code == 400
    assert get.get(f"{IA}?{query}&collection=many&page={shown['pages']}").content == b""
    assert get.get(f"{IA}?url=none.org&output=json&page=0").json() == []
    smaller = get.get(f"/many/cdx?{query}&showNumPages=true&pageSize=1").json()
    assert smaller["pages"] == smaller["blocks"] == shown["blocks"]
    for bad in ("/many/cdx?url=many.org&page=0&closest=2014", "/many/cdx?url=many.org&page=0&sort=reverse",
                "/group/cdx?url=many.org&page=0"):  # fmt: skip
        answer = get.get(bad)
        assert answer.status_code == 400
        assert "resumeKey" in answer.json()["message"]


def test_crawlers_add_rows_and_remove_them(base: str, get: httpx.Client) -> None:
    cdx = (
        "- 20140101000000 http://fed.org/ text/html 200 AAAA - - 500 10 a.warc.gz\n"
        "org,fed)/x 20140101000000 http://fed.org/x text/html 200 AAAA - - 500 20 a.warc.gz\n"
    )
    assert get.post("/fed", content=cdx).status_code == 403
    with client(base, WRITER) as writer:
        assert writer.post("/fed", content=cdx).text == "Added 2 records\n"
        assert writer.post("/fed", content=BOM_UTF8 + cdx.encode()).text == "Added 0 records\n"
        found = rows(get.get("/fed/index?url=fed.org/*&output=json").text)
        assert [(row["urlkey"], row["offset"]) for row in found] == [("org,fed)/", "10"), ("org,fed)/x", "20")]
        one = "org,fed)/ 20140101000000 http://fed.org/ text/html 200 AAAA - - 500 10 a.warc.gz\n"
        assert writer.post("/fed/delete", content=one).text == "Deleted 1 records\n"
        assert len(rows(get.get("/fed/index?url=fed.org/*&output=json").text)) == 1
        assert writer.post("/fed", content="what").status_code == 400
        post = b'- 20150101000000 {"url": "http://fed.org/post", "method": "POST", "requestBody": "x=1&y=2"}'
        not_surt = b"www.fed.org/old 20150101000000 http://www.fed.org/old text/html 200 B - - 500 30 a.warc.gz"
        more = b"\n".join([post, b"what", not_surt])
        assert writer.post("/fed", content=more).status_code == 400
        assert writer.post("/fed?badLines=skip", content=more).text == "Added 2 records\n"
        assert get.get("/fed/index?url=http://fed.org/old").text.startswith("org,fed)/old 2015")
        form = {"content": "x=1&y=2", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
        assert get.post("/fed/index?url=http://fed.org/post", **form).text.startswith("org,fed)/post?__wb_method=post&")
        assert httpx.post(f"{base}/fed", content=cdx).status_code == 401
        assert writer.post("/group", content=cdx).status_code == 200


def test_the_indexes_of_a_vault_are_not_changed(folder: Path) -> None:
    """The export writes them, and takes what they list for records of the vault."""
    made = make(folder / "archive")
    assert archec_inline(made, "rebuild").code == 0
    assert archec_inline(made, "export", "warc", folder / "vault").code == 0
    indexes = folder / "vault" / "indexes"
    indexes.mkdir(exist_ok=True)
    (folder / "link").symlink_to(indexes)
    row = b'org,a)/ 20140101000000 {"url": "http://a.org/", "filename": "a", "offset": "0"}'
    paths = {"a": indexes, "b": indexes / "one.cdxj", "c": folder / "link"}
    config = configured(folder, f"collections: {json.dumps({name: str(path) for name, path in paths.items()})}")
    give_tokens(config)
    with serving(config) as url, client(url, WRITER) as writer:
        for name, path in paths.items():
            for change in (add, remove):
                with pytest.raises(UsageError, match=r"belongs to a vault.*name an index of your own before it"):
                    change(path, [row])
            for where in (f"/{name}", f"/{name}/delete"):
                answer = writer.post(where, content=row)
                assert (answer.status_code, "vault" in answer.json()["message"]) == (400, True)
    assert not list(indexes.iterdir())
    assert add(folder / "own.cdxj", [row]) == 1


@settings(max_examples=15)
@given(
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 30), unique=True), st.booleans()), max_size=8),
)
def test_rows_come_and_go_as_in_a_set(is_folder: bool, steps: list[tuple[bool, list[int], bool]]) -> None:
    there = set[int]()
    lines = [line(f"http://n.org/{n:02d}", "20140101000000", filename="a", offset=n) for n in range(31)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("archec.access.feeding._MAX_NEWER", 1000)
        patch.setattr("archec.access.feeding._STEPS", 2)
        path = Path(folder) / ("a" if is_folder else "a.cdxj")
        path.mkdir() if is_folder else path.touch()
        source = FileSource("a", "file", path)
        for is_added, numbers, is_cut in steps:
            given = parse_rows(lines[n] for n in numbers)
            changed = (add if is_added else remove)(path, given)
            before, there = there, there | set(numbers) if is_added else there - set(numbers)
            assert changed == len(before ^ there)
            parts = source.parts(parse_query(Arguments([("url", "n.org/*")])), Errors())
            assert sorted(row.fields["offset"] for part in parts for row in part) == sorted(there)
            file = path / "added.cdxj" if is_folder else path
            small = newer_of(file)
            assert not small.exists() or small.stat().st_size <= 1000
            if is_cut and small.exists():  # killed between the two writes of a merge
                both = {*file.read_bytes().splitlines(), *small.read_bytes().splitlines()}
                write_index(file, sorted(both))
                parts = source.parts(parse_query(Arguments([("url", "n.org/*"), ("sort", "reverse")])), Errors())
                assert sorted(row.fields["offset"] for part in parts for row in part) == sorted(there)


def test_the_lines_that_are_added_mean_what_their_sender_says(tmp_path: Path) -> None:
    """A header names the columns, the end of a line that is too long is no line, and what is packed is refused."""
    config = configured(tmp_path, "collections: {a: ./a.cdxj}")
    give_tokens(config)
    header = b" CDX N b a m s k S V g\n"
    one = b"- 20140101000000 http://n.org/1 text/html 200 A 77 5 a.warc.gz\n"
    too_long = b"- 20140101000000 http://n.org/2" + b" " * MAX_LINE + b' 20140101000000 {"url": "http://n.org/3"}\n'
    with serving(config) as url, client(url, WRITER) as writer:
        assert writer.post("/a?badLines=skip", content=header + too_long + one).text == "Added 1 records\n"
        (row,) = rows(writer.get("/a/index?url=n.org/*&output=json").text)
        assert (row["url"], row["length"], row["offset"], "redirect" in row) == ("http://n.org/1", "77", "5", False)
        head = b'- 20140101000000 {"url": "http://head.org/", "method": "HEAD"}'
        assert writer.post("/a", content=head).text == "Added 1 records\n"
        assert writer.get("/a/index?url=http://head.org/").text == ""
        assert writer.get("/a/index?url=http://head.org/?__wb_method=HEAD").text
        for wrong in (b" CDX N b a a\n", b" CDX a b\n"):
            assert writer.post("/a", content=wrong + one).status_code == 400
        packed = writer.post("/a?badLines=skip", content=gzip.compress(one), headers={"Content-Encoding": "gzip"})
        assert (packed.status_code, packed.headers["accept-encoding"]) == (415, "identity")
    (tmp_path / "b.cdx").write_bytes(b"what\n")
    run = CliRunner().invoke(access, ["add", "a", str(tmp_path / "b.cdx"), "--config", str(config.file)])
    assert f"{tmp_path / 'b.cdx'}: line 1 is neither CDX nor CDXJ" in str(run.exception)
    newer_of(tmp_path / "a.cdxj").write_bytes(b"x" * (MAX_LINE + 1) + b"\n")
    with pytest.raises(UsageError, match=r"a,new\.cdxj: has a line"):
        add(tmp_path / "a.cdxj", [line("http://n.org/", S[0])])


def test_what_a_kill_has_left_is_removed_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".+1-0.part", tmp_path / ".+2-0.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    assert add(tmp_path / "a.cdxj", [line("http://n.org/", S[0])]) == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_rows_of_a_file_with_other_line_ends_and_a_mark_are_known(tmp_path: Path) -> None:
    lines = [line("http://n.org/", f"201{n}0101000000") for n in range(4)]
    path = tmp_path / "a.cdxj"
    path.write_bytes(BOM_UTF8 + b"".join(one + b"\r\n" for one in lines[:3]))
    spelled = [one.replace(b'": "', b'":"') for one in lines]
    assert [add(path, given) for given in ([*lines, *spelled], lines, parse_rows(spelled))] == [1, 0, 0]
    assert remove(path, lines[:2]) == 2
    assert (path.read_bytes(), newer_of(path).read_bytes()) == (lines[2] + b"\n", lines[3] + b"\n")


def test_any_number_of_rows_is_added_and_removed(tmp_path: Path) -> None:
    config = configured(tmp_path, "collections: {a: ./new, b: {index: {type: live}}}")
    give_tokens(config)
    row = b"- 20140101000000 http://n.org/%d text/html 200 A - - 1 %d a.warc.gz\n"
    many = b"".join(row % (n, n) for n in range(3000))
    with serving(config) as url, client(url, WRITER) as writer:
        assert writer.post("/a", content=many).text == "Added 3000 records\n"
        assert len(many) > config.server.max_body
        assert writer.post("/a", content=many + b"what\n").status_code == 400
        assert len(rows(writer.get("/a/index?url=n.org/*&output=json").text)) == 3000
        assert writer.post("/a/delete", content=many[:-80]).text == "Deleted 2998 records\n"
        assert writer.post("/b", content=many).status_code == 400

    def ran(*words: str, **more: Any) -> str:
        run = CliRunner().invoke(access, [*words, "--config", str(config.file)], catch_exceptions=False, **more)
        assert run.exit_code == 0
        return run.stdout

    (tmp_path / "lines").write_bytes(many)
    file = tmp_path / "new" / "added.cdxj"
    assert ran("add", "a", str(tmp_path / "lines")) == f"{file.parent}: 2,998 rows added\n"
    assert json.loads(ran("remove", "a", "--json", input=many))["removed"] == 3000
    assert file.read_bytes() == b""
    write_index(file.with_name("other.cdxj"), [line("http://n.org/1", "20140101000000")])
    both = b"".join(line(f"http://n.org/{n}", "20140101000000") + b"\n" for n in (1, 2))
    assert [json.loads(ran("add", "a", "--json", input=both))["added"] for _ in range(2)] == [1, 0]
    assert json.loads(ran("remove", "a", "--json", input=both))["removed"] == 2
    for wrong in (["add", "zzz"], ["add", "b"], ["remove", "b"]):
        with pytest.raises(UsageError):
            ran(*wrong)


def test_a_range_is_one_record_of_the_index(base: str, get: httpx.Client) -> None:
    row = rows(get.get("/a/index?url=a.org&closest=2016&limit=1&output=json").text)[0]
    first, length = int(row["offset"]), int(row["length"])
    path = "/a/warc/a.warc.gz"
    answer = get.get(path, headers={"Range": f"bytes={first}-{first + length - 1}"})
    assert answer.status_code == 206
    one = next(iter(ArchiveIterator(io.BytesIO(answer.content))))
    assert one.content_stream().read() == b"other"
    assert get.get(path).status_code == 416
    for begin, end in ((first, first + length), (first + 1, first + length), (0, 10)):
        assert get.get(path, headers={"Range": f"bytes={begin}-{end}"}).status_code == 403
    assert get.get("/a/warc/none.warc.gz", headers={"Range": "bytes=0-10"}).status_code == 403
    with client(base, LISTER) as lister:
        wanted = {"Range": f"bytes={first}-{first + length - 1}"}
        assert lister.get(path, headers=wanted).status_code == 403


# -- clients as they are, but for their base URL ----------------------------------------------------


def with_token(session: object) -> None:
    session.headers["Authorization"] = f"Bearer {READER}"  # type: ignore[attr-defined]


@pytest.mark.slow  # it waits between its requests
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_cdx_toolkit(base: str) -> None:
    toolkit = pytest.importorskip("cdx_toolkit")
    base = base.replace("http://", f"http://reader:{READER}@")
    fetcher = toolkit.CDXFetcher(source=f"{base}/a/cdx", wb=f"{base}/a")
    found = list(fetcher.iter("a.org", from_ts="2014", to="2017", limit=10))
    assert [one["timestamp"] for one in found] == list(S)
    assert fetcher.get("none.org", limit=2) == []
    assert found[-1].content == b"other"
    ranges = toolkit.CDXFetcher(source=f"{base}/a/cdx", warc_download_prefix=f"{base}/a/warc")
    read = next(iter(ranges.iter("a.org", from_ts="2016", to="2017", limit=1))).fetch_warc_record()
    assert read.content_stream().read() == b"other"
    pages = toolkit.CDXFetcher(source=f"{base}/many/cdx")
    assert sum(1 for _ in pages.iter("many.org/*", from_ts="2014", to="2017", limit=20_000)) == 12_000
    assert pages.get_size_estimate("many.org/*") > 0


def test_waybackpy(base: str) -> None:
    waybackpy = pytest.importorskip("waybackpy")
    api = waybackpy.WaybackMachineCDXServerAPI("a.org", "test", limit=3)
    api.endpoint = base.replace("http://", f"http://reader:{READER}@") + IA
    assert [one.timestamp for one in api.snapshots()] == list(S)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wayback_of_edgi(base: str) -> None:
    wayback = pytest.importorskip("wayback")
    import requests
    from requests.adapters import HTTPAdapter

    class Here(HTTPAdapter):
        def send(self, request: requests.PreparedRequest, **options: object) -> requests.Response:  # type: ignore[override]
            asked = request.url or ""
            request.url = base + asked.partition("web.archive.org")[2]
            request.headers["Authorization"] = f"Bearer {READER}"
            response = super().send(request, **options)  # type: ignore[arg-type]
            response.url = asked
            return response

    session = wayback.WaybackSession(retries=0)
    session.mount("https://web.archive.org", Here())
    session.mount("http://web.archive.org", Here())
    with wayback.WaybackClient(session) as there:
        found = list(there.search("a.org"))
        assert [one.timestamp.strftime("%Y%m%d%H%M%S") for one in found] == list(S)
        memento = there.get_memento("http://a.org/", timestamp=S[3], mode=wayback.Mode.original)
        assert memento.content == b"other"


def test_memento_client(base: str, get: httpx.Client) -> None:
    client_of = pytest.importorskip("memento_client")
    import requests

    class Stub(requests.adapters.HTTPAdapter):
        def send(self, request: requests.PreparedRequest, **_: object) -> requests.Response:  # type: ignore[override]
            made = requests.Response()
            made.status_code, made.url, made.request = 200, request.url or "", request
            made.raw = io.BytesIO()
            return made

    session = requests.Session()
    with_token(session)
    session.mount("http://a.org", Stub())
    import datetime

    found = client_of.MementoClient(timegate_uri=f"{base}/a/", check_native_timegate=False, session=session)
    info = found.get_memento_info("http://a.org/", datetime.datetime(2015, 2, 1))
    assert S[2] in info["mementos"]["closest"]["uri"][0]
    assert S[0] in info["mementos"]["first"]["uri"][0]
    assert S[3] in info["mementos"]["last"]["uri"][0]
    assert json.loads(get.get("/a/timemap/json/http://a.org/").text)["mementos"]


def test_the_own_folder_is_not_needed(tmp_path: Path) -> None:
    config = configured(tmp_path, "collections: {none: ./missing}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        assert get.get(f"{IA}?url=a.org").text == ""
        assert get.get("/none/cdx?url=a.org&showNumPages=true").json()["pages"] == 0
