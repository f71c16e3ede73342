"""Metadata formats: the interface of archec's own and of those in other packages.

A format is a class. To add one: subclass :class:`RecordFormat` in a package of your own, name it in that package's
entry points under ``archec.oai.formats``, and give its four keys in the configuration.
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
    """What formats may ask of the repository.

    ``landing`` gives the address at which this server shows the item with an identifier; ``publisher`` the name of
    who publishes the series with a handle, "" if unknown; ``schema`` the address of a schema that this server serves.
    """

    landing: Callable[[str], str]
    publisher: Callable[[str], str]
    schema: Callable[[str], str]


class RecordFormat(ABC):
    """A metadata format. It is made once, with the schema and the namespace of the configuration, and asked for one
    item at a time, from several threads.

    ``kinds`` says which items have records in it; it must then give one for each such item. ``schema`` and
    ``namespace`` are the class's own if the configuration does not give them; a ``schema`` that is no address is a
    file that this server serves.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ITEM_KINDS
    schema: str = ""
    namespace: str = ""

    def __init__(self, schema: str, namespace: str) -> None:
        self.schema = schema or self.schema
        self.namespace = namespace or self.namespace

    @abstractmethod
    def metadata(self, item: Item, context: Context) -> str | etree._Element:
        """The one element of the metadata of an item, in this format's namespace and with its
        ``xsi:schemaLocation``; as an element, or as XML text (:mod:`archec.oai.xml` helps to write it).

        Called for items that are not deleted. Must not fail, whatever the item holds.
        """

    def schema_url(self, context: Context) -> str:
        """The address of the schema."""
        return self.schema if "://" in self.schema else context.schema(self.schema)
