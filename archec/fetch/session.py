"""One HTTP/2 connection, which carries several requests at once, each an ``H2Stream``.

The protocol is the library h2's; here it is tied to a transport, and bounded. What a hostile server meets:
size and number of headers (1xx answers and trailers count); a body that is not taken away stops being
acknowledged, so that no more of it may come; bytes that bring no answer nearer (PING, SETTINGS, RST_STREAM,
empty frames and tiny ones, bodies that were given up) are counted; a server that does not take in our own
frames is left.
Pushed answers are refused. An answer that breaks off harms no other; what breaks HTTP/2 ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import httpx
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import DenialOfServiceError, H2Error

from archec.fetch.engine import STREAM_WINDOW, engine, name_of
from archec.fetch.faults import Truncated
from archec.fetch.frames import FrameReader, Goaway
from archec.fetch.h1 import Stale
from archec.fetch.stream import H2Stream, Http1Required, Unseen

__all__ = ["Session"]

_WINDOW = 1 << 22
"""Bytes of all bodies that may be under way; acknowledged when they arrive, so that none waits for another."""
_VAIN = 2_000
"""Frames more than the bodies that came with them are worth, one after the other."""
_WORTH = 64
"""Bytes of a body that are worth a frame: each frame costs some 30 us, however little is in it."""
_UNSENT = 1 << 20
"""Bytes of ours that a server may leave waiting, those apart that the transport takes without a word."""
_FIRST_WINDOW = 65_535
"""What the window of a connection begins with (RFC 9113, section 6.9.2)."""


class Session(asyncio.Protocol):
    """The connection. ``max_bytes`` and ``max_count`` bound the header fields of one answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int, max_count: int) -> None:
        self._loop = loop
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._h2 = engine(max_bytes)
        self._streams: dict[int, H2Stream] = {}
        self._begun = 0
        self._fruitless = 0
        self._arrived = 0
        self._full = False
        self._unsent = 0
        self._leaving = False
        self._greeted: asyncio.Future[None] = loop.create_future()
        self._error: Exception = httpx.ReadError("the server closed the connection at once")
        self.reserved = False
        """Whether it is for one request only, until that is over."""
        self.address = ""
        """The numeric address at the other end."""
        self.lost = False
        self.idle_since = 0.0

    @property
    def idle(self) -> bool:
        """Whether no answer is under way."""
        return not self._streams

    @property
    def room(self) -> bool:
        """Whether it can take another request."""
        most = self._h2.remote_settings.max_concurrent_streams
        taken = len(self._streams) >= most or (self.reserved and not self.idle)
        return not (taken or self._leaving or self._closed)

    async def ready(self) -> None:
        """Waits until the server has said what it takes.

        Raises:
            httpx.ReadError, httpx.RemoteProtocolError: it does not come to that.
        """
        await self._greeted
        if self.lost:
            raise self._error

    def stream(self) -> H2Stream:
        """A request to be; nothing is sent yet."""
        return H2Stream(self, self._loop)

    def begin(self, stream: H2Stream, fields: list[tuple[bytes, bytes]]) -> None:
        """Sends a request; raises as ``H2Stream.exchange``."""
        stream.alone = self.reserved
        if self._leaving or self._closed:
            raise self._fault(stream, "the server closed the connection without an answer")
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, fields, end_stream=True)
        except H2Error as error:
            raise self._fault(stream, f"the server takes no request over HTTP/2: {error}") from error
        self._begun += 1
        stream.number = number
        self._streams[number] = stream
        self._flush()

    def acknowledge(self, size: int, number: int) -> None:
        """Lets the server send so many bytes more for a request."""
        if number in self._streams and not self.lost:
            self._h2.increment_flow_control_window(size, number)
            self._flush()

    def give_up(self, stream: H2Stream) -> None:
        """Tells the server that an answer is no longer wanted."""
        if self._streams.pop(stream.number, None) is not None and not self.lost:
            self._leaving = True
            self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
            self._flush()
            self._rest()

    def abort(self) -> None:
        """Closes at once, whatever is under way."""
        if self._transport is not None and not self.lost:
            self._transport.abort()
        self.lost = True
        self._greet()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self.idle_since = self._loop.time()
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW - _FIRST_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return
        try:
            for part in self._frames.feed(data):
                if isinstance(part, Goaway):
                    self._goaway(part)
                else:
                    self._fruitless += len(part)
                    for event in self._h2.receive_data(part):
                        self._on(event)
                if self._fruitless > self._max_bytes + STREAM_WINDOW or self._frames.seen > _VAIN:
                    raise httpx.RemoteProtocolError("the server sends and sends, and next to nothing of an answer")
            if self._arrived >= _WINDOW // 2:
                self._h2.increment_flow_control_window(self._arrived)
                self._arrived = 0
        except httpx.RemoteProtocolError as error:
            self._fail(error)
        except DenialOfServiceError:
            self._fail(httpx.RemoteProtocolError(f"the header block exceeds {self._max_bytes} bytes"))
        except H2Error as error:
            self._fail(httpx.RemoteProtocolError(f"the answer is not HTTP/2: {error}"))
        self._flush()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._unsent = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._greet()
        if self._transport is not None:
            self._transport.close()  # one over TLS does not know by itself that it is closed
        reason = "reset" if exc is not None else "closed"
        for stream in self._clear():
            if stream.status:
                stream.fail(Truncated(f"the server {reason} the connection in mid-body"))
            else:
                stream.fail(self._fault(stream, f"the server {reason} the connection without an answer"))

    # -- what comes -------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", 0))
        if isinstance(event, DataReceived):
            self._arrived += event.flow_controlled_length
            if stream is not None and event.data:
                stream.on_data(event.data, event.flow_controlled_length)
                self._fruitless = 0
                self._frames.seen = max(0, self._frames.seen - len(event.data) // _WORTH)
        elif isinstance(event, RemoteSettingsChanged):
            self._greet()
        elif stream is None:
            return
        elif isinstance(event, (ResponseReceived, InformationalResponseReceived, TrailersReceived)):
            stream.answered = True
            self._measure(stream, event.headers)
            if not isinstance(event, TrailersReceived):
                stream.on_head(event.headers)
                if stream.status:
                    self._fruitless = self._frames.seen = 0
        elif isinstance(event, StreamEnded):
            self._end(stream)
            stream.on_end()
        elif isinstance(event, StreamReset):
            self._end(stream)
            stream.fail(self._reset(stream, event.error_code))

    def _measure(self, stream: H2Stream, headers: Sequence[tuple[bytes, bytes]]) -> None:
        stream.fields_size += sum(len(name) + len(value) + 4 for name, value in headers)
        if stream.fields_size > self._max_bytes:
            raise httpx.RemoteProtocolError(f"the header block exceeds {self._max_bytes} bytes")
        if len(headers) > self._max_count:
            raise httpx.RemoteProtocolError(f"the answer has more than {self._max_count} headers")

    def _reset(self, stream: H2Stream, code: ErrorCodes | int) -> Exception:
        """What it means that the server breaks off an answer."""
        if stream.status:
            return Truncated(f"the server broke off the answer ({name_of(code)})")
        if code == ErrorCodes.HTTP_1_1_REQUIRED:
            return Http1Required("the server wants HTTP/1.1")
        if code == ErrorCodes.REFUSED_STREAM:
            self._leaving = True
            return self._fault(stream, "the server refused the request", Unseen)
        return httpx.ReadError(f"the server ended the request without an answer ({name_of(code)})")

    def _goaway(self, goaway: Goaway) -> None:
        self._leaving = True
        for number, stream in list(self._streams.items()):
            if number > goaway.last_stream:
                del self._streams[number]
                text = f"the server closes the connection without an answer ({name_of(goaway.code)})"
                stream.fail(self._fault(stream, text, Unseen))
        self._rest()

    # -- inside -----------------------------------------------------------------------------------

    def _fault(self, stream: H2Stream, text: str, again: type[Stale] = Stale) -> httpx.ReadError:
        """Why a request gets no answer; ``again`` where it is to be sent again."""
        return again(text) if self._blameless(stream) else httpx.ReadError(text)

    def _blameless(self, stream: H2Stream) -> bool:
        """Whether it may be the fault of others on the connection that a request gets no answer: it is sent again."""
        return not (stream.alone or stream.answered) and self._begun > (stream.number > 0)

    def _end(self, stream: H2Stream) -> None:
        del self._streams[stream.number]
        self._rest()

    def _rest(self) -> None:
        """With nothing under way: waits for more, or leaves where no more may come."""
        if not self._streams:
            self.idle_since = self._loop.time()
            self.reserved = False
            if self._leaving:
                self._loop.call_soon(self.abort)  # what is to be sent goes out before

    def _clear(self) -> list[H2Stream]:
        streams = list(self._streams.values())
        self._streams.clear()
        return streams

    def _greet(self) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)

    @property
    def _closed(self) -> bool:
        return self.lost or self._transport is None or self._transport.is_closing()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.abort()
        for stream in self._clear():
            stream.fail(Stale(str(error)) if self._blameless(stream) else error)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._closed:
            self._transport.write(data)
            self._unsent += len(data) if self._full else 0
            if self._unsent > _UNSENT:
                self._fail(httpx.ReadError("the server does not take in what it is sent"))
