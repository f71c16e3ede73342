"""The OAI index next to a MongoDB catalogue, in its database.

There is one document for each item, with all its sets in ``m``. A change of an item is one atomic write, and every page
of every set is a range of one index. A chunk is not atomic, but its stamp is in the future until all of it is written,
so no reader can see a part of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pymongo import ReplaceOne, UpdateOne

from archec.catalogue.mongo_server import open_database, parts_of, translated
from archec.errors import CatalogueError
from archec.oai.index import ITEM_KINDS, Index, IndexEntry, IndexRow, IndexState, ListQuery, SortKey
from archec.oai.sets import with_ancestors

Document = dict[str, Any]
_VERSION = 3
_KEY = [("m", 1), ("k", 1), ("s", 1), ("_id", 1)]


class MongoIndex(Index):
    """:class:`archec.oai.index.Index` in the collections ``oai_items``, ``oai_sets`` and ``oai_state``. Collections of
    another version are emptied."""

    def __init__(self, url: str) -> None:
        self._db, self.name = open_database(url, waits=False)
        self._items, self._sets, self._state = self._db.oai_items, self._db.oai_sets, self._db.oai_state
        try:
            with translated(self.name):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        found = self._state.find_one({"_id": "state"})
        if found is not None and found.get("version") == _VERSION:
            return
        for collection in (self._items, self._sets):
            collection.drop()
        self._items.create_index(_KEY)
        self._put_state(IndexState(secrets.token_hex(4)))

    def close(self) -> None:
        self._db.client.close()

    # -- writing ----------------------------------------------------------------------------------

    def _write(
        self, chunk: Mapping[str, IndexEntry], state: IndexState, stamp: int, *, force: bool
    ) -> tuple[int, dict[str, IndexEntry]]:
        with translated(self.name):
            parts = parts_of(sorted(chunk))
            old = {found["_id"]: found for part in parts for found in self._items.find({"_id": {"$in": part}})}
            changed = {local: entry for local, entry in chunk.items() if force or _differs(entry, old.get(local))}
            last = self.state().last
            stamp = max(last, stamp)
            if changed:
                dated = {local: stamp if state.ready else entry.stamp for local, entry in changed.items()}
                self._put([_document(entry, old.get(local), dated[local]) for local, entry in sorted(changed.items())])
                last = max(last, *dated.values())
            self._put_state(state._replace(last=last))
        return stamp, changed

    def _put(self, documents: Sequence[Document]) -> None:
        # Sets before items, so that every set in an item's document can be listed. In parts, as the server's response
        # contains the ids that are new.
        for part in parts_of(sorted({path for document in documents for path in document["m"] if path})):
            self._sets.bulk_write(
                [UpdateOne({"_id": path}, {"$setOnInsert": {"_id": path}}, upsert=True) for path in part], ordered=False
            )
        items = {document["_id"]: document for document in documents}
        for part in parts_of(list(items)):
            self._items.bulk_write([ReplaceOne({"_id": one}, items[one], upsert=True) for one in part], ordered=False)

    def _put_state(self, state: IndexState) -> None:
        document = {"_id": "state", "version": _VERSION, **state._asdict()}
        self._state.replace_one({"_id": "state"}, document, upsert=True)

    # -- reading ----------------------------------------------------------------------------------

    def state(self) -> IndexState:
        with translated(self.name):
            found = self._state.find_one({"_id": "state"})
        if found is None:
            raise CatalogueError(f"{self.name}: the OAI index has vanished", hint="start 'archec serve' again")
        return msgspec.convert([found[field] for field in IndexState._fields], IndexState)

    def page(self, query: ListQuery, after: SortKey | None, limit: int) -> list[IndexRow]:
        found: list[Document] = []
        for kind in query.kinds:
            # The rest of one stamp, then the following stamps: together one range of the index.
            where: Document = {"m": query.set, "k": ITEM_KINDS.index(kind)}
            start = query.start
            some: list[Document] = []
            if after is not None:
                some += self._find({**where, "s": after.stamp, "_id": {"$gt": after.tie}}, limit)
                start = after.stamp + 1
            if len(some) < limit:
                some += self._find({**where, "s": {"$gte": start, "$lte": query.end}}, limit - len(some))
            found += some
        found.sort(key=lambda document: (document["s"], document["_id"]))
        return [_row(document, query.set) for document in found[:limit]]

    def _find(self, where: Document, limit: int) -> list[Document]:
        with translated(self.name):
            cursor = self._items.find(where, {"x": 0}).sort([("s", 1), ("_id", 1)]).limit(limit).batch_size(limit)
            return list(cursor.hint(_KEY))

    def count(self, query: ListQuery) -> int:
        where = {"m": query.set, "k": {"$in": [ITEM_KINDS.index(kind) for kind in query.kinds]}}
        with translated(self.name):
            return self._items.count_documents({**where, "s": {"$gte": query.start, "$lte": query.end}}, hint=_KEY)

    def find(self, local: str) -> IndexRow | None:
        with translated(self.name):
            found = self._items.find_one({"_id": local})
        return _row(found, "") if found is not None else None

    def sets(self, after: str, limit: int) -> list[str]:
        with translated(self.name):
            return [found["_id"] for found in self._sets.find({"_id": {"$gt": after}}).sort("_id", 1).limit(limit)]


def _differs(entry: IndexEntry, old: Document | None) -> bool:
    return old is None or (entry.mark, entry.deleted, list(entry.sets)) != (old["x"], old["d"], old["l"])


def _document(entry: IndexEntry, old: Document | None, stamp: int) -> Document:
    """``l`` are the item's sets, ``g`` those it has left, ``m`` all of them with their ancestors."""
    known = {*old["l"], *old["g"]} if old is not None else set()
    gone = sorted(known - set(entry.sets))
    document: Document = {
        "_id": entry.local, "k": ITEM_KINDS.index(entry.kind), "s": stamp, "d": entry.deleted, "x": entry.mark,
        "l": list(entry.sets), "g": gone, "m": sorted(with_ancestors([*entry.sets, *gone])),
    }  # fmt: skip
    if entry.obi != entry.local:
        document["o"] = entry.obi
    return document


def _row(document: Document, asked: str) -> IndexRow:
    local: str = document["_id"]
    left = bool(document["g"]) and asked not in with_ancestors(document["l"])
    return IndexRow(
        SortKey(document["s"], local), ITEM_KINDS[document["k"]], local, str(document.get("o", local)), document["d"],
        tuple(document["l"]), left,
    )  # fmt: skip
