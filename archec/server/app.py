"""The application: capabilities side by side, with ``/healthz``, ``/metrics`` and a first page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from archec import __version__
from archec.errors import ArchecError
from archec.server.accesslog import Observed
from archec.server.capability import Capability, Figure
from archec.server.metrics import Requests, as_text

__all__ = ["make_app"]


def make_app(capabilities: Sequence[Capability]) -> ASGIApp:
    """The ASGI application of these capabilities."""
    requests = Requests()

    async def healthz(request: Request) -> Response:
        faults = {one.name: fault for one in capabilities if (fault := one.healthy())}
        value = {"status": "ailing" if faults else "ok", "version": __version__, "faults": faults}
        return JSONResponse(value, 503 if faults else 200, {"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        figures = [Figure("archec_info", 1, "The version that runs.", (("version", __version__),))]
        figures += requests.figures()
        for one in capabilities:
            figures += one.figures()
        return PlainTextResponse(as_text(figures), media_type="text/plain; version=0.0.4")

    async def first(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'"})

    page = _first_page([one.name for one in capabilities])
    routes: list[BaseRoute] = [Route("/", first), Route("/healthz", healthz), Route("/metrics", metrics)]
    for one in capabilities:
        routes += one.routes()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for one in capabilities:
                await stack.enter_async_context(one.running())
            yield

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={ArchecError: _refusal})
    app.router.redirect_slashes = False
    return Observed(app, requests, _parts([one.name for one in capabilities]))


async def _refusal(request: Request, error: Exception) -> Response:
    """What a client is told of an error of ours: not what it says, for that may name paths and hosts."""
    status = error.http_status if isinstance(error, ArchecError) else 500
    if status >= 500:
        import logging

        logging.getLogger("archec.server").error("%s: %s", request.url.path, error)
    headers = {"Retry-After": "60"} if status == 503 else {}
    told = {503: "Not at present.", 500: "Something went wrong here. It has been noted."}
    return PlainTextResponse(told.get(status, str(error)) + "\n", status, headers)


def _first_page(names: Sequence[str]) -> str:
    """What stands at ``/``: where to go from here. The links are relative, for a proxy may have a path before it."""
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
