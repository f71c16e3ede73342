"""The fetcher of one process: takes tasks, minds the manners, tries again, and hands hops back."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import httpx

from archec.config import FetchConfig
from archec.errors import StorageFailed, StorageFull
from archec.ids import host_of
from archec.web.connect import Connector
from archec.web.flight import Flight
from archec.web.ftp import FtpTransport
from archec.web.guard import Guard
from archec.web.hosts import GivenUp, Host, Hosts, Job, Manners
from archec.web.origins import Origins
from archec.web.outcome import Outcome
from archec.web.proxy import Proxies
from archec.web.resolve import Resolver, SystemResolver
from archec.web.robots import Robots, Unknown
from archec.web.sink import Sink
from archec.web.task import Hop, Task, failure
from archec.web.transport import DirectTransport
from archec.web.tuning import Tuning
from archec.web.visit import Visit, Visitor

__all__ = ["Fetcher", "Transports"]

_MOST_KEPT = 1024
"""Unused connections that are kept at most, where the limit of open files allows it."""
_FULL = frozenset({28, 122})  # ENOSPC, EDQUOT


class Transports(NamedTuple):
    """What carries requests. ``whole_urls``: see :class:`Visitor`."""

    web: httpx.AsyncBaseTransport
    ftp: httpx.AsyncBaseTransport
    whole_urls: bool = True


def transports(
    config: FetchConfig, tuning: Tuning, concurrency: int, resolver: Resolver | None = None
) -> Transports:
    """The real transports, as the configuration asks for them."""
    guard = Guard(config.allow_networks)
    if resolver is None:
        resolver = SystemResolver(tuning.dns_threads, tuning.dns_ttl)
    proxies = Proxies(config.proxy)
    keep = max(2 * concurrency, min(_MOST_KEPT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    web = DirectTransport(Connector(guard, resolver, tuning), proxies, keep, tuning.keep_idle)
    if proxies.covers("ftp"):
        return Transports(web, web, whole_urls=False)
    ftp = FtpTransport(guard, resolver, concurrency, config.idle_timeout, config.contact)
    return Transports(web, ftp, whole_urls=False)


class Fetcher:
    """Fetches one hop for each task; to be used inside a running event loop.

    Every serial that was submitted is emitted exactly once, unless ``aclose`` comes first. ``fatal`` is
    called where the sink cannot write: nothing further is begun then.
    """

    def __init__(
        self,
        config: FetchConfig,
        agent: str,
        sink: Sink,
        emit: Callable[[int, Hop], None],
        *,
        concurrency: int = 0,
        tuning: Tuning | None = None,
        carriers: Transports | None = None,
        fatal: Callable[[StorageFull | StorageFailed], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._config = config
        self._tuning = tuning or Tuning()
        self._emit = emit
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._concurrency = concurrency or config.concurrency
        self._carriers = carriers or transports(config, self._tuning, self._concurrency)
        self._visitor = Visitor(
            config, self._tuning, agent, sink, self._transport_of, progress or _ignore,
            whole_urls=self._carriers.whole_urls,
        )
        self._origins = Origins(self._visitor, agent, self._tuning)
        self._hosts = Hosts(
            Manners(config.per_host, config.delay, config.max_delay, config.host_failures, self._tuning.penalty)
        )
        self._flights: set[Flight] = set()
        self._runners: set[asyncio.Task[None]] = set()
        self._open = True
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer is due; not all that uvloop gives for a timer knows it."""
        self._ticker = self._loop.call_later(self._tuning.tick, self._tick)

    @property
    def in_flight(self) -> int:
        """Requests that are under way, and bodies that are still being written."""
        return len(self._runners)

    def retune(self, concurrency: int) -> None:
        """Sets how many requests may be in flight."""
        self._concurrency = max(1, concurrency)
        self._pump()

    def submit(self, serial: int, task: Task) -> None:
        """Takes a task; ``start`` must follow when all tasks of a batch are in."""
        host = self._hosts.host(host_of(task.url))
        if host.given_up is not None:
            self._emit(serial, failure(task.url, host.given_up.outcome, host.given_up.message, deferred=True))
            return
        self._hosts.add(Job(serial, task, host))

    def start(self) -> None:
        """Begins as many requests as may be."""
        self._pump()

    def drop_queued(self) -> list[int]:
        """Forgets the tasks that are not under way; their serials."""
        self._open = False
        return [job.serial for job in self._hosts.clear()]

    async def aclose(self) -> None:
        """Breaks off everything; temporary files of bodies under way are discarded."""
        self._open = False
        self._ticker.cancel()
        if self._timer is not None:
            self._timer.cancel()
        runners = list(self._runners)
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)
        await self._origins.aclose()
        await self._carriers.web.aclose()
        await self._carriers.ftp.aclose()

    # -- what runs when ---------------------------------------------------------------------------

    def _pump(self) -> None:
        now = self._loop.time()
        while self._open and len(self._flights) < self._concurrency:
            job = self._hosts.take(now)
            if job is None:
                self._arm(now)
                return
            flight = Flight(now, released=partial(self._release, job))
            self._flights.add(flight)
            flight.runner = runner = self._loop.create_task(self._run(job, flight))
            self._runners.add(runner)
            runner.add_done_callback(partial(self._landed, job, flight))

    def _release(self, job: Job, flight: Flight) -> None:
        self._flights.discard(flight)
        self._hosts.done(job.host)
        self._pump()

    def _arm(self, now: float) -> None:
        when = self._hosts.next_time()
        if self._timer is not None:
            if when is not None and self._timer_at <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer_at = max(when, now + 0.001)
            self._timer = self._loop.call_at(self._timer_at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._pump()

    def _tick(self) -> None:
        now = self._loop.time()
        for flight in self._flights:
            if flight.overdue(now, self._config, self._tuning) and flight.runner is not None:
                flight.runner.cancel()
        if isinstance(self._carriers.web, DirectTransport):
            self._carriers.web.sweep(now)
        self._ticker = self._loop.call_later(self._tuning.tick, self._tick)

    # -- one job ----------------------------------------------------------------------------------

    async def _run(self, job: Job, flight: Flight) -> None:
        try:
            visit = await self._attempt(job, flight)
            if visit is not None:
                self._judge(job, visit)
        except (StorageFull, StorageFailed) as error:
            self._stop_storing(error)
        except OSError as error:
            kind = StorageFull if error.errno in _FULL else StorageFailed
            self._stop_storing(kind(f"the body of {job.task.url} cannot be written: {error.strerror or error}"))

    def _landed(self, job: Job, flight: Flight, runner: asyncio.Task[None]) -> None:
        """Whatever ended the runner: no task is left without an answer, and its place is free."""
        self._runners.discard(runner)
        if runner.cancelled():
            if self._open and flight.verdict:
                self._emit(job.serial, failure(job.task.url, Outcome.TIMEOUT, flight.verdict))
        elif (error := runner.exception()) is not None:
            self._loop.call_exception_handler({"message": f"fetching {job.task.url} broke", "exception": error})
            message = f"a fault of archec: {type(error).__name__}"
            self._emit(job.serial, failure(job.task.url, Outcome.UNREACHABLE, message))
        flight.release()

    async def _attempt(self, job: Job, flight: Flight) -> Visit | None:
        """How an attempt ended; None where the job went back to its queue."""
        url = job.task.url
        if self._config.robots == "obey" and not url.startswith("ftp:"):
            origin = url[: url.index("/", 8)]
            robots = self._origins.known(origin)
            if robots is None:
                flight.started = float("inf")  # robots.txt has a limit of its own
                robots = await self._origins.learn(origin)
                flight.started = now = self._loop.time()
                refusal = self._refusal(job, robots)
                delay = self._hosts.delay(job.host)
                if refusal is None and delay:
                    self._hosts.pause(job.host, now + delay)
                    self._hosts.add(job)
                    return None
            else:
                refusal = self._refusal(job, robots)
            if refusal is not None:
                self._emit(job.serial, refusal)
                return None
        return await self._visitor.visit(job.task, flight)

    def _refusal(self, job: Job, robots: Robots) -> Hop | None:
        """Why robots.txt keeps a job from being fetched, None where it does not."""
        url = job.task.url
        if isinstance(robots, Unknown):
            return failure(url, robots.outcome, robots.message, deferred=not robots.lasting)
        if not robots.allows(url):
            return failure(url, Outcome.ROBOTS, "robots.txt disallows it")
        if robots.delay > self._config.max_delay:
            reason = GivenUp(Outcome.ROBOTS, f"robots.txt asks for {robots.delay:g} s between requests")
            self._give_up(job.host, reason)
            return failure(url, reason.outcome, reason.message, deferred=True)
        job.host.crawl_delay = max(job.host.crawl_delay, robots.delay)
        return None

    def _judge(self, job: Job, visit: Visit) -> None:
        """Ends a job or queues it once more, and draws the consequences for its host."""
        hop, host = visit.hop, job.host
        outcome = hop.outcome
        if hop.kind != "failed" or outcome is None or not outcome.blames_host:
            self._hosts.succeeded(host)
            self._emit(job.serial, hop)
            return
        now = self._loop.time()
        wait = visit.retry_after
        if wait is not None and wait > self._config.max_delay:
            self._give_up(host, GivenUp(outcome, f"{host.key} asks to come back in {wait:.0f} s"))
        elif wait is not None:
            self._hosts.pause(host, now + wait)
        elif visit.slow_down:
            self._hosts.slow_down(host, now)
        self._defer(self._hosts.failed(host, GivenUp(outcome, hop.message)), host)
        job.tries += 1
        if host.given_up is not None:
            self._emit(job.serial, hop._replace(deferred=True))
        elif visit.lasting or job.tries > self._config.retries:
            self._emit(job.serial, hop)
        else:
            backoff = self._tuning.backoff * 2 ** (job.tries - 1)
            self._hosts.add_later(job, now + min(backoff, self._config.max_delay))

    def _give_up(self, host: Host, reason: GivenUp) -> None:
        self._defer(self._hosts.give_up(host, reason), host)

    def _defer(self, jobs: list[Job], host: Host) -> None:
        for job in jobs:
            if host.given_up is not None:
                reason = host.given_up
                self._emit(job.serial, failure(job.task.url, reason.outcome, reason.message, deferred=True))

    def _stop_storing(self, error: StorageFull | StorageFailed) -> None:
        self._open = False
        if self._fatal is not None:
            self._fatal(error)

    def _transport_of(self, scheme: str) -> httpx.AsyncBaseTransport:
        return self._carriers.ftp if scheme == "ftp" else self._carriers.web


def _ignore(_: int) -> None:
    return None
