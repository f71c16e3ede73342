"""robots.txt (RFC 9309), fetched once per run and origin.

The policy:

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
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from protego import Protego

from archec.errors import BadName
from archec.ids import host_of
from archec.web.client import Client, Flight
from archec.web.location import location_of
from archec.web.messages import raw_headers, unpack, wait_asked
from archec.web.outcome import BUSY, Outcome, WebError, of_status
from archec.web.policy import Tuning

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
        return parse(body, token)
    except ValueError:
        return RobotsUnknown(Outcome.SERVER_ERROR, "robots.txt cannot be read")


def product_token(agent: str) -> str:
    """Our name in robots.txt: ``archec`` for ``archec/1.0 (name; contact)``."""
    match = re.match(r"[A-Za-z_-]+", agent)
    return match[0].lower() if match else "archec"


def parse(content: bytes, token: str) -> RobotsRules:
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
