"""The record of checks: when everything was checked, and which entries are known to be bad; a small SQLite file next to
the scratch space.

If it is lost, checking starts over. Checks go through each journal from beginning to end, so a time and a cursor per
journal are enough to record what was checked: one row per run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

from archec.archive.opening import temporary_folder
from archec.audit.expected import Amount, Entry
from archec.audit.findings import Finding, Reporter
from archec.audit.journals import Ends
from archec.config import Config
from archec.errors import StorageFailed, StorageFull, storage_errors
from archec.paging import paged
from archec.sqlite import Database, Role, is_full, unwritable
from archec.store.layout import JournalFile, Layout, journals

_APPLICATION = 0x61726669
_VERSION = 4
_ROLE = Role("the record of checks", StorageFailed, "move it away: checking then starts over")
_PAGE = 500
_SCHEMA = """
CREATE TABLE checked (
    run INTEGER PRIMARY KEY, whole INTEGER NOT NULL, cursor INTEGER NOT NULL, since INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE TABLE journal (
    run INTEGER PRIMARY KEY, objects INTEGER NOT NULL, bytes INTEGER NOT NULL, prev TEXT NOT NULL, head TEXT NOT NULL,
    batches INTEGER NOT NULL
);
CREATE TABLE structure (quick INTEGER PRIMARY KEY, at INTEGER NOT NULL, wrong INTEGER NOT NULL);
CREATE TABLE bad (
    tist INTEGER, id TEXT, sha256 TEXT NOT NULL, size INTEGER NOT NULL, target TEXT NOT NULL, md5 TEXT NOT NULL,
    code TEXT NOT NULL, run INTEGER NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (tist, id)
) WITHOUT ROWID;
"""


class Checked(NamedTuple):
    """How far a journal was checked. Of the objects that it names, those from 1 to ``cursor``, with ``bytes`` bytes,
    were checked at ``since`` or later, those after them at ``whole`` or later (tists; 0: never). When its end has been
    reached, ``whole`` is the time of all of it, and ``cursor`` is 0."""

    run: int
    whole: int = 0
    cursor: int = 0
    since: int = 0
    bytes: int = 0

    @property
    def oldest(self) -> int:
        """The tist of the oldest check among all objects that were ever checked."""
        return min(at for at in (self.whole, self.since if self.cursor else 0) if at)


class Part(NamedTuple):
    """The objects ``first`` to ``last`` (None: the end) that a journal names, last checked ``at``."""

    journal: JournalFile
    first: int
    last: int | None
    at: int


class Bad(NamedTuple):
    """A bad entry according to the journal of ``run``, with the code of the finding and the tist when last seen."""

    entry: Entry
    code: str
    run: int
    seen: int


def parts_of(journals: Iterable[JournalFile], known: Mapping[int, Checked], before: int) -> list[Part]:
    """The parts to read so that everything is checked at ``before`` or later, least recently checked first."""
    parts: list[Part] = []
    for journal in journals:
        checked = known.get(journal.tist, Checked(journal.tist))
        parts.append(Part(journal, checked.cursor + 1, None, checked.whole))
        if checked.cursor:
            parts.append(Part(journal, 1, checked.cursor, checked.since))
    due = [part for part in parts if part.at < before]
    return sorted(due, key=lambda part: (part.at, part.journal.tist, part.first))


def memory_path(config: Config) -> Path:
    return config.memory("fixity.sqlite")


class Structure(NamedTuple):
    """A check of the structure, ``quick`` or whole: its tist, and the number of findings that are wrong."""

    quick: bool
    at: int
    wrong: int


PERIODS = (30, 90, 365)
"""Periods, in days, for which the amount checked is reported."""


class Fixity(NamedTuple):
    """A summary of the record of checks: the tist of the oldest check that still counts (None: nothing was checked),
    and the number of entries known to be bad. ``damaged`` is why the record cannot be read; empty if it can. ``whole``
    is the amount that the journals name, ``within`` the amount checked within so many days, ``never`` the amount never
    checked; they do not include ``uncounted`` journals, which are newer than the last reading. ``structures`` are the
    last checks of the structure."""

    oldest: int | None = None
    bad: int = 0
    damaged: str = ""
    whole: Amount = Amount()
    within: tuple[tuple[int, Amount], ...] = ()
    never: Amount = Amount()
    uncounted: int = 0
    structures: tuple[Structure, ...] = ()

    def as_value(self) -> dict[str, Any]:
        return self._asdict() | {
            "whole": self.whole._asdict(),
            "within": {str(days): amount._asdict() for days, amount in self.within},
            "never": self.never._asdict(),
            "structures": [one._asdict() for one in self.structures],
        }


def fixity(config: Config, now: int | None = None) -> Fixity:
    """A summary of an archive's record of checks, as of ``now``."""
    path, runs = memory_path(config), {journal.tist for journal in journals(Layout(config.store_path))}
    if not path.exists():
        return Fixity(uncounted=len(runs))
    try:
        with Memory(path, read_only=True) as memory:
            return _fixity(memory, runs, int(time.time()) if now is None else now)
    except StorageFailed as error:
        return Fixity(damaged=error.message, uncounted=len(runs))


def _fixity(memory: Memory, runs: Set[int], now: int) -> Fixity:
    checked, known = memory.checked(), memory.journals()
    checks: list[tuple[int, Amount]] = []
    for run in runs:
        row = checked.get(run, Checked(run))
        begun = Amount(row.cursor, row.bytes)
        checks.append((row.since, begun))
        if run in known:
            checks.append((row.whole, known[run][0] - begun))

    def amount(of: Iterable[Amount]) -> Amount:
        return sum(of, Amount())

    within = tuple((days, amount(some for at, some in checks if at >= now - days * 86400)) for days in PERIODS)
    whole, never = amount(some for _, some in checks), amount(some for at, some in checks if not at)
    structures = tuple(memory.structures())
    return Fixity(
        memory.oldest(), memory.count_bad(), "", whole, within, never, len(runs - known.keys()), structures
    )


def remember_structure(
    config: Config, structure: Structure, named: Mapping[int, tuple[Amount, Ends]], report: Reporter
) -> None:
    """Records a check of the structure and the amounts that finished journals name. Reports if that is impossible."""
    path = memory_path(config)
    try:
        with open_memory(path, report) as memory:
            known = memory.journals()
            for run, (amount, ends) in named.items():
                if run not in known:
                    memory.know_journal(run, amount, ends)
            memory.structure_checked(structure)
    except (StorageFailed, StorageFull) as error:
        report(Finding("memory-damaged", path.name, f"nothing of this check is remembered: {error}"))


@contextmanager
def open_memory(path: Path, report: Reporter) -> Iterator[Memory]:
    """Opens the record of checks. A damaged one is set aside and reported, and a new one is begun. If it cannot be
    written, that is reported, and one in the system's directory for temporary files is used instead."""
    with ExitStack() as stack:
        if why := "no space left" if is_full(path) else unwritable(path):
            message = f"{path}: nothing of this check is remembered: {why}: change that, or set work_directory"
            report(Finding("memory-damaged", path.name, message))
            path = Path(stack.enter_context(temporary_folder(Path(gettempdir()), "archec-memory-"))) / path.name
        yield stack.enter_context(_open(path, report))


def _open(path: Path, report: Reporter) -> Memory:
    try:
        memory = Memory(path)
        memory.look_through()
        return memory
    except StorageFailed as error:
        if error.hint != _ROLE.damaged:
            raise
        aside = path.with_name(f"{path.name}.damaged")
        with storage_errors(path):
            os.replace(path, aside)
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
        message = f"what was checked when could not be read: {error.message}"
        report(Finding("memory-damaged", path.name, message, fixed=f"set aside as {aside.name}; checking starts over"))
        return Memory(path)


class Memory(Database):
    """The SQLite file of the record of checks; created if it does not exist. A context manager.

    ``read_only`` is for a file that cannot be written. Raises :class:`StorageFailed` for a file that is damaged or
    something else, and for one that must be written but cannot be.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        if not read_only:
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, _ROLE, read_only=read_only)
        if read_only:
            return
        try:
            self.use_wal()
            self.make(_SCHEMA, _APPLICATION, _VERSION)
            if self.kind() != (_APPLICATION, _VERSION):
                raise StorageFailed(f"{path}: is not a record of checks of this archec", hint=_ROLE.damaged)
        except BaseException:
            self.close()
            raise

    def look_through(self) -> None:
        """Reads the whole file once. Raises :class:`StorageFailed` for damage."""
        try:
            self.checked(), self.journals(), self.count_bad()
            if self.fetch("PRAGMA quick_check(1)") != [("ok",)]:
                raise StorageFailed(f"{self.path}: is damaged", hint=_ROLE.damaged)
        except BaseException:
            self.close()
            raise

    # -- checks -----------------------------------------------------------------------------------

    def checked(self) -> dict[int, Checked]:
        """How far each journal was checked, by run."""
        return {row[0]: Checked(*row) for row in self.fetch("SELECT run, whole, cursor, since, bytes FROM checked")}

    def oldest(self) -> int | None:
        """The tist of the oldest check among everything ever checked; None if nothing was."""
        return min((checked.oldest for checked in self.checked().values()), default=None)

    def advance(self, run: int, first: int, last: int, at: int, *, end: bool, size: int = 0) -> None:
        """Records that the objects ``first`` to ``last`` of a run, with ``size`` bytes, were checked at ``at``.

        ``end``: they are the last ones of a finished journal. If they do not continue the previous check, they begin a
        new round over the journal.
        """
        with self.transaction() as db:
            rows = db.execute("SELECT run, whole, cursor, since, bytes FROM checked WHERE run = ?", (run,)).fetchall()
            known = Checked(*rows[0]) if rows else Checked(run)
            going_on = bool(known.cursor) and first == known.cursor + 1
            since, size = (known.since, known.bytes + size) if going_on else (at, size)
            new = Checked(run, since) if end else known._replace(cursor=last, since=since, bytes=size)
            db.execute("REPLACE INTO checked VALUES (?, ?, ?, ?, ?)", new)

    def complete(self, at: int) -> None:
        """Records that everything was checked at ``at`` or later. Journals whose end was not reached stay open."""
        with self.transaction() as db:
            db.execute("UPDATE checked SET whole = ?, cursor = 0, since = 0, bytes = 0 WHERE whole > 0", (at,))

    # -- journals ---------------------------------------------------------------------------------

    def journals(self) -> dict[int, tuple[Amount, Ends]]:
        """The amounts and the ends of finished journals that were read to their end, by run."""
        rows = self.fetch("SELECT run, objects, bytes, prev, head, batches FROM journal")
        return {run: (Amount(objects, size), Ends(*ends)) for run, objects, size, *ends in rows}

    def know_journal(self, run: int, named: Amount, ends: Ends) -> None:
        """Records the amount that a finished journal names, and its ends."""
        with self.transaction() as db:
            db.execute("REPLACE INTO journal VALUES (?, ?, ?, ?, ?, ?)", (run, *named, *ends))

    # -- the structure ----------------------------------------------------------------------------

    def structure_checked(self, structure: Structure) -> None:
        """Records a check of the structure. A whole check replaces the last quick one."""
        with self.transaction() as db:
            if not structure.quick:
                db.execute("DELETE FROM structure WHERE quick = 1")
            db.execute("REPLACE INTO structure VALUES (?, ?, ?)", structure)

    def structures(self) -> list[Structure]:
        """The last whole check of the structure, and the last quick one after it."""
        return [Structure(bool(row[0]), *row[1:]) for row in self.fetch("SELECT quick, at, wrong FROM structure")]

    def forget_run(self, run: int) -> None:
        """Removes all records of a run whose journal was replaced or is gone."""
        with self.transaction() as db:
            for table in ("checked", "journal", "bad"):
                db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))

    def runs(self) -> set[int]:
        sql = "SELECT run FROM checked UNION SELECT run FROM journal UNION SELECT run FROM bad"
        return {run for (run,) in self.fetch(sql)}

    # -- bad entries ------------------------------------------------------------------------------

    def bad(self) -> Iterator[Bad]:
        """All entries that are known to be bad, by tist and id; page by page."""
        columns = "tist, id, sha256, size, target, md5, code, run, seen"
        sql = f"SELECT {columns} FROM bad WHERE (tist, id) > (?, ?) ORDER BY tist, id"
        rows = paged(lambda key: self.fetch(f"{sql} LIMIT ?", (*key, _PAGE)), (-1, ""), lambda row: row[:2])
        return (Bad(Entry(*row[:6]), *row[6:]) for row in rows)

    def count_bad(self) -> int:
        return int(self.fetch("SELECT count(*) FROM bad")[0][0])

    def seen_bad(self, tist: int, obi: str) -> int | None:
        """When an entry was last found bad, None if it was not."""
        found = self.fetch("SELECT seen FROM bad WHERE tist = ? AND id = ?", (tist, obi))
        return int(found[0][0]) if found else None

    def remember_bad(self, bad: Bad) -> None:
        with self.transaction() as db:
            db.execute("REPLACE INTO bad VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*bad.entry, *bad[1:]))

    def forget_bad(self, tist: int, obi: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM bad WHERE tist = ? AND id = ?", (tist, obi))
