"""The lists over a whole MongoDB catalogue.

A document has, beside its history, what indexes can be laid over: ``at`` (the tists of its entries), ``back`` (those
of its returns), ``lost`` (that of the loss in force), ``refs`` (the fobis that any of its versions names). MongoDB
does not page in order over an index of lists, but it does over one value in them; the collection ``tists`` says
which values there are, or have been.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from typing import Literal

from pymongo import UpdateOne
from pymongo.database import Database

from archec.catalogue import mongo_documents as documents
from archec.catalogue.lists import START, FileState, ObiKind, Place, TobiFiles
from archec.catalogue.model import Tobi
from archec.catalogue.mongo_documents import Document
from archec.catalogue.mongo_pages import Pages, is_text
from archec.catalogue.mongo_server import translated

__all__ = ["MongoLists", "make_list_indexes", "tists_of"]

_PAGE = 2000
_DOC_PAGE = 500
_SAMPLE = 300
"""Tobis looked at to part the ids."""
_DIGITS = 20
_NAMES: dict[ObiKind, Literal["mi", "mo"]] = {"tobi": "mi", "fobi": "mo"}


def make_list_indexes(db: Database[Document]) -> None:
    """The indexes that the lists need; fine where they are there."""
    for name in ("mi", "mo"):
        db[name].create_index([("at", 1), ("_id", 1)])
        for field in ("back", "lost"):
            db[name].create_index([(field, 1), ("_id", 1)], partialFilterExpression={field: {"$exists": True}})
    db.mi.create_index([("refs", 1), ("_id", 1)])


def tists_of(name: str, written: Iterable[Document]) -> list[UpdateOne]:
    """What is to be written into ``tists`` for these documents of ``mi`` or ``mo``."""
    found = {(field, tist) for document in written for field in ("at", "back") for tist in document.get(field, ())}
    keys = sorted(_key(name, field, tist) for field, tist in found)
    return [UpdateOne({"_id": key}, {"$setOnInsert": {"of": name}}, upsert=True) for key in keys]


class MongoLists:
    """The part of :class:`archec.catalogue.mongo.MongoCatalogue` that reads lists."""

    _db: Database[Document]
    _pages: Pages
    _shown: str

    def incidences(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """Every entry of every history by (tist, id), beginning behind ``after``."""
        return self._places(_NAMES[kind], "at", after)

    def returned(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """Every return of an obi that had been lost by (tist of the return, id), beginning behind ``after``."""
        return self._places(_NAMES[kind], "back", after)

    def lost(self, kind: ObiKind, after: Place = START) -> Iterator[Place]:
        """The obis that are lost now by (tist of the loss, id), beginning behind ``after``."""
        pairs = self._pages.by_pair(_NAMES[kind], "lost", after, _PAGE, fields={"lost": 1})
        return (Place(document["lost"], document["_id"]) for document in pairs)

    def _places(self, name: str, field: str, after: Place) -> Iterator[Place]:
        for tist in self._tists(name, field, after.tist):
            obi = after.id if tist == after.tist else None
            while True:
                where: Document = {field: tist} if obi is None else {field: tist, "_id": {"$gt": obi}}
                page = self._pages.page(name, where, ("_id",), _PAGE, {"_id": 1})
                yield from (Place(tist, document["_id"]) for document in page)
                if len(page) < _PAGE:
                    break
                obi = page[-1]["_id"]

    def _tists(self, name: str, field: str, least: int) -> Iterator[int]:
        last = _key(name, field, max(least, 0))
        where: Document = {"$gte": last}
        while True:
            where["$lt"] = f"{name}.{field}~"
            page = self._pages.page("tists", {"_id": where}, ("_id",), _PAGE)
            yield from (int(document["_id"][-_DIGITS:]) for document in page)
            if len(page) < _PAGE:
                return
            where = {"$gt": page[-1]["_id"]}

    def referring(self, urls: Collection[str], limit: int) -> dict[str, list[Tobi]]:
        """At most ``limit`` of the tobis that name each of these URLs, by id."""
        found: dict[str, list[Tobi]] = {}
        for url in filter(is_text, dict.fromkeys(urls)):
            listed = self._pages.page("mi", {"refs": url}, ("_id",), limit)
            if listed:
                found[url] = [documents.tobi_of(document) for document in listed]
        return found

    def tobi_files(self, after: str = "", before: str = "") -> Iterator[TobiFiles]:
        """The tobis that ever were held, with id > ``after`` and, if given, id < ``before``, by id."""
        found = self._pages.by_id("mi", after, _DOC_PAGE, {"h": 1, "v": 1})
        if before:
            found = takewhile(lambda document: document["_id"] < before, found)
        listed = (documents.files_of(document) for document in found)
        return (tobi for tobi in listed if tobi is not None)

    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        """Those of ``urls`` that are known."""
        found = self._pages.by_ids("mo", urls, {"h": 1, "v": 1, "visit.outcome": 1})
        return {document["_id"]: documents.file_state_of(document) for document in found}

    def split(self, parts: int, least: int) -> list[str]:
        """The quantiles of a sample that the server takes."""
        with translated(self._shown):
            parts = min(parts, self._db.mi.estimated_document_count() // least)
            if parts < 2:
                return []
            sample = self._db.mi.aggregate([{"$sample": {"size": _SAMPLE}}, {"$project": {"_id": 1}}])
            ids = sorted(document["_id"] for document in sample)
        return sorted({ids[len(ids) * i // parts] for i in range(1, parts)}) if ids else []


def _key(name: str, field: str, tist: int) -> str:
    return f"{name}.{field} {tist:0{_DIGITS}}"
