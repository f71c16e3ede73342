"""The fetcher over a transport that answers as httpx.MockTransport does: no sockets at all."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from web_support import fetch, fetch_one, settings

from archec.errors import StorageFailed, StorageFull
from archec.web.messages import Request, Response
from archec.web.outcome import BadUrl, ConnectError, FetchTask, Outcome, ProtocolError, ReadError, TimedOut
from archec.web.transport import Transports

URL = "http://papers.example/a%2Fb.pdf?x=1"


class Mock:
    """A transport whose answers a handler makes."""

    def __init__(self, handler: Callable[[Request], Any]) -> None:
        self._handler = handler

    async def send(self, request: Request) -> Response:
        found = self._handler(request)
        made: httpx.Response = await found if inspect.isawaitable(found) else found
        pieces = iter((made.content,))

        async def read() -> bytes:
            return next(pieces, b"")

        return Response(request, made.status_code, made.headers.raw, read, lambda: None)

    async def aclose(self) -> None:
        return


def mocked(handler: Callable[[Request], Any]) -> Transports:
    return Transports(Mock(handler), Mock(handler))


def test_the_request_has_the_target_as_it_is(tmp_path: Path) -> None:
    seen: list[Request] = []

    def handler(request: Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"body", headers={"ETag": '"e"'})

    hop = fetch_one(tmp_path, FetchTask(URL, etag='"old"'), carriers=mocked(handler))
    assert (hop.kind, hop.size, hop.header("etag")) == ("body", 4, '"e"')
    assert (seen[0].origin, seen[0].target) == (("http", "papers.example", 80, "papers.example"), b"/a%2Fb.pdf?x=1")
    assert seen[0].method == "GET"
    assert dict(seen[0].headers)[b"If-None-Match"] == b'"old"'


@pytest.mark.parametrize(
    ("error", "outcome", "tries"),
    [
        (ConnectError("no route"), Outcome.UNREACHABLE, 2),
        (TimedOut("slow"), Outcome.TIMEOUT, 2),
        (ReadError("reset"), Outcome.UNREACHABLE, 2),
        (ProtocolError("junk"), Outcome.SERVER_ERROR, 2),
        (BadUrl("x"), Outcome.BAD_URL, 1),
    ],
)
def test_errors_become_outcomes(tmp_path: Path, error: Exception, outcome: Outcome, tries: int) -> None:
    calls = []

    def handler(request: Request) -> httpx.Response:
        calls.append(request)
        raise error

    hop = fetch_one(tmp_path, URL, carriers=mocked(handler))
    assert (hop.kind, hop.outcome, len(calls)) == ("failed", outcome, tries)


def test_a_length_that_does_not_fit_is_truncated_with_any_transport(tmp_path: Path) -> None:
    answer = httpx.Response(200, content=b"abc", headers={"Content-Length": "9"})
    hop = fetch_one(tmp_path, URL, settings(retries=0), carriers=mocked(lambda _: answer))
    assert hop.outcome is Outcome.TRUNCATED


def test_a_message_never_shows_a_password_or_control_characters(tmp_path: Path) -> None:
    def handler(request: Request) -> httpx.Response:
        raise ConnectError("cannot reach http://u:secret@h/\x1b[31m\n" + "x" * 1000)

    hop = fetch_one(tmp_path, URL, settings(retries=0), carriers=mocked(handler))
    assert "secret" not in hop.message
    assert hop.message.isprintable()
    assert len(hop.message) <= 300


def test_a_transport_that_never_returns_is_broken_off(tmp_path: Path) -> None:
    async def handler(request: Request) -> httpx.Response:
        assert request.sent is not None
        request.sent()
        await asyncio.sleep(60)
        raise AssertionError

    hop = fetch_one(tmp_path, URL, settings(retries=0, total_timeout=0.2), carriers=mocked(handler))
    assert hop.outcome is Outcome.TIMEOUT


def test_a_bug_loses_no_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: Request) -> httpx.Response:
        raise KeyError("a bug")

    hop = fetch_one(tmp_path, URL, carriers=mocked(handler))
    assert (hop.kind, hop.outcome) == ("failed", Outcome.INTERNAL)
    assert "KeyError" in hop.message
    assert "fetching http://papers.example" in caplog.text


class Full:
    """A sink without space."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.discarded = 0

    def temp(self, url: str) -> Full:
        return self

    def write(self, data: bytes) -> None:
        raise self.error

    def close(self) -> tuple[str, str, str, int]:
        raise AssertionError

    def discard(self) -> None:
        self.discarded += 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (StorageFailed("broken"), StorageFailed),
        (StorageFull("full"), StorageFull),
    ],
)
def test_a_sink_that_cannot_write_stops_the_fetcher(tmp_path: Path, error: Exception, raised: type[Exception]) -> None:
    sink = Full(error)
    with pytest.raises(raised):
        fetch(tmp_path, [URL] * 5, sink=sink, carriers=mocked(lambda _: httpx.Response(200, content=b"x")))
    assert sink.discarded >= 1
