"""The journals of an archive, read whole: are they all there, are their batches and lines sound?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from archec.audit.findings import Finding
from archec.audit.opening import Audited
from archec.audit.walk import Tell
from archec.catalogue.records import DataSetRead, ObiChange, Record, RunStart, decode
from archec.errors import CatalogueError, CatalogueGone, CorruptJournal
from archec.progress import Meter
from archec.redif.problems import shown
from archec.store.durable import failure, is_temp
from archec.store.journalfile import JournalFile, Scanner, journals, open_plain
from archec.store.layout import RUNS, Layout

__all__ = ["Change", "JournalCheck", "tell_of_names"]

_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.jsonl(\.gz)?")
_CHUNK = 1 << 18


class Change(NamedTuple):
    """A record that changes a history, and whether the catalogue has followed the journals so far."""

    record: ObiChange
    followed: bool


@dataclass(slots=True)
class JournalCheck:
    """Reads every journal once, tells what is wrong with them, and gives what changes histories.

    ``unread`` is whether a journal is missing or cannot be read to its end; ``at_work`` whether a run is
    at work now, whose journal is then longer than what the catalogue has followed.
    """

    archive: Audited
    tell: Tell
    meter: Meter
    at_work: bool
    unread: bool = False
    batches: int = 0
    lines: int = 0
    runs: set[int] = field(default_factory=set)
    tists: set[int] = field(default_factory=set)
    """The tists at which obis are noted: those of runs and of data sets."""
    told: set[str] = field(default_factory=set)
    """The paths of journals that have been told to be damaged or missing."""

    def __post_init__(self) -> None:
        bad = [finding.path for finding in self.archive.findings if finding.code.startswith("journal-")]
        self.told.update(bad)
        self.unread = bool(bad)

    def changes(self) -> Iterator[Change]:
        """All changes of histories, in the order of the journals."""
        files = journals(self.archive.layout)
        position = self.archive.position
        self.meter.phase("reading journals", sum(_size(journal) for journal in files) or None)
        done = behind = 0
        for journal in files:
            last = 0
            for n, records in self._batches(journal, done):
                last = n
                followed = self.archive.followed(journal.tist, n)
                behind += not followed
                for record in records:
                    if isinstance(record, ObiChange) and (record.put or record.drop):
                        yield Change(record, followed)
            if journal.tist == position.run and last < position.batch:
                told = f"ends with batch {last}, and the catalogue has followed it to batch {position.batch}"
                self._damaged(f"{RUNS}/{journal.path.name}", told)
            done += _size(journal)
        self._missing({journal.tist for journal in files})
        if behind and not self.at_work and self.archive.catalogue is not None:
            message = f"lacks {behind} {'batch' if behind == 1 else 'batches'} of the journals"
            self.tell(Finding("catalogue-behind", self.archive.catalogue.url, message))

    def _batches(self, journal: JournalFile, done: int) -> Iterator[tuple[int, list[Record]]]:
        path = f"{RUNS}/{journal.path.name}"
        scanner = Scanner(journal.path)
        started = False
        try:
            for batch in scanner.batches():
                records = []
                for line in batch.lines:
                    record = self._record(line, path, batch.n)
                    if record is None:
                        continue
                    if isinstance(record, RunStart):
                        if not started and record.tist != journal.tist:
                            message = f"says that it is the journal of run {record.tist}"
                            self.tell(Finding("journal-misnamed", path, message))
                            self.unread = True
                        started = True
                        self.tists |= {record.tist, record.data_set}
                    elif isinstance(record, DataSetRead):
                        self.tists.add(record.data_set.tist)
                    records.append(record)
                self.batches += 1
                self.lines += len(batch.lines)
                self.meter.at(done + min(scanner.valid, _size(journal)), f"{self.lines:,} lines")
                yield batch.n, records
        except CorruptJournal as error:
            self._damaged(path, error.message)
        else:
            torn = 0 if journal.finished or self.at_work else _size(journal) - scanner.valid
            if torn > 0:
                self.tell(Finding("journal-torn", path, f"its last {torn} bytes are not a whole batch"))
        if started:
            self.runs.add(journal.tist)

    def _record(self, line: bytes, path: str, batch: int) -> Record | None:
        try:
            return decode(line, f"batch {batch}")
        except CorruptJournal as error:
            self.tell(Finding("journal-line", path, error.message))
            return None

    def _damaged(self, path: str, message: str) -> None:
        self.unread = True
        if path not in self.told:
            self.told.add(path)
            self.tell(Finding("journal-damaged", path, message))

    def _missing(self, there: set[int]) -> None:
        """Compares the runs that the catalogue knows with the journals."""
        catalogue = self.archive.catalogue
        if catalogue is None:
            return
        try:
            known = {run.tist for run in catalogue.runs()}
        except CatalogueGone:
            raise
        except CatalogueError:
            return  # reading all of it will tell
        for run in sorted(known - there):
            self.unread = True
            path = f"{RUNS}/{run}.jsonl.gz"
            if path not in self.told:
                message = "the catalogue knows of this run, and its journal is not there"
                self.tell(Finding("journal-missing", path, message))
        for run in sorted(self.runs - known):
            if self.archive.followed(run, 1):
                self.tell(Finding("catalogue-lacks", f"{RUNS}/{run}", "the catalogue does not know of this run"))


def tell_of_names(layout: Layout, tell: Tell) -> int:
    """Tells what lies beside the journals and should not; how many temporary files there are."""
    temporary = 0
    try:
        names = sorted(os.listdir(layout.runs))
    except FileNotFoundError:
        tell(Finding("missing", RUNS, "there is no directory of journals"))
        return 0
    except OSError as error:
        raise failure(error, layout.runs) from error
    for name in names:
        path = f"{RUNS}/{shown(name)}"
        match = _NAME.fullmatch(name)
        if is_temp(name):
            temporary += 1
        elif match is None:
            tell(Finding("unexpected", path, "is not the name of a journal"))
        elif (layout.runs / name).is_symlink() or not (layout.runs / name).is_file():
            tell(Finding("journal-damaged", path, "is not a file"))
        elif not match[2] and f"{name}.gz" in names:
            if _same(layout, name):
                tell(Finding("journal-twice", path, "its compressed form is there, too, and the same"))
            else:
                tell(Finding("journal-damaged", path, "its compressed form is there, too, and is not the same"))
    return temporary


def _same(layout: Layout, name: str) -> bool:
    """Whether the two forms of a journal hold the same bytes."""
    try:
        with open_plain(layout.runs / name) as one, open_plain(layout.runs / f"{name}.gz") as two:
            while True:
                data = one.read(_CHUNK)
                if data != two.read(len(data) or 1):
                    return False
                if not data:
                    return True
    except (CorruptJournal, EOFError, OSError, ValueError):
        return False


def _size(journal: JournalFile) -> int:
    try:
        return journal.path.stat().st_size
    except OSError as error:
        raise failure(error, journal.path) from error
