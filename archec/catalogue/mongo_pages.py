"""Reading a MongoDB catalogue by id and, page by page, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from pymongo.database import Database

from archec.catalogue.mongo_documents import Document
from archec.catalogue.mongo_server import translated

__all__ = ["Pages", "is_text"]

_IN = 1000
"""Ids asked for at once."""


class Pages:
    """Reads that leave no cursor open on the server: each page is a query of its own, by key."""

    def __init__(self, db: Database[Document], shown: str) -> None:
        self._db = db
        self._shown = shown

    def one(self, name: str, key: str) -> Document | None:
        """The document with this id."""
        found = list(self.by_ids(name, (key,)))
        return found[0] if found else None

    def by_ids(self, name: str, ids: Collection[str], fields: Document | None = None) -> Iterator[Document]:
        """The documents with these ids, in any order."""
        known = [obi for obi in ids if is_text(obi)]
        for i in range(0, len(known), _IN):
            yield from self.page(name, {"_id": {"$in": known[i : i + _IN]}}, (), 0, fields)

    def by_id(self, name: str, after: str, size: int, fields: Document | None = None) -> Iterator[Document]:
        """All documents with _id > ``after``."""

        def page(key: str) -> list[Document]:
            return self.page(name, {"_id": {"$gt": key}}, ("_id",), size, fields)

        return _paged(page, after, lambda document: document["_id"])

    def by_pair(
        self,
        name: str,
        first: str,
        start: tuple[int, str],
        size: int,
        *,
        most: int | None = None,
        fields: Document | None = None,
    ) -> Iterator[Document]:
        """Documents with (``first``, _id) > ``start`` and ``first`` <= ``most``, in that order.

        A page is the rest of one value of ``first`` and then what comes behind it: two plain ranges
        of one index, where ``$or`` would cost a merge.
        """

        def page(key: tuple[int, str]) -> list[Document]:
            value, obi = key
            if most is not None and value > most:
                return []
            found = self.page(name, {first: value, "_id": {"$gt": obi}}, (first, "_id"), size, fields)
            if len(found) < size:
                beyond = {"$gt": value} if most is None else {"$gt": value, "$lte": most}
                found += self.page(name, {first: beyond}, (first, "_id"), size - len(found), fields)
            return found

        return _paged(page, start, lambda document: (document[first], document["_id"]))

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
        """At most ``size`` documents (0: all), in one go; ``down``: the last ones first."""
        with translated(self._shown):
            cursor = self._db[name].find(where, fields).limit(size).batch_size(size)
            if order:
                cursor = cursor.sort([(field, -1 if down else 1) for field in order])
            return list(cursor)


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
