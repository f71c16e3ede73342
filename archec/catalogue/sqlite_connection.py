"""One connection to an SQLite catalogue: transactions, pages by key, reading many ids."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from archec.catalogue.sqlite_file import connect, translated
from archec.catalogue.sqlite_put import marks, parts
from archec.catalogue.url import redact
from archec.errors import CatalogueError

__all__ = ["DOC_PAGE", "PAGE", "Row", "SQLiteConnection"]

Row = tuple[Any, ...]
PAGE = 2000
"""Narrow rows read at once."""
DOC_PAGE = 500
"""Whole documents read at once."""


class SQLiteConnection:
    """See :mod:`archec.catalogue.sqlite`."""

    def __init__(self, url: str, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.url = redact(url)
        self.path = path
        self.read_only = read_only
        self._lock = RLock()
        self._connection = connect(path, create=create, read_only=read_only)

    def close(self) -> None:
        """Lets go of the file; the last connection folds the log into it."""
        with self._lock, translated(self.path):
            self._connection.close()

    def _fetch(self, sql: str, parameters: Row = ()) -> list[Row]:
        with self._lock, translated(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def _by_ids(self, sql: str, ids: Collection[str]) -> Iterator[Row]:
        """The rows of ``ids``, in parts, so that any number may be asked for."""
        for part in parts([obi for obi in ids if _is_text(obi)]):
            yield from self._fetch(f"{sql} ({marks(part)})", tuple(part))

    def _paged(self, sql: str, start: Row, key: Callable[[Row], Row], size: int = DOC_PAGE) -> Iterator[Row]:
        """All rows, page by page; ``key`` makes the next page's parameters of a page's last row."""
        page = self._fetch(sql, (*start, size))
        while page:
            yield from page
            page = self._fetch(sql, (*key(page[-1]), size))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise CatalogueError(f"{self.path}: this catalogue was opened for reading only")
        db = self._connection
        with self._lock, translated(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise


def _is_text(obi: str) -> bool:
    """Whether SQLite can hold this id at all: a lone surrogate is not text, and so never known."""
    try:
        obi.encode()
    except UnicodeEncodeError:
        return False
    return True
