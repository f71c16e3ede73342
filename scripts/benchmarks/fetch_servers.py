"""The web servers that are fetched from: nginx on many loopback addresses, and hosts that are slow."""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.fetch_clients import Workload
from benchmarks.running import BenchmarkError, environment, found_version

__all__ = ["Nginx", "Slow", "nginx"]

_CONFIGURATION = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ {listen} root {folder}/www; }}
}}
"""
_PATIENCE = 10.0


class Nginx:
    """A running nginx with one worker."""

    def __init__(self, version: str, folder: Path, addresses: list[str]) -> None:
        self.version = version
        self._folder = folder
        self._addresses = addresses

    def workload(self, name: str, files: int, size: int) -> Workload:
        """New random files, and the URLs that they have, each on one of the hosts; all is in the page cache."""
        place = self._folder / "www" / name
        place.mkdir()
        draw = random.Random(f"{name} {files} {size}")
        urls = []
        for number in range(files):
            (place / f"{number}.dat").write_bytes(draw.randbytes(size))
            urls.append(f"http://{self._addresses[number % len(self._addresses)]}/{name}/{number}.dat")
        return Workload(name, urls, size)


@contextmanager
def nginx(program: str, folder: Path, hosts: int) -> Iterator[Nginx]:
    """nginx on ``hosts`` loopback addresses. Raises BenchmarkError where it does not start."""
    (folder / "www").mkdir(parents=True)
    port = free_port("127.0.0.2")
    addresses = [f"127.0.0.{2 + number}:{port}" for number in range(hosts)]
    listen = " ".join(f"listen {address};" for address in addresses)
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, listen=listen, user=user), encoding="utf-8")
    log = folder / "error.log"
    with subprocess.Popen(
        [program, "-p", folder, "-c", configuration],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_for(process, addresses[-1], log)
            yield Nginx(found_version([program, "-v"]), folder, addresses)
        finally:
            process.terminate()


class Slow:
    """Slow hosts in a process of their own; a context manager. ``told`` is what they saw, after its end."""

    def __init__(self, hosts: int, latency: float, folder: Path) -> None:
        self._hosts, self._latency, self._folder = hosts, latency, folder
        self.told: dict[str, float] = {}
        self._port = free_port("127.0.1.1")

    def __enter__(self) -> Slow:
        words = [self._hosts, self._latency, self._port]
        self._process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.slow_hosts", *map(str, words)],
            cwd=self._folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_for(self._process, f"{self._address(self._hosts - 1)}:{self._port}", None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate()
        if error is None:
            self.told = json.loads(output)

    def workload(self, files: int) -> Workload:
        """So many URLs of each host."""
        hosts = [f"{self._address(number)}:{self._port}" for number in range(self._hosts)]
        return Workload("slow", [f"http://{host}/{n}.dat" for n in range(files) for host in hosts], 0)

    @staticmethod
    def _address(number: int) -> str:
        return f"127.0.{1 + number // 250}.{1 + number % 250}"


def free_port(address: str) -> int:
    """A port that nobody uses at this address now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(process: subprocess.Popen[Any], address: str, log: Path | None, *, patience: float = _PATIENCE) -> None:
    """Until the server answers there. Raises BenchmarkError where it ends instead, or takes too long."""
    host, _, port = address.partition(":")
    until = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                why = log.read_text(errors="replace").strip() if log is not None and log.exists() else str(error)
                raise BenchmarkError(f"{process.args!r} does not answer: {why}") from error
        time.sleep(0.02)
