"""What servers do to the fetcher, and that each of it ends in the outcome it should, leaving nothing behind."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from web_behaviours import rows
from web_hostile import Hostile, body_of
from web_support import fetch, fetch_one, leftovers, settings

import archec
from archec.web.outcome import FetchTask, Outcome


def test_a_body_is_written_whole_and_hashed(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/ok/a.pdf"))
    body = body_of("/ok/a.pdf")
    assert hop.kind == "body"
    assert hop.outcome is None
    assert hop.status == 200
    assert Path(hop.temp).read_bytes() == body
    assert hop.md5 == hashlib.md5(body).hexdigest()
    assert hop.sha256 == hashlib.sha256(body).hexdigest()
    assert hop.size == len(body)
    assert hop.content_type == "application/pdf"
    assert hop.header("content-length") == str(len(body))


def test_the_request_names_the_agent_and_asks_for_no_coding(hostile: Hostile, tmp_path: Path) -> None:
    fetch_one(tmp_path, hostile.url("/ok/%C3%A9(a)%2Fb;c?q=%20%27'&r"))
    asked = hostile.asked[0]
    assert asked.headers["user-agent"] == "archec/0.1 (test; ops@example.org)"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["host"] == f"127.0.0.1:{hostile.port}"
    assert asked.path == "/ok/%C3%A9(a)%2Fb;c", "the target goes out as it stands"
    assert list(hostile.counts) == ["/ok/%C3%A9(a)%2Fb;c?q=%20%27'&r"]


@pytest.mark.slow
def test_the_table_of_behaviours_on_uvloop(hostile: Hostile, tmp_path: Path) -> None:
    table = list(rows())
    config = settings(concurrency=64, per_host=64, per_address=64, host_failures=10_000, retries=0)
    urls = [hostile.url(row.path.replace("{n}", "0"), 2 if row.path.startswith("/raw/") else 1) for row in table]
    hops = fetch(tmp_path, urls, config, fast=True)
    found = {row: hop for row, hop in zip(table, hops, strict=True) if hop.kind != "redirect"}
    assert {row.path: str(hop.outcome or "new") for row, hop in found.items()} == {
        row.path: row.outcomes[0] for row in found
    }
    assert not leftovers(tmp_path, hops) - {""}


def test_faults_that_may_pass_are_tried_again_and_others_are_not(hostile: Hostile, tmp_path: Path) -> None:
    passing = ["/short", "/hang-up", "/never", "/status/500", "/status/301"]
    lasting = ["/status/404", "/huge", "/status/403", "/drip"]
    urls = [hostile.url(path, 2 if path == "/hang-up" else 1) for path in passing + lasting]
    fetch(tmp_path, urls, settings(retries=2, idle_timeout=0.3))
    assert [hostile.counts[path] for path in passing] == [3] * len(passing)
    assert [hostile.counts[path] for path in lasting] == [1] * len(lasting)


@pytest.mark.parametrize("status", [200, 302, 404, 503])
def test_a_body_that_stalls_is_a_timeout_also_where_it_is_not_wanted(
    hostile: Hostile, tmp_path: Path, status: int
) -> None:
    url = hostile.url(f"/silent-body?status={status}")
    hop = fetch_one(tmp_path, url, settings(retries=0, idle_timeout=0.2))
    assert (hop.kind, hop.outcome, hop.status) == ("failed", Outcome.TIMEOUT, status)
    assert hop.message == "silent for 0.2 s in mid-body"


def test_headers_with_junk_are_cleaned(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/junk-header"))
    assert hop.kind == "body"
    assert hop.header("server") == "a bÿ"
    assert hop.header("etag") == '"x "'


def test_trailers_are_no_headers(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/trailers"))
    assert (hop.size, hop.content_type, hop.headers) == (5, "", ())


def test_a_body_in_a_coding_nobody_asked_for_is_kept_as_served(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/gzip-content"))
    assert Path(hop.temp).read_bytes() == b"\x1f\x8b this is no gzip"
    assert hop.header("content-encoding") == "gzip"


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/b?c=d#frag", "http://127.0.0.1:{port}/b?c=d"),
        ("b", "http://127.0.0.1:{port}/b"),
        ("//other.example/x", "http://other.example/x"),
        ("https://user:secret@other.example/x@y", "https://other.example/x@y"),
        ("http://169.254.169.254/latest", "http://169.254.169.254/latest"),
        ("/a b\\c", "http://127.0.0.1:{port}/a%20b/c"),
    ],
)
def test_redirects_are_handed_back(hostile: Hostile, tmp_path: Path, to: str, location: str) -> None:
    hop = fetch_one(tmp_path, hostile.url(f"/redirect?to={quote(to, safe='')}"))
    assert (hop.kind, hop.outcome, hop.status) == ("redirect", None, 302)
    assert hop.location == location.format(port=hostile.port)
    assert "secret" not in repr(replace(hop, url=""))
    assert len(hostile.asked) == 1


def test_bytes_of_a_location_that_are_not_ascii_are_escaped_as_they_stand(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/redirect-raw"))
    assert hop.location.endswith("/caf%C3%A9%01/%E9x%20y")
    assert hop.header("location") == "/cafÃ©/éx y#part"


@pytest.mark.parametrize("to", ["http://[bad", "file:///etc/passwd", "http://a b/"])
def test_a_redirect_to_nonsense_fails(hostile: Hostile, tmp_path: Path, to: str) -> None:
    hop = fetch_one(tmp_path, hostile.url(f"/redirect?to={quote(to)}"))
    assert (hop.kind, hop.outcome) == ("failed", Outcome.BAD_URL)


def test_conditional_requests(hostile: Hostile, tmp_path: Path) -> None:
    url = hostile.url("/tagged")
    first = fetch_one(tmp_path, url)
    by_tag = fetch_one(tmp_path, FetchTask(url, etag=first.header("etag")))
    by_date = fetch_one(tmp_path, FetchTask(url, last_modified=first.header("last-modified")))
    assert first.kind == "body"
    assert by_tag.kind == by_date.kind == "not-modified"
    assert by_tag.outcome is Outcome.NOT_MODIFIED


def test_a_validator_cannot_smuggle_a_header(hostile: Hostile, tmp_path: Path) -> None:
    fetch_one(tmp_path, FetchTask(hostile.url("/ok"), etag='"x"\r\nX-Evil: 1', last_modified="a\nb\u2013"))
    assert "x-evil" not in hostile.asked[0].headers


def test_connections_are_kept_and_a_closed_one_is_replaced(hostile: Hostile, tmp_path: Path) -> None:
    fetch(tmp_path, [hostile.url(f"/ok/{n}") for n in range(20)], settings(per_host=1))
    assert hostile.connections == 1
    hops = fetch(tmp_path, [hostile.url(f"/closer/{n}") for n in range(20)], settings(per_host=1, retries=0))
    assert {hop.kind for hop in hops} == {"body"}
    assert hostile.connections == 21


def test_a_kept_connection_without_an_answer_costs_one_more_request(hostile: Hostile, tmp_path: Path) -> None:
    """On a new connection, though others are kept; what comes there counts."""
    slow = [hostile.url(f"/ok/{n}?wait=0.2") for n in range(4)]
    hops = fetch(tmp_path, [*slow, hostile.url("/hang-up")], settings(per_host=4, retries=0))
    assert hops[-1].outcome is Outcome.UNREACHABLE, hops[-1]
    assert (hostile.counts["/hang-up"], hostile.connections) == (2, 5)


def test_a_refused_connection_is_unreachable(tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, "http://127.0.0.1:1/x")
    assert (hop.kind, hop.outcome) == ("failed", Outcome.UNREACHABLE)
    assert "refused" in hop.message


def test_a_machine_out_of_descriptors_is_no_fault_of_the_host(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "create_connection", refuse)
    hops = fetch(tmp_path, [hostile.url(f"/ok/{n}") for n in range(10)], settings(host_failures=2))
    assert {(hop.outcome, hop.deferred) for hop in hops} == {(Outcome.INTERNAL, False)}
    assert "ulimit -n" in hops[0].message


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
from archec.config import FetchConfig
from archec.web.client import Client, Flight
from archec.web.fetcher import transports
from archec.web.policy import Tuning
from archec.web.outcome import FetchTask

async def main():
    config = FetchConfig(allow_networks=("127.0.0.0/8",))
    client = Client(config, Tuning(), "test", None, transports(config, Tuning(), 4),
                    lambda size, requests: None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    for url in sys.argv[1:]:
        hop = (await client.attempt(FetchTask(url), Flight(asyncio.get_running_loop().time()))).hop
        print(hop.outcome, hop.message, flush=True)

asyncio.run(main())
"""


def test_without_a_descriptor_left_no_name_and_no_host_is_to_blame(hostile: Hostile) -> None:
    """For real: names (which the system's resolver then calls unknown), addresses, TLS and ftp."""
    port = hostile.port
    urls = [f"http://localhost:{port}/ok", f"http://127.0.0.1:{port}/ok", f"https://127.0.0.1:{port}/ok",
            f"ftp://127.0.0.1:{port}/ok", "http://there-is-no-such-name.invalid/"]  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, *urls], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1])},
    )  # fmt: skip
    assert told.stdout.splitlines() == [
        "internal this machine cannot open another connection: Too many open files; see 'ulimit -n'"
    ] * len(urls)
    assert not hostile.asked


@pytest.mark.parametrize(
    "url",
    [
        "gopher://x/y", "http://127.0.0.1:0/", "ftp://127.0.0.1:0/y", "http://", "http://exa\u2013mple/", "http:///x",
        "http://a b/c", "http://127.0.0.1:99999/",
    ],
)  # fmt: skip
def test_what_is_no_normalised_url_is_a_bad_url(tmp_path: Path, url: str) -> None:
    hop = fetch_one(tmp_path, url)
    assert (hop.kind, hop.outcome) == ("failed", Outcome.BAD_URL)
