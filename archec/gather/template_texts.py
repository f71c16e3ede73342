"""The texts of templates: the data set is read once into the spool (design, section 4), and what is new or has changed
is written from there to files in the obi store. Worker processes do both.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from archec.archive.evidence import coverage_of, directory_of
from archec.catalogue.model import Coverage, Refipo, Version
from archec.digest import md5_hex, sha256_hex
from archec.errors import ArchecError, failure, storage_errors
from archec.gather.spool import ChunkRead, FileRow, SeenRow, line_of
from archec.ids import MAX_ID
from archec.redif.files import Blob, DataSetSource, Known, Other, Unread
from archec.redif.precedence import below_root, standing
from archec.redif.problems import Problem
from archec.redif.scan import FOUND_BY_SCAN, scan
from archec.redif.schema import type_of
from archec.redif.template import canonical_text, difference, fobis, parse
from archec.store.layout import Layout
from archec.store.reader import open_obi
from archec.store.writer import Writer
from archec.units import counted
from archec.workers.pool import Done, Pool

if TYPE_CHECKING:  # slow to import, and not needed by workers
    from archec.gather.directory_cache import DirectoryMemory
    from archec.gather.options import Environment

_CHUNK = 1 << 20
_INLINE = 4 << 20
_AHEAD = 6
"""Maximum number of chunks in progress per worker."""
WORKER_HINT = "possibly out of memory; gather again"
"""The hint about a worker process that dies repeatedly."""
_MOST_PROBLEMS = 200
"""Maximum number of problems that a worker reports in full per task; the rest is counted by code."""
_LONGEST_TITLE = 2000
"""Maximum length of a title in the catalogue, in characters; the file in the obi store has the whole title."""
_LONGEST_KIND = 100


class Reading(NamedTuple):
    """How a data set was read: ``whole`` if to its end, otherwise ``damage`` is the problem. ``left_out`` are members
    that do not count: a later member of the same path replaces them, or only a part of them was read in a salvage."""

    whole: bool
    damage: Problem | None
    left_out: frozenset[int]
    coverage: Coverage


def read_data_set(source: DataSetSource, of: Environment, memory: DirectoryMemory | None, *, workers: int) -> Reading:
    """Reads the whole source into the spool, and counts it in the report. Problems are never fatal. ``memory`` has the
    contents of files that are not read again."""
    spool, report = of.spool, of.report
    directories: set[str] = set()

    def take(chunks: list[ChunkRead]) -> None:
        spool.add(chunks)
        for found in chunks:
            report.read_bytes += found.size
            report.templates.update(found.kinds)
            report.nameless += sum(found.kinds.values()) - len(found.lines)
            for problem in found.problems:
                report.problem(problem)
            report.problem_counts.update(found.more)
            if memory is not None:
                memory.remember(found)
        of.meter.at(source.position, counted(report.templates.total(), "template"))

    def take_all(results: Iterator[Done[list[Blob], list[ChunkRead]]]) -> None:
        for done in results:
            take(done.result(WORKER_HINT))

    pool: Pool[list[Blob], list[ChunkRead]] = Pool(
        "archec.gather.template_texts:chunk_reader", [spool.folder], list[ChunkRead],
        workers=workers, here=chunk_reader(spool.folder), inline=_INLINE,
    )  # fmt: skip
    with pool:
        blobs: list[Blob] = []
        size = 0
        for item in source:
            if isinstance(item, Blob):
                blobs.append(item)
                size += len(item.data) + 200
                if size >= _CHUNK:
                    pool.submit(blobs, size)
                    blobs, size = [], 0
                    take_all(pool.results(at_most=_AHEAD * workers))
            elif isinstance(item, Unread):
                if memory is not None:
                    memory.forget(item.path)
                row = FileRow(os.fsencode(item.path), item.member, below_root(item.path), 0, 0, item.problem.code)
                take([ChunkRead([], [row], [item.problem], {}, {}, 0)])
            elif isinstance(item, Known):
                if memory is not None:
                    take([memory.found(item.path, item.member)])
            elif isinstance(item, Other):
                directories.add(directory_of(below_root(item.path)))
                report.other_file(item.path)
            else:
                directories.add(directory_of(below_root(item.path.rstrip("/") + "/-")))
        if blobs:
            pool.submit(blobs, size)
        take_all(pool.results(at_most=0))
    report.files, report.unread = spool.count()
    report.whole = source.whole
    for problem in (*source.warnings, *filter(None, [source.damage])):
        report.problem(problem)
    left_out = spool.superseded()
    if not source.whole:
        return Reading(False, source.damage, left_out | spool.unread(), Coverage())
    directories.update(map(directory_of, spool.places()))
    coverage = coverage_of(directories, spool.unreadable(left_out), complete=of.options.complete)
    return Reading(True, None, left_out, coverage)


def chunk_reader(folder: Path) -> Callable[[list[Blob]], list[ChunkRead]]:
    """Returns a function that reads some files, in any process. It appends the texts of their templates to the text
    file of its process in ``folder``, the folder of the spool."""

    def read(blobs: list[Blob]) -> list[ChunkRead]:
        try:
            with open(folder / f"texts-{os.getpid()}", "ab", buffering=_CHUNK) as texts:
                return [_read(blob, texts) for blob in blobs]
        except OSError as error:
            raise failure(error, folder) from error

    return read


def _read(blob: Blob, texts: BinaryIO) -> ChunkRead:
    number, start = os.getpid(), texts.tell()
    lines: list[bytes] = []
    files: list[FileRow] = []
    kinds: Counter[str] = Counter()
    found = scan(blob)
    path = os.fsencode(blob.path)
    there = below_root(blob.path)
    if blob.part == 0 or not found.read or found.templates:
        digest = "" if found.read else sha256_hex(blob.data)
        files.append(FileRow(path, blob.member, there, int(found.read), int(bool(found.templates)), digest))
    for template in found.templates:
        kinds[type_of(template.kind)] += 1
        if not template.id:
            continue
        length = len(template.text)
        handle = template.handle if len(template.handle) <= MAX_ID else template.id  # lines are held in memory
        row = SeenRow(
            template.id, sha256_hex(template.text), standing(template.handle, template.id, blob.path), blob.member,
            (blob.part << 32) + template.index, handle, template.line, found.encoding, number, start, length,
        )  # fmt: skip
        lines.append(line_of(row))
        texts.write(template.text)
        start += length
    problems, more = found.problems[:_MOST_PROBLEMS], Counter(p.code for p in found.problems[_MOST_PROBLEMS:])
    return ChunkRead(lines, files, problems, dict(more), dict(kinds), len(blob.data))


class Job(NamedTuple):
    """A tobi to write: the position of its text in the spool, and the tist under which the previous bytes are stored
    (None if nothing was held before)."""

    id: str
    path: str
    line: int
    spool: int
    start: int
    size: int
    before: int | None


class WrittenTemplate(NamedTuple):
    """A file with a temporary name, and the data of its template.

    ``how`` is the difference from the previous entry: ``new``, ``changed``, ``cosmetic`` or ``file-url``.
    """

    id: str
    temp: str
    version: Version
    how: str
    problems: Sequence[Problem]


def writing(layout: Layout, folder: Path, tist: int, store: bool) -> Callable[[list[Job]], list[WrittenTemplate]]:
    """Returns a function that writes the files of jobs under temporary names, in any process; the caller commits them.

    ``folder`` is the folder of the spool, ``tist`` the data set's. Without ``store`` nothing is written.
    """

    numbers = count()

    def write(jobs: list[Job]) -> list[WrittenTemplate]:
        texts: dict[int, int] = {}
        written: list[WrittenTemplate] = []
        with Writer(layout, numbers=numbers) as writer:
            try:
                for job in jobs:
                    if job.spool not in texts:
                        path = folder / f"texts-{job.spool}"
                        with storage_errors(path):
                            texts[job.spool] = os.open(path, os.O_RDONLY)
                    with storage_errors(folder):
                        text = os.pread(texts[job.spool], job.size, job.start)
                    written.append(_write(layout, writer if store else None, tist, job, text))
            finally:
                for fd in texts.values():
                    os.close(fd)
        return written

    return write


def _write(layout: Layout, writer: Writer | None, tist: int, job: Job, text: bytes) -> WrittenTemplate:
    if writer is not None:
        temp, md5, sha256, _ = writer.put(tist, job.id, text)
    else:
        temp, md5, sha256 = "", md5_hex(text), sha256_hex(text)
    canonical = canonical_text(text)
    checksum = md5 if canonical is text else md5_hex(canonical)
    kind, title, refs, problems = describe(text, job.path, job.line)
    bad = {problem.message for problem in problems if problem.code == "bad-url"}
    version = Version(sha256, md5, job.size, checksum, kind, title, tuple(refs), len(bad))
    return WrittenTemplate(job.id, temp, version, _difference(layout, job, text), problems)


def describe(text: bytes, path: str, line: int) -> tuple[str, str, list[Refipo], list[Problem]]:
    """The data of a template's text for the catalogue: type, title, refipos; and its problems."""
    template = parse(text.decode("utf-8", "surrogatepass"), path=path, first_line=line)
    problems = [problem for problem in template.problems if problem.code not in FOUND_BY_SCAN]
    refs: dict[Refipo, None] = {}
    for found in fobis(template, path):
        if isinstance(found, Problem):
            problems.append(found)
        else:
            raw, fobi = found
            refs[Refipo(fobi, *raw[1:])] = None
    return template.kind[:_LONGEST_KIND], template.title[:_LONGEST_TITLE], list(refs), problems


def _difference(layout: Layout, job: Job, text: bytes) -> str:
    if job.before is None:
        return "new"
    try:
        with open_obi(layout, job.before, job.id) as file:
            before = file.read()
    except ArchecError:
        return "changed"  # verify checks fixity; the new text is stored either way
    return difference(before, text)
