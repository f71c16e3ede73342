"""The OAI index: which item is in which set, in the order of datestamps. Never a source of truth.

It follows the catalogue (:mod:`archec.oai.follow`) and may be deleted at any time: it is made anew.
One interface, with SQLite and MongoDB behind it, as with the catalogue; a contract test runs on both.

The one promise that harvesting rests on: *when the second S has begun, no item will ever again appear
with a stamp <= S*. So a list that was closed at the present second never loses a record, and the next
harvest may begin in that very second. :meth:`Index.publish` keeps it by dating a lot into the future
and checking, once it is written, that that second had not begun yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from archec.oai.model import Entry, Place, Query, Row, State

__all__ = ["LEADS", "Index", "open_index"]

LEADS = (2, 4, 8, 16, 32, 64)
"""Seconds into the future that a lot is dated, tried in turn while writing it takes longer than that."""


class Index(Protocol):
    """See the module's docstring. Errors of the engine are :class:`archec.errors.CatalogueError`."""

    def state(self) -> State:
        """How far the index has come."""
        ...

    def publish(self, entries: Sequence[Entry], state: State, clock: Callable[[], float]) -> int:
        """Brings in one lot and notes ``state`` (its ``last`` is reckoned here); how many items changed.

        An entry whose mark, fate and sets are those held already changes nothing. In an index that is
        not ``ready`` an item keeps the catalogue's stamp; later it is dated as the promise wants.
        """
        ...

    def page(self, query: Query, after: Place | None, limit: int) -> list[Row]:
        """At most ``limit`` items behind ``after`` in the order of their places."""
        ...

    def count(self, query: Query) -> int:
        """How many items a query has."""
        ...

    def find(self, local: str) -> Row | None:
        """The item with this local part."""
        ...

    def sets(self, after: str, limit: int) -> list[str]:
        """At most ``limit`` setSpecs greater than ``after``, in order, those above others too."""
        ...

    def earliest(self) -> int | None:
        """The least stamp; None where the index is empty."""
        ...

    def close(self) -> None:
        """Lets go of the engine."""
        ...


def open_index(url: str, path: Path) -> Index:
    """The index that belongs to the catalogue behind ``url``, made where there is none.

    For an SQLite catalogue it is the file ``path``; for a MongoDB catalogue it lies in its database.
    """
    if url.startswith(("mongodb:", "mongodb+srv:")):
        from archec.oai.index_mongo import MongoIndex

        return MongoIndex(url)
    from archec.oai.index_sqlite import SQLiteIndex

    return SQLiteIndex(path)
