"""The obi store as a source: each noted state of an obi is a row, and its record is generated on request.

Rows are looked up by URL or handle. As several URLs have the same key (with any scheme, with ``www.`` or ``www2.``,
with a trailing slash), all of them are looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from operator import ge
from typing import IO

from anyio import to_thread
from warcio.recordloader import ArcWarcRecord

from archec.access.errors import MayBlock, SourceFailed
from archec.access.key_ranges import Stretch, origins_of
from archec.access.ordering import ordered_rows, source_rows
from archec.access.posts import Asked
from archec.access.query import Query, uri_of
from archec.access.record import Headers, Record, read_file
from archec.access.rows import NOWHERE, Row, RowOrigin, any_row, made_line
from archec.access.rules import Subject, subject_of
from archec.access.sources import Errors, LocalSource, Loss, guarded
from archec.archive.opening import Archive
from archec.archive.warc_records import index_fields, record_of, state, states
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi, Position
from archec.errors import ArchecError, BadName, CatalogueError, UsageError
from archec.ids import is_url, kind_of, normalise, slash_variant
from archec.store.layout import journals
from archec.tist import MAX_TIST
from archec.urlkey import fileset_in, handle_in, target_uri, urlkey
from archec.warc.cdxj import timestamp

TYPE = "archec"
_log = logging.getLogger("archec.access")
_MAX_WORKS = 100


class OwnSource(LocalSource):
    type = TYPE

    def __init__(self, name: str, archive: Archive | None) -> None:
        super().__init__(name)
        self._archive, self._wholeness = archive, Wholeness([archive] if archive is not None else [])

    def faults(self) -> Iterable[str]:
        if self._archive is not None and self._archive.catalogue.is_replaced:
            return [f"the catalogue of {self._archive.config.base} was replaced: restart the server to read it"]
        return ()

    def parts(self, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        if self._archive is None:
            errors[self.name] = "there is no archive"
            return ()
        if at_once and not self._archive.catalogue.url.startswith("sqlite:"):
            raise MayBlock  # SQLite is as fast as an index file; a database server may take longer
        try:
            with _read_catalogue(), self._archive.catalogue.snapshot():
                return self._parts(self._archive, query, errors)
        except SourceFailed as error:
            self.failed(error.message, errors)
            return ()

    def _parts(self, archive: Archive, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        is_whole, positions = self._wholeness.read()
        if not is_whole:
            errors[self.name] = "its catalogue lacks what journals say (is it being rebuilt?): rows may be missing"
        origin = RowOrigin(self.name, self.name, TYPE)
        if not query.key:
            rows = ordered_rows(Stretch(archive, query, _lines_of), any_row, origin, query)
            return [guarded(_from_catalogue(rows), self.name, errors)]
        obis = _known(archive, ids_of(query.url, archive.catalogue, positions[0]))
        rows = (row for obi in obis.values() for row in _rows_of(obi, origin) if row.urlkey == query.key)
        return [iter(source_rows(rows, query))]

    def lost(self, url: str) -> Loss | None:
        obis = _known(self._archive, ids_of(url, self._archive.catalogue), visits=True) if self._archive else {}
        for obi in obis.values():
            if obi.history.lost is not None:
                seen = obi.visit.checked if obi.visit is not None else 0
                return {"seen": seen or obi.history.noted[-1], "from": obi.history.lost}
        return None


class OwnLoader:
    """Generates the records for rows of an archec archive. See :class:`archec.access.loading.Loader`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def load(self, row: Row, asked: Asked) -> Record | None:
        obi, tist = row.fields.get("obi"), row.fields.get("tist")
        if row.origin.type != TYPE or not isinstance(obi, str) or not isinstance(tist, int):
            return None
        made, size = await to_thread.run_sync(self._made, obi, tist)
        stream: IO[bytes] = made.raw_stream

        async def close() -> None:
            stream.close()

        http = made.http_headers.headers_buff if made.http_headers is not None else b""
        made.rec_headers.replace_header("Content-Type", made.content_type)
        made.rec_headers.replace_header("Content-Length", str(len(http) + size))
        headers: Headers = [(str(name), str(value)) for name, value in made.rec_headers.headers]
        raw: bytes = made.rec_headers.to_bytes(encoding="utf-8")  # as warcio writes it to a file
        return Record(headers, http, size, read_file(stream), close, made.rec_headers.protocol, raw)

    def _made(self, obi_id: str, tist: int) -> tuple[ArcWarcRecord, int]:
        with _read_catalogue():
            obi = _known(self._archive, [obi_id]).get(obi_id)
        entry = obi.history.entry_at(tist) if obi is not None else None
        if obi is None or entry is None or entry[0] != tist or entry[1] is None:
            raise SourceFailed("is no longer held")
        try:
            made, contents = record_of(self._archive.layout, state(obi, tist, entry[1]))
        except ArchecError as error:
            raise SourceFailed("its bytes cannot be read") from error
        if contents is not None and contents.sha256 != entry[1]:
            contents.stream.close()
            raise SourceFailed("its bytes are not those that were noted")
        return made, contents.size if contents is not None else 0


@contextmanager
def _read_catalogue() -> Iterator[None]:
    """Raises SourceFailed if the catalogue cannot be read. The reason, which names its server, is in the log."""
    try:
        yield
    except CatalogueError as error:
        _log.error("%s", error)
        raise SourceFailed("its catalogue cannot be read") from error


def _from_catalogue(rows: Iterator[Row]) -> Iterator[Row]:
    with _read_catalogue():
        yield from rows


def ids_of(url: str, catalogue: Catalogue, at: Position | None = None) -> list[str]:
    """The ids of the obis that a URL, a handle or the id of a fileset may mean: other spellings with the same key.
    ``catalogue``, at position ``at``, is searched for hosts such as ``www2.``. Empty for an invalid URL."""
    try:
        uri = uri_of(url)
    except UsageError:
        return []
    if obi := handle_in(uri) or fileset_in(uri):
        with suppress(BadName):
            return [normalise(obi)[1]]
        return []
    _, mark, rest = uri.partition("://")
    found = list(origins_of(rest, catalogue, at)) if mark else []
    return found + [other for one in found if (other := slash_variant(one))]


class Wholeness:
    """Whether the catalogues of archives are whole: each is as far as it ever was, and as the journals were at first.
    While one is rebuilt, only a part of the states, and of the works that refer to a file, may be known."""

    def __init__(self, archives: Sequence[Archive]) -> None:
        self._archives = archives
        self._reached = [
            (max((one.tist for one in journals(archive.layout) if one.finished), default=0), 0)
            if not archive.catalogue.position().until else (0, 0) for archive in archives
        ]  # fmt: skip

    def read(self) -> tuple[bool, list[Position]]:
        """Reads the positions of the catalogues. Returns whether they are whole, and these positions."""
        reached = self._reached  # before the positions are read: another thread may be told of a later one meanwhile
        positions = [archive.catalogue.position() for archive in self._archives]
        now = [one[:2] for one in positions]
        self._reached = list(map(max, now, reached))
        return all(map(ge, now, reached)), positions

    def __call__(self) -> bool:
        return self.read()[0]


def looking_up(archives: Sequence[Archive], is_whole: Callable[[], bool]) -> Callable[[Row], Subject]:
    """Returns a function that completes the subject of a row from the catalogues: when the obi was first noted, and the
    works that refer to a file, under any of the URLs with its key. Results are cached, so make one per request."""

    @lru_cache(maxsize=1000)
    def found(url: str) -> Subject:
        subject = Subject(url, noted=MAX_TIST)
        for archive in archives:
            with archive.catalogue.snapshot():
                ids = ids_of(url, archive.catalogue)
                firsts = [one.history.found for one in _known(archive, ids).values() if one.history.found is not None]
                works = _works(archive, ids)
            subject = subject._replace(noted=min([subject.noted, *firsts]))
            if works or (firsts and is_url(ids[0])):
                subject = _with_works(subject, works)
        # Asked after each lookup: a rebuild may have begun meanwhile, and a closing rule must not be missed.
        return subject if is_whole() else subject._replace(has_more=True)

    def look_up(row: Row) -> Subject:
        url = row.url
        with suppress(UsageError):
            url = uri_of(url)  # in one spelling, so that it is looked up once
        subject, known = subject_of(row), found(url)
        return subject._replace(works=known.works, has_more=known.has_more, noted=min(subject.noted, known.noted))

    return look_up


def _known(archive: Archive, ids: Sequence[str], *, visits: bool = False) -> dict[str, Obi]:
    """The known obis among these ids, which are all of one kind."""
    return archive.catalogue.obis(kind_of(ids[0]), ids, visits=visits) if ids else {}


def _works(archive: Archive, ids: Sequence[str]) -> dict[str, list[Obi]]:
    """The templates that refer to each file, at most ``_MAX_WORKS`` per file."""
    return archive.catalogue.referring([one for one in ids if is_url(one)], _MAX_WORKS)


def _with_works(subject: Subject, found: Mapping[str, Sequence[Obi]]) -> Subject:
    """Adds works to a subject. ``has_more`` is set if there may be others: if there are more than are looked up, or if
    there are none, because templates may refer to a URL that redirects to the file."""
    works = [tobi.id for tobis in found.values() for tobi in tobis]
    has_more = not works or any(len(tobis) >= _MAX_WORKS for tobis in found.values())
    return subject._replace(works=(*subject.works, *works), has_more=subject.has_more or has_more)


def subjects_of(archive: Archive | None, url: str) -> list[Subject]:
    """The subjects that rules apply to for a URL, a handle or the id of a fileset: the newest contents of each obi that
    it may mean. The subject of an obi that is not held has no ``noted``. Raises UsageError."""
    found: list[Subject] = []
    if archive is not None:
        look_up = looking_up([archive], lambda: True)
        for obi in _known(archive, ids_of(url, archive.catalogue)).values():
            found += [look_up(newest) for newest in list(_rows_of(obi, NOWHERE))[-1:]]
    uri = uri_of(url)
    return found or [Subject(uri, handle_in(uri))]


def _rows_of(obi: Obi, origin: RowOrigin) -> Iterator[Row]:
    uri = target_uri(obi.id)
    key = urlkey(uri)
    for seen in states(obi):
        stamp, fields = timestamp(seen.tist), index_fields(seen, uri)
        yield Row(made_line(key, stamp, fields), key, stamp, fields, origin, is_line=True)


def _lines_of(obi: Obi) -> Iterator[bytes]:
    return (row.line for row in _rows_of(obi, NOWHERE))
