"""The ASGI application: the routes of all capabilities, ``/healthz``, ``/metrics`` and an index page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from typing import Protocol

from anyio.lowlevel import checkpoint
from prometheus_client import CollectorRegistry, Info, Metric, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from archec import __version__
from archec.server.observe import Observed
from archec.server.requests import limited


class Capability(Protocol):
    """A part of the server. Its ``running`` context spans the life of the server."""

    name: str
    page: str
    """The path that the index page links to, or ""."""

    def routes(self) -> Sequence[BaseRoute]:
        """Its routes. No two capabilities share a path."""
        ...

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Entered when the server starts, and left when all requests are complete."""
        yield

    def healthy(self, request: Request) -> str:
        """Returns "" if it works, otherwise the fault, as far as whoever asks may know it. Must not block."""
        return ""

    def metrics(self) -> Iterable[Metric]:
        """Its current metrics for ``/metrics``. Must not block."""
        return ()


def make_app(capabilities: Sequence[Capability]) -> ASGIApp:
    registry = CollectorRegistry()
    Info("archec", "The version that runs.", registry=registry).info({"version": __version__})
    registry.register(_Collected(capabilities))

    async def healthz(request: Request) -> Response:
        faults = {one.name: fault for one in capabilities if (fault := one.healthy(request))}
        value = {"status": "degraded" if faults else "ok", "version": __version__, "faults": faults}
        return JSONResponse(value, 503 if faults else 200, {"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    async def first(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'"})

    page = _first_page([one.page for one in capabilities if one.page])
    routes: list[BaseRoute] = [route for one in capabilities for route in one.routes()]
    routes += [Route("/", first), Route("/healthz", healthz), Route("/metrics", metrics)]

    @asynccontextmanager
    async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
        await checkpoint()  # loads the back end of anyio now: later no descriptor may be left for that
        async with AsyncExitStack() as stack:
            for one in capabilities:
                await stack.enter_async_context(one.running())
            yield

    app = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return Observed(limited(app), registry, [*(one.name for one in capabilities), "healthz", "metrics"])


class _Collected(Collector):
    def __init__(self, capabilities: Sequence[Capability]) -> None:
        self._capabilities = capabilities

    def collect(self) -> Iterable[Metric]:
        for one in self._capabilities:
            yield from one.metrics()


def _first_page(names: Sequence[str]) -> str:
    """The index page. Its links are relative, because a proxy may add a path prefix."""
    links = "".join(f'<li><a href="{escape(name)}">/{escape(name)}</a></li>\n' for name in [*names, "healthz"])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>archec</title></head>\n'
        f"<body><h1>archec {escape(__version__)}</h1>\n<ul>\n{links}</ul></body></html>\n"
    )


class AbsentCapability(Capability):
    """Stands in for a capability that this server lacks: its paths answer 503 with the reason. The
    server runs without it on purpose, so it is healthy."""

    page = ""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def routes(self) -> Sequence[BaseRoute]:
        """Its path and everything below it."""
        methods = ["GET", "POST"]
        return [Route(f"/{self.name}", self._serve, methods=methods), Route(f"/{self.name}/{{rest:path}}", self._serve)]

    async def _serve(self, request: Request) -> Response:
        return PlainTextResponse(f"{self._reason}\n", 503, {"Retry-After": "3600"})
