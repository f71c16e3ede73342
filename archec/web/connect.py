"""Opens connections: resolve, check the addresses, connect to one of them, TLS; through a proxy if there is one."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TypeVar

import httpx

from archec.web.faults import Blocked, Distrusted
from archec.web.guard import Guard
from archec.web.h1 import H1Connection
from archec.web.proxy import Proxy
from archec.web.resolve import Resolver
from archec.web.tuning import Tuning

__all__ = ["Connector"]

T = TypeVar("T")

_ATTEMPTS = 4
"""Addresses of a host that are tried at most."""


class Connector:
    """Makes connections whose other end the guard has seen.

    ``trust`` makes the TLS context (certificates verified against certifi's or SSL_CERT_FILE's list).
    """

    def __init__(
        self,
        guard: Guard,
        resolver: Resolver,
        tuning: Tuning,
        trust: Callable[[], ssl.SSLContext] = httpx.create_ssl_context,
    ) -> None:
        self._guard = guard
        self._resolver = resolver
        self._tuning = tuning
        self._trust = trust

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = self._trust()
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def direct(self, scheme: str, host: str, port: int, timeout: float) -> H1Connection:
        """A connection to the host itself.

        Raises:
            Blocked: no address of the host may be connected to.
            Distrusted: its certificate does not verify.
            httpx.ConnectError, httpx.ConnectTimeout: it cannot be reached within ``timeout`` seconds.
        """
        return await _within(timeout, self._direct(scheme, host, port, timeout), host)

    async def tunnel(self, proxy: Proxy, host: str, port: int, timeout: float) -> H1Connection:
        """A TLS connection to the host through CONNECT of a proxy; raises as ``direct``, and ProxyError."""
        return await _within(timeout, self._tunnel(proxy, host, port, timeout), host)

    async def to_proxy(self, proxy: Proxy, timeout: float) -> H1Connection:
        """A connection to a proxy, whose own address needs no leave.

        Raises:
            httpx.ProxyError: it cannot be reached.
        """
        try:
            addresses = await _within(timeout, self._resolver.resolve(proxy.host, proxy.port), "the proxy's name")
            context = self._context if proxy.scheme == "https" else None
            return await self._first(addresses, proxy.host, proxy.port, timeout, context)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise httpx.ProxyError(f"the proxy {proxy.host}:{proxy.port} cannot be reached: {error}") from error

    async def check(self, host: str, port: int, timeout: float) -> None:
        """Raises Blocked where the host is, or resolves to, an address that is not allowed."""
        if not self._guard.is_open:
            addresses = await _within(timeout, self._resolver.resolve(host, port), f"the name {host}")
            for address in addresses:
                if not self._guard.allows(address):
                    raise Blocked(_refusal(host, address))

    async def _direct(self, scheme: str, host: str, port: int, timeout: float) -> H1Connection:
        addresses = await self._resolver.resolve(host, port)
        public = [address for address in addresses if self._guard.allows(address)]
        if not public:
            raise Blocked(_refusal(host, addresses[0]))
        context = self._context if scheme == "https" else None
        connection = await self._first(public[:_ATTEMPTS], host, port, timeout, context)
        if not self._guard.allows(connection.address):
            connection.abort()
            raise Blocked(_refusal(host, connection.address))
        return connection

    def _plain(self) -> H1Connection:
        return H1Connection(asyncio.get_running_loop(), self._tuning.header_bytes, self._tuning.header_count)

    async def _first(
        self,
        addresses: Sequence[str],
        host: str,
        port: int,
        timeout: float,
        context: ssl.SSLContext | None,
    ) -> H1Connection:
        """A connection to the first of the addresses that takes one; with a ``context`` over TLS."""
        loop = asyncio.get_running_loop()
        fault: httpx.TransportError = httpx.ConnectError(f"{host} has no address")
        for address in addresses:
            connecting = loop.create_connection(
                self._plain, address, port,
                ssl=context,
                server_hostname=None if context is None else host.rstrip("."),
            )
            try:
                _, connection = await _within(timeout / len(addresses), connecting, f"{host} ({address})")
                return connection
            except ssl.SSLCertVerificationError as error:
                raise Distrusted(f"the certificate of {host} does not verify: {error.verify_message}") from error
            except (OSError, ssl.SSLError) as error:
                fault = httpx.ConnectError(f"{host} ({address}) cannot be connected to: {_reason(error)}")
            except httpx.ConnectTimeout as error:
                fault = error
        raise fault

    async def _tunnel(self, proxy: Proxy, host: str, port: int, timeout: float) -> H1Connection:
        await self.check(host, port, timeout)
        connection = await self.to_proxy(proxy, timeout)
        try:
            netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            head = f"CONNECT {netloc} HTTP/1.1\r\nHost: {netloc}\r\n".encode("ascii")
            if proxy.authorization:
                head += b"Proxy-Authorization: " + proxy.authorization + b"\r\n"
            await connection.exchange(head + b"\r\n")
            if not 200 <= connection.status < 300:
                raise httpx.ProxyError(f"the proxy answers CONNECT with HTTP {connection.status}")
            below = connection.take_transport()
            try:
                transport = await asyncio.get_running_loop().start_tls(
                    below, connection, self._context, server_hostname=host.rstrip(".")
                )
            except ssl.SSLCertVerificationError as error:
                raise Distrusted(f"the certificate of {host} does not verify: {error.verify_message}") from error
            except (OSError, ssl.SSLError) as error:
                raise httpx.ConnectError(f"no TLS with {host} through the proxy: {_reason(error)}") from error
            if transport is None:
                raise httpx.ConnectError(f"no TLS with {host} through the proxy: closed")
            connection.give_transport(transport)
        except (httpx.ReadError, httpx.RemoteProtocolError) as error:
            connection.abort()
            raise httpx.ProxyError(f"the proxy does not answer CONNECT: {error}") from error
        except BaseException:
            connection.abort()
            raise
        return connection


async def _within(timeout: float, doing: Awaitable[T], what: str) -> T:
    try:
        return await asyncio.wait_for(doing, timeout)
    except asyncio.TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection: {what} took too long") from error


def _refusal(host: str, address: str) -> str:
    shown = host if host == address else f"{host} ({address})"
    return f"{shown} is not a public address; fetch.allow_networks opens networks"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error.strerror or 'protocol error'})"
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
