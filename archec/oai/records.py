"""Headers, records and their provenance, as XML text."""

from __future__ import annotations

from functools import lru_cache

from lxml import etree

from archec.catalogue.model import Tobi
from archec.oai.formats.base import XSI, Context, Item, RecordFormat, TobiItem
from archec.oai.model import Row
from archec.oai.names import escaped, identifier
from archec.oai.sets import ALIAS, ALIASED, aliased
from archec.oai.xml import element, text
from archec.tist import iso

__all__ = ["header", "record"]

_PROVENANCE = "http://www.openarchives.org/OAI/2.0/provenance"
_REDIF = "http://openlib.org/acmes/root/docu/redif_1.html"

_when = lru_cache(maxsize=4096)(iso)


def header(row: Row, domain: str, trees: frozenset[str], asked: str = "") -> str:
    """The header of an item. One that has left the set ``asked`` for is deleted there."""
    status = ' status="deleted"' if row.deleted or row.left else ""
    return (
        f"<header{status}><identifier>{text(identifier(domain, row.local))}</identifier>"
        f"<datestamp>{_when(row.place.stamp)}</datestamp>{_specs((asked,) if row.left else row.sets, trees)}</header>"
    )


@lru_cache(maxsize=4096)
def _specs(sets: tuple[str, ...], trees: frozenset[str]) -> str:
    """The setSpecs of an item, with the other names of those that have one."""
    specs: list[str] = []
    for path in sets:
        tree = path.partition(":")[0]
        if tree in trees:
            specs.append(path)
        if tree == ALIASED and ALIAS in trees:
            specs.append(aliased(path))
    return "".join([f"<setSpec>{path}</setSpec>" for path in specs])


def record(head: str, item: Item | None, form: RecordFormat, context: Context, origin: str) -> str:
    """The record of an item; of a deleted one (``item`` None) it is the header alone."""
    if item is None:
        return f"<record>{head}</record>"
    payload = form.metadata(item, context)
    if not isinstance(payload, str):
        payload = etree.tostring(payload, encoding="unicode", with_tail=False)
    about = _provenance(item, form, origin) if origin and isinstance(item, TobiItem) else ""
    return f"<record>{head}<metadata>{payload}</metadata>{about}</record>"


def _provenance(item: TobiItem, form: RecordFormat, origin: str) -> str:
    """Where a template came from, and when: it was published by its archive, not by us."""
    tobi: Tobi = item.tobi
    note = tobi.notes.get(item.tist)
    harvested = _when(note.run if note is not None else item.tist)
    altered = "false" if form.namespace.startswith("urn:archec:redif:") else "true"
    return (
        f'<about><provenance xmlns="{_PROVENANCE}" xmlns:xsi="{XSI}" xsi:schemaLocation="{_PROVENANCE}'
        f' {_PROVENANCE}.xsd"><originDescription harvestDate="{harvested}" altered="{altered}">'
        f"{element('baseURL', origin)}{element('identifier', escaped(tobi.handle or tobi.id))}"
        f"<datestamp>{_when(item.tist)}</datestamp><metadataNamespace>{_REDIF}</metadataNamespace>"
        "</originDescription></provenance></about>"
    )
