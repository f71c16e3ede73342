"""The spool: a run's scratch database on disk, so that memory does not grow with the data set.

It records where each template of the data set was seen, sorts by id, and holds the losses until they are accepted or
held back. It is not durable: a killed run reads its data set again. No SQL statement here sorts, because SQLite would
put its temporary files in the system's directory, which is often small or in memory, instead of the run's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import orjson

from archec.errors import StorageFailed
from archec.ids import host_of
from archec.redif.precedence import rank
from archec.redif.problems import Problem
from archec.sqlite import Database, Role
from archec.store.durable import storage_errors
from archec.store.sorting import SortedLines

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
_IN_MEMORY = 16 << 20
"""Bytes of lines that are sorted in memory."""


class SeenRow(NamedTuple):
    """One template of the data set and the position of its text in the spool files.

    ``own`` is the rank of the template (:func:`archec.redif.precedence.standing`); ``number`` orders the templates of a
    file; ``path`` is as on disk (its byte order decides), ``place`` is the path below the root of RePEc.
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


class ChunkRead(NamedTuple):
    """The contents found in a file, or in a part of one: its templates with a handle, its problems (``more`` counts
    further ones by code), and the number of all its templates by type."""

    rows: list[SeenRow]
    files: list[FileRow]
    problems: list[Problem]
    more: dict[str, int]
    kinds: dict[str, int]
    size: int


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


_Entry = tuple[str, int, bytes, str]
"""An id, the number of a row that has it, the sha256 of its text, its place."""


class Spool:
    """The scratch database of a run; a context manager that removes all of it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        with storage_errors(folder):
            folder.mkdir(parents=True)
        self._file = Database(folder / "spool.sqlite", _ROLE)
        self._db = self._file.connection
        try:
            with self._file.translated():
                self._db.executescript(
                    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; PRAGMA cache_size=-8192;"
                )
                self._db.executescript(_SCHEMA)
        except BaseException:
            self._file.close()
            raise
        self._ids, self._rows = SortedLines(folder, in_memory=_IN_MEMORY), 0
        self._texts: dict[int, int] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()
        self._ids.close()
        for fd in self._texts.values():
            os.close(fd)
        self._texts.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, rows: Sequence[SeenRow], files: Iterable[FileRow]) -> None:
        """Adds the results of a reading worker. A file counts as read only if all of its parts were read."""
        with self._file.transaction() as db:
            db.executemany("INSERT INTO seen VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
            db.executemany(
                "INSERT INTO files VALUES (?,?,?,?,?,?) ON CONFLICT (path, member) DO UPDATE SET"
                " read = min(read, excluded.read), found = max(found, excluded.found),"
                " digest = iif(excluded.read = 0 AND digest < excluded.digest, excluded.digest, digest)",
                files,
            )
        for number, row in enumerate(rows, self._rows + 1):  # SQLite numbers them in the same way
            self._ids.add(_line(row, number))
        self._rows += len(rows)

    def superseded(self) -> frozenset[int]:
        """Members of a tarball that a later member of the same path replaces."""
        later = "SELECT 1 FROM files d WHERE d.path = f.path AND d.member > f.member"
        sql = f"SELECT member FROM files f WHERE EXISTS ({later})"
        return frozenset([member for (member,) in self._file.fetch(sql)])

    def count(self) -> tuple[int, int]:
        """The number of files, and of those that could not be read."""
        ((files, read),) = self._file.fetch("SELECT count(*), coalesce(sum(read), 0) FROM files")
        return files, files - read

    def unread(self) -> frozenset[int]:
        """Members of which some part could not be read."""
        return frozenset([member for (member,) in self._file.fetch("SELECT member FROM files WHERE read = 0")])

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
        for _, same in groupby(map(_entry, self._ids), key=itemgetter(0)):
            yield from self._winner(same, superseded)

    def _winner(self, same: Iterator[_Entry], superseded: frozenset[int]) -> Iterator[Found]:
        """The winner of the entries of one id; none if all are superseded."""
        obi, row, sha256, place = next(same)
        others = [number for _, number, _, _ in same]
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
        return self.rows((number,))[number]

    def rows(self, numbers: Sequence[int]) -> dict[int, SeenRow]:
        """Rows in full, by number."""
        found: dict[int, SeenRow] = {}
        for start in range(0, len(numbers), _IN):
            part = tuple(numbers[start : start + _IN])
            marks = ",".join("?" * len(part))
            for number, *row in self._file.fetch(f"SELECT rowid, * FROM seen WHERE rowid IN ({marks})", part):
                found[number] = SeenRow(*row)
        return found

    def add_losses(self, losses: Iterable[Loss]) -> None:
        """Adds tobis that are lost according to the data set; sorted by id over all calls."""
        with self._file.transaction() as db:
            db.executemany("INSERT INTO losses VALUES (?,?,?)", losses)

    def losses(self) -> Iterator[Loss]:
        """The losses, by id."""
        with self._file.translated():
            for row in self._db.execute("SELECT archive, directory, id FROM losses ORDER BY rowid"):
                yield Loss(*row)

    def add_plan(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Adds (host, rank, url) of files to visit."""
        with self._file.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO plan VALUES (?,?,?)", rows)

    def replan(self, urls: Iterable[str]) -> None:
        """Replaces the plan by these URLs, in this order."""
        self._file.fetch("DELETE FROM plan")
        self.add_plan((host_of(url), rank, url) for rank, url in enumerate(urls))

    def plan_hosts(self) -> list[tuple[int, str, int]]:
        """(least rank, host, number of files) of every host in the plan."""
        return self._file.fetch("SELECT min(rank), host, count(*) FROM plan GROUP BY host")

    def plan_after(self, host: str, rank: int, limit: int) -> list[tuple[int, str]]:
        """The next (rank, url) of a host."""
        sql = "SELECT rank, url FROM plan WHERE host=? AND rank>? ORDER BY rank LIMIT ?"
        return self._file.fetch(sql, (host, rank, limit))


def _line(row: SeenRow, number: int) -> bytes:
    """A line that represents a row for sorting: by id, which may contain NUL, then by the row's number."""
    obi = row.id.encode().replace(b"\0", b"\0\xff")
    return b"%s\0\0%015d %s %s" % (obi, number, row.sha256.hex().encode(), orjson.dumps(row.place))


def _entry(line: bytes) -> _Entry:
    obi, _, rest = line.partition(b"\0\0")
    number, sha256, place = rest.split(b" ", 2)
    return obi.replace(b"\0\xff", b"\0").decode(), int(number), bytes.fromhex(sha256.decode()), orjson.loads(place)
