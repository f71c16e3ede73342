"""A server with one small capability, for the tests of the server itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from anyio.lowlevel import checkpoint
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from servers import LOCAL, running
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from archec.config import ServerConfig
from archec.errors import BadName, CatalogueGone
from archec.server.app import Capability, make_app
from archec.server.observe import ABORT
from archec.server.responses import BodyResponse, in_pieces

LARGE = b"0123456789abcdef" * (1 << 20)


class Sample:
    """Answers, large answers, and every kind of failure."""

    name = page = "sample"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fault = ""
        self.wait = threading.Event()

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/sample/hello", self.hello, methods=["GET", "POST"]),
            Route("/sample/large", self.large),
            Route("/sample/endless", self.endless),
            Route("/sample/cut", self.cut),
            Route("/sample/slow", self.slow),
            Route("/sample/fails/{how}", self.fails),
        ]

    async def hello(self, request: Request) -> Response:
        await request.body()
        return PlainTextResponse("hello")

    async def large(self, request: Request) -> Response:
        return BodyResponse(Response(None, 200, None, "application/octet-stream"), len(LARGE), in_pieces(LARGE))

    async def endless(self, request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            while True:
                await checkpoint()
                yield LARGE[:65536]

        return BodyResponse(Response(None, 200, None, "application/octet-stream"), -1, body())

    async def cut(self, request: Request) -> Response:
        request.scope["state"][ABORT]()
        for _ in range(10):
            await checkpoint()
        return PlainTextResponse("nobody reads this")

    def slow(self, request: Request) -> Response:
        self.events.append("slow")
        assert self.wait.wait(20)
        return PlainTextResponse("done")

    async def fails(self, request: Request) -> Response:
        how = request.path_params["how"]
        raise {"gone": CatalogueGone("secret host"), "bad": BadName("not a name"), "bug": KeyError("x")}[how]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.events.append("start")
        yield
        self.events.append("stop")

    def healthy(self, request: Request) -> str:
        return self.fault

    def metrics(self) -> Iterable[Metric]:
        things = GaugeMetricFamily("sample_things", "Things.", labels=("what",))
        things.add_metric(('a "b"\n',), 1.5)
        yield things


def serving(*parts: Capability, config: ServerConfig = LOCAL) -> AbstractContextManager[int]:
    """The port of a server with these capabilities."""
    return running(make_app(parts), config)


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def is_cut(client: socket.socket) -> bool:
    """Waits until the server closes the connection."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def is_refused(client: socket.socket, piece: bytes, pause: float = 0) -> bool:
    """Sends a piece again and again, until the server closes the connection."""
    try:
        for _ in range(100_000):
            client.sendall(piece)
            time.sleep(pause)
    except OSError:
        return True
    return False
