"""The journals of an archive under audit: checks that they are complete and valid, and form one chain.

An audit reads all journals through :class:`Journals`, which keeps findings about whole journals until the end, because
a repair may still fix them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from archec.archive.journal_records import records, records_in
from archec.archive.opening import not_of_this_store
from archec.audit.disk import OutOfPlace
from archec.audit.expected import Amount, amount_of, names_something
from archec.audit.findings import Finding, Reporter
from archec.audit.opening import Audited
from archec.catalogue.journal_lines import RunStart
from archec.errors import BrokenChain, CatalogueError, CatalogueGone, CorruptJournal, storage_errors
from archec.redif.problems import shown
from archec.store.durable import is_temp
from archec.store.journal import NO_BATCH, JournalBatch, Scanner, has_all_of, is_whole
from archec.store.layout import JOURNAL_NAME, RUNS, JournalFile, Layout, journals, names_of_journals

KEPT = ("journal-damaged", "journal-missing", "journal-chain")
"""Codes of the findings that :class:`Journals` keeps, also those from opening the archive."""


class Ends(NamedTuple):
    """A journal's place in the chain: the sha256 of the batch before its first one, that of its last one, and the
    number of its batches. A journal without batches is not part of the chain."""

    prev: str
    head: str
    batches: int


class Gap(NamedTuple):
    """A break of the chain between two consecutive journals: the run ``before`` (0 at the beginning of the archive)
    ends with ``batch``, whose sha256 is ``head``, but the run ``after`` follows a batch with the sha256 ``prev``."""

    before: int
    batch: int
    head: str
    after: int
    prev: str


class Journals:
    """Reads journals, and keeps findings about them.

    ``unread`` are findings about journals that are missing or cannot be read to their end, by relative path. ``ends``
    are the ends of journals that were read completely, by run. ``torn`` is the number of bytes at the end of an
    unfinished journal that are not a batch. ``named`` is the amount that the lines read so far name, by run.
    """

    def __init__(self, archive: Audited) -> None:
        self._archive = archive
        self._replaced: dict[str, Finding] = {}
        self.unread: dict[str, Finding] = {}
        self.ends: dict[int, Ends] = {}
        self.torn: dict[str, int] = {}
        self.named: dict[int, Amount] = {}
        for finding in archive.findings:
            if finding.code in ("journal-damaged", "journal-missing"):
                self.unread[finding.path] = finding
            elif finding.code == "journal-chain":
                self._replaced[finding.path] = finding

    def find_missing(self) -> set[int] | None:
        """Adds to ``unread`` the runs in the catalogue that have no journal, and a finding if the journals do not
        belong to this store.

        Returns the runs in the catalogue; None if there is none, or it cannot be read.
        """
        foreign = not_of_this_store(self._archive.layout)
        if foreign:
            self.unread.setdefault(RUNS, Finding("journal-missing", RUNS, foreign))
        if self._archive.catalogue is None:
            return None
        try:
            known = {run.tist for run in self._archive.catalogue.runs()}
        except CatalogueGone:
            raise
        except CatalogueError:
            return None  # reported when the complete catalogue is read
        # Listed after the catalogue was read: a run has a journal before it is in the catalogue.
        for run in sorted(known - {journal.tist for journal in journals(self._archive.layout)}):
            path = f"{RUNS}/{run}.jsonl.gz"
            message = "the catalogue contains this run, but its journal is missing"
            self.unread.setdefault(path, Finding("journal-missing", path, message))
        return known

    def batches(self, journal: JournalFile) -> Iterator[tuple[JournalBatch, list[bytes]]]:
        """Yields the batches of a journal, each with its lines that name something. If it cannot be read further, adds
        the reason to ``unread``."""
        path, scanner, position = f"{RUNS}/{journal.path.name}", Scanner(journal.path), self._archive.position
        prev, head, n = "", "", 0
        self.named[journal.tist] = Amount()
        try:
            for batch in scanner.batches():
                starts = records_in(batch, journal.path, RunStart) if batch.n == 1 else iter(())
                if (stated := next((start.tist for start in starts), journal.tist)) != journal.tist:
                    self._replaced.pop(path, None)
                    message = f"says that it is the journal of run {stated}"
                    self.unread[path] = Finding("journal-misnamed", path, message)
                    return
                prev, head, n = prev or batch.prev, batch.sha256, batch.n
                if (journal.tist, n) == (position.run, position.batch):
                    self._compare(path, batch)
                lines = list(filter(names_something, batch.lines))
                self.named[journal.tist] += amount_of(lines)
                yield batch, lines
        except CorruptJournal as error:
            code = "journal-chain" if isinstance(error, BrokenChain) else "journal-damaged"
            self._replaced.pop(path, None)
            self.unread[path] = Finding(code, path, f"after batch {n}: {error.message}")
            return
        if journal.tist == position.run and n < position.batch:
            message = f"ends with batch {n}, and the catalogue has followed it to batch {position.batch}"
            self.unread.setdefault(path, Finding("journal-damaged", path, message))
        self.ends[journal.tist] = Ends(prev, head, n)
        ended = journal.finished or not journal.path.exists()  # or was finished while it was read
        self.torn[path] = 0 if ended else size_of(journal) - scanner.valid

    def whole(self, journal: JournalFile) -> tuple[Amount, Ends] | None:
        """The amount named by a finished journal and its ends; None if it was not read to its end."""
        run = journal.tist
        return (self.named[run], self.ends[run]) if journal.finished and run in self.ends else None

    def _compare(self, path: str, batch: JournalBatch) -> None:
        """Checks that the last batch followed by the catalogue is the one in the journal."""
        position = self._archive.position
        self._replaced.pop(path, None)
        if position.head and batch.sha256 != position.head:
            message = f"batch {batch.n} of run {position.run} is not the one that the catalogue has followed"
            self._replaced[path] = Finding("journal-chain", path, message)

    def forget(self, run: int, path: str) -> None:
        """Records that the journal of a run was repaired."""
        self.ends.pop(run, None)
        self.unread.pop(path, None)
        self._replaced.clear()  # it may have caused findings from opening; reading finds the others again

    def breaks(self, remembered: Mapping[int, Ends]) -> list[Finding]:
        """The breaks of the chain between journals whose ends are known, from reading them now or from ``remembered``.
        Breaks within a journal are in ``unread``."""
        found = dict(self._replaced)
        for gap, path in self.gaps(remembered):
            before = f"batch {gap.batch} of run {gap.before}" if gap.before else "the beginning of the archive"
            message = f"batch 1 of run {gap.after} does not follow {before}: a journal is missing or was replaced"
            found[path] = Finding("journal-chain", path, message)
        return list(found.values())

    def gaps(self, remembered: Mapping[int, Ends]) -> Iterator[tuple[Gap, str]]:
        """The breaks as gaps, each with the relative path of the journal after it."""
        head: str | None = NO_BATCH
        before, batch = 0, 0
        for journal in journals(self._archive.layout):
            ends = self.ends.get(journal.tist) or remembered.get(journal.tist)
            path = f"{RUNS}/{journal.path.name}"
            if ends is None or path in self.unread:
                head = None  # unknown: its successor cannot be judged
                continue
            if not ends.batches:
                continue
            if head is not None and head != ends.prev:
                yield Gap(before, batch, head, journal.tist, ends.prev), path
            head, before, batch = ends.head, journal.tist, ends.batches


def check_names(layout: Layout, report: Reporter, out_of_place: OutOfPlace) -> None:
    """Reports journals with wrong names and unexpected files next to them, except temporary ones."""
    try:
        names = sorted(name for name in names_of_journals(layout) if not is_temp(name))
    except FileNotFoundError:
        report(Finding("missing", RUNS, "the directory of journals is missing"))
        return
    for name in names:
        path = f"{RUNS}/{shown(name)}"
        match = JOURNAL_NAME.fullmatch(name)
        if match is None:
            out_of_place(Finding("unexpected", path, "is not the name of a journal"), f"{RUNS}/{name}")
        elif not match[2] and f"{name}.gz" in names:
            plain, packed = layout.runs / name, layout.runs / f"{name}.gz"
            has_all = has_all_of(packed, plain)
            if has_all:
                report(Finding("journal-twice", path, "its compressed form is there, too, and has all of it"))
            elif (wrong := "is damaged" if has_all is None else _of_another_run(plain)) and is_whole(packed):
                out_of_place(Finding("unexpected", path, f"{wrong}; its compressed form is whole"), f"{RUNS}/{name}")
            else:
                report(Finding("journal-damaged", path, "its compressed form is there, too, and lacks some of it"))
        elif (layout.runs / name).is_symlink() or not (layout.runs / name).is_file():
            report(Finding("journal-damaged", path, "is not a file"))


def _of_another_run(plain: Path) -> str:
    """Whose the plain form of a journal is, if it is another run's; empty if not."""
    start = next(records(plain, RunStart), None)
    return f"is that of run {start.tist}" if start is not None and start.tist != run_of(f"{RUNS}/{plain.name}") else ""


def run_of(path: str) -> int:
    return int(path.removeprefix(f"{RUNS}/").partition(".")[0])


def size_of(journal: JournalFile) -> int:
    """The size of a journal; 0 if it was compressed since it was listed, because its run has ended."""
    with storage_errors(journal.path), suppress(FileNotFoundError):
        return journal.path.lstat().st_size
    return 0
