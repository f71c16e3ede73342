"""The embedded catalogue: one SQLite file, nothing to install.

``mi`` and ``mo`` are narrow tables for scans and orders, one row an obi; the rest of an obi
(:mod:`archec.catalogue.rows`) is in ``entries``, ``versions``, ``refs``, ``claims`` and ``visits``, whose ``doc`` and
``note`` are JSON text. Checksums are blobs: they come in random order, and half the bytes are half the pages written.

Durability: a batch's changes and the position that they reach are one transaction, in a write-ahead log with
``synchronous = NORMAL``. A killed process loses nothing that :meth:`SQLiteCatalogue.write` returned
from. A power cut may undo the last batches, whole, together with their position; the run journals are
the truth, and the next run replays them from the position that is left. So one fsync a batch would
buy nothing.

One catalogue object may be used from several threads (a lock is held for one page or one batch at a
time); other processes read while one writes. Iterators read page by page, by key, and hold no
transaction between pages, so that a long scan neither blocks nor swells the log.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from archec.catalogue.codec import history_of, history_text, read, text_of
from archec.catalogue.interface import Checksum, Counts, redact
from archec.catalogue.model import (
    COLLECTION,
    KINDS,
    START,
    Changes,
    Claim,
    DataSet,
    DueFobi,
    FilesetManifestFile,
    FileState,
    HeldBack,
    HostState,
    Ingest,
    Kind,
    Moment,
    Note,
    Obi,
    ObiState,
    Place,
    Position,
    Refused,
    Run,
    TextPlace,
    TobiFiles,
    Version,
    Visit,
    Visited,
)
from archec.catalogue.rows import (
    Gone,
    Parts,
    gone,
    is_text,
    new_parts_of,
    notes_of,
    parted,
    tobi_files_of,
    versions_of,
    written_obis,
    written_visits,
)
from archec.errors import CatalogueError, CatalogueRefused
from archec.history import History
from archec.ids import ranges_of
from archec.sqlite import Database, Role
from archec.tist import MAX_TIST

APPLICATION = 0x61726368
"""``PRAGMA application_id``: "arch" in ASCII."""

SCHEMA_VERSION = 8
"""``PRAGMA user_version`` of the tables below; to be raised with every change of theirs."""

TABLES = ("position", "mi", "mo", "entries", "versions", "refs", "claims", "visits", "runs", "data_sets", "sets",
          "held", "hosts", "mf", "manifests", "ingests", "refused")  # fmt: skip

_SCHEMA = """
CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1), run INTEGER, batch INTEGER, stamp INTEGER, head TEXT,
    until INTEGER NOT NULL
);
CREATE TABLE mi (
    id TEXT PRIMARY KEY, last INTEGER, state BLOB, h TEXT, handle TEXT, type TEXT, stamp INTEGER NOT NULL,
    due INTEGER NOT NULL, place TEXT, since INTEGER, settled INTEGER
) WITHOUT ROWID;
CREATE INDEX mi_stamp ON mi (stamp, id);
CREATE INDEX mi_lost ON mi (last, id) WHERE state IS NULL AND last IS NOT NULL;
CREATE TABLE mo (
    id TEXT PRIMARY KEY, last INTEGER, state BLOB, h TEXT, handle TEXT, type TEXT, stamp INTEGER NOT NULL,
    due INTEGER NOT NULL, place TEXT, since INTEGER, settled INTEGER
) WITHOUT ROWID;
CREATE INDEX mo_stamp ON mo (stamp, id);
CREATE INDEX mo_lost ON mo (last, id) WHERE state IS NULL AND last IS NOT NULL;
CREATE INDEX mo_due ON mo (due, id);
CREATE TABLE mf (
    id TEXT PRIMARY KEY, last INTEGER, state BLOB, h TEXT, handle TEXT, type TEXT, stamp INTEGER NOT NULL,
    due INTEGER NOT NULL, place TEXT, since INTEGER, settled INTEGER
) WITHOUT ROWID;
CREATE INDEX mf_stamp ON mf (stamp, id);
CREATE INDEX mf_lost ON mf (last, id) WHERE state IS NULL AND last IS NOT NULL;
CREATE TABLE manifests (sha256 BLOB, n INTEGER, doc TEXT NOT NULL, PRIMARY KEY (sha256, n)) WITHOUT ROWID;
CREATE TABLE ingests (base_url TEXT, ingest_type TEXT, doc TEXT NOT NULL, PRIMARY KEY (base_url, ingest_type))
    WITHOUT ROWID;
CREATE TABLE entries (
    id TEXT, tist INTEGER, kind TEXT NOT NULL, back INTEGER NOT NULL, note TEXT, PRIMARY KEY (id, kind, tist)
) WITHOUT ROWID;
CREATE INDEX entries_time ON entries (kind, tist, id);
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
CREATE TABLE runs (tist INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE data_sets (tist INTEGER, run INTEGER, doc TEXT NOT NULL, PRIMARY KEY (tist, run)) WITHOUT ROWID;
CREATE TABLE hosts (host TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sets (key TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE refused (
    what TEXT, run INTEGER, batch INTEGER, message TEXT, id TEXT, state TEXT, PRIMARY KEY (run, batch, what)
) WITHOUT ROWID;
CREATE TABLE held (run INTEGER, kind TEXT, doc TEXT NOT NULL, PRIMARY KEY (run, kind)) WITHOUT ROWID;
"""

_NEW = "'archec rebuild' creates it from the archive directory"
_REBUILD = "move the file away and run 'archec rebuild': the archive directory has all of its contents"
_OLDER = "use the archec that made it; if the journals are of version 2, move the file away and run 'archec rebuild'"
_ROLE = Role("the catalogue", CatalogueError, _REBUILD, CatalogueRefused)

Row = tuple[Any, ...]

_COLUMNS = "id, last, state, h, handle, stamp, due, place, settled"
_PAGE = 2000
"""Narrow rows read at once."""
_OBI_PAGE = 500
"""Whole obis read at once."""
_IN = 500
"""Parameters of one IN list."""
_CACHE = 16384
"""KiB of pages kept in memory."""

_claim = msgspec.json.Decoder(Claim)
_held_back = msgspec.json.Decoder(HeldBack)
_note = msgspec.json.Decoder(Note)
_version = msgspec.json.Decoder(Version)
_visit = msgspec.json.Decoder(Visit)
_host = msgspec.json.Decoder(HostState)
_run = msgspec.json.Decoder(Run)
_data_set = msgspec.json.Decoder(DataSet)
_file = msgspec.json.Decoder(FilesetManifestFile)
_ingest = msgspec.json.Decoder(Ingest)

_HEAD = (
    "INSERT INTO {} (id, last, state, h, handle, type, stamp, due, place, since, settled)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET last = excluded.last, state = excluded.state, h = excluded.h,"
    " handle = excluded.handle, type = excluded.type, stamp = excluded.stamp, due = excluded.due,"
    " place = excluded.place, since = excluded.since, settled = excluded.settled"
)


class SQLiteCatalogue(Database):
    """See :class:`archec.catalogue.interface.Catalogue` and this module's docstring.

    With ``create`` a missing or empty file becomes an empty catalogue. Opening raises
    :class:`CatalogueError` if the file is missing, foreign, damaged or of another schema version.
    A full disk raises :class:`archec.errors.StorageFull` and undoes the batch.
    """

    def __init__(self, url: str, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.url = redact(url)
        try:
            if create and not path.parent.is_dir():
                raise CatalogueError(f"{path}: there is no directory {path.parent}")
            if not create and not path.exists():
                raise CatalogueError(f"{path}: there is no such catalogue", hint=_NEW)
        except OSError as error:
            raise CatalogueError(f"{path}: the catalogue cannot be reached: {error.strerror}") from error
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
                hint=_OLDER if version < SCHEMA_VERSION else "use the archec that made it, or a newer one",
            )
        self.fetch(f"PRAGMA cache_size = -{_CACHE}")  # said after the page size, by which SQLite divides it
        if not self.read_only:
            self.use_wal()
            self.fetch("PRAGMA wal_autocheckpoint = 8192")
            self.fetch("PRAGMA journal_size_limit = 100000000")

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Applies one batch's changes as one transaction."""
        with self.transaction() as db:
            for kind in KINDS:
                self._put(db, kind, written_obis(changes, kind))
            self._put_visits(db, written_visits(changes))
            mention = "INSERT INTO mo (id, stamp, due) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING"
            db.executemany(mention, ((url,) for url in sorted(set(changes.mentioned))))
            db.executemany("REPLACE INTO runs VALUES (?, ?)", ((run.tist, _doc(run)) for run in changes.runs))
            sets = ((item.tist, item.run, _doc(item)) for item in changes.data_sets)
            db.executemany("REPLACE INTO data_sets VALUES (?, ?, ?)", sets)
            db.executemany("REPLACE INTO sets VALUES (?, ?)", changes.sets)
            db.executemany("REPLACE INTO manifests VALUES (?, ?, ?)", (
                (bytes.fromhex(part.sha256), n, _doc(file))
                for part in changes.manifests for n, file in enumerate(part.files, part.first)
            ))  # fmt: skip
            ingests = ((ingest.base_url, ingest.ingest_type, _doc(ingest)) for ingest in changes.ingests)
            db.executemany("REPLACE INTO ingests VALUES (?, ?, ?)", ingests)
            clear, noted = parted(changes.hosts)
            db.executemany("DELETE FROM hosts WHERE host = ?", ((host.host,) for host in clear))
            db.executemany("REPLACE INTO hosts VALUES (?, ?)", ((host.host, _doc(host)) for host in noted))
            db.executemany("REPLACE INTO refused VALUES (?, ?, ?, ?, ?, ?)", changes.refused)
            held = ((item.run, item.kind, _doc(item)) for item in changes.held_back)
            db.executemany("REPLACE INTO held VALUES (?, ?, ?)", held)
            db.execute("REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?)", changes.position)

    def _put(self, db: sqlite3.Connection, kind: Kind, obis: Sequence[Obi]) -> None:
        """Writes obis of one kind; what they consisted of before and no longer do goes."""
        old = self._obis(kind, [obi.id for obi in obis])
        new = [new_parts_of(obi, old.get(obi.id)) for obi in obis]
        heads = (_head_row(obi, parts) for obi, parts in zip(obis, new, strict=True))
        db.executemany(_HEAD.format(COLLECTION[kind]), heads)
        entries = chain.from_iterable(parts.entries for parts in new)
        db.executemany(
            "REPLACE INTO entries VALUES (?, ?, ?, ?, ?)",
            ((e.id, e.tist, kind, e.back, None if e.note is None else _doc(e.note)) for e in entries),
        )
        contents = chain.from_iterable(parts.contents for parts in new)
        db.executemany("REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)", (
            (c.id, bytes.fromhex(c.version.sha256), bytes.fromhex(c.version.md5), kind,
             None if c.version.text is None else bytes.fromhex(c.version.text), c.first, _doc(c.version))
            for c in contents
        ))  # fmt: skip
        claims = ((p.head.id, claim.tist, claim.run, _doc(claim)) for p in new for claim in p.claims)
        db.executemany("REPLACE INTO claims VALUES (?, ?, ?, ?)", claims)
        refs = [(url, parts.head.id) for parts in new for url in parts.names]
        db.executemany("INSERT OR IGNORE INTO refs VALUES (?, ?)", sorted(refs))
        _remove(db, kind, [gone(old[obi.id], obi) for obi in obis if obi.id in old])

    def _put_visits(self, db: sqlite3.Connection, visits: Sequence[Visited]) -> None:
        due = "INSERT INTO mo (id, stamp, due) VALUES (?, 0, ?) ON CONFLICT (id) DO UPDATE SET due = excluded.due"
        db.executemany(due, ((obi, due_at) for obi, _, due_at in visits))
        rows = ((obi, visit.outcome, _doc(visit)) for obi, visit, _ in visits)
        db.executemany("REPLACE INTO visits VALUES (?, ?, ?)", rows)

    def clear(self) -> None:
        """Empties the catalogue in one transaction; the file keeps its size and uses it again."""
        with self.transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")

    # -- obis -------------------------------------------------------------------------------------

    def obis(self, kind: Kind, ids: Collection[str]) -> dict[str, Obi]:
        """Those of ``ids`` that are known."""
        return self._obis(kind, [obi for obi in ids if is_text(obi)])

    def _obis(self, kind: Kind, ids: Sequence[str]) -> dict[str, Obi]:
        found: dict[str, Obi] = {}
        sql = f"SELECT {_COLUMNS} FROM {COLLECTION[kind]} WHERE id IN"
        for part in _parts(ids):
            heads = self.fetch(f"{sql} ({_marks(part)})", tuple(part))
            found.update((obi.id, obi) for obi in self._whole(kind, heads))
        return found

    def _whole(self, kind: Kind, heads: Sequence[Row]) -> list[Obi]:
        """Puts obis together from their heads; at most :data:`_IN` of them."""
        ids = tuple([head[0] for head in heads if kind == "tobi" or head[1] is not None])
        notes: defaultdict[str, list[tuple[int, Note]]] = defaultdict(list)
        versions: defaultdict[str, list[Version]] = defaultdict(list)
        visits: dict[str, Visit] = {}
        claims: defaultdict[str, list[Claim]] = defaultdict(list)
        if ids and kind == "tobi":
            for obi, doc in self.fetch(f"SELECT id, doc FROM claims WHERE id IN ({_marks(ids)})", ids):
                claims[obi].append(read(_claim, doc))
        if ids:
            sql = f"SELECT id, tist, note FROM entries WHERE id IN ({_marks(ids)}) AND kind = ? AND note IS NOT NULL"
            for obi, tist, note in self.fetch(sql, (*ids, kind)):
                notes[obi].append((tist, read(_note, note)))
            versions = self._versions(kind, ids)
        if kind == "fobi" and heads:
            every = tuple([head[0] for head in heads])
            for obi, doc in self.fetch(f"SELECT id, doc FROM visits WHERE id IN ({_marks(every)})", every):
                visits[obi] = read(_visit, doc)
        found: list[Obi] = []
        for obi, last, state, h, handle, stamp, due, place, settled in heads:
            history = _history(obi, last, state, h)
            found.append(
                Obi(
                    obi, kind, history, versions_of(history, versions[obi], claims[obi]), notes_of(history, notes[obi]),
                    handle or "", visits.get(obi), due, stamp, _in_order(claims[obi]), place or "", settled or 0,
                )
            )  # fmt: skip
        return found

    def _versions(self, kind: Kind, ids: Sequence[str]) -> defaultdict[str, list[Version]]:
        versions: defaultdict[str, list[Version]] = defaultdict(list)
        sql = f"SELECT id, doc FROM versions WHERE id IN ({_marks(ids)}) AND kind = ?"
        for obi, doc in self.fetch(sql, (*ids, kind)):
            versions[obi].append(read(_version, doc))
        return versions

    def all(self, kind: Kind, after: str = "") -> Iterator[Obi]:
        """Whole obis with id > ``after``, by id."""
        sql = f"SELECT {_COLUMNS} FROM {COLLECTION[kind]} WHERE id > ? ORDER BY id LIMIT ?"
        page = self.fetch(sql, (after, _OBI_PAGE))
        while page:
            yield from self._whole(kind, page)
            page = self.fetch(sql, (page[-1][0], _OBI_PAGE))

    def ids(self, kind: Kind, low: str, high: str, limit: int) -> list[str]:
        """At most ``limit`` ids from ``low`` up to, and without, ``high``, in order."""
        sql = f"SELECT id FROM {COLLECTION[kind]} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [obi for (obi,) in self.fetch(sql, (low, high, limit))]

    def scan(self, after: str = "") -> Iterator[ObiState]:
        """The states of all tobis with id > ``after`` by id; pages of the narrow table."""
        sql = "SELECT id, last, state, h, place, since FROM mi WHERE id > ? ORDER BY id LIMIT ?"
        for obi, last, state, h, place, since in self._paged(sql, (after,), lambda row: row[:1], _PAGE):
            _check_types(obi, last, state)
            sha256, h = None if state is None else state.hex(), "{}" if last is None else h
            yield ObiState(obi, last or 0, sha256, h, place or "", MAX_TIST if since is None else since)

    def changed(self, kind: Kind, stamp: int, after: str = "", limit: int = 1000) -> list[Obi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        sql = (
            f"SELECT {_COLUMNS} FROM {COLLECTION[kind]} WHERE (stamp, id) > (?, ?)"
            " ORDER BY stamp, id LIMIT ?"
        )
        heads = self.fetch(sql, (stamp, after, limit))
        return [obi for part in _parts(heads) for obi in self._whole(kind, part)]

    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        """Fobis with due <= ``before`` by (due, id), beginning behind ``after``."""
        sql = "SELECT due, id FROM mo WHERE (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?"
        start = (*(after or (-1, "")), before)
        return (DueFobi(*row) for row in self._paged(sql, start, lambda row: (*row, before), _PAGE))

    def texts(self, kind: Kind) -> Iterator[TextPlace]:
        """The least place of each text, by checksum."""
        sql = (
            "SELECT text, first, id FROM versions WHERE kind = ? AND text > ? AND first IS NOT NULL"
            " ORDER BY text, first, id LIMIT ?"
        )
        before = b""
        for text, first, obi in self._paged(sql, (kind, b""), lambda row: (kind, row[0]), _PAGE):
            if text != before:
                yield TextPlace(text.hex(), first, obi)
            before = text

    # -- runs and data sets -----------------------------------------------------------------------

    def position(self) -> Position:
        """How far this catalogue has followed the journals."""
        found = self.fetch("SELECT run, batch, stamp, head, until FROM position")
        if not found:
            return Position()
        if tuple(map(type, found[0])) != (int, int, int, str, int):
            raise CatalogueError(f"{self.path}: the catalogue's position is none: {found[0]!r}", hint=_REBUILD)
        return Position(*found[0])

    def runs(self) -> Iterator[Run]:
        """All runs, oldest first."""
        sql = "SELECT tist, doc FROM runs WHERE tist > ? ORDER BY tist LIMIT ?"
        return (read(_run, doc) for _, doc in self._paged(sql, (-1,), lambda row: row[:1], _OBI_PAGE))

    def newest_runs(self, before: int, limit: int) -> list[Run]:
        """At most ``limit`` runs with tist < ``before``, newest first."""
        sql = "SELECT doc FROM runs WHERE tist < ? ORDER BY tist DESC LIMIT ?"
        return [read(_run, doc) for (doc,) in self.fetch(sql, (before, limit))]

    def data_sets(self) -> list[DataSet]:
        """What every run read, by tist and run."""
        return [read(_data_set, doc) for (doc,) in self.fetch("SELECT doc FROM data_sets ORDER BY tist, run")]

    def keyed(self, key: str) -> bytes | None:
        """The bytes of one keyed set."""
        found = self.fetch("SELECT data FROM sets WHERE key = ?", (key,))
        return bytes(found[0][0]) if found else None

    # -- filesets ---------------------------------------------------------------------------------

    def holding(self, checksum: str) -> Place | None:
        """The first place, by (tist, id), of held bytes with this sha256 or md5."""
        column = "sha256" if len(checksum) == 64 else "md5"
        sql = f"SELECT kind, id, first, doc FROM versions WHERE {column} = ? AND first IS NOT NULL ORDER BY first, id"
        for kind, obi, first, doc in self.fetch(f"{sql} LIMIT 1", (bytes.fromhex(checksum),)):
            return Place(kind, obi, first, read(_version, doc).size)
        return None

    def holders(self, kind: Kind, checksum: Checksum, value: str) -> Iterator[str]:
        """The ids of the obis of which any version has this checksum."""
        held = " AND first IS NOT NULL" if checksum == "text" else ""  # as its index has it
        sql = f"SELECT DISTINCT id FROM versions WHERE {checksum} = ? AND kind = ?{held} AND id > ? ORDER BY id LIMIT ?"
        key = (bytes.fromhex(value), kind)
        return (obi for (obi,) in self._paged(sql, (*key, ""), lambda row: (*key, *row), _PAGE))

    def references(self) -> Iterator[tuple[str, str]]:
        """Each URL with each tobi of which any version names it."""
        sql = "SELECT url, id FROM refs WHERE (url, id) > (?, ?) ORDER BY url, id LIMIT ?"
        return ((url, obi) for url, obi in self._paged(sql, ("", ""), lambda row: row, _PAGE))

    def checksums(self) -> Iterator[tuple[str, str, str, str, str | None, int | None]]:
        """Of each version what it is looked up by."""
        sql = "SELECT rowid, kind, id, sha256, md5, text, first FROM versions WHERE rowid > ? ORDER BY rowid LIMIT ?"
        for _, kind, obi, sha256, md5, text, first in self._paged(sql, (-1,), lambda row: row[:1], _PAGE):
            yield kind, obi, sha256.hex(), md5.hex(), None if text is None else text.hex(), first

    def manifest(self, sha256: str) -> Iterator[FilesetManifestFile]:
        """The files of the manifest with this sha256, in its order."""
        sql = "SELECT n, doc FROM manifests WHERE sha256 = ? AND n > ? ORDER BY n LIMIT ?"
        key = bytes.fromhex(sha256)
        return (read(_file, doc) for _, doc in self._paged(sql, (key, -1), lambda row: (key, row[0]), _PAGE))

    def manifests(self) -> Iterator[tuple[str, int, FilesetManifestFile]]:
        """Every file of every manifest."""
        sql = "SELECT sha256, n, doc FROM manifests WHERE (sha256, n) > (?, ?) ORDER BY sha256, n LIMIT ?"
        rows = self._paged(sql, (b"", -1), lambda row: row[:2], _PAGE)
        return ((sha256.hex(), n, read(_file, doc)) for sha256, n, doc in rows)

    def ingest(self, ingest_type: str, base_url: str) -> Ingest | None:
        """What the newest ingest of a base URL came to."""
        if not (is_text(base_url) and is_text(ingest_type)):
            return None
        found = self.fetch("SELECT doc FROM ingests WHERE base_url = ? AND ingest_type = ?", (base_url, ingest_type))
        return read(_ingest, found[0][0]) if found else None

    def ingests(self) -> Iterator[Ingest]:
        """The newest ingest of every base URL."""
        sql = (
            "SELECT base_url, ingest_type, doc FROM ingests WHERE (base_url, ingest_type) > (?, ?)"
            " ORDER BY base_url, ingest_type LIMIT ?"
        )
        return (read(_ingest, doc) for _, _, doc in self._paged(sql, ("", ""), lambda row: row[:2], _OBI_PAGE))

    # -- hosts --------------------------------------------------------------------------------------

    def refused(self) -> list[Refused]:
        """What this database would not take."""
        rows = self.fetch("SELECT what, run, batch, message, id, state FROM refused ORDER BY run, batch, what")
        return [Refused(*row) for row in rows]

    def hosts(self) -> Iterator[HostState]:
        """The hosts against which something is known, by name."""
        sql = "SELECT host, doc FROM hosts WHERE host > ? ORDER BY host LIMIT ?"
        return (read(_host, doc) for _, doc in self._paged(sql, ("",), lambda row: row[:1], _PAGE))

    def gone_files(self, host: str, since: int) -> tuple[int, int]:
        """How many files of a host are held, and how many of these were found gone."""
        held = gone = 0
        sql = "SELECT outcome, doc FROM mo LEFT JOIN visits USING (id) WHERE id >= ? AND id < ? AND state IS NOT NULL"
        for low, high in ranges_of(host):
            for outcome, doc in self.fetch(sql, (low, high)):
                held += 1
                gone += outcome == "gone" and read(_visit, doc).when >= since
        return held, gone

    def sharing(self, host: str, sha256: str, limit: int) -> list[str]:
        """At most ``limit`` files of a host that ever held these bytes."""
        ranges = ranges_of(host)
        within = " OR ".join(["(id >= ? AND id < ?)"] * len(ranges))
        sql = f"SELECT id FROM versions WHERE sha256 = ? AND kind = 'fobi' AND ({within}) LIMIT ?"
        return [row[0] for row in self.fetch(sql, (bytes.fromhex(sha256), *chain.from_iterable(ranges), limit))]

    def held_back(self) -> list[HeldBack]:
        """The losses that wait for a decision, by run and kind."""
        return [read(_held_back, doc) for (doc,) in self.fetch("SELECT doc FROM held ORDER BY run, kind")]

    def counts(self) -> Counts:
        """Counts by newest state; reads the narrow tables whole (0.1 s a million)."""
        ((tobis, tobis_held),) = self.fetch("SELECT count(last), count(state) FROM mi")
        ((fobis, ever, fobis_held),) = self.fetch("SELECT count(*), count(last), count(state) FROM mo")
        return Counts(tobis_held, tobis - tobis_held, fobis_held, ever - fobis_held, fobis - ever)

    # -- lists ------------------------------------------------------------------------------------

    def incidences(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """Every entry of every history by (tist, id), beginning behind ``after``."""
        return self._moments(f"SELECT tist, id FROM entries WHERE kind = '{kind}' AND (tist, id) > (?, ?)", after)

    def returned(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """Every return of an obi that had been lost by (tist of the return, id), beginning behind ``after``."""
        where = f"kind = '{kind}' AND back = 1 AND (tist, id) > (?, ?)"
        return self._moments(f"SELECT tist, id FROM entries WHERE {where}", after)

    def lost(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """The obis that are lost now by (tist of the loss, id), beginning behind ``after``."""
        table = COLLECTION[kind]
        sql = f"SELECT last AS tist, id FROM {table} WHERE state IS NULL AND last IS NOT NULL AND (last, id) > (?, ?)"
        return self._moments(sql, after)

    def _moments(self, sql: str, after: Moment) -> Iterator[Moment]:
        paged = self._paged(f"{sql} ORDER BY tist, id LIMIT ?", after, lambda row: row, _PAGE)
        return (Moment(*row) for row in paged)

    def referring(self, urls: Collection[str], limit: int) -> dict[str, list[Obi]]:
        """At most ``limit`` of the tobis that name each of these URLs, by id."""
        named: dict[str, list[str]] = {}
        sql = "SELECT id FROM refs WHERE url = ? ORDER BY id LIMIT ?"
        for url in filter(is_text, dict.fromkeys(urls)):
            listed = [obi for (obi,) in self.fetch(sql, (url, limit))]
            if listed:
                named[url] = listed
        tobis = self._obis("tobi", sorted({obi for listed in named.values() for obi in listed}))
        return {url: [tobis[obi] for obi in listed if obi in tobis] for url, listed in named.items()}

    def tobi_files(self, after: str = "", before: str = "") -> Iterator[TobiFiles]:
        """The tobis that ever were held, with id > ``after`` and, if given, id < ``before``, by id."""
        end = " AND id < ?" if before else ""
        rest = (before,) if before else ()
        sql = f"SELECT id, last, state, h FROM mi WHERE id > ?{end} AND last IS NOT NULL ORDER BY id LIMIT ?"
        page = self.fetch(sql, (after, *rest, _OBI_PAGE))
        while page:
            versions = self._versions("tobi", [row[0] for row in page])
            for obi, last, state, h in page:
                history = _history(obi, last, state, h)
                files = tobi_files_of(obi, history, versions[obi])
                if files is not None:
                    yield files
            page = self.fetch(sql, (page[-1][0], *rest, _OBI_PAGE))

    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        """Those of ``urls`` that are known."""
        found: dict[str, FileState] = {}
        for part in _parts([url for url in urls if is_text(url)]):
            sql = "SELECT id, last, state, type, outcome FROM mo LEFT JOIN visits USING (id) WHERE id IN"
            for obi, last, state, kind, outcome in self.fetch(f"{sql} ({_marks(part)})", tuple(part)):
                held = None if last is None else state is not None
                found[obi] = FileState(held, kind or "", outcome or "", last or 0)
        return found

    def split(self, parts: int, least: int) -> list[str]:
        """The quantiles of the ids."""
        ((count,),) = self.fetch("SELECT count(*) FROM mi")
        parts = min(parts, count // least)
        sql = "SELECT id FROM mi ORDER BY id LIMIT 1 OFFSET ?"
        return sorted({self.fetch(sql, (count * i // parts,))[0][0] for i in range(1, parts)})

    def _paged(self, sql: str, start: Row, key: Callable[[Row], Row], size: int) -> Iterator[Row]:
        """All rows, page by page; ``key`` makes the next page's parameters of a page's last row."""
        page = self.fetch(sql, (*start, size))
        while page:
            yield from page
            page = self.fetch(sql, (*key(page[-1]), size))


def _doc(value: object) -> str:
    return text_of(value).decode()


def _head_row(obi: Obi, parts: Parts) -> Row:
    head = parts.head
    h = None if len(obi.history) < 2 else history_text(obi.history)
    state = None if head.state is None else bytes.fromhex(head.state)
    return (
        head.id, head.last, state, h, head.handle or None, head.type or None, head.stamp, head.due,
        head.place or None, head.since, head.settled,
    )  # fmt: skip


def _history(obi: str, last: int | None, state: bytes | None, h: str | None) -> History:
    _check_types(obi, last, state)
    if h is not None:
        return history_of(h)
    return History() if last is None else History((last,), (None if state is None else state.hex(),))


def _check_types(obi: str, last: object, state: object) -> None:
    """Raises :class:`CatalogueError` for what archec does not write: SQLite keeps any type in any column."""
    if (last is not None and type(last) is not int) or (state is not None and type(state) is not bytes):
        raise CatalogueError(f"the catalogue's row of {obi} is broken: {last!r}, {state!r}", hint=_REBUILD)


def _remove(db: sqlite3.Connection, kind: Kind, olds: Sequence[Gone]) -> None:
    """Removes the entries, versions, references and claims that obis no longer have, and files that were never visited
    and that nothing names any more."""
    tists = [(old.id, kind, tist) for old in olds for tist in old.tists]
    db.executemany("DELETE FROM entries WHERE id = ? AND kind = ? AND tist = ?", tists)
    states = [(old.id, kind, bytes.fromhex(sha256)) for old in olds for sha256 in old.versions]
    db.executemany("DELETE FROM versions WHERE id = ? AND kind = ? AND sha256 = ?", states)
    db.executemany("DELETE FROM refs WHERE url = ? AND id = ?", [(url, old.id) for old in olds for url in old.names])
    db.executemany(
        "DELETE FROM mo WHERE id = ? AND due = 0 AND last IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM refs WHERE url = mo.id) AND NOT EXISTS (SELECT 1 FROM visits WHERE id = mo.id)",
        [(url,) for url in sorted({url for old in olds for url in old.names})],
    )
    claims = [(old.id, *key) for old in olds for key in old.claims]
    db.executemany("DELETE FROM claims WHERE id = ? AND tist = ? AND run = ?", claims)


def _in_order(claims: list[Claim]) -> tuple[Claim, ...]:
    return tuple(sorted(claims, key=lambda claim: claim.key)) if len(claims) > 1 else tuple(claims)


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """A list in parts that one statement can take."""
    return (items[i : i + _IN] for i in range(0, len(items), _IN))


def _marks(part: Collection[object]) -> str:
    """The question marks of an IN list."""
    return ",".join("?" * len(part))
