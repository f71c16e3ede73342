"""Writes the texts of new and changed tobis to files in the obi store, in worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from archec.catalogue.model import Refipo, Version
from archec.digest import md5_hex, sha256_hex
from archec.errors import ArchecError
from archec.redif.problems import Problem
from archec.redif.scan import FOUND_BY_SCAN
from archec.redif.template import canonical_text, difference, fobis, parse
from archec.store.durable import storage_errors
from archec.store.layout import Layout
from archec.store.reader import open_obi
from archec.store.writer import Writer

_LONGEST_TITLE = 2000
"""Maximum length of a title in the catalogue, in characters; the file in the obi store has the whole title."""
_LONGEST_KIND = 100


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
