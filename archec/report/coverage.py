"""Coverage: the number of works of each archive and series that have a held file.

A *work* is a held template of a paper, article, book, chapter or piece of software. Its files are those that its
newest version mentions. A file that two works mention counts for both. Everything is read in one scan by id, so that
the first rows appear immediately and memory does not grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache

from archec.archive.evidence import evidence_of
from archec.catalogue.documents import FileState, TobiFiles
from archec.catalogue.interface import Catalogue
from archec.ids import archive_of, item_of, series_of
from archec.paging import batched
from archec.progress import SILENT, Meter
from archec.redif.schema import kind_of

_TOGETHER = 500
"""Number of works whose files are looked up in one query."""

_FAILED = frozenset(
    ("unreachable", "timeout", "server-error", "truncated", "redirect-loop", "too-many-redirects", "internal")
)
_REFUSED = frozenset(("forbidden", "robots"))
_PDF = "application/pdf"
_WHOLE = frozenset(("success", "exists"))
_NOT_FETCHED = frozenset(("error-platform-download", "platform-http-error", "timeout"))


@dataclass(slots=True)
class CoverageRow:
    """The counts of one series or, if ``series`` is empty, of the works of an archive outside of series.

    ``with_file`` is the number of works with a file that is held now. ``files`` are all files that works mention; each
    is one of ``held``, ``lost``, ``gone`` (not there when visited, and never held), ``unreachable`` (visits failed: no
    answer, or an error), ``forbidden`` (refused by the server or by robots.txt), ``never`` (tried), ``bad_urls``
    (File-URLs that the archive cannot keep), ``other`` (too large, denied, ...). ``pdfs`` counts the held files that
    are PDFs by their bytes. ``last_seen`` is the date of the newest data set that has read the archive's directory, 0
    if there is none.
    """

    archive: str
    series: str
    works: int = 0
    with_file: int = 0
    files: int = 0
    held: int = 0
    pdfs: int = 0
    lost: int = 0
    gone: int = 0
    unreachable: int = 0
    forbidden: int = 0
    never: int = 0
    bad_urls: int = 0
    other: int = 0
    last_seen: int = 0

    def add(self, other: CoverageRow) -> None:
        for name in _FIGURES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_seen = max(self.last_seen, other.last_seen)


COLUMNS = (
    ("works", "works"), ("w. a file", "with_file"), ("files", "files"), ("held", "held"), ("PDFs", "pdfs"),
    ("lost", "lost"), ("gone", "gone"), ("unreachable", "unreachable"), ("forbidden", "forbidden"),
    ("never tried", "never"), ("bad URL", "bad_urls"), ("other", "other"),
)  # fmt: skip
"""The counts of a row in tables: their labels, and the names of the fields."""
_FIGURES = tuple(field.name for field in fields(CoverageRow) if field.name not in ("archive", "series", "last_seen"))
_NEVER = FileState()


def coverage(
    catalogue: Catalogue, *, archive: str = "", series: str = "", meter: Meter = SILENT
) -> Iterator[CoverageRow]:
    """The counts of each series that has works, by archive and series code.

    ``archive`` and ``series`` (a code within ``archive``) select a part. ``meter`` receives the number of works read.
    """
    after = before = ""
    if archive:
        after, before = f"RePEc:{archive}:", f"RePEc:{archive};"
        if series:
            after, before = f"{after}{series}:", f"{after}{series};"
    evidence = evidence_of(catalogue)
    row: CoverageRow | None = None  # of the series that is being read
    loose: CoverageRow | None = None  # of the works of its archive that are in no series
    without = CoverageRow("", "")  # of works whose handles have another form, which sort before and after the others
    for works in batched(_works(catalogue.tobi_files(after, before), meter), _TOGETHER):
        states = catalogue.file_states({url for work in works for url in work.files})
        for work in works:
            code, within = archive_of(work.id), series_of(work.id) if item_of(work.id) else ""
            if row is not None and (row.archive != code or (within and row.series != within)):
                yield row
                row = None
            if loose is not None and loose.archive != code:
                yield loose
                loose = None
            if not code:
                _count(without, work, states)
            elif not within:
                # It may sort within a series: "RePEc:aaa:x" before "RePEc:aaa:x-y:1" before "RePEc:aaa:x:1".
                loose = loose or CoverageRow(code, "", last_seen=evidence.last_read(code))
                _count(loose, work, states)
            else:
                row = row or CoverageRow(code, within, last_seen=evidence.last_read(code))
                _count(row, work, states)
    yield from (last for last in (row, loose) if last is not None)
    if without.works:
        yield without


def coverage_of_filesets(catalogue: Catalogue) -> CoverageRow:
    """The counts of all filesets together. Each counts as a work, with the files of its newest manifest. Files are
    ``lost`` with their fileset; files that were not kept are ``forbidden``, ``unreachable`` or ``other``."""
    row = CoverageRow("", "")
    for fileset in catalogue.all("fileset"):
        state, there = fileset.history.last_held, 0
        for file in catalogue.manifest(state) if state is not None else ():
            row.files += 1
            if file.status not in _WHOLE:
                row.forbidden += file.status == "platform-restricted"
                row.unreachable += file.status in _NOT_FETCHED
                row.other += file.status != "platform-restricted" and file.status not in _NOT_FETCHED
            elif fileset.history.held:
                there += 1
                row.pdfs += file.mimetype == _PDF
            else:
                row.lost += 1
        row.works += 1
        row.held += there
        row.with_file += there > 0
    return row


def _works(tobis: Iterator[TobiFiles], meter: Meter) -> Iterator[TobiFiles]:
    held = (tobi for tobi in tobis if tobi.held and _is_work(tobi.type))
    for number, tobi in enumerate(held, 1):
        if number % _TOGETHER == 0:
            meter.at(number)
        yield tobi


@lru_cache(1000)
def _is_work(kind: str) -> bool:
    return kind_of(kind).family == "work"


def _count(row: CoverageRow, work: TobiFiles, states: dict[str, FileState]) -> None:
    row.works += 1
    row.files += len(work.files) + work.bad_urls
    row.bad_urls += work.bad_urls
    some = False
    for url in work.files:
        held, kind, outcome, _ = states.get(url, _NEVER)
        if held:
            some = True
            row.held += 1
            row.pdfs += kind == _PDF
        elif held is not None:
            row.lost += 1
        elif not outcome:
            row.never += 1
        elif outcome == "gone":
            row.gone += 1
        elif outcome in _FAILED:
            row.unreachable += 1
        elif outcome in _REFUSED:
            row.forbidden += 1
        else:
            row.other += 1
    row.with_file += some
