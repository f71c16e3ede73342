"""Retraction of a run's visits: histories of files are those of an archive that did not make them."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from gather_site import Answer, Site, moved, page, pdf
from gather_support import archec_inline, change, check, histories, lines, make, obi_of, run, until, write_papers

from archec.catalogue.model import Visit
from archec.config import Config
from archec.errors import NotHeld, UsageError
from archec.gather.operator_decisions import retract_visits
from archec.store import durable

REASON = "a login page answered for every host"


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder(), {"text.enabled": False})


def files(config: Config) -> dict[str, dict[int, str | None]]:
    return {obi: history for obi, history in histories(config).items() if obi.startswith("http")}


def known(config: Config) -> list[dict[str, object]]:
    """All that the catalogue says, but for when it was said, and by which runs: also what is known of hosts, what is
    held back, what is due."""
    values = (json.loads(line) for line in lines(config, everything=True))
    return [
        {key: value for key, value in one.items() if key != "stamp"}
        for one in values if one["collection"] not in ("runs", "state")
    ]  # fmt: skip


def visit(config: Config, url: str) -> Visit:
    found = obi_of(config, url).visit
    assert found is not None
    return found


def test_a_captive_portal(config: Config, site: Site) -> None:
    """What it showed is forgotten, also what was known of hosts; the files are due at once; undone, it is back."""
    site["/a"], site["/b"], site["/to"], site["/new"] = pdf("a", ETag='"a"'), pdf("b"), moved("/b"), page("down", 503)
    with Site("127.0.0.2") as other:
        other["/c"] = pdf("c")
        write_papers(config, [*(site.url(path) for path in ("/a", "/b", "/to", "/new")), other.url("/c")])
        first = run(config).run
        before = files(config)
        site["/a"] = site["/b"] = site["/new"] = page("please log in", ETag='"portal"')
        other["/c"] = page("busy", 429, **{"Retry-After": "3600"})
        portal = run(config).run
        portalled = known(config)
        assert [one["id"] for one in portalled if one["collection"] == "hosts"] == [other.url("").split("/")[2]]
        retraction, withdrawn = retract_visits(config, portal, REASON)
        assert withdrawn == (4, 4)
        assert files(config) == before
        check(config)
        retracted = known(config)
        assert until(lambda: time.time() > retraction + 1), "tists are ahead of the clock if runs follow at once"
        shown = [archec_inline(config, *words).out.decode() for words in (["history", site.url("/a")], ["status"])]
        assert "; due now" in shown[0]
        assert "due           5 files now\n" in shown[1]
        assert retract_visits(config, portal, "it was none", undo=True)[1] == (0, 4)
        assert known(config) == portalled
        retract_visits(config, portal, REASON)
        assert known(config) == retracted
        site["/a"], site["/b"], site["/new"], other["/c"] = pdf("a", ETag='"a"'), pdf("b"), pdf("new"), pdf("c")
        patient = change(config, {"fetch.revisit_min": "30d", "text.enabled": False})
        assert dict(run(patient).fobis) == {"new": 1, "same": 3, "not-modified": 1}
        assert dict(site.asked)["/a"]["if-none-match"] == '"a"', "what the portal sent is no validator"
    check(config)
    assert f"its visits do not count: {REASON}" in archec_inline(config, "runs", portal).out.decode()
    unfetched = run(config, fetch=False).run
    refused = (
        (portal, False, "are retracted"), (first, True, "are not"), (retraction, False, "of the kind retract"),
        (unfetched, False, "visited no files"), (unfetched + 1, False, "no run"),
    )  # fmt: skip
    for wanted, undo, message in refused:
        with pytest.raises((UsageError, NotHeld), match=message):
            retract_visits(config, wanted, REASON, undo=undo)
    assert archec_inline(config, "retract", unfetched, "--visits", "--reason", REASON).code == 2
    for command in ("verify", "check"):
        done = archec_inline(config, command)
        assert done.code == 0, done.out


def test_held_back_losses_that_rest_on_it(config: Config, site: Site) -> None:
    """Also those that a later run holds back are withdrawn, and are back when it is undone."""
    write_papers(config, site.fill(3))
    run(config)
    site.drop(3)
    gone = run(config).run
    report = run(config)
    assert (set(report.held_back.values()), report.tobis["held_back"]) == ({3}, 0), "none of them is a template's"
    before = known(config)
    retract_visits(config, gone, REASON)
    assert archec_inline(config, "losses").out == b""
    check(config)
    retract_visits(config, gone, "", undo=True)
    assert known(config) == before


@pytest.mark.slow
def test_a_loss_that_rests_on_it(config: Config, site: Site) -> None:
    site["/a"] = pdf("a")
    write_papers(config, [site.url("/a")])
    run(config)
    before = files(config)
    del site.answers["/a"]
    runs = [run(config).run, run(config).run]
    lost = files(config)
    assert lost[site.url("/a")][runs[0]] is None
    for one in runs:
        retract_visits(config, one, REASON)
        assert files(config) == before
        check(config)
        retract_visits(config, one, "", undo=True)
        assert files(config) == lost
    retract_visits(config, runs[1], REASON)
    third = run(config)
    assert third.fobis["lost"] == 1, "with the first and this visit it is gone twice"
    assert files(config) == lost
    check(config)
    without_the_second = known(config)
    retract_visits(config, runs[1], "", undo=True)
    assert files(config) == lost
    retract_visits(config, runs[1], REASON)
    assert known(config) == without_the_second
    retract_visits(config, third.run, REASON)
    assert files(config) == before, "it was gone once"
    retract_visits(config, third.run, "", undo=True)
    assert known(config) == without_the_second
    retract_visits(config, runs[0], REASON)
    retract_visits(config, runs[1], "", undo=True)
    assert files(config)[site.url("/a")][runs[1]] is None, "the second and the third visit found it gone"
    check(config)


@pytest.mark.slow
def test_what_is_counted_over_visits(config: Config, site: Site) -> None:
    """Visits in a row that came to nothing, without those that do not count, whatever came later."""
    site["/a"] = pdf("a")
    write_papers(config, [site.url("/a")])
    run(config)
    site["/a"] = page("sick", 503)
    first, second = (run(config).run for _ in range(2))
    assert visit(config, site.url("/a")).fails == 2
    retract_visits(config, first, REASON)
    assert visit(config, site.url("/a")).fails == 1
    third = run(config).run
    assert visit(config, site.url("/a")).fails == 2
    retract_visits(config, second, REASON)
    assert (visit(config, site.url("/a")).fails, visit(config, site.url("/a")).tist) == (1, third)
    retract_visits(config, first, "", undo=True)
    assert visit(config, site.url("/a")).fails == 2
    retract_visits(config, third, REASON)
    assert (visit(config, site.url("/a")).fails, visit(config, site.url("/a")).tist) == (1, first)
    check(config)


@pytest.mark.slow
def test_bytes_that_a_later_visit_saw_as_well(config: Config, site: Site) -> None:
    site["/a"], site["/to"] = pdf("a"), moved("/a")
    write_papers(config, [site.url("/a"), site.url("/to")])
    first = run(config).run
    second = run(config).run
    retract_visits(config, first, "its clock was wrong")
    assert [list(history) for history in files(config).values()] == [[second], [second]]
    check(config)
    assert archec_inline(config, "get", site.url("/to")).out == pdf("a").body
    assert archec_inline(config, "history", site.url("/to")).code == 0
    assert archec_inline(config, "check").code == 0
    assert archec_inline(config, "verify").code == 0
    retract_visits(config, second, REASON)
    done = archec_inline(config, "get", site.url("/a"))
    assert (done.code, f"'archec retract {second} --visits --undo'" in done.err) == (7, True)


ANSWERS: dict[str, Answer] = {
    "one": pdf("one", ETag='"1"'), "two": pdf("two"), "portal": page("please log in"), "moved": moved("/target"),
    "gone": page("gone", 410), "sick": page("sick", 503), "busy": page("busy", 429, **{"Retry-After": "1"}),
}  # fmt: skip


@pytest.mark.slow
def test_what_is_counted_over_runs(config: Config, site: Site) -> None:
    """The runs in a row in which a host was given up, without those that do not count."""

    def fails() -> int:
        return sum(int(str(one["fails"])) for one in known(config) if one["collection"] == "hosts")

    config = change(config, {"fetch.host_failures": 1, "text.enabled": False})
    site["/a"] = page("sick", 503)
    write_papers(config, [site.url("/a")])
    first, second = (run(config).run for _ in range(2))
    assert fails() == 2
    retract_visits(config, first, REASON)
    assert fails() == 1
    run(config)
    assert fails() == 2
    retract_visits(config, first, "", undo=True)
    assert fails() == 3
    retract_visits(config, second, REASON)
    assert fails() == 2
    check(config)


def kill_retraction(config: Config, number: int, *, undo: bool, hits: int) -> None:
    child = os.fork()
    if not child:
        try:
            durable.arm("journal.after-append" if hits % 2 else "catalogue.after-write", hits)
            retract_visits(config, number, REASON, undo=undo)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_any_order(config: Config, site: Site, seed: int, request: pytest.FixtureRequest) -> None:
    """Retracted and undone in any order, killed on the way: equal retractions give equal catalogues, and none of them
    what there was before."""
    if seed >= 10:
        config = change(config, {"text.enabled": False, "database": request.getfixturevalue("mongodb_url")})
    chance = random.Random(seed)
    urls = [site.url(f"/{n}") for n in range(4)]
    write_papers(config, urls)
    site["/target"] = pdf("target")
    runs: list[int] = []
    for _ in range(5):
        for n in range(4):
            site[f"/{n}"] = ANSWERS[chance.choice([*ANSWERS])]
        runs.append(run(config, accept=chance.choice([["all"], []])).run)
    dumps = {frozenset[int](): known(config)}
    out: frozenset[int] = frozenset()
    for act in range(8):
        one = chance.choice(runs)
        undo = one in out
        if act % 3 == 2:
            kill_retraction(config, one, undo=undo, hits=chance.randint(1, 4))
        with suppress(UsageError):  # it came so far that this command has completed it
            retract_visits(config, one, REASON, undo=undo)
        out ^= {one}
        assert dumps.setdefault(out, known(config)) == known(config)
    check(config)
    for one in out:
        retract_visits(config, one, "", undo=True)
    assert known(config) == dumps[frozenset()]
    check(config)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1009, 1013))
def test_runs_between_retractions(config: Config, site: Site, seed: int) -> None:
    """What a run concludes while visits of earlier ones do not count is what a retraction concludes from all visits."""
    chance = random.Random(seed)
    write_papers(config, [site.url(f"/{n}") for n in range(3)])
    runs: list[int] = []
    out: set[int] = set()
    for turn in range(6):
        for n in range(3):
            site[f"/{n}"] = ANSWERS[chance.choice([*["gone"] * 5, "one", "two"]) if turn else "one"]
        runs.append(run(config, accept=["all"]).run)
        if chance.random() < 0.6:
            one = chance.choice(runs)
            retract_visits(config, one, REASON, undo=one in out)
            out ^= {one}
    before = known(config)
    for one in runs:
        retract_visits(config, one, REASON, undo=one in out)
        retract_visits(config, one, REASON, undo=one not in out)
        assert known(config) == before
    check(config)
