"""Requests that try to reach into private networks, by every way a URL can be written."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pytest
from web_hostile import Hostile
from web_support import QUICK, fetch, fetch_one, settings

from archec.ids import normalise_url
from archec.web.guard import Connector, Guard, Resolver
from archec.web.outcome import ConnectError, Outcome
from archec.web.policy import Proxies
from archec.web.tls import Tls
from archec.web.transport import DirectTransport, Transports, transports

CLOSED = settings(allow_networks=(), connect_timeout=2.0)


class Rebinding:
    """A name service that gives the next answer each time it is asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/ok",
        "http://localhost:{port}/ok",
        "http://2130706433:{port}/ok",
        "http://0x7f000001:{port}/ok",
        "http://0177.0.0.1:{port}/ok",
        "http://127.1:{port}/ok",
        "http://0:{port}/ok",
        "http://[::1]:{port}/ok",
        "http://[::ffff:127.0.0.1]:{port}/ok",
        "http://[::ffff:7f00:1]:{port}/ok",
        "http://user:pass@127.0.0.1:{port}/ok",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://0.0.0.0:{port}/ok",
        "https://127.0.0.1:{port}/ok",
        "ftp://127.0.0.1:{port}/ok",
        "ftp://10.0.0.1/x",
    ],
)
@pytest.mark.parametrize("robots", ["obey", "ignore"])
def test_private_addresses_are_refused(hostile: Hostile, tmp_path: Path, url: str, robots: str) -> None:
    config = dataclasses.replace(CLOSED, robots=robots)
    hop = fetch_one(tmp_path, normalise_url(url.format(port=hostile.port)), config)
    assert (hop.kind, hop.outcome, hop.deferred) == ("failed", Outcome.BLOCKED_ADDRESS, False)
    assert "pass" not in hop.message
    assert hostile.connections == 0


def test_a_redirect_to_a_private_address_is_handed_back_and_then_refused(hostile: Hostile, tmp_path: Path) -> None:
    only = settings(allow_networks=("127.0.0.1/32",))
    first = fetch_one(tmp_path, hostile.url(f"/redirect?to=http://127.0.0.2:{hostile.port}/ok"), only)
    assert first.kind == "redirect"
    second = fetch_one(tmp_path, normalise_url(first.location), only)
    assert second.outcome is Outcome.BLOCKED_ADDRESS


def _carriers(resolver: Rebinding, allow: Sequence[str]) -> Transports:
    config = settings(allow_networks=tuple(allow))
    return transports(config, QUICK, 4, resolver)


def test_a_name_that_is_resolved_anew_gets_no_further(hostile: Hostile, tmp_path: Path) -> None:
    resolver = Rebinding(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"])  # the first says whose turn it is
    urls = [f"http://rebind.example:{hostile.port}/closer/{n}" for n in range(2)]
    hops = fetch(tmp_path, urls, settings(per_host=1), carriers=_carriers(resolver, ["127.0.0.1/32"]))
    assert resolver.asked == 3
    assert [hop.kind for hop in hops] == ["body", "failed"]
    assert hops[1].outcome is Outcome.BLOCKED_ADDRESS
    assert {asked.host for asked in hostile.asked} == {"127.0.0.1"}


def test_a_process_does_not_wait_for_a_name_server() -> None:
    program = """
import asyncio, socket, threading
from archec.web.guard import Resolver

async def main():
    known, resolver = socket.getaddrinfo, Resolver(2)
    tasks = [asyncio.ensure_future(resolver.resolve("localhost", 80)) for _ in range(9)]
    assert all("127.0.0.1" in found or "::1" in found for found in await asyncio.gather(*tasks))
    asked = threading.Semaphore(0)
    socket.getaddrinfo = lambda *_, **__: (asked.release(), threading.Event().wait())
    tasks = [asyncio.ensure_future(resolver.resolve(f"{n}.example", 80)) for n in range(9)]
    await asyncio.wait(tasks, timeout=0.2)
    assert asked.acquire() and asked.acquire() and not asked.acquire(blocking=False)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_of_several_addresses_only_public_ones_are_tried(hostile: Hostile, tmp_path: Path) -> None:
    resolver = Rebinding(["10.0.0.1", "127.0.0.2", "127.0.0.1"])
    carriers = _carriers(resolver, ["127.0.0.1/32"])
    hop = fetch_one(tmp_path, f"http://several.example:{hostile.port}/ok", carriers=carriers)
    assert hop.kind == "body"


def test_the_next_address_is_tried_where_one_does_not_answer(hostile: Hostile, tmp_path: Path) -> None:
    resolver = Rebinding(["127.0.0.77", "127.0.0.1"])
    carriers = _carriers(resolver, ["127.0.0.0/8"])
    hop = fetch_one(tmp_path, f"http://several.example:{hostile.port}/ok", carriers=carriers)
    assert hop.kind == "body"


def test_the_address_at_the_other_end_is_looked_at_too(hostile: Hostile, tmp_path: Path) -> None:
    class Fickle(Guard):
        """Lets an address through once: as if the socket had gone elsewhere."""

        seen = 0

        def refusal(self, host: str, address: str, *, exempt: bool = False) -> ConnectError | None:
            self.seen += 1
            return None if self.seen == 1 else super().refusal(host, address)

    config = settings()
    connector = Connector(Fickle(Rebinding(["127.0.0.1"])), Tls())
    web = DirectTransport(connector, Proxies(), 4, QUICK)
    carriers = Transports(web, web)
    hop = fetch_one(tmp_path, f"http://x.example:{hostile.port}/ok", config, carriers=carriers)
    assert hop.outcome is Outcome.BLOCKED_ADDRESS
    assert not hostile.asked


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure"),
        (UnicodeError("label too long"), "not a host name"),
    ],
)
def test_a_name_that_cannot_be_resolved_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hop = fetch_one(tmp_path, "http://nowhere.invalid/x")
    assert hop.outcome is Outcome.UNREACHABLE
    assert hop.message == f"nowhere.invalid cannot be resolved: {message}"


def test_a_host_with_many_ipv6_addresses_is_reached_without_ipv6(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [*(f"fd00::{n}" for n in range(1, 7)), "127.0.0.2", "127.0.0.1"]
    found = [(0, 0, 0, "", (address, hostile.port)) for address in addresses]
    resolver = Resolver(1)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        order = asyncio.run(resolver.resolve("many.example", hostile.port))
        assert list(order[:5]) == ["fd00::1", "127.0.0.2", "fd00::2", "127.0.0.1", "fd00::3"]
        assert sorted(order) == sorted(addresses)
    config = settings(allow_networks=("127.0.0.0/8", "fd00::/8"), retries=0)
    carriers = transports(config, QUICK, 4, Rebinding(order))
    hop = fetch_one(tmp_path, f"http://many.example:{hostile.port}/ok", config, carriers=carriers)
    assert hop.kind == "body"


def test_a_name_service_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20))
    started = monotonic()
    hop = fetch_one(tmp_path, "http://slow.invalid/x", settings(connect_timeout=0.2, retries=0))
    over.set()
    assert hop.outcome is Outcome.TIMEOUT
    assert monotonic() - started < 5


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "xn--a.example", "a_b.invalid", "-.invalid"])
def test_odd_host_names_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
    hop = fetch_one(tmp_path, f"http://{host}/x", settings(retries=0))
    assert hop.outcome in (Outcome.UNREACHABLE, Outcome.BAD_URL)
