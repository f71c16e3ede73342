"""Verify: rereads held files, least recently checked first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import ClassVar

from archec.archive.opening import not_of_this_store, scratch_folder
from archec.audit.cross_check import KEY, PartitionedDiff
from archec.audit.disk import journalled, known_tists, under_way, unknown_files, walk
from archec.audit.expected import amount_of, key_of
from archec.audit.findings import Finding, Reporter, Summary
from archec.audit.fixity import Chunk, Inspector, ReadPace, Seen, Tools, chunks_of, inspectors
from archec.audit.journals import KEPT, Ends, Journals, run_of
from archec.audit.last_checked import Bad, Memory, memory_path, open_memory, parts_of
from archec.audit.opening import Audited
from archec.audit.repair import Repair, write_notice, wrong_notice
from archec.errors import ArchecError
from archec.progress import Meter
from archec.store.layout import RUNS, JournalFile, journals
from archec.units import human_size

_EXPECTED, _THERE = 0, 1
_AHEAD = 4
"""Maximum number of chunks in progress per worker."""
_HINT = "possibly out of memory; completed checks are recorded: run it again"


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to check: a share of the files, as many as possible in a number of seconds, or (with neither) all of
    them. ``rate`` is in bytes per second, 0 for no limit. Files known to be bad are always checked first."""

    share: float | None = None
    seconds: float = 0.0
    rate: int = 0

    @property
    def everything(self) -> bool:
        return self.share is None and not self.seconds


@dataclass(slots=True)
class VerifySummary(Summary):
    """The result of a verification. ``whole``: everything named by the journals was checked. ``bad`` is the number of
    entries known to be bad now, ``oldest`` the tist of the oldest check that counts (0: none)."""

    command: ClassVar[str] = "verify"
    files: int = 0
    bytes: int = 0
    bad: int = 0
    oldest: int = 0

    @property
    def clean(self) -> bool:
        return not self.tally.wrong and not self.bad


def verify(
    archive: Audited, scope: Scope, meter: Meter, report: Reporter, repair: Repair | None = None
) -> VerifySummary:
    """Checks ``scope``, reports every finding when it is found, and records what was checked.

    With ``repair``, bad files are reported after their repair was tried. If an exception stops it, completed checks are
    recorded. Raises :class:`archec.errors.LockHeld` if something must be repaired while a run is active.
    """
    summary = VerifySummary()
    began, report = time.monotonic(), summary.tally.counting(report)
    with (
        open_memory(memory_path(archive.config), report) as memory,
        Inspector(archive.layout, archive.catalogue, ReadPace(scope.rate), archive.position) as inspector,
        PartitionedDiff(partial(scratch_folder, archive.config), (KEY, KEY)) as names,
    ):
        _Verification(archive, scope, meter, report, repair, memory, inspector, names, summary, Journals(archive)).go()
        summary.bad = memory.count_bad()
        summary.oldest = memory.oldest() or 0
    summary.seconds = time.monotonic() - began
    return summary


@dataclass(slots=True)
class _Verification:
    """One verification and its environment. ``names`` compares expected names with those on disk."""

    archive: Audited
    scope: Scope
    meter: Meter
    report: Reporter
    repair: Repair | None
    memory: Memory
    inspector: Inspector
    names: PartitionedDiff
    summary: VerifySummary
    reader: Journals
    now: int = 0

    def go(self) -> None:
        known = known_tists(self.archive.catalogue)
        passed_over = under_way(self.archive.layout)
        newest = max((max(row.whole, row.since) for row in self.memory.checked().values()), default=0)
        self.now = max(int(time.time()), newest + 1)
        for finding in self.archive.findings:
            if finding.code not in KEPT:  # the reader of the journals keeps those
                self.report(finding)
        there = {journal.tist for journal in journals(self.archive.layout)}
        for run in self.memory.runs() - there:
            self.memory.forget_run(run)
        self.reader.find_missing()
        wrong = wrong_notice(self.archive.layout) if self.repair is not None else None
        if wrong is not None and self.repair is not None:
            with self.repair.at_work():
                self.report(replace(wrong, fixed=write_notice(self.archive.layout, wrong)))
        self._known_bad()
        self._pass()
        if self.repair is not None and self._repair_journals(self.repair):
            self._pass()
        unfilled = self._fill_gaps(self.repair) if self.repair is not None else {}
        for finding in (*self.reader.unread.values(), *self.reader.breaks(self._remembered())):
            why = unfilled.get(finding.path, "")
            self.report(replace(finding, message=f"{finding.message}{why}"))
        self._repair_new()
        self.summary.whole = self.scope.everything and not self.reader.unread
        if self.summary.whole:
            self.memory.complete(self.now)
        if self.scope.everything:
            self._unknown_files(known, passed_over)

    # -- checking ---------------------------------------------------------------------------------

    def _known_bad(self) -> None:
        """Checks the entries known to be bad, and repairs them if requested."""
        self.meter.phase("known to be bad", self.memory.count_bad() or None)
        for number, bad in enumerate(self.memory.bad()):
            self.meter.at(number)
            finding = self.inspector.inspect_one(bad.entry, compare=self.archive.followed(bad.run, 0))
            self.summary.files += not self.scope.everything  # else counted with all others
            if finding is None:
                self.memory.forget_bad(bad.entry.tist, bad.entry.id)
            elif self.repair is not None:
                self.memory.remember_bad(bad._replace(seen=0))
            else:
                self.memory.remember_bad(bad._replace(seen=self.now, code=finding.code))
                self.report(finding)
        self._repair_new()

    def _pass(self) -> None:
        """Checks what was not checked at or after ``now``, least recently checked first, until the scope is exhausted.

        Something is always checked, so that every call makes progress; nothing if the share is 0.
        """
        files, share = journals(self.archive.layout), self.scope.share
        counted = {run: named.objects for run, (named, _) in self.memory.journals().items()}
        if share is not None:
            counted |= self._survey([journal for journal in files if journal.tist not in counted])
        total = self._total(files, counted)
        most = ceil(share * total) if share is not None else None
        if most == 0:
            return
        self.meter.phase("checking files", most or total or None)
        deadline = time.monotonic() + self.scope.seconds if self.scope.seconds else None
        archive, config = self.archive, self.archive.config
        count = config.processes
        url = config.database if archive.catalogue is not None else ""
        rate = self.scope.rate / count
        tools = Tools(archive.layout, url, config.base, archive.position, rate, self.scope.everything)
        parts = parts_of(files, self.memory.checked(), self.now)
        chunks = (chunk for part in parts for chunk in chunks_of(part, archive, self.reader, self.memory))
        named = 0
        alone = archive.catalogue is not None and archive.catalogue.excludes_others
        with inspectors(tools, self.inspector, count, alone=alone) as workers, closing(chunks):
            for chunk in chunks:
                if most is not None:
                    chunk = chunk.cut(most - named)
                named += len(chunk.lines)
                workers.submit(chunk, chunk.weight)
                for done in workers.results(at_most=_AHEAD * count):
                    self._take(done.item, done.result(_HINT))
                late = deadline is not None and time.monotonic() >= deadline
                if late or (most is not None and named >= most):
                    break
            for done in workers.results(at_most=0):
                self._take(done.item, done.result(_HINT))

    def _survey(self, files: Sequence[JournalFile]) -> dict[int, int]:
        """Counts how many files each of these journals names, approximately."""
        self.meter.phase("reading journals", len(files))
        counted: dict[int, int] = {}
        for number, journal in enumerate(files):
            self.meter.at(number)
            for _ in self.reader.batches(journal):
                continue
            counted[journal.tist] = self.reader.named[journal.tist].objects
            if (whole := self.reader.whole(journal)) is not None:
                self.memory.know_journal(journal.tist, *whole)
        return counted

    def _total(self, files: Sequence[JournalFile], counted: Mapping[int, int]) -> int:
        """The approximate number of files: the sum over all journals, or the number of obis if some are not counted."""
        if all(journal.tist in counted for journal in files):
            return sum(counted[journal.tist] for journal in files)
        catalogue = self.archive.catalogue
        return sum(catalogue.counts()[:4]) if catalogue is not None else 0

    def _take(self, chunk: Chunk, seen: Seen) -> None:
        """Reports and records the results of a chunk."""
        self.summary.files += seen.files
        self.summary.bytes += seen.read
        if seen.keys:
            self.names.add(_EXPECTED, seen.keys)
        for entry, finding in seen.findings:
            if entry is None:
                about_all = finding.code in ("catalogue-unreadable", "not-compared")
                if not about_all or not self.summary.tally.by_code[finding.code]:
                    self.report(finding)  # many chunks may meet the same
            elif self.memory.seen_bad(entry.tist, entry.id) != self.now:
                self.memory.remember_bad(Bad(entry, finding.code, chunk.run, 0 if self.repair else self.now))
                if self.repair is None:
                    self.report(finding)
        if chunk.last >= chunk.first or chunk.end:
            size = amount_of(chunk.lines).bytes
            self.memory.advance(chunk.run, chunk.first, chunk.last, self.now, end=chunk.end, size=size)
        self.meter.at(self.summary.files, f"{human_size(self.summary.bytes)}, run {chunk.run}")

    # -- repairing --------------------------------------------------------------------------------

    def _repair_new(self) -> None:
        """Repairs findings that have not been reported yet."""
        repair = self.repair
        if repair is None or not any(not bad.seen for bad in self.memory.bad()):
            return
        with repair.at_work():
            while self._repair_bad(repair, last=False):
                continue  # a link to something that was repaired may be repairable now
            self._repair_bad(repair, last=True)

    def _repair_bad(self, repair: Repair, *, last: bool) -> int:
        """Tries to repair each bad entry, and returns how many were repaired. The ``last`` time, also reports those
        that were not."""
        fixed = 0
        for bad in self.memory.bad():
            if bad.seen:
                continue
            self.inspector.refresh()
            compare = self.archive.followed(bad.run, 0)
            finding = self.inspector.inspect_one(bad.entry, compare=compare)
            if finding is not None:
                finding = repair.entry(bad.entry, finding)
                self.inspector.refresh()
                left = self.inspector.inspect_one(bad.entry, compare=compare)
                if left is not None and finding.fixed:
                    finding = replace(finding, message=f"{left.message}, although {finding.fixed}", fixed="")
            if finding is None or finding.fixed:
                self.memory.forget_bad(bad.entry.tist, bad.entry.id)
                fixed += 1
            elif last:
                self.memory.remember_bad(bad._replace(seen=self.now, code=finding.code))
            if finding is not None and (last or finding.fixed):
                self.report(finding)
        return fixed

    def _repair_journals(self, repair: Repair) -> bool:
        """Repairs journals that cannot be read; returns whether one was repaired."""
        unread = self.reader.unread
        if not unread:
            return False
        there = {f"{RUNS}/{journal.path.name}": journal for journal in journals(self.archive.layout)}
        repaired = False
        with repair.at_work():
            for path, finding in list(unread.items()):
                if path == RUNS:
                    continue  # a finding about all journals: checked again after each was tried
                ours = there.get(path)
                run = run_of(path)
                try:
                    fixed = repair.journal(run, ours.path if ours is not None else None, finding)
                except ArchecError as error:
                    unread[path] = replace(finding, message=f"{finding.message}; not repaired: {error.message}")
                    continue
                self.reader.forget(run, path)
                self.memory.forget_run(run)
                self.report(replace(finding, fixed=fixed))
                repaired = True
            if repaired:
                self.archive.catch_up()
                if not not_of_this_store(self.archive.layout):
                    unread.pop(RUNS, None)
        return repaired

    def _remembered(self) -> dict[int, Ends]:
        return {run: ends for run, (_, ends) in self.memory.journals().items()}

    def _fill_gaps(self, repair: Repair) -> dict[str, str]:
        """Restores journals that only the chain shows to be missing. Returns the reasons for failures, by the path of
        the journal after each gap."""
        unfilled: dict[str, str] = {}
        gaps = list(self.reader.gaps(self._remembered()))
        if not gaps:
            return unfilled
        with repair.at_work():
            for gap, path in gaps:
                try:
                    repaired = repair.gap(gap)
                except ArchecError as error:
                    unfilled[path] = f"; not repaired: {error.message}"
                    continue
                for finding in repaired:
                    self.reader.forget(run_of(finding.path), finding.path)
                    self.memory.forget_run(run_of(finding.path))
                    self.report(finding)
            self.archive.catch_up()
        if len(unfilled) < len(gaps):
            self._pass()
        return unfilled

    # -- names on disk ----------------------------------------------------------------------------

    def _unknown_files(self, known: frozenset[int], passed_over: frozenset[int]) -> None:
        """Finds the names on disk that are in no journal."""
        layout = self.archive.layout
        if self.reader.unread:
            message = "files are not compared with the journals, because some of these cannot be read"
            self.report(Finding("not-compared", ".", message))
            return
        self.meter.phase("comparing names", None)
        for number, place in enumerate(walk(layout, lambda finding, _: self.report(finding)), 1):
            if place.kind != "temp":
                self.names.add(_THERE, key_of(place.path))
            self.meter.at(number)
        (_, unknown), _ = self.names.unmatched()
        now = journalled(layout, self.archive.catalogue)
        passed_over = passed_over | under_way(layout) | {*now.tists}.difference(known)
        for finding, _ in unknown_files(layout, unknown, now, passed_over):
            self.report(finding)
