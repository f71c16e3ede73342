"""A run of ``fileset ingest``, from lock to report. Requests come from an iterator, results go to a callback."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import uvloop

from archec import __version__
from archec.archive.budget import NO_LIMIT, Budget, BudgetUse
from archec.archive.commit import CommitItem, Commits, committing
from archec.archive.opening import Archive, locked, opened
from archec.archive.report import Report
from archec.archive.runs import end_run, next_run, read_clock, stop_run
from archec.archive.unfinished_downloads import UnfinishedDownloads
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import RunStart
from archec.config import Config
from archec.errors import ArchecError, CatalogueGone, CorruptArchive, Exit, StorageFailed, StorageFull, gravest_of_items
from archec.fileset.archiveorg_items import Items, keys_of
from archec.fileset.asking import Asker
from archec.fileset.context import IngestOptions, Work, at_once
from archec.fileset.download import BudgetSpent, Counter, Downloader
from archec.fileset.ingest import ingest
from archec.fileset.json_lines import IngestResult
from archec.fileset.model import IngestRequest
from archec.fileset.platforms.registry import Registry
from archec.fileset.redaction import public_text
from archec.fileset.status import FilesetProblem, PlatformHttpError, Status
from archec.fileset.summary import failure, file_result, postpone
from archec.progress import Meter
from archec.tist import stamp
from archec.units import counted
from archec.web.door import Sender, WebError
from archec.workers.child import rare_collections

_log = logging.getLogger(__name__)
KIND = "fileset"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_THREADS = 2
"""Threads that hash and write. More would compete with the event loop for the interpreter."""
_PACE = 500, 5.0
"""Items and seconds after which a batch is committed."""
_CODES = {
    Status.BAD_REQUEST: Exit.USAGE,
    Status.BUDGET: Exit.BUDGET,
}

Line = tuple[str, IngestRequest | FilesetProblem]
"""A line of input, and the request on it or the problem with it."""
Emit = Callable[[IngestResult, IngestResult | None], None]
"""Called with each result, and with that of its data file if there is one."""


class RequestLines:
    """``lines``, and then those of ``stream``, which are read as they are needed, in a thread that no run waits for: a
    pipe may be silent for long."""

    def __init__(self, lines: Iterable[Line], stream: Iterable[Line]) -> None:
        self._lines, self._stream = iter(lines), iter(stream)
        self._pending: Future[Line | None] | None = None
        self.under_way: list[Line] = []
        """The lines that were returned and have no result yet."""

    async def next(self) -> Line | None:
        """Returns the next line, None after the last one. Only one may wait; if it is cancelled, the line remains."""
        line = next(self._lines, None)
        if line is None:
            if self._pending is None:
                self._pending = Future()
                threading.Thread(target=self._read, args=[self._pending], daemon=True).start()
            line = await asyncio.shield(asyncio.wrap_future(self._pending))
            self._pending = None
        if line is not None:
            self.under_way.append(line)
        return line

    def rest(self) -> Iterator[Line]:
        """Yields the lines without a result; of the stream, only those that were returned."""
        yield from self.under_way
        yield from self._lines

    def _read(self, pending: Future[Line | None]) -> None:
        pending.set_running_or_notify_cancel()
        try:
            pending.set_result(next(self._stream, None))
        except Exception as error:  # noqa: BLE001 - for the caller
            pending.set_exception(error)


def exit_code(statuses: Iterable[str], *, dry_run: bool = False) -> Exit:
    """The exit code for results with these statuses: that of the worst one."""
    good = [status.value for status in Status if status.is_hit or (dry_run and status is Status.NOT_PROCESSED)]
    bad = (Status(one) for one in statuses if one not in good)
    return gravest_of_items(_CODES.get(one, Exit.OPERATOR_ERROR) for one in bad)


def run_ingest(
    config: Config,
    lines: Iterable[Line],
    options: IngestOptions,
    meter: Meter,
    emit: Emit,
    *,
    jobs: int = 1,
    wait: bool = False,
    budget: Budget = NO_LIMIT,
    stream: Iterable[Line] = (),
) -> Counter:
    """Ingests all requests, those of ``stream`` last. Raises an ArchecError if the run has to stop; everything that was
    committed is kept.

    Requests that are not finished when the budget is used up get the status ``budget``; the next run continues them.
    """
    counter = Counter(meter, BudgetUse(budget))
    counter.use.begin()
    meter.phase("bytes", None)
    source = RequestLines(lines, stream)
    given = _Given(source, options, emit, counter, max(1, jobs), budget.seconds)
    try:
        if options.dry_run:
            with opened(config) as archive:
                _run_stoppable(_dry(archive, given))
        else:
            _run(config, given, wait=wait)
    except (StorageFull, StorageFailed, CatalogueGone) as error:
        for text, request in source.rest():
            emit(failure(request if isinstance(request, IngestRequest) else None, text, error), None)
        raise
    return counter


class _Given(NamedTuple):
    """What a run was called with. ``seconds`` is the time that it may take; 0 means no limit."""

    lines: RequestLines
    options: IngestOptions
    emit: Emit
    counter: Counter
    jobs: int
    seconds: float


def _run(config: Config, given: _Given, *, wait: bool) -> None:
    counter = given.counter
    with ExitStack() as stack:
        stack.enter_context(rare_collections())
        archive = stack.enter_context(locked(config, "fileset ingest", counter.meter, wait=wait))
        pending = stack.enter_context(UnfinishedDownloads(config.work_path))
        run = next_run(archive)
        counter.report = report = Report(run, 0, "none", "", filesets=counter.statuses)
        committer = stack.enter_context(committing(archive, run))
        committer.pace(*_PACE)
        asked = given.options.as_value()
        start = RunStart(run, kind=KIND, form="none", options=asked, software=__version__, clock=read_clock())
        committer.add(CommitItem(start))
        committer.commit()
        threads = stack.enter_context(ThreadPoolExecutor(_THREADS, thread_name_prefix="fileset"))

        async def ingest_all() -> None:
            async with _work(archive, report, committer, given.options) as work:
                committer.on_refused = work.refuse
                work.continued = _continued(archive.catalogue, run)
                work.downloader = Downloader(work.asker, committer.store, pending, run, threads, config.fetch, counter)
                try:
                    await _all(work, given)
                finally:
                    report.requests = work.asker.requests
                    report.fetched_bytes = counter.use.bytes + work.asker.received

        report.state = "done"
        with report.timed("filesets"):
            try:
                _run_stoppable(ingest_all())
                committer.commit()
                if Status.BUDGET.value not in counter.statuses:
                    pending.remove_old(run, committer.store)
            except BaseException as error:
                with suppress(ArchecError):
                    committer.commit()
                stop_run(committer, report, error)
                raise
        if left := counter.statuses.get(Status.BUDGET.value, 0):
            report.state = "budget"
            report.message = f"the budget is exhausted: {counted(left, 'data set')} not ingested"
        end_run(archive.catalogue, committer, report)
        if report.state == "budget":
            committer.finish()  # no ingest is resumed as a run


def _continued(catalogue: Catalogue, run: int) -> int:
    """The tist of the run before ``run``, if it is an ingest with ``--force`` that was stopped, else 0."""
    last = next(iter(catalogue.newest_runs(run, 1)), None)
    is_stopped = last is not None and last.kind == KIND and last.state in ("interrupted", "budget")
    return last.tist if last is not None and is_stopped and msgspec.json.decode(last.options).get("force") else 0


def _run_stoppable(work: Coroutine[Any, Any, None]) -> None:
    """Runs ``work``. A first signal to stop cancels it, and KeyboardInterrupt is raised when it has ended. Raised where
    the signal arrives, it would leave tasks without their end."""
    is_main = threading.current_thread() is threading.main_thread()  # only there signals have handlers
    found = {number: signal.getsignal(number) for number in _SIGNALS if is_main}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    stopped: list[int] = []

    async def stoppable() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def stop(number: int, _: object) -> None:
            stopped.append(number)
            for one, handler in handlers.items():  # a second signal ends it at once, even if the loop is blocked
                signal.signal(one, handler)
            loop.call_soon_threadsafe(task.cancel)

        for number in handlers:
            signal.signal(number, stop)
        await asyncio.wait([task])
        if not (stopped and task.cancelled()):
            task.result()

    try:
        uvloop.run(stoppable())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if stopped:
        raise KeyboardInterrupt


@asynccontextmanager
async def _work(archive: Archive, report: Report, commits: Commits, options: IngestOptions) -> AsyncIterator[Work]:
    """Yields the objects for ingests that ask the platforms, but store nothing."""
    config = archive.config
    registry = Registry({one.name: one for one in config.fileset.platforms})
    async with AsyncExitStack() as stack:
        sender = await stack.enter_async_context(Sender(config.fetch, config.agent, "platform"))
        asker = Asker(config.fetch, config.agent, sender, registry.helpers)
        items = None
        if (keys := keys_of(os.environ)) is not None:
            patience = max(config.fetch.max_delay, config.fetch.idle_timeout)
            patient = replace(config.fetch, connect_timeout=patience, idle_timeout=patience)
            uploader = await stack.enter_async_context(Sender(patient, config.agent, "upload"))
            items = Items(config.fileset, config.fetch, uploader, keys)
        yield Work(archive, report.run, report, commits, asker, None, registry, options, items)


async def _dry(archive: Archive, given: _Given) -> None:
    async with _work(archive, Report(stamp(None), 0, "none", ""), Commits(), given.options) as work:
        await _all(work, given)


async def _all(work: Work, given: _Given) -> None:
    """Processes all requests, several of them at once. Lines are read as they are needed."""
    lines, counter = given.lines, given.counter
    deadline = time.monotonic() + given.seconds if given.seconds else None
    lock = asyncio.Lock()

    async def one_after_the_other() -> None:
        while True:
            async with lock:
                line = await lines.next()
            if line is None:
                return
            result = await _one(work, line, counter.use, deadline)
            lines.under_way.remove(line)
            counter.ended(result.status)
            given.emit(result, file_result(result))

    try:
        await at_once(given.jobs, one_after_the_other)
    finally:
        work.ended.set()


async def _one(work: Work, line: Line, use: BudgetUse, deadline: float | None) -> IngestResult:
    text, request = line
    if isinstance(request, FilesetProblem):
        return failure(None, text, request)
    exhausted = PlatformHttpError("the budget of the run is exhausted", status=Status.BUDGET)
    if use.spent:
        return failure(request, text, exhausted)
    try:
        left = None if deadline is None else deadline - time.monotonic()
        return await asyncio.wait_for(_contained(work, text, request), left)
    except (asyncio.TimeoutError, BudgetSpent):
        postpone(work, request)
        return failure(request, text, exhausted)


async def _contained(work: Work, text: str, request: IngestRequest) -> IngestResult:
    """The result of a request, whose errors must not end the others, nor be taken for those of the run."""
    try:
        return await ingest(work, request)
    except BudgetSpent:
        raise
    except (CorruptArchive, FilesetProblem) as error:  # a damaged manifest; what a helper says of a problem
        return failure(request, text, error)
    except Exception as error:
        if isinstance(error, ArchecError) and not isinstance(error, WebError):
            raise
        _log.error("%s\n%s", public_text(request.base_url)[:300], public_text(traceback.format_exc()))
        problem = PlatformHttpError(f"internal: {type(error).__name__}: {error}"[:1000], status=Status.ERROR_INTERNAL)
        return failure(request, text, problem)


def due_requests(config: Config, now: int) -> list[Line]:
    """Returns requests for the base URLs that are due at ``now``, with the options of their last ingest, the longest
    overdue first."""
    with open_catalogue(config.database, base=config.base, read_only=True) as catalogue:
        due = [one for one in catalogue.ingests() if one.is_due(now)]
    due.sort(key=lambda one: (one.due, one.base_url, one.ingest_type))
    return [(one.base_url, IngestRequest(one.base_url, one.ingest_type, options=one.options)) for one in due]
