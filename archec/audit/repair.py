"""Repair: what is missing or bad is put back from a second copy, where the copy's sha256 fits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from archec.audit.aside import move_aside
from archec.audit.copies import Copy
from archec.audit.entries import Entry
from archec.audit.findings import Finding
from archec.audit.journalcopy import objection_to
from archec.audit.links import judge
from archec.catalogue.interface import Catalogue
from archec.config import Config
from archec.errors import ArchecError, CorruptArchive, NotHeld, StorageFull
from archec.ids import is_url
from archec.store.directories import Directories
from archec.store.durable import Disk, create_temp, failure
from archec.store.interface import Link, Placement
from archec.store.layout import RUNS, Layout
from archec.store.lock import RunLock
from archec.store.reader import locate
from archec.store.writer import Writer

__all__ = ["Repair"]

_BY_COPY = frozenset({"missing", "corrupt", "unreadable", "not-a-file", "link-escapes", "link-dangling"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Repair:
    """Repairs one archive from one copy. What was bad is never overwritten: it is moved aside first."""

    def __init__(self, config: Config, layout: Layout, catalogue: Catalogue, copy: Copy) -> None:
        self._config, self._layout, self._catalogue, self._copy = config, layout, catalogue, copy
        self._disk = Disk()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Holds the run lock. Raises :class:`archec.errors.LockHeld` where a run is at work."""
        with RunLock(self._layout, "repair"):
            yield

    # -- obis -------------------------------------------------------------------------------------

    def entry(self, entry: Entry, finding: Finding) -> Finding:
        """Tries to repair what a finding is about; the finding, with what was done or why nothing was.

        Raises :class:`StorageFull`; whoever calls looks at the entry again. Only within :meth:`at_work`.
        """
        if finding.code not in _BY_COPY:
            return replace(finding, message=f"{finding.message} (no copy of the files mends that: 'archec rebuild')")
        try:
            done = self._link(entry, finding) if entry.target else None
            return replace(finding, mended=done or self._file(entry, finding))
        except StorageFull:
            raise
        except ArchecError as error:
            return replace(finding, message=f"{finding.message}; not repaired: {error.message}")

    def _link(self, entry: Entry, finding: Finding) -> str | None:
        """Makes a redirect's link again; None where the bytes that it led to are not known to be held."""
        fobi = self._catalogue.obis("fobi", [entry.target]).get(entry.target)
        there = fobi.history.entry_at(entry.tist) if fobi is not None else None
        if there is None or there[1] != entry.sha256:
            return None
        try:
            locate(self._layout, there[0], entry.target)
        except (NotHeld, CorruptArchive) as error:
            raise NotHeld(f"what it leads to must be repaired first: {error.message}") from error
        aside = self._aside(entry, finding)
        link = Link(entry.tist, entry.id, there[0], entry.target)
        with Writer(self._layout, disk=self._disk) as writer:
            (outcome,) = writer.commit([], [link])
        if outcome.kind not in ("stored", "adopted"):
            raise CorruptArchive("something else has taken its place")
        return f"linked again to {entry.target}{aside}"

    def _file(self, entry: Entry, finding: Finding) -> str:
        """Puts the copy's bytes in place, if they are the right ones."""
        with Writer(self._layout, disk=self._disk) as writer:
            with writer.temp(entry.tist, entry.id) as temp:
                for data in self._copy.obi(entry.tist, entry.id):
                    temp.write(data)
                    if 0 <= entry.size < temp.size:
                        raise CorruptArchive(f"the copy's file is larger than {entry.size} bytes")
                stored = temp.close(sync=True)
            try:
                if stored.sha256 != entry.sha256:
                    raise CorruptArchive(f"the copy's bytes have the sha256 {stored.sha256}")
                aside = self._aside(entry, finding)
                (outcome,) = writer.commit([Placement(stored.temp, entry.tist, entry.id, stored.sha256)])
            finally:
                writer.discard(stored.temp)
        if outcome.kind not in ("stored", "adopted"):
            raise CorruptArchive("something else has taken its place")
        return f"repaired from {self._copy.where}{aside}"

    def _aside(self, entry: Entry, finding: Finding) -> str:
        path = self._layout.path(entry.tist, entry.id)
        if self._leads_to_bad_bytes(entry, path, finding):
            raise CorruptArchive("it is a link to other bytes that are bad, and must be repaired first")
        aside = move_aside(self._layout, path, self._disk)
        return f"; what was there is in {aside}" if aside else ""

    def _leads_to_bad_bytes(self, entry: Entry, path: str, finding: Finding) -> bool:
        """Whether a sound link stands there, and the bytes it leads to are at fault, not the link."""
        where = self._layout.root / path
        if not where.is_symlink():
            return False
        with Directories(self._layout) as folders:
            if judge(folders, path) is not None:
                return False
        last = locate(self._layout, entry.tist, entry.id).hops[-1]
        if last.id is None:
            return True
        found = self._catalogue.obis("fobi" if is_url(last.id) else "tobi", [last.id])
        obi = found.get(last.id)
        return obi is None or obi.history.entry_at(last.tist) != (last.tist, finding.found)

    # -- journals ---------------------------------------------------------------------------------

    def journal(self, tist: int, ours: Path | None) -> str:
        """Puts a run's journal in place of ``ours`` (None: it is not there); what was done.

        Raises an ArchecError that says why it could not be. Only within :meth:`at_work`.
        """
        try:
            self._config.work_path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="audit-", dir=self._config.work_path) as scratch:
                candidate = self._fetched(tist, Path(scratch))
                run = next((run for run in self._catalogue.runs() if run.tist == tist), None)
                objection = objection_to(candidate, ours, tist, run, self._catalogue.position())
                if objection:
                    raise CorruptArchive(f"the copy's journal does not fit: {objection}")
                return self._placed(candidate, ours)
        except OSError as error:
            raise failure(error, self._config.work_path) from error

    def _fetched(self, tist: int, scratch: Path) -> Path:
        for name in (f"{tist}.jsonl.gz", f"{tist}.jsonl"):
            try:
                with (scratch / name).open("wb") as file:
                    for data in self._copy.journal(name):
                        file.write(data)
                return scratch / name
            except NotHeld:
                continue
        raise NotHeld("the copy has no journal of this run")

    def _placed(self, candidate: Path, ours: Path | None) -> str:
        runs, disk = self._layout.runs, self._disk
        dir_fd = os.open(runs, _DIRECTORY)
        try:
            fd, temp = create_temp(disk, dir_fd, str(runs))
            try:
                try:
                    with candidate.open("rb") as file:
                        while data := file.read(1 << 18):
                            disk.write(fd, data, str(runs / temp))
                    os.fchmod(fd, 0o444 if candidate.suffix == ".gz" else 0o644)
                    disk.fsync(fd, str(runs / temp))
                finally:
                    os.close(fd)
                aside = move_aside(self._layout, f"{RUNS}/{ours.name}", disk) if ours is not None else None
                if disk.rename_noreplace(temp, dir_fd, candidate.name, dir_fd, str(runs / candidate.name)) != "done":
                    raise CorruptArchive(f"{runs / candidate.name}: is there already")
            finally:
                disk.unlink(temp, dir_fd, str(runs / temp))
            disk.fsync_dir(dir_fd, str(runs))
        finally:
            os.close(dir_fd)
        return f"repaired from {self._copy.where}{'; what was there is in ' + aside if aside else ''}"
