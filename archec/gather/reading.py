"""Reading: the data set goes once through the reader into the spool (design, section 4)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from archec.archive.evidence import directory_of
from archec.archive.report import Report, kind_of
from archec.catalogue.model import Coverage
from archec.gather.spool import FileRow, SeenRow, Spool
from archec.redif.handles import below_root, standing
from archec.redif.items import Blob, Other, Source, Unread
from archec.redif.problems import Problem
from archec.redif.scan import scan
from archec.store.durable import failure
from archec.workers.pool import Pool

_CHUNK = 1 << 20
_INLINE = 4 << 20
_AHEAD = 6
"""Chunks under way for each worker, at most."""
WORKER_HINT = "out of memory? gather again"
"""What to do about a worker process that dies again and again."""
_MOST_PROBLEMS = 200
"""Problems that a worker reports in full for each of its tasks; of the rest it counts the codes."""
_MOST_UNREAD = 1000
"""Files of one archive that cannot be read and are remembered one by one."""


class ChunkRead(NamedTuple):
    rows: list[SeenRow]
    files: list[FileRow]
    problems: list[Problem]
    more: dict[str, int]
    kinds: dict[str, int]
    size: int
    templates: int
    nameless: int


@dataclass(slots=True)
class Reading:
    """What a run learnt about its data set: running totals, filled by :func:`read_data_set`.

    ``whole`` says that the data set did not break off, ``damage`` what was wrong where it did. ``left_out`` are members
    that do not count: later ones of the same path replace them, or they were not read whole and the rest is salvaged.
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
        """Puts the totals into a run's report."""
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
) -> Reading:
    """Reads the whole source into the spool. Problems are reported as they come, never fatal; where one file has
    very many, ``on_more`` is given how many of each code there are besides. ``on_other`` gets the path of each file
    that does not count."""
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

    pool: Pool[list[Blob], ChunkRead] = Pool(
        "archec.gather.reading:chunk_reader", [spool.folder], ChunkRead,
        workers=workers, here=chunk_reader(spool.folder), inline=_INLINE,
    )  # fmt: skip
    with pool:
        for blobs, weight in _chunks(source, spool, reading, directories, on_problem, on_other):
            pool.submit(blobs, weight)
            for done in pool.results(at_most=_AHEAD * workers):
                take(done.result(WORKER_HINT))
        for done in pool.results(at_most=0):
            take(done.result(WORKER_HINT))
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
    """What a data set that was read whole has looked at.

    Where an archive has very many files that cannot be read, it counts as a directory that cannot.
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
    spool: Spool,
    reading: Reading,
    directories: set[str],
    on_problem: Callable[[Problem], None],
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
            row = FileRow(os.fsencode(item.path), item.member, below_root(item.path), 0, 0, item.problem.code)
            spool.add((), [row])
            on_problem(item.problem)
        elif isinstance(item, Other):
            directories.add(directory_of(below_root(item.path)))
            on_other(item.path)
        else:
            directories.add(directory_of(below_root(item.path.rstrip("/") + "/-")))
    if blobs:
        yield blobs, size


def chunk_reader(folder: Path) -> Callable[[list[Blob]], ChunkRead]:
    """What reads some files, in any process; their templates' texts go to that process's own text file in ``folder``,
    the spool's."""

    def read(blobs: list[Blob]) -> ChunkRead:
        try:
            return _read(blobs, folder)
        except OSError as error:
            raise failure(error, folder) from error

    return read


def _read(blobs: list[Blob], folder: Path) -> ChunkRead:
    number = os.getpid()
    rows: list[SeenRow] = []
    files: list[FileRow] = []
    problems: list[Problem] = []
    more: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    templates = nameless = size = 0
    with open(folder / f"texts-{number}", "ab") as texts:
        start = texts.tell()
        for blob in blobs:
            found = scan(blob)
            size += len(blob.data)
            _add_problems(found.problems, problems, more)
            path = os.fsencode(blob.path)
            there = below_root(blob.path)
            if blob.part == 0 or not found.read or found.templates:
                digest = "" if found.read else sha256(blob.data, usedforsecurity=False).hexdigest()
                files.append(FileRow(path, blob.member, there, int(found.read), int(bool(found.templates)), digest))
            for template in found.templates:
                templates += 1
                kinds[kind_of(template.kind)] += 1
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
    return ChunkRead(rows, files, problems, dict(more), dict(kinds), size, templates, nameless)


def _add_problems(found: list[Problem], problems: list[Problem], more: Counter[str]) -> None:
    room = max(0, _MOST_PROBLEMS - len(problems))
    problems += found[:room]
    more.update(problem.code for problem in found[room:])
