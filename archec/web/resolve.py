"""Names to addresses: the system's resolver in threads of its own, with a time limit and a short memory.

An answer may be remembered without harm to the guard: connections are made to the numeric address
that was checked, and the name is never resolved a second time on the way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import httpx

__all__ = ["Resolver", "SystemResolver"]

_REMEMBERED = 20_000


class Resolver(Protocol):
    """Finds the addresses of a host."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Numeric addresses, best first, at least one.

        Raises:
            httpx.ConnectError: there is no such name, or the name service does not answer.
        """


class SystemResolver:
    """``getaddrinfo`` of the system; ``ttl`` in seconds."""

    def __init__(self, threads: int, ttl: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dns")
        self._ttl = ttl
        self._known: dict[str, tuple[float, Sequence[str]]] = {}

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """See :class:`Resolver`; a numeric host is its own address."""
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
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a host name"
            raise httpx.ConnectError(f"{host} cannot be resolved: {reason}") from error
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[host] = (loop.time() + self._ttl, addresses)
        return addresses

    def close(self) -> None:
        """Gives the threads up; one that hangs in the name service is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise OSError(0, "no address")
    return addresses
