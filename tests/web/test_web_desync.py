"""Answers that nobody asked for: they never pass for the answer to another request."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from web_support import fetch, settings

from archec.web.outcome import Outcome


class Pipe(asyncio.Protocol):
    """Answers each request with the path it asked for; ``spoil`` says what else goes out, and after how long."""

    def __init__(self, server: Desync) -> None:
        self.server = server
        self.asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections += 1

    def data_received(self, data: bytes) -> None:
        for head in data.split(b"\r\n\r\n")[:-1]:
            path = head.split(b" ")[1].decode()
            self.asked += 1
            self.server.asked.append((path, b"Connection: close" in head))
            self.transport.write(answer_to(path))
            self.server.spoil(self, path)
            if b"Connection: close" in head and not self.server.late:
                self.transport.close()


def answer_to(path: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path.encode())


GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"


class Desync:
    def __init__(self, spoil: Callable[[Pipe, str], None]) -> None:
        self.spoil = spoil
        self.asked: list[tuple[str, bool]] = []
        self.connections = 0
        self.late = False
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def serving(spoil: Callable[[Pipe, str], None]) -> Iterator[Desync]:
    made = Desync(spoil)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: Pipe(made), "127.0.0.1", 0))
    made.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def once(what: bytes, wait: float, at: str) -> Callable[[Pipe, str], None]:
    """Sends ``what`` some time after the first answer to ``at``."""
    done: list[str] = []

    def spoil(pipe: Pipe, path: str) -> None:
        if path == at and not done:
            done.append(path)
            send = pipe.transport.write
            if wait:
                asyncio.get_running_loop().call_later(wait, send, what)
            else:
                send(what)

    return spoil


@pytest.mark.parametrize("wait", [0.0, 0.0005, 0.003, 0.01, 0.05])
@pytest.mark.parametrize("what", [GONE, answer_to("/other"), b"x" * 10], ids=["gone", "other", "rest"])
def test_no_answer_is_taken_for_another(tmp_path: Path, wait: float, what: bytes) -> None:
    """A surplus answer, at any moment: every body that is not taken back is that of its own URL."""
    paths = [f"/{n}" for n in range(60)]
    with serving(once(what, wait, "/7")) as server:
        doubtful: list[str] = []
        hops = fetch(
            tmp_path, [server.url(path) for path in paths], settings(per_host=1, retries=0), doubtful=doubtful
        )
    for path, hop in zip(paths, hops, strict=True):
        if hop.url not in doubtful:
            assert (hop.kind, hop.outcome) == ("body", None)
            assert Path(hop.temp).read_bytes() == path.encode()
    assert len(doubtful) <= 20
    assert any(close for _, close in server.asked), "the host has lost its kept connections"


def test_a_host_whose_answers_are_in_step_keeps_its_connections_for_twenty_requests(tmp_path: Path) -> None:
    with serving(lambda pipe, path: None) as server:
        hops = fetch(tmp_path, [server.url(f"/{n}") for n in range(60)], settings(per_host=1))
    assert {hop.kind for hop in hops} == {"body"}
    assert server.connections == 3
    assert [close for _, close in server.asked] == ([False] * 19 + [True]) * 3


@pytest.mark.parametrize("wait", [0.0, 0.005])
def test_bytes_behind_the_length_are_a_fault_of_the_file_whenever_they_come(tmp_path: Path, wait: float) -> None:
    def spoil(pipe: Pipe, path: str) -> None:
        if path == "/bad":
            asyncio.get_running_loop().call_later(wait, pipe.transport.write, b"more")

    with serving(spoil) as server:
        server.late = True
        urls = [server.url("/bad"), server.url("/good")]
        hops = fetch(tmp_path, urls, settings(per_host=1, retries=1, delay=0.05), doubtful=[])
    assert [hop.outcome for hop in hops] == [Outcome.TRUNCATED, None]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("goodbye", [b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", b"\r\n"])
def test_a_goodbye_and_an_empty_line_cast_no_doubt(tmp_path: Path, goodbye: bytes) -> None:
    def spoil(pipe: Pipe, path: str) -> None:
        """Once the answer is read, and its body therefore written."""
        if len(list(tmp_path.iterdir())) == len(pipe.server.asked):
            pipe.transport.write(goodbye)
        else:
            asyncio.get_running_loop().call_later(0.002, spoil, pipe, path)

    with serving(spoil) as server:
        hops = fetch(tmp_path, [server.url(f"/{n}") for n in range(3)], settings(per_host=1, delay=0.4))
    assert {hop.kind for hop in hops} == {"body"}
    assert not any(close for _, close in server.asked)


def test_robots_txt_is_asked_for_on_a_connection_of_its_own(tmp_path: Path) -> None:
    with serving(lambda pipe, path: None) as server:
        fetch(tmp_path, [server.url("/1"), server.url("/2")], settings(per_host=1, robots="obey"))
        assert server.asked[0][0] == "/robots.txt"
