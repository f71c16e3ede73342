"""A real server over loopback for the tests of OAI-PMH."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from oai_support import World
from starlette.types import ASGIApp

from archec.config import ServerConfig
from archec.oai.router import OaiCapability
from archec.server.app import Capability, make_app
from archec.server.run import listen, make_server

LOCAL = ServerConfig(host="127.0.0.1", port=0, access_log="")


class Running:
    """A server in a thread; ``url`` is its address."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket, thread: threading.Thread) -> None:
        self.server, self.thread = server, thread
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.oai = f"{self.url}/oai"


@contextmanager
def running(app: ASGIApp, config: ServerConfig = LOCAL) -> Iterator[Running]:
    """A server that listens, and is stopped at the end."""
    listener = listen(config)
    server = make_server(app, config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield Running(server, listener, thread)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


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
    with running(around(make_app(parts)), server) as made:
        yield made
