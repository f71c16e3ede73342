"""Politeness over real sockets: delays, limits, Retry-After, hosts that are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from time import time
from urllib.parse import quote

import pytest
from web_hostile import Hostile
from web_support import QUICK, fetch, fetch_one, leftovers, settings

from archec.config import FetchConfig
from archec.web.outcome import FetchTask, Hop, Outcome
from archec.web.pool import FetchPool
from archec.web.transport import transports


def test_no_host_is_asked_by_more_than_its_share_at_a_time(hostile: Hostile, tmp_path: Path) -> None:
    fetch(tmp_path, [hostile.url(f"/ok/{n}?wait=0.02") for n in range(12)], settings(per_host=3))
    assert hostile.most_open == 3


def test_starts_keep_their_distance(hostile: Hostile, tmp_path: Path) -> None:
    fetch(tmp_path, [hostile.url(f"/ok/{n}", host) for n in range(4) for host in (1, 2)], settings(delay=0.1))
    for host in ("127.0.0.1", "127.0.0.2"):
        times = [asked.when for asked in hostile.asked if asked.host == host]
        assert len(times) == 4
        assert times[-1] - times[0] > 0.27


def test_a_retry_after_pauses_the_whole_host(hostile: Hostile, tmp_path: Path) -> None:
    urls = [hostile.url("/later?after=1"), hostile.url("/ok/other"), hostile.url("/ok/third")]
    hops = fetch(tmp_path, urls, settings(per_host=1))
    assert [hop.kind for hop in hops] == ["body"] * 3
    first, *rest = [asked.when for asked in hostile.asked]
    assert min(rest) - first >= 0.99


def test_a_retry_after_as_a_date(hostile: Hostile, tmp_path: Path) -> None:
    date = quote(formatdate(time() + 2, usegmt=True), safe="")
    hop = fetch_one(tmp_path, hostile.url(f"/later?status=503&after={date}"))
    assert hop.kind == "body"
    assert hostile.asked[1].when - hostile.asked[0].when > 0.8


def test_a_retry_after_beyond_the_limit_defers_the_host(hostile: Hostile, tmp_path: Path) -> None:
    urls = [hostile.url("/later?after=3600")] + [hostile.url(f"/ok/{n}") for n in range(5)]
    hops = fetch(tmp_path, urls, settings(per_host=1))
    assert {(hop.kind, hop.outcome, hop.deferred) for hop in hops} == {("failed", Outcome.SERVER_ERROR, True)}
    assert len(hostile.asked) == 1
    assert "3600 s" in hops[1].message


def test_a_host_that_is_asked_too_much_is_slowed_down(hostile: Hostile, tmp_path: Path) -> None:
    hops = fetch(tmp_path, [hostile.url("/later?fail=2"), hostile.url("/ok/1")], settings(per_host=1, retries=3))
    assert [hop.kind for hop in hops] == ["body", "body"]
    times = [asked.when for asked in hostile.asked]
    assert times[1] - times[0] > 0.045


def test_a_host_is_given_up_after_faults_in_a_row(hostile: Hostile, tmp_path: Path) -> None:
    urls = [hostile.url(f"/hang-up/{n}") for n in range(30)] + [hostile.url("/ok", 2)]
    hops = fetch(tmp_path, urls, settings(per_host=1, host_failures=5))
    assert hops[-1].kind == "body"
    assert {hop.outcome for hop in hops[:-1]} == {Outcome.UNREACHABLE}
    assert sum(hop.deferred for hop in hops) >= 25
    assert sum(asked.host == "127.0.0.1" for asked in hostile.asked) == 5


def test_a_success_between_faults_keeps_a_host(hostile: Hostile, tmp_path: Path) -> None:
    urls = [hostile.url(path) for n in range(8) for path in (f"/status/500/{n}/500", f"/ok/{n}")]
    hops = fetch(tmp_path, urls, settings(per_host=1, host_failures=3, retries=0))
    assert not any(hop.deferred for hop in hops)
    assert [hop.kind for hop in hops] == ["failed", "body"] * 8


def test_delays_on_uvloop(hostile: Hostile, tmp_path: Path) -> None:
    """A timer that is due already is another kind of handle there, without a time."""
    urls = [hostile.url(f"/ok/{n}", 1 + n % 3) for n in range(60)]
    hops = fetch(tmp_path, urls, settings(delay=0.001), fast=True)
    assert {hop.kind for hop in hops} == {"body"}


class Names:
    """Every name is one address."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)


def test_all_names_of_one_address_share_its_requests(hostile: Hostile, tmp_path: Path) -> None:
    config = settings(per_address=4, per_host=2, concurrency=64)
    urls = [f"http://n{number}.example:{hostile.port}/ok/{n}?wait=0.01" for number in range(60) for n in range(2)]
    real = transports(config, QUICK, 64, Names())
    hops = fetch(tmp_path, urls, config, carriers=real)
    assert {hop.kind for hop in hops} == {"body"}
    times = sorted(asked.when for asked in hostile.asked)
    assert all(late - early > 0.009 for early, late in zip(times, times[4:], strict=False)), "five within one answer"


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::5"])
def test_an_address_is_one_however_it_is_spelt(address: str) -> None:
    class Spelt:
        async def resolve(self, host: str, port: int) -> Sequence[str]:
            return (address,)

    carriers = transports(FetchConfig(allow_networks=("0.0.0.0/0", "::/0")), QUICK, 4, Spelt())
    assert asyncio.run(carriers.locate("http://n.example")) == "127.0.0.1"


def test_behind_a_proxy_nobody_knows_the_address(tmp_path: Path) -> None:
    carriers = transports(FetchConfig(proxy="http://127.0.0.1:1"), QUICK, 4, Names())
    assert asyncio.run(carriers.locate("http://n.example")) == ""


@pytest.mark.parametrize("size", [1000, 300_000])
def test_no_more_is_received_than_may_be(hostile: Hostile, tmp_path: Path, size: int) -> None:
    sink = ("web_support:folder_sink", [tmp_path])
    most = 5 * size + 1
    with FetchPool(settings(concurrency=8, per_host=8), "test", sink, QUICK, max_bytes=most) as pool:
        pool.submit([FetchTask(hostile.url(f"/sized/{n}?size={size}")) for n in range(100)])
        hops: list[Hop] = []
        while not pool.spent:
            hops += pool.collect(0.5)
        hops += pool.stop(drain=True)
    assert most - 2000 - size <= pool.received <= most
    assert len(hops) in (4, 5)
    assert len(hostile.asked) <= 8, "fewer at once, the less may still come"
    assert not leftovers(tmp_path, hops)
