"""Threads for work that would hold up the event loop: hashing and writing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")


class Threads:
    """Some threads, as a context manager that waits for their work. With a ThreadPoolExecutor, a piece of work costs
    four times the CPU: two futures that follow each other, and seven locks."""

    def __init__(self, count: int) -> None:
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name="fileset") for _ in range(count)]

    def __enter__(self) -> Threads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def start(self, work: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Starts work in a thread. The result is to be awaited with :func:`finished`."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_T] = loop.create_future()

        def call() -> None:
            try:
                found = work(*arguments)
            except BaseException as error:  # noqa: BLE001 - it is the result
                loop.call_soon_threadsafe(result.set_exception, error)
            else:
                loop.call_soon_threadsafe(result.set_result, found)

        self._waiting.put(call)
        return result

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()


async def finished(work: asyncio.Future[_T]) -> _T:
    """Waits for the end of work in a thread, even if the task is cancelled meanwhile (then raises CancelledError
    afterwards)."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = error
    result = work.result()
    if cancelled is not None:
        raise cancelled
    return result
