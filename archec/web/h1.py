"""One HTTP/1.1 connection: sends a request, returns the head of the answer, then its body in chunks.

llhttp (through httptools) does the parsing, lenient where old servers deviate harmlessly. Limits for
hostile servers: size and number of headers (1xx answers and trailers count), and a body that is not
read fast enough is not received any further.
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
import httpx

from archec.web.faults import Truncated

_GOODBYE = re.compile(rb"HTTP/1\.[01] 408[ \r\n]")
"""What some servers send before they close an idle connection."""
AHEAD = 1 << 18
"""Bytes that a connection may have received before anybody reads them, where what is received is counted."""
_MAX_BYTES, _MAX_FIELDS = 128_000, 256
"""Largest header block, including 1xx answers before it, and maximum number of headers; also for trailers."""
_HIGH_WATER = 1 << 18
"""Maximum number of buffered bytes of a body; with more, the socket is not read until they are taken."""


class Stale(httpx.ReadError):
    """A kept connection was closed before the server saw the request, or is out of sync: use another connection."""


class Answer:
    """What is known of an answer behind its last byte: whether it was the end of what the server had to say.

    ``alone``: nothing else was, or will be, asked on its connection.
    """

    __slots__ = ("_watcher", "alone", "quiet")

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.quiet: bool | None = None
        """True after a look at a quiet socket, or the end of the connection; False once surplus bytes have come."""
        self._watcher: Callable[[bool], None] | None = None

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Calls ``watcher`` with ``quiet`` as soon as that is known, and again should it become False later."""
        self._watcher = watcher
        if self.quiet is not None:
            watcher(self.quiet)

    def settle(self, *, quiet: bool) -> None:
        """The connection was looked at."""
        if self.quiet is None or (self.quiet and not quiet):
            self.quiet = quiet
            if self._watcher is not None:
                self._watcher(quiet)


class H1Connection(asyncio.Protocol):
    """Use: ``exchange``, then ``read`` until it returns ``b""``, then ``reusable`` says whether to keep it.

    ``received`` gets the number of bytes as they come; little is then received ahead of time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, received: Callable[[int], None] | None = None) -> None:
        self._loop = loop
        self._on_received = received
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._head: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        """Set while the transport below takes no more bytes of a request."""
        self.address = ""
        """The numeric address at the other end."""
        self.tls = ""
        """What TLS needed beyond what is usual, for people."""
        self.lost = False
        self.idle_since = 0.0
        self.used = 0
        """Number of exchanges begun on this connection."""
        self.answers: list[Answer] = []
        """Those that came on this connection, the last one in progress or at its end."""
        self.on_surplus: Callable[[], None] | None = None
        """Called where bytes come that no one asked for."""
        self._poll = select.poll()
        self._tls_object: ssl.SSLObject | None = None
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._fields = 0  # headers, or trailers with them
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._overhead = 0  # bytes received in a row that were no part of a body: headers, trailers, 1xx answers
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
        timeout: float | None = None,
    ) -> None:
        """Sends a request and waits for the head of the answer: ``status`` and ``headers``.

        ``body`` is what follows the head, as it stands on the line. An answer that comes before all of it was sent is
        final: the rest is not sent. ``alone``: the connection is for this one request. ``bodiless``: the answer has no
        body whatever its headers say (HEAD). ``timeout`` is how many seconds a piece may take to be sent, and the head
        of the answer to come.

        Raises:
            Stale: this connection was kept and turned out to be closed.
            httpx.ReadError, httpx.RemoteProtocolError: no answer, or one that is not HTTP.
            httpx.WriteTimeout, httpx.ReadTimeout: the server took too long.
        """
        self._reset()
        self._bodiless = bodiless
        self.answers.append(Answer(alone=alone))
        reused = self.used > 0
        self.used += 1
        if self.lost or self._transport.is_closing():
            closed = "the server closed the connection without an answer"
            raise Stale(closed) if reused else httpx.ReadError(closed)
        parser = self._parser = httptools.HttpResponseParser(self)
        # Deviations that old servers are known for. None of them lets one answer pass for two: every
        # connection carries one request at a time, and surplus bytes close it.
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_version=True,
            lenient_optional_lf_after_cr=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        head = self._head = self._loop.create_future()
        self._transport.write(request)
        if body is not None:
            await self._send(body, head, timeout)
        try:
            await self._wait(head, timeout)
        except asyncio.TimeoutError:
            raise httpx.ReadTimeout(f"no answer within {timeout or 0:g} s") from None
        if self._error is not None and not self.status:
            if reused and not self._received:
                raise Stale(str(self._error))
            raise self._error

    async def _send(self, body: AsyncIterator[bytes], head: asyncio.Future[None], timeout: float | None) -> None:
        """Sends a body no faster than the server takes it, and no further once it has answered."""
        async for piece in body:
            if head.done():
                self._unsent = True
                return
            self._transport.write(piece)
            await asyncio.sleep(0)  # lets an answer in
            if self._writable is not None:
                over, _ = await asyncio.wait({self._writable, head}, timeout=timeout, return_when="FIRST_COMPLETED")
                if not over:
                    raise httpx.WriteTimeout(f"the server took nothing for {timeout or 0:g} s")

    async def read(self, timeout: float | None = None) -> bytes:
        """The next piece of the body, ``b""`` at its end.

        Raises:
            asyncio.TimeoutError: nothing came for ``timeout`` seconds.
            Truncated: the body ended too early, or was longer than its stated length.
            httpx.RemoteProtocolError: the body violates HTTP.
        """
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._complete:
                if self._surplus:
                    raise Truncated("the server sent more than the announced length")
                return b""
            self._waiter = self._loop.create_future()
            await self._wait(self._waiter, timeout)
        chunks, self._chunks, self._buffered = self._chunks, [], 0
        if self._paused and not self._transport.is_closing():
            self._paused = False
            # Before Python 3.11 a TLS transport loses its socket shortly before is_closing() says so.
            with contextlib.suppress(AttributeError):
                self._transport.resume_reading()
        return b"".join(chunks)

    async def _wait(self, future: asyncio.Future[None], timeout: float | None) -> None:
        """Waits for a future of this connection; unlike ``asyncio.wait_for`` without a second one around it."""
        if timeout is None:
            await future
            return
        timer = self._loop.call_later(timeout, _expire, future)
        try:
            await future
        finally:
            timer.cancel()

    @property
    def reusable(self) -> bool:
        """Whether the answer was read to its end and the connection can take another request."""
        return (
            self._complete and self._keep and not self._chunks and not self._surplus and not self._unsent
            and self._error is None and not self.lost
        )

    @property
    def over(self) -> bool:
        """Whether the answer was read to its end, and the connection is still there."""
        return self._complete and not self._chunks and not self.lost

    def rest(self) -> None:
        """Makes the connection idle; anything that arrives from now on closes it."""
        self._parser = None
        self.idle_since = self._loop.time()

    def is_quiet(self) -> bool:
        """Whether there is nothing to read on the socket."""
        return not self.lost and not self._poll.poll(0)

    @property
    def unseen(self) -> bool:
        """Whether the socket was not looked at behind the last answer."""
        return bool(self.answers) and self.answers[-1].quiet is None

    def settle(self) -> None:
        """The socket was looked at, and was quiet."""
        if self.answers:
            self.answers[-1].settle(quiet=True)

    def surplus(self) -> None:
        """Something came that no one asked for: no answer on this connection can be told from another's any more."""
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
        """Closes a TLS connection and gives the certificate (DER) of the other end."""
        self.abort()
        found = self._tls_object
        return (found.getpeercert(binary_form=True) or b"") if found is not None else b""

    @property
    def tls_version(self) -> str:
        """The version of TLS on this connection."""
        return (self._tls_object.version() or "") if self._tls_object is not None else ""

    def take_transport(self) -> asyncio.Transport:
        """The transport below, for TLS to be started on it."""
        self._parser = None
        return self._transport

    def give_transport(self, transport: asyncio.Transport) -> None:
        """Sets the transport to use from now on."""
        self._transport = transport
        self._tls_object = transport.get_extra_info("ssl_object")
        self.used = 0
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

    def data_received(self, data: bytes) -> None:
        if self._on_received is not None:
            self._on_received(len(data))
        parser = self._parser
        if parser is None or self._complete:  # nothing was requested: it must not pass for the next answer
            if _GOODBYE.match(data):
                self.abort()
            elif data not in (b"\r\n", b"\n"):  # an empty line is not an answer
                self.surplus()
            return
        self._received = True
        before = self._buffered
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(httpx.RemoteProtocolError("the server switches to another protocol"))
        except httptools.HttpParserError as error:
            if self._complete:
                self._surplus = True
            elif self.used > 1 and not self.status:  # the rest of what an earlier answer said it was at its end
                self.surplus()
                self._fail(Stale("bytes behind an earlier answer"))
                return
            else:
                self._fail(httpx.RemoteProtocolError(f"the answer is not HTTP: {error}"))
        if self._surplus:
            self.surplus()
            return
        if self._buffered == before and not self._complete:
            self._overhead += len(data)
            if self._overhead > _MAX_BYTES:
                what = "trailers" if self.status >= 200 else "header block"
                self._fail(httpx.RemoteProtocolError(f"the {what} exceeds {_MAX_BYTES} bytes"))
        else:
            self._overhead = 0

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.resume_writing()
        self._transport.close()  # a TLS transport does not notice by itself
        if self._complete or self._error is not None:
            self.settle()
            return
        reason = "reset" if exc is not None else "closed"
        if self._head is None or not self._head.done():
            self._fail(httpx.ReadError(f"the server {reason} the connection without an answer"))
        elif exc is None and self._until_close():  # a body of HTTP/1.0 is complete where the connection ends
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
        if self._fields > _MAX_FIELDS:
            self._fail(httpx.RemoteProtocolError(f"the answer has more than {_MAX_FIELDS} headers"))
        elif self.status < 200:  # what comes behind a body are trailers: RFC 9110 section 6.5.1
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser is None or self._complete or self._error is not None:
            return
        self.status = self._parser.get_status_code()
        if self.status == 101:
            self._fail(httpx.RemoteProtocolError("the server switches to another protocol"))
        elif self.status < 100:
            self._fail(httpx.RemoteProtocolError(f"the answer has the status {self.status:03}, which is none"))
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
        self._wake()

    def on_message_complete(self) -> None:
        if self._parser is None or self._complete:
            return
        if self.status < 200:  # an interim answer (100, 103): the real one follows
            self.headers.clear()
            self._fields = 0
            return
        self._complete = True
        self._keep = self._parser.should_keep_alive()
        self._wake()

    # -- inside -----------------------------------------------------------------------------------

    def _until_close(self) -> bool:
        """Whether only the end of the connection marks the end of the body: RFC 9112 section 6.3."""
        coding = [value.lower() for name, value in self.headers if name.lower() == b"transfer-encoding"]
        if coding:
            return coding[-1].rpartition(b",")[2].strip() != b"chunked"
        return not any(name.lower() == b"content-length" for name, _ in self.headers)

    def _ended_properly(self) -> bool:
        """Whether TLS, where there is any, was ended by the other end (close_notify) and not by whoever cut the line:
        RFC 9112 section 9.8."""
        if self._tls_object is None:
            return True
        try:
            self._tls_object.read(1)
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLError:
            return False
        return False

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self._head is not None and not self._head.done():
            self.status = 0
            self._head.set_result(None)
        self._wake()
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(asyncio.TimeoutError())
