"""Reads the data set once into the spool (design, section 4)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from archec.archive.absence import directory_of
from archec.archive.report import Report
from archec.catalogue.model import Coverage
from archec.gather.spool import FileRow, SeenRow, Spool
from archec.redif.files import Blob, Known, Other, Source, Unread
from archec.redif.precedence import below_root, standing
from archec.redif.problems import Problem
from archec.redif.scan import scan
from archec.redif.schema import type_of
from archec.store.durable import failure
from archec.workers.pool import Pool

_CHUNK = 1 << 20
_INLINE = 4 << 20
_AHEAD = 6
"""Maximum number of chunks in progress per worker."""
WORKER_HINT = "possibly out of memory; gather again"
"""The hint about a worker process that dies repeatedly."""
_MOST_PROBLEMS = 200
"""Maximum number of problems that a worker reports in full per task; the rest is counted by code."""
_MOST_UNREAD = 1000
"""Maximum number of unreadable files of one archive that are recorded individually."""


class ChunkRead(NamedTuple):
    """The contents found in a file, or in a part of one."""

    rows: list[SeenRow]
    files: list[FileRow]
    problems: list[Problem]
    more: dict[str, int]
    kinds: dict[str, int]
    size: int
    templates: int
    nameless: int


class Memory(Protocol):
    """The contents found in files that were read before."""

    def found(self, path: str, member: int) -> ChunkRead:
        """The contents found in a file of the source that is ``Known``."""

    def remember(self, found: ChunkRead) -> None:
        """Records the contents found in a file now, or in a part of one."""

    def forget(self, path: str) -> None:
        """Records that a file could not be read."""


@dataclass(slots=True)
class Reading:
    """Running totals of a data set, filled by :func:`read_data_set`.

    ``whole`` is True if the data set was read to its end; otherwise ``damage`` is the problem. ``left_out`` are members
    that do not count: a later member of the same path replaces them, or only a part of them was read in a salvage.
    """

    files: int = 0
    unread: int = 0
    bytes: int = 0
    templates: int = 0
    nameless: int = 0
    kinds: Counter[str] | None = None
    left_out: frozenset[int] = frozenset()
    coverage: Coverage = field(default_factory=Coverage)
    whole: bool = False
    damage: Problem | None = None

    def report_to(self, report: Report) -> None:
        """Adds the totals to a run's report."""
        report.files, report.unread, report.read_bytes = self.files, self.unread, self.bytes
        report.nameless, report.whole = self.nameless, self.whole
        report.templates.update(self.kinds or {})


def read_data_set(
    source: Source,
    spool: Spool,
    *,
    workers: int,
    on_problem: Callable[[Problem], None],
    on_more: Callable[[Mapping[str, int]], None],
    on_other: Callable[[str], None],
    on_progress: Callable[[Reading], None],
    complete: bool = False,
    memory: Memory | None = None,
) -> Reading:
    """Reads the whole source into the spool. Problems are reported as they occur and are never fatal. If one file has
    very many, ``on_more`` receives the counts of the rest by code. ``on_other`` receives the path of each file that
    does not count. ``memory`` has the contents of files that are not read again."""
    kinds: Counter[str] = Counter()
    reading = Reading(kinds=kinds)
    directories: set[str] = set()

    def take(result: ChunkRead) -> None:
        spool.add(result.rows, result.files)
        reading.bytes += result.size
        reading.templates += result.templates
        reading.nameless += result.nameless
        kinds.update(result.kinds)
        for problem in result.problems:
            on_problem(problem)
        on_more(result.more)
        on_progress(reading)

    def take_all(results: list[ChunkRead]) -> None:
        for result in results:
            take(result)
            if memory is not None:
                memory.remember(result)

    def unread(item: Unread) -> None:
        row = FileRow(os.fsencode(item.path), item.member, below_root(item.path), 0, 0, item.problem.code)
        spool.add((), [row])
        on_problem(item.problem)
        if memory is not None:
            memory.forget(item.path)

    def known(item: Known) -> None:
        if memory is not None:
            take(memory.found(item.path, item.member))

    pool: Pool[list[Blob], list[ChunkRead]] = Pool(
        "archec.gather.reading:chunk_reader", [spool.folder], list[ChunkRead],
        workers=workers, here=chunk_reader(spool.folder), inline=_INLINE,
    )  # fmt: skip
    with pool:
        for blobs, weight in _chunks(source, directories, unread, known, on_other):
            pool.submit(blobs, weight)
            for done in pool.results(at_most=_AHEAD * workers):
                take_all(done.result(WORKER_HINT))
        for done in pool.results(at_most=0):
            take_all(done.result(WORKER_HINT))
    reading.files, reading.unread = spool.count()
    reading.left_out = spool.superseded()
    reading.whole, reading.damage = source.whole, source.damage
    for problem in (*source.warnings, *filter(None, [source.damage])):
        on_problem(problem)
    if source.whole:
        reading.coverage = _coverage(spool, directories, reading.left_out, complete=complete)
    else:
        reading.left_out |= spool.unread()
    return reading


def _coverage(spool: Spool, directories: set[str], left_out: frozenset[int], *, complete: bool) -> Coverage:
    """The coverage of a data set that was read completely.

    If an archive has very many unreadable files, its whole directory counts as unreadable.
    """
    read = directories | {directory_of(place) for place in spool.places()}
    unread: dict[str, str] = {}
    partly: dict[str, str] = {}
    in_directory: Counter[str] = Counter()
    for place, in_part, digest in spool.unreadable(left_out):
        directory = directory_of(place)
        in_directory[directory] += 1
        if in_directory[directory] <= _MOST_UNREAD:
            (partly if in_part else unread)[place.rstrip("/")] = digest
        else:
            unread[directory] = "too-many"
    for place in unread:
        partly.pop(place, None)
    return Coverage(complete, frozenset(read), unread, partly)


def _chunks(
    source: Source,
    directories: set[str],
    on_unread: Callable[[Unread], None],
    on_known: Callable[[Known], None],
    on_other: Callable[[str], None],
) -> Iterator[tuple[list[Blob], int]]:
    blobs: list[Blob] = []
    size = 0
    for item in source:
        if isinstance(item, Blob):
            blobs.append(item)
            size += len(item.data) + 200
            if size >= _CHUNK:
                yield blobs, size
                blobs, size = [], 0
        elif isinstance(item, Unread):
            on_unread(item)
        elif isinstance(item, Known):
            on_known(item)
        elif isinstance(item, Other):
            directories.add(directory_of(below_root(item.path)))
            on_other(item.path)
        else:
            directories.add(directory_of(below_root(item.path.rstrip("/") + "/-")))
    if blobs:
        yield blobs, size


def chunk_reader(folder: Path) -> Callable[[list[Blob]], list[ChunkRead]]:
    """Returns a function that reads some files, in any process. It appends the texts of their templates to the text
    file of its process in ``folder``, the folder of the spool."""

    def read(blobs: list[Blob]) -> list[ChunkRead]:
        try:
            with open(folder / f"texts-{os.getpid()}", "ab") as texts:
                return [_read(blob, texts) for blob in blobs]
        except OSError as error:
            raise failure(error, folder) from error

    return read


def _read(blob: Blob, texts: BinaryIO) -> ChunkRead:
    number, start = os.getpid(), texts.tell()
    rows: list[SeenRow] = []
    files: list[FileRow] = []
    kinds: Counter[str] = Counter()
    nameless = 0
    found = scan(blob)
    path = os.fsencode(blob.path)
    there = below_root(blob.path)
    if blob.part == 0 or not found.read or found.templates:
        digest = "" if found.read else sha256(blob.data, usedforsecurity=False).hexdigest()
        files.append(FileRow(path, blob.member, there, int(found.read), int(bool(found.templates)), digest))
    for template in found.templates:
        kinds[type_of(template.kind)] += 1
        if not template.id:
            nameless += 1
            continue
        length = len(template.text)
        rows.append(
            SeenRow(
                template.id,
                sha256(template.text, usedforsecurity=False).digest(),
                standing(template.handle, template.id, blob.path),
                path,
                there,
                blob.member,
                (blob.part << 32) + template.index,
                template.handle,
                template.line,
                found.encoding,
                number,
                start,
                length,
            )
        )
        texts.write(template.text)
        start += length
    problems, more = found.problems[:_MOST_PROBLEMS], Counter(p.code for p in found.problems[_MOST_PROBLEMS:])
    return ChunkRead(rows, files, problems, dict(more), dict(kinds), len(blob.data), len(found.templates), nameless)
