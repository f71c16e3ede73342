"""Access to a MongoDB server: connecting, translation of errors, and reading page by page.

Each page is a query of its own, by key, so no cursor is left open on the server.

Only this module and :mod:`archec.catalogue.mongo` import pymongo.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)
from pymongo.uri_parser import parse_uri

from archec.catalogue.documents import REBUILD
from archec.catalogue.interface import is_text, redact
from archec.errors import ArchecError, CatalogueError, CatalogueGone, CatalogueRefused, ConfigError, StorageFull
from archec.paging import paged

Document = dict[str, Any]
Shape = Mapping[str, tuple[type, ...]]
"""The types that each field of a document may have; :data:`ABSENT` is that of a missing field."""

ABSENT = EllipsisType

_IN = 1000
"""Ids in one query."""

_IN_CHARACTERS = 3_000_000
"""Characters of all ids in one query, which MongoDB limits to 16 MB of UTF-8."""

_ALL = 1_000_000
"""Documents in a response if there is no other limit. By default it has only 101; the rest is another request, which
the driver does not repeat if the connection breaks."""

_DATABASE = "archec"
"""The default database."""

_OPEN_TIMEOUT = 5.0
"""Timeout in seconds for the first response of a server."""

_WRITE_TIMEOUT = 60_000
"""Timeout in milliseconds for the acknowledgement by a majority."""

_OPTIONS: dict[str, Any] = {
    "appname": "archec",
    "connectTimeoutMS": 10_000,
    "serverSelectionTimeoutMS": 30_000,  # a replica set elects a new primary in some 12 s
    "socketTimeoutMS": 120_000,
}
"""Default options; those in the URL take precedence."""

_HURRIED = {"connectTimeoutMS": 3_000, "serverSelectionTimeoutMS": 3_000}
"""Replaces default options where somebody waits for an answer."""

_OLDEST = (4, 2)
"""Older versions cannot index ids of more than 1,024 bytes."""

_GONE = {6, 7, 64, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 13436}
"""Error codes for servers that are unreachable, shutting down, no longer the primary, or without a majority."""

_DENIED = {
    13: "the user needs the role readWrite on this database, or read for commands that only read",
    18: "check user and password, and authSource if the user is one of another database",
}
"""Unauthorized and AuthenticationFailed, and what to do about them."""

_UNUSABLE = (PyMongoError, BSONError, OSError, ValueError, TypeError)
"""Errors about a URL; OSError about the files of certificates that it names."""

_FULL = {14031}
"""OutOfDiskSpace."""

_TOO_LARGE = {10334, 17419, 17420}
"""A document over 16 MB."""


def connect(url: str, *, waits: bool = True) -> Database[Document]:
    """The database of ``url``, without sending anything. Writes are acknowledged by a majority and its journals, reads
    go to the primary. Unless it ``waits`` for a server that is gone, as runs do, errors come after some seconds. The
    caller must close the client. Raises :class:`ConfigError`."""
    shown = redact(url)
    try:
        parsed = parse_uri(url, warn=False) if url.startswith("mongodb:") else None
        if parsed and "@" in url.partition("?")[0] and parsed["username"] is None:
            raise ValueError("a slash in the password that is not escaped")
        given = {name.lower() for name in parsed["options"]} if parsed else set()
        defaults = _OPTIONS if waits else _OPTIONS | _HURRIED
        options = {name: value for name, value in defaults.items() if name.lower() not in given}
        client: MongoClient[Document] = MongoClient(url, **options)
        concern = WriteConcern(w="majority", j=True, wtimeout=_WRITE_TIMEOUT)
        return client.get_default_database(
            _DATABASE, write_concern=concern, read_preference=ReadPreference.PRIMARY
        )
    except _UNUSABLE as error:
        reason = f": {error}" if "@" not in url or _is_of_options(error, shown) else ""
        raise ConfigError(
            f"{shown!r} cannot be used as a MongoDB URL{reason}",
            hint="mongodb://USER:PASSWORD@HOST:27017/DATABASE; in user and password, / : ? # [ ] @ % are escaped",
        ) from None


def _is_of_options(error: Exception, shown: str) -> bool:
    """Whether pymongo says the same of a URL with another user and password. Otherwise it may contain parts of a
    password that was not escaped."""
    url = shown.replace("***@", "name:password@", 1)
    try:
        if url.startswith("mongodb:"):
            parse_uri(url, warn=False)
        MongoClient(url, connect=False).close()
    except _UNUSABLE as other:
        return str(other) == str(error)
    return False


def open_database(url: str, *, waits: bool = True) -> tuple[Database[Document], str]:
    """Like :func:`connect`, but checks that the server responds. Also returns the redacted URL for messages."""
    database, shown = connect(url, waits=waits), redact(url)
    try:
        _ping(database.client, shown)
    except BaseException:
        database.client.close()
        raise
    return database, shown


def _ping(client: MongoClient[Document], shown: str) -> None:
    """Waits for the first response of the server, for 5 s at most (less if ``serverSelectionTimeoutMS`` in the URL is
    less). Raises CatalogueError if the server is too old."""
    patience = min(_OPEN_TIMEOUT, client.options.server_selection_timeout)
    try:
        with pymongo.timeout(patience):
            version = tuple(client.server_info()["versionArray"][:2])
    except ConnectionFailure as error:
        raise CatalogueGone(
            f"{shown}: no MongoDB server answers there within {patience:g} s: {_brief(error)}",
            hint="check that mongod is running, host and port, and tls and tlsCAFile if it uses TLS",
        ) from error
    except PyMongoError as error:
        raise _translate(error, shown) from error
    if version < _OLDEST:
        raise CatalogueError(
            f"{shown}: this MongoDB server is of version {'.'.join(map(str, version))}",
            hint=f"archec needs {'.'.join(map(str, _OLDEST))} or later",
        )


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Translates exceptions of pymongo and bson to :class:`CatalogueError` and related errors."""
    try:
        yield
    except PyMongoError as error:
        raise _translate(error, shown) from error
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise CatalogueRefused(f"{shown}: a value cannot be stored in the catalogue: {error}") from error


def _translate(error: PyMongoError, shown: str) -> ArchecError:
    codes = _codes(error)
    if isinstance(error, (ConnectionFailure, WTimeoutError)) or codes & _GONE or error.timeout:
        return CatalogueGone(
            f"{shown}: the MongoDB server became unavailable: {_brief(error)}",
            hint="everything committed is kept; run again when the server is back",
        )
    for code in codes & _DENIED.keys():
        return CatalogueGone(f"{shown}: the MongoDB server refuses access: {_brief(error)}", hint=_DENIED[code])
    if codes & _FULL:
        return StorageFull(f"{shown}: the MongoDB server has no disk space left")
    if isinstance(error, DocumentTooLarge) or codes & _TOO_LARGE:
        return CatalogueRefused(
            f"{shown}: a document is larger than MongoDB's 16 MB: {_brief(error)}",
            hint="sqlite:/// has no such limit",
        )
    refused = isinstance(error, BulkWriteError) and bool((error.details or {}).get("writeErrors"))
    return (CatalogueRefused if refused else CatalogueError)(f"{shown}: MongoDB refused: {_brief(error)}")


def _codes(error: PyMongoError) -> set[int]:
    if isinstance(error, BulkWriteError):
        return {fault.get("code", 0) for fault in _faults(error)}
    return {error.code or 0} if isinstance(error, OperationFailure) else set()


def _faults(error: BulkWriteError) -> list[Document]:
    details = error.details or {}
    return [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]


def _brief(error: PyMongoError) -> str:
    """A short message for an error, without the topology and complete documents that pymongo adds."""
    if isinstance(error, BulkWriteError):
        faults = _faults(error)
        text = str(faults[0].get("errmsg", "")) if faults else "bulk write failed"
    else:
        text = str(error)
    for addition in (" to execute command", ", full error:", ", Timeout:", " (configured timeouts:"):
        text = text.partition(addition)[0]
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def parts_of(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids in parts for one query each."""
    size = min(_IN, _IN_CHARACTERS // max(map(len, ("x", *ids))))
    return (ids[i : i + size] for i in range(0, len(ids), size))


class PagedReader:
    """Reads the collections of a database. ``shapes`` are those of their documents, ``shown`` names the database in
    messages."""

    def __init__(self, db: Database[Document], shown: str, shapes: Mapping[str, Shape]) -> None:
        self._db = db
        self._shown = shown
        self._shapes = shapes

    def one(self, name: str, key: str) -> Document | None:
        """The document with this id; None if there is none."""
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
        """Yields the documents with one of these values in a field, in no particular order."""
        for part in parts_of([value for value in values if is_text(value)]):
            yield from self.page(name, {**(where or {}), field: {"$in": part}}, (), 0, fields)

    def by_key(
        self,
        name: str,
        key: str,
        after: object,
        size: int,
        fields: Document | None = None,
        *,
        before: object = None,
        where: Document | None = None,
        then: Sequence[str] = (),
    ) -> Iterator[Document]:
        """Yields all documents with ``key`` > ``after`` and, if given, < ``before``, in the order of ``key`` and of the
        fields ``then``; of those with the same key at least the first."""
        end = {} if before is None else {"$lt": before}

        def page(start: object) -> list[Document]:
            return self.page(name, {**(where or {}), key: {"$gt": start, **end}}, (key, *then), size, fields)

        return paged(page, after, lambda document: document[key])

    def by_pair(
        self,
        name: str,
        pair: tuple[str, str],
        start: tuple[Any, Any],
        size: int,
        *,
        most: int | None = None,
        fields: Document | None = None,
        where: Document | None = None,
    ) -> Iterator[Document]:
        """Yields documents in the order of two fields, starting after ``start``, as long as the first field is at most
        ``most``.

        A page is read by two queries: for the rest of one value of the first field, then for greater values. Both are
        ranges of one index, while ``$or`` would need a merge.
        """
        first, second = pair

        def page(key: tuple[Any, Any]) -> list[Document]:
            value, obi = key
            if most is not None and value > most:
                return []
            found = self.page(name, {**(where or {}), first: value, second: {"$gt": obi}}, pair, size, fields)
            if len(found) < size:
                beyond = {"$gt": value} if most is None else {"$gt": value, "$lte": most}
                found += self.page(name, {**(where or {}), first: beyond}, pair, size - len(found), fields)
            return found

        return paged(page, start, lambda document: (document[first], document[second]))

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
        """Returns at most ``size`` documents (0: all) by one query. ``down``: in descending order.

        Raises :class:`CatalogueError` if a document does not have the shape of the collection.
        """
        with translated(self._shown):
            cursor = self._db[name].find(where, fields).limit(size).batch_size(size or _ALL)
            if order:
                cursor = cursor.sort([(field, -1 if down else 1) for field in order])
            found = list(cursor)
        shape = self._shapes[name].items()
        wanted = [(field, types) for field, types in shape if not fields or field == "_id" or field in fields]
        for document in found:
            for field, types in wanted:
                if not isinstance(document.get(field, ...), types):
                    value = repr(document[field])[:80] if field in document else "missing"
                    message = f"{self._shown}: a document in {name} is broken: {field}: {value}"
                    raise CatalogueError(message, hint=REBUILD)
        return found
