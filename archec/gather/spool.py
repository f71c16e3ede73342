"""The spool: a run's scratch database on disk, so that memory does not grow with the data set.

It records where each template of the data set was seen, sorts by id, and holds the losses until they are accepted or
held back. It is not durable: a killed run reads its data set again. No statement here sorts more than fits SQLite's
page cache, because that would use the system's temporary files.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from archec.errors import StorageFailed
from archec.ids import host_of
from archec.redif.precedence import rank
from archec.sqlite import Database, Role

_SCHEMA = """
CREATE TABLE seen (
    id TEXT NOT NULL, sha256 BLOB NOT NULL, own INTEGER NOT NULL, path BLOB NOT NULL, place TEXT NOT NULL,
    member INTEGER NOT NULL, number INTEGER NOT NULL, handle TEXT NOT NULL, line INTEGER NOT NULL,
    encoding TEXT NOT NULL, spool INTEGER NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE TABLE files (path BLOB NOT NULL, member INTEGER NOT NULL, place TEXT NOT NULL, read INTEGER NOT NULL,
    found INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (path, member)) WITHOUT ROWID;
CREATE TABLE losses (archive TEXT NOT NULL, directory TEXT NOT NULL, id TEXT NOT NULL);
CREATE TABLE plan (host TEXT NOT NULL, rank INTEGER NOT NULL, url TEXT NOT NULL, PRIMARY KEY (host, rank))
    WITHOUT ROWID;
"""

_ROLE = Role("the scratch database of the run", StorageFailed)

_IN = 500
"""Maximum number of parameters of one IN list."""


class SeenRow(NamedTuple):
    """One template of the data set and the position of its text in the spool files.

    ``own`` is the rank of the template (:func:`archec.redif.precedence.standing`); ``number`` orders the templates of a
    file; ``path`` is as on disk (byte order decides), ``place`` the same below the root of RePEc.
    """

    id: str
    sha256: bytes
    own: int
    path: bytes
    place: str
    member: int
    number: int
    handle: str
    line: int
    encoding: str
    spool: int
    start: int
    size: int


class FileRow(NamedTuple):
    """One file of the data set, or a part of one. ``read`` 0 means that its absences are no evidence; then ``digest``
    is the sha256 of its bytes, or the code of the problem. ``found``: templates were found in it."""

    path: bytes
    member: int
    place: str
    read: int
    found: int = 0
    digest: str = ""


class Unreadable(NamedTuple):
    """A file that could not be read, or only ``partly``; ``digest`` as in its :class:`FileRow`."""

    place: str
    partly: bool
    digest: str


class Found(NamedTuple):
    """The winning template of an id: its sha256, its place and its row; the rows of ``others`` that have the id."""

    id: str
    sha256: bytes
    place: str
    row: int
    others: tuple[int, ...] = ()


class Loss(NamedTuple):
    """A tobi that is lost according to the data set: the archive of its handle, and the archive's directory of its
    place."""

    archive: str
    directory: str
    id: str


class Spool:
    """See the module. A context manager, which removes all of it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"{folder}: cannot create the work directory: {error.strerror}") from error
        self._file = Database(folder / "spool.sqlite", _ROLE)
        self._db = self._file.connection
        try:
            with self._file.translated():
                self._db.executescript(
                    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; PRAGMA cache_size=-8192;"
                )
                self._db.executescript(_SCHEMA + SORTED_SCHEMA)
        except BaseException:
            self._file.close()
            raise
        self._ids = SortedIds(self._db)
        self._texts: dict[int, int] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes all of it."""
        self._file.close()
        for fd in self._texts.values():
            os.close(fd)
        self._texts.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, rows: Sequence[SeenRow], files: Iterable[FileRow]) -> None:
        """Adds the results of a reading worker. A file counts as read only if all of its parts were read."""
        with self._file.translated():
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO seen VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
            self._db.executemany(
                "INSERT INTO files VALUES (?,?,?,?,?,?) ON CONFLICT (path, member) DO UPDATE SET"
                " read = min(read, excluded.read), found = max(found, excluded.found),"
                " digest = iif(excluded.read = 0 AND digest < excluded.digest, excluded.digest, digest)",
                files,
            )
            self._ids.inserted(len(rows), sum([len(row[0]) + len(row[4]) for row in rows]))
            self._db.execute("COMMIT")

    def superseded(self) -> frozenset[int]:
        """Members of a tarball that a later member of the same path replaces."""
        with self._file.translated():
            rows = self._db.execute(
                "SELECT member FROM files f"
                " WHERE EXISTS (SELECT 1 FROM files d WHERE d.path = f.path AND d.member > f.member)"
            )
            return frozenset([member for (member,) in rows])

    def count(self) -> tuple[int, int]:
        """The number of files, and of those that could not be read."""
        with self._file.translated():
            files, read = self._db.execute("SELECT count(*), coalesce(sum(read), 0) FROM files").fetchone()
            return files, files - read

    def unread(self) -> frozenset[int]:
        """Members of which some part could not be read."""
        with self._file.translated():
            return frozenset([member for (member,) in self._db.execute("SELECT member FROM files WHERE read = 0")])

    def places(self) -> Iterator[str]:
        """The places of all files, with repeats."""
        with self._file.translated():
            for (place,) in self._db.execute("SELECT place FROM files"):
                yield place

    def unreadable(self, superseded: frozenset[int]) -> Iterator[Unreadable]:
        """The files that could not be read."""
        with self._file.translated():
            sql = "SELECT place, found, digest, member FROM files WHERE read = 0"
            for place, found, digest, member in self._db.execute(sql):
                if member not in superseded:
                    yield Unreadable(place, bool(found), digest)

    def found(self, superseded: frozenset[int]) -> Iterator[Found]:
        """The winner of each id, by id (:func:`archec.redif.precedence.rank`)."""
        with self._file.translated():
            last, sha256, place, row = "", b"", "", 0
            others: list[int] = []
            for obi, this_row, this_sha256, this_place in self._ids:
                if obi == last:
                    others.append(this_row)
                    continue
                if last:
                    yield from self._winner(last, sha256, place, row, others, superseded)
                last, sha256, place, row = obi, this_sha256, this_place, this_row
                if others:
                    others = []
            if last:
                yield from self._winner(last, sha256, place, row, others, superseded)

    def _winner(
        self, obi: str, sha256: bytes, place: str, row: int, others: list[int], superseded: frozenset[int]
    ) -> Iterator[Found]:
        if not others and not superseded:
            yield Found(obi, sha256, place, row)
            return
        best: tuple[int, bytes, int, int] | None = None
        counting: list[int] = []
        for candidate in (row, *others):
            seen = self.row(candidate)
            if seen.member in superseded:
                continue
            counting.append(candidate)
            this = rank(seen.own, seen.path, seen.member, seen.number)
            if best is None or this > best:
                best, sha256, place, row = this, seen.sha256, seen.place, candidate
        if best is not None:
            yield Found(obi, sha256, place, row, tuple(one for one in counting if one != row))

    def row(self, number: int) -> SeenRow:
        """One row in full."""
        return self.rows((number,))[number]

    def rows(self, numbers: Sequence[int]) -> dict[int, SeenRow]:
        """Rows in full, by number."""
        found: dict[int, SeenRow] = {}
        with self._file.translated():
            for start in range(0, len(numbers), _IN):
                part = numbers[start : start + _IN]
                marks = ",".join("?" * len(part))
                for number, *row in self._db.execute(f"SELECT rowid, * FROM seen WHERE rowid IN ({marks})", part):
                    found[number] = SeenRow(*row)
        return found

    def add_losses(self, losses: Iterable[Loss]) -> None:
        """Adds tobis that are lost according to the data set; sorted by id over all calls."""
        with self._file.translated():
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO losses VALUES (?,?,?)", losses)
            self._db.execute("COMMIT")

    def losses(self) -> Iterator[Loss]:
        """The losses, by id."""
        with self._file.translated():
            for row in self._db.execute("SELECT archive, directory, id FROM losses ORDER BY rowid"):
                yield Loss(*row)

    def add_plan(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Adds (host, rank, url) of files to visit."""
        with self._file.translated():
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR IGNORE INTO plan VALUES (?,?,?)", rows)
            self._db.execute("COMMIT")

    def replan(self, urls: Iterable[str]) -> None:
        """Replaces the plan by these URLs, in this order."""
        with self._file.translated():
            self._db.execute("DELETE FROM plan")
        self.add_plan((host_of(url), rank, url) for rank, url in enumerate(urls))

    def plan_hosts(self) -> list[tuple[int, str, int]]:
        """(least rank, host, number of files) of every host in the plan."""
        with self._file.translated():
            return self._db.execute("SELECT min(rank), host, count(*) FROM plan GROUP BY host").fetchall()

    def plan_after(self, host: str, rank: int, limit: int) -> list[tuple[int, str]]:
        """The next (rank, url) of a host."""
        with self._file.translated():
            return self._db.execute(
                "SELECT rank, url FROM plan WHERE host=? AND rank>? ORDER BY rank LIMIT ?", (host, rank, limit)
            ).fetchall()


# -- sorting by id ----------------------------------------------------------------------------------

SORTED_SCHEMA = """
CREATE TABLE sorted (id TEXT NOT NULL, row INTEGER NOT NULL, sha256 BLOB NOT NULL, place TEXT NOT NULL);
"""
_MOST = 100_000
_MOST_TEXT = 8_000_000
"""Rows, and characters of their ids and places, of one sorted run: a quarter of the page cache at most."""
_IN_MEMORY = 60_000
"""Total number of entries in memory while runs are merged."""

Entry = tuple[str, int, bytes, str]
"""An id, the row of ``seen`` that has it, the sha256 of its text, its place."""

_id = itemgetter(0)


class SortedIds:
    """The rows of the table ``seen`` by id; ``db`` holds it and the table of :data:`SORTED_SCHEMA`.

    Rows are numbered from 1 on without a gap, in the order in which they were inserted. Sorted runs are written as rows
    come in, and merged block by block while they are read. SQLite's own sorter would spill to the system's directory
    for temporary files, which is often small or in memory; the size of a run's work directory is chosen by the
    operator.
    """

    def __init__(self, db: sqlite3.Connection, *, most: int = _MOST) -> None:
        self._db, self._most = db, most
        self._rows = self._sorted = self._text = 0
        self._runs: list[tuple[int, int]] = []

    def inserted(self, rows: int, text: int) -> None:
        """Reports inserted rows, and the characters in their ids and places; within the caller's transaction."""
        self._rows += rows
        self._text += text
        if self._rows - self._sorted >= self._most or self._text >= _MOST_TEXT:
            self._sort()

    def _sort(self) -> None:
        first, last = self._sorted + 1, self._rows
        if first <= last:
            self._db.execute(
                "INSERT INTO sorted SELECT id, rowid, sha256, place FROM seen"
                " WHERE rowid BETWEEN ? AND ? ORDER BY id, rowid",
                (first, last),
            )
            self._runs.append((first, last))
            self._sorted, self._text = last, 0

    def __iter__(self) -> Iterator[Entry]:
        """All rows that were inserted before."""
        self._sort()
        block = max(100, _IN_MEMORY // max(1, len(self._runs)))
        cursors = [self._run(first, last) for first, last in self._runs]
        heads: list[list[Entry]] = [cursor.fetchmany(block) for cursor in cursors]
        while any(heads):
            # Entries up to the smallest end of all blocks are complete.
            until = min(head[-1][0] for head in heads if head)
            ready: list[Entry] = []
            for n, head in enumerate(heads):
                end = bisect_right(head, until, key=_id)
                ready += head[:end]
                heads[n] = head[end:] if end < len(head) else cursors[n].fetchmany(block)
            ready.sort(key=_id)
            yield from ready

    def _run(self, first: int, last: int) -> sqlite3.Cursor:
        return self._db.execute(
            "SELECT id, row, sha256, place FROM sorted WHERE rowid BETWEEN ? AND ? ORDER BY rowid", (first, last)
        )
