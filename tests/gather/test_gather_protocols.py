"""What a run makes of ftp servers, certificates, robots.txt and shared addresses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gather_site import Answer, Site, moved, pdf
from gather_support import change, check, environment, outcomes, run, write_papers
from web_ftpserver import FtpServer
from web_hostile import hostile_server

from archec.config import Config


def test_ftp_files_are_told_by_size_and_date_together(config: Config) -> None:
    server = FtpServer({"pub/a b.pdf": b"%PDF-1.4\n", "pub/b": b"b"})
    try:
        write_papers(config, [server.url("pub/a%20b.pdf"), server.url("pub/b"), server.url("pub/c")])
        assert dict(run(config).fobis) == {"new": 2, "gone": 1}
        server.files["pub/b"] = b"b, of the same date and another size"
        server.heard.clear()
        assert dict(run(config).fobis) == {"not-modified": 1, "changed": 1, "gone": 1}
        assert "RETR pub/a b.pdf" not in server.heard
        check(config)
    finally:
        server.close()


def test_robots_txt_that_is_cut_or_leads_in_a_circle(config: Config, site: Site) -> None:
    """Half a rule is none. Where no rules can be had nothing is asked for. A blank in a Location counts."""
    config = change(config, {"fetch.robots": "obey", "fetch.delay": "20ms"})
    rules = b"User-agent: *\n" + b"# 63 bytes of a comment that goes on and on and on and on....\n" * 8200
    with Site("127.0.0.2") as circle, Site("127.0.0.3") as blank:
        site["/robots.txt"] = Answer(200, rules[: 512_000 - len("Disallow: /")] + b"Disallow: /nothing-of-ours\n")
        circle["/robots.txt"] = moved("/other")
        circle["/other"] = moved("/robots.txt")
        blank["/robots.txt"] = moved("/the rules")
        blank["/the%20rules"] = Answer(200, b"User-agent: *\nDisallow: /no\n")
        urls = [site.url("/a"), circle.url("/a"), blank.url("/no"), blank.url("/yes")]
        site["/a"], circle["/a"], blank["/no"], blank["/yes"] = pdf("1"), pdf("2"), pdf("3"), pdf("4")
        write_papers(config, urls)
        run(config)
        assert [outcomes(config)[url] for url in urls] == ["new", "server-error", "robots", "new"]
        assert {path for path, _ in circle.asked} == {"/robots.txt", "/other"}
        check(config)


def test_nobody_leads_to_a_host_that_is_denied(config: Config, site: Site) -> None:
    """Not by a redirect of robots.txt, either: what it says cannot be known."""
    with Site("127.0.0.2") as other:
        site["/robots.txt"], site["/a"] = moved(other.url("/robots.txt")), pdf("a")
        host = {"hosts": ["127.0.0.2"], "reason": "asked by mail"}
        config = change(config, {"fetch.robots": "obey", "fetch.deny": [host]})
        write_papers(config, [site.url("/a")])
        assert dict(run(config).fobis) == {"denied": 1}
        assert not other.asked
        check(config)


def test_all_names_of_an_address_share_its_requests(config: Config) -> None:
    config = change(config, {"fetch.per_address": 2, "fetch.per_host": 2, "fetch.connect_timeout": "5s"})
    with hostile_server() as server:
        names = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]")
        urls = [f"http://{name}:{server.port}/ok/{n}?wait=0.05" for name in names for n in range(4)]
        write_papers(config, urls)
        assert dict(run(config).fobis) == {"new": 12}
        times = sorted(asked.when for asked in server.asked)
    assert all(late - early > 0.04 for early, late in zip(times, times[2:], strict=False)), "three within one answer"


@pytest.mark.slow
def test_a_run_without_descriptors_blames_no_host(config: Config) -> None:
    """It says what is missing, whether for a connection or for a file."""
    config = change(config, {"fetch.per_host": 60, "fetch.per_address": 60})
    with hostile_server() as server:
        urls = [server.url(f"/ok/{n}?wait=0.5") for n in range(60)]
        write_papers(config, urls)
        command = f"ulimit -n 40; exec {sys.executable} -m archec gather --config {config.base}/config.yaml"
        done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Too many open files" in done.stderr
        assert set(outcomes(config).values()) == {"internal", ""}
        assert run(config).fobis["new"] == 60
    check(config)
