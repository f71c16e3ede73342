"""A real server over loopback for the tests of OAI-PMH."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from oai_support import World
from servers import LOCAL, running
from starlette.types import ASGIApp

from archec.config import ServerConfig
from archec.oai.router import OaiCapability
from archec.server.app import Capability, make_app


class Running(NamedTuple):
    """A server in a thread."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def oai(self) -> str:
        return f"{self.url}/oai"


def capability(world: World, server: ServerConfig = LOCAL, **arguments: Any) -> OaiCapability:
    """The capability of a world, whose addresses are those that are asked."""
    world.config = dataclasses.replace(world.config, server=server)
    world.repository = dataclasses.replace(world.repository, base_url="")
    return OaiCapability(world.config, world.repository, world.follower, clock=world.clock, **arguments)


def alone(app: ASGIApp) -> ASGIApp:
    """The application with nothing around it."""
    return app


@contextmanager
def served(
    world: World,
    server: ServerConfig = LOCAL,
    *more: Capability,
    around: Callable[[ASGIApp], ASGIApp] = alone,
    **arguments: Any,
) -> Iterator[Running]:
    """A world on a server; ``around`` puts something around its application."""
    parts: Sequence[Capability] = [capability(world, server, **arguments), *more]
    with running(around(make_app(parts)), server) as port:
        yield Running(port)
