"""What a metadata format is given and what it gives: the interface for archec's own and a third party's.

A format is a class. To add one: subclass :class:`RecordFormat` in a package of your own, name it in that
package's entry points under ``archec.oai.formats``, and give its four keys in the configuration. It
is made once, with the schema and the namespace from the configuration, and asked for one item at a
time, from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from lxml import etree

from archec.catalogue.model import Fobi, Tobi
from archec.oai.model import KINDS, ItemKind
from archec.redif.template import Template, parse

__all__ = ["XSI", "Context", "FobiItem", "Item", "RecordFormat", "TobiItem"]

XSI = "http://www.w3.org/2001/XMLSchema-instance"


@dataclass(slots=True)
class TobiItem:
    """A tobi: all that is known of it, and its newest contents.

    ``text`` is the template as it is held (UTF-8, LF line ends), noted at ``tist``, with the checksum
    ``md5``; ``readable`` is False where its bytes could not be read: then it is a template of what the
    catalogue knows.
    """

    identifier: str
    tobi: Tobi
    text: str
    tist: int
    md5: str
    readable: bool = True
    _parsed: Template | None = field(default=None, repr=False)
    _values: dict[str, list[str]] | None = field(default=None, repr=False)

    @property
    def template(self) -> Template:
        """The parsed template."""
        if self._parsed is None:
            self._parsed = parse(self.text)
        return self._parsed

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of the template's fields that are not empty, by canonical name, those of clusters too."""
        if self._values is None:
            found: dict[str, list[str]] = {}
            template = self.template
            for name, value in zip(template.names, template.values, strict=True):
                if value:
                    found.setdefault(name, []).append(value)
            self._values = found
        return self._values


@dataclass(frozen=True, slots=True)
class FobiItem:
    """A fobi: all that is known of it."""

    identifier: str
    fobi: Fobi


Item = TobiItem | FobiItem


@dataclass(frozen=True, slots=True)
class Context:
    """What formats may ask of the repository.

    ``landing`` gives the address at which this server shows the item with an identifier;
    ``publisher`` the name of who publishes the series with a handle, "" where it is not known;
    ``schema`` the address of a schema that this server serves.
    """

    landing: Callable[[str], str]
    publisher: Callable[[str], str]
    schema: Callable[[str], str]


class RecordFormat(ABC):
    """A metadata format.

    ``kinds`` says which items have records in it; it must then give one for each such item. ``schema``
    and ``namespace`` are the class's own where the configuration does not give them; a ``schema`` that
    is no address is a file that this server serves.
    """

    kinds: ClassVar[tuple[ItemKind, ...]] = KINDS
    schema: str = ""
    namespace: str = ""

    def __init__(self, schema: str, namespace: str) -> None:
        self.schema = schema or self.schema
        self.namespace = namespace or self.namespace

    @abstractmethod
    def metadata(self, item: Item, context: Context) -> str | etree._Element:
        """The one element of the metadata of an item, in this format's namespace and with its
        ``xsi:schemaLocation``; as an element, or as XML text (:mod:`archec.oai.xml` helps to make it).

        Told of an item that is not deleted. Must not fail, whatever the item holds.
        """

    def schema_url(self, context: Context) -> str:
        """The address of the schema."""
        return self.schema if "://" in self.schema else context.schema(self.schema)
