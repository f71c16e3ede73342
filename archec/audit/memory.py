"""Memory: what was checked when, and what is known to be bad; a small SQLite file beside the catalogue.

It is no source of truth: losing it means that checking starts over. Checks go through the journals from their
beginning to their end, so one time for each journal and a cursor say what was checked: a row a run, however often.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from archec.audit.expected import Entry
from archec.audit.findings import Finding, Reporter
from archec.audit.journals import Ends
from archec.config import Config
from archec.errors import StorageFailed
from archec.sqlite import Database, Role, unwritable
from archec.store.durable import storage_errors
from archec.store.journal_reader import JournalFile

_APPLICATION = 0x61726669
_VERSION = 3
_ROLE = Role("the memory of checks", StorageFailed, "move it away: checking then starts over")
_PAGE = 500
_SCHEMA = """
CREATE TABLE checked (
    run INTEGER PRIMARY KEY, whole INTEGER NOT NULL, cursor INTEGER NOT NULL, since INTEGER NOT NULL
);
CREATE TABLE journal (
    run INTEGER PRIMARY KEY, files INTEGER NOT NULL, prev TEXT NOT NULL, head TEXT NOT NULL, batches INTEGER NOT NULL
);
CREATE TABLE bad (
    tist INTEGER, id TEXT, sha256 TEXT NOT NULL, size INTEGER NOT NULL, target TEXT NOT NULL, md5 TEXT NOT NULL,
    code TEXT NOT NULL, run INTEGER NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (tist, id)
) WITHOUT ROWID;
"""


class Checked(NamedTuple):
    """How far a journal was checked: batches 1 to ``cursor`` at ``since`` or later, those after them at ``whole`` or
    later (tists; 0: never). Once its end is reached, ``whole`` is the time of all of it, and ``cursor`` is 0."""

    run: int
    whole: int = 0
    cursor: int = 0
    since: int = 0

    @property
    def oldest(self) -> int:
        """The tist of the oldest check of what was ever checked of it."""
        return min(at for at in (self.whole, self.since if self.cursor else 0) if at)


class Part(NamedTuple):
    """The batches ``first`` to ``last`` (None: the end) of a journal, last checked ``at``."""

    journal: JournalFile
    first: int
    last: int | None
    at: int


class Bad(NamedTuple):
    """An entry that was found wrong, as the journal of ``run`` has it, with the code; ``seen``: when last."""

    entry: Entry
    code: str
    run: int
    seen: int


def parts_of(journals: Iterable[JournalFile], known: Mapping[int, Checked], before: int) -> list[Part]:
    """What is to be read, least recently checked first, so that all that was not checked at or after ``before`` is."""
    parts: list[Part] = []
    for journal in journals:
        checked = known.get(journal.tist, Checked(journal.tist))
        parts.append(Part(journal, checked.cursor + 1, None, checked.whole))
        if checked.cursor:
            parts.append(Part(journal, 1, checked.cursor, checked.since))
    due = [part for part in parts if part.at < before]
    return sorted(due, key=lambda part: (part.at, part.journal.tist, part.first))


def memory_path(config: Config) -> Path:
    """Where it is kept: ``fixity.sqlite`` beside the scratch space of runs."""
    return config.work_path.parent / "fixity.sqlite"


class Fixity(NamedTuple):
    """The tist of the oldest check that still counts (None: nothing was checked; what came into the archive since the
    last check has none), and the number of entries known to be bad."""

    oldest: int | None = None
    bad: int = 0
    damaged: str = ""
    """Why what was remembered cannot be read; empty where it can."""


def fixity(config: Config) -> Fixity:
    """What is remembered of an archive's checks."""
    path = memory_path(config)
    if not path.exists():
        return Fixity()
    try:
        with Memory(path, read_only=bool(unwritable(path))) as memory:
            return Fixity(memory.oldest(), memory.count_bad())
    except StorageFailed as error:
        return Fixity(damaged=error.message)


def open_memory(path: Path, report: Reporter) -> Memory:
    """The memory of checks; one that is damaged is set aside, which is reported, and a new one is begun.

    Raises :class:`StorageFailed` where it cannot be written.
    """
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
    """See the module's docstring. Made where it is not there; a context manager.

    ``read_only``: only asked, for a file that cannot be written. Raises :class:`StorageFailed` for a file that is
    damaged or something else, and for one that should be written and cannot.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        if not read_only:
            if why := unwritable(path):
                raise StorageFailed(
                    f"{path}: cannot remember what was checked: {why}",
                    hint="it lies beside work_directory: set that to a folder that can be written",
                )
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageFailed(f"{path}: {error.strerror}") from error
        super().__init__(path, _ROLE, read_only=read_only)
        if read_only:
            return
        try:
            self.use_wal()
            self.make(_SCHEMA, _APPLICATION, _VERSION)
            if self.kind() != (_APPLICATION, _VERSION):
                raise StorageFailed(f"{path}: is not what this archec remembers its checks in", hint=_ROLE.damaged)
        except BaseException:
            self.close()
            raise

    def look_through(self) -> None:
        """Reads all of it once. Raises :class:`StorageFailed` for damage."""
        try:
            self.checked(), self.journals(), self.count_bad()
            if self.fetch("PRAGMA quick_check(1)") != [("ok",)]:
                raise StorageFailed(f"{self.path}: is damaged", hint=_ROLE.damaged)
        except BaseException:
            self.close()
            raise

    # -- what was checked -------------------------------------------------------------------------

    def checked(self) -> dict[int, Checked]:
        """How far each journal was checked, by run."""
        return {row[0]: Checked(*row) for row in self.fetch("SELECT run, whole, cursor, since FROM checked")}

    def oldest(self) -> int | None:
        """The tist of the oldest check of what was ever checked; None where nothing was."""
        return min((checked.oldest for checked in self.checked().values()), default=None)

    def advance(self, run: int, first: int, last: int, at: int, *, end: bool) -> None:
        """The batches ``first`` to ``last`` of a run have been checked at ``at``.

        ``end``: they are the last ones of a finished journal. Where they do not continue what was checked before,
        they are a new round over the journal, which begins with batch 1.
        """
        with self.transaction() as db:
            rows = db.execute("SELECT run, whole, cursor, since FROM checked WHERE run = ?", (run,)).fetchall()
            known = Checked(*rows[0]) if rows else Checked(run)
            since = known.since if known.cursor and first == known.cursor + 1 else at
            new = Checked(run, since) if end else known._replace(cursor=last, since=since)
            db.execute("REPLACE INTO checked VALUES (?, ?, ?, ?)", new)

    def complete(self, at: int) -> None:
        """Everything was checked at ``at`` or later. What is not known to be the end of its journal stays open."""
        with self.transaction() as db:
            db.execute("UPDATE checked SET whole = ?, cursor = 0, since = 0 WHERE whole > 0", (at,))

    # -- journals ---------------------------------------------------------------------------------

    def journals(self) -> dict[int, tuple[int, Ends]]:
        """Of finished journals that were read to their end: about how many files they name, and their ends."""
        rows = self.fetch("SELECT run, files, prev, head, batches FROM journal")
        return {run: (files, Ends(*ends)) for run, files, *ends in rows}

    def know_journal(self, run: int, files: int, ends: Ends) -> None:
        """A finished journal names about so many files, and has these ends."""
        with self.transaction() as db:
            db.execute("REPLACE INTO journal VALUES (?, ?, ?, ?, ?)", (run, files, *ends))

    def forget_run(self, run: int) -> None:
        """Forgets all of a run: its journal is another one now, or has gone."""
        with self.transaction() as db:
            for table in ("checked", "journal", "bad"):
                db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))

    def runs(self) -> set[int]:
        """All runs of which something is remembered."""
        sql = "SELECT run FROM checked UNION SELECT run FROM journal UNION SELECT run FROM bad"
        return {run for (run,) in self.fetch(sql)}

    # -- what is bad ------------------------------------------------------------------------------

    def bad(self) -> Iterator[Bad]:
        """All entries that are known to be bad, by tist and id; page by page."""
        columns = "tist, id, sha256, size, target, md5, code, run, seen"
        sql = f"SELECT {columns} FROM bad WHERE (tist, id) > (?, ?) ORDER BY tist, id"
        page = self.fetch(f"{sql} LIMIT ?", (-1, "", _PAGE))
        while page:
            for row in page:
                yield Bad(Entry(*row[:6]), *row[6:])
            page = self.fetch(f"{sql} LIMIT ?", (*page[-1][:2], _PAGE))

    def count_bad(self) -> int:
        """How many entries are known to be bad."""
        return int(self.fetch("SELECT count(*) FROM bad")[0][0])

    def seen_bad(self, tist: int, obi: str) -> int | None:
        """When an entry was last found bad, None where it was not."""
        found = self.fetch("SELECT seen FROM bad WHERE tist = ? AND id = ?", (tist, obi))
        return int(found[0][0]) if found else None

    def remember_bad(self, bad: Bad) -> None:
        """An entry is bad."""
        with self.transaction() as db:
            db.execute("REPLACE INTO bad VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*bad.entry, *bad[1:]))

    def forget_bad(self, tist: int, obi: str) -> None:
        """An entry is in order again."""
        with self.transaction() as db:
            db.execute("DELETE FROM bad WHERE tist = ? AND id = ?", (tist, obi))
