"""Politeness: a queue for each host, and when its next request may start (:class:`HostQueues`, which uses neither clock
nor sockets); and robots.txt (RFC 9309), fetched once per run and origin (:class:`RobotsCache`).

A host (name and port, as in the URL) has at most ``per_host`` requests in flight, started at least its delay apart. It
is slowed down when it asks for it, and given up for this run after ``host_failures`` consecutive faults. Hosts with the
same address have at most ``per_address`` requests in flight together, and one at a time once one of them has sent
Retry-After. The others are not paused, as thousands of names may share an address. Hosts that may start a request take
turns.

The policy for robots.txt:

* 2xx: the rules for our product token or ``*``, as parsed by the protego library.
* 4xx: there are no rules, everything may be fetched. (But 408, 421, 425 and 429 mean "not now", and 407 comes from a
  proxy: they count as no response.)
* 5xx, no response, a part (206), more than five redirects: the rules are unknown, so nothing is fetched from the
  origin in this run. Never treated as permission. A Retry-After of its 429 or 503 applies to the host like that of a
  file.
* An address that the guard refuses: the origin's files are refused the same way.
* Crawl-delay (and Request-rate) are obeyed up to ``fetch.max_delay``. A host that asks for more is deferred to the
  next run.
* Anything beyond the first 512 kB is not read.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from protego import Protego

from archec.config import FetchConfig
from archec.errors import BadName
from archec.ids import host_of
from archec.web.client import Client, Flight
from archec.web.location import location_of
from archec.web.messages import raw_headers, unpack, wait_asked
from archec.web.outcome import BUSY, FetchTask, Outcome, WebError, of_status
from archec.web.policy import Tuning

_MAX_HOSTS = 50_000
"""Number of hosts above which hosts without state are dropped."""
_AGENT_LINE = re.compile(r"^([ \t]*user[- ]?agents?[ \t]*[: \t][ \t]*)([^#\r\n]*)", re.I | re.M)
MAX_SIZE = 512_000
"""The rest of a larger robots.txt is not read (RFC 9309 requires at least 500 KiB)."""
_MAX_REDIRECTS = 5
"""As required by RFC 9309, section 2.3.1.2."""
_MAX_LINE = 4096
_MAX_LINES = 20_000
_MAX_REMEMBERED = 64_000_000
"""Maximum total size of cached rules, as estimated. The least recently used ones are dropped."""
_PER_ORIGIN, _PER_LINE = 2048, 1024
_TRIES = 2


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the remaining tasks of a host are deferred to the next run."""

    outcome: Outcome
    message: str


@dataclass(slots=True, eq=False)
class QueuedTask:
    """A task and its host. ``tries`` is the number of failed attempts."""

    task: FetchTask
    host: HostQueue
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Address:
    """The shared state of hosts with the same address. ``most`` is the maximum number of requests in flight."""

    most: int
    active: int = 0
    waiting: deque[HostQueue] = field(default_factory=deque)
    """Hosts that have a task to start and wait until a request of another one ends."""


@dataclass(slots=True, eq=False)
class HostQueue:
    """The tasks of a host and its state in this run."""

    key: str
    tasks: deque[QueuedTask] = field(default_factory=deque)
    active: int = 0
    next_start: float = 0.0
    crawl_delay: float = 0.0
    penalty: float = 0.0
    faults: int = 0
    given_up: GivenUp | None = None
    located: bool = False
    address: _Address | None = None
    """None if it is unknown, or if a proxy is used."""
    listed: bool = False
    """Whether it is in one of the lists of hosts with a task to start."""


class HostQueues:
    """All queues of a worker. Times are those of one monotonic clock, in seconds. ``penalty`` is the initial slow-down.

    A host is in at most one list: in ``_ready`` if it may start at once, in ``_waiting`` (a heap by time) if its delay
    has to pass. A host with ``per_host`` requests in flight is in neither; ``done`` lists it again. So ``take`` never
    examines hosts that cannot start a task.
    """

    def __init__(self, config: FetchConfig, penalty: float) -> None:
        self._config, self._penalty = config, penalty
        self._hosts: dict[str, HostQueue] = {}
        self._room = _MAX_HOSTS
        self._addresses: dict[str, _Address] = {}
        self._ready: deque[HostQueue] = deque()
        self._waiting: list[tuple[float, int, HostQueue]] = []
        self._later: list[tuple[float, int, QueuedTask]] = []
        self._order = count()
        self._now = 0.0
        """The time of the last ``take``."""

    def host(self, key: str) -> HostQueue:
        """The queue of the host with this name, created on the first call."""
        host = self._hosts.get(key)
        if host is None:
            if len(self._hosts) >= self._room:
                self._forget()
            host = self._hosts[key] = HostQueue(key)
        return host

    def _forget(self) -> None:
        """Frees memory: drops hosts without state, and addresses without hosts."""
        busy = {entry[2].host.key for entry in self._later}
        self._hosts = {
            key: host
            for key, host in self._hosts.items()
            if host.tasks or host.active or host.listed or host.faults or host.penalty or host.given_up or key in busy
            or host.next_start > self._now
        }
        used = {id(host.address) for host in self._hosts.values()}
        self._addresses = {name: one for name, one in self._addresses.items() if one.active or id(one) in used}
        self._room = max(_MAX_HOSTS, 2 * len(self._hosts))

    def add(self, queued: QueuedTask) -> None:
        """Queues a task behind those of its host."""
        host = queued.host
        host.tasks.append(queued)
        if not host.listed and host.active < self._config.per_host:
            self._enlist(host)

    def add_later(self, queued: QueuedTask, when: float) -> None:
        """Queues a task that may not start before ``when``."""
        heapq.heappush(self._later, (when, next(self._order), queued))

    def take(self, now: float) -> QueuedTask | None:
        """Returns the next task that may start, or None. The task counts as active."""
        self._now = now
        while self._later and self._later[0][0] <= now:
            self.add(heapq.heappop(self._later)[2])
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        while self._ready:
            host = self._ready.popleft()
            host.listed = False
            if not host.tasks or host.active >= self._config.per_host:
                continue
            if host.address is not None and host.address.active >= host.address.most:
                host.listed = True
                host.address.waiting.append(host)
                continue
            if host.next_start > now:  # it was paused after it was listed
                self._enlist(host)
                continue
            queued = host.tasks.popleft()
            host.active += 1
            if host.address is not None:
                host.address.active += 1
            delay = self.delay(host)
            if delay:
                host.next_start = now + delay
            if host.tasks and host.active < self._config.per_host:
                self._enlist(host)
            return queued
        return None

    def next_time(self) -> float | None:
        """When ``take`` may return a task without any other event. None if waiting does not help."""
        times = [heap[0][0] for heap in (self._waiting, self._later) if heap]
        return min(times) if times else None

    def done(self, host: HostQueue) -> None:
        """Records that one of the host's tasks is no longer active."""
        host.active -= 1
        self._release(host.address)
        if host.tasks and not host.listed:
            self._enlist(host)

    def locate(self, host: HostQueue, address: str) -> None:
        """Sets the address of a host, empty if only a proxy knows it. Its requests in flight count for the address from
        now on."""
        host.located = True
        if address:
            host.address = self._addresses.setdefault(address, _Address(self._config.per_address))
            host.address.active += host.active

    def crowded(self, host: HostQueue) -> bool:
        """Whether the address of a host has more requests in flight than allowed."""
        return host.address is not None and host.address.active > host.address.most

    def _release(self, address: _Address | None) -> None:
        if address is None:
            return
        address.active -= 1
        while address.waiting and address.active < address.most:
            host = address.waiting.popleft()
            host.listed = False
            if host.tasks:
                self._enlist(host)
                if not host.next_start:
                    return  # it starts at once and takes the place; a delayed host would leave it empty

    def delay(self, host: HostQueue) -> float:
        """Minimum number of seconds between two starts."""
        return max(self._config.delay, host.crawl_delay, host.penalty)

    def pause(self, host: HostQueue, until: float) -> None:
        """Starts nothing of this host before ``until``."""
        host.next_start = max(host.next_start, until)

    def succeeded(self, host: HostQueue) -> None:
        """Records a normal response: resets the failures of the host and reduces its delay."""
        host.faults = 0
        if host.penalty:
            host.penalty = host.penalty / 2 if host.penalty > self._penalty else 0.0

    def slow_down(self, host: HostQueue, now: float) -> None:
        """Slows down a host that reports too many requests without saying how long to wait."""
        host.penalty = min(max(2 * host.penalty, self._penalty), self._config.max_delay)
        self.pause(host, now + host.penalty)

    def ease(self, host: HostQueue) -> None:
        """Limits the address of a host that sent Retry-After to one request at a time."""
        if host.address is not None:
            host.address.most = 1

    def hold_off(self, host: HostQueue, wait: float, outcome: Outcome, now: float) -> list[QueuedTask]:
        """Pauses a host that asked to wait (Retry-After), or gives it up if that is longer than ``max_delay``. Returns
        the tasks that are dropped."""
        if wait > self._config.max_delay:
            return self.give_up(host, GivenUp(outcome, f"{host.key} asks to wait {wait:.0f} s"))
        self.pause(host, now + wait)
        return []

    def failed(self, host: HostQueue, reason: GivenUp) -> list[QueuedTask]:
        """Counts a fault. Returns the tasks that are dropped if this was one too many."""
        host.faults += 1
        if host.given_up is None and host.faults >= self._config.host_failures:
            text = f"{host.key} was given up for this run after {host.faults} faults in a row; the last: "
            return self.give_up(host, GivenUp(reason.outcome, text + reason.message))
        return []

    def give_up(self, host: HostQueue, reason: GivenUp) -> list[QueuedTask]:
        """Defers the remaining tasks of a host to the next run. Returns them in order."""
        host.given_up = reason
        dropped = list(host.tasks)
        host.tasks.clear()
        if any(entry[2].host is host for entry in self._later):
            dropped += [entry[2] for entry in sorted(self._later, key=lambda e: e[:2]) if entry[2].host is host]
            self._later = [entry for entry in self._later if entry[2].host is not host]
            heapq.heapify(self._later)
        return dropped

    def clear(self) -> None:
        """Empties all queues."""
        for host in self._hosts.values():
            host.tasks.clear()
        self._later.clear()

    def _enlist(self, host: HostQueue) -> None:
        host.listed = True
        if host.next_start > 0.0:
            heapq.heappush(self._waiting, (host.next_start, next(self._order), host))
        else:
            self._ready.append(host)


# -- robots.txt -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """What an origin allows. ``delay``: the seconds between requests that it asks for."""

    protego: Protego | None
    token: str
    delay: float = 0.0
    size: int = _PER_ORIGIN
    """Upper estimate of the memory used by the rules, in bytes."""

    def __del__(self) -> None:
        """Breaks the reference cycles of the library's objects, which would otherwise stay until a garbage
        collection."""
        getattr(self.protego, "__dict__", {}).clear()

    def allows(self, url: str) -> bool:
        """Whether our product may fetch ``url``."""
        if self.protego is None:
            return True
        try:
            return bool(self.protego.can_fetch(url, self.token))
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class RobotsUnknown:
    """The rules of an origin are not available. ``again``: a second try may succeed. ``lasting``: not even the next run
    can succeed (a refused address). ``wait``: the seconds of Retry-After."""

    outcome: Outcome
    message: str
    lasting: bool = False
    again: bool = True
    wait: float = 0.0
    size: int = _PER_ORIGIN


Robots = RobotsRules | RobotsUnknown

ALLOW_ALL = RobotsRules(None, "")


class RobotsCache:
    """Rules by origin (``http://host:port``), fetched through the same client and guard as files. ``delay`` is the
    minimum number of seconds between two requests for the rules of an origin."""

    def __init__(self, client: Client, agent: str, tuning: Tuning, delay: float = 0.0) -> None:
        self._client = client
        self._delay = delay
        self._token = product_token(agent)
        self._tuning = tuning
        self._known: OrderedDict[str, Robots] = OrderedDict()
        self._size = 0
        self._fetching: dict[str, asyncio.Task[Robots]] = {}

    def known(self, origin: str) -> Robots | None:
        """The rules of an origin if they are cached."""
        robots = self._known.get(origin)
        if robots is not None:
            self._known.move_to_end(origin)
        return robots

    async def learn(self, origin: str) -> Robots:
        """The rules of an origin. The first caller starts the request, others wait for its result."""
        fetching = self._fetching.get(origin)
        if fetching is None:
            fetching = self._fetching[origin] = asyncio.ensure_future(self._fetch(origin))
        try:
            robots = await asyncio.shield(fetching)  # a caller may be cancelled while others wait
        finally:
            if fetching.done():
                self._fetching.pop(origin, None)
        if origin not in self._known:
            self._known[origin] = robots
            self._size += robots.size
            while self._size > _MAX_REMEMBERED and len(self._known) > 1:
                self._size -= self._known.popitem(last=False)[1].size
        return robots

    async def aclose(self) -> None:
        """Cancels all requests."""
        for fetching in self._fetching.values():
            fetching.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)

    async def _fetch(self, origin: str) -> Robots:
        robots: Robots = ALLOW_ALL
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(max(self._tuning.backoff, self._delay))
            robots = await self._follow(f"{origin}/robots.txt")
            if not isinstance(robots, RobotsUnknown) or not robots.again:
                break
        return robots

    async def _follow(self, url: str) -> Robots:
        timeout, host, seen = self._tuning.robots_timeout, host_of(url), {url}
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                found = await asyncio.wait_for(self._request(url), timeout)
                if isinstance(found, RobotsUnknown) and host_of(url) != host:
                    found = replace(found, wait=0.0)  # the Retry-After is another host's
                if not isinstance(found, str):
                    return found
                url = found
                if url in seen:
                    return RobotsUnknown(Outcome.SERVER_ERROR, "robots.txt has a redirect loop", again=False)
                seen.add(url)
                await asyncio.sleep(self._delay)
        except asyncio.TimeoutError:
            return RobotsUnknown(Outcome.TIMEOUT, f"robots.txt took longer than {timeout:g} s")
        except WebError as error:
            text = f"robots.txt is not available: {error.message}"
            return RobotsUnknown(error.outcome, text, error.lasting, again=not error.lasting)
        except BadName:
            return ALLOW_ALL  # redirects to an invalid URL: there is no robots.txt
        text = f"robots.txt redirects more than {_MAX_REDIRECTS} times"
        return RobotsUnknown(Outcome.SERVER_ERROR, text, again=False)

    async def _request(self, url: str) -> Robots | str:
        """Returns the rules, or the target of a redirect."""
        response = await self._client.open(url, Flight(asyncio.get_running_loop().time()), fresh=True)
        try:
            status = response.status_code
            fields = raw_headers(response.raw)
            content = (await response.upto(MAX_SIZE))[:MAX_SIZE]
        finally:
            response.close()
            self._client.progress(response.received, 0)
        if 300 <= status < 400 and fields.get("location"):
            return location_of(url, fields["location"])
        return robots_in(status, fields, content, self._token)


def robots_in(status: int, fields: Mapping[str, str], content: bytes, token: str) -> Robots:
    """The rules for the product ``token`` in a response, of whose body ``content`` is at most ``MAX_SIZE`` bytes."""
    if of_status(status) in (Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TRUNCATED) or status == 304:
        wait = wait_asked(fields, time.time()) if status in BUSY else 0.0
        text = f"robots.txt is not available: HTTP {status}"
        return RobotsUnknown(Outcome.SERVER_ERROR, text, again=not wait, wait=wait)
    if not 200 <= status < 300:
        return ALLOW_ALL
    body = unpack(content, fields.get("content-encoding", ""), MAX_SIZE)
    if body is None:
        return RobotsUnknown(Outcome.SERVER_ERROR, "robots.txt has an encoding that was not requested")
    if len(body) >= MAX_SIZE:  # drop the last line: a truncated rule would forbid or allow more
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    try:
        return parse_robots(body, token)
    except ValueError:
        return RobotsUnknown(Outcome.SERVER_ERROR, "robots.txt cannot be read")


def product_token(agent: str) -> str:
    """Our name in robots.txt: ``archec`` for ``archec/1.0 (name; contact)``."""
    match = re.match(r"[A-Za-z_-]+", agent)
    return match[0].lower() if match else "archec"


def parse_robots(content: bytes, token: str) -> RobotsRules:
    """Parses a robots.txt for the product ``token``.

    Groups for other agents are first merged under one name: otherwise a file that lists ten thousand agents for ten
    thousand rules would use memory for their product. Raises ValueError if the library fails.
    """
    text = content.decode("utf-8-sig", "replace").replace("\x00", "")
    lines = [line[:_MAX_LINE] for line in text.splitlines()[:_MAX_LINES]]
    text = _AGENT_LINE.sub(lambda match: _merged(match, token), "\n".join(lines))
    rules = Protego.parse(text)
    delay = float(rules.crawl_delay(token) or 0.0)
    rate = rules.request_rate(token)
    if rate is not None:
        delay = max(delay, rate.seconds / rate.requests)
    return RobotsRules(rules, token, delay, _PER_ORIGIN + _PER_LINE * len(lines) + 2 * len(text))


def _merged(match: re.Match[str], token: str) -> str:
    agent = match[2].strip().lower()
    name = agent.partition("/")[0].rstrip("*").strip()
    if agent == "*":
        return f"{match[1]}*"
    return f"{match[1]}{token if name == token else 'another'}"
