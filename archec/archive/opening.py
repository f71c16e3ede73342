"""An open archive: its configuration, its obi store, its catalogue, which follows the journals.

The catalogue is updated from the journals when the archive is opened for a run, as after a kill (:func:`catch_up`), or
made again from scratch (:func:`rebuild`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from archec.archive.journal_records import all_records_in, records, records_in
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import DataSetRead, Fork, ObiChange, RunEnd, RunStart, changes_of, fold_obi
from archec.catalogue.model import Obi, Position
from archec.catalogue.refused import write_accepted
from archec.config import Config
from archec.errors import (
    BrokenChain,
    CatalogueError,
    CatalogueGone,
    CorruptArchive,
    CorruptJournal,
    NotHeld,
    StorageFailed,
    storage_errors,
)
from archec.progress import SILENT, Meter
from archec.sqlite import is_full, unwritable
from archec.store.durable import open_directory
from archec.store.journal import NO_BATCH, JournalBatch, newest_batch, read_batches, tidy
from archec.store.layout import JournalFile, Layout, journals, open_store
from archec.store.lock import holder, run_lock
from archec.store.reader import held_tists

_SCRATCH = "archec-scratch-"
_LOCKED_AFTER = 3600.0
"""Seconds after which a new directory has been locked, if its process lives."""
UNFINISHED = ("running", "failed", "interrupted", "budget")
"""The states of a run that ``--resume`` may continue while its journal is unfinished."""

_OLDER = (
    "restore the newer archive directory; if it is lost for good, declare that with 'archec fork', which 'archec "
    "rebuild' completes if it failed; if this is the catalogue of another archive, set another 'database', or remove it"
)


@dataclass(frozen=True, slots=True)
class Archive:
    config: Config
    layout: Layout
    catalogue: Catalogue

    @property
    def work(self) -> Path:
        """The directory for scratch space."""
        return self.config.work_path

    def is_behind(self) -> bool:
        """Whether the catalogue may be behind the journals."""
        return is_behind(self.layout, self.catalogue)

    def was_left_behind(self) -> bool:
        """Whether the catalogue is behind although no run is active that would update it; also while it is rebuilt.
        Raises CorruptArchive if it contains a run that has no journal."""
        refuse_newer(self.layout, self.catalogue)
        if not self.is_behind():
            return False
        who = holder(self.layout)
        return (who is None or not who.is_run) and self.is_behind()


def scratch_space(config: Config) -> Path:
    """The directory for scratch files of commands that only read: the archive's work directory, or the system's
    directory for temporary files if that is not writable or full."""
    path = config.work_path / "scratch"
    return Path(tempfile.gettempdir()) if unwritable(path) or is_full(path) else config.work_path


@contextmanager
def scratch_folder(config: Config) -> Iterator[Path]:
    """Creates a directory for scratch files, which is removed at the end of the block."""
    parent = scratch_space(config)
    with ExitStack() as stack:
        with storage_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(temporary_folder(parent, _SCRATCH))
        yield folder


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Creates a directory, which is removed at the end of the block. It is locked, so that those of killed processes
    can be told from it: they are removed first."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError, StorageFailed), open_directory(left) as lock:
            # Refused for one in use, and for all on a file system that locks no directory exclusively.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(lock)
            is_new = found.st_mtime > time.time() - _LOCKED_AFTER and not any(left.iterdir())  # not locked yet, perhaps
            if found.st_uid == os.geteuid() and not is_new:
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name,
        open_directory(name) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield Path(name)


@contextmanager
def locked(config: Config, what: str, meter: Meter = SILENT, *, wait: bool = False) -> Iterator[Archive]:
    """Opens the archive for writing: takes the run lock and updates the catalogue from the journals. Raises
    :class:`archec.errors.LockHeld` if another run is active, unless ``wait`` is set, which waits for its end."""
    layout = open_store(config)
    with (
        run_lock(layout, what, meter, wait=wait),
        open_catalogue(config.database, base=config.base, create=True) as catalogue,
    ):
        tidy(layout)
        catch_up(layout, catalogue)
        yield Archive(config, layout, catalogue)


@contextmanager
def opened(config: Config) -> Iterator[Archive]:
    """Opens the archive for reading. Creates and changes nothing.

    Raises :class:`archec.errors.CatalogueError` if there is no catalogue: only runs and rebuilds create one.
    """
    layout = open_store(config)
    with open_catalogue(config.database, base=config.base, read_only=True) as catalogue:
        yield Archive(config, layout, catalogue)


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run of the archive according to its journal.

    ``start`` is None if the journal has no complete batch yet. ``state`` is ``running`` if it does not end with an
    ``end`` line. ``merged``: its data set was read and merged. ``report`` is that of its last ``end`` line.
    """

    journal: JournalFile
    start: RunStart | None = None
    state: str = "running"
    merged: bool = False
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def resumable(self) -> bool:
        """Whether ``gather --resume`` would continue it. A partly read directory may have changed since."""
        if self.journal.finished or self.start is None or self.start.kind != "gather" or self.state not in UNFINISHED:
            return False
        return self.merged or self.start.form == "tarball"


def last_run(layout: Layout) -> LastRun | None:
    """The newest run; None for an archive without runs. Reads an unfinished journal completely."""
    files = journals(layout)
    if not files:
        return None
    last = LastRun(files[-1])
    if last.journal.finished:
        return replace(last, state="done")
    for batch in read_batches(last.journal.path):
        last = replace(last, state="running")
        for record in records_in(batch, last.journal.path, RunStart, RunEnd, DataSetRead):
            if isinstance(record, RunStart):
                last = replace(last, start=record)
            elif isinstance(record, RunEnd):
                last = replace(last, state=record.state, report=record.report)
            else:
                last = replace(last, merged=True)
    return last


def catch_up(layout: Layout, catalogue: Catalogue) -> int:
    """Applies the batches after the catalogue's position and returns their number.

    Raises :class:`CorruptArchive` if the catalogue contains something that is in no journal, and the errors of
    :func:`refuse_past`.
    """
    refuse_past(catalogue)
    position = catalogue.position()
    behind = _journals_from(layout, catalogue, position)
    if _is_level(catalogue, behind, position):
        return 0
    return _follow(layout, catalogue, behind, position)


def refuse_newer(layout: Layout, catalogue: Catalogue) -> None:
    """Raises CorruptArchive if the catalogue contains a run that has no journal: it is newer, or another archive's."""
    _journals_from(layout, catalogue, catalogue.position())


def _journals_from(layout: Layout, catalogue: Catalogue, position: Position) -> list[JournalFile]:
    files = journals(layout)
    if position.run and position.run not in {journal.tist for journal in files}:
        raise CorruptArchive(
            f"the catalogue {catalogue.url} contains run {position.run}, which has no journal in {layout.runs}",
            hint=_OLDER,
        )
    return [f for f in files if f.tist >= position.run]


def refuse_past(catalogue: Catalogue) -> None:
    """Raises CatalogueError for a catalogue made with ``--until``: nothing can be added to it."""
    until = catalogue.position().until
    if until:
        raise CatalogueError(
            f"the catalogue {catalogue.url} is read-only: it shows the archive as of run {until}",
            hint="use the archive's own catalogue, or make one with 'archec rebuild' without --until",
        )


def is_behind(layout: Layout, catalogue: Catalogue, *, trusting: bool = True) -> bool:
    """Whether the catalogue may be behind the journals. Cheap, and takes no lock.

    For a run that may be resumed, the number of the last batch in its journal is trusted unless ``trusting`` is false,
    as in checks for damage.
    """
    position = catalogue.position()
    behind = [f for f in journals(layout) if f.tist >= position.run and not _is_unwritten(f)]
    if position.until or _is_level(catalogue, behind, position):
        return False
    if not trusting or len(behind) != 1 or behind[0].tist != position.run:
        return True
    return _newest_batch(behind[0]) != position.batch


def _is_unwritten(journal: JournalFile) -> bool:
    """Whether a journal is that of a run that stopped before it wrote anything, for lack of space."""
    with suppress(OSError):
        return not journal.finished and journal.path.is_file() and not journal.path.stat().st_size
    return False


def _newest_batch(journal: JournalFile) -> int:
    if not journal.finished and journal.path.exists():
        return newest_batch(journal.path)
    return max((batch.n for batch in read_batches(journal.path)), default=0)  # the run was closed, perhaps just now


def _is_level(catalogue: Catalogue, behind: Sequence[JournalFile], position: Position) -> bool:
    if not behind:
        return not position.run
    known = catalogue.run(position.run) if len(behind) == 1 and behind[0].finished else None
    return known is not None and known.state not in UNFINISHED  # it has the end, and therefore all of the journal


def rebuild(layout: Layout, catalogue: Catalogue, *, until: int = 0, meter: Meter = SILENT) -> int:
    """Empties the catalogue and fills it again from the archive directory alone. Returns the number of batches. With
    ``until``, a run (:func:`need_run`), it shows the archive as of the end of that run and becomes read-only.

    All journals are read beforehand. The catalogue is left unchanged if one of them is damaged, or if it has followed
    them to a batch that no longer exists and that no ``fork`` declares as lost. Raises :class:`CorruptJournal` and
    :class:`CorruptArchive`.
    """
    foreign = not_of_this_store(layout)
    if foreign:
        raise CorruptArchive(
            f"{layout.runs}: {foreign}: nothing was rebuilt, the catalogue is unchanged",
            hint="restore the archive's own journals from a second copy",
        )
    files = [journal for journal in journals(layout) if not until or journal.tist <= until]
    position = _position(catalogue)
    if until:
        if position != Position() and not position.until:
            raise CatalogueError(
                f"{catalogue.url} is the catalogue of an archive: nothing was rebuilt", hint="give a new database"
            )
        position = Position()
    meter.phase("checking journals", None)
    try:
        known, lines = _check(files, position, meter)
    except CorruptArchive as error:
        raise CorruptJournal(
            f"{error.message}: nothing was rebuilt, the catalogue is unchanged",
            hint="'archec verify --repair-from COPY' restores a good journal from a second copy",
        ) from error
    if not known:
        raise CorruptArchive(
            f"{layout.runs}: batch {position.batch} of run {position.run}, the position of the catalogue "
            f"{catalogue.url}, is missing: nothing was rebuilt",
            hint=_OLDER,
        )
    catalogue.clear()
    end = Position(until, sys.maxsize, until=until) if until else None
    meter.phase("filling the catalogue", lines)
    return _follow(layout, catalogue, files, Position(), meter, end)


def need_run(layout: Layout, run: int) -> None:
    """Raises :class:`NotHeld` if there is no such run."""
    if all(journal.tist != run for journal in journals(layout)):
        raise NotHeld(f"there is no run {run}", hint="'archec runs' lists them")


def follow_until(layout: Layout, catalogue: Catalogue, end: Position, meter: Meter = SILENT) -> int:
    """Fills an empty catalogue from the journals up to the batch ``end``. Returns the number of batches. If ``end`` has
    an ``until``, the catalogue is one made with ``--until`` that run."""
    files = [journal for journal in journals(layout) if journal.tist <= end.run]
    return _follow(layout, catalogue, files, Position(), meter, end._replace(until=end.run if end.until else 0))


def not_of_this_store(layout: Layout) -> str:
    """Why the journals cannot belong to the obis in the store: there are none, or none of them mentions a tist of the
    store. Empty if they may belong to it, also if a damaged journal prevents the check."""
    held = set(held_tists(layout))
    if not held:
        return ""
    files = journals(layout)
    if not files:
        return "there are obis in the store, but no journals"
    for journal in files:
        try:
            heads: Iterator[RunStart | DataSetRead] = records(journal.path, RunStart, DataSetRead)
            if any(not held.isdisjoint(_tists(record)) for record in heads):
                return ""
        except CorruptJournal:
            return ""
    return "these journals mention none of the tists in the store: they belong to another archive"


def tobis_in_journals(layout: Layout, ids: Collection[str]) -> dict[str, Obi]:
    """Derives tobis from the journals, for those that a database has refused. Reads all journals."""
    words = [msgspec.json.encode(obi) for obi in ids]
    found: dict[str, Obi] = {}
    for journal in journals(layout):
        for batch in read_batches(journal.path):
            for record in records_in(batch, journal.path, ObiChange, obis="tobi", words=words):
                if record.id in ids:
                    found[record.id] = fold_obi(found.get(record.id), record, batch.stamp)
    return found


def _tists(record: RunStart | DataSetRead) -> set[int]:
    return {record.tist, record.data_set} if isinstance(record, RunStart) else {record.data_set.tist}


def _position(catalogue: Catalogue) -> Position:
    """The position of a catalogue; the initial one if the catalogue cannot be read."""
    try:
        return catalogue.position()
    except CatalogueGone:
        raise
    except CatalogueError:
        return Position()


def _check(files: Sequence[JournalFile], position: Position, meter: Meter) -> tuple[bool, int]:
    """Returns whether the journals contain the batch of ``position``, or a fork that declares it lost, and how many
    lines they have. Raises CorruptArchive if a journal is invalid."""
    lines, head, known = 0, NO_BATCH, not (position.run and position.head)
    for journal in files:
        for batch in read_batches(journal.path):
            _linked(journal, batch, head)
            head = batch.sha256
            known |= head == position.head
            for record in all_records_in(batch, journal.path):
                known |= isinstance(record, Fork) and record.lost.sha256 == position.head
            lines += len(batch.lines)
            meter.at(lines, f"run {journal.tist}")
    return known, lines


def _linked(journal: JournalFile, batch: JournalBatch, head: str) -> None:
    """Raises BrokenChain if a batch does not continue the one whose sha256 is ``head``."""
    if batch.prev != head:
        raise BrokenChain(
            f"{journal.path}: batch {batch.n} does not follow the one before it: a journal is missing or was replaced",
            hint="'archec check' shows which; 'archec verify --repair-from COPY' restores good ones from a second copy",
            path=journal.path,
        )


def _follow(
    layout: Layout,
    catalogue: Catalogue,
    files: Sequence[JournalFile],
    position: Position,
    meter: Meter = SILENT,
    end: Position | None = None,
) -> int:
    applied = lines = 0
    head = position.head or NO_BATCH
    for journal in files:
        last = 0
        for batch in read_batches(journal.path):
            if end is not None and (journal.tist, batch.n) > (end.run, end.batch):
                return applied
            last = batch.n
            if journal.tist == position.run and batch.n <= position.batch:
                if batch.n == position.batch and batch.sha256 != head:
                    raise BrokenChain(
                        f"{journal.path}: batch {batch.n} is not the one that the catalogue {catalogue.url} knows",
                        hint=f"one of the two was replaced: 'archec check' compares; {_OLDER}",
                        path=journal.path,
                    )
                continue
            _linked(journal, batch, head)
            head = batch.sha256
            reached = Position(journal.tist, batch.n, batch.stamp, batch.sha256, end.until if end is not None else 0)
            write_accepted(catalogue, changes_of(all_records_in(batch, journal.path), reached, catalogue))
            applied += 1
            lines += len(batch.lines)
            meter.at(lines, f"run {journal.tist}")
        if journal.tist == position.run and last < position.batch:
            raise CorruptArchive(
                f"{journal.path}: ends with batch {last}, and the catalogue {catalogue.url} knows of {position.batch}",
                hint=_OLDER,
            )
    return applied
