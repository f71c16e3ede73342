"""Items: a tobi or a fobi with its data in the catalogue and the store, as OAI-PMH sees it.

An item's identifier is ``oai:DOMAIN:LOCAL`` (oai-identifier 2.0). The local part of a tobi is its handle, prefixed by
``tobi:`` if it does not begin with ``RePEc:``, so that it cannot be mistaken for a fobi. That of a fobi is ``fobi:``
and 32 hexadecimal digits of a hash of its URL: it never changes, and does not reveal where the file is stored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from urllib.parse import quote, unquote_to_bytes

from xxhash import xxh3_64_intdigest

from archec.archive.claims import last_seen
from archec.archive.evidence import Evidence, evidence_of
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi, Position
from archec.errors import ArchecError, CatalogueGone, NotHeld, is_out_of_resources
from archec.oai.index import ITEM_KINDS, Cursor, IndexEntry, IndexRow
from archec.oai.sets import SetRules
from archec.redif.problems import shown
from archec.redif.schema import kind_of
from archec.redif.template import Template, parse
from archec.store.reader import Reader

DOMAIN = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+")
"""The repositoryIdentifiers that oai-identifier.xsd allows."""

_LOCAL_SAFE = "-_.!~*'();/?:@&=+$,"

_MAX_PUBLISHERS = 5000
"""Number of series whose publisher is cached."""
_MAX_REPORTED = 100
"""Number of unreadable templates that are in the log."""
_log = logging.getLogger("archec.oai")

# -- identifiers ----------------------------------------------------------------------------------


def local_part(kind: Kind, obi: str) -> str:
    """The local part, not escaped, of an item's identifier."""
    if kind == "fobi":
        return f"fobi:{blake2b(obi.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return obi if obi.startswith("RePEc:") else f"tobi:{obi}"


def escaped(local: str) -> str:
    """``local`` with all characters that oai-identifier.xsd does not allow percent-encoded."""
    return quote(local, safe=_LOCAL_SAFE, encoding="utf-8", errors="surrogatepass")


def identifier(domain: str, local: str) -> str:
    """``oai:DOMAIN:LOCAL``."""
    return f"oai:{domain}:{escaped(local)}"


def local_of(domain: str, given: str) -> str | None:
    """The local part of an identifier in the exact form of :func:`identifier`; None for any other text."""
    head = f"oai:{domain}:"
    if not given.startswith(head):
        return None
    try:
        local = unquote_to_bytes(given[len(head) :]).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return local if local and identifier(domain, local) == given else None


# -- input of formats -----------------------------------------------------------------------------


@dataclass
class Item:
    """A held item: its document in the catalogue and, for a tobi, its newest contents.

    ``text`` is the template as held (UTF-8, LF line ends), "" for a fobi. If its bytes cannot be read, ``readable`` is
    False, and ``text`` is a substitute made from the catalogue's data. ``last_seen`` is the tist of its last
    confirmation.
    """

    identifier: str
    obi: Obi
    text: str = ""
    readable: bool = True
    last_seen: int = 0

    @property
    def noted(self) -> int:
        """The tist at which its newest contents were noted."""
        return max(self.obi.history.noted, default=0)

    @cached_property
    def template(self) -> Template:
        return parse(self.text)

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The non-empty values of the template's fields by canonical name, including the fields of clusters."""
        found: dict[str, list[str]] = {}
        for name, value in zip(self.template.names, self.template.values, strict=True):
            if value:
                found.setdefault(name, []).append(value)
        return found


# -- for the index --------------------------------------------------------------------------------


def index_entry(obi: Obi, rules: SetRules) -> IndexEntry:
    type_ = obi.newest.type if obi.newest is not None else ""
    runs = {note.run for note in obi.notes.values()}
    # 63 bits of a hash, because SQLite's integers are signed.
    mark = xxh3_64_intdigest(f"{obi.stamp} {list(obi.history)}".encode()) >> 1
    sets = rules.sets_of(obi.kind, obi.id, type_, runs)
    return IndexEntry(obi.kind, local_part(obi.kind, obi.id), obi.id, obi.stamp, mark, not obi.history.held, sets)


def known_obis(catalogue: Catalogue, rows: Sequence[IndexRow]) -> dict[str, Obi]:
    """The obis of these rows that are in the catalogue and were ever held, by id."""
    found: dict[str, Obi] = {}
    for kind in ITEM_KINDS:
        found.update(catalogue.obis(kind, [row.obi for row in rows if row.kind == kind]))
    return {id_: obi for id_, obi in found.items() if obi.history}


# -- for answers ----------------------------------------------------------------------------------


class ItemReader:
    """Reads items with their contents, from the catalogue's documents and the store's bytes. Thread-safe."""

    def __init__(self, archive: Archive) -> None:
        self._layout, self._catalogue = archive.layout, archive.catalogue
        self._publishers: dict[str, str] = {}
        self._unreadable = set[str]()
        self._evidence: tuple[Position, Evidence] | None = None

    def items(self, rows: Sequence[IndexRow], domain: str) -> Iterator[tuple[IndexRow, Item | None]]:
        """Yields each row with its item in a ``domain``, in order; the item is None if deleted. Contents are read one
        by one.

        Raises :class:`archec.errors.CatalogueGone` if the catalogue lacks an item of the index.
        """
        known = known_obis(self._catalogue, [row for row in rows if not (row.deleted or row.left)])
        evidence = self._known_evidence()
        with Reader(self._layout) as reader:
            for row in rows:
                obi = known.get(row.obi)
                if row.deleted or row.left:
                    yield row, None
                elif obi is not None:
                    item = self._read(reader, identifier(domain, row.local), obi)
                    item.last_seen = last_seen(obi, evidence) or item.noted
                    yield row, item
                else:
                    raise CatalogueGone(
                        f"the catalogue does not know {row.obi} at present", hint="is 'archec rebuild' running?"
                    )

    def require(self, seen: Position) -> None:
        """Raises :class:`archec.errors.CatalogueGone` if the catalogue is behind ``seen``, the position of the index:
        while it is rebuilt, an item may have an older state than its datestamp says."""
        if self._catalogue.position()[:2] < seen[:2]:
            raise CatalogueGone("the catalogue is behind the OAI index", hint="is 'archec rebuild' running?")

    def _known_evidence(self) -> Evidence:
        """The evidence of the data sets, as of the catalogue's position, at which everything cached is read again."""
        position = self._catalogue.position()
        known = self._evidence
        if known is None or known[0] != position:
            known = self._evidence = position, evidence_of(self._catalogue)
            self._publishers = {}
        return known[1]

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """The titles of the known archives and series among ``handles``, by handle."""
        tobis = self._catalogue.obis("tobi", handles)
        return {id_: tobi.newest.title for id_, tobi in tobis.items() if tobi.newest is not None and tobi.newest.title}

    def publisher(self, series: str) -> str:
        """The provider or publisher in a series' template, "" if there is none."""
        known = self._publishers
        if series in known:
            return known[series]
        tobi = self._catalogue.obis("tobi", [series]).get(series)
        name = ""
        if tobi is not None:
            with Reader(self._layout) as reader:
                template = self._read(reader, "", tobi).template
            names = [one.name for prefix in ("Provider", "Publisher") for one in template.clusters_of(prefix)]
            name = next(filter(None, names), "")
        if len(known) >= _MAX_PUBLISHERS:
            known.clear()
        known[series] = name
        return name

    def _read(self, reader: Reader, identifier: str, obi: Obi) -> Item:
        """Reads an item with its newest contents, or with a substitute if they cannot be read, which is logged."""
        item = Item(identifier, obi)
        if obi.kind == "tobi":
            tist = obi.bytes_at(item.noted)
            try:
                data = reader.read(tist, obi.id, obi.history.last_held or "")
                item.text = data.decode("utf-8", "surrogateescape")
                self._unreadable.discard(obi.id)
            except ArchecError as error:  # a harvester receives what the catalogue knows
                if is_out_of_resources(error):
                    raise
                item.text, item.readable = _substitute(obi), False
                self._report(obi.id, f"{self._layout.root}/{self._layout.path(tist, obi.id)}", error)
        return item

    def _report(self, handle: str, path: str, error: ArchecError) -> None:
        """Logs that a template cannot be read: once, until it can be read again."""
        if handle in self._unreadable or len(self._unreadable) >= _MAX_REPORTED:
            return
        self._unreadable.add(handle)
        reason = "is missing" if isinstance(error, NotHeld) else error.message.removeprefix(f"{path}: ")
        _log.warning(
            "%s: %s; the records of %s lack authors and files until it is restored: 'archec verify --repair-from COPY'",
            path, reason, shown(handle),
        )  # fmt: skip
        if len(self._unreadable) == _MAX_REPORTED:
            _log.warning("further templates that cannot be read are not logged: 'archec verify' names them")

    def earliest(self) -> int | None:
        """The stamp of the catalogue's oldest item; None if it is empty."""
        first = [obi for kind in ITEM_KINDS for obi in self._catalogue.changed(kind, *Cursor(), 1)]
        return min((obi.stamp for obi in first), default=None)


_TITLES = {"series": "Name", "archive": "Name", "person": "Name-Full", "institution": "Primary-Name"}
"""The field with the title, if it is not Title, by family of templates."""


def _substitute(tobi: Obi) -> str:
    """A template made from the catalogue's data about its newest contents."""
    type_, title = (tobi.newest.type, tobi.newest.title) if tobi.newest is not None else ("", "")
    fields = {
        "Template-Type": type_,
        _TITLES.get(kind_of(type_).family, "Title"): title,
        "Handle": tobi.handle or tobi.id,
    }
    return "".join([f"{name}: {value}".replace("\n", " ") + "\n" for name, value in fields.items()])
