"""OAI-PMH on the server: routes, limits, and the index, which is kept up to date with the catalogue.

At most ``oai.max_lists`` list requests are served at the same time, each until its response has been sent; others
receive 503 with Retry-After. Identify, GetRecord and ListMetadataFormats have their own threads. While the index is
built for the first time, everything that needs it receives 503, because it does not know yet which items exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from prometheus_client import Counter, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles

from archec.archive.opening import Archive
from archec.config import Config
from archec.errors import ArchecError, CatalogueError, CatalogueGone
from archec.oai.follow import Follower
from archec.oai.items import ItemReader
from archec.oai.provider import OaiAnswer, answer
from archec.oai.repository import NOWHERE, Repository, make_repository, open_index
from archec.oai.request import LISTS, Argument, parse_arguments
from archec.oai.sets import SetRules
from archec.server.requests import BodyRefused, read_body
from archec.server.responses import BodyResponse, choose_coding, encode, in_pieces, nothing
from archec.store.layout import journal_of

_log = logging.getLogger("archec.oai")
_LIST_THREADS = 4
"""More threads would only wait for each other."""
_OTHER_THREADS = 4
_XML = "text/xml; charset=utf-8"
_FORM = "application/x-www-form-urlencoded"
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'",
}
_FILES = {"style.xsl": "text/xsl; charset=utf-8", "redif.xsd": "application/xml; charset=utf-8"}
_FAULT_PAUSE = 10.0
"""Seconds after a fault before the index is updated again."""
_CHUNK_PAUSE = 0.02
"""Seconds between two chunks of the index, so that requests are not delayed."""


@contextmanager
def opened_oai(archive: Archive) -> Iterator[OaiCapability]:
    """The OAI-PMH capability of an archive, according to its configuration.

    Raises :class:`archec.errors.ConfigError` for invalid settings, :class:`archec.errors.CatalogueError` if the index
    cannot be opened or belongs to another archive.
    """
    config = archive.config
    with closing(open_index(config.database, config.path(config.oai.index))) as index:
        repository = make_repository(config, index, ItemReader(archive))
        if repository.domain == NOWHERE:
            _log.warning("/oai: %s before the first harvest", _remedy(repository.base_url))
        follower = Follower(
            archive.catalogue,
            index,
            SetRules(config.oai.sets, config.oai.collections),
            has_run=lambda run: journal_of(archive.layout, run) is not None,
            is_complete=lambda: not archive.is_behind(),
        )
        follower.check()
        yield OaiCapability(config, repository, follower)


def _remedy(base_url: str) -> str:
    host = urlsplit(base_url).hostname
    if not host:
        return "set server.url or oai.repositoryIdentifier"
    return f"the host {host} cannot be the domain of identifiers: set oai.repositoryIdentifier"


class OaiCapability:
    """:class:`archec.server.app.Capability` for OAI-PMH.

    ``poll`` is the interval in seconds at which changes of the catalogue are checked for.
    """

    name = page = "oai"

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
        labels = ("verb", "error")
        self._answers = Counter("archec_oai_answers", "Answers by verb and error code.", labels, registry=None)
        self._fault = ""
        self._failing: set[str | None] = set()
        """The verbs whose last request failed because the catalogue is damaged."""
        self._ready = False
        self._list_threads: CapacityLimiter | None = None
        self._other_threads: CapacityLimiter | None = None

    def routes(self) -> Sequence[BaseRoute]:
        static = [Route(f"/oai/{name}", _static) for name in _FILES]
        return [Route("/oai", self._serve, methods=["GET", "POST"]), *static]

    # -- while the server runs --------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the index up to date; on exit, completes a chunk that is being written."""
        self._list_threads, self._other_threads = CapacityLimiter(_LIST_THREADS), CapacityLimiter(_OTHER_THREADS)
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
                steps = self._follower.steps()
                while not stop.is_set():
                    step = await to_thread.run_sync(next, steps, None, limiter=limiter)
                    if step is None:
                        break
                    await asyncio.sleep(_CHUNK_PAUSE)
                else:
                    return
                self._ready = await to_thread.run_sync(lambda: self._repository.index.state().ready, limiter=limiter)
                self._fault = ""
            except Exception as error:  # noqa: BLE001 - a bug of our own must not stop the index silently
                fault = str(error) or "internal error"
                if fault != self._fault:
                    is_ours = not isinstance(error, ArchecError)
                    _log.error("the OAI index cannot follow the catalogue: %s", fault, exc_info=is_ours)
                self._fault = fault
                pause = max(pause, _FAULT_PAUSE)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    def healthy(self, request: Request) -> str:
        """Whether the index or requests fail, or the index is being built; empty if all works. The fault itself is in
        the log, because it may name paths."""
        if self._fault:
            return "the index cannot follow the catalogue: see the log"
        if self._failing:
            return f"{' and '.join(sorted(map(str, self._failing)))} failed: see the log"
        return "" if self._ready else "the index is being built"

    def metrics(self) -> Iterable[Metric]:
        """Answers by verb and error, lists in progress, refusals, the state of the index."""
        yield from self._answers.collect()
        yield GaugeMetricFamily("archec_oai_lists_active", "List requests in progress.", self._lists)
        yield CounterMetricFamily("archec_oai_lists_refused", "List requests answered with 503.", self._refused)
        yield GaugeMetricFamily("archec_oai_index_ready", "Whether the index can be harvested.", self._ready)
        yield GaugeMetricFamily(
            "archec_oai_index_failing", "Whether the index cannot follow the catalogue.", bool(self._fault)
        )

    # -- requests ---------------------------------------------------------------------------------

    async def _serve(self, request: Request) -> Response:
        arguments = parse_arguments(request.scope["query_string"])
        if request.method == "POST":
            if request.headers.get("content-type", _FORM).partition(";")[0].strip().lower() != _FORM:
                return PlainTextResponse(f"A POST to /oai must have the content type {_FORM}.\n", 415)
            body = bytearray()
            try:
                await read_body(request.receive, self._server.max_body, self._server.idle_timeout, body.extend)
            except BodyRefused as refusal:
                return PlainTextResponse(f"{refusal.message}\n", refusal.http_status, {"Connection": "close"})
            arguments += parse_arguments(bytes(body))
        if self._follower.is_replaced:
            return self._refusal("The catalogue was replaced: the operator must restart the server.")
        verb = next((value for name, value in arguments if name == "verb"), None)
        if not self._ready and (verb in LISTS or any(name == "identifier" for name, _ in arguments)):
            return self._refusal("The index is being built.")
        is_list = verb in LISTS
        if is_list and self._lists >= self._oai.max_lists:
            return self._refusal("Too many harvests at once.")
        self._lists += is_list
        try:
            answered = await self._answered(request, arguments, is_list)
        except BaseException as error:
            self._lists -= is_list
            if isinstance(error, CatalogueError) and not isinstance(error, CatalogueGone):  # which ends by itself
                self._failing.add(verb)
            raise
        self._failing.discard(verb)
        return answered

    async def _list_ended(self) -> None:
        self._lists -= 1

    def _refusal(self, reason: str) -> Response:
        self._refused += 1
        after = max(1, round(self._oai.retry_after))
        return PlainTextResponse(f"{reason} Try again in {after} s.\n", 503, {"Retry-After": str(after)})

    async def _answered(self, request: Request, arguments: list[Argument], is_list: bool) -> Response:
        limiter = self._list_threads if is_list else self._other_threads
        base_url = self._repository.base_url or str(request.url.replace(query="", fragment=""))
        coding = choose_coding(request.headers.get("accept-encoding", ""))
        made, body, coding = await to_thread.run_sync(self._work, arguments, base_url, coding, limiter=limiter)
        self._answers.labels(made.verb, made.code).inc()
        headers = {"Vary": "Accept-Encoding", **_SAFE}
        if coding:
            headers["Content-Encoding"] = coding
        plain = Response(None, 200, headers, _XML)
        return BodyResponse(plain, len(body), in_pieces(body), self._list_ended if is_list else nothing)

    def _work(self, arguments: list[Argument], base_url: str, coding: str) -> tuple[OaiAnswer, bytes, str]:
        """In a worker thread: the response, and its encoded body."""
        made = answer(self._repository, arguments, base_url, self._clock())
        return made, *encode(made.body, coding)


def _static(request: Request) -> Response:
    path = Path(__file__).with_name(request.url.path.rpartition("/")[2])
    headers = {"Cache-Control": "max-age=3600"}
    file = FileResponse(path, media_type=_FILES[path.name], headers=headers, stat_result=path.stat())
    is_known = StaticFiles().is_not_modified(file.headers, request.headers)
    return NotModifiedResponse(file.headers) if is_known else file
