"""Memory: what was checked when, and what is known to be bad; a small SQLite file beside the catalogue.

It is no source of truth: losing it means that checking starts anew. Checks follow the journals, which
never change, so what was checked is kept as stretches of batches (run, first, last) with the time of the
check: some rows a session, however large the archive is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from archec.audit.entries import Entry
from archec.config import Config
from archec.errors import StorageFailed
from archec.sqlite import Database, Role, unwritable

_APPLICATION = 0x61726669
_VERSION = 2
_ROLE = Role("the memory of checks", StorageFailed, "move it away: checking then starts anew")
_PAGE = 500
_SCHEMA = """
CREATE TABLE checked (
    run INTEGER, first INTEGER, last INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (run, first)
) WITHOUT ROWID;
CREATE TABLE journal (run INTEGER PRIMARY KEY, batches INTEGER NOT NULL, files INTEGER NOT NULL);
CREATE TABLE bad (
    tist INTEGER, id TEXT, sha256 TEXT NOT NULL, size INTEGER NOT NULL, target TEXT NOT NULL, md5 TEXT NOT NULL,
    code TEXT NOT NULL, run INTEGER NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (tist, id)
) WITHOUT ROWID;
"""


class Stretch(NamedTuple):
    """The batches ``first`` to ``last`` of a run's journal, checked ``at`` (a tist; 0: never)."""

    run: int
    first: int
    last: int
    at: int


class Bad(NamedTuple):
    """An entry that was found wrong, as the journal of ``run`` has it, with the code; ``seen``: when last."""

    entry: Entry
    code: str
    run: int
    seen: int


def memory_path(config: Config) -> Path:
    """Where it is kept: ``fixity.sqlite`` beside the scratch space of runs."""
    return config.work_path.parent / "fixity.sqlite"


def oldest_check(config: Config) -> int | None:
    """The tist of the oldest check that still counts, None where nothing was checked yet.

    What came into the archive since the last check has none. Raises :class:`StorageFailed`.
    """
    path = memory_path(config)
    if not path.exists():
        return None
    with Memory(path, read_only=bool(unwritable(path))) as memory:
        return min((stretch.at for stretch in memory.stretches()), default=None)


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

    # -- what was checked -------------------------------------------------------------------------

    def stretches(self) -> list[Stretch]:
        """All that was ever checked, by run and batch; they do not overlap."""
        return [Stretch(*row) for row in self.fetch("SELECT run, first, last, at FROM checked ORDER BY run, first")]

    def checked(self, run: int, first: int, last: int, at: int) -> None:
        """These batches have been checked; joins them to the stretch before them of the same check."""
        with self.transaction() as db:
            for old in self._overlapping(run, first, last):
                db.execute("DELETE FROM checked WHERE run = ? AND first = ?", (run, old.first))
                if old.first < first:
                    db.execute("INSERT INTO checked VALUES (?, ?, ?, ?)", (run, old.first, first - 1, old.at))
                if old.last > last:
                    db.execute("INSERT INTO checked VALUES (?, ?, ?, ?)", (run, last + 1, old.last, old.at))
            found = db.execute(
                "UPDATE checked SET last = ? WHERE run = ? AND last = ? AND at = ?", (last, run, first - 1, at)
            )
            if not found.rowcount:
                db.execute("INSERT INTO checked VALUES (?, ?, ?, ?)", (run, first, last, at))

    def _overlapping(self, run: int, first: int, last: int) -> list[Stretch]:
        sql = "SELECT run, first, last, at FROM checked WHERE run = ? AND last >= ? AND first <= ?"
        return [Stretch(*row) for row in self.fetch(sql, (run, first, last))]

    # -- journals ---------------------------------------------------------------------------------

    def journals(self) -> dict[int, tuple[int, int]]:
        """Of finished journals that were read to their end: number of batches, and about how many files."""
        return {run: (batches, files) for run, batches, files in self.fetch("SELECT * FROM journal")}

    def know_journal(self, run: int, batches: int, files: int) -> None:
        """A finished journal has so many batches, with about so many files."""
        with self.transaction() as db:
            db.execute("REPLACE INTO journal VALUES (?, ?, ?)", (run, batches, files))

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
