"""ftp URLs against a small real server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from web_ftpserver import FtpServer
from web_support import QUICK, fetch, fetch_one, leftovers, settings

from archec.web.outcome import FetchTask, Outcome
from archec.web.transport import transports

BODY = b"paper\n" * 100_000


@pytest.fixture
def server() -> Iterator[FtpServer]:
    files = {"pub/a b.pdf": BODY, "broken": BODY, "cut": BODY, "silent": b"x", "caf\xc3\xa9": b"x", "empty": b""}
    files["locked"] = b"x"
    server = FtpServer(files)
    try:
        yield server
    finally:
        server.close()


def test_a_file_is_fetched_with_its_date(server: FtpServer, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, server.url("pub/a%20b.pdf"))
    assert (hop.kind, hop.status, hop.size) == ("body", 200, len(BODY))
    assert Path(hop.temp).read_bytes() == BODY
    assert hop.header("last-modified") == "Sat, 02 May 2009 10:00:00 GMT"
    known = FetchTask(server.url("pub/a%20b.pdf"), hop.header("etag"), hop.header("last-modified"))
    again = fetch_one(tmp_path, known)
    assert (again.kind, again.outcome) == ("not-modified", Outcome.NOT_MODIFIED)
    other = fetch_one(tmp_path, known._replace(etag=hop.header("etag").replace(f'"{len(BODY)}', '"1')))
    assert other.kind == "body", "of the same date, but of another size"
    dated = fetch_one(tmp_path, known._replace(etag=""))
    assert dated.kind == "body", "a date alone does not tell"
    assert "USER anonymous" in server.heard
    assert "PASS archec@" in server.heard


def test_the_data_connection_goes_to_the_same_host_whatever_the_server_says(server: FtpServer, tmp_path: Path) -> None:
    server.passive_address = "10,0,0,1"
    assert fetch_one(tmp_path, server.url("pub/a%20b.pdf")).kind == "body"


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("missing", Outcome.GONE),
        ("denied", Outcome.FORBIDDEN),
        ("verweigert", Outcome.FORBIDDEN),
        ("refuse", Outcome.FORBIDDEN),
        ("locked", Outcome.FORBIDDEN),
        ("pub", Outcome.FORBIDDEN),
        ("odd", Outcome.FORBIDDEN),
        ("busy", Outcome.SERVER_ERROR),
        ("broken", Outcome.TRUNCATED),
        ("cut", Outcome.TRUNCATED),
        ("silent", Outcome.TIMEOUT),
        ("endless", Outcome.TOO_LARGE),
        ("", Outcome.BAD_URL),
        ("pub/", Outcome.BAD_URL),
        ("a%0D%0ADELE%20b", Outcome.BAD_URL),
        ("a%00b", Outcome.BAD_URL),
    ],
)
def test_replies_become_outcomes(server: FtpServer, tmp_path: Path, path: str, outcome: Outcome) -> None:
    hop = fetch_one(tmp_path, server.url(path), settings(retries=0))
    assert (hop.kind, hop.outcome) == ("failed", outcome)
    assert hop.message
    assert not any(line.startswith("DELE") for line in server.heard)
    assert not leftovers(tmp_path, [hop]) - {""}


def test_names_are_bytes_and_an_empty_file_is_a_file(server: FtpServer, tmp_path: Path) -> None:
    hops = fetch(tmp_path, [server.url("caf%C3%A9"), server.url("empty"), server.url("caf%C3%A9;type=i")])
    assert [(hop.kind, hop.size) for hop in hops] == [("body", 1), ("body", 0), ("body", 1)]


@pytest.mark.parametrize(
    ("welcome", "login", "outcome"),
    [
        ("220 ready", "530 no", Outcome.FORBIDDEN),
        ("421 too many users", "230 in", Outcome.SERVER_ERROR),
        ("550 too many users", "230 in", Outcome.SERVER_ERROR),
        ("220 ready", "550 too many users", Outcome.SERVER_ERROR),
        ("nonsense", "230 in", Outcome.SERVER_ERROR),
        ("silence", "230 in", Outcome.TIMEOUT),
        ("chatter", "230 in", Outcome.SERVER_ERROR),
    ],
)
def test_servers_that_let_nobody_in(
    server: FtpServer, tmp_path: Path, welcome: str, login: str, outcome: Outcome
) -> None:
    server.welcome, server.login = welcome, login
    hop = fetch_one(tmp_path, server.url("empty"), settings(retries=0))
    assert hop.outcome is outcome


def test_breaking_off_does_not_wait_for_the_server(server: FtpServer, tmp_path: Path) -> None:
    started = monotonic()
    config = settings(retries=0, total_timeout=0.3, idle_timeout=30.0)
    hop = fetch_one(tmp_path, server.url("silent"), config)
    assert hop.outcome is Outcome.TIMEOUT
    assert monotonic() - started < 3


def test_nobody_listens(tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, "ftp://127.0.0.1:1/x", settings(retries=0))
    assert hop.outcome is Outcome.UNREACHABLE


def test_every_address_of_a_server_is_tried(server: FtpServer, tmp_path: Path) -> None:
    class Names:
        async def resolve(self, host: str, port: int) -> list[str]:
            return ["127.0.0.77", "::1", "127.0.0.1"]

    config = settings(allow_networks=("127.0.0.0/8", "::1/128"), retries=0)
    carriers = transports(config, QUICK, 4, Names())
    hop = fetch_one(tmp_path, f"ftp://several.example:{server.port}/pub/a%20b.pdf", config, carriers=carriers)
    assert hop.kind == "body"


def test_ipv6(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    server = FtpServer({"pub/x": BODY}, "::1")
    try:
        hop = fetch_one(tmp_path, f"ftp://[::1]:{server.port}/pub/x", settings(allow_networks=("::1/128",)))
    finally:
        server.close()
    assert (hop.kind, hop.size) == ("body", len(BODY))
    assert any(command.startswith("EPSV") for command in server.heard)
