"""Lanes: the same work done inline while there is little of it, in processes once there is much.

Starting processes costs more than reading a small data set, so the first ``inline`` units of
weight are worked off in the caller. Workers ignore Ctrl-C (the caller decides) and die with it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from archec.errors import ArchecError

if TYPE_CHECKING:  # they take a while to import, and a small data set does not need them
    from concurrent.futures import Future, ProcessPoolExecutor

__all__ = ["RARELY", "Lanes"]

RARELY = (100_000, 50, 100)
"""Thresholds of the garbage collector for work that makes many objects and no cycles."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_PR_SET_PDEATHSIG = 1
_BEHIND = 5
"""How much the workers stand behind the caller (nice): what it does decides how fast a run is."""
_DIED = (
    "a worker process died while it read or wrote templates",
    "out of memory? 'archec gather --resume' carries on",
)


def _start(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*RARELY)
    os.nice(_BEHIND)
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)


class Lanes(Generic[_Task, _Result]):
    """Runs ``work`` over tasks; results come in no particular order.

    ``work`` must be a function that another process can import. At most ``6 * workers`` tasks
    wait, so memory is bounded by what a task and a result take. ``died`` is the message and the hint of
    the error that tells of a worker that died.
    """

    def __init__(
        self, work: Callable[[_Task], _Result], *, workers: int, inline: int, died: tuple[str, str] = _DIED
    ) -> None:
        self._work = work
        self._workers = max(1, workers)
        self._inline = inline
        self._died = died
        self._pool: ProcessPoolExecutor | None = None
        self._running: set[Future[_Result]] = set()
        self._ready: deque[_Result] = deque()

    def __enter__(self) -> Lanes[_Task, _Result]:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, task: _Task, weight: int) -> None:
        """Hands over a task; waits where too many are on their way."""
        if self._pool is None and self._inline > 0:
            self._inline -= weight
            self._ready.append(self._work(task))
            return
        if self._pool is None:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), _start, (os.getpid(),)
            )
        while len(self._running) >= 6 * self._workers:
            self._reap(block=True)
        self._running.add(self._pool.submit(self._work, task))

    def results(self, *, last: bool = False) -> Iterator[_Result]:
        """What is done by now; with ``last`` everything that was submitted."""
        self._reap(block=False)
        while self._ready or (last and self._running):
            if not self._ready:
                self._reap(block=True)
            while self._ready:
                yield self._ready.popleft()

    def _reap(self, *, block: bool) -> None:
        if not self._running:
            return
        from concurrent.futures import FIRST_COMPLETED, wait
        from concurrent.futures.process import BrokenProcessPool

        done, self._running = wait(self._running, None if block else 0, FIRST_COMPLETED)
        for future in done:
            try:
                self._ready.append(future.result())
            except BrokenProcessPool as error:
                message, hint = self._died
                raise ArchecError(message, hint=hint) from error
