"""A capability that is not there: its path answers 503 with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from prometheus_client import Metric
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route


class AbsentCapability:
    """See the module's docstring, and :class:`archec.server.app.Capability`."""

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
