"""What joins the server: routes, something to do while it runs, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from prometheus_client import Metric
from starlette.routing import BaseRoute


class Capability(Protocol):
    """A part of the server, in a folder of its own. The server starts it, and stops it last of all."""

    name: str

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
