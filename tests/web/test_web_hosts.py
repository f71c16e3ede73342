"""The queues: nothing is lost, nothing comes twice, and no host is asked more than it should be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.config import FetchConfig
from archec.web import politeness
from archec.web.outcome import FetchTask, Outcome
from archec.web.politeness import GivenUp, HostQueues, QueuedTask

DOWN = GivenUp(Outcome.UNREACHABLE, "down")


def queues(per_host: int = 2, delay: float = 0.0, host_failures: int = 3, per_address: int = 100) -> HostQueues:
    return HostQueues(
        FetchConfig(
            per_host=per_host, per_address=per_address, delay=delay, max_delay=60.0, host_failures=host_failures
        ),
        1.0,
    )


def fill(hosts: HostQueues, *keys: str) -> list[QueuedTask]:
    jobs = [
        QueuedTask(FetchTask(f"http://{key}/{number}"), hosts.host(key))
        for number, key in enumerate(keys)
    ]
    for job in jobs:
        hosts.add(job)
    return jobs


def test_hosts_take_turns_and_keep_to_their_limit() -> None:
    hosts = queues(per_host=2)
    fill(hosts, *"aaaabb")
    taken = []
    while (job := hosts.take(0.0)) is not None:
        taken.append(job.host.key)
    assert taken == ["a", "b", "a", "b"]
    assert hosts.next_time() is None
    hosts.done(hosts.host("a"))
    job = hosts.take(0.0)
    assert job is not None
    assert job.host.key == "a"


def test_a_delay_lies_between_two_starts() -> None:
    hosts = queues(delay=1.0)
    fill(hosts, "a", "a", "a")
    assert hosts.take(10.0) is not None
    assert hosts.take(10.0) is None
    assert hosts.next_time() == 11.0
    assert hosts.take(10.99) is None
    assert hosts.take(11.0) is not None


def test_a_host_is_not_forgotten_within_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(politeness, "_MAX_HOSTS", 2)
    hosts = queues(delay=1.0)
    fill(hosts, "a", "b")
    assert None not in (hosts.take(10.0), hosts.take(10.0))
    for key in ("a", "b"):
        hosts.done(hosts.host(key))
    fill(hosts, "c", "a")
    taken = [hosts.take(10.5), hosts.take(10.5), hosts.take(11.0)]
    assert [job.host.key if job is not None else "" for job in taken] == ["c", "", "a"]


def test_a_pause_holds_for_jobs_that_were_ready() -> None:
    hosts = queues()
    fill(hosts, "a", "a")
    hosts.pause(hosts.host("a"), 5.0)
    assert hosts.take(1.0) is None
    assert hosts.next_time() == 5.0
    assert hosts.take(5.0) is not None


def test_a_host_is_given_up_after_so_many_faults_in_a_row() -> None:
    hosts = queues(host_failures=3)
    jobs = fill(hosts, *"aaaab")
    host = hosts.host("a")
    assert hosts.failed(host, DOWN) == []
    assert hosts.failed(host, DOWN) == []
    hosts.succeeded(host)
    hosts.add_later(QueuedTask(FetchTask("http://a/9"), host), 100.0)
    assert [hosts.failed(host, DOWN) for _ in range(2)] == [[], []]
    fallen = hosts.failed(host, DOWN)
    assert [job.task.url for job in fallen] == [f"http://a/{number}" for number in (0, 1, 2, 3, 9)]
    assert host.given_up is not None
    assert host.given_up.outcome is Outcome.UNREACHABLE
    assert "a was given up for this run after 3 faults in a row; the last: down" in host.given_up.message
    assert hosts.take(1000.0) is jobs[4]
    assert hosts.take(1000.0) is None


def test_an_address_gets_one_request_at_a_time_once_a_host_has_asked_for_time() -> None:
    hosts = queues(per_address=3)
    jobs = fill(hosts, *"abcd")
    for name in "abcd":
        hosts.locate(hosts.host(name), "192.0.2.1")
    begun = [hosts.take(0.0) for _ in range(4)]
    assert (begun, hosts.crowded(jobs[0].host)) == ([*jobs[:3], None], False)
    hosts.ease(jobs[0].host)
    assert hosts.crowded(jobs[0].host)
    hosts.done(jobs[0].host)
    hosts.done(jobs[1].host)
    assert hosts.take(0.0) is None
    hosts.done(jobs[2].host)
    assert hosts.take(0.0) is jobs[3]


def test_a_slow_down_grows_and_eases() -> None:
    hosts = queues()
    host = hosts.host("a")
    waits = []
    for _ in range(3):
        hosts.slow_down(host, 0.0)
        waits.append(hosts.delay(host))
    for _ in range(3):
        hosts.succeeded(host)
        waits.append(hosts.delay(host))
    assert waits == [1.0, 2.0, 4.0, 2.0, 1.0, 0.0]
    for _ in range(20):
        hosts.slow_down(host, 0.0)
    assert hosts.delay(host) == 60.0


@settings(max_examples=200)
@given(
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5]),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ok", "again", "fault", "slow"])), max_size=30),
)
def test_every_job_ends_exactly_once(per_host: int, delay: float, plan: list[tuple[str, str]]) -> None:
    hosts = queues(per_host, delay, host_failures=4)
    fates = {}
    for number, (key, fate) in enumerate(plan):
        host = hosts.host(key)
        task = FetchTask(f"http://{key}/{number}")
        fates[task.url] = fate
        hosts.add(QueuedTask(task, host))
    now, ended, active, starts = 0.0, [], [], {}
    for _ in range(10_000):
        job = hosts.take(now)
        if job is not None:
            active.append(job)
            assert job.host.active <= per_host
            last = starts.get(job.host.key)
            assert last is None or now - last >= delay or delay == 0.0
            starts[job.host.key] = now
            continue
        if active:
            job = active.pop(0)
            fate = fates[job.task.url]
            fates[job.task.url] = "ok"
            if fate == "again":
                hosts.add_later(job, now + 1.0)
            elif fate == "slow":
                hosts.slow_down(job.host, now)
                hosts.add(job)
            else:
                ended.append(job.task.url)
                if fate == "fault":
                    ended += [fallen.task.url for fallen in hosts.failed(job.host, DOWN)]
            hosts.done(job.host)
        elif (when := hosts.next_time()) is not None:
            now = max(now, when)
        else:
            break
    assert sorted(ended) == sorted(fates)
