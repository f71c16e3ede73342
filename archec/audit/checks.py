"""Check: does the archive fit together? Journals, names on disk, links, catalogue; no file's bytes are read."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from archec.archive.follow import last_run
from archec.audit.comparison import Comparison, tell_differences
from archec.audit.findings import Finding, Tally
from archec.audit.fixes import Fixes, temporary_in
from archec.audit.journalcheck import JournalCheck, tell_of_names
from archec.audit.links import judge
from archec.audit.opening import Audited
from archec.audit.strangers import tell_strangers, under_way
from archec.audit.walk import Place, Tell, walk
from archec.catalogue.interface import Catalogue, Counts
from archec.catalogue.model import KINDS
from archec.config import Config
from archec.errors import CatalogueError, CatalogueGone, CorruptArchive, CorruptJournal
from archec.progress import Meter
from archec.redif.problems import shown
from archec.store.directories import Directories
from archec.store.layout import DESCRIPTOR, NAMASTE, NOTICE, RUNS, open_store
from archec.store.lock import holder

__all__ = ["CheckSummary", "check", "check_layout"]


@dataclass(slots=True)
class CheckSummary:
    """What a check came to."""

    journals: int = 0
    batches: int = 0
    lines: int = 0
    names: int = 0
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or nothing any more."""
        return not self.tally.wrong

    def as_value(self) -> dict[str, object]:
        """The last JSON line."""
        return {
            "summary": "check",
            "clean": self.clean,
            "journals": self.journals,
            "batches": self.batches,
            "lines": self.lines,
            "names": self.names,
            "seconds": round(self.seconds, 3),
            "wrong": self.tally.wrong,
            "mended": self.tally.mended,
            "notes": self.tally.notes,
            "by_code": dict(sorted(self.tally.by_code.items())),
        }


def check(archive: Audited, meter: Meter, tell: Tell, fixes: Fixes | None = None) -> CheckSummary:
    """Checks the whole structure, and tells every finding as it comes; ``fixes`` mends what is safe to mend."""
    summary = CheckSummary()
    began = time.monotonic()

    def told(finding: Finding) -> None:
        summary.tally.add(finding)
        tell(finding)

    for finding in archive.findings:
        told(finding)
    with Comparison(archive.layout, archive.config.work_path) as comparison:
        _Check(archive, meter, told, fixes, comparison, summary).go()
    summary.seconds = time.monotonic() - began
    return summary


def check_layout(config: Config, tell: Tell) -> CheckSummary | None:
    """The summary of a check that ends where it begins, since ``layout.json`` is damaged; None where it is not.

    Raises :class:`archec.errors.ConfigError` where there is no archive at all.
    """
    try:
        open_store(config)
    except CorruptArchive as error:
        summary = CheckSummary()
        finding = Finding("layout", DESCRIPTOR, error.message)
        summary.tally.add(finding)
        tell(finding)
        return summary
    return None


@dataclass(slots=True)
class _Check:
    """One check: what it works with."""

    archive: Audited
    meter: Meter
    tell: Tell
    fixes: Fixes | None
    comparison: Comparison
    summary: CheckSummary
    leftovers: Counter[tuple[int, str]] = field(default_factory=Counter)

    def go(self) -> None:
        layout, catalogue = self.archive.layout, self.archive.catalogue
        passed_over = under_way(layout)
        self._notice()
        if self.fixes is not None:
            for finding in self.fixes.tidy():
                self.tell(finding)
        temporary = tell_of_names(layout, self.tell) + temporary_in(layout.root)
        if temporary:
            self.leftovers[-1, RUNS] = temporary
        # The walk before the journals: what is written before it is named must not seem strange.
        self._walk(passed_over)
        reading = JournalCheck(self.archive, self.tell, self.meter, self._at_work())
        for change in reading.changes():
            try:
                self.comparison.journalled(change)
            except ValueError as error:
                self.tell(Finding("journal-line", RUNS, f"{change.record.id}: {error}"))
        self.summary.batches, self.summary.lines = reading.batches, reading.lines
        self.summary.journals = len(reading.runs)
        comparable = catalogue is not None and self._catalogue(catalogue)
        if reading.unread:
            comparable = False
        elif comparable and (reading.at_work or self._moved()):
            comparable = False
            self.tell(Finding("not-compared", ".", "the catalogue is not compared, as a run is at work"))
        self._compare(reading, comparable, passed_over)
        self._leftovers()

    def _at_work(self) -> bool:
        """Whether a run is writing journal and catalogue."""
        who = holder(self.archive.layout) if not self.archive.locked else None
        return who is not None and who.what == "gather"

    def _moved(self) -> bool:
        """Whether the catalogue has followed the journals further than when the archive was opened."""
        catalogue = self.archive.catalogue
        return catalogue is None or self._at_work() or catalogue.position() != self.archive.position

    def _notice(self) -> None:
        path = self.archive.layout.root / NAMASTE
        try:
            same = path.read_text(encoding="utf-8", errors="replace") == NOTICE
        except OSError as error:
            self.tell(Finding("notice", NAMASTE, f"cannot be read: {error.strerror}"))
            return
        if not same:
            self.tell(Finding("notice", NAMASTE, "does not say what this archec writes there"))

    # -- the three sides --------------------------------------------------------------------------

    def _walk(self, passed_over: frozenset[int]) -> None:
        layout = self.archive.layout
        self.meter.phase("walking the store", None)
        with Directories(layout) as folders:
            for place in walk(layout, self.tell):
                if place.kind == "temp":
                    if place.tist not in passed_over:
                        self.leftovers[place.tist, place.directory] += 1
                    continue
                self.comparison.on_disk(place.path)
                if place.kind == "link":
                    self._link(folders, place)
                elif place.kind == "other":
                    self.tell(Finding("not-a-file", shown(place.path), "is neither a file nor a link"))
                if not self.comparison.names & 1023:
                    self.meter.at(self.comparison.names)
        self.summary.names = self.comparison.names

    def _link(self, folders: Directories, place: Place) -> None:
        wrong = judge(folders, place.path)
        if wrong is not None:
            self.tell(Finding(wrong[0], shown(place.path), wrong[1]))

    def _catalogue(self, catalogue: Catalogue) -> bool:
        """Reads all documents; whether that could be done."""
        counted = [0, 0, 0, 0, 0]
        number = 0
        try:
            self.meter.phase("reading the catalogue", sum(catalogue.counts()))
            for kind, first in zip(KINDS, (0, 2), strict=True):
                for obi in catalogue.all(kind):
                    self.comparison.catalogued(obi.id, obi.history)
                    never = kind == "fobi" and not obi.history
                    counted[4 if never else first + (not obi.history.held)] += 1
                    number += 1
                    self.meter.at(number)
            said = catalogue.counts()
        except CatalogueGone:
            raise
        except (CatalogueError, ValueError) as error:
            self.tell(Finding("catalogue-unreadable", catalogue.url, str(error)))
            return False
        if said != Counts(*counted):
            message = f"says {_shown(said)}, and holds {_shown(Counts(*counted))}"
            self.tell(Finding("catalogue-counts", catalogue.url, message))
        return True

    def _compare(self, reading: JournalCheck, comparable: bool, passed_over: frozenset[int]) -> None:
        layout = self.archive.layout
        self.meter.phase("comparing", None)
        found = self.comparison.differences(with_catalogue=comparable)
        tell_differences(layout, self.archive.catalogue, found, self.tell)
        if reading.unread:
            message = "what lies there, and the catalogue, are not compared with journals that cannot be read"
            self.tell(Finding("not-compared", ".", message))
        else:
            others = passed_over | under_way(layout)
            tell_strangers(
                layout, found.strange, known=reading.tists, passed_over=others, tell=self.tell, judged=True
            )
        if found.more:
            self.tell(Finding("not-compared", ".", f"{found.more} more differences like these are not told"))

    # -- leftovers --------------------------------------------------------------------------------

    def _leftovers(self) -> None:
        resumable: int | None = None
        with suppress(CorruptJournal):
            last = last_run(self.archive.layout)
            resumable = last.journal.tist if last is not None and last.resumable else None
        for (tist, directory), count in sorted(self.leftovers.items()):
            message = f"{count} temporary {'file' if count == 1 else 'files'}"
            mended = ""
            if resumable is not None:
                message += f"; the next run sweeps what run {resumable} left, which can be resumed"
            elif self.fixes is not None:
                mended = self.fixes.sweep(tist)
            self.tell(Finding("leftover", directory, message, mended=mended))


def _shown(counts: Counts) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts._asdict().items())
