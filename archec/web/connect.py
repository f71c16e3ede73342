"""Opens connections: choose a proxy, resolve, check the addresses, connect to one of them, TLS.

Behind a proxy, the guard guarantees less. A host that is a private or denied address is refused, and a name is resolved
here and refused if any of its addresses is private or denied. But the proxy resolves the name again, so a name that
resolves differently for the proxy gets through; only rules of the proxy itself can prevent that. A name that cannot be
resolved here is refused, too, unless ``fetch.allow_networks`` contains ``0.0.0.0/0`` and ``fetch.deny`` has no
networks.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from archec.web.guard import Guard
from archec.web.h1 import H1Connection
from archec.web.outcome import OURS, ConnectError, NotConnected, ProtocolError, ReadError, TimedOut, WebError, internal
from archec.web.policy import Proxy
from archec.web.tls import Tls

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit

T = TypeVar("T")

_READ = 1 << 18
"""Maximum number of bytes that are read at once."""
MAX_ADDRESSES = 4
"""Maximum number of addresses of a host that are tried."""


class Connector:
    """Opens connections to addresses that the guard has checked, each within ``timeout`` seconds. ``received`` and
    ``idle`` are ``received`` and ``timeout`` of ``H1Connection``; ``issuers`` fetches a certificate from a URL; the
    transport sets it."""

    def __init__(
        self,
        guard: Guard,
        tls: Tls,
        timeout: float = 20.0,
        received: Callable[[int], None] | None = None,
        idle: float | None = None,
    ) -> None:
        self._timeout, self._received, self._idle = timeout, received, idle
        self._buffer = memoryview(bytearray(_READ))
        self.guard = guard
        self._tls = tls
        self.issuers: Callable[[str], Awaitable[bytes]]

    async def connect(
        self, scheme: str, host: str, port: int, *, proxy: Proxy | None = None, exempt: bool = False
    ) -> H1Connection:
        """Opens a connection for requests to a host: directly, to a proxy, or for https through a tunnel of the proxy.

        ``exempt``: the operator has configured this host, so the guard allows private addresses.

        Raises:
            Blocked, Denied: the guard allows none of the host's addresses.
            Distrusted: its certificate does not verify.
            ConnectError, TimedOut: it, or the proxy, cannot be reached in time, or the proxy refuses.
        """
        if proxy is None:
            connecting = self._direct(scheme, host, port, exempt)
        elif scheme == "https":
            connecting = self._tunnel(proxy, host, port)
        else:
            connecting = self._to_proxy(proxy)
        return await within(self._timeout, connecting, host)

    async def check(self, host: str, port: int) -> None:
        """Raises Blocked or Denied if this host may not be connected to through a proxy."""
        await within(self._timeout, self.guard.check(host, port), f"the name {host}")

    async def _direct(self, scheme: str, host: str, port: int, exempt: bool) -> H1Connection:
        addresses = await self.guard.resolve(host, port, exempt=exempt)
        connection = await self._open_first(addresses[:MAX_ADDRESSES], host, port, tls=scheme == "https")
        # check the address of the socket, not the requested one
        if refusal := self.guard.refusal(host, connection.address, exempt=exempt):
            connection.abort()
            raise refusal
        return connection

    async def _to_proxy(self, proxy: Proxy) -> H1Connection:
        try:
            resolving = self.guard.resolve(proxy.host, proxy.port, exempt=True)
            addresses = await within(self._timeout, resolving, "the proxy's name")
            return await self._open_first(addresses, proxy.host, proxy.port, tls=proxy.scheme == "https")
        except (ConnectError, TimedOut) as error:
            raise ConnectError(f"the proxy {proxy.host}:{proxy.port} cannot be reached: {error}") from error

    async def _open_first(self, addresses: Sequence[str], host: str, port: int, *, tls: bool) -> H1Connection:
        fault: WebError = ConnectError(f"{host} has no address")
        for address in addresses:
            connect = partial(self._open, address, port, host)
            connecting = self._with_tls(host, connect) if tls else connect(None)
            try:
                # each gets a share of the timeout, so that one that drops packets leaves time for the others
                return await within(self._timeout / len(addresses), connecting, f"{host} ({address})")
            except OSError as error:
                if error.errno in OURS:
                    raise internal(error) from error
                fault = ConnectError(f"{host} ({address}) cannot be connected to: {_reason(error)}")
            except TimedOut as error:
                fault = error
        raise fault

    async def _open(self, address: str, port: int, host: str, context: ssl.SSLContext | None) -> H1Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: H1Connection(loop, self._buffer, self._received, self._idle),
            address,
            port,
            ssl=context,
            server_hostname=None if context is None else host.rstrip("."),
        )
        return connection

    async def _with_tls(self, host: str, connect: Callable[[ssl.SSLContext], Awaitable[H1Connection]]) -> H1Connection:
        connection, needs = await self._tls.connect(host, connect, H1Connection.leave, self.issuers)
        if needs:
            connection.tls = f"{', '.join(sorted(needs))} ({connection.tls_version})"
        return connection

    async def _tunnel(self, proxy: Proxy, host: str, port: int) -> H1Connection:
        try:
            return await self._with_tls(host, partial(self._tls_through, proxy, host, port))
        except OSError as error:
            raise ConnectError(f"no TLS with {host} through the proxy: {_reason(error)}") from error

    async def _tls_through(self, proxy: Proxy, host: str, port: int, context: ssl.SSLContext) -> H1Connection:
        connection = await self._to_proxy(proxy)
        try:
            netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            head = f"CONNECT {netloc} HTTP/1.1\r\nHost: {netloc}\r\n".encode("ascii")
            if proxy.authorization:
                head += b"Proxy-Authorization: " + proxy.authorization + b"\r\n"
            await connection.exchange(head + b"\r\n")
            if not 200 <= connection.status < 300:
                raise ConnectError(f"the proxy answers CONNECT with HTTP {connection.status}")
            transport = await asyncio.get_running_loop().start_tls(
                connection.take_transport(), connection, context, server_hostname=host.rstrip(".")
            )
            if transport is None:
                raise ConnectError(f"no TLS with {host} through the proxy: closed")
            connection.give_transport(transport)
        except (ReadError, ProtocolError) as error:
            connection.abort()
            raise ConnectError(f"the proxy does not answer CONNECT: {error}") from error
        except BaseException:
            connection.abort()
            raise
        return connection


async def within(timeout: float, step: Awaitable[T], what: str) -> T:
    """Awaits a step of connecting, in this task: ``asyncio.wait_for`` loses a connection that is there just when the
    step is cancelled. Raises NotConnected after ``timeout`` seconds."""
    try:
        async with time_limit(timeout):
            return await step
    except asyncio.TimeoutError as error:
        if error.args:  # ETIMEDOUT, an OSError
            raise
        raise NotConnected(f"no connection: {what} took too long") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error.strerror or 'protocol error'})"
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
