"""What joins the server: routes, something to do while it runs, figures for ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from starlette.routing import BaseRoute

__all__ = ["Capability", "Figure"]


class Figure(NamedTuple):
    """One figure for ``/metrics``: a gauge, or a counter where its name ends in ``_total``."""

    name: str
    value: float
    help: str
    labels: tuple[tuple[str, str], ...] = ()


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

    def figures(self) -> Iterable[Figure]:
        """Its figures at this moment. Must not wait."""
        ...
