"""robots.txt: the rules, and what is done where they cannot be had."""

from __future__ import annotations

import gc
import gzip
import weakref
import zlib
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_hostile import Hostile, hostile_server
from web_support import fetch, fetch_one, settings

from archec.config import Denial
from archec.web.messages import unpack
from archec.web.outcome import Outcome
from archec.web.politeness import MAX_SIZE, parse_robots, product_token

OBEY = settings(robots="obey")
URL = "http://h.example"


def allows(text: str, path: str) -> bool:
    return parse_robots(text.encode(), "archec").allows(URL + path)


def test_groups_and_patterns() -> None:
    text = "User-agent: *\nDisallow: /a\nUser-agent: Archec\nDisallow: /b*c$\nAllow: /b/d/c\n"
    assert allows(text, "/a")
    assert not allows(text, "/bxc")
    assert allows(text, "/bxcd")
    assert allows(text, "/b/d/c")
    assert not allows("\ufeffuser agent *\ndisallow: /x", "/x")
    assert not allows("User-agent: archec/2.0\nDisallow: /", "/x")
    assert allows("User-agent: archecology\nDisallow: /", "/x")
    assert allows("User-agent: other\nDisallow: /", "/x")
    assert allows("<html><body>log in</body></html>", "/x")
    assert allows("", "/x")


def test_delays() -> None:
    assert parse_robots(b"User-agent: *\nCrawl-delay: 2.5", "archec").delay == 2.5
    assert parse_robots(b"User-agent: *\nRequest-rate: 1/10s", "archec").delay == 10
    assert parse_robots(b"User-agent: *\nCrawl-delay: soon\nRequest-rate: 1/0", "archec").delay == 0


def test_many_agents_for_many_rules_do_not_multiply() -> None:
    text = "".join(f"User-agent: a{n}\n" for n in range(9000)) + "".join(f"Disallow: /{n}\n" for n in range(9000))
    started = monotonic()
    assert parse_robots(text.encode(), "archec").allows(URL + "/5")
    assert monotonic() - started < 5


def test_the_product_token() -> None:
    assert product_token("archec/1.0 (x)") == "archec"
    assert product_token("My-Bot 2") == "my-bot"
    assert product_token("(odd)") == "archec"


def test_compressed_rules() -> None:
    assert unpack(gzip.compress(b"text"), "GZIP ", 100) == b"text"
    assert unpack(gzip.compress(b"x" * 10_000_000), "gzip", 100) == b"x" * 100
    assert unpack(b"no gzip", "gzip", 100) is None
    assert unpack(b"x", "br", 100) is None
    assert unpack(b"x", "identity", 100) == b"x"
    assert unpack(gzip.compress(b"Disallow: ") + gzip.compress(b"/a"), "gzip", 100) == b"Disallow: /a"
    assert unpack(b"", "gzip", 100) == b""


@pytest.mark.parametrize("packed", [gzip.compress(b"text" * 1000, mtime=0), zlib.compress(b"text" * 1000)])
def test_compressed_content_that_ends_early_is_damaged(packed: bytes) -> None:
    assert {unpack(packed[:size], "gzip", 10_000) for size in range(1, len(packed))} == {None}
    assert unpack(packed, "gzip", 10_000) == b"text" * 1000


@given(st.binary(max_size=400), st.text(max_size=30))
def test_no_content_breaks_the_parser(content: bytes, path: str) -> None:
    try:
        rules = parse_robots(b"User-agent: *\nDisallow: " + content, "archec")
    except ValueError:
        return
    assert rules.allows(f"{URL}/{path}") in (True, False)


def test_rules_are_fetched_once_for_each_origin_and_obeyed(hostile: Hostile, tmp_path: Path) -> None:
    hostile.robots = (200, b"User-agent: archec\nDisallow: /ok/no", "")
    urls = [hostile.url(f"/ok/{name}", host) for name in ("no", "yes", "no2", "yes2") for host in (1, 2)]
    hops = fetch(tmp_path, urls, OBEY)
    assert [hop.outcome for hop in hops] == [Outcome.ROBOTS, Outcome.ROBOTS, None, None] * 2
    assert not any(hop.deferred for hop in hops)
    assert hostile.counts["/robots.txt"] == 2
    assert hostile.asked[0].path == "/robots.txt"
    assert not any("no" in asked.path for asked in hostile.asked)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_no_rules_allow_all(hostile: Hostile, tmp_path: Path, status: int) -> None:
    hostile.robots = (status, b"User-agent: *\nDisallow: /", "")
    assert fetch_one(tmp_path, hostile.url("/ok"), OBEY).kind == "body"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(206, "server-error"), (429, "server-error"), (500, "server-error"), (0, "unreachable")],
)
def test_rules_that_cannot_be_had_defer_the_host(hostile: Hostile, tmp_path: Path, status: int, outcome: str) -> None:
    hostile.robots = (status, b"", "")
    hops = fetch(tmp_path, [hostile.url(f"/ok/{n}") for n in range(5)], OBEY)
    assert {(hop.kind, str(hop.outcome), hop.deferred) for hop in hops} == {("failed", outcome, True)}
    assert all("robots.txt" in hop.message for hop in hops)
    assert {asked.path for asked in hostile.asked} == {"/robots.txt"}
    assert len(hostile.asked) == 2, "tried twice"


def test_redirects_of_rules_are_followed_but_not_for_ever(hostile: Hostile, tmp_path: Path) -> None:
    with hostile_server(1) as other:
        other.robots = (200, b"User-agent: *\nDisallow: /ok/no", "")
        hostile.robots = (302, b"", f"Location: {other.url('/robots.txt')}\r\n")
        hops = fetch(tmp_path, [hostile.url("/ok/no"), hostile.url("/ok/yes")], OBEY)
        assert [hop.outcome for hop in hops] == [Outcome.ROBOTS, None]
    hostile.robots = (302, b"", "Location: /robots.txt\r\n")
    before = len(hostile.asked)
    hop = fetch_one(tmp_path, hostile.url("/ok"), OBEY)
    assert (hop.outcome, hop.deferred) == (Outcome.SERVER_ERROR, True)
    assert "redirect loop" in hop.message
    assert len(hostile.asked) == before + 1
    hostile.robots = (302, b"", "Location: /gone-on\r\n")
    hop = fetch_one(tmp_path, hostile.url("/ok"), settings(robots="obey", delay=0.05))
    assert (hop.outcome, hop.deferred) == (Outcome.SERVER_ERROR, True)
    assert "more than 5 times" in hop.message
    times = [asked.when for asked in hostile.asked[before + 1 :]]
    assert len(times) == 6
    assert all(later - sooner > 0.045 for sooner, later in pairwise(times))


def test_a_rule_that_is_cut_is_no_rule(hostile: Hostile, tmp_path: Path) -> None:
    """Neither where it forbids more nor where it allows more than the whole one."""
    fill = b"# " + b"x" * 500 + b"\n"
    text = b"User-agent: *\n" + fill * 1100
    cut = MAX_SIZE - len(b"Disallow: /o")
    hostile.robots = (200, text[: text.rfind(b"\n", 0, cut)].ljust(cut - 1, b"#") + b"\nDisallow: /other\n", "")
    assert fetch_one(tmp_path, hostile.url("/ok"), OBEY).kind == "body"


def test_rules_are_remembered_by_their_size() -> None:
    few = parse_robots(b"User-agent: *\nDisallow: /x", "archec")
    many = parse_robots(b"User-agent: *\n" + b"Disallow: /x\n" * 9000, "archec")
    assert few.size < 5000
    assert many.size > 9_000_000


def test_rules_behind_a_redirect_to_a_private_address(hostile: Hostile, tmp_path: Path) -> None:
    hostile.robots = (302, b"", f"Location: {hostile.url('/robots.txt', 2)}\r\n")
    hop = fetch_one(tmp_path, hostile.url("/ok"), settings(robots="obey", allow_networks=("127.0.0.1/32",)))
    assert hop.outcome is Outcome.BLOCKED_ADDRESS
    assert {asked.host for asked in hostile.asked} == {"127.0.0.1"}


def test_rules_at_an_address_that_is_denied(hostile: Hostile, tmp_path: Path) -> None:
    """Also behind a redirect: they are not asked for, and so nothing is fetched."""
    for pattern, robots in (("*/robots.txt", (200, b"", "")), ("*/theirs", (302, b"", "Location: /theirs\r\n"))):
        hostile.robots = robots
        denying = settings(robots="obey", deny=(Denial(urls=(pattern,), reason="asked by mail"),))
        hop = fetch_one(tmp_path, hostile.url("/ok"), denying)
        assert (hop.outcome, hop.message) == (Outcome.DENIED, "robots.txt is not available: asked by mail")
    assert len(hostile.asked) == 1


def test_only_the_beginning_of_endless_rules_is_read(hostile: Hostile, tmp_path: Path) -> None:
    hostile.robots = (200, b"User-agent: *\nDisallow: /ok/no\n" + b"# x\n" * 500_000, "")
    hops = fetch(tmp_path, [hostile.url("/ok/no"), hostile.url("/ok/yes")], OBEY)
    assert [hop.outcome for hop in hops] == [Outcome.ROBOTS, None]


def test_a_crawl_delay_is_kept(hostile: Hostile, tmp_path: Path) -> None:
    hostile.robots = (200, b"User-agent: *\nCrawl-delay: 0.2", "")
    fetch(tmp_path, [hostile.url(f"/ok/{n}") for n in range(3)], OBEY)
    times = [asked.when for asked in hostile.asked]
    assert times[-1] - times[0] > 0.55


def test_a_crawl_delay_beyond_the_limit_defers_the_host(hostile: Hostile, tmp_path: Path) -> None:
    hostile.robots = (200, b"User-agent: *\nCrawl-delay: 600", "")
    hops = fetch(tmp_path, [hostile.url(f"/ok/{n}") for n in range(3)], OBEY)
    assert {(hop.outcome, hop.deferred) for hop in hops} == {(Outcome.ROBOTS, True)}
    assert "600 s" in hops[0].message


MANY_RULES = b"User-agent: *\n" + b"".join(b"Disallow: /%d*\n" % number for number in range(30_000))
"""About as many as are read."""


def test_rules_that_are_forgotten_take_no_memory() -> None:
    """At once: the collector comes rarely to a process that fetches."""
    rules = parse_robots(MANY_RULES, "archec")
    assert rules.allows("http://h/x")
    gone = weakref.ref(rules.protego)
    gc.collect()
    gc.disable()
    try:
        del rules
        assert gone() is None
    finally:
        gc.enable()
