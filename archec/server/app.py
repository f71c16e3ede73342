"""The application: capabilities side by side, with ``/healthz``, ``/metrics`` and a first page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from html import escape
from typing import Protocol

from prometheus_client import CollectorRegistry, Info, Metric, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from archec import __version__
from archec.server.observe import Observed


class Capability(Protocol):
    """A part of the server, in its own directory. The server starts it, and stops it last of all."""

    name: str
    page: str
    """The part of its paths that stands on the server's first page, "" for none."""

    def routes(self) -> Sequence[BaseRoute]:
        """Its routes; no two capabilities share a path."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Entered when the server starts and left when all requests are done."""
        ...

    def healthy(self) -> str:
        """ "" while it can do its work, else what is wrong. Must not wait."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """Its metrics for ``/metrics`` at this moment. Must not wait."""
        ...


def make_app(capabilities: Sequence[Capability]) -> ASGIApp:
    """The ASGI application of these capabilities."""
    registry = CollectorRegistry()
    Info("archec", "The version that runs.", registry=registry).info({"version": __version__})
    registry.register(_Collected(capabilities))

    async def healthz(request: Request) -> Response:
        faults = {one.name: fault for one in capabilities if (fault := one.healthy())}
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
        async with AsyncExitStack() as stack:
            for one in capabilities:
                await stack.enter_async_context(one.running())
            yield

    app = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return Observed(app, registry, _parts([one.name for one in capabilities]))


class _Collected(Collector):
    """The metrics of all capabilities."""

    def __init__(self, capabilities: Sequence[Capability]) -> None:
        self._capabilities = capabilities

    def collect(self) -> Iterable[Metric]:
        for one in self._capabilities:
            yield from one.metrics()


def _first_page(names: Sequence[str]) -> str:
    """What is at ``/``: where to go from here. The links are relative, for a proxy may have a path before it."""
    links = "".join(f'<li><a href="{escape(name)}">/{escape(name)}</a></li>\n' for name in [*names, "healthz"])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>archec</title></head>\n'
        f"<body><h1>archec {escape(__version__)}</h1>\n<ul>\n{links}</ul></body></html>\n"
    )


def _parts(names: Sequence[str]) -> Callable[[str], str]:
    known = frozenset([*names, "healthz", "metrics"])

    def part_of(path: str) -> str:
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        return first if first in known else "other"

    return part_of


class AbsentCapability:
    """See the module, and :class:`archec.server.app.Capability`."""

    page = ""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def routes(self) -> Sequence[BaseRoute]:
        """Its path, and all below it."""
        methods = ["GET", "POST"]
        return [Route(f"/{self.name}", self._serve, methods=methods), Route(f"/{self.name}/{{rest:path}}", self._serve)]

    async def _serve(self, request: Request) -> Response:
        return PlainTextResponse(f"{self._reason}\n", 503, {"Retry-After": "3600"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing is done."""
        yield

    def healthy(self) -> str:
        """It is as it should be."""
        return ""

    def metrics(self) -> Iterable[Metric]:
        """None."""
        return ()
