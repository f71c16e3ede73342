"""Requests to platforms, through ``web.door``: with rate limits per host, retries, and the platforms' tokens."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from archec.config import FetchConfig
from archec.config.types import rate_of
from archec.fileset.platforms.base import FilesetPlatformHelper, PlatformAnswer, Question, host_of
from archec.fileset.status import PlatformHttpError, Status
from archec.text.sniff import bare_type
from archec.web.door import Response, Sender, TooLarge, WebError, content, located
from archec.web.messages import raw_headers, wait_asked, whole
from archec.web.outcome import Outcome, of_status
from archec.web.policy import Tuning
from archec.web.politeness import ALLOW_ALL, MAX_SIZE, RobotsRules, RobotsUnknown, product_token, robots_in

_MOST_BYTES = 100_000_000
"""Size limit of a response in bytes; a manifest of 100,000 files has some 60 million."""
_MOST_OF_PAGE = 20_000_000
"""Size limit of an HTML page in bytes: parsing takes some 0.2 s per million."""
PAGE_TYPES = ("text/html", "application/xhtml+xml")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_HOPS = 10
_MOST_REFUSALS = 10
"""After so many answers of too many requests, a request fails: the host may refuse nothing but this one."""
_PENALTY = Tuning().penalty
_BUSY = frozenset({202, 429, 500, 502, 503, 504})
_STATUS = {
    Outcome.TIMEOUT: Status.TIMEOUT, Outcome.BLOCKED_ADDRESS: Status.BLOCKED_ADDRESS,
    Outcome.DENIED: Status.SKIP_URL_BLOCKLIST, Outcome.TOO_LARGE: Status.BODY_TOO_LARGE,
    Outcome.BAD_URL: Status.BAD_REDIRECT,
}  # fmt: skip


@dataclass(slots=True)
class HostTimes:
    """When the next request may be sent to a host: because of the delay, because the host asked for a rest, and for
    pages because of the Crawl-delay of its robots.txt. Also its failures in a row, and the last of them."""

    next: float = 0.0
    resting_until: float = 0.0
    next_page: float = 0.0
    penalty: float = 0.0
    faults: int = 0
    last_fault: str = ""

    def failed(self, message: str) -> None:
        """Counts a failure."""
        self.faults, self.last_fault = self.faults + 1, message

    def given_up(self, name: str, most: int) -> str:
        """Why a host is asked no more in this run: it failed ``most`` times in a row. Empty if it is asked."""
        if self.faults < most:
            return ""
        return f"{name} was given up for this run after {self.faults} failures in a row; the last: {self.last_fault}"

    def rest(self, seconds: float) -> None:
        """Sends no request in the next ``seconds``."""
        self.resting_until = max(self.resting_until, time.monotonic() + seconds)

    def slow_down(self) -> None:
        """Rests because of too many requests, twice as long as the last time; one rest is for all requests that were in
        progress."""
        if self.resting_until <= time.monotonic():
            self.penalty = max(2 * self.penalty, _PENALTY)
            self.rest(self.penalty)

    def answered(self) -> None:
        """Ends a series of failures."""
        self.faults, self.penalty = 0, 0.0


class Pace:
    """Limits the requests to a host, to its API or for anything else: concurrency, and the rate limit of the API. The
    ``host``'s times are those of all requests to it."""

    def __init__(self, config: FetchConfig, rate: tuple[int, float] | None, host: HostTimes) -> None:
        self.slots = asyncio.Semaphore(config.per_host)
        """One is held for each request, until the end of its response."""
        self._delay = config.delay
        self._rate = rate
        self._tokens = float(rate[0]) if rate is not None else 0.0
        self._counted = 0.0
        self.host = host

    def wait(self) -> float:
        """Returns the seconds until a request may be sent. If that is 0, the request is counted as sent."""
        now = time.monotonic()
        wait = max(self.host.next, self.host.resting_until) - now
        if wait > 0:
            return wait
        if self._rate is not None:
            most, seconds = self._rate
            self._tokens = min(float(most), self._tokens + (now - self._counted) * most / seconds)
            self._counted = now
            if self._tokens < 1.0:
                return (1.0 - self._tokens) * seconds / most
            self._tokens -= 1.0
        self.host.next = now + self._delay
        return 0.0


class Asker:
    """Sends requests. The policy of its ``sender`` has the address guard and the timeouts."""

    def __init__(
        self,
        config: FetchConfig,
        agent: str,
        sender: Sender,
        helpers: list[FilesetPlatformHelper],
    ) -> None:
        self._config, self._agent, self._sender = config, agent, sender
        self._helpers = helpers
        self._paces: dict[tuple[str, bool], Pace] = {}
        self._hosts: dict[str, HostTimes] = {}
        self._rules: dict[str, RobotsRules | PlatformHttpError] = {}
        self._learning: dict[str, asyncio.Lock] = {}
        self.requests = 0
        """Requests sent, including those of redirects."""
        self.received = 0
        """Bytes of answers received; files are not counted."""

    # -- questions --------------------------------------------------------------------------------

    async def answer(self, question: Question, helper: FilesetPlatformHelper | None) -> PlatformAnswer:
        """Sends a question, follows redirects and returns the answer. Raises PlatformHttpError if the request fails or
        robots.txt forbids a page."""
        named = helper if question.secret else None
        accept = {"Accept": question.accept}
        request = self.request(question.url, accept, named, api=not question.page, page=question.page)
        async with request as (response, fields):
            kind, body = bare_type(fields.get("content-type", "")), b""
            may_be_page = "html" in question.accept
            is_cut = question.only_page and response.status_code == 200 and kind not in ("", *PAGE_TYPES)
            try:
                if not is_cut:
                    body = await content(response, _MOST_OF_PAGE if may_be_page else _MOST_BYTES)
            except TooLarge as error:
                if not may_be_page or kind in PAGE_TYPES:
                    raise _http_error(question.url, error) from error
                is_cut = True
            self.received += len(body)
            fields.pop("location", None)
            fields["link"] = response.headers.get("link", "")  # whole: a list of files may be long
            return PlatformAnswer(response.url, response.status_code, fields, body, is_cut)

    def _secret(self, helper: FilesetPlatformHelper | None, url: str) -> dict[str, str]:
        """Returns the header with a platform's token; empty unless the platform's helper trusts the URL, as it is
        requested."""
        if helper is None or not helper.config.token:
            return {}
        origin, target, _ = located(url)
        if not helper.trusts(origin.url(target)):
            return {}
        token = os.environ.get(helper.config.token, "").strip()
        if not token or not (token.isascii() and token.isprintable()):
            return {}
        name, value = helper.secret_header
        return {name: value.format(token)}

    # -- requests ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def request(
        self, url: str, headers: Mapping[str, str], helper: FilesetPlatformHelper | None = None, *, api: bool = False,
        page: bool = False,
    ) -> AsyncIterator[tuple[Response, dict[str, str]]]:  # fmt: skip
        """Sends a GET request, follows redirects and yields the response, with its body still unread, and its fields.
        Temporary errors are retried ``fetch.retries`` times; too many requests (429) are repeated after a rest.
        ``helper``: its token is sent to URLs that it trusts, and never to other hosts to which it redirects. ``page``:
        robots.txt applies.

        Raises PlatformHttpError if the request fails, and for errors while the block reads the body.
        """
        attempts = refusals = origins = 0
        hops = [url]
        while True:
            last, response = attempts == self._config.retries, None
            try:
                await self._rested(hops[-1])  # without a place at the first host
                if page:
                    origins += _origin(hops[-1]) not in self._rules
                    if origins > _MOST_HOPS:  # each request may be redirected to another host
                        raise _too_many_redirects(url)
                    await self._rules_of(hops[-1])
                    await self._permit(url)
                pace, hops = self._pace(url, helper, api=api), [url]  # the target of a redirect may have expired
                async with pace.slots:
                    response = await self._follow(hops, headers, helper, pace, page=page)
                    if response is None:
                        continue
                    with closing(response):
                        fields, host = raw_headers(response.raw), self._host(response.url)
                        rest = _rest_asked(response.status_code, fields, self._config.max_delay)
                        host.rest(rest)
                        if response.status_code == 429 and not rest:
                            host.slow_down()
                            refusals += 1
                            if refusals < _MOST_REFUSALS:
                                continue
                        if has_failed := is_fault(response.status_code):
                            host.failed(f"HTTP {response.status_code}")
                        if response.status_code not in _BUSY or last:
                            last = True  # errors while the body is read are not retried
                            yield response, fields
                            if not has_failed:
                                host.answered()
                            return
            except WebError as error:
                if error.outcome.is_transient:
                    self._host(hops[-1]).failed(error.message)
                if last or error.lasting:
                    raise _http_error(url, error) from error
            except ValueError as error:
                message = f"{url[:300]}: cannot be requested: {error}"
                raise PlatformHttpError(message, status=Status.BAD_REDIRECT) from error
            self._host(hops[-1]).rest(min(2.0**attempts, 30.0) / 4)
            attempts += 1

    async def _follow(
        self, hops: list[str], headers: Mapping[str, str], helper: FilesetPlatformHelper | None, pace: Pace, *,
        page: bool,
    ) -> Response | None:  # fmt: skip
        """Returns the response at the end of the redirects, whose targets are appended to ``hops``; None if the host of
        the last one rests, or its robots.txt is to be requested first. Raises PlatformHttpError for a loop or too many
        of them, and as ``_rest`` and ``_permit`` do."""
        while True:
            here = hops[-1]
            if self._rest(here) and len(hops) > 1:
                return None
            if page and len(hops) > 1:
                if _origin(here) not in self._rules:
                    return None
                await self._permit(here)
            if len(hops) == 1 and (pause := pace.wait()) > 0:
                await asyncio.sleep(pause)
                continue
            self.requests += 1
            response = await self._sender.send("GET", here, {**headers, **self._secret(helper, here)})
            location = response.headers.get("location", "") if response.status_code in _REDIRECTS else ""
            if not location:
                return response
            response.close()
            self._host(here).faults = 0
            here = urljoin(here, location)
            if here in hops:
                raise PlatformHttpError(f"{here}: redirects form a loop", status=Status.REDIRECT_LOOP)
            if len(hops) > _MOST_HOPS:
                raise _too_many_redirects(hops[0])
            hops.append(here)

    async def _rested(self, url: str) -> None:
        """Waits until a request may be sent to a URL's host. Raises as ``_rest`` does."""
        while rest := self._rest(url):
            await asyncio.sleep(rest)

    def _rest(self, url: str) -> float:
        """The seconds that a URL's host asks to wait. Raises PlatformHttpError if these are more than
        ``fetch.max_delay``, or if it has failed ``fetch.host_failures`` times in a row."""
        host = self._host(url)
        rest = max(host.resting_until - time.monotonic(), 0.0)
        if rest > self._config.max_delay:
            raise PlatformHttpError(f"{host_of(url)} asks to wait {rest:.0f} s")
        if why := host.given_up(host_of(url), self._config.host_failures):
            raise PlatformHttpError(why)
        return rest

    def _host(self, url: str) -> HostTimes:
        """The times of a URL's host. Raises ``WebError`` for an invalid URL."""
        return self._hosts.setdefault(located(url)[0].netloc, HostTimes())

    def _pace(self, url: str, asking: FilesetPlatformHelper | None, *, api: bool) -> Pace:
        """The pace for a URL's host. A platform's rate limit applies to requests to its API only: it is the limit of
        the platform with this API, else of the one that is ``asking``. Raises ``WebError`` for an invalid URL."""
        helper = next((one for one in self._helpers if _is_api(one, url)), asking) if api else None
        key = (located(url)[0].netloc, helper is not None)
        if key not in self._paces:
            rate = None if helper is None else rate_of(helper.config.rate or helper.rate)
            self._paces[key] = Pace(self._config, rate, self._host(url))
        return self._paces[key]

    async def _permit(self, url: str) -> None:
        """Waits for the Crawl-delay of robots.txt. Raises PlatformHttpError if it is more than ``fetch.max_delay``, if
        robots.txt does not allow the URL, and as ``_rules_of`` does."""
        rules, host = await self._rules_of(url), self._host(url)
        if not rules.allows(url):
            raise PlatformHttpError(f"{url[:300]}: robots.txt does not allow it", status=Status.ROBOTS)
        if rules.delay > self._config.max_delay:
            raise PlatformHttpError(f"{host_of(url)}: robots.txt asks for {rules.delay:g} s between requests")
        now = time.monotonic()
        turn = max(host.next_page, now)
        host.next_page = turn + rules.delay
        await asyncio.sleep(turn - now)

    async def _rules_of(self, url: str) -> RobotsRules:
        """The robots.txt for a URL. Raises PlatformHttpError if it is unknown in this run, because it cannot be
        fetched."""
        origin = _origin(url)
        async with self._learning.setdefault(origin, asyncio.Lock()):
            if origin not in self._rules:
                is_bound = self._config.robots != "ignore" and not origin.startswith("ftp:")
                rules = self._rules[origin] = await self._learn(f"{origin}/robots.txt") if is_bound else ALLOW_ALL
                if isinstance(rules, RobotsRules):
                    self._host(url).next_page = time.monotonic() + rules.delay
        rules = self._rules[origin]
        if isinstance(rules, PlatformHttpError):
            raise PlatformHttpError(rules.message, status=rules.status)
        return rules

    def progressed(self, url: str) -> None:
        """Takes back the failures of a URL's host, of which more of a file was received."""
        self._host(url).answered()

    async def _learn(self, url: str) -> RobotsRules | PlatformHttpError:
        """Requests a robots.txt. Returns its rules, or why they are unknown."""
        try:
            async with self.request(url, {}) as (response, fields):
                content = (await response.upto(MAX_SIZE))[:MAX_SIZE]
                found = robots_in(response.status_code, fields, content, product_token(self._agent))
        except PlatformHttpError as error:
            return ALLOW_ALL if error.status is Status.BAD_REDIRECT else error
        return PlatformHttpError(f"{host_of(url)}: {found.message}") if isinstance(found, RobotsUnknown) else found


def _is_api(helper: FilesetPlatformHelper, url: str) -> bool:
    return host_of(helper.config.api or helper.api) == host_of(url) or (bool(helper.name) and helper.serves(url))


def is_fault(status: int) -> bool:
    """Whether a status is a failure of the host, as ``fetch.host_failures`` counts them."""
    outcome = of_status(status) if status != 206 else None
    return outcome is not None and outcome.is_transient


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _rest_asked(status: int, fields: Mapping[str, str], most: float) -> float:
    """The seconds for which a host asks to wait: with Retry-After, or until its exhausted rate limit is reset, then at
    most ``most``."""
    wait = wait_asked(fields, time.time()) if status not in (200, 206) else 0.0
    reset = whole(fields.get("x-ratelimit-reset", ""))
    if reset is not None and reset < 1e11 and fields.get("x-ratelimit-remaining", "") == "0":
        wait = max(wait, min(reset - time.time() if reset > 1e9 else reset, most))
    return wait


def _too_many_redirects(url: str) -> PlatformHttpError:
    return PlatformHttpError(f"{url[:300]}: more than {_MOST_HOPS} redirects", status=Status.REDIRECTS_EXCEEDED)


def _http_error(url: str, error: WebError) -> PlatformHttpError:
    status = _STATUS.get(error.outcome, Status.PLATFORM_HTTP_ERROR)
    return PlatformHttpError(f"{url[:300]}: {error.message}", status=status)
