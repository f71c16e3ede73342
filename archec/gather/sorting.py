"""Sorting within the scratch database: sorted runs, merged block by block while they are read.

SQLite's own sorter spills to where the system keeps temporary files, which is often small, or is memory;
a run has a work directory of a size that its operator chose. A part of the table that fits SQLite's page
cache is sorted there without spilling.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

SCHEMA = "CREATE TABLE sorted (id TEXT NOT NULL, row INTEGER NOT NULL, sha256 BLOB NOT NULL);"
_MOST = 100_000
_MOST_TEXT = 8_000_000
"""Rows, and characters of their ids, of one sorted run: a quarter of the page cache at most."""
_IN_MEMORY = 60_000
"""Entries that are in memory while runs are merged, over all runs."""

Entry = tuple[str, int, bytes]
"""An id, the row of ``seen`` that has it, the sha256 of its text."""

_id = itemgetter(0)


class SortedIds:
    """The rows of the table ``seen`` by id; ``db`` holds it and the table of :data:`SCHEMA`.

    Rows are numbered from 1 on without a gap, in the order in which they were inserted.
    """

    def __init__(self, db: sqlite3.Connection, *, most: int = _MOST) -> None:
        self._db, self._most = db, most
        self._rows = self._sorted = self._text = 0
        self._runs: list[tuple[int, int]] = []

    def inserted(self, rows: int, text: int) -> None:
        """So many rows were inserted, with so many characters in their ids; within the caller's transaction."""
        self._rows += rows
        self._text += text
        if self._rows - self._sorted >= self._most or self._text >= _MOST_TEXT:
            self._sort()

    def _sort(self) -> None:
        first, last = self._sorted + 1, self._rows
        if first <= last:
            self._db.execute(
                "INSERT INTO sorted SELECT id, rowid, sha256 FROM seen WHERE rowid BETWEEN ? AND ? ORDER BY id, rowid",
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
            # What is not beyond the end of any run's block is all there is up to there.
            until = min(head[-1][0] for head in heads if head)
            ready: list[Entry] = []
            for n, head in enumerate(heads):
                end = bisect_right(head, until, key=_id)
                ready += head[:end]
                heads[n] = head[end:] if end < len(head) else cursors[n].fetchmany(block)
            ready.sort(key=_id)
            yield from ready

    def between(self, low: str, high: str) -> Iterator[str]:
        """The ids from ``low`` up to but without ``high``, with repeats, in no particular order."""
        self._sort()
        for first, last in self._runs:
            for obi, _, _ in self._run(self._from(low, first, last), last):
                if obi >= high:
                    break
                yield obi

    def _run(self, first: int, last: int) -> sqlite3.Cursor:
        return self._db.execute(
            "SELECT id, row, sha256 FROM sorted WHERE rowid BETWEEN ? AND ? ORDER BY rowid", (first, last)
        )

    def _from(self, low: str, first: int, last: int) -> int:
        """The first place in a run whose id is not less than ``low``; one after the last where all are."""
        end = last + 1
        while first < end:
            middle = (first + end) // 2
            (obi,) = self._db.execute("SELECT id FROM sorted WHERE rowid=?", (middle,)).fetchone()
            if obi < low:
                first = middle + 1
            else:
                end = middle
        return first
