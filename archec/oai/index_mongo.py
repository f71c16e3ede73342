"""The OAI index beside a MongoDB catalogue, in its database.

One document for each item, with all its sets in ``m``: a change of an item is one atomic write, and any
page of any set is a range of one index. A lot is not atomic, but its date lies in the future until all of
it is written, so no reader can see a half of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pymongo import MongoClient, ReadPreference, ReplaceOne, UpdateOne, WriteConcern

from archec.catalogue.model import Position
from archec.catalogue.mongo_server import Server, connect, ping, translated
from archec.catalogue.url import redact
from archec.errors import CatalogueError
from archec.oai.index import LEADS
from archec.oai.model import KINDS, Cursor, Entry, Place, Query, Row, State
from archec.oai.names import ancestors

__all__ = ["MongoIndex"]

Document = dict[str, Any]
_VERSION = 2
_KEY = [("m", 1), ("k", 1), ("s", 1), ("_id", 1)]


class MongoIndex:
    """See :class:`archec.oai.index.Index`. Collections ``oai_items``, ``oai_sets``, ``oai_state``; those of
    another version are emptied. ``client`` is for tests."""

    def __init__(self, url: str, *, client: MongoClient[Document] | None = None) -> None:
        server = connect(url) if client is None else Server(client, client.get_default_database("archec").name, url)
        self._client, database, self._shown = server
        try:
            if client is None:
                ping(server)
            concern = WriteConcern(w="majority", j=True, wtimeout=60_000)
            db = self._client.get_database(database, write_concern=concern, read_preference=ReadPreference.PRIMARY)
            self._items, self._sets, self._state = db.oai_items, db.oai_sets, db.oai_state
            with translated(self._shown):
                self._prepare()
        except BaseException:
            self._client.close()
            raise
        self.url = redact(url)

    def _prepare(self) -> None:
        found = self._state.find_one({"_id": "state"})
        if found is not None and found.get("version") == _VERSION:
            return
        for collection in (self._items, self._sets):
            collection.drop()
        self._items.create_index(_KEY)
        start = _state_document(State(secrets.token_hex(4)))
        self._state.replace_one({"_id": "state"}, start, upsert=True)

    def close(self) -> None:
        """Lets go of the server."""
        self._client.close()

    # -- writing ----------------------------------------------------------------------------------

    def publish(self, entries: Sequence[Entry], state: State, clock: Callable[[], float]) -> int:
        """Brings in one lot; see the interface."""
        wanted = {entry.local: entry for entry in entries}
        with translated(self._shown):
            held = {found["_id"]: found for found in self._items.find({"_id": {"$in": sorted(wanted)}})}
            changed = [entry for local, entry in sorted(wanted.items()) if _differs(entry, held.get(local))]
            last = self.state().last
            if changed and state.ready:
                last = self._date(changed, held, last, clock)
            elif changed:
                self._put([_document(entry, held.get(entry.local), entry.stamp) for entry in changed])
                last = max(last, *(entry.stamp for entry in changed))
            self._state.replace_one({"_id": "state"}, _state_document(state._replace(last=last)), upsert=True)
        return len(changed)

    def _date(
        self, changed: Sequence[Entry], held: Mapping[str, Document], last: int, clock: Callable[[], float]
    ) -> int:
        """Writes a lot under a date that has not begun when it is written; that date."""
        for lead in LEADS:
            stamp = max(last, int(clock()) + lead)
            self._put([_document(entry, held.get(entry.local), stamp) for entry in changed])
            if clock() < stamp:
                return stamp
        raise CatalogueError(f"{self._shown}: a lot takes more than {LEADS[-1]} s to write")

    def _put(self, documents: Sequence[Document]) -> None:
        paths = {path for document in documents for path in document["m"] if path}
        if paths:
            self._sets.bulk_write(
                [UpdateOne({"_id": path}, {"$setOnInsert": {"_id": path}}, upsert=True) for path in sorted(paths)],
                ordered=False,
            )
        self._items.bulk_write([ReplaceOne({"_id": d["_id"]}, d, upsert=True) for d in documents], ordered=False)

    # -- reading ----------------------------------------------------------------------------------

    def state(self) -> State:
        """How far the index has come."""
        with translated(self._shown):
            found = self._state.find_one({"_id": "state"})
        if found is None:
            raise CatalogueError(f"{self._shown}: the OAI index has vanished", hint="start 'archec serve' again")
        return State(
            found["generation"], found["rules"], found["ready"], Cursor(*found["tobis"]), Cursor(*found["fobis"]),
            Position(*found["seen"]), found["last"], found["archive"], found["whole"],
        )  # fmt: skip

    def page(self, query: Query, after: Place | None, limit: int) -> list[Row]:
        """The rest of one stamp, then what comes behind it, for each kind; merged."""
        found: list[Document] = []
        for kind in query.kinds:
            where: Document = {"m": query.set, "k": KINDS.index(kind)}
            start = query.start
            some: list[Document] = []
            if after is not None:
                some += self._find({**where, "s": after.stamp, "_id": {"$gt": after.key}}, limit)
                start = after.stamp + 1
            if len(some) < limit:
                some += self._find({**where, "s": {"$gte": start, "$lte": query.end}}, limit - len(some))
            found += some
        found.sort(key=lambda document: (document["s"], document["_id"]))
        return [_row(document, query.set) for document in found[:limit]]

    def _find(self, where: Document, limit: int) -> list[Document]:
        with translated(self._shown):
            cursor = self._items.find(where, {"x": 0}).sort([("s", 1), ("_id", 1)]).limit(limit).batch_size(limit)
            return list(cursor.hint(_KEY))

    def count(self, query: Query) -> int:
        """Counts a range of the index."""
        where = {"m": query.set, "k": {"$in": [KINDS.index(kind) for kind in query.kinds]}}
        with translated(self._shown):
            return self._items.count_documents({**where, "s": {"$gte": query.start, "$lte": query.end}}, hint=_KEY)

    def find(self, local: str) -> Row | None:
        """The item with this local part."""
        with translated(self._shown):
            found = self._items.find_one({"_id": local})
        return _row(found, "") if found is not None else None

    def sets(self, after: str, limit: int) -> list[str]:
        """At most ``limit`` setSpecs greater than ``after``."""
        with translated(self._shown):
            return [found["_id"] for found in self._sets.find({"_id": {"$gt": after}}).sort("_id", 1).limit(limit)]

    def earliest(self) -> int | None:
        """The least stamp."""
        found = [row.place.stamp for kind in KINDS for row in self.page(Query((kind,), "", 0, 1 << 62), None, 1)]
        return min(found, default=None)


def _state_document(state: State) -> Document:
    return {
        "_id": "state", "version": _VERSION, "generation": state.generation, "rules": state.rules,
        "ready": state.ready, "tobis": list(state.tobis), "fobis": list(state.fobis), "seen": list(state.seen),
        "last": state.last, "archive": state.archive, "whole": state.whole,
    }  # fmt: skip


def _differs(entry: Entry, held: Document | None) -> bool:
    return held is None or (entry.mark, entry.deleted, list(entry.sets)) != (held["x"], held["d"], held["l"])


def _document(entry: Entry, held: Document | None, stamp: int) -> Document:
    """``l`` are the item's sets, ``g`` those it has left, ``m`` all of them with those above them."""
    was = {*held["l"], *held["g"]} if held is not None else set()
    gone = sorted(was - set(entry.sets))
    document: Document = {
        "_id": entry.local, "k": KINDS.index(entry.kind), "s": stamp, "d": entry.deleted, "x": entry.mark,
        "l": list(entry.sets), "g": gone, "m": sorted(_expanded([*entry.sets, *gone])),
    }  # fmt: skip
    if entry.obi != entry.local:
        document["o"] = entry.obi
    return document


def _expanded(leaves: Iterable[str]) -> set[str]:
    return {"", *(path for leaf in leaves for path in ancestors(leaf))}


def _row(document: Document, asked: str) -> Row:
    local = document["_id"]
    left = bool(document["g"]) and asked not in _expanded(document["l"])
    return Row(
        Place(document["s"], local), KINDS[document["k"]], local, str(document.get("o", local)), document["d"],
        tuple(document["l"]), left,
    )  # fmt: skip
