"""Files from many hosts that misbehave, and a run that is killed: every file held once, every outcome explained."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from failpoint import killed_at
from gather_site import Answer, Site, moved, page, pdf
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    change,
    check,
    histories,
    kill,
    killing,
    lines,
    make,
    marked,
    outcomes,
    resuming,
    run,
    start_cli,
    store_files,
    tarball,
    template,
    temporary_files,
    until,
    workers_of,
    write_papers,
)

from archec.config import Config, FetchConfig
from archec.gather import file_phase
from archec.store.layout import open_layout, tist_path
from archec.web.pool import FetchPool

SETTINGS: dict[str, object] = {
    "fetch.workers": 2,
    "fetch.host_failures": 1000,
    "fetch.concurrency": 16,
    "lost_grace": "7d",
    "fetch.idle_timeout": "2s",
}


class World:
    """Many URLs on many hosts. ``expected`` is what each must come to: a body's sha256, or an outcome."""

    def __init__(self, stack: ExitStack, hosts: int, urls: int) -> None:
        self.sites = [stack.enter_context(Site(f"127.0.0.{n + 1}")) for n in range(hosts)]
        self.urls: list[str] = []
        self.expected: dict[str, str] = {}
        self.bodies: set[str] = set()
        for n in range(urls):
            self._add(n)

    def _add(self, n: int) -> None:
        site, other = self.sites[n % len(self.sites)], self.sites[(n * 7 + 1) % len(self.sites)]
        path, kind = f"/{n}", n % 12
        url = site.url(path)
        body = pdf(f"the {n}th") if n % 2 else page(f"the {n}th")
        sha256 = hashlib.sha256(body.body).hexdigest()
        answer: Answer | Callable[[int], Answer] = body
        found = sha256
        if kind == 0:
            answer = moved(other.url(f"{path}/target"), 302)
            other[f"{path}/target"] = body
            self.expected[other.url(f"{path}/target")] = sha256
        elif kind == 1:
            answer, found = page("gone", 404), "gone"
        elif kind == 2:
            answer = once(Answer(fault="reset"), body)
        elif kind == 3:
            answer = once(page("sick", 500), body)
        elif kind == 4:
            answer = once(Answer(200, body.body[:9], fault="short"), body)
        elif kind == 5:
            answer, found = page("no", 403), "forbidden"
        elif kind == 6:
            answer, found = page("always sick", 500), "server-error"
        elif kind == 7:
            answer, found = moved(path), "redirect-loop"
        site[path] = answer
        self.urls.append(url)
        self.expected[url] = found
        if len(found) == 64:
            self.bodies.add(sha256)

    @property
    def asked(self) -> int:
        return sum(len(site.asked) for site in self.sites)

    def assert_whole(self, config: Config, *, resumed: bool) -> None:
        """Every reachable file is held, once; what is not held has an outcome that says why."""
        known, visits = histories(config), outcomes(config)
        for url, found in self.expected.items():
            if len(found) == 64:
                assert list(known[url].values()) == [found], url
                assert visits[url] in ("new", "same"), url
            else:
                assert url not in known
                assert visits[url] == found, url
        if resumed:
            stored = store_files(open_layout(config.store_path)).values()
            files = Counter(sha256 for sha256 in stored if sha256[0] != "-")
            assert {sha256: files[sha256] for sha256 in self.bodies} == dict.fromkeys(self.bodies, 1)
        check(config)


def once(first: Answer, later: Answer) -> Callable[[int], Answer]:
    return lambda before: later if before else first


def ends_well(config: Config, world: World, seed: int, kills: int, *, resume: bool) -> None:
    """Kills the run at random instants, then lets it finish."""
    chance = random.Random(seed)
    step = len(world.urls) // (kills + 1)
    for _ in range(kills):
        target = world.asked + chance.randrange(1, 2 * step)
        child = start_cli(config, "gather", *resuming(config, wanted=resume))
        until(lambda: child.poll() is not None or world.asked >= target, 60.0)  # noqa: B023
        kill(child)
    done = archec_inline(config, "gather", *resuming(config, wanted=resume))
    assert done.code == 0, done.err
    assert temporary_files(config) == []
    for _ in range(2):
        run(config)
    world.assert_whole(config, resumed=resume)


@pytest.mark.slow
@pytest.mark.parametrize("resume", [True, False])
def test_200_urls_20_hosts(memory_folder: Callable[[], Path], resume: bool) -> None:
    with ExitStack() as stack:
        world = World(stack, 20, 200)
        config = make(memory_folder(), SETTINGS)
        write_papers(config, world.urls)
        ends_well(config, world, 1 + resume, 3, resume=resume)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_2000_urls_20_hosts_10_kills(tmp_path: Path, seed: int) -> None:
    with ExitStack() as stack:
        world = World(stack, 20, 2000)
        config = make(tmp_path / "archive", {**SETTINGS, "fetch.retries": 2})
        write_papers(config, world.urls)
        ends_well(config, world, seed, 10, resume=seed == 1)


POINTS = ["store.mid-rename:80", "store.after-fsync-dir:2", "journal.mid-append:4", "catalogue.before-write:4"]
SOME = [POINTS[0], *(pytest.param(point, marks=pytest.mark.slow) for point in POINTS[1:])]


@pytest.mark.parametrize("point", SOME)
def test_killed_at_a_step_of_the_file_phase(memory_folder: Callable[[], Path], point: str) -> None:
    with ExitStack() as stack:
        world = World(stack, 4, 60)
        config = make(memory_folder(), SETTINGS)
        write_papers(config, world.urls)
        done = archec_cli(config, "gather", env=killed_at(point))
        assert done.code == -signal.SIGKILL, done.err
        done = archec_inline(config, "gather", "--resume")
        assert done.code == 0, done.err
        run(config)
        world.assert_whole(config, resumed=True)


def orphans(config: Config) -> int:
    """What ``archec check`` counts of files that no journal names."""
    done = archec_inline(config, "check", "--json")
    assert done.code == 0, done.err
    return int(json.loads(done.out.splitlines()[-1])["by_code"].get("orphan", 0))


@pytest.mark.parametrize(
    ("number", "point"), [(signal.SIGINT, "store.mid-rename:10"), (signal.SIGTERM, "store.after-fsync-dir:2")]
)
def test_a_signal_between_names_and_journal_waits(
    memory_folder: Callable[[], Path], number: int, point: str, site: Site
) -> None:
    """The commit in progress ends first: nothing on the disk is unknown, and the next run makes nothing twice."""
    bodies = {f"/{n}": pdf(f"the {n}th") for n in range(8)}
    site.answers.update(bodies)
    config = make(memory_folder(), SETTINGS)
    write_papers(config, [site.url(path) for path in bodies])
    done = archec_cli(config, "gather", env=killed_at(f"{point}:{int(number)}"))
    assert done.code == 130, done.err
    assert "interrupted" in done.err
    assert orphans(config) == 0
    assert len(histories(config)) > 8, "the commit came to its end"
    run(config)
    files = Counter(store_files(open_layout(config.store_path)).values())
    assert [files[hashlib.sha256(one.body).hexdigest()] for one in bodies.values()] == [1] * 8
    check(config)


def test_what_a_kill_leaves_is_counted(memory_folder: Callable[[], Path], site: Site) -> None:
    """Where its answers are forgotten: they lie there, and under the next run's tist."""
    site.answers.update({f"/{n}": pdf(f"the {n}th") for n in range(8)})
    config = make(memory_folder(), SETTINGS)
    write_papers(config, [site.url(f"/{n}") for n in range(8)])
    done = archec_cli(config, "gather", env=killed_at("store.after-fsync-dir:2"))
    assert done.code == -signal.SIGKILL, done.err
    (left,) = config.work_path.glob("*.received")
    left.unlink()
    run(config)
    assert orphans(config) == 8
    check(config)


# -- what was placed and not journalled, and is something else when the run carries on ---------------


def placed_but_not_told(config: Config, urls: list[str]) -> None:
    """A run that dies when the files are in their places, before the journal hears of them."""
    write_papers(config, urls)
    archec_inline(config, "gather", "--no-fetch")
    done = archec_cli(config, "gather", env=killed_at("journal.before-append:3"))
    assert done.code == -signal.SIGKILL, done.err


def resumed(config: Config) -> None:
    done = archec_inline(config, "gather", "--resume")
    assert done.code == 0, done.err
    check(config)


def test_a_body_that_changed_before_the_run_went_on(config: Config, site: Site) -> None:
    site["/a"] = pdf("one", ETag='"1"')
    placed_but_not_told(config, [site.url("/a")])
    site["/a"] = pdf("two", ETag='"2"')
    resumed(config)
    assert list(histories(config)[site.url("/a")].values()) == [hashlib.sha256(pdf("one").body).hexdigest()]
    (tist,) = histories(config)[site.url("/a")]
    left = config.store_path / tist_path(tist) / "http%3A%2F%2Fh%2Fleft"
    left.write_text("what a run left before it was killed, and did not place again when it was resumed")
    assert orphans(config) == 1
    assert archec_inline(config, "verify").code == 0
    left.unlink()
    run(config)
    assert len(histories(config)[site.url("/a")]) == 2, "the validators of what is not held are not believed"
    check(config)


@pytest.mark.parametrize("answers", [(pdf("one"), moved("/b")), (moved("/b"), pdf("one"))])
def test_a_body_and_a_redirect_that_changed_before_the_run_went_on(
    config: Config, site: Site, answers: tuple[Answer, Answer]
) -> None:
    site["/a"], site["/b"] = answers[0], pdf("two")
    placed_but_not_told(config, [site.url("/a")])
    site["/a"] = answers[1]
    resumed(config)
    run(config)
    check(config)
    assert len(histories(config)[site.url("/a")]) == 2


def test_a_body_of_a_killed_run_has_its_text(config: Config, site: Site) -> None:
    site["/a"] = page("words that stay")
    placed_but_not_told(config, [site.url("/a")])
    resumed(config)
    site["/a"] = page("words <b>that</b> stay")
    assert run(config).fobis["cosmetic"] == 1


@pytest.mark.parametrize("resume", [pytest.param(True, marks=pytest.mark.slow), False])
def test_losses_that_a_killed_run_had_confirmed(config: Config, resume: bool, site: Site) -> None:
    """The run that goes on, or the next one that visits files, decides on them without another visit."""
    urls = site.fill(5)
    write_papers(config, urls)
    run(config)
    site.drop(2)
    since = run(config).run
    config = change(config, {"fetch.revisit_min": "1d", "fetch.revisit_max": "1d"})
    done = archec_cli(config, "gather", env=killed_at("catalogue.after-write:3"))
    assert done.code == -signal.SIGKILL, done.err
    asked = site.count("/0")
    if resume:
        run(config, resume=True)
    else:
        run(config, fetch=False)
        assert run(config).fobis["lost"] == 2
    assert [list(histories(config)[url].values())[1:] for url in urls] == [[None]] * 2 + [[]] * 3
    assert (since in histories(config)[urls[0]], site.count("/0")) == (True, asked)
    check(config)


def test_two_urls_that_differ_by_a_slash_are_not_taken_for_each_other(config: Config, site: Site) -> None:
    """Looking one up finds the other where only one is there; a resumed run must not fall for it."""
    site["/a"], site["/a/"] = pdf("without"), pdf("with")
    write_papers(config, [site.url("/a"), site.url("/a/")])
    done = archec_inline(config, "gather", "--max-files", 1)
    assert done.code == 5, done.err
    resumed(config)
    found = histories(config)
    for path, text in (("/a", "without"), ("/a/", "with")):
        assert list(found[site.url(path)].values()) == [hashlib.sha256(pdf(text).body).hexdigest()]


def test_a_worker_that_dies_does_not_hurt_the_run(memory_folder: Callable[[], Path]) -> None:
    """The fetching processes are killed in mid-run; the run goes on and leaves nothing behind."""
    with ExitStack() as stack:
        world = World(stack, 4, 120)
        config = make(memory_folder(), {**SETTINGS, "fetch.delay": "10ms", "fetch.per_host": 1})
        write_papers(config, world.urls)
        child = start_cli(config, "gather")
        assert until(lambda: world.asked >= 20)
        victims = workers_of(child.pid, "archec.web")
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        assert victims
        assert temporary_files(config) == []
        run(config)
        check(config)


def test_a_worker_that_needs_too_much_memory(
    memory_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is replaced, its files are tried once more, then they are a fault of ours; the run goes on, and is over."""
    with Site() as site, Site("127.0.0.2") as other:
        site["/hungry"] = pdf("one too many")
        other.answers.update({f"/{n}": pdf(f"the {n}th") for n in range(20)})
        config = make(memory_folder(), {"fetch.max_memory": "300MB", "fetch.workers": 2})
        write_papers(config, [site.url("/hungry"), *(other.url(f"/{n}") for n in range(20))])

        def hungry(config: FetchConfig, agent: str, sink: tuple[str, list[object]], **more: int) -> FetchPool:
            return FetchPool(config, agent, ("web_hungry:hungry_sink", sink[1]), **more)

        monkeypatch.setattr(file_phase, "FetchPool", hungry)
        report = run(config)
        assert (report.state, dict(report.fobis)) == ("done", {"new": 20, "internal": 1})
        assert site.count("/hungry") == 4, "twice in each of the two passes"
        assert "fetch.max_memory" in capfd.readouterr().err
        assert temporary_files(config) == []
        check(config)


def test_no_process_outlives_a_run_that_is_killed(memory_folder: Callable[[], Path]) -> None:
    """Not one that fetches, nor one that reads texts."""
    mark = f"archec-test-{os.getpid()}-{time.monotonic_ns()}"
    with Site() as site:
        for n in range(40):
            site[f"/{n}"] = pdf(f"the {n}th")
        config = make(memory_folder(), {**SETTINGS, "fetch.delay": "100ms", "fetch.per_host": 1})
        write_papers(config, [site.url(f"/{n}") for n in range(40)])
        child = start_cli(config, "gather", env={"ARCHEC_TEST_MARK": mark})
        assert until(lambda: len(workers_of(child.pid, "archec.web")) == 2 and len(site.asked) >= 5)
        assert until(lambda: bool(workers_of(child.pid, "archec.text")))
        kill(child)
        assert until(lambda: not marked(mark))


@pytest.mark.parametrize("work", ["chunk_reader", "writing"])
def test_a_worker_that_dies_over_templates_does_not_hurt_the_run(
    memory_folder: Callable[[], Path], work: str
) -> None:
    folder = memory_folder()
    texts = [template(f"RePEc:aaa:sss:{n}", f"A title {n} {'x' * 6000}") for n in range(2000)]
    file = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/p.rdf", "\n".join(texts).encode())])
    config, plain = make(folder / "archive", {"workers": 2}), make(folder / "plain")
    with killing(once=True, name=f"archec.gather.template_texts:{work}") as killed:
        run(config, file)
    assert killed
    assert temporary_files(config) == []
    check(config)
    run(plain, file)
    assert lines(plain) == lines(config)


# -- what a kill costs ---------------------------------------------------------------------------------

IN_FLIGHT = 8


def repeats_after_kills(folder: Path, kills: int, seed: int, *, resume: bool) -> float:
    """Requests that were made again for each kill. All files are asked for by one run after the other, and none is
    due a second time."""
    chance = random.Random(seed)
    count = 40 * (kills + 1)
    with Site() as site:
        site.answers.update({f"/{n}": pdf(str(n)) for n in range(count)})
        config = make(folder, {
            "fetch.concurrency": IN_FLIGHT, "fetch.per_host": IN_FLIGHT, "fetch.delay": "5ms",
            "fetch.revisit_min": "7d", "text.enabled": False,
        })  # fmt: skip
        write_papers(config, [site.url(f"/{n}") for n in range(count)])
        for _ in range(kills):
            target = len(site.asked) + chance.randrange(5, 60)
            child = start_cli(config, "gather", *resuming(config, wanted=resume))
            until(lambda: child.poll() is not None or len(site.asked) >= target, 60.0)  # noqa: B023
            kill(child)
        done = archec_inline(config, "gather", *resuming(config, wanted=resume))
        assert done.code == 0, done.err
        check(config)
        known = histories(config)
        assert all(list(known[site.url(f"/{n}")].values()) for n in range(count))
        return (len(site.asked) - count) / kills


@pytest.mark.parametrize("resume", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_kill_costs_what_was_in_flight(memory_folder: Callable[[], Path], resume: bool) -> None:
    assert repeats_after_kills(memory_folder(), 3, 7 + resume, resume=resume) <= 2 * IN_FLIGHT


@pytest.mark.slow
@pytest.mark.parametrize("resume", [True, False])
def test_100_kills_cost_what_was_in_flight(memory_folder: Callable[[], Path], resume: bool) -> None:
    assert repeats_after_kills(memory_folder(), 50, 77 + resume, resume=resume) <= 2 * IN_FLIGHT
