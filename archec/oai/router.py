"""OAI-PMH on the server: routes, limits, and the index that follows the catalogue meanwhile.

List requests have a number of places, held until the answer has been sent; when all are taken, the next
is told 503 with Retry-After. Identify, GetRecord and ListMetadataFormats have workers of their own and
are never refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from importlib.resources import files
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from archec.config import Config
from archec.errors import ArchecError
from archec.oai.follow import Follower
from archec.oai.provider import Answer, answer
from archec.oai.repository import Repository
from archec.oai.request import LISTS, Pair, parse_pairs
from archec.server.responses import PiecewiseResponse, choose_coding, encode

__all__ = ["OaiCapability"]

_log = logging.getLogger("archec.oai")
_WORKERS = 4
"""Threads for lists; more would only wait for each other."""
_FREE_WORKERS = 4
_XML = "text/xml; charset=utf-8"
_FORM = "application/x-www-form-urlencoded"
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'",
}
_FILES = {"style.xsl": "text/xsl; charset=utf-8", "redif.xsd": "application/xml; charset=utf-8"}
_FAULT_PAUSE = 10.0
"""Seconds before the index tries again after a fault."""
_LOT_PAUSE = 0.02
"""Seconds between two lots of the index, so that requests get their turn."""


class OaiCapability:
    """See :class:`archec.server.capability.Capability` and this module's docstring.

    ``poll`` is how often, in seconds, the index looks whether the catalogue has moved on.
    """

    name = "oai"

    def __init__(
        self,
        config: Config,
        repository: Repository,
        follower: Follower,
        *,
        clock: Callable[[], float] = time.time,
        poll: float = 2.0,
    ) -> None:
        self._oai, self._server = config.oai, config.server
        self._repository, self._follower, self._clock, self._poll = repository, follower, clock, poll
        self._lists = 0
        self._refused = 0
        self._answers: Counter[tuple[str, str]] = Counter()
        self._fault = ""
        self._ready = False
        self._workers: CapacityLimiter | None = None
        self._free_workers: CapacityLimiter | None = None

    def routes(self) -> Sequence[BaseRoute]:
        """``/oai``, its style sheet and its schema."""
        static = [Route(f"/oai/{name}", _static(name, type_)) for name, type_ in _FILES.items()]
        return [Route("/oai", self._serve, methods=["GET", "POST"]), *static]

    # -- while the server runs --------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The index follows the catalogue; the lot in work is finished before the end."""
        self._workers, self._free_workers = CapacityLimiter(_WORKERS), CapacityLimiter(_FREE_WORKERS)
        self._ready = await to_thread.run_sync(lambda: self._repository.index.state().ready)
        stop = asyncio.Event()
        task = asyncio.create_task(self._follow(stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def _follow(self, stop: asyncio.Event) -> None:
        limiter = CapacityLimiter(1)
        while not stop.is_set():
            pause = self._poll
            try:
                for_pass = self._follower.steps()
                while not stop.is_set():
                    progress = await to_thread.run_sync(next, for_pass, None, limiter=limiter)
                    if progress is None or progress.level:
                        break
                    await asyncio.sleep(_LOT_PAUSE)
                else:
                    return
                self._ready = await to_thread.run_sync(lambda: self._repository.index.state().ready, limiter=limiter)
                self._fault = ""
            except ArchecError as error:
                if not self._fault:
                    _log.error("the OAI index cannot follow the catalogue: %s", error)
                self._fault = error.message
                pause = max(pause, _FAULT_PAUSE)
            except Exception:  # noqa: BLE001 - it is logged and told by /healthz
                # A fault in our own code must not end the following in silence.
                _log.exception("the OAI index cannot follow the catalogue")
                self._fault = "the index cannot follow the catalogue; see the log"
                pause = max(pause, _FAULT_PAUSE)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    def healthy(self) -> str:
        """Whether the index follows, and whether it can be harvested yet."""
        return self._fault or ("" if self._ready else "the index is being made")

    def metrics(self) -> Iterable[Metric]:
        """Answers by verb and error, lists in progress, refusals, the state of the index."""
        answers = CounterMetricFamily("archec_oai_answers", "Answers by verb and error code.", labels=("verb", "error"))
        for labels, count in sorted(self._answers.items()):
            answers.add_metric(labels, count)
        yield answers
        yield GaugeMetricFamily("archec_oai_lists_active", "List requests in progress.", self._lists)
        yield CounterMetricFamily("archec_oai_lists_refused", "List requests answered with 503.", self._refused)
        yield GaugeMetricFamily("archec_oai_index_ready", "Whether the index can be harvested.", self._ready)
        yield GaugeMetricFamily("archec_oai_index_failing", "Whether the index cannot follow.", bool(self._fault))

    # -- requests ---------------------------------------------------------------------------------

    async def _serve(self, request: Request) -> Response:
        pairs = parse_pairs(request.scope["query_string"])
        if request.method == "POST":
            if request.headers.get("content-type", _FORM).partition(";")[0].strip().lower() != _FORM:
                return PlainTextResponse(f"A POST to /oai has the content type {_FORM}.\n", 415)
            body = await _body(request, self._server.max_body, self._server.idle_timeout)
            if isinstance(body, Response):
                return body
            pairs += parse_pairs(body)
        verb = next((value for name, value in pairs if name == "verb"), None)
        if verb not in LISTS:
            return await self._answered(request, pairs, self._free_workers)
        if not self._ready:
            return self._refusal("The index is being made.")
        if self._lists >= self._oai.max_lists:
            return self._refusal("Too many harvests at once.")
        self._lists += 1
        try:
            response = await self._answered(request, pairs, self._workers)
        except BaseException:
            self._lists -= 1
            raise
        return _Held(response, self._give_back)

    def _give_back(self) -> None:
        self._lists -= 1

    def _refusal(self, reason: str) -> Response:
        self._refused += 1
        after = max(1, round(self._oai.retry_after))
        return PlainTextResponse(f"{reason} Try again in {after} s.\n", 503, {"Retry-After": str(after)})

    async def _answered(self, request: Request, pairs: list[Pair], limiter: CapacityLimiter | None) -> Response:
        base_url = self._repository.base_url or _asked(request)
        coding = choose_coding(request.headers.get("accept-encoding", ""))
        answer_, body, coding = await to_thread.run_sync(self._work, pairs, base_url, coding, limiter=limiter)
        self._answers[answer_.verb, answer_.code] += 1
        headers = {"Vary": "Accept-Encoding", **_SAFE}
        if coding:
            headers["Content-Encoding"] = coding
        return PiecewiseResponse(body, type_=_XML, headers=headers)

    def _work(self, pairs: list[Pair], base_url: str, coding: str) -> tuple[Answer, bytes, str]:
        """In a worker thread: the answer, and its encoded body."""
        made = answer(self._repository, pairs, base_url, self._clock())
        return made, *encode(made.body, coding)


class _Held(Response):
    """A response that gives its place back when it has been sent, or its client is gone."""

    def __init__(self, response: Response, done: Callable[[], None]) -> None:
        self._response, self._done = response, done
        self.background = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        try:
            await self._response(scope, receive, send)
        finally:
            self._done()


async def _body(request: Request, most: int, patience: float) -> bytes | Response:
    """The body of a request, or the refusal of one that is too large or too slow."""
    parts: list[bytes] = []
    size = 0
    close = {"Connection": "close"}
    try:
        with anyio.fail_after(patience):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    return PlainTextResponse(f"A body has at most {most} bytes.\n", 413, close)
                parts.append(part)
    except TimeoutError:
        return PlainTextResponse("The body did not come in time.\n", 408, close)
    return b"".join(parts)


def _asked(request: Request) -> str:
    """The address that was asked: only where no configuration says what it is."""
    return str(request.url.replace(query="", fragment=""))


@lru_cache
def _read(name: str) -> bytes:
    return files("archec.oai").joinpath(name).read_bytes()


def _static(name: str, type_: str) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        return PiecewiseResponse(_read(name), type_=type_, headers={"Cache-Control": "max-age=3600"})

    return serve
