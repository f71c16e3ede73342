"""The catalogue on a MongoDB server.

Collections ``mi mo mf entries versions refs claims visits runs data_sets sets held manifests ingests hosts state``. No
document grows with the number of an obi's versions, references or visits (:mod:`archec.catalogue.documents`). Field
names are fixed names or tists, never data from outside. Writes are acknowledged by a majority and journaled
(``w: majority, j: true``), so an acknowledged batch survives a restart of the server.

A standalone server has no transactions, so an obi's head is written after its other parts, and the position at the end
of a batch. A batch that was interrupted is applied again, which does not change what is written already. Reads go to
the primary. Iterators read page by page, by key, and leave no cursor open on the server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

from bson import MinKey
from pymongo import DeleteOne, ReplaceOne, UpdateOne

from archec.catalogue.documents import (
    KEYS,
    PART_KEYS,
    START,
    BytesPlace,
    DueFobi,
    FileState,
    Head,
    Key,
    Moment,
    ObiState,
    TextPlace,
    WrittenObis,
    built,
    documents_of,
    history_text,
    plain,
    written,
    written_visits,
)
from archec.catalogue.interface import Catalogue, Checksum, redact
from archec.catalogue.model import (
    COLLECTION,
    KINDS,
    Changes,
    Claim,
    KeyedSet,
    Kind,
    Note,
    Position,
    Version,
    Visit,
    Visited,
)
from archec.catalogue.mongo_server import ABSENT, Document, PagedReader, Shape, open_database, parts_of, translated
from archec.errors import CatalogueError
from archec.history import History
from archec.ids import ranges_of
from archec.paging import batched
from archec.tist import MAX_TIST

SCHEMA_VERSION = 10
"""Must be increased with every change to the format of documents."""

_COLLECTIONS = (*COLLECTION.values(), "entries", "versions", "refs", "claims", "visits", "sets", *KEYS)
_INDEXES: Sequence[tuple[str, tuple[str, ...], dict[str, Any]]] = (
    *((name, ("stamp", "_id"), {}) for name in ("mi", "mo", "mf")),
    *((name, ("lost", "_id"), {"partialFilterExpression": {"lost": {"$exists": True}}})
      for name in ("mi", "mo", "mf")),
    ("mo", ("due", "_id"), {}),
    ("entries", ("obi", "kind", "tist"), {"unique": True}),
    ("entries", ("kind", "tist", "obi"), {}),
    ("entries", ("kind", "note.run", "tist", "obi"), {}),
    ("entries", ("back", "tist", "obi"), {"partialFilterExpression": {"back": {"$exists": True}}}),
    ("versions", ("obi", "kind", "sha256"), {"unique": True}),
    ("versions", ("sha256",), {}),
    ("versions", ("md5",), {}),
    ("versions", ("kind", "text", "first", "obi"), {}),
    ("refs", ("url", "obi"), {"unique": True}),
    ("claims", ("obi", "tist", "run"), {"unique": True}),
)
_PAGE = 5000
_OBI_PAGE = 500
_SET_PART = 8_000_000
"""Bytes of a keyed set in one document: a whole set may exceed MongoDB's 16 MB."""
_MENTIONED: Document = {"h": {}, "state": None, "due": 0, "stamp": 0}

_TEXT, _NUMBER = (str,), (int,)
_TEXT_OR_NULL, _NUMBER_OR_NULL = (str, type(None)), (int, type(None))
_HEAD: Shape = {
    "_id": _TEXT, "h": (dict,), "state": _TEXT_OR_NULL, "due": _NUMBER, "stamp": _NUMBER,
    "handle": (str, ABSENT), "type": (str, ABSENT), "place": (str, ABSENT),
    "since": (int, ABSENT), "settled": (int, ABSENT), "lost": (int, ABSENT),
}  # fmt: skip
_SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(COLLECTION.values(), _HEAD),
    "entries": {"obi": _TEXT, "kind": _TEXT, "tist": _NUMBER, "note": (dict, type(None)), "back": (str, ABSENT)},
    "versions": {"obi": _TEXT, "kind": _TEXT, "sha256": _TEXT, "md5": _TEXT, "size": _NUMBER, "first": _NUMBER_OR_NULL,
                 "text": (str, type(None), ABSENT)},
    "refs": {"url": _TEXT, "obi": _TEXT},
    "claims": {"obi": _TEXT},
    "visits": {"_id": _TEXT, "outcome": _TEXT},
    "sets": {"_id": _TEXT, "of": _NUMBER, "data": (bytes,)},
    **{name: {"_id": (dict,), "doc": _TEXT} for name in KEYS},
    "state": {},
}  # fmt: skip
"""The types of the fields that are read directly. Others are checked by :func:`built`."""


_Write = ReplaceOne[Document] | UpdateOne | DeleteOne


class MongoCatalogue(Catalogue):
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    ``create``: an empty database becomes an empty catalogue. Opening raises :class:`archec.errors.ConfigError` for an
    invalid URL, :class:`archec.errors.CatalogueGone` if no server responds, :class:`CatalogueError` if the database is
    not a catalogue or of another version.
    """

    is_transactional = False

    def __init__(self, url: str, *, create: bool = False, read_only: bool = False) -> None:
        self.url = redact(url)
        self.read_only = read_only
        self._db, self._shown = open_database(url)
        try:
            self._pages = PagedReader(self._db, self._shown, _SHAPES)
            with translated(self._shown):
                self._check(create=create and not read_only)
        except BaseException:
            self.close()
            raise

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Applies the changes of one batch. The position is written last."""
        self._refuse_if_read_only()
        with translated(self._shown):
            for kind in KINDS:
                self._put(kind, written(changes, kind, self.obis))
            self._put_visits(written_visits(changes))
            mentioned = sorted(set(changes.mentioned))
            self._bulk("mo", [UpdateOne({"_id": url}, {"$setOnInsert": _MENTIONED}, upsert=True) for url in mentioned])
            self._bulk("sets", chain.from_iterable(map(_set_writes, changes.sets)))
            for name, rows in documents_of(changes):
                self._bulk(name, [_replace({"_id": _key(name, row[:-1])}, {"doc": row[-1]}) for row in rows])
            self._bulk("hosts", [DeleteOne({"_id": _key("hosts", (one.host,))}) for one in changes.hosts if one.clear])
            self._db.state.replace_one({"_id": "position"}, changes.position._asdict(), upsert=True)

    def _put(self, kind: Kind, changed: WrittenObis) -> None:
        """Writes obis of one kind and removes their obsolete parts. Heads are written last."""
        heads, parts, gone = changed
        removed = {name: [DeleteOne(_part_key(name, key)) for key in keys] for name, keys in gone.items()}
        refs = [_replace(_part_key("refs", key), {}) for key in sorted(parts.refs)]
        self._bulk("refs", [*refs, *removed.pop("refs")])  # before the versions from which they are derived
        self._forget_unnamed({url for url, _ in gone["refs"]})
        self._bulk("versions", [
            _replace(_part_key("versions", key), {**plain(version), "first": first})
            for key, (version, first) in parts.versions.items()
        ])  # fmt: skip
        self._bulk("entries", [
            _replace(_part_key("entries", key), {"note": note and plain(note), **({"back": kind} if back else {})})
            for key, (back, note) in parts.entries.items()
        ])  # fmt: skip
        self._bulk("claims", [
            _replace(_part_key("claims", key), {name: getattr(claim, name) for name in Claim.__struct_fields__})
            for key, claim in parts.claims.items()
        ])  # fmt: skip
        for name, writes in removed.items():
            self._bulk(name, writes)
        self._bulk(COLLECTION[kind], [_replace({"_id": head.id}, _document(head)) for head in heads])

    def _forget_unnamed(self, urls: Collection[str]) -> None:
        """Removes the fobis among ``urls`` that were never visited and that no tobi names any more."""
        for part in batched(sorted(urls), _OBI_PAGE):
            needed = set(self._db.refs.distinct("url", {"url": {"$in": part}}))
            needed.update(self._db.visits.distinct("_id", {"_id": {"$in": part}}))
            unnamed = [url for url in part if url not in needed]
            self._db.mo.delete_many({"_id": {"$in": unnamed}, "due": 0, "last": None})

    def _put_visits(self, visits: Sequence[Visited]) -> None:
        self._bulk("visits", [_replace({"_id": obi}, plain(visit)) for obi, visit, _ in visits])
        rest = {key: value for key, value in _MENTIONED.items() if key != "due"}
        due = [
            UpdateOne({"_id": obi}, {"$set": {"due": due}, "$setOnInsert": rest}, upsert=True) for obi, _, due in visits
        ]
        self._bulk("mo", due)

    def clear(self) -> None:
        """Empties the catalogue. The position is removed first, so that an interrupted call is noticed."""
        self._refuse_if_read_only()
        with translated(self._shown):
            self._db.state.delete_one({"_id": "position"})
            for name in _COLLECTIONS:
                self._db[name].drop()
            self._make_indexes()

    def _bulk(self, name: str, writes: Iterable[_Write]) -> None:
        requests = list(writes)
        if requests:
            self._db[name].bulk_write(requests, ordered=False)

    # -- obis -------------------------------------------------------------------------------------

    def _heads(self, kind: Kind, ids: Collection[str]) -> list[Head]:
        return list(map(_head, self._pages.having(COLLECTION[kind], "_id", ids)))

    def _page(self, kind: Kind, after: str, before: str) -> list[Head]:
        within = {"$gt": after, "$lt": before} if before else {"$gt": after}
        return list(map(_head, self._pages.page(COLLECTION[kind], {"_id": within}, ("_id",), _OBI_PAGE)))

    def _changed(self, kind: Kind, stamp: int, after: str, limit: int) -> list[Head]:
        pairs = self._pages.by_pair(COLLECTION[kind], ("stamp", "_id"), (stamp, after), limit)
        return list(map(_head, islice(pairs, limit)))

    def _notes(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, tuple[int, Note]]]:
        found = self._pages.having("entries", "obi", ids, where={"kind": kind, "note": {"$ne": None}})
        return ((entry["obi"], (entry["tist"], built(Note, entry["note"]))) for entry in found)

    def _versions(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, Version]]:
        found = self._pages.having("versions", "obi", ids, where={"kind": kind})
        return ((document["obi"], built(Version, document)) for document in found)

    def _claims(self, ids: Collection[str]) -> Iterator[tuple[str, Claim]]:
        for document in self._pages.having("claims", "obi", ids):
            yield document["obi"], built(Claim, [document.get(name) for name in Claim.__struct_fields__])

    def _visits(self, ids: Collection[str]) -> Iterator[tuple[str, Visit]]:
        return ((document["_id"], built(Visit, document)) for document in self._pages.having("visits", "_id", ids))

    def ids(self, kind: Kind, low: str, high: str, limit: int) -> list[str]:
        within = {"_id": {"$gte": low, "$lt": high}}
        return [head["_id"] for head in self._pages.page(COLLECTION[kind], within, ("_id",), limit, {"_id": 1})]

    def scan(self, after: str = "") -> Iterator[ObiState]:
        for head in self._pages.by_key("mi", "_id", after, _PAGE, {"h": 1, "place": 1, "since": 1}):
            history = _history(head)
            h = None if len(history) == 1 else history_text(history)
            state = history.states[-1] if history else None
            place, since = head.get("place", ""), head.get("since", MAX_TIST)
            yield ObiState(head["_id"], history.last or 0, state, h, place, since)

    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        start = after or (-1, "")
        pairs = self._pages.by_pair("mo", ("due", "_id"), start, _PAGE, most=before, fields={"due": 1})
        return (DueFobi(document["due"], document["_id"]) for document in pairs)

    def with_outcome(self, outcomes: Collection[str]) -> Iterator[str]:
        where = {"outcome": {"$in": list(outcomes)}}
        found = self._pages.by_key("visits", "_id", "", _PAGE, {"_id": 1}, where=where)
        return (document["_id"] for document in found)

    def texts(self, kind: Kind) -> Iterator[TextPlace]:
        fields, where = {"text": 1, "first": 1, "obi": 1}, {"kind": kind, "first": {"$gt": -1}}
        found = self._pages.by_key("versions", "text", "", _PAGE, fields, then=("first", "obi"), where=where)
        for text, group in groupby(found, itemgetter("text")):
            least = next(group)
            yield TextPlace(text, least["first"], least["obi"])

    # -- runs and data sets -----------------------------------------------------------------------

    def position(self) -> Position:
        found = self._pages.one("state", "position")
        return built(Position, [found.get(name) for name in Position._fields]) if found is not None else Position()

    def keyed(self, key: str) -> bytes | None:
        data: list[bytes] = []
        of = 1
        while len(data) < of:
            part = self._pages.one("sets", f"{key}/{len(data)}")
            if part is None:
                return None
            data.append(part["data"])
            of = part["of"]
        return b"".join(data)

    def documents(self, name: str, low: Key, high: Key | None = None, newest: int = 0) -> Iterator[Key]:
        start, end = _key(name, low), _key(name, high) if high else None
        if newest:
            found = iter(self._pages.page(name, {"_id": {"$gt": start, "$lt": end}}, ("_id",), newest, down=True))
        else:
            found = self._pages.by_key(name, "_id", start, _PAGE, before=end)
        return ((*document["_id"].values(), document["doc"]) for document in found)

    def document(self, name: str, key: Key) -> str | None:
        found = self._pages.page(name, {"_id": _key(name, key)}, (), 1)
        return str(found[0]["doc"]) if found else None

    # -- versions ---------------------------------------------------------------------------------

    def holding(self, checksums: Collection[str]) -> dict[str, BytesPlace]:
        places: dict[str, BytesPlace] = {}
        for checksum in checksums:
            where = {"sha256" if len(checksum) == 64 else "md5": checksum, "first": {"$gt": -1}}
            for found in self._pages.page("versions", where, ("first", "obi"), 1):
                places[checksum] = BytesPlace(found["kind"], found["obi"], found["first"], found["size"])
        return places

    def holders(self, kind: Kind, checksum: Checksum, value: str) -> Iterator[str]:
        found = self._pages.by_key("versions", "obi", "", _PAGE, {"obi": 1}, where={checksum: value, "kind": kind})
        return (obi for obi, _ in groupby(found, itemgetter("obi")))

    def references(self) -> Iterator[tuple[str, str]]:
        pairs = self._pages.by_pair("refs", ("url", "obi"), ("", ""), _PAGE)
        return ((document["url"], document["obi"]) for document in pairs)

    def checksums(self) -> Iterator[tuple[str, str, str, str, str | None, int | None]]:
        for document in self._pages.by_key("versions", "_id", MinKey(), _PAGE):
            yield (
                document["kind"], document["obi"], document["sha256"], document["md5"], document.get("text"),
                document["first"],
            )  # fmt: skip

    # -- hosts --------------------------------------------------------------------------------------

    def gone_files(self, host: str, since: int) -> tuple[int, int]:
        held = gone = 0
        for low, high in ranges_of(host):
            heads = self._pages.by_key("mo", "_id", low[:-1], _PAGE, {"state": 1}, before=high)
            files = (head["_id"] for head in heads if head["_id"] >= low and head.get("state"))
            for page in batched(files, _PAGE):
                held += len(page)
                found = self._pages.having("visits", "_id", page, where={"outcome": "gone"})
                gone += sum(built(Visit, document).when >= since for document in found)
        return held, gone

    def held_bodies(self, sha256s: Collection[str]) -> set[str]:
        with translated(self._shown):
            return set(self._db.versions.distinct("sha256", {"sha256": {"$in": [*sha256s]}}))

    def sharing(self, host: str, sha256: str, limit: int) -> list[str]:
        where = {"sha256": sha256, "kind": "fobi"}
        ranges = [{**where, "obi": {"$gte": low, "$lt": high}} for low, high in ranges_of(host)]
        pages = (self._pages.page("versions", one, ("obi",), limit, {"obi": 1}) for one in ranges)
        return [document["obi"] for page in pages for document in page][:limit]

    def _count(self, kind: Kind) -> tuple[int, int, int]:
        lost_or_held = {"$cond": [{"$eq": ["$state", None]}, "lost", "held"]}
        state = {"$cond": [{"$eq": ["$h", {}]}, "never", lost_or_held]}
        with translated(self._shown):
            grouped = [{"$group": {"_id": state, "n": {"$sum": 1}}}]
            found = {one["_id"]: one["n"] for one in self._db[COLLECTION[kind]].aggregate(grouped, allowDiskUse=True)}
        return found.get("held", 0), found.get("lost", 0), found.get("never", 0)

    # -- lists ------------------------------------------------------------------------------------

    def incidences(self, kind: Kind, after: Moment = START, *, run: int | None = None) -> Iterator[Moment]:
        where = {"kind": kind} if run is None else {"kind": kind, "note.run": run}
        return self._moments("entries", ("tist", "obi"), where, after)

    def returned(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        return self._moments("entries", ("tist", "obi"), {"back": kind}, after)

    def lost(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        return self._moments(COLLECTION[kind], ("lost", "_id"), {}, after)

    def _moments(self, name: str, pair: tuple[str, str], where: Document, after: Moment) -> Iterator[Moment]:
        fields = dict.fromkeys(pair, 1)
        found = self._pages.by_pair(name, pair, after, _PAGE, fields=fields, where=where)
        return (Moment(document[pair[0]], document[pair[1]]) for document in found)

    def naming(self, urls: Collection[str], limit: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for part in parts_of(sorted(urls)):
            while page := self._pages.page("refs", {"url": {"$in": part}}, ("url", "obi"), _PAGE):
                for url, group in groupby(page, itemgetter("url")):
                    found[url] = [document["obi"] for document in islice(group, limit)]
                if len(page) < _PAGE:
                    break
                last = page[-1]["url"]  # the page may have ended among its tobis
                rest = self._pages.page("refs", {"url": last}, ("obi",), limit)
                found[last] = [document["obi"] for document in rest]
                part = [url for url in part if url > last]
        return found

    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        outcomes = {d["_id"]: d["outcome"] for d in self._pages.having("visits", "_id", urls, {"outcome": 1})}
        found: dict[str, FileState] = {}
        for head in self._pages.having("mo", "_id", urls, {"h": 1, "type": 1}):
            history = _history(head)
            held = history.held if history else None
            url = head["_id"]
            found[url] = FileState(held, head.get("type", ""), outcomes.get(url, ""), history.last or 0)
        return found

    # -- the server -------------------------------------------------------------------------------

    def close(self) -> None:
        self._db.client.close()

    def _refuse_if_read_only(self) -> None:
        if self.read_only:
            raise CatalogueError(f"{self._shown}: this catalogue was opened for reading only")

    def _check(self, *, create: bool) -> None:
        found = self._db.state.find_one({"_id": "schema"})
        if found is None:
            if any(self._db[name].find_one({}, {"_id": 1}) is not None for name in _COLLECTIONS):
                raise CatalogueError(
                    f"{self._shown}: this database holds something else than a catalogue of archec",
                    hint="use another database in the URL: mongodb://HOST/DATABASE",
                )
            if not create:
                raise CatalogueError(
                    f"{self._shown}: there is no catalogue in this database",
                    hint="'archec rebuild' creates it from the archive directory",
                )
            self._make_indexes()
            self._db.state.replace_one({"_id": "schema"}, {"version": SCHEMA_VERSION}, upsert=True)
        elif found.get("version") != SCHEMA_VERSION:
            raise CatalogueError(
                f"{self._shown}: this catalogue has schema version {found.get('version')},"
                f" this archec works with {SCHEMA_VERSION}",
                hint="use the archec that made it, or another database and 'archec rebuild'",
            )

    def _make_indexes(self) -> None:
        for name, fields, options in _INDEXES:
            self._db[name].create_index([(field, 1) for field in fields], **options)


def _key(name: str, values: Key) -> Document:
    """The id of a small document. MongoDB compares such ids field by field."""
    return dict(zip(KEYS[name], values, strict=True))


def _replace(key: Document, rest: Document) -> ReplaceOne[Document]:
    return ReplaceOne(key, {**rest, **key}, upsert=True)


def _part_key(name: str, key: Key) -> Document:
    return {"obi" if field == "id" else field: value for field, value in zip(PART_KEYS[name], key, strict=True)}


def _document(head: Head) -> Document:
    """The document of an obi's head. ``h`` is as in the paper, with entries in the order of tists."""
    document = {"h": {str(tist): state for tist, state in head.history}, "state": head.state}
    rest = {
        "handle": head.handle or None, "type": head.type or None, "place": head.place or None, "since": head.since,
        "settled": head.settled or None, "lost": head.history.lost, "due": head.due, "stamp": head.stamp,
    }  # fmt: skip
    return document | {name: value for name, value in rest.items() if value is not None}


def _head(document: Document) -> Head:
    return Head(
        document["_id"], _history(document), document.get("handle", ""), document.get("type", ""), document["stamp"],
        document["due"], document.get("place", ""), document.get("since"), document.get("settled", 0),
    )  # fmt: skip


def _history(head: Document) -> History:
    return History.of(built(dict[int, str | None], head["h"]))


def _set_writes(item: KeyedSet) -> Iterator[_Write]:
    """The writes for a keyed set: documents ``{_id: "KEY/PART", of: number of parts, data: bytes}``."""
    parts = [item.data[i : i + _SET_PART] for i in range(0, len(item.data), _SET_PART)] or [b""]
    return (_replace({"_id": f"{item.key}/{i}"}, {"of": len(parts), "data": part}) for i, part in enumerate(parts))
