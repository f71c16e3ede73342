"""The access layer on the server: identifies the viewer, dispatches the request, and writes the audit log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache

from anyio import to_thread
from prometheus_client import Counter, Metric
from prometheus_client.core import GaugeMetricFamily
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from archec.access.api import Api
from archec.access.collection import Collection
from archec.access.errors import Refused, unauthorized
from archec.access.exchange import Exchange, answer, client_of, message
from archec.access.gate import Gate, TransferEnded, Viewer
from archec.access.remote import Web
from archec.config import Config
from archec.errors import ArchecError
from archec.server.app import Capability
from archec.server.observe import ABORT, RETRY_AFTER, SENT
from archec.web.door import Sender

_log = logging.getLogger("archec.access")
_OTHERS = ("", "oai", "healthz", "metrics")
_PREFLIGHT = (
    ("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"),
    ("Access-Control-Allow-Headers", "Authorization, Accept-Datetime, Content-Type, Range"),
    ("Access-Control-Max-Age", "600"),
)
_EXPOSED = "Memento-Datetime, Link, Content-Location, Archive-Source-Coll, ResErrors"


class AccessCapability(BaseRoute, Capability):
    """See the module docstring. It is a route for all paths that no other capability serves."""

    name = "access"
    page = ""

    def __init__(self, config: Config, collections: Mapping[str, Collection], gate: Gate, web: Web) -> None:
        self._config, self._collections, self._gate, self._web = config, collections, gate, web
        self._api = Api(config, collections)
        labels = ("kind", "status")
        self._answers = Counter("archec_access_answers", "Answers by kind and status.", labels, registry=None)
        self._answered_as = cache(self._answers.labels)
        self._logged: frozenset[tuple[str, str]] = frozenset()

    def routes(self) -> Sequence[BaseRoute]:
        return [self]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["path"][1:].partition("/")[0] in _OTHERS:
            return Match.NONE, {}
        return Match.FULL, {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the server runs: checks indexes in the background, and watches rules and tokens."""
        async with Sender(self._config.fetch, self._config.agent, "remote") as self._web.sender:
            tasks = [asyncio.create_task(self._gate.watch()), asyncio.create_task(self._prepare())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                self._gate.audit.close()

    async def _prepare(self) -> None:
        for collection in self._collections.values():
            for step in collection.steps:
                for source in step.local:
                    await to_thread.run_sync(source.prepare, abandon_on_cancel=True)
                    self._index_faults()

    def healthy(self, request: Request) -> str:
        """The faults of the gate, of the audit log and of indexes; "" if there are none. Names and paths are only for
        viewers who may see the metadata of the collection."""
        try:
            viewer = self._gate.enter(request.headers.get("authorization", ""), client_of(request.scope))
        except ArchecError:
            viewer = None
        found = {
            "the access rules or tokens cannot be read: see the log": self._gate.fault,
            "the audit log cannot be written: see the log": self._gate.audit.fault,
        }
        shown = [text for text, fault in found.items() if fault]
        for name, fault in self._index_faults():
            may_know = viewer is not None and viewer.has_metadata and viewer.opens(name)
            shown.append(f"{name}: {fault}" if may_know else "an index cannot be used: see the log")
        return "; ".join(dict.fromkeys(shown))

    def _index_faults(self) -> list[tuple[str, str]]:
        """The current faults of indexes, with the name of the collection. New ones are logged."""
        found = [(one.name, fault) for one in self._collections.values() for s in one.sources for fault in s.faults()]
        for name, fault in found:
            if (name, fault) not in self._logged:
                _log.warning("collection %s: %s", name, fault)
        self._logged = frozenset(found)
        return found

    def metrics(self) -> Iterable[Metric]:
        """Responses by kind and status. No collection is named: whoever reads the metrics may not be allowed to know
        them."""
        yield from self._answers.collect()
        out = sum(one.is_out for coll in self._collections.values() for one in coll.sources)
        yield GaugeMetricFamily(
            "archec_access_sources_left_out", "Sources that are skipped because they keep failing.", out
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, sent = Exchange(scope, receive), scope[SENT]
        viewer: Viewer | None = None
        try:
            if exchange.method == "OPTIONS" and self._config.access.cors:
                response = answer(204, b"", "text/plain", _PREFLIGHT)
                await self._complete(response, exchange)(scope, receive, send)
            else:
                viewer = self._gate.enter(exchange.headers.get("authorization", ""), client_of(scope))
                self._gate.count(viewer.token)
                try:
                    await self._gate.transfer(viewer, self._serve(exchange, viewer, send))
                except TransferEnded as ended:
                    if not sent.status:
                        raise unauthorized() from ended
                    scope["state"][ABORT]()
                    raise
        except Refused as refusal:
            later = (("Retry-After", RETRY_AFTER),) if refusal.http_status == 503 else ()
            response = message(refusal.http_status, refusal.message, refusal.errors, (*refusal.headers, *later))
            await self._complete(response, exchange)(scope, receive, send)
        finally:
            exchange.close()
            self._answered_as(exchange.note.get("kind", "other"), str(sent.status)).inc()
            self._gate.audit.add(
                time.time(),
                {
                    "who": viewer.token.name if viewer is not None and viewer.token is not None else "",
                    "address": client_of(scope),
                    "method": exchange.method,
                    "path": exchange.path[:8192],
                    "query": exchange.query_string[:8192],
                    "status": sent.status,
                    "bytes": sent.size,
                    **exchange.note,
                },
            )

    async def _serve(self, exchange: Exchange, viewer: Viewer, send: Send) -> None:
        response = await self._answered(exchange, viewer)
        await self._complete(response, exchange)(exchange.scope, exchange.receive, send)

    async def _answered(self, exchange: Exchange, viewer: Viewer) -> Response:
        try:
            return await self._api.answer(exchange, viewer)
        except Refused:
            raise
        except ArchecError as error:
            viewer.check_empty()
            if error.http_status >= 500:
                _log.error("%s: %s", exchange.path[:200], error)
                raise Refused(error.http_status, "Temporarily unavailable") from error
            raise Refused(error.http_status, error.message) from error

    def _complete(self, response: Response, exchange: Exchange) -> Response:
        """The response with the headers that every response has."""
        made = response.raw_headers
        made.append((b"x-content-type-options", b"nosniff"))
        if "authorization" in exchange.headers or self._gate.rules.depend_on_address:
            made.append((b"cache-control", b"private"))
        origin = exchange.headers.get("origin", "")
        allowed = self._config.access.cors
        if origin and ("*" in allowed or origin in allowed):
            made.append((b"access-control-allow-origin", b"*" if "*" in allowed else origin.encode("latin-1")))
            made.append((b"access-control-expose-headers", _EXPOSED.encode()))
        if allowed and "*" not in allowed:
            made.append((b"vary", b"origin"))
        return response
