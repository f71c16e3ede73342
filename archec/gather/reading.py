"""Reading: the data set goes once through the reader into the spool (design, section 4)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from archec.archive.report import Report, kind_of
from archec.catalogue.model import Coverage
from archec.gather.spool import FileRow, SeenRow, Spool
from archec.redif.handles import place, standing
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

    ``archives`` maps archive codes to whether every file of theirs was read; ``whole`` says that
    the data set did not break off.
    """

    files: int = 0
    unread: int = 0
    bytes: int = 0
    templates: int = 0
    nameless: int = 0
    kinds: Counter[str] | None = None
    archives: dict[str, bool] | None = None
    superseded: frozenset[int] = frozenset()
    whole: bool = False

    def coverage(self, *, complete: bool) -> Coverage:
        """What the data set covers: archives read whole; ``partial`` are those that are there but were
        not. One that broke off covers nothing, since what is missing could be behind the break."""
        archives = self.archives or {}
        covered = frozenset(code for code, read in archives.items() if read and code and self.whole)
        return Coverage(complete and self.whole, covered, dict.fromkeys(frozenset(archives) - covered, ""))

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
) -> Reading:
    """Reads the whole source into the spool. Problems are reported as they come, never fatal; where one file has
    very many, ``on_more`` is given how many of each code there are besides. ``on_other`` gets the path of each file
    that does not count."""
    kinds: Counter[str] = Counter()
    reading = Reading(kinds=kinds)
    directories: set[str] = set()

    def take(result: ChunkRead) -> None:
        spool.add(result.rows, result.files)
        reading.files += len(result.files)
        reading.unread += sum(1 for file in result.files if not file.read)
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
    reading.superseded = spool.superseded()
    reading.archives = {code: True for code in directories if code} | spool.archives(reading.superseded)
    reading.whole = source.whole
    for problem in (*source.warnings, *filter(None, [source.damage])):
        on_problem(problem)
    return reading


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
            spool.add((), [FileRow(os.fsencode(item.path), item.member, _archive_behind(item.path), 0)])
            reading.files += 1
            reading.unread += 1
            on_problem(item.problem)
        elif isinstance(item, Other):
            directories.add(place(item.path).archive)
            on_other(item.path)
        else:
            directories.add(place(item.path + "/-").archive)
    if blobs:
        yield blobs, size


def _archive_behind(path: str) -> str:
    """The archive that something unread belongs to: the one it lies in, else the one that it may be
    itself (a link, or a directory that cannot be entered, in place of an archive's directory)."""
    code = place(path).archive or place(path + "/-").archive
    return code if code.isalnum() else ""


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
            if blob.part == 0 or not found.read:
                files.append(FileRow(path, blob.member, place(blob.path).archive, int(found.read)))
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
