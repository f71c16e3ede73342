"""Items: what the catalogue and the store know of a tobi or a fobi, as OAI-PMH sees it.

The only module of this room that reads the catalogue's documents: formats, sets and the index get plain values.

An item's identifier is ``oai:DOMAIN:LOCAL`` (oai-identifier 2.0). The local part of a tobi is its handle; handles
that lack ``RePEc:`` have ``tobi:`` put before them, so that none can be taken for a fobi. That of a fobi is ``fobi:``
and 32 hexadecimal digits of a hash of its URL: it never changes, and says nothing of where the file is stored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from xxhash import xxh3_64_intdigest

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi, Refipo
from archec.errors import ArchecError, CatalogueGone
from archec.history import Incidence
from archec.oai.index import KINDS, Cursor, IndexEntry, IndexRow, ItemKind
from archec.oai.sets import SetRules
from archec.redif.schema import kind_of
from archec.redif.template import Template, parse
from archec.store.layout import Layout
from archec.store.many import ManyReader

DOMAIN = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+")
"""What oai-identifier.xsd allows for a repositoryIdentifier."""

_LOCAL_SAFE = "-_.!~*'();/?:@&=+$,"
_PLAIN_LOCAL = re.compile(r"[A-Za-z0-9:._/-]+")

_MAX_PUBLISHERS = 5000
"""Series whose publisher is remembered ..."""
_PUBLISHER_AGE = 600.0
"""... for this many seconds."""

# -- identifiers ----------------------------------------------------------------------------------


def local_part(kind: ItemKind, obi: str) -> str:
    """The local part, not escaped, of an item's identifier."""
    if kind == "fobi":
        return f"fobi:{blake2b(obi.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return obi if obi.startswith("RePEc:") else f"tobi:{obi}"


def escaped(local: str) -> str:
    """``local`` with what oai-identifier.xsd does not allow percent-encoded."""
    if _PLAIN_LOCAL.fullmatch(local):
        return local
    return quote(local, safe=_LOCAL_SAFE, encoding="utf-8", errors="surrogatepass")


def identifier(domain: str, local: str) -> str:
    """``oai:DOMAIN:LOCAL``."""
    return f"oai:{domain}:{escaped(local)}"


def local_of(domain: str, given: str) -> str | None:
    """The local part of an identifier exactly as :func:`identifier` writes it; else None."""
    head = f"oai:{domain}:"
    if not given.startswith(head):
        return None
    try:
        local = unquote_to_bytes(given[len(head) :]).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return local if local and identifier(domain, local) == given else None


# -- what formats are given -----------------------------------------------------------------------


class Occurrence(NamedTuple):
    """One incidence of an item's history, with what was noted of it; what is unknown is None, "" or 0.

    ``kind`` is ``appeared``, ``changed``, ``lost`` or ``returned``, ``how`` archec's finer word for it, ``run`` the
    software tist of the run that noted it. ``text`` is the md5 of the text in the contents, ``type`` the template
    type or media type, ``title`` that of a template, ``files`` what it points to. ``path``, ``line`` and
    ``encoding`` say where and how a template stood in the data set; ``target`` is the URL that a file redirected to.
    """

    tist: int
    kind: str
    md5: str | None
    sha256: str | None
    size: int | None = None
    text: str = ""
    type: str = ""
    title: str = ""
    how: str = ""
    run: int = 0
    path: str = ""
    line: int = 0
    encoding: str = ""
    target: str = ""
    status: int = 0
    suspect: str = ""
    reason: str = ""
    files: tuple[Refipo, ...] = ()


@dataclass(slots=True)
class Item:
    """An item that is held: its whole history and, of a tobi, its newest contents.

    ``text`` is the template as it is held (UTF-8, LF line ends). ``readable`` is False if its bytes could not be
    read: then it is a template made of what the catalogue knows. Of a fobi it is "".
    """

    identifier: str
    _document: Obi
    text: str = ""
    readable: bool = True
    _template: Template | None = field(default=None, repr=False)
    _values: dict[str, list[str]] | None = field(default=None, repr=False)

    @property
    def kind(self) -> ItemKind:
        """``tobi`` or ``fobi``."""
        return self._document.kind

    @property
    def id(self) -> str:
        """The normalised handle of a tobi, the normalised URL of a fobi."""
        return self._document.id

    @property
    def handle(self) -> str:
        """The handle as the template spells it; of a fobi its URL."""
        return self._document.handle or self.id

    @property
    def template(self) -> Template:
        """The parsed template of a tobi."""
        if self._template is None:
            self._template = parse(self.text)
        return self._template

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of the template's fields that are not empty, by canonical name, those of clusters too."""
        if self._values is None:
            found: dict[str, list[str]] = {}
            for name, value in zip(self.template.names, self.template.values, strict=True):
                if value:
                    found.setdefault(name, []).append(value)
            self._values = found
        return self._values

    @property
    def newest(self) -> Occurrence:
        """The newest incidence that noted contents."""
        return _newest(self._document)

    @property
    def history(self) -> list[Occurrence]:
        """Every incidence, oldest first."""
        return [_occurrence(self._document, one) for one in self._document.history.incidences()]


def _newest(document: Obi) -> Occurrence:
    noted = [one for one in document.history.incidences() if one.state is not None]
    return _occurrence(document, noted[-1]) if noted else Occurrence(0, "", None, None)


def _occurrence(document: Obi, incidence: Incidence) -> Occurrence:
    facts: dict[str, Any] = {}
    version, note = document.versions.get(incidence.state or ""), document.notes.get(incidence.tist)
    if version is not None:
        facts.update(
            size=version.size, text=version.text or "", type=version.type, title=version.title, files=version.refs
        )
    if note is not None:
        facts.update(
            how=note.kind, run=note.run, reason=note.reason, path=note.path, line=note.line, encoding=note.encoding,
            target=note.target, status=note.status, suspect=note.suspect,
        )  # fmt: skip
    md5 = version.md5 if version is not None else None
    return Occurrence(incidence.tist, incidence.kind, md5, incidence.state, **facts)


# -- for the index --------------------------------------------------------------------------------


def changed(catalogue: Catalogue, kind: ItemKind, after: Cursor, limit: int) -> Sequence[Obi]:
    """At most ``limit`` documents behind ``after``, in the order of their stamps and ids."""
    return catalogue.changed(kind, after.stamp, after.id, limit)


def index_entry(document: Obi, rules: SetRules) -> IndexEntry:
    """An item as the index is to have it."""
    runs = {note.run for note in document.notes.values()}
    # 63 bits of a hash, as SQLite's integers have a sign.
    mark = xxh3_64_intdigest(f"{document.stamp} {list(document.history)}".encode()) >> 1
    return IndexEntry(
        document.kind,
        local_part(document.kind, document.id),
        document.id,
        document.stamp,
        mark,
        not document.history.held,
        rules.sets_of(document.kind, document.id, _newest(document).type, runs),
    )


def documents(catalogue: Catalogue, rows: Sequence[IndexRow]) -> dict[str, Obi]:
    """The documents of those rows that the catalogue knows and that were ever held, by id."""
    found: dict[str, Obi] = {}
    for kind in KINDS:
        found.update(catalogue.obis(kind, [row.obi for row in rows if row.kind == kind]))
    return {obi: document for obi, document in found.items() if document.history}


# -- for answers ----------------------------------------------------------------------------------


class ItemReader:
    """Items with their contents: the catalogue's documents, the store's bytes. Safe for threads."""

    def __init__(self, layout: Layout, catalogue: Catalogue, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._catalogue, self._clock = layout, catalogue, clock
        self._publishers: dict[str, tuple[float, str]] = {}

    def items(
        self, rows: Sequence[IndexRow], identifier_of: Callable[[IndexRow], str]
    ) -> Iterator[tuple[IndexRow, Item | None]]:
        """Each row with its item, in order, None if it is deleted; contents are read one by one, on demand.

        Raises :class:`archec.errors.CatalogueGone` if the catalogue lacks what the index knows.
        """
        known = documents(self._catalogue, [row for row in rows if not (row.deleted or row.left)])
        with ManyReader(self._layout) as reader:
            for row in rows:
                document = known.get(row.obi)
                if row.deleted or row.left:
                    yield row, None
                elif document is not None:
                    yield row, _read_item(reader, identifier_of(row), document)
                else:
                    raise CatalogueGone(
                        f"the catalogue does not know {row.obi} at present", hint="is 'archec rebuild' running?"
                    )

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """The titles of those archives and series that are known, by handle."""
        found = {tobi.id: _newest(tobi).title for tobi in self._catalogue.obis("tobi", handles).values()}
        return {handle: title for handle, title in found.items() if title}

    def publisher(self, series: str) -> str:
        """The provider or publisher that a series' template names, "" if there is none; remembered for a while."""
        now = self._clock()
        known = self._publishers.get(series)
        if known is not None and now < known[0]:
            return known[1]
        tobi = self._catalogue.obis("tobi", [series]).get(series)
        name = ""
        if tobi is not None:
            with ManyReader(self._layout) as reader:
                template = _read_item(reader, "", tobi).template
            names = [one.name for prefix in ("Provider", "Publisher") for one in template.clusters_of(prefix)]
            name = next(filter(None, names), "")
        if len(self._publishers) >= _MAX_PUBLISHERS:
            self._publishers.clear()
        self._publishers[series] = (now + _PUBLISHER_AGE, name)
        return name

    def earliest(self) -> int | None:
        """The stamp of the catalogue's oldest item; None if it is empty."""
        first = [document for kind in KINDS for document in changed(self._catalogue, kind, Cursor(), 1)]
        return min((document.stamp for document in first), default=None)


def _read_item(reader: ManyReader, identifier: str, document: Obi) -> Item:
    """An item with its newest contents, or with what the catalogue knows of them."""
    if document.kind == "fobi":
        return Item(identifier, document)
    newest = _newest(document)
    try:
        text = reader.read(document.bytes_at(newest.tist), document.id).decode("utf-8", "surrogateescape")
    except (ArchecError, OSError):
        # The audit of the store reports it; a harvester gets what is known all the same.
        return Item(identifier, document, _substitute(document, newest), readable=False)
    return Item(identifier, document, text)


_TITLES = {"series": "Name", "archive": "Name", "person": "Name-Full", "institution": "Primary-Name"}
"""The field that has the title, where it is not Title, by family of templates."""


def _substitute(tobi: Obi, newest: Occurrence) -> str:
    """A template made of what the catalogue knows of its contents."""
    fields = {
        "Template-Type": newest.type,
        _TITLES.get(kind_of(newest.type).family, "Title"): newest.title,
        "Handle": tobi.handle or tobi.id,
    }
    return "".join([f"{name}: {value}".replace("\n", " ") + "\n" for name, value in fields.items()])
