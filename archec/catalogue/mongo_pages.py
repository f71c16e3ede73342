"""Reading a MongoDB catalogue by id and, page by page, in order.

Each page is a query of its own, by key: no cursor is left open on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from pymongo.database import Database

from archec.catalogue.mongo_server import translated
from archec.errors import CatalogueError

Document = dict[str, Any]

_IN = 1000
"""Ids asked for at once."""


class Pages:
    """The collections of one database; ``shown`` is how messages name it."""

    def __init__(self, db: Database[Document], shown: str) -> None:
        self._db = db
        self._shown = shown

    def one(self, name: str, key: str) -> Document | None:
        """The document with this id."""
        found = list(self.having(name, "_id", (key,)))
        return found[0] if found else None

    def having(
        self,
        name: str,
        field: str,
        values: Collection[str],
        fields: Document | None = None,
        *,
        where: Document | None = None,
    ) -> Iterator[Document]:
        """The documents with any of these values in a field, in any order."""
        known = [value for value in values if is_text(value)]
        for i in range(0, len(known), _IN):
            yield from self.page(name, {**(where or {}), field: {"$in": known[i : i + _IN]}}, (), 0, fields)

    def by_key(
        self, name: str, key: str, after: object, size: int, fields: Document | None = None
    ) -> Iterator[Document]:
        """All documents with ``key`` > ``after``, in that order."""

        def page(start: object) -> list[Document]:
            return self.page(name, {key: {"$gt": start}}, (key,), size, fields)

        return _paged(page, after, lambda document: document[key])

    def by_pair(
        self,
        name: str,
        pair: tuple[str, str],
        start: tuple[int, str],
        size: int,
        *,
        most: int | None = None,
        fields: Document | None = None,
        where: Document | None = None,
    ) -> Iterator[Document]:
        """Documents in the order of two fields, beginning behind ``start``; the first field is ``most`` at most.

        A page is the rest of one value of the first field and then what comes behind it: two plain ranges
        of one index, where ``$or`` would cost a merge.
        """
        first, second = pair

        def page(key: tuple[int, str]) -> list[Document]:
            value, obi = key
            if most is not None and value > most:
                return []
            found = self.page(name, {**(where or {}), first: value, second: {"$gt": obi}}, pair, size, fields)
            if len(found) < size:
                beyond = {"$gt": value} if most is None else {"$gt": value, "$lte": most}
                found += self.page(name, {**(where or {}), first: beyond}, pair, size - len(found), fields)
            return found

        return _paged(page, start, lambda document: (document[first], document[second]))

    def page(
        self,
        name: str,
        where: Document,
        order: Sequence[str],
        size: int,
        fields: Document | None = None,
        *,
        down: bool = False,
    ) -> list[Document]:
        """At most ``size`` documents (0: all), in one go; ``down``: the last ones first.

        Raises :class:`CatalogueError` for one that lacks a field that it is sorted by.
        """
        with translated(self._shown):
            cursor = self._db[name].find(where, fields).limit(size).batch_size(size)
            if order:
                cursor = cursor.sort([(field, -1 if down else 1) for field in order])
            found = list(cursor)
        for field in order:
            if any(field not in document for document in found):
                raise CatalogueError(f"{self._shown}: a document in {name} lacks its {field!r}")
        return found


def _paged(page: Callable[[Any], list[Document]], start: Any, key: Callable[[Document], Any]) -> Iterator[Document]:
    found = page(start)
    while found:
        yield from found
        found = page(key(found[-1]))


def is_text(obi: str) -> bool:
    """Whether BSON can hold this id at all: a lone surrogate is not text, and so never known."""
    try:
        obi.encode()
    except UnicodeEncodeError:
        return False
    return True
