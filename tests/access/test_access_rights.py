"""Dark by default: tokens, rights, rules, the audit log."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from access_support import LISTER, READER, WRITER, client, configured, give_tokens, line, serving, write_index
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from remote_archives import archives
from servers import running
from small_disk import small_disk
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from warc_files import Crawl

from archec.access.audit_log import AuditLog
from archec.access.errors import Refused
from archec.access.gate import Gate, TransferEnded, Viewer
from archec.access.index_folders import FileSource
from archec.access.query import MatchType, Query, key_of, key_range, uri_of
from archec.access.rows import NOWHERE, Row, RowOrigin, any_row
from archec.access.rules import Level, Rules, Subject, subject_of
from archec.access.sources import Errors
from archec.access.tokens import Token, TokenFile, hash_of
from archec.cli.access import access
from archec.config import Config, RuleConfig
from archec.errors import ConfigError, UsageError

COLLECTIONS = "collections: {a: a.cdxj, b: a.cdxj}\n"
PATHS = [
    "/a", "/a/index?url=x.org", "/a/index", "/a/resource?url=x.org", "/nowhere/index?url=x.org",
    "/a/cdx?url=x.org&limit=x", "/cdx/search/cdx?url=x.org", "/web/2014/http://x.org/",
    "/a/2014id_/http://x.org/", "/a/list_sources",
    "/a/http://x.org/", "/a/timemap/link/http://x.org/", "/wayback/available?url=x.org", "/a/warc/x.warc.gz",
]  # fmt: skip


def world(folder: Path, text: str = "") -> Config:
    write_index(folder / "a.cdxj", [line("http://x.org/", "20140101000000"), line("http://y.org/", "20140101000000")])
    config = configured(folder, COLLECTIONS + text)
    give_tokens(config, Token("b-only", hash_of("b-token"), ("metadata", "content"), ("b",)))
    return config


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_a_token_every_path_says_the_same(tmp_path: Path, token: str) -> None:
    with serving(world(tmp_path)) as url, client(url, token) as get:
        answers = [get.get(path) for path in PATHS]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.content for answer in answers}) == 1
        challenges = answers[0].headers.get_list("www-authenticate")
        assert [one.split()[0] for one in challenges] == ["Bearer", "Basic"]
        assert get.get("/").status_code == get.get("/metrics").status_code == 200
        assert get.get("/healthz").status_code == 200
        assert "x.org" not in get.get("/metrics").text


def test_a_token_is_a_bearer_or_the_password_of_basic(tmp_path: Path) -> None:
    with serving(world(tmp_path)) as url:
        basic = base64.b64encode(f"anybody:{READER}".encode()).decode()
        for value in (f"Bearer {READER}", f"bearer {READER}", f"Basic {basic}"):
            answer = httpx.get(f"{url}/a/index?url=x.org", headers={"Authorization": value})
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "private"
        for wrong in (b"Basic !!!", b"Basic", b"Basic \xe9", b"Digest x", f"Bearer {READER}x".encode()):
            assert httpx.get(f"{url}/a/index?url=x.org", headers={b"Authorization": wrong}).status_code == 401


def test_what_is_outside_a_token_s_collections_is_unknown(tmp_path: Path) -> None:
    with serving(world(tmp_path)) as url, client(url, "b-token") as get:
        assert [get.get(f"/cdx/search/cdx?url=x.org{more}").status_code for more in ("", "&collection=b")] == [404, 200]
        assert get.get("/b/index?url=x.org").status_code == 200
        hidden, unknown = get.get("/a/index?url=x.org"), get.get("/c/index?url=x.org")
        assert hidden.status_code == unknown.status_code == 404
        assert hidden.text.replace(": a", "") == unknown.text.replace(": c", "")
        for path in ("/web/http://x.org/", "/wayback/available?url=x.org", "/cdx/search/cdx?url=x.org"):
            assert get.get(path).json()["message"] == f"Collection not found: {path.split('/')[1]}"


def test_revoked_and_expired_tokens_are_refused_at_once(tmp_path: Path) -> None:
    config = world(tmp_path)
    give_tokens(config, Token("old", hash_of("old"), ("metadata",), (), int(time.time()) - 1))
    with serving(config) as url, client(url) as get, client(url, "old") as old:
        assert old.get("/a").status_code == 401
        assert get.get("/a").status_code == 200
        run = CliRunner().invoke(access, ["token", "revoke", "reader", "--config", str(config.file)])
        assert run.exit_code == 0, run.output
        assert get.get("/a").status_code == 401


def test_a_revoked_token_ends_a_request_that_waits_for_its_source(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as others:
        place = f"cdx+http://127.0.0.1:{silent.getsockname()[1]}/cdx"
        config = configured(tmp_path, f"collections: {{a: {{index: '{place}', index_timeout: 60}}}}")
        give_tokens(config)
        with serving(config) as url, client(url) as get:
            waiting = others.submit(get.get, "/a/index?url=x.org")
            with silent.accept()[0]:
                CliRunner().invoke(access, ["token", "revoke", "reader", "--config", str(config.file)])
                assert waiting.result(10).status_code == 401


def test_a_revoked_token_ends_the_download_of_a_slow_client(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    size = len(head) + (1 << 30)
    fields = "WARC-Type: response\r\nWARC-Target-URI: http://huge.org/\r\nWARC-Date: 2014-01-01T00:00:00Z\r\n"
    kind = "application/http; msgtype=response"
    start = f"WARC/1.0\r\n{fields}Content-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode() + head
    (tmp_path / "huge.warc").write_bytes(start)
    os.truncate(tmp_path / "huge.warc", len(start) + (1 << 30))
    write_index(tmp_path / "a.cdxj", [line("http://huge.org/", "20140101000000", filename="huge.warc", offset=0)])
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: .}}")
    give_tokens(config)
    request = f"GET /a/resource?url=huge.org HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READER}\r\n\r\n".encode()
    with serving(config) as url, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.sendall(request)
        assert slow.recv(1 << 12).startswith(b"HTTP/1.1 200")
        CliRunner().invoke(access, ["token", "revoke", "reader", "--config", str(config.file)])
        begun, received = time.monotonic(), 0
        with contextlib.suppress(ConnectionResetError):
            while data := slow.recv(1 << 12):
                received += len(data)
                time.sleep(0.02)  # as slow clients do
        assert time.monotonic() - begun < 5
        assert received < 1 << 20  # the kernel holds more


def test_a_token_is_printed_once_and_kept_hashed(tmp_path: Path) -> None:
    config = world(tmp_path)
    options = ["--config", str(config.file)]
    create = ["token", "create"]
    made = CliRunner().invoke(access, [*create, "new", "--collection", "a", "--until", "2099-01-01", *options])
    assert made.exit_code == 0, made.output
    text = made.stdout.strip()
    path = config.path(config.access.tokens)
    assert path.stat().st_mode & 0o777 == 0o600
    assert text not in path.read_text()
    found = TokenFile(path).find(text)
    assert found is not None
    assert (found.name, found.rights, found.collections) == ("new", ("metadata", "content"), ("a",))
    listed = CliRunner().invoke(access, ["token", "list", "--json", *options])
    names = [json.loads(row)["name"] for row in listed.stdout.splitlines()]
    assert names == ["reader", "writer", "lister", "b-only", "new"]
    for wrong in (["new"], ["x", "--rights", "all"], ["x", "--collection", "zzz"], ["x y"]):
        assert CliRunner().invoke(access, [*create, *wrong, *options]).exit_code != 0
    told = json.loads(CliRunner().invoke(access, [*create, "told", "--json", *options]).stdout)
    again = TokenFile(path).find(told["token"])
    assert again is not None
    assert again.name == told["name"] == "told"
    path.unlink()
    assert CliRunner().invoke(access, ["token", "list", *options]).stderr == "archec: there are no tokens\n"


def test_tokens_that_are_created_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    config = configured(tmp_path, COLLECTIONS)
    names = [f"reader-{number}" for number in range(9)]
    command = [sys.executable, "-m", "archec", "access", "token", "create"]
    options = ["--config", str(config.file)]
    children = [subprocess.Popen([*command, name, *options], stdout=subprocess.DEVNULL) for name in names]
    assert [child.wait() for child in children] == [0] * len(names)
    assert sorted(one.name for one in TokenFile(config.path(config.access.tokens)).tokens()) == names


def test_a_token_that_would_never_be_valid_is_refused(tmp_path: Path) -> None:
    config = world(tmp_path)
    past = ["token", "create", "past", "--until", "2001-01-01", "--config", str(config.file)]
    made = CliRunner().invoke(access, past)
    assert isinstance(made.exception, UsageError)
    assert "2001-01-01T00:00:00Z is in the past" in str(made.exception)
    assert "past" not in CliRunner().invoke(access, ["token", "list", "--config", str(config.file)]).output


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path: Path) -> None:
    config = world(tmp_path)
    config.path(config.access.tokens).chmod(0o644)
    with pytest.raises(ConfigError, match="readable by others"), serving(config):
        pass
    (tmp_path / "archive").mkdir()
    (tmp_path / "link").symlink_to("archive")
    (tmp_path / "loop").symlink_to("loop")
    text = f"{COLLECTIONS}database: sqlite:///own.sqlite\n"
    for place, told in (("archive/tokens", "is in the archive"), ("link/tokens", "is in the archive"),
                        ("archive", "is in the archive"), ("own.sqlite", "is the catalogue"),
                        ("loop", "loop: cannot be read")):  # fmt: skip
        wrong = configured(tmp_path, f"{text}access: {{tokens: {place}}}")
        with pytest.raises(ConfigError, match=told), serving(wrong):
            pass


def test_tokens_that_cannot_be_read_are_a_fault_until_they_can(tmp_path: Path) -> None:
    config = world(tmp_path)
    path = config.path(config.access.tokens)
    gate, told = Gate(config), f"Bearer {READER}"
    contents = path.read_bytes()
    for wrong in (b"{", contents.replace(b"reader", b"\xff"), contents.replace(hash_of(READER).encode(), "é".encode())):
        path.write_bytes(wrong)
        with pytest.raises(Refused) as refused:
            gate.enter(told, "192.0.2.1")
        gate.look()
        assert (refused.value.http_status, "is not a token file" in gate.fault) == (503, True), wrong
    path.write_bytes(contents)
    gate.look()
    token = gate.enter(told, "192.0.2.1").token
    assert (gate.fault, token.name if token is not None else "") == ("", "reader")
    path.chmod(0o640)
    with pytest.raises(Refused) as refused:
        gate.enter(told, "192.0.2.1")
    gate.look()
    assert (refused.value.http_status, "is readable by others" in gate.fault) == (503, True)


def test_open_metadata_and_rules_for_anybody(tmp_path: Path) -> None:
    with serving(world(tmp_path, "access: {open: metadata}")) as url, client(url, "") as get:
        assert get.get("/a/index?url=x.org").text
        assert get.get("/a/index?url=none.org").status_code == 200
    rules = "access: {rules: [{host: x.org, rights: open}]}"
    with serving(world(tmp_path, rules)) as url, client(url, "") as get, client(url, LISTER) as lister:
        assert get.get("/a/index?url=x.org").text
        assert get.get("/a/index?url=y.org").status_code == get.get("/a/index?url=none.org").status_code == 401
        assert get.get("/zzz/index?url=none.org").status_code == 401
        ia = "/cdx/search/cdx?collection=a&output=json&url="
        for path in ("/a", "/a/list_sources", "/a/timemap/xml/x.org", "/a/warc/x", f"{ia}y.org", f"{ia}none.org"):
            assert get.get(path).status_code == 401, path
        assert get.put("/a/index?url=x.org").status_code == get.options("/a/index?url=x.org").status_code == 401
        assert len(get.get(f"{ia}x.org").json()) == 2
        assert lister.get("/a/index?url=y.org").text
    with serving(world(tmp_path, "access: {rules: [{rights: open}]}")) as url, client(url, "") as get:
        assert get.get("/a/index?url=none.org").status_code == 200


@pytest.mark.parametrize(("condition", "kept"), [("networks: [127.0.0.0/8]", "private"), ("host: x.org", "")])
def test_no_shared_cache_keeps_what_depends_on_the_address(tmp_path: Path, condition: str, kept: str) -> None:
    with serving(world(tmp_path, f"access: {{rules: [{{{condition}, rights: open}}]}}")) as url:
        answer = httpx.get(f"{url}/a/index?url=x.org")
        assert (answer.status_code, answer.headers.get("cache-control", "")) == (200, kept)


def test_where_nothing_can_be_visible_nothing_is_asked(tmp_path: Path) -> None:
    """Whoever may see nothing of a URL does not learn from the time either what there is, nor which collections."""
    with archives() as remote:
        rules = "access: {rules: [{host: y.org, rights: open}, {host: a.org, rights: closed}, {mime: a/b, rights: open}"
        rules += "]}"
        config = configured(tmp_path, f"collections: {{a: 'cdx+{remote.url}/cdx'}}\n{rules}")
        give_tokens(config)
        with serving(config) as url, client(url, "") as get:
            for path in PATHS:
                for one in (path, path.replace("/a", "/nowhere", 1), f"{path}&collection=nowhere"):
                    answer = get.get(one.replace("x.org", "a.org"))
                    assert (answer.status_code, answer.text) == (401, '{"message": "A valid token is needed"}\n'), one
            assert not remote.asked
            assert get.get("/a/index?url=y.org").status_code == get.get("/a/index?url=z.org").status_code == 401
            assert len(remote.asked) == 2


def test_other_servers_are_not_asked_for_a_hidden_url(tmp_path: Path) -> None:
    with archives() as remote:
        rules = "access: {open: content, rules: [{host: a.org, rights: closed}]}"
        config = configured(tmp_path, f"collections: {{a: 'cdx+{remote.url}/cdx'}}\n{rules}")
        with serving(config) as url, client(url, "") as get:
            for method in ("GET", "HEAD", "POST"):
                for mode in ("index/postreq", "resource-post"):
                    get.post(f"/a/{mode}?url=http://a.org/", content=f"{method} /\r\n\r\n")
            assert remote.asked
            assert [path for _, path, _, _ in remote.asked if "a.org" in path] == []


def test_a_row_of_a_post_is_judged_by_its_url_not_by_its_body() -> None:
    closed = RuleConfig(rights="closed", url_prefix="http://x.org/x?s=1")
    viewer = Viewer(None, "", Rules((closed,), "metadata"))
    assert viewer.may_see(key_range("http://x.org/x?1=x&__wb_method=post&s=1", "exact"))
    assert not viewer.may_see(key_range("http://x.org/x?s=1", "exact"))


_HOSTS = ("x.org", "a.x.org", "xy.org", "x.org:81", "y.org", "192.0.2.1")
_CONDITIONS = st.fixed_dictionaries(
    {"rights": st.sampled_from(["open", "metadata", "closed", "withdrawn"])},
    optional={
        "host": st.sampled_from(["x.org", "a.x.org", "org", "y.org", "192.0.2.1"]),
        "url_prefix": st.sampled_from(
            ["http://x.org/", "http://x.org", "http://x.org/a", "http://y.org/a?b=1", "urn:"]
        ),
        "mime": st.just("text/html"),
        "networks": st.just(("10.0.0.0/8",)),
        "until": st.sampled_from(["2001-01-01", "9y"]),
        "archive": st.just("aaa"),
    },
)


@given(
    st.lists(_CONDITIONS, max_size=4),
    st.sampled_from(["none", "metadata"]),
    st.sampled_from(["", "10.0.0.1"]),
    st.lists(st.sampled_from([f"http://{host}{path}" for host in _HOSTS for path in ("/", "/a", "/a/b?b=1", "/b")])),
    st.sampled_from([f"{host}{path}" for host in _HOSTS for path in ("", "/", "/a", "/a?b=1")]),
    st.sampled_from(["exact", "prefix", "host", "domain"]),
)
def test_what_may_be_visible_is_asked_for(
    conditions: list[dict[str, Any]], opened: str, address: str, urls: list[str], asked: str, match: MatchType
) -> None:
    viewer = Viewer(None, address, Rules(tuple(RuleConfig(**one) for one in conditions), opened))
    within = key_range(asked, match)
    made = [line(url, "20140101000000") for url in urls]
    rows = [any_row(one, NOWHERE) for one in made if within.start <= one < within.end]
    visible = list(viewer.visible((row for row in rows if row is not None), asked))
    assert viewer.may_see(within) or not visible


@pytest.mark.parametrize("form", ["index?url={}", "index?url={}/*", "resource?url={}", "http://{}/", "2014id_/http://{}/",
                                  "timemap/link/http://{}/", "cdx?url={}&output=json"])  # fmt: skip
def test_what_is_closed_is_answered_like_what_is_unknown(tmp_path: Path, form: str) -> None:
    """Also where a source cannot answer."""
    world(tmp_path)
    rules = "access: {open: content, rules: [{host: x.org, rights: closed}]}"
    config = configured(tmp_path, f"collections: {{a: {{index_group: {{f: a.cdxj, g: no.cdxj}}}}}}\n{rules}")
    told = []
    with serving(config) as url, client(url, "") as get:
        for host in ("x.org", "u.org"):
            answer = get.get(f"/a/{form.format(host)}")
            headers = {name: value for name, value in answer.headers.items() if name != "date"}
            told.append((answer.status_code, answer.text.replace(host, ""), headers))
    assert told[0] == told[1]
    assert "g: cannot be read" in told[0][2]["reserrors"]


def test_a_cache_does_not_tell_what_is_closed_from_what_is_unknown(tmp_path: Path) -> None:
    asked = []

    async def behind(request: Request) -> Response:
        asked.append(request.query_params["url"])
        return Response()

    with running(Starlette(routes=[Route("/index", behind)])) as port:
        rules = "access: {open: content, cache: 5m, rules: [{host: x.org, rights: closed}]}"
        config = configured(tmp_path, f"collections: {{a: 'cdx+http://127.0.0.1:{port}/index'}}\n{rules}")
        with serving(config) as url, client(url, "") as get:
            for host in ("x.org", "u.org"):
                for path in ("1", "2", "2"):
                    assert get.get(f"/a/index?url={host}/{path}").status_code == 200
    closed, unknown = asked[:2], asked[2:]
    assert len(set(closed)) == len(unknown) == 2
    assert "x.org" not in "".join(closed)


def test_nobody_without_content_causes_every_row_to_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(tmp_path / "a.cdxj", [line(f"http://x.org/{n}", "20140101000000") for n in range(100)])
    config = configured(tmp_path, "collections: {a: a.cdxj}\naccess: {rules: [{host: y.org, rights: open}]}")
    give_tokens(config)
    judged, check = [], Viewer.check_content

    def checked(viewer: Viewer, row: Row) -> None:
        judged.append(row)
        check(viewer, row)

    monkeypatch.setattr(Viewer, "check_content", checked)
    with serving(config) as url, client(url, LISTER) as get:
        for kind in ("domain", "prefix", "host"):
            assert get.get(f"/a/resource?url=x.org&matchType={kind}").status_code == 403
            assert get.get(f"/a/resource?url=u.org&matchType={kind}").status_code == 404
    assert len(judged) == 3


def test_pages_do_not_tell_what_rules_hide(tmp_path: Path) -> None:
    count = "showNumPages=true&collection=a"
    with serving(world(tmp_path, "access: {open: metadata, rules: [{host: x.org, rights: closed}]}")) as url:
        for token, pages in (("", [0, 1]), (READER, [1, 1])):
            with client(url, token) as get:
                found = [get.get(f"/a/cdx?url={host}&{count}").json()["pages"] for host in ("x.org", "y.org")]
                assert found == [int(get.get(f"/cdx/search/cdx?url={one}&{count}").text) for one in ("x.org", "y.org")]
                assert found == pages
    with serving(world(tmp_path, "access: {rules: [{host: y.org, rights: open}]}")) as url, client(url, "") as get:
        hidden = [get.get(f"/a/cdx?url={host}&{count}").status_code for host in ("x.org", "none.org", "y.org")]
        assert hidden == [401, 401, 200]
    config = world(tmp_path)
    give_tokens(config, Token("feeder", hash_of("feeder"), ("write",)))
    with serving(config) as url, client(url, "feeder") as get:
        assert get.get(f"/a/cdx?url=x.org&{count}").json()["pages"] == 0


def test_the_number_of_pages_takes_the_same_time_for_what_is_closed_and_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, parts = [], FileSource.parts

    def asking(source: FileSource, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        asked.append(query.url)
        return parts(source, query, errors, at_once=at_once)

    monkeypatch.setattr(FileSource, "parts", asking)
    with serving(world(tmp_path, "access: {open: metadata, rules: [{host: x.org, rights: closed}]}")) as url:
        for host in ("x.org", "none.org"):
            told = httpx.get(f"{url}/a/cdx?url={host}&showNumPages=true").json()
            assert (told["pages"], len(asked)) == (0, 1)
            asked.clear()


def test_where_rules_may_hide_rows_the_others_are_on_one_page(tmp_path: Path) -> None:
    config = world(tmp_path, "access: {open: metadata, rules: [{host: x.org, rights: closed}]}")
    urls = [f"http://{host}.org/{number}" for host in "xyz" for number in range(2000)]
    write_index(tmp_path / "a.cdxj", [line(url, "20140101000000") for url in urls])
    with serving(config) as url:
        for token in ("", READER):
            with client(url, token) as get:
                for asked, visible in (
                    ("*.org", urls if token else urls[2000:]),
                    ("y.org/*", urls[2000:4000]),
                    ("*.y.org", urls[2000:4000]),
                ):
                    for path, text in (("/a/cdx", "output=text&fl=url"), ("/cdx/search/cdx", "gzip=false&fl=original")):
                        query = f"{path}?{text}&collection=a&url={asked}&pageSize=1"
                        number = int(re.findall("[0-9]+", get.get(f"{query}&showNumPages=true").text)[0])
                        assert (number > 1) is bool(token)
                        found = [get.get(f"{query}&page={page}").text.split() for page in range(number)]
                        assert sorted(chain.from_iterable(found)) == sorted(visible)


def test_a_rule_about_www_does_not_hide_other_hosts_of_the_domain(tmp_path: Path) -> None:
    config = world(tmp_path, "access: {open: metadata, rules: [{host: www.a.org, rights: closed}]}")
    urls = ["http://a.org/", "http://b.a.org/", "http://www.a.org/"]
    write_index(tmp_path / "a.cdxj", [line(url, "20140101000000") for url in urls])
    with serving(config) as url, client(url, "") as get:
        assert get.get("/a/cdx?url=*.a.org&output=text&fl=url").text.split() == urls[1:2]


def test_rules_are_read_again_without_restart_and_a_withdrawn_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, has_rules, look = world(tmp_path), threading.Event(), Gate.look

    def looked(gate: Gate) -> None:
        look(gate)
        if gate.rules.rules:
            has_rules.set()

    monkeypatch.setattr(Gate, "look", looked)
    with serving(config) as url, client(url) as get:
        assert "access" not in json.loads(get.get("/a/index?url=x.org&output=json").text)
        world(tmp_path, "access: {audit: a.log, rules: [{host: x.org, rights: withdrawn, reason: asked for}]}")
        assert has_rules.wait(30)
        row = json.loads(get.get("/a/index?url=x.org&output=json").text)
        assert (row["access"], row["reason"]) == ("withdrawn", "asked for")
    assert caplog.messages[-1:] == [f"{config.file}: restart the server to apply the changes of access.audit"]


class _Waits(selectors.SelectSelector):
    """Waits for nothing, but counts the seconds that would have passed."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.seconds += timeout or 0
        return super().select(0)


def test_rules_and_tokens_are_looked_at_within_a_second(tmp_path: Path) -> None:
    config = world(tmp_path)
    gate, waits = Gate(config), _Waits()
    loop = asyncio.SelectorEventLoop(waits)
    loop.time = lambda: waits.seconds  # type: ignore[method-assign]

    async def sends() -> None:
        await gate.transfer(gate.enter(f"Bearer {READER}", ""), asyncio.sleep(3600))

    async def scenario() -> None:
        watching, sending = asyncio.create_task(gate.watch()), asyncio.create_task(sends())
        await asyncio.sleep(10)
        world(tmp_path, "access: {rules: [{rights: open}]}")
        TokenFile(config.path(config.access.tokens)).path.unlink()
        with pytest.raises(Refused):
            gate.enter(f"Bearer {READER}", "")
        assert not gate.rules.rules
        await asyncio.sleep(1)
        assert gate.rules.rules
        assert isinstance(sending.exception(), TransferEnded)
        watching.cancel()

    with contextlib.closing(loop):
        loop.run_until_complete(scenario())
    assert waits.seconds < 12


def test_a_configuration_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """Half of it may be valid, with fewer rules."""
    config = world(tmp_path, "access: {open: content, rules: [{host: x.org, rights: closed}]}")
    gate = Gate(config)
    for half in ("access: {open: content}", "access: {open: content, rules: [{host: y.org, rights: closed}]}"):
        world(tmp_path, half)
        gate.look()
        assert [rule.host for rule in gate.rules.rules] == ["x.org"]
    gate.look()
    assert [rule.host for rule in gate.rules.rules] == ["y.org"]


def test_requests_with_a_token_are_limited(tmp_path: Path) -> None:
    with serving(world(tmp_path, "access: {rate: 2, audit: a.jsonl}")) as url, client(url) as get:
        answers = [get.get("/a") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) > 0
    assert [json.loads(row)["who"] for row in (tmp_path / "a.jsonl").read_text().splitlines()] == ["reader"] * 3


def test_the_audit_log_has_a_line_for_each_request(tmp_path: Path) -> None:
    config = world(tmp_path, "access: {audit: data/audit.jsonl}")
    with serving(config) as url, client(url) as get:
        size = len(get.get("/a/index?url=x.org").content)
        httpx.get(f"{url}/a/index?url=x.org")
        get.get("/cdx/search/cdx?url=x.org&limit=wrong")
    seen = [json.loads(row) for row in (tmp_path / "data" / "audit.jsonl").read_text().splitlines()]
    assert [(row["who"], row["status"]) for row in seen] == [("reader", 200), ("", 401), ("reader", 400)]
    assert seen[0]["bytes"] == size
    for row in seen[::2]:
        assert (row["collection"], row["url"], row["address"]) == ("a", "x.org", "127.0.0.1")
    assert (tmp_path / "data" / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def fill(place: Path) -> Path:
    """Fills a disk with a file."""
    room = os.statvfs(place)
    (place / "filler").write_bytes(b"x" * (room.f_bavail * room.f_frsize))
    return place / "filler"


def test_a_full_disk_leaves_whole_lines_in_the_audit_log(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=64k") as small:
        log = AuditLog(small / "a.log")
        log.add(0, {"n": -1})
        filler = fill(small)
        for n in range(200):
            log.add(0, {"n": n})
        assert "No space" in log.fault
        filler.unlink()
        log.add(0, {"n": 200})
        log.close()
        assert log.fault == ""
        *_, cut, last = (small / "a.log").read_text().splitlines()
        assert (json.loads(last)["n"], cut.count("time")) == (200, 1)


def test_a_full_disk_refuses_bodies_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "small", "size=256k") as small:
        config = world(small)
        with serving(config) as url, client(url, WRITER) as get:
            monkeypatch.setattr(tempfile, "tempdir", str(small))
            fill(small)
            answer = get.post("/a/resource-post?url=x.org", content=b"GET /\n\n" + b"x" * (2 << 20))
            assert (answer.status_code, answer.json()["message"][:24]) == (503, "the body cannot be kept:")
            assert get.post("/a", content=line("http://z.org/", "20140101000000")).status_code == 503
            assert get.get("/a/index?url=http://x.org/").text


def test_cors_only_for_origins_that_are_named(tmp_path: Path) -> None:
    origin = {"Origin": "https://page.example.org"}
    config = world(tmp_path, "access: {cors: ['https://page.example.org']}")
    with serving(config) as url, client(url) as get:
        answer = get.get("/a", headers=origin)
        assert (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (origin["Origin"], "origin")
        assert "access-control-allow-origin" not in get.get("/a", headers={"Origin": "https://other.org"}).headers
        assert httpx.options(f"{url}/a", headers=origin).status_code == 204


# -- rules ------------------------------------------------------------------------------------------

PAPER = Subject("urn:x-repec:aaa:wpaper:1", "RePEc:aaa:wpaper:1", "text/plain", noted=1_000_000_000)
FILE = Subject("http://www.x.org/p/1.pdf", "", "application/pdf", ("RePEc:aaa:wpaper:1",), 1_000_000_000)


@pytest.mark.parametrize(
    ("rule", "subject", "matches"),
    [
        ({"archive": "aaa"}, PAPER, True),
        ({"archive": "AAA"}, FILE, True),
        ({"archive": "bbb"}, FILE, False),
        ({"series": "aaa:wpaper"}, FILE, True),
        ({"series": "aaa:other"}, PAPER, False),
        ({"archive": "aaa"}, FILE._replace(has_more=True), True),
        ({"handle": "RePEc:AAA:wpaper:1"}, PAPER, True),
        ({"handle": "repec:aaa:wpaper:2"}, PAPER, False),
        ({"host": "x.org"}, FILE, True),
        ({"host": "ax.org"}, FILE, False),
        ({"host": "org"}, PAPER, False),
        ({"url_prefix": "http://www.x.org/p/"}, FILE, True),
        ({"url_prefix": "http://www.x.org/p/"}, FILE._replace(url="HTTP://www.x.ORG:80/a/../%70/1"), True),
        ({"url_prefix": "http://www.x.org/p/1.pdfs"}, FILE, False),
        ({"url_prefix": "HTTP://www.X.org:80/q/../p"}, FILE, True),
        ({"url_prefix": "http://www.x.org/p/"}, FILE._replace(url="http://www.x.org/p/%2e%2e/1"), False),
        ({"url_prefix": "http://www.x.org/p/"}, FILE._replace(url="http://www.x.org//p///1"), True),
        ({"url_prefix": "http://www.x.org"}, FILE._replace(url="http://www.x.organic/"), False),
        ({"url_prefix": "https://x.org/P/"}, FILE, True),
        ({"url_prefix": "http://x.org/p/"}, FILE._replace(url="http://x.org/p"), True),
        ({"url_prefix": "http://x.org/p/"}, FILE._replace(url="http://x.org/p/?q"), True),
        ({"url_prefix": "http://x.org/p/"}, FILE._replace(url="http://x.org/paper"), False),
        ({"url_prefix": "http://x.org/p"}, FILE._replace(url="http://x.org/paper"), True),
        ({"url_prefix": "http://x.org:8080/p"}, FILE, False),
        ({"url_prefix": "http://x.org:8080"}, FILE._replace(url="http://www.x.org:8080/p"), True),
        ({"url_prefix": "http://x.org/?b=2&a=1"}, FILE._replace(url="http://x.org/?a=12&c&b=2"), True),
        ({"url_prefix": "http://x.org/?b=2&a=1"}, FILE._replace(url="http://x.org/?a=1&c&b=22"), False),
        ({"url_prefix": "http://x.org/?b="}, FILE._replace(url="http://x.org/p?b=2"), False),
        ({"url_prefix": "urn:x-repec:aaa:"}, PAPER._replace(url="URN:X-RePEc:AAA%3awpaper:1"), True),
        ({"host": "X.org."}, FILE._replace(url="http://me:you@www%2ex%2Eorg.:8080/"), True),
        ({"host": "www.x.org"}, FILE._replace(url="http://x.org/"), True),
        ({"host": "www.x.org"}, FILE._replace(url="http://www.www.x.org/"), True),
        ({"host": "www.x.org"}, FILE._replace(url="http://a.x.org/"), False),
        ({"host": "www.org"}, FILE, False),
        ({"host": "[2001:db8::1]"}, FILE._replace(url="http://[2001:db8::1]:8080/"), True),
        ({"host": "[2001:db8::1]"}, FILE._replace(url="http://[2001:db8::1:a]/"), False),
        ({"host": "b\u00fccher.example"}, FILE._replace(url="http://a.XN--Bcher-KVA.example/"), True),
        ({"mime": "application/pdf"}, FILE, True),
        ({"mime": "text/*"}, PAPER, True),
        ({"mime": "text/*"}, FILE, False),
        ({"networks": ("10.0.0.0/8",)}, FILE, True),
        ({"networks": ("192.168.0.0/16",)}, FILE, False),
        ({"until": "2001-01-01"}, FILE, False),
        ({"until": "2999-01-01"}, FILE, True),
        ({"until": "1y"}, FILE, True),
        ({"archive": "aaa", "mime": "text/plain"}, FILE, False),
    ],
)
def test_all_keys_of_a_rule_must_hold(rule: dict[str, object], subject: Subject, matches: bool) -> None:
    rules = Rules((RuleConfig(rights="open", **rule),))  # type: ignore[arg-type]
    for address in ("10.1.2.3", "::ffff:10.1.2.3"):
        decision = rules.decide(subject, address, 1_000_000_000 + 86400)
        assert (decision.level is Level.CONTENT) == matches
        assert decision.rule == int(matches)
    after_two_years = 1_000_000_000 + 2 * 366 * 86400
    if rule == {"until": "1y"}:
        assert rules.decide(subject, "10.1.2.3", after_two_years).rule == 0


HOSTS, PARTS = ["x.org", "a.x.org", "ax.org", "x.orga"], ["a", "b", "c", "c."]
URL = st.tuples(st.sampled_from(HOSTS), st.lists(st.sampled_from(PARTS)))
SPELL: dict[str, list[str]] = {
    "http://": ["http://", "HTTP://", "hTTp://u:p@", " http://", "http://www.", "http://www2.", "metadata://"],
    "x.org": ["x.org", "X.ORG", "x%2eorg", "x.org.", "x.org:80", "\uff58.org", "x\u3002org"],
    "/": ["/", "//", "/./", "/%2E/", "/z/../", "/z/%2e%2e/", "/z/y/%2e./../"],
    "a": ["a", "%61"],
    ".": [".", "%2e"],
    "b": ["b", "%62", "b\n"],
    "c": ["c", "%63"],
}


@given(URL, st.sampled_from(["/a/b", "/a/", "/"]), st.data())
def test_every_spelling_of_a_url_is_judged_like_its_normal_form(
    url: tuple[str, list[str]], prefix: str, data: st.DataObject
) -> None:
    path = "/" + "/".join(url[1])
    parts = ["http://", *url[0].partition("x.org"), *path]
    spelled = "".join(data.draw(st.sampled_from(SPELL.get(part, [part]))) for part in parts)
    rights = data.draw(st.permutations(["open", "closed"]))
    conditions = data.draw(st.permutations([{"host": "x.org"}, {"url_prefix": f"http://x.org{prefix}"}]))
    rules = Rules(tuple(RuleConfig(rights=right, **one) for right, one in zip(rights, conditions, strict=True)))
    is_of_host = f".{url[0]}".endswith(".x.org")
    holds = {"host": is_of_host, "url_prefix": url[0] == "x.org" and f"{path}/".startswith(prefix)}
    first = next((right for right, one in zip(rights, conditions, strict=True) if holds[next(iter(one))]), "closed")
    assert rules.decide(Subject(spelled), "", 0).level is (Level.CONTENT if first == "open" else Level.NOTHING)


@given(
    st.lists(st.sampled_from(["/a", "/", "/..", "/A%2fB", "%2561", "%3F", ".", "?", "&", "b=1", "sid=" + 32 * "a"])),
    st.sampled_from(
        ["http://x.org", "ftp://www.x.org.:80", "https://www3.x.org", "http://a.x.org", "http://x.org:443"]
    ),
    st.sampled_from(["", "/", "/A", "/a/", "/a/b", "/?b", "/a?", "/a/?b=1&", "/?&b=1&a", "?b=1&a=/"]),
    st.sampled_from(["x.org", "www.x.org", "www2.x.org", "a.x.org", "org"]),
    st.data(),
)
def test_urls_with_one_key_are_judged_alike(
    path: list[str], site: str, prefix: str, host: str, data: st.DataObject
) -> None:
    url = f"{site}/{''.join(path)}"
    scheme, rest = data.draw(st.sampled_from(["http", "https"])), uri_of(url).partition("://")[2].removeprefix("www.")
    turned = data.draw(st.sampled_from([str, str.upper, lambda text: quote(text, safe="/?&=:")]))
    other = f"{scheme}://{data.draw(st.sampled_from(['', 'www.', 'www7.']))}{turned(rest)}"
    for one in ({"url_prefix": f"http://www.x.org{prefix}"}, {"host": host}):
        rules = Rules((RuleConfig(rights="withdrawn", **one),))
        first, second = (rules.decide(Subject(each), "", 0) for each in (url, other))
        assert key_of(url) != key_of(other) or first == second
    starts = Rules((RuleConfig(rights="closed", url_prefix=url),))
    assert key_of(url) != key_of(other) or starts.decide(Subject(other), "", 0).rule == 1


def test_a_prefix_whose_session_id_joins_arguments_matches_itself() -> None:
    prefix = f"http://x.org/?ysid={32 * 'a'}&b"  # its key is org,x)/?yb
    rules = Rules((RuleConfig(rights="closed", url_prefix=prefix),))
    assert [rules.decide(Subject(url), "", 0).rule for url in (prefix, f"{prefix}c", "http://x.org/?b")] == [1, 1, 0]


@given(
    st.text(st.characters(exclude_characters="/?#@")),
    st.sampled_from([{"host": "x.org"}, {"url_prefix": "http://x.org/"}]),
)
def test_what_cannot_be_read_gets_the_strictest_of_what_may_hold(text: str, condition: dict[str, str]) -> None:
    for url in (f"http://x.org:{text}z/", f"http:\\\\x.org\\{text}", "httpx:///x.org/", ""):
        for rights in ("closed", "withdrawn", "open"):
            rules = Rules((RuleConfig(rights=rights, **condition), RuleConfig(rights="metadata")))
            decision = rules.decide(Subject(url), "", 0)
            assert decision.level is (Level.METADATA if rights == "open" else Level.NOTHING)
            assert decision.withdrawn == (rights == "withdrawn")


def test_without_a_media_type_or_all_works_the_strictest_counts() -> None:
    rules = Rules((RuleConfig(rights="closed", mime="application/pdf"), RuleConfig(rights="open")))
    levels = [rules.decide(FILE._replace(mime=mime), "", 0).level for mime in ("text/html", "", "warc/revisit")]
    assert levels == [Level.CONTENT, Level.NOTHING, Level.NOTHING]
    rules = Rules((RuleConfig(rights="closed", archive="zzz"), RuleConfig(rights="open")))
    levels = [rules.decide(FILE._replace(has_more=more), "", 0).level for more in (False, True)]
    assert levels == [Level.CONTENT, Level.NOTHING]


@pytest.mark.parametrize(("rights", "status"), [("withdrawn", 451), ("metadata", 403)])
def test_no_other_memento_stands_in_for_one_that_is_refused(tmp_path: Path, rights: str, status: int) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc.gz")
    for stamp, mime in (("20140101000000", "text/html"), ("20150101000000", "application/pdf")):
        crawl.response("http://x.org/", stamp, mime.encode(), headers={"Content-Type": mime})
    write_index(tmp_path / "a.cdxj", crawl.close())
    rules = f"access: {{open: content, rules: [{{mime: application/pdf, rights: {rights}}}]}}"
    step = "{index: a.cdxj, resource: ./w}"
    config = configured(tmp_path, f"collections: {{a: {step}, s: {{sequence: [{step}, {step}]}}}}\n{rules}")
    with serving(config) as url, client(url, "") as get:
        for coll in ("a", "s"):
            for path in (f"/{coll}/20150101000000id_/http://x.org/", f"/{coll}/id_/http://x.org/"):
                assert get.get(path).status_code == status, path
            inexact = get.get(f"/{coll}/20150101000001id_/http://x.org/")
            assert inexact.headers["location"] == f"{url}/{coll}/20150101000000id_/http://x.org/"
        for stamp, is_available in (("20140101", True), ("20150101", False)):
            found = get.get(f"/wayback/available?url=x.org&timestamp={stamp}").json()["archived_snapshots"]["closest"]
            assert (found["timestamp"][:8], found["available"]) == (stamp, is_available)
        assert get.get("/a/20140101000000id_/http://x.org/").text == "text/html"
        assert b"text/html" in get.get("/a/resource?url=x.org&closest=now").content


def test_each_row_of_a_url_is_judged_by_its_own_media_type() -> None:
    viewer = Viewer(None, "", Rules((RuleConfig("closed", mime="application/pdf"), RuleConfig("open"))))
    mimes = ["text/html", "application/pdf", "application/pdf", "text/html", "text/css", "application/pdf"]
    made = [any_row(line("http://x.org/", f"2014010100000{n}", mime=mime), NOWHERE) for n, mime in enumerate(mimes)]
    found = [row.text("mime") for row in viewer.visible(filter(None, made), "http://x.org/")]
    assert found == ["text/html", "text/html", "text/css"]


def test_the_first_rule_that_matches_counts() -> None:
    rules = Rules((RuleConfig(rights="closed", host="x.org"), RuleConfig(rights="open")), "none")
    assert rules.decide(FILE, "", 0).level is Level.NOTHING
    assert rules.decide(PAPER, "", 0).level is Level.CONTENT
    assert rules.by_default("") is Level.CONTENT
    near = Rules((RuleConfig(rights="closed", host="x.org"), RuleConfig(rights="open", networks=("10.0.0.0/8",))))
    assert [near.by_default(address) for address in ("10.1.2.3", "192.0.2.1")] == [Level.CONTENT, Level.NOTHING]
    row = any_row(line("http://x.org/", "20140101000000", mime="a/b"), RowOrigin("a", "a", "file"))
    assert row is not None
    assert subject_of(row)[:3] == ("http://x.org/", "", "a/b")
