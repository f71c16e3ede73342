"""Worker processes of an audit: they take lots of journal lines and look at what these name."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import NamedTuple

from archec.audit.entries import Entry, key_of, told_by
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector
from archec.audit.pace import Pace
from archec.catalogue.open import open_catalogue
from archec.errors import ArchecError, CorruptJournal
from archec.ids import file_name
from archec.store.layout import Layout

__all__ = ["Lot", "Seen", "Tools", "Workers", "serve"]

_COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from archec.audit.workers import serve; serve()"


class Tools(NamedTuple):
    """What a worker needs: the store, the catalogue's URL (empty: none) and its base, bytes a second
    (0: no limit), and whether it is to give the keys of what it looked at."""

    layout: Layout
    url: str
    base: Path
    rate: float
    keys: bool


class Lot(NamedTuple):
    """Lines of batches ``first`` to ``last`` of the journal at ``path`` (relative); ``whole``: the last of
    them is complete with this lot. ``compare``: the catalogue has followed the journal so far. ``weight``
    is about how much work it is, a small file counting 1."""

    path: str
    run: int
    first: int
    last: int
    whole: bool
    compare: bool
    lines: list[bytes]
    weight: int


class Seen(NamedTuple):
    """What became of a lot: entries and bytes looked at, what is wrong with which entry (None: with a
    line), and the keys of the entries, 16 bytes each."""

    files: int
    read: int
    findings: list[tuple[Entry | None, Finding]]
    keys: bytes


class Workers:
    """Lots in, in order; what they came to out, in the same order. A context manager.

    Lots of together ``inline`` weight at most are worked off here: starting processes takes longer than a
    small archive does. At most ``3 * workers + 2`` lots wait, so memory is bounded.
    """

    def __init__(self, tools: Tools, inspector: Inspector, *, workers: int, inline: int) -> None:
        self._tools, self._inspector, self._count, self._inline = tools, inspector, max(1, workers), inline
        self._queue: SimpleQueue[Asked | None] = SimpleQueue()
        self._processes: list[WorkerProcess] = []
        self._waiting: deque[tuple[Lot, Future[Seen] | Seen]] = deque()

    def submit(self, lot: Lot) -> Iterator[tuple[Lot, Seen]]:
        """Hands over a lot; gives what is done, waiting where too much is on its way."""
        if not self._processes and lot.weight <= self._inline:
            self._inline -= lot.weight
            self._waiting.append((lot, look_at(lot, self._inspector, self._tools)))
        else:
            while len(self._processes) < self._count:
                self._processes.append(WorkerProcess(self._tools, self._queue))
            asked = Asked(pickle.dumps(lot, pickle.HIGHEST_PROTOCOL), Future())
            self._queue.put(asked)
            self._waiting.append((lot._replace(lines=[]), asked.answer))
        yield from self.results(most=3 * self._count + 2)

    def results(self, *, most: int = 0) -> Iterator[tuple[Lot, Seen]]:
        """What is done, in order; waits until at most ``most`` lots are on their way."""
        while self._waiting:
            lot, result = self._waiting[0]
            if isinstance(result, Future):
                if len(self._waiting) <= most and not result.done():
                    return
                seen = result.result()
            else:
                seen = result
            self._waiting.popleft()
            yield lot, seen

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if kind is not None:
                process.stop()
            self._queue.put(None)
        for process in self._processes:
            process.close()


class Asked(NamedTuple):
    """A lot as it goes through the pipe, and the answer to come."""

    lot: bytes
    answer: Future[Seen]


class WorkerProcess:
    """One worker process. It takes lots from a queue, until there is a None in it.

    One thread writes and one reads, so that the next lot waits in the pipe while one is worked on: a
    worker never waits for this process to wake up.
    """

    def __init__(self, tools: Tools, queue: SimpleQueue[Asked | None]) -> None:
        """Starts it; ArchecError where the system refuses."""
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        try:
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-c", _COMMAND, path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for whoever asks
            )
        except OSError as error:
            raise ArchecError(f"a worker process cannot be started: {error.strerror}") from error
        self._under_way: SimpleQueue[Future[Seen] | None] = SimpleQueue()
        first = pickle.dumps(tools, pickle.HIGHEST_PROTOCOL)
        self._threads = (
            Thread(target=self._write, args=(first, queue), name="audit-write", daemon=True),
            Thread(target=self._read, name="audit-read", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def _write(self, first: bytes, queue: SimpleQueue[Asked | None]) -> None:
        stdin = self._process.stdin
        if stdin is None:
            return
        with suppress(OSError):  # a worker that died is told of by who reads
            stdin.write(first)
        while (asked := queue.get()) is not None:
            self._under_way.put(asked.answer)
            with suppress(OSError):
                stdin.write(asked.lot)
                stdin.flush()
        self._under_way.put(None)
        with suppress(OSError):
            stdin.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        while (future := self._under_way.get()) is not None:
            try:
                answer = pickle.load(stdout) if stdout is not None else None
            except (EOFError, OSError, pickle.UnpicklingError):
                answer = _died()
            if isinstance(answer, Seen):
                future.set_result(answer)
            else:
                future.set_exception(answer if isinstance(answer, ArchecError) else _died())

    def stop(self) -> None:
        """Ends it at once; it only reads, so nothing is lost."""
        self._process.kill()

    def close(self) -> None:
        """Waits for its end."""
        for thread in self._threads:
            thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()


def look_at(lot: Lot, inspector: Inspector, tools: Tools) -> Seen:
    """Looks at all that a lot names."""
    findings: list[tuple[Entry | None, Finding]] = []
    entries: list[Entry] = []
    where = f"batch {lot.first}" + (f" to {lot.last}" if lot.last > lot.first else "")
    for line in lot.lines:
        try:
            told = told_by(line, where)
        except CorruptJournal as error:
            findings.append((None, Finding("journal-line", lot.path, error.message)))
            continue
        if told is not None:
            entries += told.entries()
    before = inspector.read
    paths = paths_of(tools.layout, entries)
    wrong = inspector.inspect(entries, paths, compare=lot.compare)
    by_place = {(entry.tist, entry.id): entry for entry in entries} if wrong else {}
    findings += [(by_place[finding.tist, finding.id], finding) for finding in wrong]
    keys = b"".join(map(key_of, paths)) if tools.keys else b""
    return Seen(len(entries), inspector.read - before, findings, keys)


def paths_of(layout: Layout, entries: Sequence[Entry]) -> list[str]:
    """The relative paths of entries; most of them have one tist, so its directory is made once."""
    if layout.fanout:
        return [layout.path(entry.tist, entry.id) for entry in entries]
    directories = {tist: layout.directory(tist, "") for tist in {entry.tist for entry in entries}}
    return [f"{directories[entry.tist]}/{file_name(entry.id)}" for entry in entries]


# -- in the worker process ------------------------------------------------------------------------


def serve() -> None:
    """The life of a worker: its tools, then lot after lot from stdin, what they came to on stdout."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may come between the answers
    tools: Tools = pickle.load(requests)
    inspector: Inspector | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            lot: Lot = pickle.load(requests)
            answer: Seen | ArchecError
            try:
                if inspector is None:
                    inspector = _inspector(tools)
                answer = look_at(lot, inspector, tools)
            except ArchecError as error:
                answer = error
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


def _inspector(tools: Tools) -> Inspector:
    catalogue = open_catalogue(tools.url, base=tools.base, read_only=True) if tools.url else None
    return Inspector(tools.layout, catalogue, Pace(tools.rate))


def _died() -> ArchecError:
    return ArchecError(
        "a worker process died while it read files", hint="out of memory? What was checked is remembered: run it again"
    )
