"""Commit: bytes to disk, then the journal, then the catalogue (invariant 2), in batches.

Everything that a run stores goes through one :class:`Committer`, which ensures this order. After a kill between two of
the steps, :mod:`archec.archive.opening` updates the catalogue.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import msgspec

from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange, Record, changes_of, encode
from archec.catalogue.model import Position
from archec.catalogue.refused import write_accepted
from archec.errors import StorageFull, storage_errors
from archec.store.durable import hit
from archec.store.journal import JournalWriter
from archec.store.layout import Layout
from archec.store.writer import CommitResult, HardLink, Placement, Redirect, Writer


class CommitItem(NamedTuple):
    """One record and the files, symbolic links and hard links that must be on disk before it."""

    record: Record
    placement: Placement | None = None
    links: tuple[Redirect, ...] = ()
    restated: tuple[HardLink, ...] = ()


_MOST_BYTES = 8 << 20
"""Bytes of journal lines after which a batch is committed, regardless of the number of items. With one more line, it
fits into a batch of the journal."""

_PACE = 2000, 5.0
"""Items and seconds after which a batch is committed, unless a phase sets its own pace."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_FINE = CommitResult("stored", 0, "", "")

OnRefused = Callable[[CommitItem, CommitResult], None]


class Commits:
    """The receiver of items from the phases of a run. This one stores nothing, for a dry run; see :class:`Committer`.
    """

    def add(self, item: CommitItem) -> None:
        """Adds an item."""

    def tick(self) -> None:
        """Commits if the oldest item has waited long enough."""

    def commit(self) -> None:
        """Commits all pending items."""

    @property
    def uncommitted(self) -> list[CommitItem]:
        """The pending items, including the batch whose commit failed: none of them is in the journal."""
        return []

    @property
    def batches(self) -> int:
        """The number of batches in the run's journal. What the catalogue says changes with each."""
        return 0

    def discard(self, temp: str) -> None:
        """Removes a temporary file that is not needed."""

    def pace(self, most: int, seconds: float) -> None:
        """Batches of at most ``most`` items, committed after ``seconds`` at the latest."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays SIGINT and SIGTERM within the block; the first one received is raised after it. Only for the main thread.

    An interrupt between renaming files and journalling them would leave orphans.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def delay(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = [(number, signal.signal(number, delay)) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


class Committer(Commits):
    """Collects items and commits them in batches (:meth:`pace`).

    Committing in a thread was tried: the many short system calls and the run's own work compete for the interpreter,
    and both get slower. Worker processes continue during a commit.

    An item is dropped, and ``on_refused`` called, if other bytes are already held at one of its paths (those of a
    template are then stored under the path of the run), or if the bytes that it restates are not held: the catalogue
    never refers to bytes that are not on disk.
    """

    def __init__(self, store: Writer, journal: JournalWriter, catalogue: Catalogue, *, min_free: float = 0.0) -> None:
        self.store, self._journal, self._catalogue = store, journal, catalogue
        self._run, self._most, self._seconds = journal.tist, *_PACE
        self._items: list[CommitItem] = []
        self._lines: list[bytes] = []
        self._failing: list[CommitItem] = []
        self._bytes = 0
        self._since = time.monotonic()
        # A run's tist may be ahead of the clock, but a stamp is never less than the tist of its run, because readers
        # that follow the catalogue by stamps query what was committed after a run.
        self._stamp = max(catalogue.position().stamp, self._run)
        self.on_refused: OnRefused = lambda item, outcome: None
        self._min_free = min_free
        self._behind = False

    def discard(self, temp: str) -> None:
        self.store.discard(temp)

    def pace(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds

    def add(self, item: CommitItem) -> None:
        if not self._items:
            self._since = time.monotonic()
        line = encode(item.record)
        self._items.append(item)
        self._lines.append(line)
        self._bytes += len(line)
        if len(self._items) >= self._most or self._bytes >= _MOST_BYTES:
            self.commit()

    def tick(self) -> None:
        if self._items and time.monotonic() - self._since >= self._seconds:
            self.commit()

    def commit(self) -> None:
        if self._items:
            items, lines = self._items, self._lines
            self._items, self._lines, self._bytes = [], [], 0
            self._commit(items, lines)

    @property
    def uncommitted(self) -> list[CommitItem]:
        return [*self._failing, *self._items]

    @property
    def batches(self) -> int:
        return self._journal.batches

    def finish(self) -> None:
        """Completes the journal of the run."""
        self._journal.finish()

    def note(self, record: Record) -> None:
        """Records a failure of the run, and drops all pending items."""
        self._items, self._lines, self._failing, self._bytes = [], [], [], 0
        self._record([record], [encode(record)])

    @_undisturbed()
    def _commit(self, items: list[CommitItem], lines: list[bytes]) -> None:
        self._failing = items
        check_space(self.store.layout, self._min_free)
        placed = self._place(items)
        if placed != items:
            lines = [encode(item.record) for item in placed]
        if not placed:
            self._failing = []
            return
        self._record([item.record for item in placed], lines)

    def _record(self, records: list[Record], lines: list[bytes]) -> None:
        """Writes records, encoded as ``lines``, to the journal, then to the catalogue.

        Once writing to the catalogue has failed, it is not written to again in this run: it must never contain a batch
        without its predecessors. The next run applies them all, in order.
        """
        self._stamp = max(self._stamp, int(time.time()))
        number = self._journal.append(lines, self._stamp)
        self._failing = []
        if self._behind:
            return
        self._behind = True
        hit("catalogue.before-write")
        position = Position(self._run, number, self._stamp, self._journal.head)
        write_accepted(self._catalogue, changes_of(records, position, self._catalogue))
        hit("catalogue.after-write")
        self._behind = False

    def _place(self, items: list[CommitItem]) -> list[CommitItem]:
        """Makes the files of a batch durable and returns the items whose records are then valid.

        If other bytes are held at the path of a template, its own are stored under the tist of this run.
        """
        kept: list[CommitItem] = []
        while items:
            again: list[CommitItem] = []
            for item, outcome in zip(items, self._outcomes(items), strict=True):
                if outcome.kind in ("stored", "adopted"):
                    kept.append(item)
                    continue
                other = self._elsewhere(item, outcome) if outcome.kind == "occupied" else item
                if other is not item:
                    again.append(other)
                    continue
                if item.placement is not None:
                    self.discard(item.placement.temp)
                self.on_refused(item, outcome)
            items = again
        return kept

    def _outcomes(self, items: Sequence[CommitItem]) -> list[CommitResult]:
        """Commits the files of all items. Returns for each item the first problem, or success."""
        placements = [item.placement for item in items if item.placement is not None]
        links = [link for item in items for link in item.links]
        restated = [link for item in items for link in item.restated]
        owners = [n for n, item in enumerate(items) if item.placement is not None]
        owners += [n for n, item in enumerate(items) for _ in item.links]
        owners += [n for n, item in enumerate(items) for _ in item.restated]
        found = [_FINE] * len(items)
        for n, result in zip(owners, self.store.commit(placements, links, restated), strict=True):
            if result.kind not in ("stored", "adopted") and found[n] is _FINE:
                found[n] = result
        return found

    def _elsewhere(self, item: CommitItem, outcome: CommitResult) -> CommitItem:
        """Moves the bytes of a template whose path is occupied to the path of the run. Returns the same item if that is
        impossible."""
        record, placement = item.record, item.placement
        if not isinstance(record, ObiChange) or record.kind != "tobi":
            return item
        if placement is not None and placement.tist == outcome.tist != self._run:
            held = placement._replace(tist=self._run)
            links = tuple(
                link._replace(from_tist=self._run)
                if link.from_tist == placement.tist and record.put.get(link.tist) == placement.sha256
                else link
                for link in item.restated
            )
            return item._replace(
                record=relocated(record, placement.tist, placement.sha256, self._run), placement=held, restated=links
            )
        for link in item.restated:
            if link.tist == outcome.tist:
                rest = tuple(other for other in item.restated if other is not link)
                return item._replace(record=unlinked(record, link.tist, link.from_tist), restated=rest)
        return item


@contextmanager
def committing(archive: Archive, run: int) -> Iterator[Committer]:
    """Yields the committer for a run of a locked archive, with the run's journal."""
    layout, catalogue = archive.layout, archive.catalogue
    with JournalWriter(layout, run, head=catalogue.position().head) as journal, Writer(layout) as writer:
        yield Committer(writer, journal, catalogue, min_free=archive.config.min_free)


def check_space(layout: Layout, min_free: float) -> None:
    """Raises StorageFull if a smaller share of the disk or of its inodes is free."""
    with storage_errors(layout.root):
        disk = os.statvfs(layout.root)
    for of, free, size in (
        ("the disk", disk.f_bavail, disk.f_blocks), ("the disk's inodes", disk.f_favail, disk.f_files),
    ):  # fmt: skip
        if free < min_free * size:
            raise StorageFull(
                f"{layout.root}: less than {min_free:.1%} of {of} is free",
                hint="free some space, or lower min_free, then gather again",
            )


def relocated(record: ObiChange, tist: int, sha256: str, at: int) -> ObiChange:
    """The record for contents stored under the tist ``at`` instead of ``tist``, where other bytes are held."""
    claims = tuple(
        msgspec.structs.replace(claim, at=at) if claim.state == sha256 and claim.bytes_at == tist else claim
        for claim in record.claims
    )
    notes = {
        when: msgspec.structs.replace(note, at=at)
        if record.put.get(when) == sha256 and (note.at or when) == tist
        else note
        for when, note in record.notes.items()
    }
    kept = dict(_kept(record))
    kept.pop(tist, None)
    return msgspec.structs.replace(record, claims=claims, notes=notes, kept={**kept, at: sha256})


def unlinked(record: ObiChange, tist: int, at: int) -> ObiChange:
    """The record for an entry whose path holds other bytes: its own are stored under the tist ``at``."""
    notes = dict(record.notes)
    notes[tist] = msgspec.structs.replace(notes[tist], at=at)
    kept = {when: sha256 for when, sha256 in _kept(record).items() if when != tist}
    return msgspec.structs.replace(record, notes=notes, kept=kept)


def _kept(record: ObiChange) -> Mapping[int, str]:
    if record.kept is not None:
        return record.kept
    return {tist: state for tist, state in record.put.items() if state is not None}
