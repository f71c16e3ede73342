"""One HTTP/1.1 connection: sends a request, returns the response head, then its body in chunks.

Responses are parsed by llhttp (through httptools), leniently where old servers deviate harmlessly. Limits against
hostile servers: size and number of headers (including 1xx responses and trailers), and flow control: reading stops
while a body is not consumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

import httptools

from archec.web.outcome import ProtocolError, ReadError, TimedOut, Truncated

_GOODBYE = re.compile(rb"HTTP/1\.[01] 408[ \r\n]")
"""Sent by some servers before they close an idle connection."""
AHEAD = 1 << 18
"""Bytes that a connection may receive before they are read, if received bytes are counted."""
_MAX_BYTES, _MAX_FIELDS = 128_000, 256
"""Maximum size of a header block, including preceding 1xx responses and trailers, and number of headers."""
_HIGH_WATER = 1 << 17
"""Maximum number of buffered bytes of a body. Above it, the socket is not read until they are consumed. It is less than
what is read at once, so that the pieces of a large body need not be joined."""


class Stale(ReadError):
    """A reused connection was closed before the server saw the request, or is out of sync. Retry on another
    connection."""


class Answer:
    """Whether the server sent surplus bytes after a response.

    ``alone``: its request is the only one on its connection.
    """

    __slots__ = ("_watcher", "alone", "quiet")

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.quiet: bool | None = None
        """True once the socket was checked and had nothing to read, or the connection ended. False once surplus bytes
        arrived."""
        self._watcher: Callable[[bool], None] | None = None

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Calls ``watcher`` with ``quiet`` as soon as it is known, and again if it becomes False later."""
        self._watcher = watcher
        if self.quiet is not None:
            watcher(self.quiet)

    def settle(self, *, quiet: bool) -> None:
        """Records the result of checking the connection."""
        if self.quiet is None or (self.quiet and not quiet):
            self.quiet = quiet
            if self._watcher is not None:
                self._watcher(quiet)


class H1Connection(asyncio.BufferedProtocol):
    """Call ``exchange``, then ``read`` until it returns ``b""``. Then ``rest`` says whether to keep the connection.

    ``buffer`` takes what is received, and may be that of other connections of the same event loop. ``received`` is
    called with the number of bytes received; the socket buffer is small then. ``timeout`` in seconds applies to sending
    each piece of a request, to the response head, and to each piece of its body.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: memoryview,
        received: Callable[[int], None] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.loop, self._buffer = loop, buffer
        self._on_received = received
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        """Looks for a wait that has become too long."""
        self._waiting: asyncio.Future[None] | None = None
        """What is waited for, until ``_due`` at most."""
        self._due = 0.0
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._head: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        """Set while the transport accepts no more bytes of a request."""
        self.address = ""
        """The numeric address of the other end."""
        self.tls = ""
        """The TLS exceptions that were needed, for people."""
        self.lost = False
        self.idle_since = 0.0
        self.answers: list[Answer] = []
        """The answers to the requests on this connection. The last one may still be in progress."""
        self.on_surplus: Callable[[], None] | None = None
        """Called when bytes arrive that were not requested."""
        self._poll = select.poll()
        self._tls_object: ssl.SSLObject | None = None
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._fields = self._fields_size = 0  # number and size of headers and trailers
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._overhead = 0  # bytes received since the last body data: headers, trailers, 1xx responses
        self._complete = self._keep = self._surplus = self._received = self._unsent = self._bodiless = False
        self._error: Exception | None = None
        self._paused = False

    # -- used by the transport --------------------------------------------------------------------

    async def exchange(
        self,
        request: bytes,
        body: AsyncIterator[bytes] | None = None,
        *,
        alone: bool = False,
        bodiless: bool = False,
    ) -> None:
        """Sends a request and waits for the response head: ``status`` and ``headers``.

        ``body`` is the request body. If the response arrives before all of it was sent, the rest is not sent.
        ``alone``: the connection is used for this request only. ``bodiless``: the response has no body, whatever its
        headers say (HEAD).

        Raises:
            Stale: this connection was reused and turned out to be closed.
            ReadError, ProtocolError: no response, or one that is not HTTP.
            TimedOut: the server took too long.
        """
        self._reset()
        self._bodiless = bodiless
        reused = bool(self.answers)
        self.answers.append(Answer(alone=alone))
        if self.lost or self._transport.is_closing():
            closed = "the server closed the connection without an answer"
            raise Stale(closed) if reused else ReadError(closed)
        parser = self._parser = httptools.HttpResponseParser(self)
        # Known deviations of old servers. None of them allows one response to pass for two: a connection has
        # one request at a time, and surplus bytes close it.
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_version=True,
            lenient_optional_lf_after_cr=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        head = self._head = self.loop.create_future()
        self._transport.write(request)
        if body is not None:
            await self._send(body, head)
        await self._watched(head)
        if self._error is not None and not self.status:
            if reused and not self._received:
                raise Stale(str(self._error))
            raise self._error

    async def _send(self, body: AsyncIterator[bytes], head: asyncio.Future[None]) -> None:
        """Sends a body as fast as the server accepts it. Stops once the server has responded."""
        async for piece in body:
            if head.done():
                self._unsent = True
                return
            self._transport.write(piece)
            await asyncio.sleep(0)  # lets a response arrive
            if self._writable is not None:
                futures = {self._writable, head}
                over, _ = await asyncio.wait(futures, timeout=self._timeout, return_when="FIRST_COMPLETED")
                if not over:
                    raise TimedOut(f"the server took nothing for {self._timeout:g} s")

    async def read(self) -> bytes:
        """Returns the next piece of the body, ``b""`` at its end.

        Raises:
            TimedOut: the server took too long.
            Truncated: the body ended too early, or was longer than its stated length.
            ProtocolError: the body violates HTTP.
        """
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._complete:
                if self._surplus:
                    raise Truncated("the server sent more than the announced length")
                return b""
            await self._watched(self.loop.create_future())
        chunks, self._chunks, self._buffered = self._chunks, [], 0
        if self._paused and not self._transport.is_closing():
            self._paused = False
            # Before Python 3.11 a TLS transport loses its socket shortly before is_closing() says so.
            with contextlib.suppress(AttributeError):
                self._transport.resume_reading()
        return b"".join(chunks)

    def _watched(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        """The future to wait for, which now has a timeout. One timer serves all waits, since most are short."""
        self._waiting = future
        if self._timeout is not None:
            self._due = self.loop.time() + self._timeout
            self._timer = self._timer or self.loop.call_at(self._due, self._expire)
        return future

    def _expire(self) -> None:
        self._timer = None
        if self._waiting is None or self._waiting.done():
            return
        if self._due <= self.loop.time():
            what = "no answer within {:g} s" if self._waiting is self._head else "silent for {:g} s in mid-body"
            self._waiting.set_exception(TimedOut(what.format(self._timeout)))
        else:
            self._timer = self.loop.call_at(self._due, self._expire)

    @property
    def over(self) -> bool:
        """Whether the response was read completely and the connection is still open."""
        return self._complete and not self._chunks and not self.lost

    def rest(self) -> bool:
        """Marks the connection as idle after a response that is ``over``, and returns whether it can serve another
        request. Any data that arrives from now on closes it."""
        self._parser = None
        self.idle_since = self.loop.time()
        return self._keep and not self._surplus and not self._unsent and self._error is None

    def is_quiet(self) -> bool:
        """Whether the socket has nothing to read."""
        return not self.lost and not self._poll.poll(0)

    @property
    def unseen(self) -> bool:
        """Whether the socket has not been checked since the last response."""
        return bool(self.answers) and self.answers[-1].quiet is None

    def settle(self) -> None:
        """Records that the socket was checked and was quiet."""
        if self.answers:
            self.answers[-1].settle(quiet=True)

    def surplus(self) -> None:
        """Closes the connection because of data that was not requested: its responses no longer match its requests."""
        self._surplus = True
        self._close()
        for answer in self.answers:
            answer.settle(quiet=False)
        if self.on_surplus is not None:
            self.on_surplus()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._close()
        self.settle()

    def _close(self) -> None:
        if not self.lost:
            self._transport.abort()
        self.lost = True

    def leave(self) -> bytes:
        """Closes a TLS connection and returns the certificate (DER) of the other end."""
        self.abort()
        found = self._tls_object
        return (found.getpeercert(binary_form=True) or b"") if found is not None else b""

    @property
    def tls_version(self) -> str:
        """The version of TLS on this connection, or ""."""
        return (self._tls_object.version() or "") if self._tls_object is not None else ""

    def take_transport(self) -> asyncio.Transport:
        """The underlying transport, to start TLS on it."""
        self._parser = None
        return self._transport

    def give_transport(self, transport: asyncio.Transport) -> None:
        """Sets the transport to use from now on."""
        self._transport = transport
        self._tls_object = transport.get_extra_info("ssl_object")
        self.answers.clear()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._tls_object = transport.get_extra_info("ssl_object")
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._poll.register(sock.fileno(), select.POLLIN)
            if self._on_received is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AHEAD // 2)  # Linux doubles it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        if self._on_received is not None:
            self._on_received(nbytes)
        parser = self._parser
        if parser is None or self._complete:  # not requested: it must not be taken for the next response
            if _GOODBYE.match(data):
                self.abort()
            elif bytes(data) not in (b"\r\n", b"\n"):  # an empty line is harmless
                self.surplus()
            return
        self._received = True
        before = self._buffered
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ProtocolError("the server switches to another protocol"))
        except httptools.HttpParserError as error:
            if self._complete:
                self._surplus = True
            elif len(self.answers) > 1 and not self.status:  # surplus bytes of an earlier response
                self.surplus()
                self._fail(Stale("bytes behind an earlier answer"))
                return
            else:
                self._fail(ProtocolError(f"the answer is not HTTP: {error}"))
        if self._buffered == before and not self._complete:
            self._overhead += len(data)
            if self._overhead > _MAX_BYTES:
                self._fail(self._excess())
        else:
            self._overhead = 0
            self._wake()
        if self._surplus:
            self.surplus()

    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._transport.close()  # a TLS transport does not notice by itself
        if self._complete or self._error is not None:
            self.settle()
            return
        reason = "reset" if exc is not None else "closed"
        if self._head is None or not self._head.done():
            self._fail(ReadError(f"the server {reason} the connection without an answer"))
        elif exc is None and self._until_close():  # a body of HTTP/1.0 ends with the connection
            if self._ended_properly():
                self._complete = True
                self._wake()
            else:
                self._fail(Truncated("the TLS connection ended without notice in mid-body"))
        else:
            self._fail(Truncated(f"the server {reason} the connection in mid-body"))

    # -- httptools --------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._complete:
            return
        self._fields += 1
        self._fields_size += len(name) + len(value)
        if self._fields > _MAX_FIELDS:
            self._fail(ProtocolError(f"the answer has more than {_MAX_FIELDS} headers"))
        elif self._fields_size > _MAX_BYTES:
            self._fail(self._excess())
        elif self.status < 200:  # fields after the body are trailers: RFC 9110 section 6.5.1
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser is None or self._complete or self._error is not None:
            return
        self.status = self._parser.get_status_code()
        if self.status == 101:
            self._fail(ProtocolError("the server switches to another protocol"))
        elif self.status < 100:
            self._fail(ProtocolError(f"the answer has the invalid status {self.status:03}"))
        elif self.status >= 200 and self._head is not None and not self._head.done():
            if self._bodiless:
                self._complete, self._keep = True, self._parser.should_keep_alive()
            self._head.set_result(None)

    def on_body(self, data: bytes) -> None:
        if self._complete:
            self._surplus = True
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > _HIGH_WATER and not self._paused and not self.lost:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._parser is None or self._complete:
            return
        if self.status < 200:  # an interim response (100, 103): the final one follows
            self.headers.clear()
            self._fields = 0
            return
        self._complete = True
        self._keep = self._parser.should_keep_alive()

    # -- inside -----------------------------------------------------------------------------------

    def _until_close(self) -> bool:
        """Whether the body ends with the connection: RFC 9112 section 6.3."""
        coding = [value.lower() for name, value in self.headers if name.lower() == b"transfer-encoding"]
        if coding:
            return coding[-1].rpartition(b",")[2].strip() != b"chunked"
        return not any(name.lower() == b"content-length" for name, _ in self.headers)

    def _ended_properly(self) -> bool:
        """Whether TLS, if used, was ended by the other end (close_notify) and not by a third party that cut the
        connection: RFC 9112 section 9.8."""
        if self._tls_object is None:
            return True
        try:
            self._tls_object.read(1)
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLError:
            return False
        return False

    def _excess(self) -> ProtocolError:
        what = "trailers" if self.status >= 200 else "header block"
        return ProtocolError(f"the {what} exceeds {_MAX_BYTES} bytes")

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self._head is not None and not self._head.done():
            self.status = 0
            self._head.set_result(None)
        self._wake()
        self.abort()

    def _wake(self) -> None:
        """Ends a wait for a piece of a body."""
        if self._waiting is not None and self._waiting is not self._head and not self._waiting.done():
            self._waiting.set_result(None)
