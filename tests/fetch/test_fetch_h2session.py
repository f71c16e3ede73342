"""The HTTP/2 connection without a network: flow control, keeping, and whatever bytes may come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest
from fetch_h2server import DATA, END_STREAM, GOAWAY, PING, frame, goaway
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, WindowUpdated
from h2.exceptions import FlowControlError
from hypothesis import given
from hypothesis import strategies as st

from archec.fetch.engine import STREAM_WINDOW
from archec.fetch.frames import LARGEST_FRAME, FrameReader, Goaway
from archec.fetch.h1 import Stale
from archec.fetch.session import Session
from archec.fetch.shared import Shared
from archec.fetch.stream import H2Stream


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 443)})
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Ends:
    """A session, and the server's end of it."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.session = Session(asyncio.get_running_loop(), 10_000, 50)
        self.session.connection_made(self.wire)
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.server.initiate_connection()
        self.exchange()

    def exchange(self) -> list[Any]:
        """Carries what either has to say; the events of the server."""
        data, self.wire.written = self.wire.written, b""
        events = self.server.receive_data(data)
        self.session.data_received(self.server.data_to_send())
        return events

    async def ask(self, path: bytes = b"/") -> tuple[H2Stream, asyncio.Task[None]]:
        """A request that has reached the server."""
        stream = self.session.stream()
        asking = asyncio.ensure_future(stream.exchange(b"GET", b"host", path, [(b"Accept", b"*/*")]))
        await asyncio.sleep(0)
        events = self.exchange()
        assert [event.stream_id for event in events if isinstance(event, RequestReceived)] == [stream.number]
        return stream, asking


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_a_body_that_nobody_takes_is_not_acknowledged() -> None:
    async def scene() -> None:
        ends = Ends()
        slow, asking = await ends.ask()
        quick, asking_too = await ends.ask()
        for stream in (slow, quick):
            ends.server.send_headers(stream.number, [(b":status", b"200")])
        sent = 0
        while sent + 10_000 <= STREAM_WINDOW:
            ends.server.send_data(slow.number, b"x" * 10_000)
            sent += 10_000
            ends.exchange()
        with pytest.raises(FlowControlError):
            ends.server.send_data(slow.number, b"x" * 10_000)
        await asyncio.gather(asking, asking_too)
        for _ in range(1000):
            ends.server.send_data(quick.number, b"y" * 10_000)
            ends.exchange()
            assert await quick.read() == b"y" * 10_000
            ends.exchange()
        assert len(await slow.read()) == sent
        assert [event.delta for event in ends.exchange() if isinstance(event, WindowUpdated)] == [sent]
        ends.server.send_data(slow.number, b"z", end_stream=True)
        ends.exchange()
        assert (await slow.read(), await slow.read()) == (b"z", b"")

    run(scene())


def test_more_than_was_allowed_ends_the_connection() -> None:
    async def scene() -> None:
        ends = Ends()
        stream, asking = await ends.ask()
        ends.server.send_headers(stream.number, [(b":status", b"200")])
        ends.exchange()
        await asking
        for _ in range(STREAM_WINDOW // 10_000 + 1):
            ends.session.data_received(frame(DATA, 0, stream.number, b"x" * 10_000))
        assert await stream.read()
        with pytest.raises(httpx.RemoteProtocolError, match="not HTTP/2"):
            await stream.read()
        assert ends.wire.closed

    run(scene())


def test_a_server_that_takes_nothing_in_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archec.fetch.session._UNSENT", 25_000)

    async def scene() -> None:
        ends = Ends()
        stream, asking = await ends.ask()
        ends.server.send_headers(stream.number, [(b":status", b"200")])
        ends.exchange()
        await asking
        answered = frame(PING, 0, 0, b"12345678") * 250 + frame(DATA, 0, stream.number, b"x" * 16_000)
        for times in (4, 4, 8):  # it takes something in now and then, and in the end nothing
            assert not ends.wire.closed
            ends.session.resume_writing()
            ends.session.data_received(answered)
            ends.session.pause_writing()
            for _ in range(times):
                ends.session.data_received(answered)
        assert await stream.read()
        with pytest.raises(httpx.ReadError, match="does not take in"):
            await stream.read()
        assert ends.wire.closed

    run(scene())


def test_whose_fault_it_is() -> None:
    """A request that was alone on its connection fails with it; one that was not is to be sent again."""

    async def scene() -> None:
        for alone in (True, False):
            ends = Ends()
            ends.session.reserved = alone
            _, first = await ends.ask()
            assert ends.session.room is not alone
            ends.session.connection_lost(None)
            with pytest.raises(httpx.ReadError) as caught:
                await first
            assert not isinstance(caught.value, Stale)
        ends = Ends()
        both = [(await ends.ask())[1] for _ in range(2)]
        ends.session.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        for asking in both:
            with pytest.raises(Stale):
                await asking
        late = ends.session.stream()
        with pytest.raises(Stale):
            await late.exchange(b"GET", b"host", b"/", [])

    run(scene())


def test_unused_connections_are_closed_in_time() -> None:
    async def scene() -> None:
        shared = Shared(keep=2, keep_idle=10.0)
        loop = asyncio.get_running_loop()
        made: list[Ends] = []

        async def opening() -> Session:
            made.append(Ends())
            return made[-1].session

        for key in "abc":
            assert await shared.opened(key, opening, lambda _: None, alone=False)
        assert [ends.wire.closed for ends in made] == [True, False, False], "no more than are to be kept"
        busy = shared.lend("c")
        assert shared.lend("a") is None
        assert busy is not None
        asking = asyncio.ensure_future(busy.exchange(b"GET", b"host", b"/", []))
        await asyncio.sleep(0)
        shared.sweep(loop.time() + 9)
        assert [ends.wire.closed for ends in made] == [True, False, False]
        shared.sweep(loop.time() + 11)
        assert [ends.wire.closed for ends in made] == [True, True, False]
        await shared.aclose()
        assert made[2].wire.closed
        made[2].session.connection_lost(None)
        with pytest.raises(httpx.ReadError):
            await asking

    run(scene())


def test_those_who_wait_for_a_connection_share_its_failure() -> None:
    async def scene() -> None:
        shared = Shared(keep=2, keep_idle=10.0)
        tries = 0

        async def opening() -> Session:
            nonlocal tries
            tries += 1
            await asyncio.sleep(0)
            raise httpx.ConnectError("refused")

        asking = [shared.opened("a", opening, lambda _: None, alone=False) for _ in range(5)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert {str(error) for error in found} == {"refused"}
        assert tries == 1
        given_up = asyncio.ensure_future(shared.opened("a", opening, lambda _: None, alone=False))
        await asyncio.sleep(0)
        given_up.cancel()
        await shared.aclose()

    run(scene())


pieces = st.one_of(
    st.binary(max_size=60),
    st.builds(
        frame, st.integers(0, 12), st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 5, 2**31]),
        st.one_of(st.binary(max_size=40), st.sampled_from([b"\x88", b"\x8d", b"\0\0\0\0", b"\0\0\0\x08", b"12345678"])),
    ),
    st.builds(goaway, st.integers(0, 5), st.integers(0, 20)),
)  # fmt: skip


@given(st.lists(pieces, max_size=12), st.integers(0, 3), st.booleans())
def test_whatever_comes_every_request_ends(parts: list[bytes], given_up: int, one_by_one: bool) -> None:
    async def scene() -> None:
        ends = Ends()
        asked = [await ends.ask() for _ in range(3)]
        for data in parts if one_by_one else [b"".join(parts)]:
            ends.session.data_received(data)
            await asyncio.sleep(0)
            if given_up < 3:
                asked[given_up][0].abort()
        ends.session.connection_lost(None)
        for stream, asking in asked:
            with contextlib.suppress(httpx.TransportError):
                await asyncio.wait_for(asking, 5)
                assert 200 <= stream.status <= 999
                while await stream.read():
                    pass

    run(scene())


@given(st.lists(st.one_of(
    st.builds(lambda kind, data: frame(kind, 0, 1, data), st.sampled_from([0, 1, 6, 9]), st.binary(max_size=30)),
    st.builds(goaway, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)),
)), st.data())  # fmt: skip
def test_goaway_is_found_however_the_bytes_are_cut(frames: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    reader = FrameReader()
    found: list[bytes | Goaway] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += reader.feed(whole[start:end])
    expected = [Goaway(int.from_bytes(one[9:13], "big"), int.from_bytes(one[13:17], "big")) if one[3] == GOAWAY else one
                for one in frames]  # fmt: skip
    assert _joined(found) == _joined(expected)
    assert b"" not in found


def _joined(parts: list[bytes | Goaway]) -> list[bytes | Goaway]:
    """Bytes that follow each other in one."""
    joined: list[bytes | Goaway] = []
    for part in parts:
        if isinstance(part, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def test_frames_that_cannot_be() -> None:
    assert len(list(FrameReader().feed(frame(DATA, END_STREAM, 1, b"x" * LARGEST_FRAME)))) == 1
    with pytest.raises(httpx.RemoteProtocolError, match="16385 bytes"):
        list(FrameReader().feed(frame(DATA, 0, 1, length=LARGEST_FRAME + 1)))
    with pytest.raises(httpx.RemoteProtocolError, match="too short"):
        list(FrameReader().feed(frame(GOAWAY, 0, 0, b"1234567")))
