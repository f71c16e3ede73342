"""Servers that lie, stall, flood or attack: every file ends with an outcome that says why, and the run goes on."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from gather_support import archec_inline, catalogue_of, check, histories, make, outcomes, temporary_files, write_papers
from hostile_support import assert_clean, gathered, written
from web_behaviours import LOCATIONS, RUNS, rows
from web_ftpserver import FtpServer
from web_hostile import EVIL, Hostile, body_of, hostile_server, page_of_300_mb, pdf_of_500_mb

from archec.config import Config

SETTINGS: dict[str, object] = {
    "fetch.concurrency": 64, "fetch.per_host": 32, "fetch.per_address": 32, "fetch.host_failures": 10_000,
    "fetch.connect_timeout": "2s",
    "fetch.idle_timeout": "1s", "fetch.total_timeout": "4s", "fetch.max_size": "1MB", "text.timeout": "2s",
    "text.workers": 2, "text.max_memory": "256MB",
}  # fmt: skip


@pytest.fixture
def config(folder: Path) -> Config:
    return make(folder / "archive", SETTINGS)


def messages(config: Config) -> dict[str, str]:
    """What the last visit of each file came to, for people."""
    with catalogue_of(config) as catalogue:
        return {fobi.id: fobi.visit.message if fobi.visit else "" for fobi in catalogue.all("fobi")}


def texts_of(config: Config) -> dict[str, str | None]:
    """The text checksum of each file that is held."""
    with catalogue_of(config) as catalogue:
        return {fobi.id: version.text for fobi in catalogue.all("fobi") for version in fobi.versions.values()}


def test_each_behaviour_ends_with_an_outcome_and_the_run_goes_on(folder: Path) -> None:
    """The first run of the table, without repeats. The host that sends surplus bytes keeps no connection: nothing that
    came before is doubted."""
    config = make(folder / "archive", {**SETTINGS, "fetch.retries": 0, "fetch.total_timeout": "2s"})
    with hostile_server(2) as server:
        urls = {
            server.url(row.path.replace("{n}", "0"), 2 if row.path.startswith("/raw/") else 1): row.outcomes[0]
            for row in rows()
        }
        write_papers(config, list(urls))
        began = time.monotonic()
        report = gathered(config)
        assert time.monotonic() - began < 25
        found, told, held = outcomes(config), messages(config), histories(config)
        assert {url: found[url] for url in urls} == urls
        assert {url for url in urls if url in held} == {url for url in urls if urls[url] == "new"}
        assert {url for url in urls if told[url]} == {url for url in urls if urls[url] != "new"}
        counted = {outcome: count for outcome, count in report["fobis"].items() if outcome != "suspect"}
        redirected = sum(not outcome for outcome in LOCATIONS.values())
        assert counted == Counter(urls.values()) + Counter(new=redirected)
        assert report["fetch"]["deferred"] == 0
        assert temporary_files(config) == []
        check(config)


def test_a_loop(config: Config, site: object) -> None:
    from gather_site import Site, moved

    assert isinstance(site, Site)
    site["/a"], site["/b"], site["/c"] = moved("/b"), moved("/c?x"), moved("/c")
    site["/c?x"] = moved("/a#again")
    write_papers(config, [site.url("/a"), site.url("/c")])
    assert gathered(config)["fobis"] == {"redirect-loop": 2}
    check(config)


def test_nothing_of_a_server_speaks_to_the_terminal(config: Config) -> None:
    with hostile_server() as server:
        paths = ("evil-head", "evil-reason", f"redirect?to=//{quote(EVIL)}/")
        urls = [server.url(f"/{path}") for path in paths]
        write_papers(config, urls)
        commands = [["gather"], *(["history", url] for url in urls), ["dump", "--all"], ["lost"], ["status"]]
        for command in commands:
            done = archec_inline(config, *command)
            assert_clean(done)
        for path, data in written(config.store_path / "runs").items():
            if not path.endswith(".gz"):
                assert not set(data) & set(b"\x1b\x07\x08"), path


@pytest.mark.slow
def test_bombs_for_those_who_take_out_text(config: Config) -> None:
    """Their bytes are kept as served; the text is given up within its limits, and hurts nothing else."""
    paths = ["html-bomb", "deep-page", "pdf-bomb", "page-count", "endless-postscript", "gzip-content", "ok/good.pdf"]
    assert max(len(page_of_300_mb()), len(pdf_of_500_mb())) < 1_000_000
    with hostile_server() as server:
        write_papers(config, [server.url(f"/{path}") for path in paths])
        began = time.monotonic()
        report = gathered(config)
        assert time.monotonic() - began < 25
        assert report["fobis"] == {"new": len(paths)}
        check(config)
        texts = {url.split("/", 3)[3]: text for url, text in texts_of(config).items()}
        without = {path for path in paths if texts[path] is None}
        assert without >= {"html-bomb", "pdf-bomb", "page-count", "gzip-content"}


def test_a_host_that_only_stalls_holds_up_nobody_else(config: Config) -> None:
    """Thirty files of a server that never answers, one of another that does."""
    with hostile_server(2) as server:
        write_papers(config, [*(server.url(f"/never/{n}") for n in range(30)), server.url("/ok/x.pdf", host=2)])
        began = time.monotonic()
        report = gathered(config)
        assert time.monotonic() - began < 12
        assert report["fobis"] == {"new": 1, "timeout": 30}


def test_hostile_rules(folder: Path) -> None:
    rules: list[tuple[int, bytes, str]] = [
        (200, b"User-agent: *\n" + b"Disallow: /x*a*a*a*a*a*a*a*a*a*a*a*$\n" * 500, ""),
        (200, b"\0\xff\xfe" * 100_000, ""),
        (200, b"User-agent: *\nCrawl-delay: 1e999\nCrawl-delay: nan\nCrawl-delay: -5\n", ""),
        (200, b"User-agent: *\nRequest-rate: 1/0\nRequest-rate: 0/1\n", ""),
        (200, b"\x1f\x8b" + b"\0" * 100, "Content-Encoding: gzip\r\n"),
        (302, b"", "Location: file:///etc/passwd\r\n"),
    ]
    config = make(folder / "archive", {**SETTINGS, "fetch.robots": "obey"})
    with ExitStack() as stack:
        urls = []
        for robots in rules:
            server = stack.enter_context(hostile_server())
            server.robots = robots
            urls.append(server.url("/ok/" + "a" * 200 + ".pdf"))
        write_papers(config, urls)
        began = time.monotonic()
        report = gathered(config)
        assert time.monotonic() - began < 10
        assert sum(report["fobis"].values()) == len(rules)
        check(config)


def test_urls_of_one_server_cannot_be_told_from_its_neighbour_s(config: Config) -> None:
    """A keep-alive connection with more in it than was asked for is not used again."""
    with hostile_server() as server:
        assert isinstance(server, Hostile)
        urls = [server.url(path) for n in range(5) for path in (f"/long/{n}", f"/ok/{n}.pdf")]
        write_papers(config, urls)
        assert gathered(config)["fobis"] == {"new": 5, "truncated": 5}
        check(config)


@pytest.mark.parametrize("wait", [0, *(pytest.param(wait, marks=pytest.mark.slow) for wait in (0.001, 0.004))])
def test_an_answer_that_nobody_asked_for_becomes_no_fact(folder: Path, wait: float) -> None:
    """Two of 150 URLs have one behind theirs. No file is taken for gone by it, and none for another."""
    config = make(folder / "archive", {**SETTINGS, "fetch.per_host": 2})
    with hostile_server() as server:
        urls = [server.url(f"/{'surplus' if n in (40, 90) else 'ok'}/{n}?wait={wait}") for n in range(150)]
        write_papers(config, urls)
        gathered(config)
        first = outcomes(config)
        assert set(first.values()) <= {"new", "doubtful", "truncated"}
        assert sum(outcome == "new" for outcome in first.values()) > 100
        server.run = 1
        time.sleep(1.1)
        gathered(config)
        assert set(outcomes(config).values()) <= {"new", "same", "changed"}
        check(config)
        held = histories(config)
        for url in urls:
            body = body_of("/" + url.split("/", 3)[3].partition("?")[0])
            assert hashlib.sha256(body).hexdigest() in str(held[url]), url


BODIES = {
    "robots.txt": 27, "ok/a": len(body_of("/ok/a")), "until-close": len(body_of("/until-close")), "chunked": 11,
    "status/404": 8, "status/403": 8, "status/500": 8, "short": 10, "short-chunks": 5, "flaky": len(body_of("/flaky")),
    "tagged": 6, "redirect?to=/ok/b": 5, "ok/b": len(body_of("/ok/b")), "identity": len(body_of("/identity")),
    "interim": len(body_of("/interim")), "hang-up": 0, "gzip-content": 18, "evil-reason": 0,
}  # fmt: skip
"""Bytes of the body that each path sends, whole or not."""


def test_the_report_counts_what_the_server_has_logged(folder: Path) -> None:
    """Requests and bytes of bodies: those of robots.txt, redirects, failures, repeats, and bodies that break off."""
    config = make(folder / "archive", {**SETTINGS, "fetch.robots": "obey", "fetch.retries": 1})
    with hostile_server() as server:
        server.robots = (200, b"User-agent: *\nDisallow: /x\n", "")
        write_papers(config, [server.url(f"/{path}") for path in BODIES if path not in ("robots.txt", "ok/b")])
        for number in range(2):
            server.asked.clear()
            server.counts.clear()
            report = gathered(config)
            targets = ((asked.path[1:], asked.query.get("to")) for asked in server.asked)
            logged = [f"{path}?to={to}" if to else path for path, to in targets]
            assert {path: logged.count(path) for path in ("robots.txt", "status/500", "short", "ok/b")} == {
                "robots.txt": 1, "status/500": 2, "short": 2, "ok/b": 1,
            }  # fmt: skip
            assert logged.count("hang-up") <= 4, "twice, and each time once more where a connection was kept"
            sent = sum(BODIES[path] for path in logged) - (BODIES["flaky"] - 100) - number * BODIES["tagged"]
            assert (report["fetch"]["requests"], report["fetch"]["bytes"]) == (len(logged), sent)


@pytest.mark.parametrize("path", ["sized/{n}?size=50000", "endless/{n}", "endless-header/{n}", "short/{n}"])
def test_a_budget_bounds_what_servers_send(folder: Path, path: str) -> None:
    """Bodies, whole or not, and heads: but for what one connection may have taken ahead of time."""
    config = make(folder / "archive", SETTINGS)
    with hostile_server(4) as server:
        write_papers(config, [server.url("/" + path.format(n=n), host=1 + n % 4) for n in range(60)])
        report = gathered(config, "--max-bytes", "1MB" if path[:5] != "short" else "1kB", code=5)
        assert report["state"] == "budget"
        assert report["fetch"]["bytes"] <= 1_000_000
        assert server.sent <= (2_500_000 if path[:5] != "short" else 3_000)
        check(config)


@pytest.mark.parametrize("welcome", ["220 ready", pytest.param("chatter", marks=pytest.mark.slow)])
def test_a_budget_bounds_what_ftp_servers_send(folder: Path, welcome: str) -> None:
    """Files, and what they say."""
    config = make(folder / "archive", SETTINGS)
    server = FtpServer({})
    server.welcome = welcome
    try:
        write_papers(config, [server.url(f"endless?{n}") for n in range(30)])
        report = gathered(config, "--max-bytes", "1MB", code=5)
    finally:
        server.close()
    assert report["state"] == "budget"
    assert server.sent <= 2_500_000


@pytest.mark.slow
def test_hundreds_of_files_that_redirect_one_to_the_next(config: Config, site: object) -> None:
    """Each is planned for itself and waits for the one after it: the end comes to all of them at once."""
    from gather_site import Site, moved, pdf

    assert isinstance(site, Site)
    count = 520
    for n in range(count):
        site[f"/{n}"] = moved(f"/{n + 1}")
    site[f"/{count}"] = pdf("the end")
    write_papers(config, [site.url(f"/{n}") for n in range(count)])
    report = gathered(config)
    assert set(report["fobis"]) == {"new", "too-many-redirects"}
    assert sum(report["fobis"].values()) == count + 1
    assert len(site.asked) <= count + 1


@pytest.mark.slow
def test_huge_rules_of_100_origins(folder: Path) -> None:
    """Memory is bounded by the size of the rules, not by the number of origins: no process is lost for want of it."""
    settings = {**SETTINGS, "fetch.concurrency": 4, "fetch.robots": "obey", "fetch.max_memory": "350MB"}
    config = make(folder / "archive", settings)
    with hostile_server(100) as server:
        rules = b"User-agent: *\n" + b"".join(b"Disallow: /%d*\n" % number for number in range(30_000))
        server.robots = (200, rules[:511_000], "")
        write_papers(config, [server.url(f"/ok/{number}", host=number) for number in range(1, 101)])
        done = archec_inline(config, "gather", "--json")
    assert "fetch.max_memory" not in done.err
    assert json.loads(done.out)["fobis"] == {"new": 100}


@pytest.mark.slow
def test_every_row_of_the_table_of_behaviours(config: Config) -> None:
    """At least 250 behaviours, 2,000 URLs of eight addresses, five runs: the outcome of each visit to each URL.

    Surplus bytes make the answers before them on their connection doubtful: they come from addresses of their own.
    """
    table = list(rows())
    assert len({row.path for row in table}) >= 250
    with hostile_server(8) as server:
        urls = {
            server.url(
                row.path.replace("{n}", str(n)), n % 4 + (5 if row.path.startswith("/raw/") else 1)
            ): row.outcomes
            for row in table
            for n in range(8)
        }
        assert len(urls) >= 2000
        write_papers(config, list(urls))
        for number in range(RUNS):
            server.run = number
            gathered(config)
            found = outcomes(config)
            wrong = {
                url: (expected[number], found[url]) for url, expected in urls.items() if found[url] != expected[number]
            }
            assert wrong == {}, f"run {number + 1}"
            time.sleep(1.1)  # what is due at once is due a second later
        assert server.most_asked == 20, "requests on one connection"
        check(config)
