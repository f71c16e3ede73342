"""From rows of the index to items with their contents: the catalogue's documents, the store's bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Tobi
from archec.errors import ArchecError, CatalogueGone
from archec.oai.formats.base import FobiItem, Item, TobiItem
from archec.oai.model import Row
from archec.oai.sets import last_held
from archec.redif.schema import kind_of
from archec.store.layout import Layout
from archec.store.many import ManyReader

__all__ = ["CatalogueSource", "Source"]

_REMEMBERED = 5000
"""Series whose publisher is remembered ..."""
_FRESH = 600.0
"""... for so many seconds."""


class Source(Protocol):
    """Where items come from."""

    def items(self, rows: Sequence[Row], named: Callable[[Row], str]) -> Iterator[tuple[Row, Item | None]]:
        """Each row with its item, in order, None where it is deleted; contents are read one by one, as
        the caller goes on. ``named`` gives an item's identifier. Raises
        :class:`archec.errors.CatalogueGone` where the catalogue lacks what the index knows."""
        ...

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """The titles of those archives and series that are known."""
        ...

    def publisher(self, series: str) -> str:
        """The provider that a series' template names, "" where there is none."""
        ...

    def earliest(self) -> int | None:
        """The stamp of the catalogue's oldest item; None where it is empty."""
        ...


class CatalogueSource:
    """The archive itself; see :class:`Source`."""

    def __init__(self, layout: Layout, catalogue: Catalogue, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._catalogue, self._clock = layout, catalogue, clock
        self._publishers: dict[str, tuple[float, str]] = {}

    def items(self, rows: Sequence[Row], named: Callable[[Row], str]) -> Iterator[tuple[Row, Item | None]]:
        """See :class:`Source`."""
        wanted = [row for row in rows if not (row.deleted or row.left)]
        tobis = self._catalogue.tobis([row.obi for row in wanted if row.kind == "tobi"])
        fobis = self._catalogue.fobis([row.obi for row in wanted if row.kind == "fobi"])
        with ManyReader(self._layout) as reader:
            for row in rows:
                if row.deleted or row.left:
                    yield row, None
                    continue
                tobi, fobi = tobis.get(row.obi), fobis.get(row.obi)
                if tobi is not None and row.kind == "tobi":
                    yield row, _tobi_item(reader, named(row), tobi)
                elif fobi is not None and row.kind == "fobi":
                    yield row, FobiItem(named(row), fobi)
                else:
                    raise CatalogueGone(
                        f"the catalogue does not know {row.obi} at present", hint="is 'archec rebuild' at work?"
                    )

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """See :class:`Source`."""
        found: dict[str, str] = {}
        for tobi in self._catalogue.tobis(handles).values():
            version = tobi.versions.get(last_held(tobi.history) or "")
            if version is not None and version.title:
                found[tobi.id] = version.title
        return found

    def publisher(self, series: str) -> str:
        """See :class:`Source`; remembered for ten minutes."""
        now = self._clock()
        known = self._publishers.get(series)
        if known is not None and known[0] > now:
            return known[1]
        tobi = self._catalogue.tobis([series]).get(series)
        name = ""
        if tobi is not None:
            with ManyReader(self._layout) as reader:
                template = _tobi_item(reader, "", tobi).template
            names = [one.name for prefix in ("Provider", "Publisher") for one in template.clusters_of(prefix)]
            name = next(filter(None, names), "")
        if len(self._publishers) >= _REMEMBERED:
            self._publishers.clear()
        self._publishers[series] = (now + _FRESH, name)
        return name

    def earliest(self) -> int | None:
        """See :class:`Source`."""
        tobis, fobis = self._catalogue.changed_tobis(1, "", 1), self._catalogue.changed_fobis(1, "", 1)
        return min([tobi.stamp for tobi in tobis] + [fobi.stamp for fobi in fobis], default=None)


def _tobi_item(reader: ManyReader, identifier: str, tobi: Tobi) -> TobiItem:
    """A tobi with its newest contents, or with what the catalogue knows of them."""
    md5 = last_held(tobi.history) or ""
    tist = max((tist for tist, state in tobi.history if state is not None), default=0)
    try:
        text = reader.read(tist, tobi.id).decode("utf-8", "surrogateescape")
        return TobiItem(identifier, tobi, text, tist, md5)
    except (ArchecError, OSError):
        # The store's audit tells of it; a harvester is told what is known all the same.
        return TobiItem(identifier, tobi, _makeshift(tobi, md5), tist, md5, readable=False)


_NAMES = {"series": "Name", "archive": "Name", "person": "Name-Full", "institution": "Primary-Name"}


def _makeshift(tobi: Tobi, md5: str) -> str:
    """A template of what the catalogue knows of a content."""
    version = tobi.versions.get(md5)
    kind, title = (version.kind, version.title) if version is not None else ("", "")
    lines = (
        f"Template-Type: {kind}",
        f"{_NAMES.get(kind_of(kind).family, 'Title')}: {title}",
        f"Handle: {tobi.handle or tobi.id}",
    )
    return "".join([line.replace("\n", " ") + "\n" for line in lines])
