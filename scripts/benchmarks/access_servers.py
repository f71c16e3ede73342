"""Requests to the servers that the benchmark of the access layer starts."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from pathlib import Path

from benchmarks.runner import BenchmarkError


class Server:
    """A server by its port and process; requests go over one connection."""

    def __init__(self, port: int, pid: int, token: str) -> None:
        self._port, self._pid = port, pid
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def get(self, path: str) -> bytes:
        """The body of an answer that must be 200."""
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):  # a server that closes each connection
            self._connection = self._connected()
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise BenchmarkError(f"{path}: HTTP {answer.status}: {body[:200]!r}")
        return body

    def cpu(self) -> float:
        """Seconds of CPU that the process has taken."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self, path: str) -> float:
        """The largest memory of the process, in MiB, while an answer is read and let go."""
        process = Path(f"/proc/{self._pid}")
        (process / "clear_refs").write_text("5")
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise BenchmarkError(f"{path}: HTTP {answer.status}")
        while answer.read(1 << 20):
            pass
        lines = (process / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def first_byte(self, path: str) -> float:
        """Seconds until the first byte of a body is there; the rest is not waited for."""
        connection = self._connected()
        began = time.perf_counter()
        connection.request("GET", path, headers=self._headers)
        connection.getresponse().read(1)
        took = time.perf_counter() - began
        connection.close()
        return took

    def rate(self, path: str, requests: int, connections: int) -> float:
        """Requests a second over so many connections at once."""
        failed: list[str] = []

        def ask() -> None:
            own = Server(self._port, self._pid, "")
            own._headers = self._headers
            try:
                for _ in range(max(1, requests // connections)):
                    own.get(path)
            except (BenchmarkError, OSError) as error:
                failed.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(connections)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise BenchmarkError(failed[0])
        return max(1, requests // connections) * connections / (time.perf_counter() - began)
