"""Repair: restores missing and bad files from a second copy, if the copy's sha256 matches.

Bad files are never overwritten: they are moved to quarantine before good bytes are put in their place. The two files
that describe the tree, ``layout.json`` and ``0=archec_1.0``, are rewritten if they are damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from archec.archive.journal_records import records_in
from archec.archive.opening import Archive, scratch_folder
from archec.audit.disk import FAN, judge
from archec.audit.expected import Entry
from archec.audit.findings import BY_COPY, Finding
from archec.audit.journals import Gap, run_of
from archec.audit.quarantine import quarantine
from archec.catalogue.journal_lines import RunEnd, RunStart
from archec.catalogue.model import Position, Run
from archec.config import Config
from archec.digest import Digests
from archec.errors import (
    ArchecError,
    ConfigError,
    CorruptArchive,
    CorruptJournal,
    NotHeld,
    StorageFailed,
    StorageFull,
    storage_errors,
)
from archec.files import read_file
from archec.ids import is_url, kind_of, slash_variant
from archec.store.durable import Disk, atomic_write, open_directory, temporary_file
from archec.store.journal import JournalBatch, read_batches
from archec.store.layout import (
    DESCRIPTOR,
    NAMASTE,
    NOTICE,
    RUNS,
    Directories,
    Layout,
    descriptor_of,
    file_name,
    journal_of,
    journals,
    open_store,
    tist_path,
)
from archec.store.lock import RunLock
from archec.store.reader import held_tists, locate
from archec.store.writer import Placement, Redirect, Writer

if TYPE_CHECKING:
    from archec.audit.copies import Copy  # imports an HTTP client, which is rarely needed


class Repair:
    """Repairs one archive from one copy."""

    def __init__(self, archive: Archive, copy: Copy) -> None:
        self._archive, self._layout, self._catalogue = archive, archive.layout, archive.catalogue
        self._copy = copy
        self.where = copy.where

    def at_work(self) -> RunLock:
        """The run lock, to be held. Raises :class:`archec.errors.LockHeld` if a run is active."""
        return RunLock(self._layout, "repair")

    # -- obis -------------------------------------------------------------------------------------

    def entry(self, entry: Entry, finding: Finding) -> Finding:
        """Tries to repair a finding; returns it with how it was repaired, or why not.

        Raises :class:`StorageFull`. The caller checks the entry again, and must be within :meth:`at_work`.
        """
        if finding.code not in BY_COPY:
            return replace(finding, message=f"{finding.message} (no copy of the files helps: 'archec rebuild')")
        try:
            done = self._link(entry, finding) if entry.target else None
            return replace(finding, fixed=done or self._file(entry, finding))
        except StorageFull:
            raise
        except ArchecError as error:
            return replace(finding, message=f"{finding.message}; not repaired: {error.message}")

    def _in_the_way(self, entry: Entry) -> str:
        """The relative path of a link or a file in the place of one of the directories above an entry; empty if there
        is none."""
        parts = self._layout.directory(entry.tist, entry.id).split("/")
        for path in ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1)):
            where = self._layout.root / path
            if os.path.lexists(where) and (where.is_symlink() or not where.is_dir()):
                return path
        return ""

    def _clear_way(self, entry: Entry) -> None:
        """Moves links and files in the place of directories above an entry to quarantine, if it can be repaired."""
        while path := self._in_the_way(entry):
            why = Finding("directory-link", path, "no directory stands in the place of a directory of the store")
            quarantine(self._layout, path, why)

    def _link(self, entry: Entry, finding: Finding) -> str | None:
        """Recreates a redirect's link; None if the bytes that it led to are not known to be held."""
        fobi = self._catalogue.obis("fobi", [entry.target]).get(entry.target)
        there = fobi.history.entry_at(entry.tist) if fobi is not None else None
        if there is None or there[1] != entry.sha256:
            return None
        try:
            locate(self._layout, there[0], entry.target)
        except (NotHeld, CorruptArchive) as error:
            raise NotHeld(f"what it leads to must be repaired first: {error.message}") from error
        self._clear_way(entry)
        moved = self._quarantine(entry, finding)
        link = Redirect(entry.tist, entry.id, there[0], entry.target)
        with Writer(self._layout) as writer:
            (outcome,) = writer.commit([], [link])
        if outcome.kind not in ("stored", "adopted"):
            raise CorruptArchive("something else has taken its place")
        return f"linked again to {entry.target}{moved}"

    def _file(self, entry: Entry, finding: Finding) -> str:
        """Restores the copy's bytes, if they match."""
        if self._in_the_way(entry):  # nothing can be written below that: the bytes are fetched once only to check them
            digests = Digests()
            self._fetch(entry, digests.update)
            _must_be(entry, digests.sha256)
            self._clear_way(entry)
        with Writer(self._layout) as writer:
            with writer.temp(entry.tist, entry.id) as temp:
                self._fetch(entry, temp.write)
                stored = temp.close(sync=True)
            try:
                _must_be(entry, stored.sha256)
                moved = self._quarantine(entry, finding)
                (outcome,) = writer.commit([Placement(stored.temp, entry.tist, entry.id, stored.sha256)])
            finally:
                writer.discard(stored.temp)
        if outcome.kind not in ("stored", "adopted"):
            raise CorruptArchive("something else has taken its place")
        return f"repaired from {self.where}{moved}"

    def _fetch(self, entry: Entry, take: Callable[[bytes], object]) -> None:
        """Passes the copy's bytes to ``take``, up to the limit."""
        from archec.audit.copies import MOST

        size, most = 0, entry.size if entry.size >= 0 else MOST
        for data in self._copy.obi(entry.tist, entry.id):
            size += len(data)
            if size > most:
                raise CorruptArchive(f"the copy's file is larger than {most} bytes")
            take(data)

    def _quarantine(self, entry: Entry, finding: Finding) -> str:
        """Moves a bad file to quarantine; returns a description."""
        path = self._layout.path(entry.tist, entry.id)
        if self._leads_to_bad_bytes(entry, path, finding):
            raise CorruptArchive("it is a link to other bytes that are bad, and must be repaired first")
        return _moved_to(quarantine(self._layout, path, finding))

    def _leads_to_bad_bytes(self, entry: Entry, path: str, finding: Finding) -> bool:
        """Whether there is a valid link, and not the link but its target's bytes are bad."""
        where = self._layout.root / path
        if not where.is_symlink():
            return False
        with Directories(self._layout) as directories:
            if judge(directories, path) is not None:
                return False
        hops = locate(self._layout, entry.tist, entry.id).hops
        last, target = hops[-1], self._target(entry)
        if target is not None and hops[0].name not in map(file_name, (target, slash_variant(target) or target)):
            return False  # nor is it the link that belongs there
        if last.id is None:
            return True
        found = self._catalogue.obis(kind_of(last.id), [last.id])
        obi = found.get(last.id)
        return obi is None or obi.history.entry_at(last.tist) != (last.tist, finding.found)

    def _target(self, entry: Entry) -> str | None:
        """The id that the URL of an entry redirected to, empty if it did not; None if that is not known."""
        if entry.target or not is_url(entry.id):
            return entry.target
        fobi = self._catalogue.obis("fobi", [entry.id]).get(entry.id)
        note = fobi.notes.get(entry.tist) if fobi is not None else None
        return note.target if note is not None else None

    # -- journals ---------------------------------------------------------------------------------

    def journal(self, tist: int, ours: Path | None, why: Finding) -> str:
        """Replaces a run's journal ``ours`` (None: missing) because of ``why``. Returns what was done.

        Raises an ArchecError with the reason if it cannot be replaced. Only within :meth:`at_work`.
        """
        from archec.audit.copies import fetch_journal

        with scratch_folder(self._archive.config) as scratch:
            candidate = fetch_journal(self._copy, tist, scratch)
            run = self._catalogue.run(tist)
            like = None if why.code == "journal-misnamed" else ours
            objection = journal_objection(candidate, like, tist, run, self._catalogue.position(), self._end_of(tist))
            if objection:
                raise CorruptArchive(f"the copy's journal does not fit: {objection}")
            return self._placed(candidate, ours, why)

    def gap(self, gap: Gap) -> list[Finding]:
        """Restores the journals that are missing between two runs: those of the copy that lead from the last batch of
        the one to the first of the other, or the first one itself, if the rest of it is missing. Returns what was
        found and repaired. Otherwise like :meth:`journal`."""
        from archec.audit.copies import fetch_journal

        runs = self._copy.runs()
        if runs is None:
            raise NotHeld(f"{self.where}: does not list its journals")
        with scratch_folder(self._archive.config) as scratch:
            found, head = list[Path](), gap.head
            for run in runs:
                if gap.before < run < gap.after and head != gap.prev:
                    candidate = fetch_journal(self._copy, run, scratch)
                    leads_to = _leads_from(candidate, run, head)
                    if leads_to:
                        found.append(candidate)
                        head = leads_to
            if head != gap.prev or not found:
                try:
                    return [self._cut(gap)]
                except (CorruptArchive, NotHeld) as error:
                    raise CorruptArchive("the copy has no journals that lead from the one to the other") from error
            return [self._filled(candidate) for candidate in found]

    def _filled(self, candidate: Path) -> Finding:
        """Puts the copy's journal where there is none, or one without batches, which is not part of the chain."""
        ours = journal_of(self._layout, run_of(candidate.name))
        code, what = ("journal-missing", "was not there") if ours is None else ("journal-damaged", "has no batches")
        why = Finding(code, f"{RUNS}/{candidate.name}", f"it {what}, as only the chain of batches shows")
        return replace(why, fixed=self._placed(candidate, ours.path if ours is not None else None, why))

    def _cut(self, gap: Gap) -> Finding:
        """Restores the journal before a gap, whose last batches are missing."""
        ours = journal_of(self._layout, gap.before)
        if ours is None:
            raise NotHeld("it is the first one")
        message = "its end is missing, as only the chain of batches shows"
        why = Finding("journal-damaged", f"{RUNS}/{ours.path.name}", message)
        return replace(why, fixed=self.journal(gap.before, ours.path, why))

    def _end_of(self, tist: int) -> str:
        """The sha256 of the last batch of a run's journal, as stated by the next journal; empty if unknown."""
        after = next((one for one in journals(self._layout) if one.tist > tist), None)
        first = next(_readable(after.path), None) if after is not None else None
        if after is None or first is None:
            return ""
        start = next(records_in(first, after.path, RunStart), None)
        return first.prev if start is not None and start.tist == after.tist else ""

    def _placed(self, candidate: Path, ours: Path | None, why: Finding) -> str:
        runs, disk = self._layout.runs, Disk()
        with open_directory(self._layout.root) as root_fd:
            disk.mkdir(RUNS, root_fd, str(runs))
            disk.fsync_dir(root_fd, str(self._layout.root))
        with open_directory(runs) as dir_fd:
            with temporary_file(disk, dir_fd, str(runs)) as (fd, temp):
                with candidate.open("rb") as file:
                    while data := file.read(1 << 18):
                        disk.write(fd, data, str(runs / temp))
                os.fchmod(fd, 0o444 if candidate.suffix == ".gz" else 0o644)
                disk.fsync(fd, str(runs / temp))
                moved = quarantine(self._layout, f"{RUNS}/{ours.name}", why) if ours is not None else None
                if disk.rename_noreplace(temp, dir_fd, candidate.name, dir_fd, str(runs / candidate.name)) != "done":
                    raise CorruptArchive(f"{runs / candidate.name}: is there already")
            disk.fsync_dir(dir_fd, str(runs))
        return f"repaired from {self.where}{_moved_to(moved)}"


def _must_be(entry: Entry, sha256: str) -> None:
    """Raises :class:`CorruptArchive` if the copy's bytes are not those of an entry."""
    if sha256 != entry.sha256:
        raise CorruptArchive(f"the copy's bytes have the sha256 {sha256}")


def _moved_to(path: str | None) -> str:
    return f"; what was there is in {path}" if path else ""


def journal_objection(
    copy: Path, ours: Path | None, tist: int, run: Run | None, position: Position, end: str
) -> str:
    """Why the journal at ``copy`` must not replace ``ours``, which is damaged or missing (None); empty if it may.

    It must be readable to its end, be that of the run, begin with all batches that can still be read in ``ours``, end
    with the batch ``end`` if it is known, and contain what the catalogue (its ``run`` and ``position``) has followed.
    """
    readable = _readable(ours) if ours is not None else iter(())
    state, started, last = "running", False, ""
    at_position = tist != position.run
    try:
        for batch in read_batches(copy):
            mine, last = next(readable, None), batch.sha256
            if mine is not None and (mine.stamp, mine.lines) != (batch.stamp, batch.lines):
                return f"its batch {batch.n} is not the one that is held"
            for record in records_in(batch, copy, RunStart, RunEnd):
                if isinstance(record, RunEnd):
                    state = record.state
                elif isinstance(record, RunStart):
                    started = True
                    if record.tist != tist:
                        return f"it is the journal of run {record.tist}"
            if not at_position and batch.n == position.batch:
                if batch.stamp != position.stamp or (position.head and batch.sha256 != position.head):
                    return f"its batch {batch.n} is not the one that the catalogue knows"
                at_position = True
    except CorruptJournal as error:
        return f"it is damaged, too: {error.message}"
    if next(readable, None) is not None:
        return "it is older: it has less batches than can be read of the one that is held"
    if not started:
        return "it holds no run"
    if end and last != end:
        return "it does not end with the batch that the journal after it follows"
    if not at_position or (run is not None and run.tist != position.run and run.state != state):
        return "it is older: it lacks what the catalogue knows"
    return ""


def _leads_from(copy: Path, run: int, head: str) -> str:
    """The sha256 of the last batch of the journal at ``copy``; empty if it has no batches. Raises
    :class:`CorruptArchive` if the journal is not that of the run, or does not follow the batch ``head``."""
    ends = ("", "")
    for batch in read_batches(copy):
        ends = (ends[0] or batch.prev, batch.sha256)
    if not ends[1]:
        return ""
    if objection := journal_objection(copy, None, run, None, Position(), ""):
        raise CorruptArchive(f"the copy's journal of run {run} does not fit: {objection}")
    if ends[0] != head:
        raise CorruptArchive(f"the copy's journal of run {run} does not follow what is held")
    return ends[1]


def _readable(path: Path) -> Iterator[JournalBatch]:
    """The batches before the damage."""
    try:
        yield from read_batches(path)
    except (CorruptJournal, StorageFailed):
        return


def wrong_notice(layout: Layout) -> Finding | None:
    """The finding about ``0=archec_1.0``; None if it is intact."""
    try:
        same = read_file(layout.root / NAMASTE) == NOTICE.encode()
    except OSError as error:
        return Finding("notice", NAMASTE, f"cannot be read: {error.strerror}")
    return None if same else Finding("notice", NAMASTE, "does not say what this archec writes there")


def write_notice(layout: Layout, why: Finding) -> str:
    """Rewrites ``0=archec_1.0`` and returns what was done. Only while holding the run lock."""
    moved = quarantine(layout, NAMASTE, why)
    atomic_write(layout.root / NAMASTE, NOTICE.encode())
    return f"written again{_moved_to(moved)}"


def write_descriptor(config: Config, copy: str) -> Finding | None:
    """Rewrites ``layout.json`` like that of the copy at a path or URL, if it is damaged or missing. Returns what was
    done, None if it is intact.

    Raises :class:`ConfigError` if there is no archive, no copy, or what is in the store has another layout, and
    :class:`archec.errors.LockHeld` if a run is active. Nothing is written in these cases.
    """
    try:
        open_store(config)
        return None
    except (ConfigError, CorruptArchive) as error:
        damage = error
    root = config.store_path
    if not (root / "runs").is_dir():
        raise damage
    from archec.audit.copies import open_copy  # imports an HTTP client, which is rarely needed

    with open_copy(copy, config) as source:
        where, layout = source.where, Layout(root, source.layout.fanout)
    for tist in held_tists(layout):
        if (layout.fanout != 0) != _is_fanned(layout, tist):
            raise ConfigError(
                f"{where}: has a fan-out of {layout.fanout}, and {root} has another one: it is not a copy of it",
                hint="nothing was written",
            )
    with RunLock(layout, "repair"):
        why = Finding("layout", DESCRIPTOR, damage.message)
        moved = quarantine(layout, DESCRIPTOR, why)
        atomic_write(root / DESCRIPTOR, descriptor_of(layout.fanout))
    return replace(why, fixed=f"written again as in {where}{_moved_to(moved)}")


def _is_fanned(layout: Layout, tist: int) -> bool:
    """Whether there is one more directory between a tist's directory and its obis."""
    directory = layout.root / tist_path(tist)
    with storage_errors(directory), os.scandir(directory) as entries:
        return any(FAN.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) for entry in entries)
