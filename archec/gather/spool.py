"""The spool: a run's scratch database on disk, so that memory does not grow with the data set.

It sorts what was seen of each template by id, knows the files that were read, and holds the losses until they are
accepted or held back. It is not durable: a killed run reads its data set again. No SQL statement here sorts, because
SQLite would put its temporary files in the system's directory, which is often small or in memory, instead of the run's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from archec.archive.held_back import Loss
from archec.errors import StorageFailed, storage_errors
from archec.ids import host_of
from archec.redif.precedence import rank
from archec.redif.problems import Problem
from archec.sqlite import Database, Role
from archec.store.sorting import SortedLines

_SCHEMA = """
PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; PRAGMA cache_size=-8192;
CREATE TABLE files (path BLOB NOT NULL, member INTEGER NOT NULL, place TEXT NOT NULL, read INTEGER NOT NULL,
    found INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (path, member)) WITHOUT ROWID;
CREATE TABLE losses (archive TEXT NOT NULL, directory TEXT NOT NULL, id TEXT NOT NULL);
CREATE TABLE plan (host TEXT NOT NULL, rank INTEGER NOT NULL, url TEXT NOT NULL, PRIMARY KEY (host, rank))
    WITHOUT ROWID;
"""

_ROLE = Role("the scratch database of the run", StorageFailed)

_IN_MEMORY = 32 << 20
"""Bytes of lines that are sorted in memory."""


class SeenRow(NamedTuple):
    """One template of the data set, the sha256 of its text, and the position of that in the spool files.

    ``own`` is the rank of the template (:func:`archec.redif.precedence.standing`); ``number`` orders the templates of a
    file; ``path`` is as on disk (its byte order decides), ``place`` is the path below the root of RePEc. Both are
    added by :meth:`Spool.add`.
    """

    id: str
    sha256: str
    own: int
    member: int
    number: int
    handle: str
    line: int
    encoding: str
    spool: int
    start: int
    size: int
    path: bytes = b""
    place: str = ""


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
    """The contents found in a file, or in a part of one: its templates with a handle (:func:`line_of`), its problems
    (``more`` counts further ones by code), and the number of all its templates by type. With templates, it has one
    file."""

    lines: list[bytes]
    files: list[FileRow]
    problems: list[Problem]
    more: dict[str, int]
    kinds: dict[str, int]
    size: int


_decode = msgspec.json.Decoder(SeenRow).decode


class Spool(Database):
    """The scratch database of a run; a context manager that removes all of it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        with storage_errors(folder):
            folder.mkdir(parents=True)
        super().__init__(folder / "spool.sqlite", _ROLE)
        try:
            with self.translated():
                self.connection.executescript(_SCHEMA)
        except BaseException:
            super().close()
            raise
        self._seen = SortedLines(folder, in_memory=_IN_MEMORY)

    def close(self) -> None:
        super().close()
        self._seen.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, chunks: Iterable[ChunkRead]) -> None:
        """Adds the results of a reading worker. A file counts as read only if all of its parts were read."""
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO files VALUES (?,?,?,?,?,?) ON CONFLICT (path, member) DO UPDATE SET"
                " read = min(read, excluded.read), found = max(found, excluded.found),"
                " digest = iif(excluded.read = 0 AND digest < excluded.digest, excluded.digest, digest)",
                (file for chunk in chunks for file in chunk.files),
            )
        for chunk in chunks:
            for line in chunk.lines:
                self._seen.add(_whole(line, chunk.files[0]))

    def superseded(self) -> frozenset[int]:
        """Members of a tarball that a later member of the same path replaces."""
        later = "SELECT 1 FROM files d WHERE d.path = f.path AND d.member > f.member"
        sql = f"SELECT member FROM files f WHERE EXISTS ({later})"
        return frozenset([member for (member,) in self.fetch(sql)])

    def count(self) -> tuple[int, int]:
        """The number of files, and of those that could not be read."""
        ((files, read),) = self.fetch("SELECT count(*), coalesce(sum(read), 0) FROM files")
        return files, files - read

    def unread(self) -> frozenset[int]:
        """Members of which some part could not be read."""
        return frozenset([member for (member,) in self.fetch("SELECT member FROM files WHERE read = 0")])

    def places(self) -> Iterator[str]:
        """The places of all files, with repeats."""
        with self.translated():
            for (place,) in self.connection.execute("SELECT place FROM files"):
                yield place

    def unreadable(self, superseded: frozenset[int]) -> Iterator[tuple[str, bool, str]]:
        """The files that could not be read: place, whether only in part, digest as in their :class:`FileRow`."""
        with self.translated():
            sql = "SELECT place, found, digest, member FROM files WHERE read = 0"
            for place, found, digest, member in self.connection.execute(sql):
                if member not in superseded:
                    yield place, bool(found), digest

    def found(self, superseded: frozenset[int], listing: BinaryIO | None = None) -> Iterator[tuple[SeenRow, int]]:
        """The winner of each id (:func:`archec.redif.precedence.rank`), by id, and how many others have the id. Writes
        the places of handles that occur more than once to ``listing``: the winner first, the others in the order of the
        data set."""
        rows = (row for row in map(row_of, self._seen) if row.member not in superseded)
        row = next(rows, None)
        while row is not None:
            winner, others, places = row, 0, list[tuple[int, int, str]]()
            while (row := next(rows, None)) is not None and row.id == winner.id:
                others += 1
                least, winner = (winner, row) if _rank(row) > _rank(winner) else (row, winner)
                if listing is not None:
                    places.append((least.member, least.number, f"{least.place}:{least.line}"))
            if places and listing is not None:
                losers = [place for _, _, place in sorted(places)]
                text = "\t".join([winner.id, str(others + 1), f"{winner.place}:{winner.line}", *losers])
                listing.write(f"{text}\n".encode("utf-8", "surrogateescape"))
            yield winner, others

    def add_losses(self, losses: Iterable[Loss]) -> None:
        """Adds tobis that are lost according to the data set; sorted by id over all calls."""
        with self.transaction() as db:
            db.executemany("INSERT INTO losses VALUES (?,?,?)", losses)

    def losses(self) -> Iterator[Loss]:
        """The losses, by id."""
        with self.translated():
            for row in self.connection.execute("SELECT archive, directory, id FROM losses ORDER BY rowid"):
                yield Loss(*row)

    def add_plan(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Adds (host, rank, url) of files to visit."""
        with self.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO plan VALUES (?,?,?)", rows)

    def replan(self, urls: Iterable[str]) -> None:
        """Replaces the plan by these URLs, in this order."""
        self.fetch("DELETE FROM plan")
        self.add_plan((host_of(url), rank, url) for rank, url in enumerate(urls))

    def plan_hosts(self) -> list[tuple[int, str, int]]:
        """(least rank, host, number of files) of every host in the plan."""
        return self.fetch("SELECT min(rank), host, count(*) FROM plan GROUP BY host")

    def plan_after(self, host: str, rank: int, limit: int) -> list[tuple[int, str]]:
        """The next (rank, url) of a host."""
        sql = "SELECT rank, url FROM plan WHERE host=? AND rank>? ORDER BY rank LIMIT ?"
        return self.fetch(sql, (host, rank, limit))


def line_of(row: SeenRow) -> bytes:
    """A line that represents a row for sorting: by id, which may contain NUL.

    It lacks the path and the place: the many templates of a file would take memory for its name, which may be long.
    """
    return row.id.encode().replace(b"\0", b"\0\xff") + b"\0\0" + msgspec.json.encode(row[:-2])


def _whole(line: bytes, file: FileRow) -> bytes:
    """A line with the path and the place of the file."""
    return line[:-1] + b"," + msgspec.json.encode((file.path, file.place))[1:]


def row_of(line: bytes) -> SeenRow:
    return _decode(line[line.index(b"\0\0") + 2 :])


def _rank(row: SeenRow) -> tuple[int, bytes, int, int]:
    return rank(row.own, row.path, row.member, row.number)
