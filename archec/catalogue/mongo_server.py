"""The MongoDB server behind a catalogue: connecting, checking, its errors' names.

This module, with :mod:`archec.catalogue.mongo`, is the only one that imports pymongo.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pymongo
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)
from pymongo.uri_parser import parse_uri

from archec.catalogue.url import redact
from archec.errors import ArchecError, CatalogueError, CatalogueGone, ConfigError, StorageFull

_DATABASE = "archec"
"""The database where the URL names none."""

_OPEN_TIMEOUT = 5.0
"""Seconds for the first answer of a server."""

_OPTIONS: dict[str, Any] = {
    "appname": "archec",
    "connectTimeoutMS": 10_000,
    "serverSelectionTimeoutMS": 30_000,  # a replica set elects a new primary in some 12 s
    "socketTimeoutMS": 120_000,
}
"""What the URL does not say itself."""

_OLDEST = (4, 2)
"""Before that, an id of more than 1,024 bytes cannot be indexed."""

_GONE = {6, 7, 64, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 13436}
"""Codes of a server that is unreachable, shutting down, no longer the primary, or without a majority."""

_FULL = {14031}
"""OutOfDiskSpace."""

_TOO_LARGE = {10334, 17419, 17420}
"""A document over 16 MB."""


class Server(NamedTuple):
    """A client, the name of its database, and its hosts as messages show them."""

    client: MongoClient[dict[str, Any]]
    database: str
    shown: str


def connect(url: str) -> Server:
    """A client for ``url``; nothing is sent yet. Raises :class:`ConfigError`, :class:`CatalogueGone`."""
    shown = redact(url)
    try:
        parsed = parse_uri(url, warn=False) if url.startswith("mongodb:") else None
        given = {name.lower() for name in parsed["options"]} if parsed else set()
        options = {name: value for name, value in _OPTIONS.items() if name.lower() not in given}
        client: MongoClient[dict[str, Any]] = MongoClient(url, **options)
        database = client.get_default_database(_DATABASE).name
    except (PyMongoError, BSONError, ValueError, TypeError) as error:
        # pymongo's words may hold parts of a password that was not escaped.
        reason = "" if "@" in url else f": {error}"
        raise ConfigError(
            f"{shown!r} cannot be used as a MongoDB URL{reason}",
            hint="mongodb://USER:PASSWORD@HOST:27017/DATABASE; in user and password, / : ? # [ ] @ % are escaped",
        ) from None
    return Server(client, database, shown)


def ping(server: Server) -> None:
    """Waits for the server's first answer, at most 5 s (less if the URL's ``serverSelectionTimeoutMS``
    is less), and refuses one that is too old."""
    patience = min(_OPEN_TIMEOUT, server.client.options.server_selection_timeout)
    try:
        with pymongo.timeout(patience):
            version = tuple(server.client.server_info()["versionArray"][:2])
    except ConnectionFailure as error:
        raise CatalogueGone(
            f"{server.shown}: no MongoDB server answers there within {patience:g} s: {_brief(error)}",
            hint="is mongod running, and are host and port right?",
        ) from error
    except PyMongoError as error:
        raise _translate(error, server.shown) from error
    if version < _OLDEST:
        raise CatalogueError(
            f"{server.shown}: this MongoDB server is of version {'.'.join(map(str, version))}",
            hint=f"archec needs {'.'.join(map(str, _OLDEST))} or later",
        )


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Turns what pymongo and bson raise into :class:`CatalogueError` and its kin."""
    try:
        yield
    except PyMongoError as error:
        raise _translate(error, shown) from error
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise CatalogueError(f"{shown}: a value cannot be kept in the catalogue: {error}") from error


def _translate(error: PyMongoError, shown: str) -> ArchecError:
    codes = _codes(error)
    if isinstance(error, (ConnectionFailure, WTimeoutError)) or codes & _GONE or error.timeout:
        return CatalogueGone(
            f"{shown}: the MongoDB server went away: {_brief(error)}",
            hint="what was committed is kept; run again when the server is back",
        )
    if codes & _FULL:
        return StorageFull(f"{shown}: the MongoDB server has no disk space left")
    if isinstance(error, DocumentTooLarge) or codes & _TOO_LARGE:
        return CatalogueError(
            f"{shown}: a document is larger than MongoDB's 16 MB: {_brief(error)}",
            hint="sqlite:/// has no such limit",
        )
    return CatalogueError(f"{shown}: MongoDB refused: {_brief(error)}")


def _codes(error: PyMongoError) -> set[int]:
    if isinstance(error, BulkWriteError):
        details = error.details or {}
        faults = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        return {fault.get("code", 0) for fault in faults}
    return {error.code or 0} if isinstance(error, OperationFailure) else set()


def _brief(error: PyMongoError) -> str:
    """The first clause of an error: pymongo adds its view of the topology, whole documents and all."""
    if isinstance(error, BulkWriteError):
        details = error.details or {}
        faults = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        text = str(faults[0].get("errmsg", "")) if faults else "bulk write failed"
    else:
        text = str(error)
    text = " ".join(text.partition(", full error:")[0].partition(", Timeout:")[0].split())
    return text if len(text) <= 300 else f"{text[:300]}..."
