"""Metadata formats: the interface for archec's own formats and those in other packages.

A format is a class. To add one, subclass :class:`RecordFormat` in a package of your own, register it in that package's
entry points under ``archec.oai.formats``, and set its four keys in the configuration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from lxml import etree

from archec.catalogue.model import Kind
from archec.oai.index import ITEM_KINDS
from archec.oai.items import Item

__all__ = ["Context", "Item", "RecordFormat"]


@dataclass(frozen=True, slots=True)
class Context:
    """The services of the repository for formats.

    ``landing`` returns the URL at which this server shows the item with an identifier; ``publisher`` the name of the
    publisher of a series, by its handle, "" if unknown; ``schema`` the URL of a schema that this server serves.
    """

    landing: Callable[[str], str]
    publisher: Callable[[str], str]
    schema: Callable[[str], str]


class RecordFormat(ABC):
    """A metadata format. It is created once, with the schema and the namespace in the configuration, and called for
    one item at a time, from several threads.

    ``kinds`` are the kinds of items that have records in it; it must then return one for each such item. ``schema``
    and ``namespace`` are the defaults of the class if the configuration does not set them; a ``schema`` that is not a
    URL is a file that this server serves.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ITEM_KINDS
    schema: str = ""
    namespace: str = ""

    def __init__(self, schema: str, namespace: str) -> None:
        self.schema = schema or self.schema
        self.namespace = namespace or self.namespace

    @abstractmethod
    def metadata(self, item: Item, context: Context) -> str | etree._Element:
        """Returns the metadata of an item: one element in this format's namespace with its ``xsi:schemaLocation``,
        as an element or as XML text (:mod:`archec.oai.xml` helps to write it).

        Called for items that are not deleted. Must not fail, whatever the item contains.
        """

    def schema_url(self, context: Context) -> str:
        return self.schema if "://" in self.schema else context.schema(self.schema)
