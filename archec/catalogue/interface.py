"""The interface of the catalogue, implemented for SQLite and MongoDB.

The same tests check this contract for both engines. Ids are sorted by the bytes of their UTF-8, which is also Python's
order of ``str``. All iterators page by key and have at most one page in memory. Methods raise
:class:`archec.errors.CatalogueGone` if the database cannot be reached, and :class:`archec.errors.CatalogueError` for
all other errors of the database.

Everything except obis is stored in the same way by every engine: as small documents, JSON text under a key
(:data:`archec.catalogue.documents.KEYS`).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from archec.catalogue.documents import (
    START,
    BytesPlace,
    DueFobi,
    FileState,
    Head,
    Key,
    Moment,
    ObiState,
    TextPlace,
    TobiFiles,
    read,
    tobi_files_of,
    versions_of,
)
from archec.catalogue.model import (
    KINDS,
    Changes,
    Claim,
    DataSet,
    FilesetManifestFile,
    HeldBack,
    HostState,
    Ingest,
    Kind,
    Note,
    Obi,
    Position,
    RefusedDocument,
    Run,
    Version,
    Visit,
)
from archec.closing import Closing
from archec.paging import batched, paged
from archec.tist import MAX_TIST

Checksum = Literal["sha256", "md5", "text"]
"""The checksums of a version: two of its bytes, and the md5 of its text."""

_T = TypeVar("_T")
_PAGE = 500
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.S)
_SECRET_OPTION = re.compile(r"([^?&=;]*password[^?&=;]*=)[^&;]*", re.I)


class Counts(NamedTuple):
    """Numbers of obis by their newest state. Tobis that were never held, because no data set with them counts, are not
    included."""

    tobis_held: int
    tobis_lost: int
    fobis_held: int
    fobis_lost: int
    fobis_never: int
    filesets_held: int = 0
    filesets_lost: int = 0


class Catalogue(Closing):
    """A catalogue; see the module. A context manager. ``url`` is redacted for messages
    (:func:`redact`)."""

    url: str
    excludes_others = False
    """Whether no other process can read it, because the disk is full."""
    is_transactional = True
    """Whether a batch whose writing was interrupted leaves nothing of it."""

    @property
    def is_replaced(self) -> bool:
        """Whether another file, or none, is now at its path: what is read is what the old one held."""
        return False

    def snapshot(self) -> AbstractContextManager[None]:
        """Within it, an embedded catalogue is read as it is at one moment, whatever other processes write meanwhile."""
        return nullcontext()

    @abstractmethod
    def position(self) -> Position:
        """The position in the journals up to which they are applied; ``Position()`` for an empty catalogue."""

    @abstractmethod
    def write(self, changes: Changes) -> None:
        """Applies the changes of one batch durably. Applying the same changes again changes nothing.

        Raises :class:`archec.errors.CatalogueRefused` if the database refuses one of them; then it may have applied any
        part of them, or none.
        """

    def obis(self, kind: Kind, ids: Collection[str], *, visits: bool = True) -> dict[str, Obi]:
        """Returns the known obis among ``ids``, by id; without ``visits`` their last visits are not read."""
        with self.snapshot():
            return {obi.id: obi for obi in self._whole(kind, self._heads(kind, ids), visits=visits)}

    def each(self, kind: Kind, ids: Iterable[str]) -> Iterator[Obi]:
        """Yields the known obis among ``ids``, of which there may be any number."""
        for page in batched(ids, _PAGE):
            yield from self.obis(kind, page).values()

    def all(self, kind: Kind, after: str = "") -> Iterator[Obi]:
        """Yields the obis with id > ``after``, in the order of ids."""
        for heads in self._pages_of(kind, after):
            yield from self._whole(kind, heads)

    @abstractmethod
    def ids(self, kind: Kind, low: str, high: str, limit: int) -> list[str]:
        """At most ``limit`` ids from ``low`` up to but not including ``high``, in order."""

    def each_id(self, kind: Kind, low: str, high: str) -> Iterator[str]:
        """Yields the ids from ``low`` up to but not including ``high``, in order."""
        return paged(lambda after: self.ids(kind, after, high, _PAGE), low, lambda obi: f"{obi}\0")

    @abstractmethod
    def scan(self, after: str = "") -> Iterator[ObiState]:
        """Yields the states of all tobis with id > ``after``, in the order of ids. Writes to ids that were already
        yielded do not affect it."""

    def changed(self, kind: Kind, stamp: int, after: str = "", limit: int = 1000) -> list[Obi]:
        """At most ``limit`` obis with (stamp, id) > (``stamp``, ``after``), in that order."""
        return list(self._whole(kind, self._changed(kind, stamp, after, limit)))

    @abstractmethod
    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        """Yields the fobis with due <= ``before`` in the order (due, id), starting after ``after``."""

    @abstractmethod
    def with_outcome(self, outcomes: Collection[str]) -> Iterator[str]:
        """Yields the fobis whose last visit had one of these outcomes, in the order of ids. Reads all visits."""

    @abstractmethod
    def texts(self, kind: Kind) -> Iterator[TextPlace]:
        """Yields the least place of each text, in the order of text checksums. Redirects are not places: their bytes
        are at their targets."""

    def runs(self, since: int = 0) -> Iterator[Run]:
        """Yields all runs with tist >= ``since``, oldest first."""
        return (run for _, run in self._read("runs", Run, (since - 1,)))

    def newest_runs(self, before: int, limit: int) -> list[Run]:
        """At most ``limit`` runs with tist < ``before``, newest first."""
        return [run for _, run in self._read("runs", Run, (-1,), (before,), limit)]

    def run(self, tist: int) -> Run | None:
        """The run with this software tist; None if there is none."""
        text = self.document("runs", (tist,))
        return read(Run, text) if text is not None else None

    def retracted_runs(self) -> frozenset[int]:
        """The runs whose visits to files are retracted."""
        return frozenset(run.tist for run in self.runs() if run.retracted)

    def data_sets(self) -> list[DataSet]:
        """The data sets of all runs, ordered by tist and run."""
        return [data_set for _, data_set in self._read("data_sets", DataSet, (-1, -1))]

    @abstractmethod
    def keyed(self, key: str) -> bytes | None:
        """The bytes of a :class:`archec.catalogue.model.KeyedSet`; None if it is unknown."""

    def refused(self) -> list[RefusedDocument]:
        """The documents that the database refused, ordered by run and batch (:mod:`archec.catalogue.refused`)."""
        return [refused for _, refused in self._read("refused", RefusedDocument, (-1, -1, ""))]

    def hosts(self) -> Iterator[HostState]:
        """Yields the hosts with failures or waiting times, ordered by name."""
        return (host for _, host in self._read("hosts", HostState, ("",)))

    @abstractmethod
    def gone_files(self, host: str, since: int) -> tuple[int, int]:
        """Returns the number of held files of a host, and the number of those whose last visit found them gone, at
        ``since`` or later by the clock."""

    @abstractmethod
    def held_bodies(self, sha256s: Collection[str]) -> set[str]:
        """Those of these checksums that any version has."""

    @abstractmethod
    def sharing(self, host: str, sha256: str, limit: int) -> list[str]:
        """At most ``limit`` files of a host that ever held these bytes."""

    def held_back(self) -> list[HeldBack]:
        """The losses that await a decision, ordered by run and kind."""
        return [held_back for _, held_back in self._read("held", HeldBack, (-1, ""))]

    def counts(self) -> Counts:
        """Counts of obis by their newest state."""
        tobis, fobis, filesets = map(self._count, KINDS)
        return Counts(*tobis[:2], *fobis, *filesets[:2])

    @abstractmethod
    def _count(self, kind: Kind) -> tuple[int, int, int]:
        """The numbers of obis of a kind that are held, that are lost, and that were never held."""

    @abstractmethod
    def incidences(self, kind: Kind, after: Moment = START, *, run: int | None = None) -> Iterator[Moment]:
        """Yields every entry of every history, or those that ``run`` has noted, in the order (tist, id), starting after
        ``after``."""

    @abstractmethod
    def lost(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """Yields the obis that are lost now in the order (tist of the loss, id), starting after ``after``."""

    @abstractmethod
    def returned(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """Yields every return of a lost obi in the order (tist of the return, id), starting after ``after``."""

    def referring(self, urls: Collection[str], limit: int) -> dict[str, list[Obi]]:
        """Returns for each of ``urls`` at most ``limit`` tobis with a version that names it, ordered by id. URLs that
        no tobi names are left out."""
        named = self.naming([url for url in dict.fromkeys(urls) if is_text(url)], limit)
        tobis = self.obis("tobi", sorted({obi for listed in named.values() for obi in listed}))
        return {url: [tobis[obi] for obi in listed if obi in tobis] for url, listed in named.items() if listed}

    @abstractmethod
    def naming(self, urls: Collection[str], limit: int) -> dict[str, list[str]]:
        """For each of ``urls`` the ids of at most ``limit`` tobis with a version that names it, in order."""

    def tobi_files(self, after: str = "", before: str = "") -> Iterator[TobiFiles]:
        """Yields the tobis that were ever held, with id > ``after`` and, if given, id < ``before``, in the order of
        ids."""
        for heads in self._pages_of("tobi", after, before):
            versions = _grouped(self._versions("tobi", [head.id for head in heads]))
            for head in heads:
                files = tobi_files_of(head.id, head.history, versions[head.id])
                if files is not None:
                    yield files

    @abstractmethod
    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        """Returns the states of the known fobis among ``urls``."""

    @abstractmethod
    def holding(self, checksums: Collection[str]) -> dict[str, BytesPlace]:
        """The first place, in the order (tist, id), of bytes with each of these sha256 or md5 (lower-case hex digits)
        that was ever held."""

    @abstractmethod
    def holders(self, kind: Kind, checksum: Checksum, value: str) -> Iterator[str]:
        """Yields the ids of the obis with a version that has this checksum (lower-case hex digits), in order."""

    @abstractmethod
    def references(self) -> Iterator[tuple[str, str]]:
        """Yields (URL, tobi) for each tobi with a version that names the URL, in that order."""

    @abstractmethod
    def checksums(self) -> Iterator[tuple[str, str, str, str, str | None, int | None]]:
        """Yields for each version, in no particular order, the fields by which it is looked up: kind and id of the obi,
        sha256, md5, text, and the first tist at which the obi held it under its own name."""

    def manifest(self, sha256: str) -> Iterator[FilesetManifestFile]:
        """Yields the files of the manifest with this sha256, in its order; none if it is unknown."""
        return (file for _, file in self._read("manifests", FilesetManifestFile, (sha256, -1), (sha256, MAX_TIST)))

    def manifests(self) -> Iterator[tuple[str, int, FilesetManifestFile]]:
        """Yields every file of every manifest as (sha256 of the manifest, number of the file, file), in that order."""
        return ((*key, file) for key, file in self._read("manifests", FilesetManifestFile, ("", -1)))

    def ingest(self, ingest_type: str, base_url: str) -> Ingest | None:
        """The newest ingest of a base URL; None if there is none."""
        key = (base_url, ingest_type)
        text = self.document("ingests", key) if is_text("".join(key)) else None
        return read(Ingest, text) if text is not None else None

    def ingests(self) -> Iterator[Ingest]:
        """Yields the newest ingest of every base URL, in the order (base_url, ingest_type)."""
        return (ingest for _, ingest in self._read("ingests", Ingest, ("", "")))

    @abstractmethod
    def documents(self, name: str, low: Key, high: Key | None = None, newest: int = 0) -> Iterator[Key]:
        """Yields the small documents of a collection with ``low`` < key < ``high``, in the order of keys, as rows of
        key and text. ``newest``: at most that many of them, the last one first."""

    @abstractmethod
    def document(self, name: str, key: Key) -> str | None:
        """The text of one small document; None if there is none."""

    def _read(
        self, name: str, kind: type[_T], low: Key, high: Key | None = None, newest: int = 0
    ) -> Iterator[tuple[Key, _T]]:
        return ((row[:-1], read(kind, row[-1])) for row in self.documents(name, low, high, newest))

    # -- the parts of obis ------------------------------------------------------------------------

    def _whole(self, kind: Kind, heads: Sequence[Head], *, visits: bool = True) -> Iterator[Obi]:
        """Assembles obis from their parts. Notes and versions to which no entry or claim refers are ignored."""
        every = [head.id for head in heads]
        held = [head.id for head in heads if head.history or kind == "tobi"]
        notes, versions = _grouped(self._notes(kind, held)), _grouped(self._versions(kind, held))
        claims = _grouped(self._claims(every) if kind == "tobi" else ())
        visited = dict(self._visits(every) if kind == "fobi" and visits else ())
        for obi, history, handle, _, stamp, due, place, _, settled in heads:
            own_claims = tuple(sorted(claims[obi], key=attrgetter("key")))
            known = dict(notes[obi])
            own = {tist: known[tist] for tist in history.tists if tist in known}
            contents = versions_of(history, versions[obi], own_claims)
            yield Obi(
                obi, kind, history, contents, own, handle, visited.get(obi), due, stamp, own_claims, place, settled
            )

    def _pages_of(self, kind: Kind, after: str, before: str = "") -> Iterator[list[Head]]:
        while heads := self._page(kind, after, before):
            yield heads
            after = heads[-1].id

    @abstractmethod
    def _heads(self, kind: Kind, ids: Collection[str]) -> list[Head]:
        """The heads of the known obis among ``ids``."""

    @abstractmethod
    def _page(self, kind: Kind, after: str, before: str) -> list[Head]:
        """The heads of the next page of obis with id > ``after`` and, if given, id < ``before``."""

    @abstractmethod
    def _changed(self, kind: Kind, stamp: int, after: str, limit: int) -> list[Head]:
        """The heads for :meth:`changed`."""

    @abstractmethod
    def _notes(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, tuple[int, Note]]]:
        """The notes of these obis, with the tists of their entries."""

    @abstractmethod
    def _versions(self, kind: Kind, ids: Collection[str]) -> Iterator[tuple[str, Version]]:
        """The versions of these obis."""

    @abstractmethod
    def _claims(self, ids: Collection[str]) -> Iterator[tuple[str, Claim]]:
        """The claims on these tobis."""

    @abstractmethod
    def _visits(self, ids: Collection[str]) -> Iterator[tuple[str, Visit]]:
        """The last visits to these fobis."""

    @abstractmethod
    def clear(self) -> None:
        """Empties the catalogue (for a rebuild; the archive directory is not touched)."""


def is_text(obi: str) -> bool:
    """Whether a database can hold this id at all. One with a lone surrogate cannot be stored, so it is never known."""
    try:
        obi.encode()
    except UnicodeEncodeError:
        return False
    return True


def _grouped(pairs: Iterable[tuple[str, _T]]) -> defaultdict[str, list[_T]]:
    groups: defaultdict[str, list[_T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def redact(url: str) -> str:
    """Redacts a database URL for messages: replaces everything between its scheme and its last ``@``, and the values of
    options with ``password`` in their names. If in doubt it removes too much."""
    found = _USERINFO.match(url)
    shown = f"{found[1] or ''}***@{url[found.end() :]}" if found else url
    return _SECRET_OPTION.sub(r"\1***", shown)
