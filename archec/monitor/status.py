"""The status of an archive on one screen: from the catalogue, the reports of runs, the disk and the record of
checks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar

from msgspec import to_builtins

from archec.archive.opening import Archive
from archec.archive.report import HostFigures, HostsFigures
from archec.archive.runs import Unbegun, clock_of, stored_before, unbegun
from archec.audit.last_checked import Fixity, fixity
from archec.catalogue.documents import DueFobi
from archec.catalogue.interface import Catalogue, Counts
from archec.errors import CatalogueError, CatalogueGone, CorruptJournal, StorageFailed, storage_errors
from archec.gather.due import LAST_ID, due_files
from archec.gather.operator_decisions import awaiting
from archec.monitor.runs import RunView, runs
from archec.store.layout import Layout, journal_of
from archec.store.lock import holder
from archec.tist import MAX_TIST, iso

_T = TypeVar("_T")
_SUCCESS = frozenset(("done", "held-back", "budget"))
DUE_AT_MOST = 10_000
"""Maximum number of due files that are counted."""
_LOOK_BACK = 100
"""Maximum number of runs searched for the newest one that finished, and for one that fetched."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system of the obi store: bytes and inodes, in total and available to archec."""

    size: int
    free: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Due:
    """Files to visit: the number due ``now`` (at most :data:`DUE_AT_MOST`; ``more``: there are more), and the tist at
    which the next one was or is due (None: there is none). Files that were never tried are due at 0, files to visit
    immediately at 1."""

    now: int
    more: bool
    next: int | None


@dataclass(frozen=True, slots=True)
class PendingLosses:
    """Losses that await a decision: the ``archive`` (or archive's directory, or host), their number, the run and its
    source. ``archec losses`` lists the same."""

    archive: str
    losses: int
    run: int
    source: str


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """An archive at the tist ``now``. ``stored_bytes`` is the amount that all runs have written to the obi store,
    according to their reports. ``due_filesets`` are the data sets to ingest, by ``archec gather --filesets``.
    ``at_work`` is who holds the run lock, ``quiet`` the number of seconds since this run has journalled something.
    ``newest`` is the newest run of any kind, ``unbegun`` one after it that failed before it began, ``last`` the newest
    gathering, ``success`` the newest one that finished or exhausted its budget, unless no host answered its visits, and
    ``success_time`` when it began by the clock, of which its tist may be ahead.
    ``hosts`` are the worst of the ``hosts_in_trouble`` in ``hosts_run``, the newest run that had files due. ``refused``
    is the number of documents that the database refused. ``ahead`` is the number of seconds by which the newest tist is
    ahead of ``now``. ``damaged`` is the reason if parts of this could not be read from the catalogue; they are empty or
    0."""

    now: int
    name: str
    obis: Counts
    stored_bytes: int
    at_work: str
    quiet: int
    newest: RunView | None
    unbegun: Unbegun | None
    last: RunView | None
    success: RunView | None
    success_time: int | None
    ahead: int
    due: Due
    due_filesets: Due
    hosts_run: int | None
    hosts_in_trouble: int
    hosts: tuple[HostFigures, ...]
    held_back: tuple[PendingLosses, ...]
    disk: DiskSpace
    min_free: float
    fixity: Fixity
    refused: int
    damaged: str

    def as_value(self) -> dict[str, Any]:
        value = asdict(self)
        value["time"] = iso(self.now)
        value["obis"] = self.obis._asdict()
        value["fixity"] = self.fixity.as_value()
        value["unbegun"] = to_builtins(self.unbegun)
        value["newest"] = self.newest.as_value() if self.newest is not None else None
        value["last"] = self.last.as_value() if self.last is not None else None
        value["success"] = self.success.run if self.success is not None else None
        value["hosts"] = to_builtins(self.hosts)
        return value


def status(archive: Archive) -> ArchiveStatus:
    """The status of the archive, as far as its catalogue can be read; writes nothing. Raises :class:`StorageFailed` if
    the disk cannot be queried."""
    config, moment = archive.config, int(time.time())
    damaged: list[str] = []

    def attempt(read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except CatalogueGone:
            raise
        except CatalogueError as error:
            damaged.append(str(error))
            return otherwise

    gatherings = (view for view in runs(archive) if view.kind == "gather")
    recent: list[RunView] = attempt(lambda: list(islice(gatherings, _LOOK_BACK)), [])
    newest = attempt(lambda: next(runs(archive), None), None)
    before = attempt(lambda: stored_before(archive.catalogue, newest.run) if newest is not None else 0, 0)
    success = next((run for run in recent if run.recorded in _SUCCESS and not run.unanswered), None)
    fetched = next((run for run in recent if run.figures.hosts.visited or run.figures.hosts.in_trouble), None)
    hosts = fetched.figures.hosts if fetched is not None else HostsFigures()
    who = holder(archive.layout)
    return ArchiveStatus(
        now=moment,
        name=config.name,
        obis=attempt(archive.catalogue.counts, Counts(0, 0, 0, 0, 0)),
        stored_bytes=before + newest.figures.stored_bytes if newest is not None else 0,
        at_work="; ".join(filter(None, (str(who), who.remedy))) if who is not None else "",
        quiet=who.quiet if who is not None else 0,
        newest=newest,
        unbegun=unbegun(config),
        last=recent[0] if recent else None,
        success=success,
        success_time=_begun(archive.layout, success.run, moment) if success is not None else None,
        ahead=max(0, newest.run - moment - 1) if newest is not None else 0,
        due=attempt(lambda: _due(archive, moment), Due(0, False, None)),
        due_filesets=attempt(lambda: _due_filesets(archive.catalogue, moment), Due(0, False, None)),
        hosts_run=fetched.run if fetched is not None else None,
        hosts_in_trouble=hosts.in_trouble,
        hosts=tuple(hosts.trouble),
        held_back=attempt(lambda: tuple(held_back(archive.catalogue)), ()),
        disk=_disk(archive.layout),
        min_free=config.min_free,
        fixity=fixity(config, moment),
        refused=attempt(lambda: len(archive.catalogue.refused()), 0),
        damaged=damaged[0] if damaged else "",
    )


def _begun(layout: Layout, run: int, now: int) -> int:
    """When a run began, by the clock then; its tist if that is not ahead of the clock now."""
    journal = journal_of(layout, run) if run > now else None
    with suppress(CorruptJournal, StorageFailed):
        return clock_of(journal).time if journal is not None else run
    return run


def _due(archive: Archive, now: int) -> Due:
    catalogue = archive.catalogue
    due = sum(1 for _ in islice(due_files(catalogue, archive.config.fetch, now), DUE_AT_MOST + 1))
    first = next(catalogue.due(MAX_TIST), None)
    if first is not None and not first.due:
        later = next(catalogue.due(MAX_TIST, DueFobi(0, LAST_ID)), None)
        first = later if due == 0 else first
    return Due(min(due, DUE_AT_MOST), due > DUE_AT_MOST, first.due if first is not None else None)


def _due_filesets(catalogue: Catalogue, now: int) -> Due:
    first, due = MAX_TIST + 1, 0
    for ingest in catalogue.ingests():
        first = min(first, ingest.due or first)
        due += ingest.is_due(now)
    return Due(due, False, first if first <= MAX_TIST else None)


def held_back(catalogue: Catalogue) -> Iterator[PendingLosses]:
    """The losses that await a decision, by run and group."""
    for item in awaiting(catalogue):
        run = catalogue.run(item.run)
        source = run.source if run is not None and item.kind == "tobi" else ""
        for name, group in sorted(item.groups.items()):
            yield PendingLosses(name, group.losses, item.run, source)


def _disk(layout: Layout) -> DiskSpace:
    with storage_errors(layout.root):
        disk = os.statvfs(layout.root)
    return DiskSpace(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, disk.f_files, disk.f_favail)

