"""Items: what the catalogue and the store know of a tobi or a fobi, as OAI-PMH sees it.

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
from urllib.parse import quote, unquote_to_bytes

from xxhash import xxh3_64_intdigest

from archec.archive.absence import Evidence
from archec.archive.conclusions import last_seen
from archec.archive.opening import Archive
from archec.archive.revision import evidence_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi, Position
from archec.errors import ArchecError, CatalogueGone
from archec.oai.index import ITEM_KINDS, Cursor, IndexEntry, IndexRow
from archec.oai.sets import SetRules
from archec.redif.schema import kind_of
from archec.redif.template import Template, parse
from archec.store.reader import Reader

DOMAIN = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+")
"""What oai-identifier.xsd allows for a repositoryIdentifier."""

_LOCAL_SAFE = "-_.!~*'();/?:@&=+$,"

_MAX_PUBLISHERS = 5000
"""Series whose publisher is remembered ..."""
_PUBLISHER_AGE = 600.0
"""... for this many seconds."""

# -- identifiers ----------------------------------------------------------------------------------


def local_part(kind: Kind, obi: str) -> str:
    """The local part, not escaped, of an item's identifier."""
    if kind == "fobi":
        return f"fobi:{blake2b(obi.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return obi if obi.startswith("RePEc:") else f"tobi:{obi}"


def escaped(local: str) -> str:
    """``local`` with what oai-identifier.xsd does not allow percent-encoded."""
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


@dataclass(slots=True)
class Item:
    """An item that is held: all that the catalogue knows of it and, of a tobi, its newest contents.

    ``text`` is the template as it is held (UTF-8, LF line ends); if its bytes cannot be read, ``readable`` is False and
    it is a template made of what the catalogue knows. Of a fobi it is "". ``last_seen`` is when it was last confirmed.
    """

    identifier: str
    obi: Obi
    text: str = ""
    readable: bool = True
    last_seen: int = 0
    _template: Template | None = field(default=None, repr=False)
    _values: dict[str, list[str]] | None = field(default=None, repr=False)

    @property
    def noted(self) -> int:
        """The tist at which its newest contents were noted."""
        return max(self.obi.history.noted, default=0)

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


# -- for the index --------------------------------------------------------------------------------


def index_entry(obi: Obi, rules: SetRules) -> IndexEntry:
    """An item as the index is to have it."""
    type_ = obi.newest.type if obi.newest is not None else ""
    runs = {note.run for note in obi.notes.values()}
    # 63 bits of a hash, as SQLite's integers have a sign.
    mark = xxh3_64_intdigest(f"{obi.stamp} {list(obi.history)}".encode()) >> 1
    sets = rules.sets_of(obi.kind, obi.id, type_, runs)
    return IndexEntry(obi.kind, local_part(obi.kind, obi.id), obi.id, obi.stamp, mark, not obi.history.held, sets)


def known_obis(catalogue: Catalogue, rows: Sequence[IndexRow]) -> dict[str, Obi]:
    """The obis of those rows that the catalogue knows and that were ever held, by id."""
    found: dict[str, Obi] = {}
    for kind in ITEM_KINDS:
        found.update(catalogue.obis(kind, [row.obi for row in rows if row.kind == kind]))
    return {id_: obi for id_, obi in found.items() if obi.history}


# -- for answers ----------------------------------------------------------------------------------


class ItemReader:
    """Items with their contents: the catalogue's documents, the store's bytes. Safe for threads."""

    def __init__(self, archive: Archive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._catalogue, self._clock = archive.layout, archive.catalogue, clock
        self._publishers: dict[str, tuple[float, str]] = {}
        self._evidence: tuple[Position, Evidence] | None = None

    def items(
        self, rows: Sequence[IndexRow], identifier_of: Callable[[IndexRow], str]
    ) -> Iterator[tuple[IndexRow, Item | None]]:
        """Each row with its item, in order, None if it is deleted; contents are read one by one, on demand.

        Raises :class:`archec.errors.CatalogueGone` if the catalogue lacks what the index knows.
        """
        known = known_obis(self._catalogue, [row for row in rows if not (row.deleted or row.left)])
        evidence = self._known_evidence()
        with Reader(self._layout) as reader:
            for row in rows:
                obi = known.get(row.obi)
                if row.deleted or row.left:
                    yield row, None
                elif obi is not None:
                    item = _read_item(reader, identifier_of(row), obi)
                    item.last_seen = last_seen(obi, evidence) or item.noted
                    yield row, item
                else:
                    raise CatalogueGone(
                        f"the catalogue does not know {row.obi} at present", hint="is 'archec rebuild' running?"
                    )

    def _known_evidence(self) -> Evidence:
        """What data sets say, as of the catalogue's position."""
        position = self._catalogue.position()
        known = self._evidence
        if known is None or known[0] != position:
            known = self._evidence = position, evidence_of(self._catalogue)
        return known[1]

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """The titles of those archives and series that are known, by handle."""
        tobis = self._catalogue.obis("tobi", handles)
        return {id_: tobi.newest.title for id_, tobi in tobis.items() if tobi.newest is not None and tobi.newest.title}

    def publisher(self, series: str) -> str:
        """The provider or publisher that a series' template names, "" if there is none; remembered for a while."""
        now = self._clock()
        known = self._publishers.get(series)
        if known is not None and now < known[0]:
            return known[1]
        tobi = self._catalogue.obis("tobi", [series]).get(series)
        name = ""
        if tobi is not None:
            with Reader(self._layout) as reader:
                template = _read_item(reader, "", tobi).template
            names = [one.name for prefix in ("Provider", "Publisher") for one in template.clusters_of(prefix)]
            name = next(filter(None, names), "")
        if len(self._publishers) >= _MAX_PUBLISHERS:
            self._publishers.clear()
        self._publishers[series] = (now + _PUBLISHER_AGE, name)
        return name

    def earliest(self) -> int | None:
        """The stamp of the catalogue's oldest item; None if it is empty."""
        first = [obi for kind in ITEM_KINDS for obi in self._catalogue.changed(kind, *Cursor(), 1)]
        return min((obi.stamp for obi in first), default=None)


def _read_item(reader: Reader, identifier: str, obi: Obi) -> Item:
    """An item with its newest contents, or with what the catalogue knows of them."""
    item = Item(identifier, obi)
    if obi.kind == "tobi":
        try:
            item.text = reader.read(obi.bytes_at(item.noted), obi.id).decode("utf-8", "surrogateescape")
        except (ArchecError, OSError):
            # The audit of the store reports it; a harvester gets what is known all the same.
            item.text, item.readable = _substitute(obi), False
    return item


_TITLES = {"series": "Name", "archive": "Name", "person": "Name-Full", "institution": "Primary-Name"}
"""The field that has the title, if it is not Title, by family of templates."""


def _substitute(tobi: Obi) -> str:
    """A template made of what the catalogue knows of its newest contents."""
    type_, title = (tobi.newest.type, tobi.newest.title) if tobi.newest is not None else ("", "")
    fields = {
        "Template-Type": type_,
        _TITLES.get(kind_of(type_).family, "Title"): title,
        "Handle": tobi.handle or tobi.id,
    }
    return "".join([f"{name}: {value}".replace("\n", " ") + "\n" for name, value in fields.items()])
