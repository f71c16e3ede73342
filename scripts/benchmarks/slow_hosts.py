"""Hosts that answer after a while: ``HOSTS LATENCY PORT``, on 127.0.1.1 and so on. Ends at SIGTERM.

Then it prints JSON: requests, seconds from the first request to the last answer, most requests under way.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass

_BODY = bytes(2000)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % (len(_BODY) + 24)


@dataclass(slots=True)
class Seen:
    """What the hosts saw together."""

    requests: int = 0
    under_way: int = 0
    most: int = 0
    first: float = 0.0
    last: float = 0.0


class Host(asyncio.Protocol):
    """One connection to one host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency: float, seen: Seen) -> None:
        self._loop, self._latency, self._seen = loop, latency, seen
        self._buffer = b""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            _, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            seen = self._seen
            seen.first = seen.first or time.monotonic()
            seen.requests += 1
            seen.under_way += 1
            seen.most = max(seen.most, seen.under_way)
            self._loop.call_later(self._latency, self._answer, b"%024d" % seen.requests)

    def _answer(self, number: bytes) -> None:
        self._seen.under_way -= 1
        self._seen.last = time.monotonic()
        if isinstance(self._transport, asyncio.WriteTransport) and not self._transport.is_closing():
            self._transport.write(_ANSWER + number + _BODY)


async def serve(hosts: int, latency: float, port: int) -> Seen:
    """Serves until SIGTERM."""
    loop = asyncio.get_running_loop()
    seen = Seen()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    addresses = [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(hosts)]
    server = await loop.create_server(lambda: Host(loop, latency, seen), addresses, port, backlog=512)
    await ended.wait()
    server.close()
    return seen


def main() -> None:
    """See the module's docstring."""
    seen = asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
    print(json.dumps({"requests": seen.requests, "seconds": seen.last - seen.first, "most": seen.most}))


if __name__ == "__main__":
    main()
