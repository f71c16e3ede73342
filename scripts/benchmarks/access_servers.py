"""Servers that the benchmark of the access layer starts, and requests to them."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[int]:
    with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            wait(lambda: process.poll() is None, port, folder / "log")
            yield process.pid
        finally:
            process.terminate()


def wait(alive: Callable[[], bool], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if not alive() or time.monotonic() > deadline:
                raise BenchmarkError(f"a server did not start: {log.read_text()[-500:]}") from None
            time.sleep(0.05)


@contextmanager
def nginx(folder: Path, answer: bytes) -> Iterator[int]:
    """The port of an nginx that gives the same answer to every request. Raises BenchmarkError where there is none."""
    program = shutil.which("nginx")
    if program is None:
        raise BenchmarkError("there is no nginx")
    folder.mkdir()
    (folder / "answer").write_bytes(answer)
    port = free_port()
    places = "\n".join(f"{one}_temp_path {folder};" for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""\
pid {folder}/pid; daemon off; error_log {folder}/error; events {{}}
http {{
access_log off; default_type text/x-cdxj; keepalive_requests 1000000;
{places}
server {{ listen 127.0.0.1:{port}; root {folder}; location / {{ try_files /answer =404; }} }}
}}
""")
    with running([program, "-c", str(folder / "nginx.conf")], folder, port):
        yield port
