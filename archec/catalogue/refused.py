"""Writes changes to the catalogue, and sets aside the documents that the database refuses.

A journalled batch cannot be undone, so such a document must not stop an archive: everything else is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Changes, Obi, RefusedDocument
from archec.errors import CatalogueRefused

_Item = tuple[str, Any]
_LONGEST = 600
_COLLECTIONS = [name for name in Changes.__struct_fields__ if name not in ("position", "refused", "before")]


def write_accepted(catalogue: Catalogue, changes: Changes) -> list[RefusedDocument]:
    """Writes the changes of a batch durably. Documents that the database refuses are recorded in the catalogue, and
    returned.

    The position is written last, so that after a kill the batch is written again.
    """
    try:
        catalogue.write(changes)
    except CatalogueRefused:
        return _write_in_parts(catalogue, changes)
    return []


def _write_in_parts(catalogue: Catalogue, changes: Changes) -> list[RefusedDocument]:
    before = catalogue.position()
    refused: list[RefusedDocument] = []

    def put(items: Sequence[_Item]) -> None:
        parts = {name: [item for of, item in items if of == name] for name in _COLLECTIONS}
        try:
            catalogue.write(Changes(before, before=changes.before, **parts))
        except CatalogueRefused as error:
            if len(items) == 1:
                name, item = items[0]
                what = f"{name} {_name(item)}"[:_LONGEST]
                tobi = (item.id, item.claims[-1].state or "") if isinstance(item, Obi) and item.claims else ("", "")
                position = changes.position
                refused.append(RefusedDocument(what, position.run, position.batch, error.message[:_LONGEST], *tobi))
                return
            half = len(items) // 2
            put(items[:half])
            put(items[half:])

    put([(name, item) for name in _COLLECTIONS for item in getattr(changes, name)])
    catalogue.write(Changes(changes.position, refused=refused))
    return refused


def _name(item: object) -> str:
    """The identifier of an item, for messages."""
    names = ("id", "key", "sha256", "base_url", "host", "tist")
    return str(next((getattr(item, name) for name in names if hasattr(item, name)), item))
