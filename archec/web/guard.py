"""Opens connections: choose a proxy, resolve, check the addresses, connect to one of them, TLS. The guard is against
requests to private networks and to what the operator denies (``fetch.deny``).

The guard checks the address that a socket is connected to, never a name. This covers names that resolve to private
addresses, names that resolve differently between check and use (DNS rebinding), and decimal, octal or hexadecimal
spellings of an address. Sources: the IANA special-purpose address registries (RFC 6890 and updates). Any address that
is not global unicast is refused.

Behind a proxy, the guard guarantees less. A host that is a private or denied address is refused, and a name is resolved
here and refused if any of its addresses is private or denied. But the proxy resolves the name again, so a name that
resolves differently for the proxy gets through; only rules of the proxy itself can prevent that. A name that cannot be
resolved here is refused, too, unless ``fetch.allow_networks`` contains ``0.0.0.0/0`` and ``fetch.deny`` has no
networks.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import zip_longest
from threading import Lock, Thread
from typing import Any, TypeVar, cast

from archec.errors import BadName
from archec.ids import normalise_url
from archec.web.h1 import H1Connection
from archec.web.messages import Request
from archec.web.outcome import (
    OURS,
    BadUrl,
    Blocked,
    ConnectError,
    Denied,
    NotConnected,
    ProtocolError,
    ReadError,
    TimedOut,
    WebError,
    internal,
)
from archec.web.policy import MAPPED, NAT64, Address, Deny, Proxy, embedded, parsed
from archec.web.tls import Tls

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REFUSED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, and "any"
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers (CGNAT)
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, the clouds' metadata service too
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, withdrawn
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_OPEN_6 = (ipaddress.IPv6Network("2000::/3"), MAPPED, NAT64)
"""Global unicast, and IPv4 addresses embedded in IPv6."""
_TTL = 60.0
"""Seconds for which the result of a name resolution is cached."""
_MAX_REMEMBERED = 20_000
"""Maximum number of names in the cache."""
_READ = 1 << 18
"""Maximum number of bytes that are read at once."""
MAX_ADDRESSES = 4
"""Maximum number of addresses of a host that are tried."""


def allowed(ip: Address | str, allow_networks: Sequence[Network] = ()) -> bool:
    """Whether connections to ``ip`` are allowed. False for anything that is not an address.

    An IPv4 address embedded in an IPv6 address (:func:`embedded`) must be allowed, too. Addresses in ``allow_networks``
    are exempt.
    """
    if isinstance(ip, str):
        try:
            ip = parsed(ip)
        except ValueError:
            return False
    if any(ip in network for network in allow_networks):
        return True
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _REFUSED_4)
    if any(ip in network for network in _REFUSED_6) or not any(ip in network for network in _OPEN_6):
        return False
    return all(allowed(inner, allow_networks) for inner in embedded(ip))


class _Threads(Executor):
    """At most ``most`` threads, each until nothing is left to do. A process ends without waiting for them, as it would
    for those of ThreadPoolExecutor."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it is the result
                    future.set_exception(error)

        with self._lock:
            self._waiting.append(call)
            if self._running < self._most:
                Thread(target=self._run, name=self._name, daemon=True).start()
                self._running += 1
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                call = self._waiting.popleft()
            call()


class Resolver:
    """The system's ``getaddrinfo`` in threads, which may outlive a caller that times out.

    Caching does not weaken the guard: connections are made to the numeric address that was checked, and the name is not
    resolved again in between.
    """

    def __init__(self, threads: int) -> None:
        self._pool = _Threads(threads, "dns")
        self._known: dict[str, tuple[float, Sequence[str]]] = {}

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Returns numeric addresses, best first, at least one. A numeric host is its own address.

        Raises ConnectError if the name does not exist or the name server does not answer, and Internal if this machine
        lacks the resources for the query.
        """
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            pass
        loop = asyncio.get_running_loop()
        known = self._known.get(host)
        if known is not None and known[0] > loop.time():
            return known[1]
        try:
            addresses = await loop.run_in_executor(self._pool, _look_up, host, port)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in OURS:
                raise internal(error) from error
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a host name"
            raise ConnectError(f"{host} cannot be resolved: {reason}") from error
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[host] = (loop.time() + _TTL, addresses)
        return addresses


def _look_up(host: str, port: int) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_MEMORY:
            raise OSError(errno.ENOMEM, error.strerror) from error
        with socket.socket():  # raises EMFILE if the resolver failed because no descriptor was left
            raise
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise OSError(0, "no address")
    # Only the first ones are tried, so IPv4 and IPv6 alternate (RFC 8305 section 4): one of the two may not work here.
    best = ":" in addresses[0]
    same, other = ([one for one in addresses if (":" in one) == wanted] for wanted in (best, not best))
    return [one for pair in zip_longest(same, other) for one in pair if one]


class Guard:
    """The rule for connections: to addresses that are public or in ``allow_networks``, and not denied."""

    def __init__(self, resolver: Resolver, allow_networks: Sequence[str] = (), deny: Deny | None = None) -> None:
        self._resolver, self._deny = resolver, deny or Deny()
        self._networks = tuple(ipaddress.ip_network(text, strict=False) for text in allow_networks)

    def check_request(self, request: Request) -> None:
        """Raises Denied if the URL of a request is denied, in whatever spelling."""
        if self._deny.has_urls:
            try:
                url = normalise_url(request.origin.url(request.target))
            except BadName as error:
                raise BadUrl(error.message) from error
            if reason := self._deny.reason(url):
                raise Denied(reason)

    async def resolve(self, host: str, port: int, *, exempt: bool = False) -> list[str]:
        """The addresses of a host that may be connected to, best first. ``exempt``: private addresses are allowed.

        Raises Denied or Blocked if there is none, and the exceptions of :class:`Resolver`.
        """
        addresses = await self._resolve(host, port)
        refusals = [self.refusal(host, address, exempt=exempt) for address in addresses]
        if all(refusals):
            raise cast(ConnectError, refusals[0])
        return [address for address, refusal in zip(addresses, refusals, strict=True) if refusal is None]

    async def check(self, host: str, port: int) -> None:
        """Raises Denied or Blocked if a proxy may not connect to the host, because of any of its addresses.

        The name is not resolved if no address would be refused.
        """
        everything = any(network.version == 4 and network.prefixlen == 0 for network in self._networks)
        if everything and not self._deny.has_networks:
            self._check_name(host)
            return
        for address in await self._resolve(host, port):
            if refusal := self.refusal(host, address):
                raise refusal

    def refusal(self, host: str, address: str, *, exempt: bool = False) -> ConnectError | None:
        """The exception that forbids a connection to this numeric address of a host, or None if it is allowed."""
        if reason := self._deny.reason_of_address(address):
            return Denied(f"{host} is {address}: {reason}")
        if exempt or allowed(address, self._networks):
            return None
        shown = host if host == address else f"{host} ({address})"
        return Blocked(f"{shown} is not a public address; fetch.allow_networks opens networks")

    def _check_name(self, host: str) -> None:
        if reason := self._deny.reason_of_host(f"[{host}]" if ":" in host else host.rstrip(".")):
            raise Denied(reason)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        self._check_name(host)
        return await self._resolver.resolve(host, port)


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
