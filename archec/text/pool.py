"""The text pool: worker processes that take text from files, and whose faults stay theirs.

A worker that crashes, hangs or eats memory is replaced and its other files go to the next one. The
file in its hands gets a reason, after a second try where the worker just died. The pool is used from
one thread; it reads the archive and writes nothing there.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections import deque
from functools import cached_property
from types import TracebackType

from archec.config import TextConfig
from archec.text.orders import Orders
from archec.text.process import Task, WorkerProcess
from archec.text.result import TextDone
from archec.text.sniff import POSTSCRIPT, bare_type, ghostscript, has_text

__all__ = ["TextPool"]

_log = logging.getLogger(__name__)

_STARTS = 3
"""Workers in a row that may fail to start before the pool gives up."""

_EXTRACTOR = "archec.text.extract:text_md5"
_BUFFERED = 32
"""Files that may wait for dispatch before ``submit`` itself hands them on."""


class TextPool:
    """Takes files by ``submit``, gives results by ``collect``, in any order; a context manager.

    Leaving it ends the workers at once; results not collected by then are lost. ``extractor`` is for
    tests: ``module:function`` of what is called in the workers in place of ``text_md5``.
    """

    def __init__(self, config: TextConfig, extractor: str = _EXTRACTOR) -> None:
        self._config = config
        self._orders = Orders(
            extractor=extractor,
            max_memory=config.max_memory,
            max_size=config.max_size,
            timeout=config.timeout,
        )
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerProcess] = []
        self._queue: deque[Task] = deque()
        self._done: list[TextDone] = []
        self._numbers = 0
        self._failed_starts = 0
        self._pending = 0
        self._closed = False

    # -- for the run --------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Files submitted whose results have not been collected."""
        return self._pending

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers there are."""
        return tuple(worker.pid for worker in self._workers)

    def wants(self, media_type: str, size: int) -> bool:
        """Whether submitting such a file can give a text checksum; if not, there is no need to."""
        return not self._refusal(media_type) and 0 < size <= self._config.max_size

    def submit(self, key: str, path: str, media_type: str, content_encoding: str = "") -> None:
        """Queues a file; returns at once. ``media_type`` is what ``sniff`` said of it."""
        if self._closed:
            raise ValueError("the text pool is closed")
        self._pending += 1
        reason = self._refusal(media_type)
        if reason:
            self._done.append(TextDone(key, None, reason))
            return
        self._numbers += 1
        self._queue.append(Task(self._numbers, key, path, media_type, content_encoding))
        if len(self._queue) % _BUFFERED == 0:
            self._dispatch()

    def collect(self, timeout: float = 0.0) -> list[TextDone]:
        """The results there are; waits up to ``timeout`` seconds for the first one.

        Returns at once, with an empty list, where nothing is pending.
        """
        until = time.monotonic() + timeout
        while True:
            self._dispatch()
            if self._pending == len(self._done):
                break
            self._listen(0.0 if self._done else max(0.0, until - time.monotonic()))
            self._judge()
            if self._done or time.monotonic() >= until:
                break
        self._dispatch()
        done, self._done = self._done, []
        self._pending -= len(done)
        return done

    def close(self) -> None:
        """Ends all workers at once. May be called twice."""
        self._closed = True
        for worker in self._workers:
            worker.end(self._selector, self._done)
        self._workers.clear()
        self._queue.clear()
        self._selector.close()

    def __enter__(self) -> TextPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------------

    def _refusal(self, media_type: str) -> str:
        if not self._config.enabled:
            return "off"
        if not has_text(media_type):
            return "no-text-type"
        if bare_type(media_type) == POSTSCRIPT and not self._postscript:
            return "no-gs"
        return ""

    @cached_property
    def _postscript(self) -> bool:
        return ghostscript() is not None

    def _dispatch(self) -> None:
        """Hands queued files to workers with room, starting workers as far as there is work for them."""
        while self._queue:
            worker = min(self._workers, key=lambda one: one.load, default=None)
            if (worker is None or worker.load) and len(self._workers) < self._config.workers:
                worker = self._start()
            if worker is None or not worker.has_room(self._queue[0]):
                break
            worker.give(self._queue.popleft())
        for worker in self._workers:
            worker.flush(self._selector)

    def _start(self) -> WorkerProcess | None:
        if self._failed_starts >= _STARTS:
            self._give_up()
            return None
        try:
            worker = WorkerProcess(self._orders)
        except OSError as error:
            _log.warning("a text worker cannot be started: %s", error)
            self._failed_starts += 1
            return self._start()
        worker.register(self._selector)
        self._workers.append(worker)
        return worker

    def _give_up(self) -> None:
        if not self._workers:
            self._done.extend(TextDone(task.key, None, "no-worker") for task in self._queue)
            self._queue.clear()

    def _listen(self, timeout: float) -> None:
        now = time.monotonic()
        first = min((worker.deadline for worker in self._workers), default=now)
        for key, events in self._selector.select(max(0.0, min(timeout, first - now))):
            worker: WorkerProcess = key.data
            if worker.ended:
                continue
            if events & selectors.EVENT_WRITE:
                worker.flush(self._selector)
            if events & selectors.EVENT_READ and not self._hear(worker):
                self._bury(worker, "")

    def _hear(self, worker: WorkerProcess) -> bool:
        """Takes what a worker has written; False where it has come to its end or talks nonsense."""
        was_ready = worker.ready
        alive = worker.listen(self._done)
        if worker.ready and not was_ready:
            self._failed_starts = 0
        return alive

    def _judge(self) -> None:
        """Ends the workers that are over their time."""
        now = time.monotonic()
        for worker in [one for one in self._workers if now >= one.deadline]:
            if worker.overdue(self._done):
                self._bury(worker, "timeout")

    def _bury(self, worker: WorkerProcess, reason: str) -> None:
        """Removes a worker: the file in its hands gets a reason, the others go back to the queue."""
        end = worker.end(self._selector, self._done)
        self._workers.remove(worker)
        tasks = worker.outstanding()
        if not worker.ready:
            self._failed_starts += 1
            _log.warning("a text worker did not start: %s", worker.complaint or reason or end)
        elif tasks and not worker.retired:
            self._blame(tasks, reason or end)
        self._queue.extendleft(reversed(tasks))

    def _blame(self, tasks: list[Task], reason: str) -> None:
        """The first file's worker died: it may have been killed from outside, so once is forgiven."""
        if reason == "crashed" and not tasks[0].again:
            tasks[0] = tasks[0]._replace(again=True)
        else:
            self._done.append(TextDone(tasks.pop(0).key, None, reason))
