"""HTTP/2 where the operator wants it: many requests on one connection, and what bad servers come to."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from fetch_h2server import H2Server, h2_server
from fetch_hostile import Hostile, body_of
from fetch_proxyserver import ProxyServer
from fetch_support import QUICK, collect_all, fetch, leftovers, settings

from archec.config import FetchConfig
from archec.errors import ConfigError
from archec.fetch.connect import Connector
from archec.fetch.fetcher import Transports
from archec.fetch.guard import Guard
from archec.fetch.outcome import Outcome
from archec.fetch.pool import FetchPool
from archec.fetch.proxy import Proxies
from archec.fetch.resolve import SystemResolver
from archec.fetch.sink import FolderSink
from archec.fetch.task import Hop, Task
from archec.fetch.transport import DirectTransport


@pytest.fixture
def server(tmp_path: Path) -> Iterator[H2Server]:
    with h2_server(tmp_path) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def carriers(server: H2Server, config: FetchConfig) -> Transports:
    """Transports that trust the server and offer it HTTP/2."""
    connector = Connector(Guard(config.allow_networks), SystemResolver(2, 60.0), QUICK, trust=server.trust)
    web = DirectTransport(connector, Proxies(config.proxy), 64, 5.0, http2=True)
    return Transports(web, web, whole_urls=False)


def get(
    server: H2Server, folder: Path, paths: Sequence[str | Task], config: FetchConfig | None = None, fast: bool = False
) -> list[Hop]:
    """The hops of paths on the server, over HTTP/2."""
    config = config or settings()
    tasks = [path._replace(url=server.url(path.url)) if isinstance(path, Task) else server.url(path) for path in paths]
    return fetch(folder, tasks, config, carriers=carriers(server, config), fast=fast)


def test_many_requests_share_a_connection(server: H2Server, folder: Path) -> None:
    paths = [f"/ok/{n}?wait=0.05" for n in range(60)]
    hops = get(server, folder, paths, settings(per_host=16))
    assert [Path(hop.temp).read_bytes() for hop in hops] == [body_of(path) for path in paths]
    assert {(hop.status, hop.content_type, hop.address) for hop in hops} == {(200, "application/pdf", "127.0.0.1")}
    assert hops[0].header("content-length") == str(hops[0].size)
    assert (server.connections, server.versions) == (1, {"HTTP/2": 60})
    assert 8 < server.at_once <= 16


def test_a_request_as_the_server_sees_it(server: H2Server, folder: Path) -> None:
    get(server, folder, [Task("/ok/%C3%A9?q=%20'&r", etag='"x"\r\nX-Evil: 1')])
    (asked,) = server.headers
    assert asked == {
        ":method": "GET", ":scheme": "https", ":authority": f"127.0.0.1:{server.port}", ":path": "/ok/%C3%A9?q=%20'&r",
        "user-agent": "archec/0.1 (test; ops@example.org)", "accept": "*/*", "accept-encoding": "identity",
        "if-none-match": '"x"  X-Evil: 1',
    }  # fmt: skip


CASES = [
    ("/big", "body", None),
    ("/empty", "body", None),
    ("/padded", "body", None),
    ("/trailers", "body", None),
    ("/interim", "body", None),
    ("/sloppy", "body", None),
    ("/goodbye", "body", None),
    ("/not-looked-at", "body", None),
    ("/refused-once", "body", None),
    ("/older", "body", None),
    ("/not-modified", "failed", Outcome.TRUNCATED),
    ("/redirect", "redirect", None),
    ("/status/204", "body", None),
    ("/status/404", "failed", Outcome.GONE),
    ("/status/500", "failed", Outcome.SERVER_ERROR),
    ("/refused", "failed", Outcome.UNREACHABLE),
    ("/reset-head", "failed", Outcome.UNREACHABLE),
    ("/hang-up", "failed", Outcome.UNREACHABLE),
    ("/reset-body", "failed", Outcome.TRUNCATED),
    ("/hang-up-body", "failed", Outcome.TRUNCATED),
    ("/short", "failed", Outcome.TRUNCATED),
    ("/long", "failed", Outcome.TRUNCATED),
    ("/never", "failed", Outcome.TIMEOUT),
    ("/silent-body", "failed", Outcome.TIMEOUT),
    ("/drip", "failed", Outcome.TIMEOUT),
    ("/huge", "failed", Outcome.TOO_LARGE),
    ("/headers-many", "failed", Outcome.SERVER_ERROR),
    ("/headers-large", "failed", Outcome.SERVER_ERROR),
    ("/headers-endless", "failed", Outcome.SERVER_ERROR),
    ("/pings", "failed", Outcome.SERVER_ERROR),
    ("/settings-flood", "failed", Outcome.SERVER_ERROR),
    ("/empty-frames", "failed", Outcome.SERVER_ERROR),
    ("/crumbs", "failed", Outcome.SERVER_ERROR),
    ("/pings-and-crumbs", "failed", Outcome.SERVER_ERROR),
    ("/lines", "body", None),
    ("/unknown-frames", "failed", Outcome.SERVER_ERROR),
    ("/push", "failed", Outcome.SERVER_ERROR),
    ("/garbage", "failed", Outcome.SERVER_ERROR),
    ("/large-frame", "failed", Outcome.SERVER_ERROR),
    ("/bad-goaway", "failed", Outcome.SERVER_ERROR),
    ("/bad-compression", "failed", Outcome.SERVER_ERROR),
    ("/no-status", "failed", Outcome.SERVER_ERROR),
    ("/strange-status", "failed", Outcome.SERVER_ERROR),
    ("/switch", "failed", Outcome.SERVER_ERROR),
]


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_each_behaviour_alone_ends_as_it_should(server: H2Server, folder: Path, fast: bool) -> None:
    """Each on the connection of the one before it, where that was kept."""
    if fast:
        pytest.importorskip("uvloop")
    config = settings(per_host=1, host_failures=10_000, retries=0, idle_timeout=1.0)
    hops = [get(server, folder, ["/ok", path, "/ok/again"], config, fast) for path, _, _ in CASES]
    assert [(case[0], hop.kind, hop.outcome) for case, (_, hop, _) in zip(CASES, hops, strict=True)] == CASES
    assert {(before.kind, after.kind) for before, _, after in hops} == {("body", "body")}
    assert all(bool(hop.message) == (hop.kind == "failed") for _, hop, _ in hops)
    assert not leftovers(folder, [hop for three in hops for hop in three]) - {""}


def test_bad_answers_do_not_spoil_good_ones(server: H2Server, folder: Path) -> None:
    floods = {"/huge", "/settings-flood", "/empty-frames", "/unknown-frames"}  # too much for two threads
    bad = [path for path, kind, _ in CASES if kind == "failed" and path not in {"/not-modified", *floods}]
    good = [f"/ok/{n}?wait=0.02" for n in range(3 * len(bad))]
    mixed = [path for n, one in enumerate(bad) for path in (*good[3 * n : 3 * n + 3], one)]
    config = settings(concurrency=16, per_host=16, host_failures=10_000, retries=1, idle_timeout=1.0)
    hops = get(server, folder, mixed, config)
    assert {hop.url: hop.message for hop in hops if "/ok" in hop.url and hop.kind != "body"} == {}
    assert {hop.kind for hop in hops if "/ok" not in hop.url} == {"failed"}


def test_a_kept_connection_that_was_closed_is_replaced(server: H2Server, folder: Path) -> None:
    config = settings(per_host=1, retries=0)
    hops = get(server, folder, ["/ok/1", "/goodbye", "/ok/2", "/not-looked-at", "/ok/3"], config)
    assert [hop.kind for hop in hops] == ["body"] * 5
    assert hops[1].size == 300, "what was under way when the server said goodbye came whole"
    assert server.connections == 3


def test_a_server_that_takes_so_many_requests_and_no_more(tmp_path: Path, folder: Path) -> None:
    with h2_server(tmp_path, last=10) as server:
        hops = get(server, folder, [f"/ok/{n}?wait=0.01" for n in range(60)], settings(per_host=8, retries=0))
        assert {hop.kind for hop in hops} == {"body"}
        assert set(server.counts.values()) == {1}
        assert 6 <= server.connections <= 12


def test_what_was_given_up_is_told_to_the_server(server: H2Server, folder: Path) -> None:
    hops = get(server, folder, ["/ok/?wait=0.5", "/huge"], settings(per_host=2, retries=0))
    assert [hop.outcome for hop in hops] == [None, Outcome.TOO_LARGE]
    assert [code for _, code in server.reset] == [8]
    assert server.connections == 1


def test_a_server_that_does_not_stop_is_left(server: H2Server, folder: Path) -> None:
    """It sends more than it may, or more than is wanted, whichever is seen first."""
    hops = get(server, folder, ["/ok", "/deaf", "/ok/2"], settings(per_host=1, retries=0))
    assert hops[1].outcome in (Outcome.SERVER_ERROR, Outcome.TOO_LARGE)
    assert [hop.kind for hop in hops] == ["body", "failed", "body"]
    assert server.connections > 1


@pytest.mark.parametrize("most", [1, 3])
def test_a_server_that_takes_few_requests_at_once(tmp_path: Path, folder: Path, most: int) -> None:
    with h2_server(tmp_path, most=most) as server:
        hops = get(server, folder, [f"/ok/{n}?wait=0.01" for n in range(30)], settings(per_host=6, retries=0))
        assert {hop.kind for hop in hops} == {"body"}
        assert server.at_once <= most
        assert server.connections <= 8


def test_a_server_without_http2_gets_what_it_speaks(tmp_path: Path, folder: Path) -> None:
    with h2_server(tmp_path, protocols=("http/1.1",)) as server:
        hops = get(server, folder, [f"/ok/{n}" for n in range(20)], settings(per_host=3))
        assert [Path(hop.temp).read_bytes() for hop in hops] == [body_of(f"/ok/{n}") for n in range(20)]
        assert server.versions == {"HTTP/1.1": 20}
        assert server.connections <= 4


def test_a_server_that_wants_one_file_over_the_older_version(server: H2Server, folder: Path) -> None:
    hops = get(server, folder, ["/older/1", "/ok/1", "/ok/2"], settings(per_host=1, retries=0))
    assert [hop.kind for hop in hops] == ["body"] * 3
    assert server.versions == {"HTTP/2": 1, "HTTP/1.1": 3}


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
def test_through_a_tunnel(tmp_path: Path, folder: Path, protocol: str, fast: bool) -> None:
    if fast:
        pytest.importorskip("uvloop")
    proxy = ProxyServer()
    try:
        with h2_server(tmp_path, protocols=(protocol,)) as server:
            config = settings(per_host=4, proxy=f"http://127.0.0.1:{proxy.port}")
            hops = get(server, folder, [f"/ok/{n}" for n in range(20)], config, fast)
            versions = dict(server.versions)
    finally:
        proxy.close()
    assert {(hop.kind, hop.address) for hop in hops} == {("body", "127.0.0.1")}
    assert versions == {"HTTP/2" if protocol == "h2" else "HTTP/1.1": 20}
    assert proxy.seen[0] == f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
    assert protocol != "h2" or len(proxy.seen) == 1


def test_what_the_guard_and_the_certificate_forbid_stays_forbidden(server: H2Server, folder: Path) -> None:
    (blocked,) = get(server, folder, ["/ok"], settings(allow_networks=()))
    assert blocked.outcome is Outcome.BLOCKED_ADDRESS
    config = settings()
    stranger = Transports(web := DirectTransport(
        Connector(Guard(config.allow_networks), SystemResolver(2, 60.0), QUICK), Proxies(), 8, 5.0, http2=True
    ), web)  # fmt: skip
    hops = fetch(folder, [server.url("/1"), server.url("/2")], settings(per_host=2), carriers=stranger)
    assert [hop.outcome for hop in hops] == [Outcome.UNREACHABLE] * 2
    assert "certificate" in hops[0].message
    assert not server.counts


def test_plain_http_is_as_ever(hostile: Hostile, server: H2Server, folder: Path) -> None:
    config = settings()
    hops = fetch(folder, [hostile.url("/ok/1"), hostile.url("/ok/2")], config, carriers=carriers(server, config))
    assert [hop.kind for hop in hops] == ["body", "body"]


def test_a_worker_process_speaks_it(server: H2Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.cert))
    config = settings(http2=True, per_host=10, robots="obey")
    with FetchPool(config, "archec/0.1 (test)", FolderSink(folder), QUICK) as pool:
        pool.submit([Task(server.url(f"/ok/{n}?wait=0.01")) for n in range(100)])
        hops = collect_all(pool)
    assert Counter(hop.kind for hop in hops) == {"body": 100}
    assert server.counts["/robots.txt"] == 1
    assert (server.connections, server.versions) == (1, {"HTTP/2": 101})
    assert 5 < server.at_once <= 10


def test_it_is_off_unless_asked_for(server: H2Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.cert))
    assert fetch(folder, [server.url("/ok")], settings())[0].kind == "body"
    assert server.versions == {"HTTP/1.1": 1}


def test_without_the_library_it_is_an_operators_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)
    FetchPool(settings(), "x", FolderSink(folder))
    with pytest.raises(ConfigError, match=r"fetch\.http2") as caught:
        FetchPool(settings(http2=True), "x", FolderSink(folder))
    assert "archec[http2]" in caught.value.hint


def test_a_length_that_is_wrong_harms_nobody_else(server: H2Server, folder: Path) -> None:
    paths: list[str | Task] = ["/ok/1?wait=0.1", "/short", "/long", Task("/not-modified", etag='"x"'), "/ok/2?wait=0.1"]
    hops = get(server, folder, paths, settings(per_host=5, retries=0))
    assert [hop.outcome for hop in hops] == [
        None, Outcome.TRUNCATED, Outcome.TRUNCATED, Outcome.NOT_MODIFIED, None,
    ]  # fmt: skip
    assert "50 of 100 bytes" in hops[1].message
    assert server.connections == 1


@pytest.mark.parametrize(("protocol", "version"), [("h2", b"HTTP/2"), ("http/1.1", b"HTTP/1.1")])
def test_the_answer_says_which_version_it_came_over(tmp_path: Path, protocol: str, version: bytes) -> None:
    async def ask(server: H2Server) -> None:
        web = carriers(server, settings()).web
        try:
            async with httpx.AsyncClient(transport=web) as client:
                answer = await client.get(server.url("/ok"))
        finally:
            await web.aclose()
            await asyncio.sleep(0)
        assert answer.extensions["http_version"] == version
        assert answer.content == body_of("/ok")
        assert answer.extensions["address"] == "127.0.0.1"

    with h2_server(tmp_path, protocols=(protocol,)) as server:
        asyncio.run(ask(server))
