"""Recovery: the catalogue follows the journals; after a kill, and from nothing (``archec rebuild``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from archec.catalogue.fold import changes_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Position
from archec.catalogue.records import Record, RunEnd, RunStart, decode
from archec.errors import CorruptArchive, CorruptJournal
from archec.store.journal import JournalFile, journals, read_batches
from archec.store.journalfile import newest_batch
from archec.store.layout import Layout

__all__ = ["CATCH_UP", "UNFINISHED", "LastRun", "catch_up", "is_behind", "last_run", "rebuild"]

UNFINISHED = ("running", "failed", "budget")
"""The states of a run that ``--resume`` may carry on with while its journal is open."""
CATCH_UP = "catch up"
"""What the run lock says where a reader holds it for a moment."""

_HEADS = (b'{"type":"run"', b'{"type":"end"', b'{"type":"data-set"')

Told = Callable[[int, int], None]


def _quiet(lines: int, run: int) -> None:
    """Tells nothing."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run of the archive as its journal has it.

    ``start`` is None where the journal holds no whole batch yet; ``state`` is ``running`` where the
    run has not come to an end line; ``merged``: its data set was read and merged; ``report`` is that of
    its newest end line as JSON text.
    """

    journal: JournalFile
    start: RunStart | None = None
    state: str = "running"
    merged: bool = False
    report: str = ""

    @property
    def resumable(self) -> bool:
        """Whether ``--resume`` would carry on with it."""
        return not self.journal.finished and self.start is not None and self.state in UNFINISHED


def last_run(layout: Layout) -> LastRun | None:
    """The newest run, None for an archive without any. Reads an unfinished journal whole."""
    files = journals(layout)
    if not files:
        return None
    last = LastRun(files[-1])
    if last.journal.finished:
        return replace(last, state="done")
    for batch in read_batches(last.journal.path):
        last = replace(last, state="running")
        for line in batch.lines:
            if line.startswith(_HEADS):
                record = decode(line, f"{last.journal.path}, batch {batch.n}")
                if isinstance(record, RunStart):
                    last = replace(last, start=record)
                elif isinstance(record, RunEnd):
                    last = replace(last, state=record.state, report=record.report)
                else:
                    last = replace(last, merged=True)
    return last


def catch_up(layout: Layout, catalogue: Catalogue, *, told: Told = _quiet) -> int:
    """Applies what the journals hold beyond the catalogue's position; the number of batches.

    Raises :class:`CorruptArchive` where the catalogue knows of what no journal holds.
    """
    position = catalogue.position()
    files = journals(layout)
    if position.run and position.run not in {journal.tist for journal in files}:
        raise CorruptArchive(
            f"the catalogue {catalogue.url} knows of run {position.run}, of which {layout.runs} has no journal",
            hint="is it the catalogue of another archive? 'archec rebuild' makes a fresh one",
        )
    behind = [f for f in files if f.tist >= position.run]
    if _is_level(catalogue, behind, position):
        return 0
    return _follow(layout, catalogue, behind, position, told)


def is_behind(layout: Layout, catalogue: Catalogue, *, trusting: bool = True) -> bool:
    """Whether there may be something to catch up with; cheap, and takes no lock.

    Where a run may be resumed, the end of its journal is believed; who looks for damage is not ``trusting``.
    """
    position = catalogue.position()
    behind = [f for f in journals(layout) if f.tist >= position.run]
    if _is_level(catalogue, behind, position):
        return False
    open_run = trusting and len(behind) == 1 and not behind[0].finished and behind[0].tist == position.run
    return not (open_run and newest_batch(behind[0].path) == position.batch)


def _is_level(catalogue: Catalogue, behind: Sequence[JournalFile], position: Position) -> bool:
    if not behind:
        return not position.run
    return len(behind) == 1 and behind[0].finished and _ended(catalogue, position.run)


def _ended(catalogue: Catalogue, run: int) -> bool:
    """Whether the catalogue has the run's last line, and so all of its journal."""
    newest = catalogue.newest_runs(run + 1, 1)
    return bool(newest) and newest[0].tist == run and newest[0].state not in UNFINISHED


def rebuild(layout: Layout, catalogue: Catalogue, *, told: Told = _quiet, checked: Told = _quiet) -> int:
    """Empties the catalogue and derives it from the archive folder alone; the number of batches.

    All journals are read beforehand (``checked`` is told of it): where one of them is damaged, the catalogue stays
    as it is. Raises :class:`CorruptJournal`.
    """
    files = journals(layout)
    try:
        _check(files, checked)
    except CorruptArchive as error:
        raise CorruptJournal(
            f"{error.message}: nothing was rebuilt, the catalogue is as it was",
            hint="'archec verify --repair-from COPY' takes a good journal from a second copy",
        ) from error
    catalogue.clear()
    return _follow(layout, catalogue, files, Position(), told)


def _check(files: Sequence[JournalFile], told: Told) -> None:
    lines = 0
    for journal in files:
        for batch in read_batches(journal.path):
            for line in batch.lines:
                decode(line, f"{journal.path}, batch {batch.n}")
            lines += len(batch.lines)
            told(lines, journal.tist)


def _follow(
    layout: Layout, catalogue: Catalogue, files: Sequence[JournalFile], position: Position, told: Told
) -> int:
    applied = lines = 0
    for journal in files:
        last = 0
        for batch in read_batches(journal.path):
            last = batch.n
            if journal.tist == position.run and batch.n <= position.batch:
                continue
            records: list[Record] = [decode(line, f"{journal.path}, batch {batch.n}") for line in batch.lines]
            reached = Position(journal.tist, batch.n, batch.stamp)
            catalogue.write(changes_of(records, reached, catalogue))
            applied += 1
            lines += len(batch.lines)
            told(lines, journal.tist)
        if journal.tist == position.run and last < position.batch:
            raise CorruptArchive(
                f"{journal.path}: ends with batch {last}, and the catalogue {catalogue.url} knows of {position.batch}",
                hint="the archive folder is older than the catalogue: restore it, or run 'archec rebuild'",
            )
    return applied
