"""The catalogue on a MongoDB server, for operators who run one.

Collections ``mi mo vi vo runs data_sets seen tists state``. Writes are acknowledged by a majority and
journaled (``w: majority, j: true``), so that an acknowledged lot survives a restart of the server.
A standalone server has no transactions: the position is written after the rest of its lot, and a
lot that was cut off in the middle is applied again, which changes nothing that is there already.
Reads go to the primary. Iterators read page by page, by key, and leave no cursor open on the server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Literal

from pymongo import MongoClient, ReadPreference, ReplaceOne, UpdateOne, WriteConcern

from archec.catalogue import mongo_documents as documents
from archec.catalogue.interface import Counts
from archec.catalogue.model import (
    Changes,
    DataSet,
    DueFobi,
    Fobi,
    Position,
    Run,
    SeenSet,
    TextPlace,
    Tobi,
    TobiState,
)
from archec.catalogue.mongo_documents import Document
from archec.catalogue.mongo_lists import MongoLists, make_list_indexes, tists_of
from archec.catalogue.mongo_pages import Pages
from archec.catalogue.mongo_server import Server, connect, ping, translated
from archec.catalogue.url import redact
from archec.errors import CatalogueError

__all__ = ["SCHEMA_VERSION", "MongoCatalogue"]

SCHEMA_VERSION = 2
"""To be raised with every change of what the documents look like."""

_COLLECTIONS = ("mi", "mo", "vi", "vo", "runs", "data_sets", "seen", "tists")
_INDEXES = (("mi", "stamp"), ("mo", "stamp"), ("mo", "due"))
_PAGE = 5000
_DOC_PAGE = 500
_WRITE_TIMEOUT = 60_000
"""Milliseconds that a majority may take to acknowledge."""
_MENTIONED: Document = {"h": {}, "due": 0, "stamp": 0}
_LAST = {"$let": {"vars": {"last": {"$arrayElemAt": [{"$objectToArray": "$h"}, -1]}}, "in": "$$last.v"}}
"""The newest state in a history (its entries are in time order)."""


class MongoCatalogue(MongoLists):
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    With ``create`` an empty database is made a catalogue. ``client`` is for tests: it is used in
    place of a client for ``url``, and not asked whether it is there. Opening raises
    :class:`archec.errors.ConfigError`, :class:`archec.errors.CatalogueGone` where no server
    answers, :class:`CatalogueError` where the database is no catalogue or of another version.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = False,
        read_only: bool = False,
        client: MongoClient[Document] | None = None,
    ) -> None:
        self.url = redact(url)
        self.read_only = read_only
        server = connect(url) if client is None else Server(client, client.get_default_database("archec").name, url)
        self._client, database, self._shown = server
        try:
            if client is None:
                ping(server)
            concern = WriteConcern(w="majority", j=True, wtimeout=_WRITE_TIMEOUT)
            self._db = self._client.get_database(
                database, write_concern=concern, read_preference=ReadPreference.PRIMARY
            )
            self._pages = Pages(self._db, self._shown)
            with translated(self._shown):
                self._check(create=create and not read_only)
        except BaseException:
            self._client.close()
            raise

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Applies one lot; the position comes last."""
        self._refuse_if_read_only()
        with translated(self._shown):
            tobis = [documents.tobi_document(tobi) for tobi in changes.tobis]
            fobis = [documents.fobi_document(fobi) for fobi in changes.fobis]
            self._bulk("tists", [*tists_of("mi", tobis), *tists_of("mo", fobis)])
            self._replace("mi", tobis)
            self._replace("mo", fobis)
            mentioned = sorted(set(changes.mentioned))
            self._bulk(
                "mo", [UpdateOne({"_id": fobi}, {"$setOnInsert": _MENTIONED}, upsert=True) for fobi in mentioned]
            )
            self._bulk("vi", _least_places(changes.vi))
            self._bulk("vo", _least_places(changes.vo))
            for seen in changes.seen:
                self._put_seen(seen)
            self._replace("data_sets", [documents.data_set_document(data_set) for data_set in changes.data_sets])
            self._replace("runs", [documents.run_document(run) for run in changes.runs])
            position = changes.position._asdict()
            self._db.state.replace_one({"_id": "position"}, position, upsert=True)

    def clear(self) -> None:
        """Empties the catalogue; its position first, so that a clearing cut off is seen as one."""
        self._refuse_if_read_only()
        with translated(self._shown):
            self._db.state.delete_one({"_id": "position"})
            for name in _COLLECTIONS:
                self._db[name].drop()
            self._make_indexes()

    def _replace(self, name: str, new: list[Document]) -> None:
        latest = {document["_id"]: document for document in new}
        self._bulk(name, [ReplaceOne({"_id": key}, latest[key], upsert=True) for key in sorted(latest)])

    def _put_seen(self, seen: SeenSet) -> None:
        for document in documents.seen_documents(seen):
            self._db.seen.replace_one({"_id": document["_id"]}, document, upsert=True)

    def _bulk(self, name: str, requests: Sequence[ReplaceOne[Document] | UpdateOne]) -> None:
        if requests:
            self._db[name].bulk_write(requests, ordered=False)

    # -- reading by id ----------------------------------------------------------------------------

    def position(self) -> Position:
        """How far this catalogue has followed the journals."""
        found = self._pages.one("state", "position")
        if found is None:
            return Position()
        try:
            return Position(found["run"], found["batch"], found["stamp"])
        except KeyError as error:
            raise CatalogueError(f"{self._shown}: the catalogue's position lacks its {error}") from error

    def tobis(self, ids: Collection[str]) -> dict[str, Tobi]:
        """Those of ``ids`` that are known."""
        return {document["_id"]: documents.tobi_of(document) for document in self._pages.by_ids("mi", ids)}

    def fobis(self, ids: Collection[str]) -> dict[str, Fobi]:
        """Those of ``ids`` that are known."""
        return {document["_id"]: documents.fobi_of(document) for document in self._pages.by_ids("mo", ids)}

    def text(self, which: Literal["vi", "vo"], checksum: str) -> TextPlace | None:
        """The place of one text."""
        found = self._pages.one(which, checksum) if checksum.isascii() else None
        return None if found is None else documents.place_of(found)

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [documents.run_of(document) for document in self._pages.page("runs", {}, ("_id",), 0)]

    def newest_runs(self, before: int, limit: int) -> list[Run]:
        """At most ``limit`` runs with tist < ``before``, newest first."""
        found = self._pages.page("runs", {"_id": {"$lt": before}}, ("_id",), limit, down=True)
        return [documents.run_of(document) for document in found]

    def data_sets(self) -> list[DataSet]:
        """All known data sets, oldest first."""
        return [documents.data_set_of(document) for document in self._pages.page("data_sets", {}, ("_id",), 0)]

    def seen(self, key: str) -> bytes | None:
        """The ids of one seen set; None also where a part of it is missing."""
        first = self._pages.one("seen", f"{key}/0")
        if first is None:
            return None
        parts = [first, *(self._pages.one("seen", f"{key}/{i}") for i in range(1, first["of"]))]
        return None if None in parts else b"".join(part["ids"] for part in parts if part)

    def counts(self) -> Counts:
        """Counts by newest state; the server reads the collections whole."""
        tobis, fobis = self._states("mi"), self._states("mo")
        return Counts(tobis["held"], tobis["lost"] + tobis["never"], fobis["held"], fobis["lost"], fobis["never"])

    def _states(self, name: str) -> dict[str, int]:
        lost_or_held = {"$cond": [{"$eq": [_LAST, None]}, "lost", "held"]}
        state = {"$cond": [{"$eq": ["$h", {}]}, "never", lost_or_held]}
        with translated(self._shown):
            groups = self._db[name].aggregate([{"$group": {"_id": state, "count": {"$sum": 1}}}], allowDiskUse=True)
            return {"held": 0, "lost": 0, "never": 0, **{group["_id"]: group["count"] for group in groups}}

    # -- reading in order -------------------------------------------------------------------------

    def scan_tobis(self, after: str = "") -> Iterator[TobiState]:
        """All tobis with id > ``after`` by id."""
        return map(documents.state_of, self._pages.by_id("mi", after, _PAGE, {"h": 1}))

    def all_tobis(self, after: str = "") -> Iterator[Tobi]:
        """Whole documents with id > ``after``, by id."""
        return map(documents.tobi_of, self._pages.by_id("mi", after, _DOC_PAGE))

    def all_fobis(self, after: str = "") -> Iterator[Fobi]:
        """Whole documents with id > ``after``, by id."""
        return map(documents.fobi_of, self._pages.by_id("mo", after, _DOC_PAGE))

    def changed_tobis(self, stamp: int, after: str = "", limit: int = 1000) -> list[Tobi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        return [documents.tobi_of(d) for d in islice(self._pages.by_pair("mi", "stamp", (stamp, after), limit), limit)]

    def changed_fobis(self, stamp: int, after: str = "", limit: int = 1000) -> list[Fobi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        return [documents.fobi_of(d) for d in islice(self._pages.by_pair("mo", "stamp", (stamp, after), limit), limit)]

    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        """Fobis with due <= ``before`` by (due, id), beginning behind ``after``."""
        pairs = self._pages.by_pair("mo", "due", after or (-1, ""), _PAGE, most=before, fields={"due": 1})
        return (DueFobi(document["due"], document["_id"]) for document in pairs)

    def texts(self, which: Literal["vi", "vo"]) -> Iterator[TextPlace]:
        """All text places, by checksum."""
        return map(documents.place_of, self._pages.by_id(which, "", _PAGE))

    # -- the server -------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the server."""
        self._client.close()

    def _refuse_if_read_only(self) -> None:
        if self.read_only:
            raise CatalogueError(f"{self._shown}: this catalogue was opened for reading only")

    def _check(self, *, create: bool) -> None:
        found = self._db.state.find_one({"_id": "schema"})
        if found is None:
            if any(self._db[name].find_one({}, {"_id": 1}) is not None for name in _COLLECTIONS):
                raise CatalogueError(
                    f"{self._shown}: this database holds something else than a catalogue of archec",
                    hint="name another database in the URL: mongodb://HOST/DATABASE",
                )
            if not create:
                raise CatalogueError(
                    f"{self._shown}: there is no catalogue in this database",
                    hint="'archec init' makes one, 'archec rebuild' fills it from the archive folder",
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
        for name, first in _INDEXES:
            self._db[name].create_index([(first, 1), ("_id", 1)])
        make_list_indexes(self._db)


def _least_places(places: Sequence[TextPlace]) -> list[UpdateOne]:
    """Updates that keep the least (tist, id): ``$min`` compares the two fields in this order."""
    least: dict[str, TextPlace] = {}
    for place in sorted(places, reverse=True):
        least[place.text] = place
    return [
        UpdateOne({"_id": place.text}, {"$min": {"at": {"tist": place.tist, "id": place.id}}}, upsert=True)
        for place in sorted(least.values())
    ]
