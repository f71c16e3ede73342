"""Verify: hashes what is held, again and again, what was checked least recently first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import islice

from archec.audit.entries import key_of
from archec.audit.findings import Finding, Tally
from archec.audit.fixity import Inspector
from archec.audit.memory import Bad, Memory, memory_path
from archec.audit.opening import Audited, follow
from archec.audit.pace import Pace
from archec.audit.passes import Pass, Scope
from archec.audit.repair import Repair
from archec.audit.sieve import KEY, Sieve
from archec.audit.strangers import MOST, known_tists, tell_strangers, under_way
from archec.audit.walk import Tell, walk
from archec.audit.workers import Chunk, Seen
from archec.errors import ArchecError
from archec.progress import Meter
from archec.store.journalfile import journals
from archec.store.layout import RUNS
from archec.units import human_size

__all__ = ["Scope", "Summary", "verify"]

_FROM_JOURNALS, _FROM_DISK = 0, 1
_AT_ONCE = 1000


@dataclass(slots=True)
class Summary:
    """What a verification came to. ``whole``: all that the journals name was checked; ``bad`` is how many
    entries are known to be bad now, ``oldest`` the tist of the oldest check that counts (0: none)."""

    files: int = 0
    read: int = 0
    seconds: float = 0.0
    whole: bool = False
    bad: int = 0
    oldest: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or nothing any more."""
        return not self.tally.wrong and not self.bad

    def as_value(self) -> dict[str, object]:
        """The last JSON line."""
        return {
            "summary": "verify",
            "clean": self.clean,
            "whole": self.whole,
            "files": self.files,
            "bytes": self.read,
            "seconds": round(self.seconds, 3),
            "wrong": self.tally.wrong,
            "mended": self.tally.mended,
            "notes": self.tally.notes,
            "by_code": dict(sorted(self.tally.by_code.items())),
            "bad": self.bad,
            "oldest": self.oldest,
        }


def verify(archive: Audited, scope: Scope, meter: Meter, tell: Tell, repair: Repair | None = None) -> Summary:
    """Checks what ``scope`` says, tells every finding as it comes, and remembers what was checked.

    With ``repair``, what is bad is told when its repair has been tried. Where an exception stops it, what
    was done until then is remembered. Raises :class:`archec.errors.LockHeld` where something is to be
    repaired while a run is at work.
    """
    summary = Summary()
    began = time.monotonic()
    with (
        Memory(memory_path(archive.config)) as memory,
        Inspector(archive.layout, archive.catalogue, Pace(scope.rate)) as inspector,
        Sieve(archive.config.work_path, (KEY, KEY)) as sieve,
    ):
        work = _Verification(archive, scope, meter, tell, repair, memory, inspector, sieve, summary)
        work.go()
        summary.bad = memory.count_bad()
        summary.oldest = min((stretch.at for stretch in memory.stretches()), default=0)
    summary.seconds = time.monotonic() - began
    return summary


@dataclass(slots=True)
class _Verification:
    """One verification: what it works with, and what it knows so far."""

    archive: Audited
    scope: Scope
    meter: Meter
    tell: Tell
    repair: Repair | None
    memory: Memory
    inspector: Inspector
    sieve: Sieve
    summary: Summary
    now: int = 0
    unread: dict[str, Finding] = field(default_factory=dict)
    """Findings about journals that cannot be read to their end, by the path of the journal."""

    def go(self) -> None:
        known = known_tists(self.archive.catalogue)
        passed_over = under_way(self.archive.layout)
        newest = max((stretch.at for stretch in self.memory.stretches()), default=0)
        self.now = max(int(time.time()), newest + 1)
        for finding in self.archive.findings:
            if finding.code in ("journal-damaged", "journal-missing"):
                self.unread[finding.path] = finding
            else:
                self._told(finding)
        self._forget_the_gone()
        self._known_bad()
        self._pass()
        if self.repair is not None and self._repair_journals():
            self._pass()
        for finding in self.unread.values():
            self._told(finding)
        if self.repair is not None:
            self._repair_new()
        self.summary.whole = self.scope.everything and not self.unread
        if self.scope.everything:
            self._strangers(known, passed_over)

    def _told(self, finding: Finding) -> None:
        self.summary.tally.add(finding)
        self.tell(finding)

    # -- what is remembered -----------------------------------------------------------------------

    def _forget_the_gone(self) -> None:
        """What is remembered of runs that have no journal counts no more; the catalogue may miss one."""
        there = {journal.tist for journal in journals(self.archive.layout)}
        for run in self.memory.runs() - there:
            self.memory.forget_run(run)
        if self.archive.catalogue is not None:
            for item in self.archive.catalogue.runs():
                if item.tist not in there:
                    path = f"{RUNS}/{item.tist}.jsonl.gz"
                    message = "the catalogue knows of this run, and its journal is not there"
                    self.unread.setdefault(path, Finding("journal-missing", path, message))

    def _known_bad(self) -> None:
        """Looks at what is known to be bad, and repairs it if asked."""
        self.meter.phase("known to be bad", self.memory.count_bad() or None)
        for number, bad in enumerate(self.memory.bad()):
            self.meter.at(number)
            finding = self.inspector.inspect_one(bad.entry, compare=self.archive.followed(bad.run, 0))
            self.summary.files += 1
            if finding is None:
                self.memory.forget_bad(bad.entry.tist, bad.entry.id)
            elif self.repair is not None:
                self.memory.remember_bad(bad._replace(seen=0))
            else:
                self.memory.remember_bad(bad._replace(seen=self.now, code=finding.code))
                self._told(finding)
        self._repair_new()

    # -- what a pass brings -----------------------------------------------------------------------

    def _pass(self) -> None:
        reading = Pass(self.archive, self.scope, self.memory, self.inspector, self.meter, self.now)
        reading.go(self._take)
        self.unread |= reading.unread

    def _take(self, chunk: Chunk, seen: Seen) -> None:
        """What a chunk came to: told, and remembered."""
        self.summary.files += seen.files
        self.summary.read += seen.read
        if seen.keys:
            self.sieve.add(_FROM_JOURNALS, seen.keys)
        for entry, finding in seen.findings:
            if entry is None:
                self._told(finding)
            elif self.memory.seen_bad(entry.tist, entry.id) != self.now:
                self.memory.remember_bad(Bad(entry, finding.code, chunk.run, 0 if self.repair else self.now))
                if self.repair is None:
                    self._told(finding)
        last = chunk.last if chunk.whole else chunk.last - 1
        if last >= chunk.first:
            self.memory.checked(chunk.run, chunk.first, last, self.now)
        self.meter.at(self.summary.files, f"{human_size(self.summary.read)}, run {chunk.run}")

    # -- repairing --------------------------------------------------------------------------------

    def _repair_new(self) -> None:
        """Repairs what was found bad and has not been told yet."""
        repair = self.repair
        if repair is None or not any(not bad.seen for bad in self.memory.bad()):
            return
        with repair.at_work():
            while self._mend(repair, last=False):
                continue  # what leads to something that was repaired may be repaired now
            self._mend(repair, last=True)

    def _mend(self, repair: Repair, *, last: bool) -> int:
        """Tries to repair each; how many were. The ``last`` time, those that were not are told as well."""
        mended = 0
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
                if left is not None and finding.mended:
                    finding = replace(finding, message=f"{left.message}, although {finding.mended}", mended="")
            if finding is None or finding.mended:
                self.memory.forget_bad(bad.entry.tist, bad.entry.id)
                mended += 1
            elif last:
                self.memory.remember_bad(bad._replace(seen=self.now, code=finding.code))
            if finding is not None and (last or finding.mended):
                self._told(finding)
        return mended

    def _repair_journals(self) -> bool:
        """Repairs journals that cannot be read; whether there was one."""
        repair = self.repair
        if repair is None or not self.unread:
            return False
        there = {f"{RUNS}/{journal.path.name}": journal for journal in journals(self.archive.layout)}
        repaired = False
        with repair.at_work():
            for path, finding in list(self.unread.items()):
                ours = there.get(path)
                run = int(path.removeprefix(f"{RUNS}/").partition(".")[0])
                try:
                    mended = repair.journal(run, ours.path if ours is not None else None)
                except ArchecError as error:
                    self.unread[path] = replace(finding, message=f"{finding.message}; not repaired: {error.message}")
                    continue
                del self.unread[path]
                self._told(replace(finding, mended=mended))
                repaired = True
            if repaired:
                follow(self.archive)
        return repaired

    # -- what nobody named ------------------------------------------------------------------------

    def _strangers(self, known: frozenset[int], passed_over: frozenset[int]) -> None:
        """Finds the names on disk that no journal names."""
        layout = self.archive.layout
        if self.unread:
            message = "what lies there is not compared with the journals, as some of these cannot be read"
            self._told(Finding("not-compared", ".", message))
            return
        self.meter.phase("comparing names", None)
        number = 0
        places = walk(layout, self._told)
        while some := list(islice(places, _AT_ONCE)):
            keys = [key_of(f"{place.directory}/{place.name}") for place in some if place.kind != "temp"]
            self.sieve.add(_FROM_DISK, b"".join(keys))
            number += len(some)
            self.meter.at(number)
        strange: set[bytes] = set()
        for named, there in self.sieve.parts():
            extra = set(self.sieve.split(_FROM_DISK, there)).difference(self.sieve.split(_FROM_JOURNALS, named))
            strange |= set(islice(extra, max(0, MOST - len(strange))))
        now = known_tists(self.archive.catalogue)
        tell_strangers(
            layout, strange, known=now, passed_over=passed_over | under_way(layout) | (now - known), tell=self._told
        )
