"""What a run concludes from what servers say, and from what they do not say: only what is true."""

from __future__ import annotations

import json

import pytest
from gather_site import Answer, Site, moved, page, pdf
from gather_support import (
    archec_inline,
    catalogue_of,
    change,
    check,
    histories,
    lines,
    obi_of,
    outcomes,
    run,
    write_papers,
)
from msgspec.structs import replace

from archec.archive.budget import Budget
from archec.archive.file_loss import loss_of
from archec.catalogue.journal_lines import fold_obi
from archec.catalogue.model import Note, Obi, Version, Visit
from archec.config import Config, FetchConfig
from archec.gather.host_waits import HostTable
from archec.gather.operator_decisions import retract_visits
from archec.gather.run import Options, dry_run
from archec.gather.visits import contradicts, doubtful
from archec.history import History
from archec.progress import Meter
from archec.web.outcome import Hop, Outcome
from archec.web.pool import FetchPool

DAY = 86400
CLOSED = ["http://127.0.0.7:9/x", "http://127.0.0.8:9/x", "http://127.0.0.9:9/x"]
"""URLs of hosts that nobody answers for."""


def suspects(config: Config) -> dict[str, str]:
    """Why the newest contents of each file are suspect."""
    with catalogue_of(config) as catalogue:
        return {one.id: one.notes[one.history.tists[-1]].suspect for one in catalogue.all("fobi") if one.history}


def hosts(config: Config) -> list[dict[str, object]]:
    found = (json.loads(line) for line in lines(config, everything=True))
    return [line for line in found if line["collection"] == "hosts"]


# -- hosts that ask for time, or fail -----------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_binds_the_host(config: Config, site: Site, status: int) -> None:
    """In the second pass of the same run, in the next run, after a rebuild."""
    busy = page("busy", status, **{"Retry-After": "86400"})
    write_papers(config, site.fill(8, busy))
    report = run(config)
    asked = len(site.asked)
    assert asked <= config.fetch.per_host
    assert report.deferred.total() == 8
    (state,) = hosts(config)
    assert state["id"] == site.url("/").split("/")[2]
    assert 86000 < int(str(state["until"])) - report.run <= 86460
    for _ in range(2):
        report = run(config)
        assert (len(site.asked), report.requests, report.deferred.total()) == (asked, 0, 8)
    assert archec_inline(config, "rebuild").code == 0
    run(config)
    assert len(site.asked) == asked
    check(config)


def test_retry_after_of_robots_txt_binds_the_host(config: Config, site: Site) -> None:
    """By its answer's own date, whatever the clock here says."""
    config = change(config, {"fetch.robots": "obey"})
    dates = {"Date": "Thu, 01 Jan 2037 00:00:00 GMT", "Retry-After": "Sat, 03 Jan 2037 00:00:00 GMT"}
    site["/robots.txt"] = page("busy", 503, **dates)
    write_papers(config, [site.url(f"/{n}") for n in range(8)])
    for _ in range(2):
        report = run(config)
        assert ([path for path, _ in site.asked], report.deferred.total()) == (["/robots.txt"], 8)
    (state,) = hosts(config)
    assert abs(int(str(state["until"])) - report.run - 2 * DAY) < 60
    check(config)


def test_nobody_binds_a_host_for_longer_than_a_month(config: Config, site: Site) -> None:
    site["/a"] = page("busy", 503, **{"Retry-After": "99999999"})
    write_papers(config, [site.url("/a")])
    report = run(config)
    (state,) = hosts(config)
    assert 29 * DAY < int(str(state["until"])) - report.run <= 30 * DAY + 60


def test_a_redirect_to_a_host_that_asked_for_time(config: Config, site: Site) -> None:
    with Site("127.0.0.2") as other:
        site["/a"], other["/b"] = page("busy", 503, **{"Retry-After": "86400"}), moved(site.url("/c"))
        write_papers(config, [site.url("/a")])
        run(config)
        write_papers(config, [site.url("/a"), other.url("/b")])
        report = run(config)
        assert (site.count("/c"), report.deferred.total(), dict(report.fobis)) == (0, 2, {})


def test_a_host_that_fails_again_and_again_waits_longer(config: Config, site: Site) -> None:
    config = change(config, {"fetch.revisit_min": "7d", "fetch.host_failures": 3, "fetch.per_host": 1})
    with Site("127.0.0.2") as other:
        other["/well"] = pdf("well")
        write_papers(config, [*site.fill(20, page("sick", 500)), other.url("/well")])
        report = run(config)
        (state,) = hosts(config)
        assert (state["fails"], int(str(state["until"])) - report.run >= DAY // 2) == (1, True)
        asked = len(site.asked)
        run(config)
        assert len(site.asked) == asked, "it waits for half a day"
    check(config)


def test_a_host_that_has_recovered_is_forgotten(config: Config, site: Site) -> None:
    config = change(config, {"fetch.host_failures": 3, "fetch.per_host": 1})
    write_papers(config, site.fill(10, page("sick", 500)))
    run(config)
    assert [state["fails"] for state in hosts(config)] == [1]
    site.forget()
    run(config)
    assert len(site.asked) <= 2, "one fault is enough in each of the two passes"
    assert [state["fails"] for state in hosts(config)] == [2]
    for n in range(10):
        site[f"/{n}"] = pdf(f"well {n}")
    assert run(config).fobis["new"] == 10
    assert hosts(config) == []
    check(config)


# -- the network --------------------------------------------------------------------------------------


def test_no_network_at_all(config: Config) -> None:
    """An address that is refused is no answer, either."""
    write_papers(config, [*CLOSED, "http://10.0.0.1/x"])
    done = archec_inline(config, "gather")
    assert done.code == 9, done.err
    line = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
    assert (line["state"], line["message"].partition(":")[0]) == ("network-down", "no host answered")
    assert {outcome for url, outcome in outcomes(config).items() if url in CLOSED} == {""}
    assert hosts(config) == []
    assert b"network-down" in archec_inline(config, "runs").out
    check(config)


def test_one_host_that_answers_speaks_against_the_others(config: Config, site: Site) -> None:
    site["/a"] = pdf("a")
    write_papers(config, [*CLOSED, site.url("/a")])
    report = run(config)
    assert (report.state, dict(report.fobis)) == ("done", {"unreachable": 3, "new": 1})
    check(config)


def test_a_partial_outage(config: Config, site: Site) -> None:
    """A host that answered, and then nobody does: that it does not any more may be the network's fault."""
    config = change(config, {"fetch.per_host": 1})
    site["/0"] = pdf("the last that came")
    site.answers.update({f"/{n}": Answer(fault="reset") for n in range(1, 4)})
    write_papers(config, [site.url(f"/{n}") for n in range(4)])
    report = run(config)
    assert (report.state, dict(report.fobis), report.deferred.total()) == ("done", {"new": 1}, 3)
    write_papers(config, [*(site.url(f"/{n}") for n in range(4)), CLOSED[0]])
    report = run(config)
    assert dict(report.fobis) == {"same": 1, "unreachable": 1}, "of the other host"
    with Site("127.0.0.2") as other:
        other["/a"] = pdf("a")
        write_papers(config, [*(site.url(f"/{n}") for n in range(4)), other.url("/a")])
        assert dict(run(config).fobis) == {"same": 1, "new": 1, "unreachable": 4, "unnamed": 1}
    check(config)


def test_an_answer_speaks_for_the_network_for_five_minutes() -> None:
    now = 0.0
    table = HostTable(FetchConfig(), (), 1, 0.0, lambda: now)
    table.heard(Hop("http://a/1", "body", status=200))
    assert (table.has_network("http://a/2"), table.has_network("http://b/")) == (False, True)
    now = 300.0
    assert table.has_network("http://b/")
    now = 301.0
    assert not table.has_network("http://b/")
    for host in "abb":
        table.heard(Hop(f"http://{host}/1", "not-modified", Outcome.NOT_MODIFIED, 304))
    assert all(table.has_network(f"http://{host}/") for host in "abc")
    table.heard(Hop("http://c/1", "failed", Outcome.UNREACHABLE))
    assert all(table.has_network(f"http://{host}/") for host in "abc")


def test_two_hosts_are_no_evidence(config: Config) -> None:
    write_papers(config, CLOSED[:2])
    report = run(config)
    assert (report.state, dict(report.fobis), report.deferred) == ("done", {}, {"unreachable": 2})
    assert json.loads(archec_inline(config, "status", "--json").out)["success"] is None
    assert b"no host answered" in archec_inline(config, "status").out
    assert run(config, fetch=False).state == "done"
    assert json.loads(archec_inline(config, "status", "--json").out)["success"] > report.run


def test_deferred_files_are_told_of_wherever_a_run_is(config: Config, site: Site) -> None:
    site["/a"] = Answer(fault="reset")
    write_papers(config, [CLOSED[0], site.url("/a")])
    done = archec_inline(config, "gather")
    line = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
    assert (line["state"], line["deferred"], line["reasons"]) == ("done", 2, {"unreachable": 2})
    told = "2 files, for the next run to try: 2 unreachable"
    at_host = f"{CLOSED[0].split('/')[2]}: no visits, 1 deferred (1 unreachable)"
    for words, wanted in (
        (["runs", "last"], [f"deferred    {told}", "fetched     ", "2 in trouble, 0 visited; ", at_host]),
        (["status"], [f"deferred {told}", "2 in trouble in run", at_host]),
    ):
        text = archec_inline(config, *words).out.decode()
        assert all(one in text for one in wanted), text
    assert f"deferred    {told}" in done.out.decode()
    fetch = json.loads(archec_inline(config, "runs", "last", "--json").out)["report"]["fetch"]
    assert (fetch["deferred"], fetch["reasons"], fetch["requests"] > 0) == (2, {"unreachable": 2}, True)


# -- what a server says of a file ---------------------------------------------------------------------


def not_modified(**headers: str) -> Answer:
    return Answer(304, headers=headers)


def test_a_304_that_contradicts_what_is_held(config: Config, site: Site) -> None:
    first, second = "Sat, 01 Jan 2000 00:00:00 GMT", "Sun, 02 Jan 2000 00:00:00 GMT"
    believed: list[dict[str, str]] = [
        {}, {"ETag": '"one"'}, {"ETag": 'W/"two"'}, {"ETag": '"one-gzip"'}, {"Last-Modified": first}
    ]  # fmt: skip
    told = dict(enumerate([*believed, {"ETag": '"two"'}, {"Last-Modified": second}]))
    write_papers(config, site.fill(len(told), Answer(200, b"first", {"ETag": '"one"', "Last-Modified": first})))
    run(config)
    for number, headers in told.items():
        answers = [not_modified(**headers), Answer(200, b"second", {"ETag": '"two"'})]
        site[f"/{number}"] = lambda before, answers=answers: answers[before - 1]
    run(config)
    found = outcomes(config)
    for number in told:
        is_believed = number < len(believed)
        assert found[site.url(f"/{number}")] == ("not-modified" if is_believed else "changed"), told[number]
        *_, last = (headers for path, headers in site.asked if path == f"/{number}")
        assert site.count(f"/{number}") == (2 if is_believed else 3)
        assert ("if-none-match" in last) == is_believed
    check(config)


def test_a_304_is_not_believed_for_ever(config: Config, site: Site) -> None:
    site["/a"] = Answer(200, b"first", {"ETag": '"one"'})
    write_papers(config, [site.url("/a")])
    run(config)
    assert dict(run(config).fobis) == {"not-modified": 1}
    config = change(config, {"fetch.reverify": "0s"})
    site["/a"] = Answer(200, b"second", {"ETag": '"one"'})
    assert dict(run(config).fobis) == {"changed": 1}
    check(config)


def test_the_same_page_under_many_urls_is_suspect(config: Config, site: Site) -> None:
    for n in range(7):
        site[f"/{n}"] = page("Sorry, nothing here")
    site["/well"], site["/x"] = page("Well"), moved("/well")
    write_papers(config, [site.url(f"/{n}") for n in range(7)] + [site.url("/well"), site.url("/x")])
    report = run(config)
    found = suspects(config)
    assert {url for url, why in found.items() if why} == {site.url(f"/{n}") for n in range(7)}
    assert report.fobis["suspect"] == 7
    site["/8"] = page("Sorry, nothing here")
    write_papers(config, [site.url(f"/{n}") for n in range(7)] + [site.url("/8")])
    run(config)
    assert suspects(config)[site.url("/8")]
    check(config)


def test_many_that_redirect_to_one_page_are_suspect(config: Config, site: Site) -> None:
    for n in range(6):
        site[f"/{n}"] = moved("/home")
    site["/home"] = page("Welcome")
    write_papers(config, [site.url(f"/{n}") for n in range(6)])
    run(config)
    assert all(suspects(config)[site.url(f"/{n}")] for n in range(6))
    check(config)


def test_a_chain_of_redirects_is_one_url_with_its_body(config: Config, site: Site) -> None:
    """In the run that finds it, in one that finds a longer one, and when its body changes."""
    for n in range(6):
        site[f"/{n}"] = moved(f"/{n + 1}")
    site["/6"], site["/first"] = page("A paper"), moved("/0")
    for first, text in (("/0", "A paper"), ("/first", "A paper"), ("/first", "Another")):
        site["/6"] = page(text)
        write_papers(config, [site.url(first)])
        assert "suspect" not in run(config).fobis
    assert len(suspects(config)) == 8
    named = [site.url("/first"), *(site.url(f"/own{n}") for n in range(4))]
    for url in named[1:]:
        site["/" + url.rpartition("/")[2]] = page("Another")
    write_papers(config, named)
    run(config)
    assert {url for url, why in suspects(config).items() if why} == set(named)
    check(config)


def test_a_login_page_is_suspect(config: Config, site: Site) -> None:
    form = '<form><input name="u"><INPUT name="p" type = "password"></form>'
    site["/a"], site["/b"] = page(form), page("a password is not needed")
    write_papers(config, [site.url("/a"), site.url("/b")])
    run(config)
    assert suspects(config) == {site.url("/a"): "login page", site.url("/b"): ""}


@pytest.mark.parametrize("obey", [False, True])
def test_noarchive(config: Config, site: Site, obey: bool) -> None:
    config = change(config, {"fetch.robots_tags": "obey" if obey else "record"})
    site["/header"] = pdf("a", **{"X-Robots-Tag": "noindex, noarchive"})
    site["/other"] = pdf("b", **{"X-Robots-Tag": "googlebot: noarchive"})
    site["/meta"] = page('<head><meta content="noarchive,nofollow" name="robots"></head>')
    site["/plain"] = page("noarchive is a word")
    site["/to"] = moved("/header")
    urls = {name: site.url(f"/{name}") for name in ("header", "other", "meta", "plain", "to")}
    write_papers(config, list(urls.values()))
    run(config)
    found = outcomes(config)
    said = [url for url in urls.values() if (visit := obi_of(config, url).visit) is not None and visit.tags]
    assert {urls["header"], urls["meta"]} <= set(said) <= {urls["header"], urls["meta"], urls["to"]}
    expected = {"header", "meta", "to"} if obey else set()
    assert {name for name, url in urls.items() if found[url] == "robots"} == expected
    assert {name for name, url in urls.items() if url in histories(config)} == set(urls) - expected
    check(config)


def test_what_is_denied_is_not_asked_for(config: Config, site: Site) -> None:
    site["/a"], site["/private/b"], site["/to"] = pdf("a"), pdf("b"), moved("/private/b")
    write_papers(config, [site.url("/a"), site.url("/private/b"), site.url("/to")])
    config = change(config, {"fetch.deny": [{"urls": ["*/private/*"], "reason": "asked by mail"}]})
    run(config)
    found = outcomes(config)
    assert [found[site.url(path)] for path in ("/a", "/private/b", "/to")] == ["new", "denied", "denied"]
    visit = obi_of(config, site.url("/private/b")).visit
    assert visit is not None
    assert visit.message == "asked by mail"
    assert site.count("/private/b") == 0
    config = change(config, {"fetch.deny": [{"networks": ["127.0.0.0/24"], "reason": "theirs"}]})
    site.forget()
    mapped, nat64 = (site.url("/a").replace("127.0.0.1", f"[{prefix}7f00:1]") for prefix in ("::ffff:", "64:ff9b::"))
    write_papers(config, [site.url("/a"), site.url("/private/b"), site.url("/to"), mapped, nat64])
    run(config)
    assert set(outcomes(config).values()) == {"denied"}
    assert not site.asked
    assert site.url("/a") in histories(config), "held is held"
    check(config)


def test_what_other_settings_may_not_refuse_is_due_at_once(config: Config, site: Site) -> None:
    later: dict[str, object] = {"fetch.revisit_min": "1d", "fetch.revisit_max": "1d"}
    site["/a"], site["/b"] = pdf("a"), pdf("b")
    write_papers(config, [site.url("/a"), site.url("/b")])
    denied = change(config, {**later, "fetch.deny": [{"urls": ["*/b"]}]})
    assert [dict(run(denied).fobis) for _ in range(2)] == [{"new": 1, "denied": 1}, {}]
    config = change(config, later)
    assert dry_run(config, Options(), Meter()).fobis["due"] == 1
    assert [dict(run(config).fobis) for _ in range(2)] == [{"new": 1}, {}]


# -- URLs that no template names any more ------------------------------------------------------------


@pytest.mark.parametrize("names", [1, 60])
def test_what_no_template_names_is_visited_less_and_less(config: Config, site: Site, names: int) -> None:
    """However many named it once."""
    config = change(config, {"fetch.revisit_max": "365d"})
    site["/a"], site["/b"] = pdf("a"), pdf("b")
    write_papers(config, [site.url("/a"), *names * [site.url("/b")]])
    run(config)
    write_papers(config, [site.url("/a"), *names * [site.url("/other")]])
    assert run(config).fobis["unnamed"] == 1
    a, b = obi_of(config, site.url("/a")), obi_of(config, site.url("/b"))
    assert a.visit is not None
    assert b.visit is not None
    assert (a.visit.unnamed, b.visit.unnamed) == (0, 1)
    assert b.due - b.visit.tist == 2 * (a.due - a.visit.tist)
    assert b"no template mentions it" in archec_inline(config, "history", site.url("/b")).out


# -- losses of a host ---------------------------------------------------------------------------------


def test_losses_of_a_host_are_held_back(config: Config, site: Site) -> None:
    urls = site.fill(10)
    host = urls[0].split("/")[2]
    write_papers(config, urls)
    run(config)
    site.drop(9)
    config = change(config, {"max_loss_least": 5})
    *_, before, report = (run(config) for _ in range(3))
    assert (report.state, report.held_back, report.fobis["lost"]) == ("held-back", {host: 9}, 0)
    assert all(histories(config)[url] for url in urls)
    assert None not in {state for url in urls for state in histories(config)[url].values()}
    check(config)
    retract_visits(config, report.run, "the host was moved")
    listed = archec_inline(config, "losses").out.decode().splitlines()
    assert [line.split()[:3] for line in listed] == [[str(before.run), host, url] for url in urls[:9]]
    retract_visits(config, report.run, "", undo=True)
    listed = archec_inline(config, "losses").out.decode().splitlines()
    assert [line.split()[:3] for line in listed] == [[str(report.run), host, url] for url in urls[:9]]
    done = archec_inline(config, "losses", "accept", report.run, urls[0])
    assert done.code == 0, done.err
    assert [None in histories(config)[url].values() for url in urls] == [True] + 9 * [False]
    assert len(archec_inline(config, "losses").out.splitlines()) == 8
    assert archec_inline(config, "losses", "accept", report.run, host).code == 0
    assert sum(None in histories(config)[url].values() for url in urls) == 9
    assert archec_inline(config, "losses").out == b""
    check(config)


@pytest.mark.parametrize("command", ["losses accept", "gather --accept-losses all"])
def test_losses_of_templates_and_of_files_are_accepted_together(config: Config, site: Site, command: str) -> None:
    """Also where no file is due."""
    config = change(config, {"lost_confirmations": 1, "text.enabled": False})
    urls = site.fill(6)
    write_papers(config, urls)
    run(config)
    site.drop(4)
    write_papers(config, urls[:2])
    later = {"lost_confirmations": 1, "text.enabled": False, "fetch.revisit_min": "9d", "fetch.revisit_max": "9d"}
    config = change(config, later)
    held_back = run(config)
    assert set(held_back.held_back.values()) == {4}
    if command.startswith("gather"):
        assert archec_inline(config, *command.split(), "--json").code == 0
    else:
        assert b"8 losses accepted" in archec_inline(config, *command.split(), held_back.run).out
    assert archec_inline(config, "losses").out == b""
    assert sum(None in history.values() for history in histories(config).values()) == 8
    check(config)


@pytest.mark.parametrize("accept", [False, True])
def test_a_run_that_visits_part_of_a_host(config: Config, site: Site, *, accept: bool) -> None:
    """What it did not visit is held back as before, or accepted as well; what is back is not held back."""
    config = change(config, {"lost_confirmations": 1, "text.enabled": False})
    urls = site.fill(6)
    host = urls[0].split("/")[2]
    write_papers(config, urls)
    run(config)
    site.drop(6)
    assert run(config).held_back == {host: 6}
    site["/0"] = pdf("0")
    part = run(config, budget=Budget(files=2), accept=[host] if accept else [])
    assert (part.held_back, part.fobis["lost"]) == (({}, 5) if accept else ({host: 5}, 0))
    listed = [line.split()[:3] for line in archec_inline(config, "losses").out.decode().splitlines()]
    assert listed == ([] if accept else [[str(part.run), host, url] for url in urls[1:]])
    check(config)


def test_losses_of_a_host_are_let_through_by_a_gather(config: Config, site: Site) -> None:
    urls = site.fill(4)
    write_papers(config, urls)
    run(config)
    site.drop(3)
    run(config)
    held_back = run(config)
    assert sum(held_back.held_back.values()) == 3
    site["/2"] = pdf("2")
    run(config)
    done = archec_inline(config, "losses", "accept", held_back.run)
    assert done.code == 7, "a later run has decided again"
    done = archec_inline(config, "gather", "--accept-losses", urls[0].split("/")[2])
    assert done.code == 0, done.err
    assert [None in histories(config)[url].values() for url in urls] == [True, True, False, False]
    assert archec_inline(config, "losses").out == b""
    check(config)


def test_a_single_file_of_a_host_is_lost_as_ever(config: Config, site: Site) -> None:
    write_papers(config, site.fill(10))
    run(config)
    del site.answers["/3"]
    run(config)
    report = run(config)
    assert (report.state, report.fobis["lost"]) == ("done", 1)
    check(config)


# -- connections that are out of step ------------------------------------------------------------------


def test_doubtful_answers_conclude_nothing(config: Config, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetchers take back what they have said of a file, when its visit is over already."""
    config = change(config, {"text.enabled": False})
    site["/a"], site["/to"], site["/late"] = pdf("a"), moved("/a"), pdf("late")
    write_papers(config, [site.url("/a"), site.url("/to")])
    run(config)
    before = histories(config)
    site["/a"] = pdf("what another request has asked for")
    write_papers(config, [site.url("/a"), site.url("/to"), site.url("/late")])
    collect = FetchPool.collect
    waited_for = {site.url("/a"), site.url("/to")}

    def collecting(self: FetchPool, timeout: float) -> list[Hop]:
        hops, waiting = collect(self, timeout), bool(waited_for)
        waited_for.difference_update(hop.url for hop in hops)
        return [*hops, Hop(site.url("/a"), "doubtful")] if waiting and not waited_for else hops

    with monkeypatch.context() as patch:
        patch.setattr(FetchPool, "collect", collecting)
        run(config)
    found = outcomes(config)
    assert [found[site.url(path)] for path in ("/a", "/to", "/late")] == ["doubtful", "doubtful", "new"]
    assert {url: history for url, history in histories(config).items() if url in before} == before
    check(config)
    site["/a"] = pdf("a")
    report = run(config)
    assert dict(report.fobis) == {"same": 3}, "they were due at once"
    check(config)


# -- rules that need no run ----------------------------------------------------------------------------


def test_the_length_that_a_304_tells() -> None:
    version = Version("0" * 64, "0" * 32, 7)
    for length, contradicted in (("7", False), ("0", False), ("", False), ("8", True), ("x", False)):
        hop = Hop("http://h/", "not-modified", headers=(("content-length", length),))
        assert contradicts(hop, Visit(1, "new"), version) is contradicted
    packed = Hop("http://h/", "not-modified", headers=(("content-length", "8"), ("content-encoding", "gzip")))
    assert not contradicts(packed, Visit(1, "new"), version)


def test_a_doubtful_answer_concludes_nothing() -> None:
    """What the run noted goes, whatever it was; what came before stays."""
    states = {5: "a" * 64, 9: "b" * 64}
    notes = {5: Note(5, "new"), 9: Note(9, "changed")}
    known = Obi("http://h/", "fobi", History.of(states), notes=notes, visit=Visit(9, "changed", etag='"x"'))
    after = fold_obi(known, doubtful(known, "out of step"), 1)
    assert after.history.as_dict() == {5: "a" * 64}
    assert (after.due, after.visit) == (1, Visit(9, "doubtful", message="out of step"))
    gone = replace(known, visit=Visit(9, "gone", gone_since=3, gone=2))
    assert loss_of(Config(lost_grace=0.0), replace(gone, visit=fold_obi(gone, doubtful(gone, ""), 1).visit), 9) is None
