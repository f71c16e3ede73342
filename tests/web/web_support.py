"""Runs the fetcher in this process, with settings that make a test short."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from archec.config import FetchConfig
from archec.web.fetcher import Fetcher
from archec.web.outcome import FetchTask, Hop, Sink
from archec.web.policy import Tuning
from archec.web.pool import FetchPool
from archec.web.transport import Transports

QUICK = Tuning(
    rate_grace=1.0, backoff=0.01, penalty=0.05, robots_timeout=3.0, tick=0.02, flush=0.005, stop_grace=3.0,
    dns_threads=2, quiet=0.02,
)  # fmt: skip


class FolderSink:
    """Writes each body into one flat folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def temp(self, url: str) -> FolderTemp:
        return FolderTemp(self._folder)

    def discard(self, temp: str) -> None:
        Path(temp).unlink()


def folder_sink(folder: Path) -> FolderSink:
    return FolderSink(folder)


class FolderStored(NamedTuple):
    temp: str
    md5: str
    sha256: str
    size: int


class FolderTemp:
    def __init__(self, folder: Path) -> None:
        self._fd, self._path = tempfile.mkstemp(".part", dir=folder)
        self._md5 = hashlib.md5()
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        os.write(self._fd, data)
        self._md5.update(data)
        self._sha256.update(data)
        self._size += len(data)

    def close(self) -> FolderStored:
        os.close(self._fd)
        return FolderStored(self._path, self._md5.hexdigest(), self._sha256.hexdigest(), self._size)

    def discard(self) -> None:
        os.close(self._fd)
        Path(self._path).unlink(missing_ok=True)


def settings(**changes: object) -> FetchConfig:
    """Settings for loopback; robots ignored unless asked for."""
    quick = FetchConfig(
        workers=2, concurrency=16, per_host=4, delay=0.0, max_delay=2.0, robots="ignore", connect_timeout=2.0,
        idle_timeout=1.0, total_timeout=8.0, min_rate=5_000, max_size=1_000_000, retries=1, host_failures=50,
        allow_networks=("127.0.0.0/8",),
    )
    return dataclasses.replace(quick, **changes)


def fetch(
    folder: Path,
    tasks: Sequence[FetchTask | str],
    config: FetchConfig | None = None,
    *,
    sink: Sink | None = None,
    tuning: Tuning = QUICK,
    carriers: Transports | None = None,
    fast: bool = False,
    doubtful: list[str] | None = None,
) -> list[Hop]:
    """The hops of the tasks, in the tasks' order. Every task must end, exactly once. ``fast``: on uvloop. The URLs of
    hops that are taken back go to ``doubtful``."""

    wanted = [task if isinstance(task, FetchTask) else FetchTask(task) for task in tasks]

    async def run() -> list[Hop]:
        found: list[Hop] = []
        over = asyncio.get_running_loop().create_future()

        def emit(hop: Hop) -> None:
            if hop.kind == "doubtful":
                assert doubtful is not None
                doubtful.append(hop.url)
                return
            found.append(hop)
            if len(found) == len(tasks) and not over.done():
                over.set_result(None)

        def fatal(error: Exception) -> None:
            over.set_exception(error)

        fetcher = Fetcher(
            config or settings(), "archec/0.1 (test; ops@example.org)", sink or FolderSink(folder), emit,
            tuning=tuning, carriers=carriers, fatal=fatal, progress=lambda size, requests: None,
        )
        for task in wanted:
            fetcher.submit(task)
        fetcher.start()
        try:
            await asyncio.wait_for(over, 30)
        finally:
            await fetcher.aclose()
            await asyncio.sleep(0)
        return found

    if fast:
        import uvloop

        found = uvloop.run(run())
    else:
        found = asyncio.run(run())
    assert Counter(hop.url for hop in found) == Counter(task.url for task in wanted)
    places = {task.url: number for number, task in enumerate(wanted)}
    return sorted(found, key=lambda hop: places[hop.url])


def fetch_one(folder: Path, task: FetchTask | str, config: FetchConfig | None = None, **more: object) -> Hop:
    """The hop of one task."""
    return fetch(folder, [task], config, **more)[0]


def collect_all(fetching: FetchPool, within: float = 20.0) -> list[Hop]:
    """The hops of all tasks that are open."""
    hops: list[Hop] = []
    deadline = time.monotonic() + within
    while fetching.pending:
        assert time.monotonic() < deadline, f"{fetching.pending} tasks are still open"
        hops += fetching.collect(0.5)
    return hops


def leftovers(folder: Path, hops: Sequence[Hop]) -> set[str]:
    """Files in the folder that no hop names."""
    return {str(path) for path in folder.iterdir()} - {hop.temp for hop in hops}
