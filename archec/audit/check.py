"""Check: the consistency of journals, names on disk, links and catalogue; the bytes of files are not read."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from archec.archive.opening import last_run, scratch_folder
from archec.archive.unfinished_downloads import left_parts
from archec.audit.cross_check import Comparison, Differences, report_differences
from archec.audit.disk import (
    MOST,
    DiskName,
    Journalled,
    Stopped,
    judge,
    under_way,
    unknown_files,
    walk,
    was_stopped,
)
from archec.audit.expected import Amount
from archec.audit.findings import Finding, Reporter, Summary
from archec.audit.journals import KEPT, Ends, Journals, check_names, size_of
from archec.audit.last_checked import Structure, remember_structure
from archec.audit.opening import Audited
from archec.audit.quarantine import quarantine
from archec.audit.refold import compare_whole
from archec.audit.repair import write_notice, wrong_notice
from archec.catalogue.engines import sqlite_path
from archec.catalogue.interface import Catalogue, Counts
from archec.catalogue.journal_lines import DataSetRead, ObiChange, RunEnd, RunStart, decode
from archec.catalogue.model import KINDS
from archec.config import Config
from archec.errors import (
    ArchecError,
    BadName,
    CatalogueError,
    CatalogueGone,
    CorruptArchive,
    CorruptJournal,
    storage_errors,
)
from archec.progress import Meter
from archec.redif.problems import shown
from archec.store.durable import is_temp
from archec.store.journal import JournalBatch, tidy
from archec.store.layout import DESCRIPTOR, RUNS, Directories, JournalFile, Layout, journals, open_store
from archec.store.lock import holder
from archec.store.writer import sweep_parts
from archec.units import counted

_JOURNALS = ("journal-damaged", "journal-missing", "journal-chain", "journal-misnamed", "journal-line")
"""Findings after which it is uncertain which names are in no journal."""


@dataclass(slots=True)
class CheckSummary(Summary):
    """The result of a check. ``whole``: all names, all journals and the complete catalogue were compared."""

    command: ClassVar[str] = "check"
    journals: int = 0
    batches: int = 0
    lines: int = 0
    names: int = 0


def check(
    archive: Audited,
    meter: Meter,
    report: Reporter,
    *,
    fix: bool = False,
    quick: bool = False,
    unjournalled: bool = False,
) -> CheckSummary:
    """Checks the whole structure, and reports every finding when it is found.

    ``quick``: only the histories of the catalogue are compared with the journals.
    ``fix``: fixes what is safe to fix; nothing with a final name is removed. Only while holding the run lock.
    With ``unjournalled`` it also moves obis to quarantine that a lost journal may have named.
    """
    summary = CheckSummary()
    began, report = time.monotonic(), summary.tally.counting(report)
    with Comparison(archive.layout, partial(scratch_folder, archive.config)) as comparison:
        look = _Check(archive, meter, report, fix, quick, unjournalled, comparison, summary)
        look.go()
    in_part = quick or (summary.clean and not summary.whole)
    structure = Structure(in_part, int(time.time()), summary.tally.wrong)
    remember_structure(archive.config, structure, look.named, report)
    summary.seconds = time.monotonic() - began
    return summary


def check_layout(config: Config, report: Reporter) -> CheckSummary | None:
    """The summary of a check that cannot start because ``layout.json`` is damaged; None if it is intact.

    Raises :class:`archec.errors.ConfigError` if there is no archive at all.
    """
    try:
        open_store(config)
    except CorruptArchive as error:
        summary = CheckSummary()
        summary.tally.counting(report)(Finding("layout", DESCRIPTOR, error.message))
        return summary
    return None


@dataclass(slots=True)
class _Check:
    """One check: its environment and its state.

    ``leftovers`` counts temporary files by tist (-1 for none) and directory. ``runs`` maps the runs that have a journal
    to the tists of their data sets. ``tists`` are those at which obis are noted, ``open_tists`` those of unfinished
    runs. ``stopped`` are the runs that may have left obis that no journal names, ``unheld`` those that the catalogue
    does not contain. ``unread``: a journal is missing or cannot be read to its end. ``unlisted`` are the directories
    that cannot be listed. ``behind`` is the number of batches that the catalogue has not followed. ``stray`` are
    findings about names outside the directories of obis, ``judged`` findings about links, special files and modes, both
    by path; they are reported when the contents of the journals are known. ``named`` is the amount that each finished
    journal names.
    """

    archive: Audited
    meter: Meter
    report: Reporter
    fix: bool
    quick: bool
    unjournalled: bool
    comparison: Comparison
    summary: CheckSummary
    leftovers: Counter[tuple[int, str]] = field(default_factory=Counter)
    runs: dict[int, int] = field(default_factory=dict)
    tists: set[int] = field(default_factory=set)
    open_tists: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    unheld: list[int] = field(default_factory=list)
    unread: bool = False
    unlisted: set[str] = field(default_factory=set)
    behind: int = 0
    stray: dict[str, Finding] = field(default_factory=dict)
    judged: dict[str, Finding] = field(default_factory=dict)
    named: dict[int, tuple[Amount, Ends]] = field(default_factory=dict)

    def go(self) -> None:
        layout, catalogue = self.archive.layout, self.archive.catalogue
        for finding in self.archive.findings:
            if finding.code not in KEPT:  # the reader of the journals reports those
                self.report(finding)
        passed_over = under_way(layout)
        if (wrong := wrong_notice(layout)) is not None:
            self.report(replace(wrong, fixed=write_notice(layout, wrong) if self.fix else ""))
        if self.fix:
            self._tidy()
        check_names(layout, self.report, self._out_of_place)
        if temporary := _temporary_files(layout):
            self.leftovers[-1, RUNS] = temporary
        # The walk comes before the journals: a file is written before it is journalled, and must not seem unknown.
        self._walk(passed_over)
        at_work = self._at_work()
        self._journals(at_work)
        comparable = catalogue is not None and self._catalogue(catalogue, at_work) and not self.unread
        agree = self._compare(comparable, passed_over)
        if catalogue is not None and comparable and agree and not self.quick:
            self.summary.whole = self._refold(catalogue)
        self._leftovers()

    def _at_work(self) -> bool:
        """Whether a run is writing journal and catalogue."""
        who = holder(self.archive.layout) if not self.archive.locked else None
        return who is not None and who.is_run

    def _is_moving(self, catalogue: Catalogue) -> bool:
        """Whether a run or a rebuild writes the catalogue, or has written it since it was opened."""
        who = holder(self.archive.layout) if not self.archive.locked else None
        return (who is not None and who.writes_catalogue) or catalogue.position() != self.archive.position

    # -- the three sides --------------------------------------------------------------------------

    def _walk(self, passed_over: frozenset[int]) -> None:
        layout = self.archive.layout
        self.meter.phase("walking the store", None)
        going_on = left_parts(self.archive.config.work_path)
        with Directories(layout) as directories:
            for place in walk(layout, self._out_of_place, modes=not self.quick):
                if place.kind == "temp":
                    if place.tist not in passed_over and place.path not in going_on:
                        self.leftovers[place.tist, place.directory] += 1
                    continue
                self.summary.names += 1
                self.comparison.on_disk(place.path, link=place.kind == "link")
                if place.kind == "link":
                    wrong = judge(directories, place.path)
                    if wrong is not None:
                        self._keep(self.judged, place.path, Finding(wrong[0], shown(place.path), wrong[1]))
                elif place.kind == "other":
                    finding = Finding("not-a-file", shown(place.path), "is neither a file nor a link")
                    self._keep(self.judged, place.path, finding)
                elif place.mode >= 0 and place.tist not in passed_over and place.mode & 0o7733 != 0o400:
                    message = f"its mode is {stat.S_IMODE(place.mode):04o}, not 0444"
                    self._keep(self.judged, place.path, Finding("mode", shown(place.path), message))
                self.meter.at(self.summary.names)

    def _out_of_place(self, finding: Finding, path: str) -> None:
        """Handles findings outside the directories of obis; records the directories that could not be listed."""
        if finding.code == "unexpected":
            self._keep(self.stray, path, finding)
            return
        self.unlisted.add(path)
        self.report(finding)

    def _keep(self, where: dict[str, Finding], path: str, finding: Finding) -> None:
        """Keeps a finding until everything is known, up to a limit."""
        if len(where) < MOST:
            where[path] = finding
        else:
            self.report(finding)

    def _journals(self, at_work: bool) -> None:
        """Reads every line of every journal. The journal of an active run is longer than what the catalogue has
        followed."""
        reader, files = Journals(self.archive), journals(self.archive.layout)
        self.meter.phase("reading journals", sum(map(size_of, files)) or None)
        done = 0
        for journal in files:
            path = f"{RUNS}/{journal.path.name}"
            for batch, _ in reader.batches(journal):
                followed = self.archive.followed(journal.tist, batch.n)
                self.behind += not followed
                self._lines(journal, path, batch, followed=followed)
                self.meter.at(done + min(batch.offset, size_of(journal)), f"{self.summary.lines:,} lines")
            if (whole := reader.whole(journal)) is not None:
                self.named[journal.tist] = whole
            torn = reader.torn.get(path, 0)
            if torn > 0 and not at_work:
                self.report(Finding("journal-torn", path, f"its last {torn} bytes are not a whole batch"))
            done += size_of(journal)
        self.summary.journals = len(self.runs)
        known = reader.find_missing()
        for finding in (*reader.unread.values(), *reader.breaks({})):
            self.report(finding)
        self.unread |= bool(reader.unread)
        if known is not None:
            self.unheld = [run for run in sorted(self.runs.keys() - known) if self.archive.followed(run, 1)]
        if self.behind and not at_work and self.archive.catalogue is not None:
            message = f"lacks {counted(self.behind, 'batch', 'batches')} of the journals"
            self.report(Finding("catalogue-behind", self.archive.catalogue.url, message))

    def _lines(self, journal: JournalFile, path: str, batch: JournalBatch, *, followed: bool) -> None:
        """Reads the lines of a batch; invalid ones are reported."""
        self.summary.batches += 1
        self.summary.lines += len(batch.lines)
        for line in batch.lines:
            try:
                record = decode(line, f"batch {batch.n}")
                if isinstance(record, ObiChange) and (record.put or record.drop or record.kept):
                    self.comparison.journalled(record, followed=followed)
            except CorruptJournal as error:
                self.report(Finding("journal-line", path, error.message))
                continue
            except ValueError as error:
                self.report(Finding("journal-line", path, f"batch {batch.n}: {error}"))
                continue
            if isinstance(record, RunStart):
                self.runs[journal.tist] = record.data_set
                tists = {record.tist, record.data_set}
                self.tists |= tists
                if not journal.finished:
                    self.open_tists |= tists
                    self.stopped.add(journal.tist)
            elif isinstance(record, DataSetRead):
                self.tists.add(record.data_set.tist)
            elif isinstance(record, RunEnd) and was_stopped(record.state, record.report.get("resumed") is True):
                self.stopped.add(journal.tist)

    def _catalogue(self, catalogue: Catalogue, at_work: bool) -> bool:
        """Reads all documents; returns whether that succeeded, and nothing was written to them meanwhile."""
        if self.behind and not catalogue.is_transactional:
            message = "the catalogue is not compared: it is behind, and may have a part of the next batch"
            self.report(Finding("not-compared", ".", f"{message}; the next run or 'archec check --fix' updates it"))
            return False
        held, lost, never = Counter[str](), Counter[str](), 0
        number = 0
        try:
            moving = at_work or self._is_moving(catalogue)
            self.meter.phase("reading the catalogue", sum(catalogue.counts()))
            for kind in KINDS:
                for obi in catalogue.all(kind):
                    self.comparison.catalogued(obi.id, obi.history)
                    if not obi.history:
                        never += kind == "fobi"
                    else:
                        (held if obi.history.held else lost)[kind] += 1
                    number += 1
                    self.meter.at(number)
            stated = catalogue.counts()
            moving |= self._is_moving(catalogue)
            for refused in catalogue.refused():
                message = f"{refused.what}, of batch {refused.batch} of run {refused.run}: {refused.message}"
                self.report(Finding("catalogue-refused", catalogue.url, message))
        except CatalogueGone:
            raise
        except (CatalogueError, BadName, ValueError) as error:
            self.report(Finding("catalogue-unreadable", catalogue.url, str(error)))
            return False
        if moving:
            self.report(Finding("not-compared", ".", "the catalogue is not compared, because it is being written"))
            return False
        for run in self.unheld:
            self.report(Finding("catalogue-lacks", f"{RUNS}/{run}", "the catalogue does not contain this run"))
        counted = Counts(
            held["tobi"], lost["tobi"], held["fobi"], lost["fobi"], never, held["fileset"], lost["fileset"]
        )
        if stated != counted:
            message = f"says {_shown(stated)}, and holds {_shown(counted)}"
            self.report(Finding("catalogue-counts", catalogue.url, message))
        return True

    def _refold(self, catalogue: Catalogue) -> bool:
        """Compares the complete catalogue, which is only useful if its histories agree with the journals. Returns
        whether that was possible."""
        try:
            return compare_whole(self.archive, catalogue, self.meter, self.report)
        except CatalogueGone:
            raise
        except (CatalogueError, ValueError) as error:
            self.report(Finding("catalogue-unreadable", catalogue.url, str(error)))
        except CorruptArchive as error:
            code = "not-compared" if self.summary.tally.wrong else "journal-line"
            self.report(Finding(code, RUNS, f"the journals cannot be folded: {error.message}"))
        return False

    def _compare(self, comparable: bool, passed_over: frozenset[int]) -> bool:
        """Compares names, journals and the histories in the catalogue; returns whether the latter two agree."""
        layout = self.archive.layout
        self.meter.phase("comparing", None)
        found = self.comparison.differences(with_catalogue=comparable)
        report_differences(layout, self.archive.catalogue, found, self.report, self.unlisted)
        if self.unread:
            message = "files and catalogue are not compared with journals that cannot be read"
            self.report(Finding("not-compared", ".", message))
        why_not = self._unmovable(found)
        if not self.unread:
            others = passed_over | under_way(layout)
            known = Journalled(self.tists, {Stopped(run, self.runs.get(run, run)) for run in self.stopped})
            for finding, place in unknown_files(layout, found.unknown, known, others):
                self.judged.pop(place.path, None)
                self._quarantine(finding, place.path, why_not or self._may_be_needed(place, finding))
        for path, finding in self.stray.items():
            self._quarantine(finding, path, why_not or self._in_use(path))
        for finding in self.judged.values():
            self.report(finding)
        if found.more:
            self.report(Finding("not-compared", ".", f"{found.more} more differences like these are not reported"))
        return not found.catalogue

    # -- unexpected files ---------------------------------------------------------------------

    def _unmovable(self, found: Differences) -> str:
        """Why nothing is moved to quarantine; empty if names that are in no journal are known for certain."""
        if not self.fix:
            return "-"
        if self.unread or any(self.summary.tally.by_code[code] for code in _JOURNALS):
            return "not moved to quarantine, because the journals are damaged"
        if len(found.missing) > found.present:
            return "not moved to quarantine, because more is missing than present; check layout.json"
        return ""

    def _may_be_needed(self, place: DiskName, finding: Finding) -> str:
        """Why a file at the place of an obi stays: a run may still need it, or a lost journal may have named it."""
        if place.tist in self.open_tists:
            return "not moved to quarantine, because its run has not finished"
        if not self.unjournalled and (finding.code == "unjournalled" or place.tist > max(self.tists, default=0)):
            return "not moved to quarantine without --unjournalled"
        return ""

    def _in_use(self, path: str) -> str:
        """Why something that is not an obi stays: the configuration has its catalogue or scratch space there."""
        config, real = self.archive.config, os.path.realpath
        work = real(config.work_path)
        used = [f"{work}/", real(config.memory(""))]
        if config.database.startswith("sqlite:"):
            used.append(real(sqlite_path(config.database, config.base)))
        place = real(self.archive.layout.root / path)
        if place == work or any(place.startswith(name) or name.startswith(f"{place}/") for name in used):
            return "not moved to quarantine, because the configuration uses it; use a place outside the archive"
        return ""

    def _quarantine(self, finding: Finding, path: str, why_not: str) -> None:
        """Reports unexpected files; with ``--fix`` moves them to quarantine first. Orphans stay."""
        if self.fix and finding.code != "orphan":
            if why_not:
                finding = replace(finding, message=f"{finding.message}; {why_not}")
            else:
                try:
                    moved = quarantine(self.archive.layout, path, finding)
                    finding = replace(finding, fixed=f"moved to {shown(moved or path)}")
                except ArchecError as error:
                    finding = replace(finding, message=f"{finding.message}; not moved to quarantine: {error.message}")
        self.report(finding)

    # -- leftovers --------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Removes leftovers of a kill next to the journals: temporary files, and the second form of a journal."""
        layout = self.archive.layout
        plain = (packed.with_suffix("") for packed in layout.runs.glob("*.jsonl.gz"))
        twice = sorted(path.name for path in plain if path.exists())
        left = _temporary_files(layout)
        try:
            tidy(layout)
        except CorruptJournal:
            twice = []  # the two forms differ: reported with the names next to the journals
        fixed = "the plain form was removed after comparing both"
        for name in twice:
            self.report(Finding("journal-twice", f"{RUNS}/{name}", "existed in both forms", fixed=fixed))
        if left:
            self.report(Finding("leftover", RUNS, f"temporary files: {left}", fixed="removed"))

    def _leftovers(self) -> None:
        resumable: int | None = None
        with suppress(CorruptJournal):
            last = last_run(self.archive.layout)
            resumable = last.journal.tist if last is not None and last.resumable else None
        fixing = self.fix and resumable is None
        if fixing:
            keep = left_parts(self.archive.config.work_path)
            sweep_parts(self.archive.layout, {tist for tist, _ in self.leftovers if tist >= 0}, keep)
        for (_, directory), count in sorted(self.leftovers.items()):
            message = counted(count, "temporary file")
            if resumable is not None:
                message += f"; the next run removes those of run {resumable}, which can be resumed"
            self.report(Finding("leftover", directory, message, fixed="removed" if fixing else ""))


def _temporary_files(layout: Layout) -> int:
    """The number of temporary files of journals and of the files that describe the tree."""
    number = 0
    for folder in (layout.root, layout.runs):
        with storage_errors(folder), suppress(FileNotFoundError):
            number += sum(map(is_temp, os.listdir(folder)))
    return number


def _shown(counts: Counts) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts._asdict().items())
