"""The one interface of the catalogue; SQLite and MongoDB stand behind it.

The contract is written here and tested once over every engine. Ids sort by the bytes of their
UTF-8 (which is Python's order of ``str``, too). All iterators page by key and hold no more than a
page in memory. A database that cannot be reached raises :class:`archec.errors.CatalogueGone`,
anything else it refuses :class:`archec.errors.CatalogueError`.

What is not about obis is the same for every engine: small documents, JSON text under a key
(:data:`archec.catalogue.rows.KEYS`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from archec.catalogue.codec import read
from archec.catalogue.lists import START, DueFobi, FileState, Moment, ObiState, Place, TextPlace, TobiFiles
from archec.catalogue.model import (
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
    Refused,
    Run,
    Version,
    Visit,
)
from archec.catalogue.rows import Head, Key, is_text, tobi_files_of, versions_of
from archec.tist import MAX_TIST

Checksum = Literal["sha256", "md5", "text"]
"""The checksums of a version: two of its bytes, and the md5 of its text."""

_T = TypeVar("_T")
_C = TypeVar("_C", bound="Catalogue")
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.S)
_SECRET_OPTION = re.compile(r"([^?&=;]*password[^?&=;]*=)[^&;]*", re.I)


class Counts(NamedTuple):
    """How much the catalogue holds; ``held`` and ``lost`` speak of the newest state. Tobis that never were held, as
    no data set speaks of them that counts, are in neither."""

    tobis_held: int
    tobis_lost: int
    fobis_held: int
    fobis_lost: int
    fobis_never: int
    filesets_held: int = 0
    filesets_lost: int = 0


class Catalogue(ABC):
    """See the module; a context manager that closes it. ``url`` is fit for messages: :func:`redact` has been at it."""

    url: str

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def position(self) -> Position:
        """How far this catalogue has followed the journals; ``Position()`` for an empty one."""

    @abstractmethod
    def write(self, changes: Changes) -> None:
        """Applies one batch's changes durably. Applying the same changes again changes nothing.

        Raises :class:`archec.errors.CatalogueRefused` if one of them is not taken; none need be there then.
        """

    def obis(self, kind: Kind, ids: Collection[str]) -> dict[str, Obi]:
        """Those of ``ids`` that are known."""
        return {obi.id: obi for obi in self._whole(kind, self._heads(kind, ids))}

    def all(self, kind: Kind, after: str = "") -> Iterator[Obi]:
        """Whole obis with id > ``after``, by id."""
        for heads in self._pages_of(kind, after):
            yield from self._whole(kind, heads)

    @abstractmethod
    def ids(self, kind: Kind, low: str, high: str, limit: int) -> list[str]:
        """At most ``limit`` ids from ``low`` up to, and without, ``high``, in order."""

    @abstractmethod
    def scan(self, after: str = "") -> Iterator[ObiState]:
        """The states of all tobis with id > ``after`` by id; unaffected by writes to ids that it has passed."""

    def changed(self, kind: Kind, stamp: int, after: str = "", limit: int = 1000) -> list[Obi]:
        """At most ``limit`` with (stamp, id) > the given pair, in that order."""
        return list(self._whole(kind, self._changed(kind, stamp, after, limit)))

    @abstractmethod
    def due(self, before: int, after: DueFobi | None = None) -> Iterator[DueFobi]:
        """Fobis with due <= ``before`` by (due, id), beginning behind ``after``."""

    @abstractmethod
    def with_outcome(self, outcomes: Collection[str]) -> Iterator[str]:
        """The fobis whose last visit had any of these outcomes, by id. Reads all visits."""

    @abstractmethod
    def texts(self, kind: Kind) -> Iterator[TextPlace]:
        """The least place of each text, by checksum. Redirects are no places: their bytes are at their targets."""

    def runs(self, since: int = 0) -> Iterator[Run]:
        """All runs with tist >= ``since``, oldest first."""
        return (run for _, run in self._read("runs", Run, (since - 1,)))

    def newest_runs(self, before: int, limit: int) -> list[Run]:
        """At most ``limit`` runs with tist < ``before``, newest first."""
        return [run for _, run in self._read("runs", Run, (-1,), (before,), limit)]

    def run(self, tist: int) -> Run | None:
        """The run with this software tist."""
        text = self.document("runs", (tist,))
        return read(Run, text) if text is not None else None

    def retracted_runs(self) -> frozenset[int]:
        """The runs whose visits to files are not to be believed."""
        return frozenset(run.tist for run in self.runs() if run.retracted)

    def data_sets(self) -> list[DataSet]:
        """What every run read, by tist and run."""
        return [data_set for _, data_set in self._read("data_sets", DataSet, (-1, -1))]

    @abstractmethod
    def keyed(self, key: str) -> bytes | None:
        """The bytes of one :class:`archec.catalogue.model.KeyedSet`."""

    def refused(self) -> list[Refused]:
        """What this database would not take, by run and batch (:mod:`archec.catalogue.fold`)."""
        return [refused for _, refused in self._read("refused", Refused, (-1, -1, ""))]

    def hosts(self) -> Iterator[HostState]:
        """The hosts against which something is known, by name."""
        return (host for _, host in self._read("hosts", HostState, ("",)))

    @abstractmethod
    def gone_files(self, host: str, since: int) -> tuple[int, int]:
        """How many files of a host are held, and of how many of these the last visit, at ``since`` or later by the
        clock, found that they are gone."""

    @abstractmethod
    def sharing(self, host: str, sha256: str, limit: int) -> list[str]:
        """At most ``limit`` files of a host that ever held these bytes."""

    def held_back(self) -> list[HeldBack]:
        """The losses that wait for a decision, by run and kind."""
        return [held_back for _, held_back in self._read("held", HeldBack, (-1, ""))]

    @abstractmethod
    def counts(self) -> Counts:
        """Counts of obis by their newest state."""

    @abstractmethod
    def incidences(self, kind: Kind, after: Moment = START, *, run: int | None = None) -> Iterator[Moment]:
        """Every entry of every history, or those that a run has noted, by (tist, id), beginning behind ``after``."""

    @abstractmethod
    def lost(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """The obis that are lost now by (tist of the loss, id), beginning behind ``after``."""

    @abstractmethod
    def returned(self, kind: Kind, after: Moment = START) -> Iterator[Moment]:
        """Every return of an obi that had been lost by (tist of the return, id), beginning behind ``after``."""

    def referring(self, urls: Collection[str], limit: int) -> dict[str, list[Obi]]:
        """For each of ``urls`` at most ``limit`` of the tobis of which any version names it, by id.

        URLs that no tobi names are left out.
        """
        named = {url: self.naming(url, limit) for url in filter(is_text, dict.fromkeys(urls))}
        tobis = self.obis("tobi", sorted({obi for listed in named.values() for obi in listed}))
        return {url: [tobis[obi] for obi in listed if obi in tobis] for url, listed in named.items() if listed}

    @abstractmethod
    def naming(self, url: str, limit: int) -> list[str]:
        """The ids of at most ``limit`` of the tobis of which any version names a URL, in order."""

    def tobi_files(self, after: str = "", before: str = "") -> Iterator[TobiFiles]:
        """The tobis that ever were held, with id > ``after`` and, if given, id < ``before``, by id."""
        for heads in self._pages_of("tobi", after, before):
            versions = _grouped(self._versions("tobi", [head.id for head in heads]))
            for head in heads:
                files = tobi_files_of(head.id, head.history, versions[head.id])
                if files is not None:
                    yield files

    @abstractmethod
    def file_states(self, urls: Collection[str]) -> dict[str, FileState]:
        """Those of ``urls`` that are known."""

    @abstractmethod
    def holding(self, checksum: str) -> Place | None:
        """The first place, by (tist, id), of held bytes with this sha256 or md5 (in lower-case hex digits)."""

    @abstractmethod
    def holders(self, kind: Kind, checksum: Checksum, value: str) -> Iterator[str]:
        """The ids, in order, of the obis of which any version has this checksum (in lower-case hex digits)."""

    @abstractmethod
    def references(self) -> Iterator[tuple[str, str]]:
        """Each URL with each tobi of which any version names it, in this order."""

    @abstractmethod
    def checksums(self) -> Iterator[tuple[str, str, str, str, str | None, int | None]]:
        """Of each version what it is looked up by: kind and id of the obi, sha256, md5, text, and the first tist at
        which the obi held it under its own name; in no particular order."""

    def manifest(self, sha256: str) -> Iterator[FilesetManifestFile]:
        """The files of the manifest with this sha256, in its order; none where it is not known."""
        return (file for _, file in self._read("manifests", FilesetManifestFile, (sha256, -1), (sha256, MAX_TIST)))

    def manifests(self) -> Iterator[tuple[str, int, FilesetManifestFile]]:
        """Every file of every manifest, with the manifest's sha256 and the file's number in it, by these two."""
        return ((*key, file) for key, file in self._read("manifests", FilesetManifestFile, ("", -1)))

    def ingest(self, ingest_type: str, base_url: str) -> Ingest | None:
        """What the newest ingest of a base URL came to."""
        key = (base_url, ingest_type)
        text = self.document("ingests", key) if is_text("".join(key)) else None
        return read(Ingest, text) if text is not None else None

    def ingests(self) -> Iterator[Ingest]:
        """The newest ingest of every base URL, by (base_url, ingest_type)."""
        return (ingest for _, ingest in self._read("ingests", Ingest, ("", "")))

    @abstractmethod
    def split(self, parts: int, least: int) -> list[str]:
        """At most ``parts - 1`` ids in ascending order, between which are about equally many tobis, and
        about ``least`` at least."""

    @abstractmethod
    def documents(self, name: str, low: Key, high: Key | None = None, newest: int = 0) -> Iterator[Key]:
        """The small documents of a collection with keys between two (and without these), in order: key and text in
        one row. With ``newest`` only so many of them, the last one first."""

    @abstractmethod
    def document(self, name: str, key: Key) -> str | None:
        """The text of one small document."""

    def _read(
        self, name: str, kind: type[_T], low: Key, high: Key | None = None, newest: int = 0
    ) -> Iterator[tuple[Key, _T]]:
        return ((row[:-1], read(kind, row[-1])) for row in self.documents(name, low, high, newest))

    # -- the parts of obis ------------------------------------------------------------------------

    def _whole(self, kind: Kind, heads: Sequence[Head]) -> Iterator[Obi]:
        """Puts obis together: what belongs to no entry of a history, and to no claim, does not count."""
        every = [head.id for head in heads]
        held = [head.id for head in heads if head.history or kind == "tobi"]
        notes, versions = _grouped(self._notes(kind, held)), _grouped(self._versions(kind, held))
        claims = _grouped(self._claims(every) if kind == "tobi" else ())
        visits = dict(self._visits(every) if kind == "fobi" else ())
        for obi, history, handle, _, stamp, due, place, _, settled in heads:
            said = tuple(sorted(claims[obi], key=attrgetter("key")))
            own = {tist: note for tist, note in sorted(notes[obi]) if tist in history.tists}
            contents = versions_of(history, versions[obi], said)
            yield Obi(obi, kind, history, contents, own, handle, visits.get(obi), due, stamp, said, place, settled)

    def _pages_of(self, kind: Kind, after: str, before: str = "") -> Iterator[list[Head]]:
        while heads := self._page(kind, after, before):
            yield heads
            after = heads[-1].id

    @abstractmethod
    def _heads(self, kind: Kind, ids: Collection[str]) -> list[Head]:
        """Those of ``ids`` that are known."""

    @abstractmethod
    def _page(self, kind: Kind, after: str, before: str) -> list[Head]:
        """The next page of those with id > ``after`` and, if given, id < ``before``."""

    @abstractmethod
    def _changed(self, kind: Kind, stamp: int, after: str, limit: int) -> list[Head]:
        """See :meth:`changed`."""

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

    @abstractmethod
    def close(self) -> None:
        """Lets go of the database."""


def _grouped(pairs: Iterable[tuple[str, _T]]) -> defaultdict[str, list[_T]]:
    groups: defaultdict[str, list[_T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def redact(url: str) -> str:
    """``url`` fit for a message: what stands between its scheme and its last ``@``, and the values of
    options whose names speak of a password, are cut out. It errs on the side of cutting too much."""
    found = _USERINFO.match(url)
    shown = f"{found[1] or ''}***@{url[found.end() :]}" if found else url
    return _SECRET_OPTION.sub(r"\1***", shown)
