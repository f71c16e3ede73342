"""What is expected, in chunks: journal lines on their way to worker processes, which read what these name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from archec.audit.expected import Entry, key_of, names_something, statement_of
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector, Pace
from archec.audit.journals import Journals
from archec.audit.memory import Memory, Part
from archec.audit.opening import Audited
from archec.catalogue.open import open_catalogue
from archec.errors import CorruptJournal
from archec.ids import file_name
from archec.store.journal_reader import JournalBatch
from archec.store.layout import RUNS, Layout
from archec.workers.pool import Pool

_WEIGHT = 2000
"""Lines in a chunk; one of a fobi counts as many, its file being larger."""
_FOBI_WEIGHT = 30
_FOBI = b'{"type":"obi","kind":"fobi"'
_INLINE = 900
"""Weight that is worked off without workers: less than that of a full chunk."""


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


def inspectors(tools: Tools, inspector: Inspector, workers: int) -> Pool[Chunk, Seen]:
    """A pool that works off chunks and answers in their order; a few small ones here, by ``inspector``."""
    return Pool(
        "archec.audit.chunks:inspecting",
        [tools],
        Seen,
        workers=workers,
        here=lambda chunk: inspect(chunk, inspector, tools),
        inline=_INLINE,
        ordered=True,
    )


def chunks_of(part: Part, archive: Audited, reader: Journals, memory: Memory) -> Iterator[Chunk]:
    """The lines of a part that name files, in chunks that are about as much work."""
    journal = part.journal
    path = f"{RUNS}/{journal.path.name}"
    gathered = _Gathered(path, journal.tist, part.first)
    named = 0
    for batch in reader.batches(journal, part.last):
        lines = list(filter(names_something, batch.lines))
        named += len(lines)
        if batch.n >= part.first:
            yield from gathered.add(batch, lines, compare=archive.followed(journal.tist, batch.n))
    end = part.last is None and journal.finished and path not in reader.unread
    if end:
        memory.know_journal(journal.tist, named, reader.ends[journal.tist])
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
