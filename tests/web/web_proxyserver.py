"""A small real HTTP proxy: absolute-form requests and CONNECT, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from urllib.parse import urlsplit


class ProxyServer:
    """Listens on 127.0.0.1; ``seen`` are the request lines, ``heads`` the whole heads. ``refuse``: it answers all
    of them with this status and the header lines ``why``."""

    def __init__(self, refuse: int = 0, why: str = "") -> None:
        self.seen: list[str] = []
        self.heads: list[str] = []
        self.refuse, self.why = refuse, why
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._client, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                line = head.partition("\r\n")[0]
                self.seen.append(line)
                method, target, _ = line.split(" ")
                if self.refuse:
                    writer.write(f"HTTP/1.1 {self.refuse} No\r\n{self.why}Content-Length: 0\r\n\r\n".encode())
                    continue
                if method == "CONNECT":
                    host, _, port = target.rpartition(":")
                    remote, upstream = await asyncio.open_connection(_local(host), int(port))
                    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                    await asyncio.gather(_pump(reader, upstream), _pump(remote, writer))
                    return
                parts = urlsplit(target)
                remote, upstream = await asyncio.open_connection(_local(parts.hostname or ""), parts.port or 80)
                path = parts.path + (f"?{parts.query}" if parts.query else "")
                hop_by_hop = ("proxy-", "connection")
                rest = "\r\n".join(row for row in head.split("\r\n")[1:] if not row.lower().startswith(hop_by_hop))
                upstream.write(f"GET {path} HTTP/1.0\r\n{rest}".encode("latin-1"))
                answer = await remote.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length:")[2].split()[0])
                writer.write(answer + await remote.readexactly(length))
                upstream.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.close()


def _local(host: str) -> str:
    """Every name ends on loopback: the proxy of a test has its own idea of names."""
    return host if host.startswith("127.") else "127.0.0.1"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()
