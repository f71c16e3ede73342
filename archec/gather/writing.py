"""Writing: the texts of new and changed tobis become files in the obi store, in worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

from archec.catalogue.model import Refipo, TobiVersion
from archec.errors import ArchecError
from archec.redif.problems import Problem, shown
from archec.redif.scan import FOUND_BY_SCAN, canonical_text, only_file_urls_differ
from archec.redif.template import fobi_of, parse
from archec.store.layout import Layout
from archec.store.reader import open_obi
from archec.store.writer import Writer

__all__ = ["Job", "Written", "describe", "writing"]

_LONGEST_TITLE = 2000
"""Characters of a title that the catalogue has; the file in the obi store has all of it."""
_LONGEST_KIND = 100
_MOST_REFS = 100_000
"""Characters of all refipos of one template: a thousand files. The catalogue keeps them for each version of it."""


class Job(NamedTuple):
    """A tobi to write: where its text lies in the spool, and the entry before it, if any."""

    id: str
    path: str
    line: int
    spool: int
    start: int
    size: int
    before: tuple[int, str] | None


class Written(NamedTuple):
    """A file that lies under a temporary name, and what its template says.

    ``how`` is how it differs from the entry before it: ``new``, ``changed``, ``cosmetic`` or
    ``file-url``; ``refs`` are the fields of its refipos.
    """

    id: str
    temp: str
    md5: str
    size: int
    text: str
    kind: str
    title: str
    refs: Sequence[tuple[str, ...]]
    how: str
    problems: Sequence[Problem]

    def version(self) -> TobiVersion:
        """What the catalogue keeps of the contents."""
        refs = tuple([Refipo(*ref) for ref in self.refs])
        return TobiVersion(self.md5, self.size, self.text, self.kind, self.title, refs)


def writing(layout: Layout, folder: Path, tist: int) -> Callable[[list[Job]], list[Written]]:
    """What writes the files of jobs under temporary names, in any process; the caller commits them.

    ``folder`` is the spool's, ``tist`` that of the data set.
    """

    def write(jobs: list[Job]) -> list[Written]:
        texts: dict[int, int] = {}
        written: list[Written] = []
        with Writer(layout) as writer:
            try:
                for job in jobs:
                    if job.spool not in texts:
                        texts[job.spool] = os.open(folder / f"texts-{job.spool}", os.O_RDONLY)
                    text = os.pread(texts[job.spool], job.size, job.start)
                    written.append(_write(layout, writer, tist, job, text))
            finally:
                for fd in texts.values():
                    os.close(fd)
        return written

    return write


def _write(layout: Layout, writer: Writer, tist: int, job: Job, text: bytes) -> Written:
    stored = writer.put(tist, job.id, text)
    canonical = canonical_text(text)
    checksum = stored.md5 if canonical is text else md5(canonical, usedforsecurity=False).hexdigest()
    kind, title, refs, problems = describe(text, job.path, job.line)
    how = _difference(layout, job, text, checksum)
    return Written(job.id, stored.temp, stored.md5, job.size, checksum, kind, title, refs, how, problems)


def describe(text: bytes, path: str, line: int) -> tuple[str, str, list[tuple[str, ...]], list[Problem]]:
    """What a template's text says that the catalogue keeps: type, title, refipos; and what is wrong."""
    template = parse(text.decode("utf-8", "surrogatepass"), path=path, first_line=line)
    problems = [problem for problem in template.problems if problem.code not in FOUND_BY_SCAN]
    refs: dict[tuple[str, ...], None] = {}
    left = _MOST_REFS
    lines: tuple[int, ...] = ()
    for number, raw in enumerate(template.refipos):
        left -= sum(map(len, raw))
        if left < 0:
            message = f"{template.id} names more files than archec follows; those from {len(refs) + 1} on are left out"
            problems.append(Problem(shown(path), line, "too-many-files", message))
            break
        fobi = fobi_of(raw, path, line, template.id)
        if isinstance(fobi, Problem):
            lines = lines or template.refipo_lines
            problems.append(replace(fobi, line=lines[number]))
        else:
            ref = (fobi, *raw[1:])
            refs[ref] = None
    return template.kind[:_LONGEST_KIND], template.title[:_LONGEST_TITLE], list(refs), problems


def _difference(layout: Layout, job: Job, text: bytes, checksum: str) -> str:
    if job.before is None:
        return "new"
    try:
        with open_obi(layout, job.before[0], job.id) as file:
            before = file.read()
    except ArchecError:
        return "changed"  # fixity is verify's concern; the new text is kept either way
    if md5(canonical_text(before), usedforsecurity=False).hexdigest() == checksum:
        return "cosmetic"
    return "file-url" if only_file_urls_differ(before, text) else "changed"
