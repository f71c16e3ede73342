"""Files over real HTTP: redirects, losses, returns, cosmetic changes, hosts that fail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from gather_site import Answer, Site, moved, page, pdf
from gather_support import (
    archec_inline,
    catalogue_of,
    change,
    check,
    histories,
    obi_of,
    outcomes,
    run,
    store_files,
    write_papers,
)

from archec.archive.evidence import evidence_of
from archec.archive.lookup import find, held_at, rows
from archec.archive.opening import Archive
from archec.catalogue.model import AT_ONCE
from archec.config import Config
from archec.gather import host_waits
from archec.gather.file_phase import FilePhase
from archec.store.layout import open_layout
from archec.tist import iso
from archec.web.outcome import Hop


def bytes_now(config: Config, url: str) -> bytes:
    layout = open_layout(config.store_path)
    with catalogue_of(config) as catalogue:
        obi = find(catalogue, url)
        assert obi.history.last is not None
        with held_at(Archive(config, layout, catalogue), obi, obi.history.last).open(layout) as file:
            return file.read()


def redirects(config: Config, url: str) -> list[tuple[tuple[str, int], ...]]:
    layout = open_layout(config.store_path)
    with catalogue_of(config) as catalogue:
        incidences = rows(Archive(config, layout, catalogue), find(catalogue, url), evidence_of(catalogue))
        return [row.redirects for row in incidences]


# -- redirects ----------------------------------------------------------------------------------------


def test_a_chain(config: Config, site: Site) -> None:
    site["/a"], site["/b"], site["/c"] = moved("/b", 302), moved("/c", 307), page("at the end")
    write_papers(config, [site.url("/a")])
    report = run(config)
    assert dict(report.fobis) == {"new": 3}
    assert redirects(config, site.url("/a")) == [((site.url("/b"), 302), (site.url("/c"), 307))]
    assert bytes_now(config, site.url("/a")) == page("at the end").body
    layout = open_layout(config.store_path)
    links = {path: text for path, text in store_files(layout).items() if text.startswith("->")}
    assert {path.rpartition("/")[2][-4:]: text[-4:] for path, text in links.items()} == {"%2Fa": "%2Fb", "%2Fb": "%2Fc"}
    check(config)
    report = run(config)
    assert dict(report.fobis) == {"same": 3}
    site["/c"] = page("revised")
    assert dict(run(config).fobis) == {"changed": 3}
    assert bytes_now(config, site.url("/a")) == page("revised").body
    site["/b"] = page("b itself now")
    assert dict(run(config).fobis) == {"changed": 2, "same": 1}
    assert [len(hops) for hops in redirects(config, site.url("/a"))] == [2, 2, 1]
    check(config)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_loop(config: Config, site: Site, length: int) -> None:
    for n in range(length):
        site[f"/{n}"] = moved(f"/{(n + 1) % length}")
    write_papers(config, [site.url("/0"), site.url("/2")])
    report = run(config)
    assert outcomes(config)[site.url("/0")] == "redirect-loop"
    assert set(report.fobis) <= {"redirect-loop", "gone"}
    assert histories(config).keys() == {"RePEc:aaa:sss:0", "RePEc:aaa:sss:1"}
    assert all(site.count(f"/{n}") <= 1 for n in range(length))
    check(config)


def test_a_loop_that_is_entered_from_outside(config: Config, site: Site) -> None:
    site["/in"], site["/a"], site["/b"] = moved("/a"), moved("/b"), moved("/a")
    write_papers(config, [site.url("/in"), site.url("/b")])
    run(config)
    found = outcomes(config)
    assert found[site.url("/in")] == found[site.url("/b")] == "redirect-loop"


@pytest.mark.parametrize("other", ["/0", "/9"])
def test_too_many(config: Config, site: Site, other: str) -> None:
    """A chain that is too long for one URL is not for another one that enters it later, whichever is visited first."""
    config = change(config, {"fetch.max_redirects": 3})
    for n in range(4, 8):
        site[f"/{n}"] = moved(f"/{n + 1}")
    site[other], site["/8"] = moved("/6"), page("far away")
    write_papers(config, [site.url("/4"), site.url(other)])
    run(config)
    assert outcomes(config)[site.url("/4")] == "too-many-redirects"
    assert outcomes(config)[site.url(other)] == "new"
    assert site.url("/4") not in histories(config)
    check(config)


def test_a_long_chain_whose_every_hop_is_in_the_plan(config: Config, site: Site) -> None:
    """Each URL is judged by its own chain, in whatever order the hops come in."""
    config = change(config, {"fetch.max_redirects": 3, "fetch.per_host": 4})
    for n in range(72):
        site[f"/{n}"] = moved(f"/{n + 1}")
    site["/72"] = page("far away")
    write_papers(config, [site.url(f"/{n}") for n in range(73)])
    run(config)
    found = outcomes(config)
    assert [found[site.url(f"/{n}")] for n in range(69)] == ["too-many-redirects"] * 69
    assert [found[site.url(f"/{n}")] for n in range(69, 73)] == ["new"] * 4
    assert all(site.count(f"/{n}") == 1 for n in range(73))
    check(config)
    run(config)
    found = outcomes(config)
    assert [found[site.url(f"/{n}")] for n in range(62, 73)] == ["too-many-redirects"] * 7 + ["same"] * 4
    check(config)


def test_redirects_to_where_archec_does_not_go(config: Config, site: Site) -> None:
    bad = ("javascript:alert(1)", "file:///etc/passwd", "http://[::1/")
    blocked = (
        "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://[::1]:8080/", "http://2852039166/",
        "http://user:secret@10.0.0.1/x",
    )  # fmt: skip
    for number, location in enumerate((*bad, *blocked)):
        site[f"/{number}"] = moved(location)
    write_papers(config, [site.url(path) for path in site.answers])
    assert dict(run(config).fobis) == {"bad-url": len(bad), "blocked-address": len(blocked)}
    for number in range(len((*bad, *blocked))):
        assert obi_of(config, site.url(f"/{number}")).visit is not None
    assert "secret" not in "".join(path.read_text() for path in config.store_path.rglob("*.jsonl"))
    check(config)


def test_a_trailing_slash(config: Config, site: Site) -> None:
    site["/a"], site["/a/"] = moved("/a/"), page("with slash")
    write_papers(config, [site.url("/a")])
    assert dict(run(config).fobis) == {"new": 2}
    layout = open_layout(config.store_path)
    assert not any(text.startswith("->") for text in store_files(layout).values())
    assert bytes_now(config, site.url("/a")) == bytes_now(config, site.url("/a/")) == page("with slash").body
    check(config)
    site["/a/"] = page("revised")
    run(config)
    assert bytes_now(config, site.url("/a")) == page("revised").body
    site["/a"] = page("without")
    run(config)
    assert bytes_now(config, site.url("/a")) == page("without").body
    assert bytes_now(config, site.url("/a/")) == page("revised").body
    check(config)


def test_a_trailing_slash_where_only_one_is_new(config: Config, site: Site) -> None:
    site["/a/"] = page("with slash")
    write_papers(config, [site.url("/a/")])
    run(config)
    site["/a"] = moved("/a/")
    write_papers(config, [site.url("/a/"), site.url("/a")])
    run(config)
    assert bytes_now(config, site.url("/a")) == page("with slash").body
    check(config)


def test_two_that_lead_to_one(config: Config, site: Site) -> None:
    site["/a"], site["/b"], site["/c"] = moved("/c"), moved("/c"), page("once")
    write_papers(config, [site.url("/a"), site.url("/b")])
    assert dict(run(config).fobis) == {"new": 3}
    assert site.count("/c") == 1
    check(config)


def test_a_target_that_is_in_the_plan_too(config: Config, site: Site) -> None:
    site["/a"], site["/c"] = moved("/c"), page("once")
    write_papers(config, [site.url("/c"), site.url("/a")])
    assert dict(run(config).fobis) == {"new": 2}
    assert site.count("/c") == 1
    site["/c"] = page("twice")
    assert dict(run(config).fobis) == {"changed": 2}
    assert site.count("/c") == 2
    check(config)


def test_a_redirect_to_a_target_that_fails(config: Config, site: Site) -> None:
    site["/a"], site["/b"] = moved("/gone"), moved("/sick")
    site["/sick"] = page("oops", 500)
    write_papers(config, [site.url("/a"), site.url("/b")])
    run(config)
    assert outcomes(config) == {site.url("/a"): "gone", site.url("/b"): "server-error"}
    check(config)


def test_bytes_that_were_held_under_the_url_that_now_redirects(config: Config, site: Site) -> None:
    site["/a"] = page("same bytes")
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"], site["/b"] = moved("/b"), page("same bytes")
    assert dict(run(config).fobis) == {"new": 1, "same": 1}
    check(config)


def test_what_a_doubtful_answer_brought_is_not_missed(
    config: Config, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped from the history, and its bytes stay: no check objects to either."""
    fetch = FilePhase.fetch

    def doubting(phase: FilePhase, *arguments: Any, **options: Any) -> tuple[bool, list[str]]:
        found = fetch(phase, *arguments, **options)
        phase._doubt(Hop(site.url("/a"), "doubtful"))
        return found

    site["/a"], site["/new"] = pdf("one"), moved("/a")
    write_papers(config, [site.url("/a")])
    first = run(config).run
    site["/a"] = pdf("not mine")
    write_papers(config, [site.url("/a"), site.url("/new")])
    with monkeypatch.context() as patch:
        patch.setattr(FilePhase, "fetch", doubting)
        run(config)
    assert [list(histories(config).get(site.url(path), {})) for path in ("/a", "/new")] == [[first], []]
    assert {obi_of(config, site.url(path)).due for path in ("/a", "/new")} == {AT_ONCE}
    check(config)
    for again in (False, True):
        for command in ("verify", "check"):
            done = archec_inline(config, command)
            assert done.code == 0, done.out
        if not again:
            assert dict(run(config).fobis) == {"changed": 1, "new": 1}
    check(config)


# -- losses and returns -------------------------------------------------------------------------------


def test_gone_twice_is_lost_since_the_first(config: Config, site: Site) -> None:
    site["/a"] = pdf("one", ETag='"1"')
    write_papers(config, [site.url("/a")])
    found = run(config).run
    seen = run(config).run
    site["/a"] = page("gone", 410)
    first = run(config)
    assert dict(first.fobis) == {"gone": 1}
    assert histories(config)[site.url("/a")] == {found: hashlib.sha256(pdf("one").body).hexdigest()}
    site["/a"] = page("sick", 503)
    assert dict(run(config).fobis) == {"server-error": 1}
    site["/a"] = page("gone", 404)
    second = run(config)
    assert dict(second.fobis) == {"gone": 1, "lost": 1}
    assert histories(config)[site.url("/a")] == {found: hashlib.sha256(pdf("one").body).hexdigest(), first.run: None}
    check(config)
    third = run(config)
    assert dict(third.fobis) == {"gone": 1}
    site["/a"] = pdf("one", ETag='"1"')
    fourth = run(config)
    assert dict(fourth.fobis) == {"returned": 1}
    assert "if-none-match" not in site.asked[-1][1]
    assert list(histories(config)[site.url("/a")]) == [found, first.run, fourth.run]
    told = archec_inline(config, "history", site.url("/a")).out.decode().splitlines()
    lost = told.index(f"{first.run}  {iso(first.run)}  lost: HTTP status 404")
    assert told[lost + 1].strip() == f"last seen {iso(seen)}"
    check(config)


def test_grace(config: Config, site: Site) -> None:
    config = change(config, {"lost_grace": "1h", "lost_confirmations": 3})
    site["/a"] = pdf("one")
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"] = page("gone", 404)
    for _ in range(4):
        run(config)
    assert list(histories(config)[site.url("/a")].values()) != [None]
    seen = obi_of(config, site.url("/a"))
    assert seen.visit is not None
    assert seen.due >= seen.visit.gone_since + 3600
    assert site.count("/a") == 2, "it is not due before its grace is over"


def test_found_again_before_the_second_look(config: Config, site: Site) -> None:
    site["/a"] = pdf("one")
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"] = page("gone", 404)
    run(config)
    site["/a"] = pdf("one")
    run(config)
    site["/a"] = page("gone", 404)
    run(config)
    assert len(histories(config)[site.url("/a")]) == 1


def test_unreachable_is_never_lost(config: Config, site: Site) -> None:
    for path in ("/a", "/b", "/c", "/d"):
        site[path] = pdf(path)
    write_papers(config, [site.url(path) for path in ("/a", "/b", "/c", "/d")])
    run(config)
    site["/a"], site["/b"] = page("no", 403), page("sick", 500)
    site["/c"], site["/d"] = Answer(fault="reset"), Answer(200, b"%PDF-1.4 half", fault="short")
    with Site("127.0.0.2") as other:
        other["/e"] = pdf("shows that there is a network")
        write_papers(config, [other.url("/e")], archive="bbb")
        for _ in range(3):
            run(config)
    found = outcomes(config)
    assert [found[site.url(p)] for p in ("/a", "/b", "/c", "/d")] == [
        "forbidden", "server-error", "unreachable", "truncated",
    ]  # fmt: skip
    site.stop()
    report = run(config)
    assert (dict(report.fobis), report.deferred.total()) == ({}, 5), "no host has shown that there is a network"
    with Site("127.0.0.2") as other:
        other["/e"] = pdf("/e")
        write_papers(config, [site.url(path) for path in ("/a", "/b", "/c", "/d")] + [other.url("/e")])
        run(config)
    assert set(outcomes(config).values()) == {"unreachable", "new"}
    assert all(len(history) == 1 for history in histories(config).values())
    site.start()
    for path in ("/a", "/b", "/c", "/d"):
        site[path] = pdf(path)
    assert dict(run(config).fobis) == {"same": 4, "unreachable": 2}, "the two others"
    check(config)


# -- what changed and how -----------------------------------------------------------------------------


def hidden(text: str, token: int) -> Answer:
    body = f'<!DOCTYPE html><html><body><!-- {token} --><p>{text}</p></body></html>'
    return Answer(200, body.encode(), {"Content-Type": "text/html", "ETag": f'"{token}"'})


def test_cosmetic(config: Config, site: Site) -> None:
    site["/a"] = hidden("words", 1)
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"] = hidden("words", 2)
    assert dict(run(config).fobis) == {"cosmetic": 1}
    assert len(histories(config)[site.url("/a")]) == 1
    assert bytes_now(config, site.url("/a")) == hidden("words", 1).body
    site["/a"] = Answer(500)
    assert dict(run(config).fobis) == {"server-error": 1}
    site["/a"] = Answer(304)
    for _ in range(2):  # it is about bytes that are not held
        assert dict(run(config).fobis) == {"cosmetic": 1}
        assert site.asked[-1][1]["if-none-match"] == '"2"'
    site["/a"] = hidden("words", 1)
    assert dict(run(config).fobis) == {"same": 1}
    site["/a"] = Answer(304)
    assert dict(run(config).fobis) == {"not-modified": 1}
    site["/a"] = hidden("other words", 3)
    assert dict(run(config).fobis) == {"changed": 1}
    check(config)


def test_cosmetic_stored_where_it_is_asked_for(config: Config, site: Site) -> None:
    site["/a"] = hidden("words", 1)
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"] = hidden("words", 2)
    run(config)
    config = change(config, {"store_cosmetic": True})
    assert dict(run(config).fobis) == {"cosmetic": 1}
    assert len(histories(config)[site.url("/a")]) == 2
    assert bytes_now(config, site.url("/a")) == hidden("words", 2).body
    check(config)


def test_a_cosmetic_change_behind_a_redirect(config: Config, site: Site) -> None:
    site["/r"], site["/a"] = moved("/a"), hidden("words", 1)
    write_papers(config, [site.url("/r")])
    run(config)
    site["/a"] = hidden("words", 2)
    assert dict(run(config).fobis) == {"cosmetic": 2}
    site["/a"] = Answer(304)
    assert dict(run(config).fobis) == {"cosmetic": 2}
    assert [len(history) for history in histories(config).values()] == [1, 1, 1]
    check(config)


def test_a_page_in_place_of_a_pdf(config: Config, site: Site) -> None:
    site["/a"], site["/b"] = pdf("one"), pdf("two")
    write_papers(config, [site.url("/a"), site.url("/b")])
    run(config)
    site["/a"], site["/b"] = page("Please log in"), Answer(200, b"", {"Content-Type": "application/pdf"})
    assert dict(run(config).fobis) == {"changed": 2, "suspect": 2}
    notes = [obi_of(config, site.url(path)).notes for path in ("/a", "/b")]
    assert [note[max(note)].suspect for note in notes] == ["page instead of PDF", "empty"]
    assert bytes_now(config, site.url("/b")) == b""
    check(config)


def test_conditional_requests(config: Config, site: Site) -> None:
    site["/a"] = pdf("one", **{"ETag": '"x"', "Last-Modified": "Fri, 01 May 2009 12:00:00 GMT"})
    site["/b"] = moved("/a")
    write_papers(config, [site.url("/a"), site.url("/b")])
    run(config)
    assert not any("if-none-match" in headers for _, headers in site.asked)
    site.forget()
    assert dict(run(config).fobis) == {"not-modified": 2}
    sent = dict(site.asked)
    assert sent["/a"]["if-none-match"] == '"x"'
    assert sent["/a"]["if-modified-since"] == "Fri, 01 May 2009 12:00:00 GMT"
    assert "if-none-match" not in sent["/b"]
    check(config)


def test_304_that_nobody_asked_for(config: Config, site: Site) -> None:
    site["/a"] = Answer(304)
    write_papers(config, [site.url("/a")])
    assert dict(run(config).fobis) == {"server-error": 1}


# -- hosts --------------------------------------------------------------------------------------------


def recovering(faults: int) -> Callable[[int], Answer]:
    """The behaviour of a host that has this number of faults, and then is well."""
    left = iter([page("sick", 500)] * faults)
    return lambda before: next(left, pdf("well"))


def test_a_host_that_is_given_up_gets_a_second_chance(config: Config, site: Site) -> None:
    """Five faults in a row, then all is well: one run visits everything that was put off."""
    config = change(config, {"fetch.host_failures": 5, "fetch.per_host": 1})
    answer = recovering(5)
    for n in range(30):
        site[f"/{n}"] = answer
    write_papers(config, [site.url(f"/{n}") for n in range(30)])
    report = run(config)
    assert report.fobis["new"] >= 26
    assert set(report.fobis) == {"new", "server-error", "suspect"}
    assert report.fobis["new"] + report.fobis["server-error"] == 30
    check(config)


def test_a_second_chance_for_a_target_behind_redirects(config: Config) -> None:
    """The one who redirects is well, the host of the targets is given up and recovers."""
    with Site() as good, Site("127.0.0.2") as bad:
        config = change(config, {"fetch.host_failures": 3, "fetch.per_host": 1})
        answer = recovering(3)
        for n in range(12):
            good[f"/{n}"] = moved(bad.url(f"/{n}"))
            bad[f"/{n}"] = answer
        write_papers(config, [good.url(f"/{n}") for n in range(12)] + [bad.url(f"/{n}") for n in range(6)])
        report = run(config)
        found = outcomes(config)
        assert sum(found[good.url(f"/{n}")] == "new" for n in range(12)) >= 9, report.fobis
        assert all(found.values())
        check(config)


def test_a_network_that_goes_down_while_many_wait_behind_redirects(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a host may have at the fetchers waits for targets whose host is silent; some of these are due, too."""
    monkeypatch.setattr(host_waits, "_NETWORK", -1.0)  # no answer is recent enough to prove that the network is up
    with Site("127.0.0.2") as bad:
        targets = [bad.url(f"/{n}") for n in range(150)]
    with Site() as good:
        for n, target in enumerate(targets):
            good[f"/{n}"] = moved(target)
        write_papers(config, [good.url(f"/{n}") for n in range(150)] + targets)
        report = run(config)
        assert (report.state, report.deferred.total(), dict(report.fobis)) == ("done", 300, {})


def test_a_host_that_stays_down_waits_for_the_next_run(config: Config, site: Site) -> None:
    config = change(config, {"fetch.host_failures": 2, "fetch.per_host": 1})
    write_papers(config, site.fill(10, page("sick", 500)))
    report = run(config)
    assert report.deferred.total()
    assert sum(report.fobis.values()) == 10
    assert all(outcomes(config).values())
    for n in range(10):
        site[f"/{n}"] = pdf("well")
    assert run(config).fobis["new"] >= 8, "those put off are due at once"


def test_the_server_restarts_between_runs(config: Config, site: Site) -> None:
    write_papers(config, site.fill(5))
    run(config)
    site.stop()
    site.start()
    assert dict(run(config).fobis) == {"same": 5}


def test_bad_urls_are_counted_with_their_handles(config: Config, site: Site) -> None:
    site["/a"] = pdf("one")
    write_papers(config, [site.url("/a"), "file:///C:/x.pdf", "hhttp://x/", "http://127.0.0.1:99999/", "ftp:/x"])
    report = run(config)
    assert report.problem_counts["bad-url"] == 4
    assert all("RePEc:aaa:sss:" in problem.message for problem in report.problems)
    assert dict(report.fobis) == {"new": 1}


@pytest.mark.parametrize(
    "location",
    ["/Working Papers/2024 01.pdf", " \t/Working Papers\\2024 01.pdf ", "/Working%20Papers/x/..\\2024%2001.pdf#page=2"],
)
def test_a_sloppy_location_is_followed_to_the_file(config: Config, site: Site, location: str) -> None:
    site["/a"], site["/Working%20Papers/2024%2001.pdf"] = moved(location), pdf("there")
    write_papers(config, [site.url("/a")])
    assert dict(run(config).fobis) == {"new": 2}
    assert bytes_now(config, site.url("/a")) == pdf("there").body
    assert site.url("/Working%20Papers/2024%2001.pdf") in histories(config)
