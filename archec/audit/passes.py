"""A pass: reads journals, least recently checked first, and has worker processes read what they name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

from archec.audit.expected import Entry, key_of, names_something, statement_of
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector, Pace
from archec.audit.journals import Journals
from archec.audit.memory import Memory, Part, parts_of
from archec.audit.opening import Audited
from archec.catalogue.open import open_catalogue
from archec.errors import CorruptJournal
from archec.ids import file_name
from archec.progress import Meter
from archec.store.journalfile import JournalBatch, JournalFile, journals
from archec.store.layout import RUNS, Layout
from archec.workers.pool import Pool

_WEIGHT = 2000
"""Lines in a chunk; one of a fobi counts as many, its file being larger."""
_FOBI_WEIGHT = 30
_FOBI = b'{"type":"obi","kind":"fobi"'
_AHEAD = 4
"""Maximum number of chunks under way for each worker."""
_HINT = "out of memory? What was checked is remembered: run it again"
_INLINE = 900
"""Weight that is worked off without workers: less than that of a full chunk."""


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


class Tools(NamedTuple):
    """What a worker needs: the store, the catalogue's URL (empty: none) and its base, bytes a second (0: no limit),
    and whether it is to give the keys of what it read."""

    layout: Layout
    url: str
    base: Path
    rate: float
    keys: bool


class Chunk(NamedTuple):
    """Lines of batches ``first`` to ``last`` of the journal at ``path`` (relative); the last of them may go on in the
    next chunk unless ``whole``. ``end``: a finished journal ends here. ``compare``: the catalogue has followed the
    journal so far. ``weight`` is about how much work it is, a small file counting 1."""

    path: str
    run: int
    first: int
    last: int
    whole: bool
    end: bool
    compare: bool
    lines: list[bytes]
    weight: int


class Seen(NamedTuple):
    """What became of a chunk: entries and bytes read, what is wrong with which entry (None: with a line), and the
    keys of the entries, 16 bytes each."""

    files: int
    read: int
    findings: list[tuple[Entry | None, Finding]]
    keys: bytes


class Pass:
    """One pass over all that was not checked at or after ``now``, least recently checked first."""

    def __init__(
        self,
        archive: Audited,
        scope: Scope,
        memory: Memory,
        inspector: Inspector,
        reader: Journals,
        meter: Meter,
        now: int,
    ) -> None:
        self._archive, self._scope, self._memory = archive, scope, memory
        self._inspector, self._reader, self._meter, self._now = inspector, reader, meter, now

    def go(self, take: Callable[[Chunk, Seen], None]) -> None:
        """Reads until all is done or the scope is used up; ``take`` gets what became of each chunk, in order.

        At least one batch is checked, so that every call gets on; none where the share is 0.
        """
        files, scope = journals(self._archive.layout), self._scope
        counted = self._survey(files) if scope.share is not None else self._counted()
        total = self._total(files, counted)
        most = ceil(scope.share * total) if scope.share is not None else None
        if most == 0:
            return
        self._meter.phase("checking files", most or total or None)
        deadline = time.monotonic() + scope.seconds if scope.seconds else None
        count = self._archive.config.workers or min(4, os.cpu_count() or 1)
        with self._workers(count) as workers:
            named = 0
            for chunk in self._all_chunks(parts_of(files, self._memory.checked(), self._now)):
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
        return Pool(
            "archec.audit.passes:inspecting",
            [tools],
            Seen,
            workers=count,
            here=lambda chunk: inspect(chunk, self._inspector, tools),
            inline=_INLINE,
            ordered=True,
        )

    # -- how much there is ------------------------------------------------------------------------

    def _counted(self) -> dict[int, int]:
        """About how many files the journals name of which that is known, by run."""
        return {run: files for run, (files, _) in self._memory.journals().items()}

    def _survey(self, files: Sequence[JournalFile]) -> dict[int, int]:
        """Counts what all journals name."""
        self._meter.phase("reading journals", len(files))
        counted = self._counted()
        for number, journal in enumerate(files):
            self._meter.at(number)
            if journal.tist not in counted:
                counted[journal.tist] = sum(
                    sum(map(names_something, batch.lines)) for batch in self._reader.batches(journal)
                )
                self._know(journal, counted[journal.tist])
        return counted

    def _know(self, journal: JournalFile, named: int) -> None:
        """Remembers a finished journal that was read to its end."""
        ends = self._reader.ends.get(journal.tist)
        if journal.finished and ends is not None:
            self._memory.know_journal(journal.tist, named, ends)

    def _total(self, files: Sequence[JournalFile], counted: dict[int, int]) -> int:
        """About how many files there are; where not all journals were counted, as many as there are obis."""
        if all(journal.tist in counted for journal in files):
            return sum(counted[journal.tist] for journal in files)
        catalogue = self._archive.catalogue
        return sum(catalogue.counts()[:4]) if catalogue is not None else 0

    # -- chunks -----------------------------------------------------------------------------------

    def _all_chunks(self, parts: Sequence[Part]) -> Iterator[Chunk]:
        for part in parts:
            with closing(self._chunks(part)) as chunks:
                yield from chunks

    def _chunks(self, part: Part) -> Generator[Chunk, None, None]:
        """The lines of a part that name files, in chunks that are about as much work."""
        journal = part.journal
        path = f"{RUNS}/{journal.path.name}"
        gathered = _Gathered(path, journal.tist, part.first)
        named = 0
        for batch in self._reader.batches(journal, part.last):
            lines = list(filter(names_something, batch.lines))
            named += len(lines)
            if batch.n >= part.first:
                compare = self._archive.followed(journal.tist, batch.n)
                yield from gathered.add(batch, lines, compare=compare)
        end = part.last is None and journal.finished and path not in self._reader.unread
        if end:
            self._know(journal, named)
        yield from gathered.rest(end=end)


class _Gathered:
    """Lines on their way to a chunk."""

    def __init__(self, path: str, run: int, first: int) -> None:
        self._path, self._run = path, run
        self._first, self._last = first, first - 1
        self._lines: list[bytes] = []
        self._weight = 0
        self._compare = True

    def add(self, batch: JournalBatch, lines: Sequence[bytes], *, compare: bool) -> Iterator[Chunk]:
        """Adds the lines of the next batch; gives chunks that are full."""
        if self._last >= self._first and compare != self._compare:
            yield self._chunk(batch.n)
        self._compare, self._last = compare, batch.n
        for line in lines:
            if self._weight >= _WEIGHT:
                yield self._chunk(batch.n, whole=False)
            self._lines.append(line)
            self._weight += _FOBI_WEIGHT if line.startswith(_FOBI) else 1
        if self._weight >= _WEIGHT // 2:
            yield self._chunk(batch.n + 1)

    def rest(self, *, end: bool) -> Iterator[Chunk]:
        """The last chunk, if there is anything to say; ``end``: it is the end of a finished journal."""
        if end or self._last >= self._first:
            yield self._chunk(self._last + 1, end=end)

    def _chunk(self, following: int, *, whole: bool = True, end: bool = False) -> Chunk:
        """What was gathered, as a chunk; the next one begins with batch ``following``."""
        chunk = Chunk(
            self._path, self._run, self._first, self._last, whole, end, self._compare, self._lines, self._weight
        )
        self._lines, self._first, self._weight = [], following, 0
        return chunk


# -- in a worker ------------------------------------------------------------------------------------


def inspecting(tools: Tools) -> Callable[[Chunk], Seen]:
    """In a worker: the function that reads what a chunk names."""
    inspector: Inspector | None = None

    def work(chunk: Chunk) -> Seen:
        nonlocal inspector
        if inspector is None:
            catalogue = open_catalogue(tools.url, base=tools.base, read_only=True) if tools.url else None
            inspector = Inspector(tools.layout, catalogue, Pace(tools.rate))
        return inspect(chunk, inspector, tools)

    return work


def inspect(chunk: Chunk, inspector: Inspector, tools: Tools) -> Seen:
    """Reads all that a chunk names, and compares."""
    findings: list[tuple[Entry | None, Finding]] = []
    entries: list[Entry] = []
    where = f"batch {chunk.first}" + (f" to {chunk.last}" if chunk.last > chunk.first else "")
    for line in chunk.lines:
        try:
            statement = statement_of(line, where)
        except CorruptJournal as error:
            findings.append((None, Finding("journal-line", chunk.path, error.message)))
            continue
        if statement is not None:
            entries += statement.entries()
    before = inspector.read
    paths = paths_of(tools.layout, entries)
    wrong = inspector.inspect(entries, paths, compare=chunk.compare)
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
