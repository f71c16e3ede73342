"""Writing: the texts of new and changed tobis become files in the obi store, in worker processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import md5
from typing import NamedTuple

from archec.catalogue.model import Refipo, TobiVersion
from archec.errors import ArchecError, BadName
from archec.ids import normalise_url
from archec.redif.canonical import canonical_text, only_file_urls_differ
from archec.redif.problems import Problem, shown
from archec.redif.template import parse
from archec.store.layout import Layout
from archec.store.reader import open_obi
from archec.store.writer import Placement, Writer

__all__ = ["Job", "Lot", "Written", "describe", "write_lot"]


class Job(NamedTuple):
    """A tobi to write: where its text lies in the spool, and the entry before it, if any."""

    id: str
    path: str
    line: int
    spool: int
    start: int
    size: int
    before: tuple[int, str] | None


class Lot(NamedTuple):
    """Jobs for one worker; ``folder`` is the spool's, ``tist`` that of the data set."""

    layout: Layout
    folder: str
    tist: int
    jobs: Sequence[Job]


class Written(NamedTuple):
    """A file that lies under a temporary name, and what its template says.

    ``kind`` is how it differs from the entry before it: ``new``, ``changed``, ``cosmetic`` or
    ``file-url``.
    """

    placement: Placement
    version: TobiVersion
    kind: str
    problems: Sequence[Problem]


def write_lot(lot: Lot) -> list[Written]:
    """Writes the files of a lot under temporary names; the caller commits them."""
    writer = Writer(lot.layout)
    texts: dict[int, int] = {}
    written: list[Written] = []
    try:
        for job in lot.jobs:
            fd = texts.get(job.spool)
            if fd is None:
                fd = texts[job.spool] = os.open(os.path.join(lot.folder, f"texts-{job.spool}"), os.O_RDONLY)
            text = os.pread(fd, job.size, job.start)
            version, problems = describe(text, job.path, job.line)
            temp = writer.temp(lot.tist, job.id)
            temp.write(text)
            stored = temp.close()
            kind = _difference(lot.layout, job, text, version)
            placement = Placement(stored.temp, lot.tist, job.id, stored.md5)
            written.append(Written(placement, version, kind, problems))
    finally:
        for fd in texts.values():
            os.close(fd)
        writer.close()
    return written


def describe(text: bytes, path: str, line: int) -> tuple[TobiVersion, Sequence[Problem]]:
    """What the catalogue keeps of a template's text."""
    template = parse(text.decode("utf-8", "surrogatepass"), path=path, first_line=line)
    problems = list(template.problems)
    refs: dict[Refipo, None] = {}
    for refipo in template.refipos:
        try:
            url = normalise_url(refipo.url_raw)
        except BadName as error:
            if refipo.url_raw.strip():
                problems.append(Problem(shown(path), line, "bad-url", f"{template.id}: {error.message}"))
            continue
        refs[Refipo(url, refipo.format, refipo.function, refipo.size, refipo.restriction)] = None
    version = TobiVersion(
        md5(text, usedforsecurity=False).hexdigest(),
        len(text),
        md5(canonical_text(text), usedforsecurity=False).hexdigest(),
        template.kind,
        template.title,
        tuple(refs),
    )
    return version, problems


def _difference(layout: Layout, job: Job, text: bytes, version: TobiVersion) -> str:
    if job.before is None:
        return "new"
    try:
        with open_obi(layout, job.before[0], job.id) as file:
            before = file.read()
    except ArchecError:
        return "changed"  # fixity is verify's concern; the new text is kept either way
    if md5(canonical_text(before), usedforsecurity=False).hexdigest() == version.text:
        return "cosmetic"
    return "file-url" if only_file_urls_differ(before, text) else "changed"
