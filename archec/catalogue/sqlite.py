"""The embedded catalogue: an SQLite file.

``mi``, ``mo`` and ``mf`` are narrow tables with one row per obi, for scans and sorted lists. The other parts of an obi
(:mod:`archec.catalogue.documents`) are in ``entries``, ``versions``, ``refs``, ``claims`` and ``visits``, whose ``doc``
and ``note`` are JSON text. Checksums are stored as blobs: their order is random, so half the bytes are half the pages
written.

Durability: the changes of a batch and its position are one transaction, in a write-ahead log with ``synchronous =
NORMAL``. A killed process loses nothing that was written. A power failure may undo complete batches at the end,
together with their position, and the next run applies them again from the journals, so a fsync per batch would gain
nothing.

A catalogue object may be used by several threads; a lock is held for one page or one batch at a time. Other processes
can read while one writes. Iterators hold no transaction between pages, so a long scan neither blocks the log nor makes
it grow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

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
    documents_of,
    history_of,
    history_text,
    read,
    text_of,
    written,
    written_visits,
)
from archec.catalogue.interface import Catalogue, Checksum, is_text, redact
from archec.catalogue.model import COLLECTION, KINDS, Changes, Claim, Kind, Note, Position, Version, Visit
from archec.errors import CatalogueError, CatalogueRefused
from archec.history import History
from archec.ids import ranges_of
from archec.paging import batched, paged
from archec.sqlite import Database, Role
from archec.tist import MAX_TIST

APPLICATION = 0x61726368
"""``PRAGMA application_id``: "arch" in ASCII."""

SCHEMA_VERSION = 10
"""``PRAGMA user_version``. Must be increased with every change to the tables."""

TABLES = ("position", *COLLECTION.values(), "entries", "versions", "refs", "claims", "visits", "sets", *KEYS)

_SCHEMA = """
CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1), run INTEGER, batch INTEGER, stamp INTEGER, head TEXT,
    until INTEGER NOT NULL
);
CREATE TABLE entries (
    id TEXT, tist INTEGER, kind TEXT NOT NULL, back INTEGER NOT NULL, run INTEGER, note TEXT,
    PRIMARY KEY (id, kind, tist)
) WITHOUT ROWID;
CREATE INDEX entries_time ON entries (kind, tist, id);
CREATE INDEX entries_run ON entries (kind, run, tist, id);
CREATE INDEX entries_back ON entries (kind, tist, id) WHERE back = 1;
CREATE TABLE versions (
    id TEXT NOT NULL, sha256 BLOB NOT NULL, md5 BLOB NOT NULL, kind TEXT NOT NULL, text BLOB, first INTEGER,
    doc TEXT NOT NULL
);
CREATE UNIQUE INDEX versions_id ON versions (id, kind, sha256);
CREATE INDEX versions_sha256 ON versions (sha256);
CREATE INDEX versions_md5 ON versions (md5);
CREATE INDEX versions_text ON versions (kind, text, first, id) WHERE first IS NOT NULL;
CREATE TABLE refs (url TEXT, id TEXT, PRIMARY KEY (url, id)) WITHOUT ROWID;
CREATE TABLE claims (id TEXT, tist INTEGER, run INTEGER, doc TEXT NOT NULL, PRIMARY KEY (id, tist, run)) WITHOUT ROWID;
CREATE TABLE visits (id TEXT PRIMARY KEY, outcome TEXT NOT NULL, doc TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sets (key TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
_SCHEMA += "".join(
    f"""
CREATE TABLE {name} (
    id TEXT PRIMARY KEY, last INTEGER, state BLOB, h TEXT, handle TEXT, type TEXT, stamp INTEGER NOT NULL,
    due INTEGER NOT NULL, place TEXT, since INTEGER, settled INTEGER
) WITHOUT ROWID;
CREATE INDEX {name}_stamp ON {name} (stamp, id);
CREATE INDEX {name}_lost ON {name} (last, id) WHERE state IS NULL AND last IS NOT NULL;
"""
    for name in COLLECTION.values()
)
_SCHEMA += "CREATE INDEX mo_due ON mo (due, id);\n" + "".join(
    f"CREATE TABLE {name} ({', '.join(key)}, doc TEXT NOT NULL, PRIMARY KEY ({', '.join(key)})) WITHOUT ROWID;\n"
    for name, key in KEYS.items()
)

_NEW = "'archec rebuild' creates it from the archive directory"
_REBUILD = "move the file away and run 'archec rebuild': the archive directory has all of its contents"
_ROLE = Role("the catalogue", CatalogueError, _REBUILD, CatalogueRefused)

Row = tuple[Any, ...]

_TYPES: Mapping[str, frozenset[type]] = {
    **dict.fromkeys(("id", "url", "kind", "what", "host", "base_url", "ingest_type"), frozenset({str})),
    **dict.fromkeys(("tist", "stamp", "due", "batch", "n"), frozenset({int})),
    **dict.fromkeys(("digest", "md5", "data"), frozenset({bytes})),
    **dict.fromkeys(("handle", "type", "h", "place", "outcome", "note", "doc"), frozenset({str, type(None)})),
    **dict.fromkeys(("last", "since", "settled", "first", "run"), frozenset({int, type(None)})),
    **dict.fromkeys(("state", "text"), frozenset({bytes, type(None)})),
}
"""The types of columns, by their names in queries."""

_PAGE = 2000
"""Narrow rows per page."""
_OBI_PAGE = 500
"""Obis per page."""
_IN = 500
"""Parameters of one IN list."""
_CACHE = 16384
"""Size of the page cache in KiB."""

_FIELDS = ("last", "state", "h", "handle", "type", "stamp", "due", "place", "since", "settled")
_HEAD = (
    f"INSERT INTO {{}} (id, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"
    f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _FIELDS)}"
)
_HEADS = f"SELECT id, {', '.join(_FIELDS)} FROM"


class SQLiteCatalogue(Database, Catalogue):
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    ``create``: a missing or empty file becomes an empty catalogue. Opening raises :class:`CatalogueError` if the file
    is missing, not a catalogue, damaged, or of another schema version. If the disk is full, writing raises
    :class:`archec.errors.StorageFull` and undoes the batch.
    """

    def __init__(self, url: str, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.url = redact(url)
        self._known_types = lru_cache(maxsize=256)(_no_types)
        """The types that rows of a statement may have, as far as they were checked."""
        try:
            if create and not path.parent.is_dir():
                raise CatalogueError(f"{path}: there is no directory {path.parent}")
            if not create and not path.exists():
                raise CatalogueError(f"{path}: there is no such catalogue", hint=_NEW)
        except OSError as error:
            hint = f"check the owner and mode of {path.parent}"
            raise CatalogueError(f"{path}: the catalogue cannot be reached: {error.strerror}", hint=hint) from error
        super().__init__(path, _ROLE, create=create, read_only=read_only)
        try:
            self._prepare(create=create and not read_only)
        except BaseException:
            self.close()
            raise

    def _prepare(self, *, create: bool) -> None:
        if self.is_empty():
            if not create:
                raise CatalogueError(f"{self.path}: this file is empty, not a catalogue", hint=_NEW)
            self.fetch("PRAGMA page_size = 8192")
            self.use_wal()
            self.make(_SCHEMA, APPLICATION, SCHEMA_VERSION)
        application, version = self.kind()
        if application != APPLICATION:
            raise CatalogueError(f"{self.path}: this SQLite database is something else, not a catalogue of archec")
        if version != SCHEMA_VERSION:
            raise CatalogueError(
                f"{self.path}: this catalogue has schema version {version}, this archec works with {SCHEMA_VERSION}",
                hint=_REBUILD if version < SCHEMA_VERSION else "use the archec that made it, or a newer one",
            )
        self.fetch(f"PRAGMA cache_size = -{_CACHE}")  # after the page size, by which SQLite divides it
        if not self.read_only:
            self.use_wal()
            self.fetch("PRAGMA wal_autocheckpoint = 8192")
            self.fetch("PRAGMA journal_size_limit = 100000000")

    def rows(self, sql: str, found: sqlite3.Cursor) -> list[Row]:
        """All rows of a query. Raises :class:`CatalogueError` for values of types that archec does not write: SQLite
        allows any type in any column, and a flipped bit makes one of another."""
        rows: list[Row] = found.fetchall()
        known = self._known_types(sql)
        for row in rows:
            if (types := tuple(map(type, row))) not in known:
                for (name, *_), value in zip(found.description, row, strict=True):
                    if type(value) not in _TYPES.get(name, types):
                        where = f"{self.path}: the catalogue is damaged"
                        raise CatalogueError(f"{where}: {value!r:.80} as {name}", hint=_REBUILD)
                known.add(types)
        return rows

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        with self.transaction() as db:
            for kind in KINDS:
                self._put(db, kind, written(changes, kind, self.obis))
            visited = {obi.id for obi in changes.obis if obi.visit is not None}  # their heads have the due date
            dates = {obi: due_at for obi, _, due_at in changes.visits if obi not in visited}
            due = "INSERT INTO mo (id, stamp, due) VALUES (?, 0, ?) ON CONFLICT (id) DO UPDATE SET due = excluded.due"
            db.executemany(due, sorted(dates.items()))
            visits = ((obi, visit.outcome, _doc(visit)) for obi, visit, _ in written_visits(changes))
            db.executemany("REPLACE INTO visits VALUES (?, ?, ?)", visits)
            mention = "INSERT INTO mo (id, stamp, due) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING"
            db.executemany(mention, ((url,) for url in sorted(set(changes.mentioned))))
            db.executemany("REPLACE INTO sets VALUES (?, ?)", changes.sets)
            for name, rows in documents_of(changes):
                db.executemany(f"REPLACE INTO {name} VALUES ({_marks(KEYS[name])}, ?)", rows)
            db.executemany("DELETE FROM hosts WHERE host = ?", ((one.host,) for one in changes.hosts if one.clear))
            db.execute("REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?)", changes.position)

    def _put(self, db: sqlite3.Connection, kind: Kind, changed: WrittenObis) -> None:
        heads, parts, gone = changed
        db.executemany(_HEAD.format(COLLECTION[kind]), map(_head_row, heads))
        entries = (
            (*key, int(back), note and note.run, None if note is None else _doc(note))
            for key, (back, note) in parts.entries.items()
        )
        db.executemany("REPLACE INTO entries (id, kind, tist, back, run, note) VALUES (?, ?, ?, ?, ?, ?)", entries)
        versions = (
            (*_version_key(key), bytes.fromhex(v.md5), v.text and bytes.fromhex(v.text), first, _doc(v))
            for key, (v, first) in parts.versions.items()
        )
        sql = "REPLACE INTO versions (id, kind, sha256, md5, text, first, doc) VALUES (?, ?, ?, ?, ?, ?, ?)"
        db.executemany(sql, versions)
        db.executemany(
            "REPLACE INTO claims VALUES (?, ?, ?, ?)", ((*key, _doc(claim)) for key, claim in parts.claims.items())
        )
        db.executemany("INSERT OR IGNORE INTO refs VALUES (?, ?)", sorted(parts.refs))
        _remove(db, gone)

    def clear(self) -> None:
        """Empties the catalogue in one transaction. The file keeps its size."""
        with self.transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")

    # -- obis -------------------------------------------------------------------------------------

    def _heads(self, kind: Kind, ids: Collection[str]) -> list[Head]:
        return [_head(*row) for row in self._having(f"{_HEADS} {COLLECTION[kind]} WHERE id IN", filter(is_text, ids))]

    def _page(self, kind: Kind, after: str, before: str) -> list[Head]:
        where = "id > ? AND id < ?" if before else "id > ?"
        sql = f"{_HEADS} {COLLECTION[kind]} WHERE {where} ORDER BY id LIMIT {_OBI_PAGE}"
        return [_head(*row) for row in self.fetch(sql, (after, before) if before else (after,))]

    def _changed(self, kind: Kind, stamp: int, after: str, limit: int) -> list[Head]:
        sql = f"{_HEADS} {COLLECTION[kind]} WHERE (stamp, id) > (?, ?) ORDER BY stamp, id LIMIT ?"
        return [_head(*row) for row in self.fetch(sql, (stamp, after, limit))]

    def _notes(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, tuple[int, Note]]]:
        sql = "SELECT id, tist, note FROM entries WHERE note IS NOT NULL AND kind = ? AND id IN"
        return ((obi, (tist, read(Note, note))) for obi, tist, note in self._having(sql, ids, kind))

    def _versions(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, Version]]:
        sql = "SELECT id, doc FROM versions WHERE kind = ? AND id IN"
        return ((obi, read(Version, doc)) for obi, doc in self._having(sql, ids, kind))

    def _claims(self, ids: Collection[str]) -> Iterator[tuple[str, Claim]]:
        return ((obi, read(Claim, doc)) for obi, doc in self._having("SELECT id, doc FROM claims WHERE id IN", ids))

    def _visits(self, ids: Collection[str]) -> Iterator[tuple[str, Visit]]:
        return ((obi, read(Visit, doc)) for obi, doc in self._having("SELECT id, doc FROM visits WHERE id IN", ids))

    def ids(self, kind: Kind, low: str, high: str, limit: int) -> list[str]:
        sql = f"SELECT id FROM {COLLECTION[kind]} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [obi for (obi,) in self.fetch(sql, (low, high, limit))]

    def scan(self, after: str = "") -> Iterator[ObiState]:
        sql = "SELECT id, last, state, h, place, since FROM mi WHERE id > ? ORDER BY id LIMIT ?"
        for obi, last, state, h, place, since in self._paged(sql, (after,), lambda row: row[:1]):
            sha256, h = None if state is None else state.hex(), "{}" if last is None else h
            yield ObiState(obi, last or 0, sha256, h, place or "", MAX_TIST if since is None else since)

    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        sql = "SELECT due, id FROM mo WHERE (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?"
        start = (*(after or (-1, "")), before)
        return (DueFobi(*row) for row in self._paged(sql, start, lambda row: (*row, before)))

    def with_outcome(self, outcomes: Collection[str]) -> Iterator[str]:
        sql = f"SELECT id FROM visits WHERE id > ? AND outcome IN ({_marks(outcomes)}) ORDER BY id LIMIT ?"
        return (obi for (obi,) in self._paged(sql, ("", *outcomes), lambda row: (*row, *outcomes)))

    def texts(self, kind: Kind) -> Iterator[TextPlace]:
        sql = (
            "SELECT text, first, id FROM versions WHERE kind = ? AND text > ? AND first IS NOT NULL"
            " ORDER BY text, first, id LIMIT ?"
        )
        found = self._paged(sql, (kind, b""), lambda row: (kind, row[0]))
        return (TextPlace(text.hex(), *next(group)[1:]) for text, group in groupby(found, itemgetter(0)))

    # -- runs and data sets -----------------------------------------------------------------------

    def position(self) -> Position:
        found = self.fetch("SELECT run, batch, stamp, head, until FROM position")
        if not found:
            return Position()
        if tuple(map(type, found[0])) != (int, int, int, str, int):
            raise CatalogueError(f"{self.path}: the catalogue's position is none: {found[0]!r}", hint=_REBUILD)
        return Position(*found[0])

    def keyed(self, key: str) -> bytes | None:
        found = self.fetch("SELECT data FROM sets WHERE key = ?", (key,))
        return cast(bytes, found[0][0]) if found else None

    def documents(self, name: str, low: Key, high: Key | None = None, newest: int = 0) -> Iterator[Key]:
        fields, marks, most = ", ".join(KEYS[name]), _marks(low), high or ()
        below = f" AND ({fields}) < ({marks})" if high else ""
        order = ", ".join(f"{field} DESC" for field in KEYS[name]) if newest else fields
        sql = f"SELECT {fields}, doc FROM {name} WHERE ({fields}) > ({marks}){below} ORDER BY {order} LIMIT ?"
        if newest:
            return iter(self.fetch(sql, (*low, *most, newest)))
        return self._paged(sql, (*low, *most), lambda row: (*row[:-1], *most))

    def document(self, name: str, key: Key) -> str | None:
        found = self.fetch(f"SELECT doc FROM {name} WHERE ({', '.join(KEYS[name])}) = ({_marks(key)})", key)
        return str(found[0][0]) if found else None

    # -- versions ---------------------------------------------------------------------------------

    def holding(self, checksums: Collection[str]) -> dict[str, BytesPlace]:
        places: dict[str, BytesPlace] = {}
        for name, length in (("sha256", 64), ("md5", 32)):
            wanted = tuple(bytes.fromhex(one) for one in checksums if len(one) == length)
            first = f"FROM versions WHERE {name} = column1 AND first IS NOT NULL ORDER BY first, id LIMIT 1"
            rows = f"SELECT (SELECT rowid {first}) FROM (VALUES {','.join(['(?)'] * len(wanted))})"
            sql = f"SELECT {name} AS digest, kind, id, first, doc FROM versions WHERE rowid IN ({rows})"
            for digest, kind, obi, tist, doc in self.fetch(sql, wanted) if wanted else ():
                places[digest.hex()] = BytesPlace(kind, obi, tist, read(Version, doc).size)
        return places

    def holders(self, kind: Kind, checksum: Checksum, value: str) -> Iterator[str]:
        held = " AND first IS NOT NULL" if checksum == "text" else ""  # the condition of the partial index
        sql = f"SELECT DISTINCT id FROM versions WHERE {checksum} = ? AND kind = ?{held} AND id > ? ORDER BY id LIMIT ?"
        key = (bytes.fromhex(value), kind)
        return (obi for (obi,) in self._paged(sql, (*key, ""), lambda row: (*key, *row)))

    def references(self) -> Iterator[tuple[str, str]]:
        sql = "SELECT url, id FROM refs WHERE (url, id) > (?, ?) ORDER BY url, id LIMIT ?"
        return ((url, obi) for url, obi in self._paged(sql, ("", ""), lambda row: row))

    def checksums(self) -> Iterator[tuple[str, str, str, str, str | None, int | None]]:
        fields = "rowid, kind, id, sha256 AS digest, md5, text, first"
        sql = f"SELECT {fields} FROM versions WHERE rowid > ? ORDER BY rowid LIMIT ?"
        for _, kind, obi, sha256, md5, text, first in self._paged(sql, (-1,), lambda row: row[:1]):
            yield kind, obi, sha256.hex(), md5.hex(), None if text is None else text.hex(), first

    # -- hosts --------------------------------------------------------------------------------------

    def gone_files(self, host: str, since: int) -> tuple[int, int]:
        held = gone = 0
        sql = "SELECT outcome, doc FROM mo LEFT JOIN visits USING (id) WHERE id >= ? AND id < ? AND state IS NOT NULL"
        for low, high in ranges_of(host):
            for outcome, doc in self.fetch(sql, (low, high)):
                held += 1
                gone += outcome == "gone" and read(Visit, doc).when >= since
        return held, gone

    def held_bodies(self, sha256s: Collection[str]) -> set[str]:
        sql = "SELECT DISTINCT sha256 AS digest FROM versions WHERE sha256 IN"
        return {sha256.hex() for (sha256,) in self._having(sql, map(bytes.fromhex, sha256s))}

    def sharing(self, host: str, sha256: str, limit: int) -> list[str]:
        ranges = ranges_of(host)
        within = " OR ".join(["(id >= ? AND id < ?)"] * len(ranges))
        sql = f"SELECT id FROM versions WHERE sha256 = ? AND kind = 'fobi' AND ({within}) LIMIT ?"
        return [row[0] for row in self.fetch(sql, (bytes.fromhex(sha256), *chain.from_iterable(ranges), limit))]

    def _count(self, kind: Kind) -> tuple[int, int, int]:
        ((every, ever, held),) = self.fetch(f"SELECT count(*), count(last), count(state) FROM {COLLECTION[kind]}")
        return held, ever - held, every - ever

    # -- lists ------------------------------------------------------------------------------------

    def incidences(self, kind: Kind, after: Moment = START, *, run: int | None = None) -> Iterator[Moment]:
        where = f"kind = '{kind}'" if run is None else f"kind = '{kind}' AND run = {run:d}"
        return self._moments(f"SELECT tist, id FROM entries WHERE {where} AND (tist, id) > (?, ?)", after)

    def returned(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        where = f"kind = '{kind}' AND back = 1 AND (tist, id) > (?, ?)"
        return self._moments(f"SELECT tist, id FROM entries WHERE {where}", after)

    def lost(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        table = COLLECTION[kind]
        sql = f"SELECT last AS tist, id FROM {table} WHERE state IS NULL AND last IS NOT NULL AND (last, id) > (?, ?)"
        return self._moments(sql, after)

    def _moments(self, sql: str, after: Moment) -> Iterator[Moment]:
        rows = self._paged(f"{sql} ORDER BY tist, id LIMIT ?", after, lambda row: row)
        return (Moment(*row) for row in rows)

    def naming(self, urls: Collection[str], limit: int) -> dict[str, list[str]]:
        named = self._having("SELECT DISTINCT url FROM refs WHERE url IN", urls)  # few of those that are looked up
        sql = "SELECT id FROM refs WHERE url = ? ORDER BY id LIMIT ?"
        return {url: [obi for (obi,) in self.fetch(sql, (url, limit))] for (url,) in named}

    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        sql = "SELECT id, last, state, type, outcome FROM mo LEFT JOIN visits USING (id) WHERE id IN"
        return {
            obi: FileState(None if last is None else state is not None, kind or "", outcome or "", last or 0)
            for obi, last, state, kind, outcome in self._having(sql, filter(is_text, urls))
        }

    def _having(self, sql: str, values: Iterable[Any], *first: object) -> Iterator[Row]:
        """Yields all rows of a statement that ends in ``IN`` for these values, in no particular order. ``first``: the
        parameters before them."""
        for part in batched(values, _IN):
            yield from self.fetch(f"{sql} ({_marks(part)})", (*first, *part))

    def _paged(self, sql: str, start: Row, key: Callable[[Row], Row]) -> Iterator[Row]:
        """Yields all rows, page by page. ``key`` derives the parameters for the next page from the last row of a
        page."""
        return paged(lambda after: self.fetch(sql, (*after, _PAGE)), start, key)


def _doc(value: object) -> str:
    return text_of(value).decode()


def _head_row(head: Head) -> Row:
    h = None if len(head.history) < 2 else history_text(head.history)
    state = None if head.state is None else bytes.fromhex(head.state)
    return (
        head.id, head.history.last, state, h, head.handle or None, head.type or None, head.stamp, head.due,
        head.place or None, head.since, head.settled or None,
    )  # fmt: skip


def _no_types(sql: str) -> set[tuple[type, ...]]:
    return set()


def _head(
    obi: str, last: int | None, state: bytes | None, h: str | None, handle: str | None, kind: str | None, stamp: int,
    due: int, place: str | None, since: int | None, settled: int | None,
) -> Head:  # fmt: skip
    if h is not None:
        history = history_of(h, obi)
    else:
        history = History() if last is None else History((last,), (None if state is None else state.hex(),))
    return Head(obi, history, handle or "", kind or "", stamp, due, place or "", since, settled or 0)


def _version_key(key: Key) -> Key:
    obi, kind, sha256 = key
    return obi, kind, bytes.fromhex(sha256)


def _remove(db: sqlite3.Connection, gone: Mapping[str, Sequence[Key]]) -> None:
    """Removes obsolete parts of obis, and fobis that were never visited and that no tobi names any more."""
    for name, keys in gone.items():
        where = " AND ".join(f"{field} = ?" for field in PART_KEYS[name])
        db.executemany(f"DELETE FROM {name} WHERE {where}", map(_version_key, keys) if name == "versions" else keys)
    db.executemany(
        "DELETE FROM mo WHERE id = ? AND due = 0 AND last IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM refs WHERE url = mo.id) AND NOT EXISTS (SELECT 1 FROM visits WHERE id = mo.id)",
        [(url,) for url in sorted({url for url, _ in gone["refs"]})],
    )


def _marks(part: Collection[object]) -> str:
    """The question marks of an IN list."""
    return ",".join("?" * len(part))
