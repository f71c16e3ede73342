"""A pass: reads journals in the order of the plan, and has what they name looked at by workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from math import ceil

from archec.audit.entries import names_something
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector
from archec.audit.memory import Memory
from archec.audit.opening import Audited
from archec.audit.plan import Part, parts_of
from archec.audit.workers import Chunk, Seen, Tools, inspectors
from archec.errors import CorruptJournal
from archec.progress import Meter
from archec.store.journalfile import JournalFile, journals, read_batches
from archec.store.layout import RUNS
from archec.workers.pool import Pool

__all__ = ["Pass", "Scope"]

_WEIGHT = 2000
"""Lines in a chunk; one of a fobi counts as many, its file being larger."""
_FOBI_WEIGHT = 30
_FOBI = b'{"type":"obi","kind":"fobi"'
_AHEAD = 4
"""Chunks under way for each worker, at most."""
_HINT = "out of memory? What was checked is remembered: run it again"
_INLINE = 900
"""Weight that is worked off without workers: less than that of a full chunk."""

Totals = dict[int, tuple[int, int]]
"""Of a journal, by its run: how many batches it has, and about how many files it names."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to check: a share of the files, or for so many seconds, or (neither) everything; ``rate`` in
    bytes a second, 0 for no limit. What is known to be bad is always checked, and first."""

    share: float | None = None
    seconds: float = 0.0
    rate: int = 0

    @property
    def everything(self) -> bool:
        """Whether nothing is left for another time."""
        return self.share is None and not self.seconds


class Pass:
    """One pass over all that was not checked at or after ``now``, least recently checked first.

    ``unread`` holds what is wrong with journals that cannot be read to their end, by relative path.
    """

    def __init__(
        self, archive: Audited, scope: Scope, memory: Memory, inspector: Inspector, meter: Meter, now: int
    ) -> None:
        self._archive, self._scope, self._memory = archive, scope, memory
        self._inspector, self._meter, self._now = inspector, meter, now
        self.unread: dict[str, Finding] = {}

    def go(self, take: Callable[[Chunk, Seen], None]) -> None:
        """Reads until all is done or the scope is used up; ``take`` gets what became of each chunk, in order.

        At least one batch is checked, so that every call gets on; none where the share is 0.
        """
        files, scope = journals(self._archive.layout), self._scope
        totals = self._memory.journals()
        if scope.share is not None:
            totals = self._survey(files, totals)
        total = self._total(files, totals)
        most = ceil(scope.share * total) if scope.share is not None else None
        parts = parts_of(files, self._memory.stretches(), {run: n for run, (n, _) in totals.items()}, self._now)
        if most == 0:
            return
        self._meter.phase("checking files", most or total or None)
        deadline = time.monotonic() + scope.seconds if scope.seconds else None
        count = self._archive.config.workers or min(4, os.cpu_count() or 1)
        with self._workers(count) as workers:
            named = 0
            for chunk in self._all_chunks(parts):
                named += len(chunk.lines)
                workers.submit(chunk, chunk.weight)
                for done in workers.results(at_most=_AHEAD * count):
                    take(done.item, done.result(_HINT))
                late = deadline is not None and time.monotonic() >= deadline
                if chunk.whole and (late or (most is not None and named >= most)):
                    break
            for done in workers.results(at_most=0):
                take(done.item, done.result(_HINT))

    def _workers(self, count: int) -> Pool[Chunk, Seen]:
        archive, config, scope = self._archive, self._archive.config, self._scope
        url = config.database if archive.catalogue is not None else ""
        tools = Tools(archive.layout, url, config.base, scope.rate / count, scope.everything)
        return inspectors(tools, self._inspector, workers=count, inline=_INLINE)

    # -- how much there is ------------------------------------------------------------------------

    def _survey(self, files: list[JournalFile], totals: Totals) -> Totals:
        """Counts what journals name of which that is not remembered."""
        self._meter.phase("reading journals", len(files))
        totals = dict(totals)
        for number, journal in enumerate(files):
            self._meter.at(number)
            if journal.tist in totals:
                continue
            batches = named = 0
            with suppress(CorruptJournal):
                for batch in read_batches(journal.path):
                    batches = batch.n
                    named += sum(map(names_something, batch.lines))
                if journal.finished:
                    self._memory.know_journal(journal.tist, batches, named)
            totals[journal.tist] = batches, named
        return totals

    def _total(self, files: list[JournalFile], totals: Totals) -> int:
        """About how many files there are; where not all journals were counted, as many as there are obis."""
        if all(journal.tist in totals for journal in files):
            return sum(totals[journal.tist][1] for journal in files)
        catalogue = self._archive.catalogue
        return sum(catalogue.counts()[:4]) if catalogue is not None else 0

    # -- chunks -----------------------------------------------------------------------------------

    def _all_chunks(self, parts: list[Part]) -> Iterator[Chunk]:
        for part in parts:
            with closing(self._chunks(part)) as chunks:
                yield from chunks

    def _chunks(self, part: Part) -> Generator[Chunk, None, None]:
        """The lines of a part that name files, in chunks that are about as much work."""
        journal = part.journal
        gathered = _Gathered(f"{RUNS}/{journal.path.name}", journal.tist)
        named = last = 0
        try:
            for batch in read_batches(journal.path):
                if part.last is not None and batch.n > part.last:
                    break
                lines = list(filter(names_something, batch.lines))
                named += len(lines)
                last = batch.n
                if batch.n < part.first:
                    continue
                yield from gathered.add(batch.n, lines, compare=self._archive.followed(journal.tist, batch.n))
            else:
                if journal.finished:
                    self._memory.know_journal(journal.tist, last, named)
        except CorruptJournal as error:
            self.unread[gathered.path] = Finding("journal-damaged", gathered.path, error.message)
        yield from gathered.rest()


class _Gathered:
    """Lines on their way to a chunk."""

    def __init__(self, path: str, run: int) -> None:
        self.path, self._run = path, run
        self._lines: list[bytes] = []
        self._first = self._last = self._weight = 0
        self._compare = True

    def add(self, batch: int, lines: list[bytes], *, compare: bool) -> Iterator[Chunk]:
        """The lines of the next batch; gives chunks that are full."""
        if self._first and compare != self._compare:
            yield self._chunk(whole=True)
        self._compare, self._last = compare, batch
        self._first = self._first or batch
        for line in lines:
            if self._weight >= _WEIGHT:
                yield self._chunk(whole=False)
                self._first = batch
            self._lines.append(line)
            self._weight += _FOBI_WEIGHT if line.startswith(_FOBI) else 1
        if self._weight >= _WEIGHT // 2:
            yield self._chunk(whole=True)

    def rest(self) -> Iterator[Chunk]:
        """The last chunk, if there is one."""
        if self._first:
            yield self._chunk(whole=True)

    def _chunk(self, *, whole: bool) -> Chunk:
        chunk = Chunk(self.path, self._run, self._first, self._last, whole, self._compare, self._lines, self._weight)
        self._lines, self._first, self._weight = [], 0, 0
        return chunk
