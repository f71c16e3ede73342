"""OAI-PMH over real HTTP: methods, codings, limits, load, real harvesters."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from oai_http import Running, served
from oai_support import DOMAIN, World, checked, code, paper, query, texts
from servers import LOCAL

from archec.catalogue.sqlite import SQLiteCatalogue
from archec.errors import CatalogueError, StorageFailed
from archec.oai import router as router_module
from archec.oai.request import VERBS

BAD = "verb=ListRecords&metadataPrefix=oai_dc&set="


@pytest.fixture
def site(small: World) -> Iterator[Running]:
    small.use(dataclasses.replace(small.config.oai, numOfRecords=4))
    with served(small) as made:
        yield made


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers={"Accept-Encoding": "identity", **headers}, trust_env=False)


# -- methods and codings --------------------------------------------------------------------------


def test_get_and_post_are_the_same(site: Running) -> None:
    given_ = query("ListRecords", metadataPrefix="oai_dc", set="archive:aaa")
    by_get = get(f"{site.oai}?{given_}")
    by_post = httpx.post(
        site.oai, content=given_, headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    )
    assert by_get.status_code == by_post.status_code == 200
    assert by_get.headers["content-type"] == "text/xml; charset=utf-8"
    assert by_get.text == by_post.text
    assert texts(checked(by_get.content), "o:request") == [site.oai]


def test_arguments_of_a_post_and_its_address_are_one_list(site: Running) -> None:
    answer = httpx.post(f"{site.oai}?verb=Identify", data={"verb": "Identify"})
    assert code(checked(answer.content)) == "badVerb"


def test_errors_have_status_200(site: Running) -> None:
    for wrong in (
        "",
        "verb=x",
        BAD,
        "verb=GetRecord&identifier=x:y&metadataPrefix=oai_dc",
        "verb=%ff%00",
        "verb=Identify&%0b=1",
    ):
        answer = get(f"{site.oai}?{wrong}")
        assert answer.status_code == 200
        assert code(checked(answer.content))


def test_other_methods_and_types(site: Running) -> None:
    assert httpx.put(site.oai).status_code == 405
    assert httpx.post(site.oai, json={}).status_code == 415
    head = httpx.head(f"{site.oai}?verb=Identify", headers={"Accept-Encoding": "identity"})
    assert head.status_code == 200
    assert not head.content
    assert head.headers["content-length"] == str(len(get(f"{site.oai}?verb=Identify").content))
    assert get(f"{site.url}/oai/").status_code == get(f"{site.url}/nothing").status_code == 404


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("", ""), ("identity", ""), ("br", ""), ("gzip", "gzip"), ("deflate", "deflate"), ("zstd", "zstd"),
        ("gzip, deflate", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("gzip;q=0", ""), ("gzip;q=0, *", ""),
        ("*", "gzip"), ("gzip;q=0.5, deflate;q=0.9", "deflate"), ("x-gzip", "gzip"), ("gzip;q=junk", ""),
        ("identity, gzip;q=0.5", ""),
    ],
)  # fmt: skip
def test_codings_only_when_asked_for(site: Running, accept: str, coding: str) -> None:
    with httpx.stream(
        "GET", f"{site.oai}?{query('ListRecords', metadataPrefix='oai_dc')}", headers={"Accept-Encoding": accept}
    ) as answer:
        body = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding", "") == coding
    assert answer.headers["vary"] == "Accept-Encoding"
    plain: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        "gzip": lambda data: zlib.decompress(data, 31),
        "deflate": zlib.decompress,
        "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
    }
    checked(plain[coding](body))


def test_identify_names_the_codings(site: Running) -> None:
    assert texts(checked(get(f"{site.oai}?verb=Identify").content), ".//o:compression") == ["gzip", "deflate", "zstd"]


def test_style_sheet_and_schema(site: Running) -> None:
    answer = get(f"{site.oai}?verb=Identify")
    assert b'href="oai/style.xsl"' in answer.content
    style, schema = get(f"{site.oai}/style.xsl"), get(f"{site.oai}/redif.xsd")
    assert style.headers["content-type"].startswith("text/xsl")
    assert schema.status_code == 200
    assert b'targetNamespace="urn:archec:redif:1"' in schema.content
    for answer in (style, schema):
        again = get(str(answer.url), **{"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert get(str(answer.url), **{"If-None-Match": '"other"'}).content == answer.content


def test_the_base_url_is_the_address_that_was_asked(small: World) -> None:
    with served(small) as site:
        answer = get(f"{site.oai}?verb=Identify", Host='evil.example.org"><x>')
        assert answer.status_code in (200, 400)
        if answer.status_code == 200:
            checked(answer.content)
        assert texts(checked(get(f"{site.oai}?verb=Identify", Host="oai.example.org").content), ".//o:baseURL") == [
            "http://oai.example.org/oai"
        ]


# -- limits ---------------------------------------------------------------------------------------


def test_large_bodies_are_refused(site: Running) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = httpx.post(site.oai, content=b"verb=Identify&a=" + b"x" * 100_000, headers=form)
    assert answer.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(10_000):
            yield b"x" * 65536

    # The connection may be cut before all was sent.
    with contextlib.suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        assert httpx.post(site.oai, content=endless(), headers=form).status_code == 413


def test_bodies_that_do_not_come(small: World) -> None:
    with (
        served(small, dataclasses.replace(LOCAL, idle_timeout=0.3)) as site,
        socket.create_connection(("127.0.0.1", site.port)) as client,
    ):
        client.sendall(b"POST /oai HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nverb=")
        client.settimeout(10)
        assert b" 408 " in client.recv(1000)


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """List requests wait until the event is set."""
    gate = threading.Event()
    real = router_module.answer

    def slow(repository: Any, pairs: Any, *rest: Any) -> Any:
        if ("verb", "ListRecords") in pairs:
            assert gate.wait(20)
        return real(repository, pairs, *rest)

    monkeypatch.setattr(router_module, "answer", slow)
    try:
        yield gate
    finally:
        gate.set()


def test_too_many_lists_at_once(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    small.use(dataclasses.replace(small.config.oai, max_lists=6, retry_after=2.4))
    url = query("ListRecords", metadataPrefix="oai_dc")
    with served(small) as site, held_up(monkeypatch) as gate:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(get(f"{site.oai}?{url}").status_code)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        while "archec_oai_lists_active 6" not in get(f"{site.url}/metrics").text:
            time.sleep(0.01)
        refused = get(f"{site.oai}?{url}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert httpx.post(site.oai, data={"verb": "ListSets"}).status_code == 503
        # These stay free.
        assert get(f"{site.oai}?verb=Identify").status_code == 200
        record = query("GetRecord", metadataPrefix="oai_dc", identifier=f"oai:{DOMAIN}:RePEc:aaa:wpaper:1")
        assert texts(checked(get(f"{site.oai}?{record}").content), ".//dc:title") == ["Paper 1"]
        gate.set()
        for thread in threads:
            thread.join()
        assert answers == [200] * 6
        assert get(f"{site.oai}?{url}").status_code == 200
        assert "archec_oai_lists_refused_total 2" in get(f"{site.url}/metrics").text


def test_a_client_that_takes_nothing_in_gives_its_place_back(world: World) -> None:
    world.show(*(paper(f"RePEc:aaa:s:{n}", 0, title="x" * 40_000) for n in range(100)))
    world.use(dataclasses.replace(world.config.oai, max_lists=1, max_page=10_000_000))
    wire = f"GET /oai?{query('ListRecords', metadataPrefix='oai_dc')} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with served(world, dataclasses.replace(LOCAL, send_timeout=0.5)) as site:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", site.port))
            client.sendall(wire)
            while "archec_oai_lists_active 1" not in get(f"{site.url}/metrics").text:
                time.sleep(0.01)
            assert get(f"{site.oai}?{query('ListSets')}").status_code == 503
            until = time.monotonic() + 20
            while "archec_oai_lists_active 0" not in get(f"{site.url}/metrics").text:
                assert time.monotonic() < until
                time.sleep(0.05)
        assert get(f"{site.oai}?{query('ListSets')}").status_code == 200


def test_lists_wait_for_the_first_index(world: World) -> None:
    world.write(*(paper(f"RePEc:aaa:s:{n}", 0) for n in range(5)))
    gate = threading.Event()
    real = world.follower.steps

    def slow() -> Any:
        gate.wait(20)
        yield from real()

    world.follower.steps = slow  # type: ignore[method-assign]
    with served(world, poll=0.05) as site:
        try:
            early = get(f"{site.oai}?{query('ListRecords', metadataPrefix='oai_dc')}")
            assert (early.status_code, early.headers["retry-after"]) == (503, "10")
            item = query("GetRecord", metadataPrefix="oai_dc", identifier="oai:archive.example.org:RePEc:aaa:s:1")
            assert get(f"{site.oai}?{item}").status_code == 503
            assert get(f"{site.oai}?verb=Identify").status_code == 200
            assert get(f"{site.url}/healthz").status_code == 503
        finally:
            gate.set()
        until = time.monotonic() + 20
        while get(f"{site.url}/healthz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert (
            len(
                texts(
                    checked(get(f"{site.oai}?{query('ListIdentifiers', metadataPrefix='oai_dc')}").content),
                    ".//o:header",
                )
            )
            == 5
        )


def test_a_fault_of_the_index_is_logged_and_not_shown(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Any:
        raise StorageFailed("/secret/place: Input/output error")

    world.follower.steps = failing  # type: ignore[method-assign]
    with served(world, poll=0.05) as site:
        until = time.monotonic() + 20
        while "cannot follow" not in (shown := get(f"{site.url}/healthz").text):
            assert time.monotonic() < until
            time.sleep(0.01)
    assert "secret" not in shown
    assert "/secret/place: Input/output error" in caplog.text


def test_a_catalogue_that_is_gone_is_503_and_tells_no_secrets(small: World) -> None:
    with served(small, poll=60) as site:
        small.catalogue.clear()
        answer = get(
            f"{site.oai}?{query('GetRecord', metadataPrefix='oai_dc', identifier=f'oai:{DOMAIN}:RePEc:aaa:wpaper:1')}"
        )
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
        assert "catalogue" not in answer.text


def test_a_damaged_catalogue_is_503_and_its_file_in_the_log(small: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever harvests comes back when it is rebuilt."""
    small.catalogue.close()
    path = small.folder / "c.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((page,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries'")
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    small.catalogue = SQLiteCatalogue("sqlite:///c", path)
    small.use(small.config.oai)
    with served(small, poll=60) as site:
        answer = get(f"{site.oai}?{query('ListRecords', metadataPrefix='oai_dc')}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert "catalogue" not in answer.text
    assert f"{path}: " in caplog.text


def test_requests_that_fail_show_in_the_health_until_one_succeeds(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> Any:
        raise CatalogueError("/secret/c.sqlite: is damaged")

    with served(small, poll=60) as site:
        records = f"{site.oai}?{query('ListRecords', metadataPrefix='oai_dc')}"
        monkeypatch.setattr(small.catalogue, "obis", failing)
        assert get(records).status_code == 503
        assert get(f"{site.oai}?verb=Identify").status_code == 200
        health = get(f"{site.url}/healthz")
        monkeypatch.undo()
        assert get(records).status_code == 200
        assert get(f"{site.url}/healthz").json()["faults"] == {}
    assert (health.status_code, health.json()["faults"]) == (503, {"oai": "ListRecords failed: see the log"})


# -- any request ----------------------------------------------------------------------------------

_names = st.sampled_from(["verb", "identifier", "metadataPrefix", "from", "until", "set", "resumptionToken", "junk"])
_verbs = st.sampled_from(sorted(VERBS))
_values = st.one_of(
    _verbs,
    st.sampled_from(
        (
            "oai_dc",
            "redif",
            "amf",
            "archive:aaa",
            "type",
            "2023-11-14",
            "2023-11-14T22:13:20Z",
            "2999-01-01",
            f"oai:{DOMAIN}:RePEc:aaa:wpaper:1",
            f"oai:{DOMAIN}:RePEc:aaa:wpaper:3",
        )
    ),
    st.text(max_size=30),
    st.text("!*'();:@&=+$,/?%#[]\"<>\\^`{|} oai.:-_~\x00\x0b\ufffe\U0001f4dc", max_size=20),
)


@settings(max_examples=400)
@given(pairs=st.lists(st.tuples(_names | st.text(max_size=5), _values), max_size=6))
def test_any_arguments_give_a_valid_answer(small: World, pairs: list[tuple[str, str]]) -> None:
    checked(small.raw([(name, value) for name, value in pairs]))


@settings(max_examples=300)
@given(verb=_verbs,
       arguments=st.dictionaries(_names.filter(lambda name: name != "verb"), _values, max_size=3))  # fmt: skip
def test_nearly_right_arguments_give_a_valid_answer(small: World, verb: str, arguments: dict[str, str]) -> None:
    checked(small.raw([("verb", verb), *arguments.items()]))


def test_any_bytes_give_a_valid_answer(site: Running) -> None:
    @settings(max_examples=100)
    @given(st.binary(max_size=60), st.booleans())
    def probe(data: bytes, prefixed: bool) -> None:
        raw = (b"verb=GetRecord&metadataPrefix=oai_dc&identifier=" if prefixed else b"") + data
        posted = client.post(site.oai, content=raw, headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert posted.status_code == 200
        checked(posted.content)

    with httpx.Client(trust_env=False) as client:
        probe()


def test_the_access_log_has_a_line_for_each_request(small: World, caplog: pytest.LogCaptureFixture) -> None:
    import logging

    from archec.server.observe import ACCESS_LOG

    ACCESS_LOG.setLevel(logging.INFO)
    ACCESS_LOG.propagate = True
    try:
        with caplog.at_level(logging.INFO, ACCESS_LOG.name), served(small) as site:
            get(f"{site.oai}?verb=Identify", **{"User-Agent": 'a "tester"'})
    finally:
        ACCESS_LOG.propagate = False
    (line,) = {record.message for record in caplog.records if record.name == ACCESS_LOG.name}
    assert re.fullmatch(
        r'127\.0\.0\.1 - - \[.+ \+0000\] "GET /oai\?verb=Identify HTTP/1\.1" 200 [0-9]+ "-"'
        r' "a \\x22tester\\x22" [0-9.]+',
        line,
    )
