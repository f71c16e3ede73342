"""Writing a batch of which the database refuses something: that is set aside, and everything else is written.

A journalled batch cannot be taken back, so one document that an engine does not take must not stop an archive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Changes, Obi, Refused
from archec.errors import CatalogueRefused

_LONGEST = 600
_Item = tuple[str, Any]


def write(catalogue: Catalogue, changes: Changes) -> list[Refused]:
    """Writes a batch's changes durably; what was refused is remembered in the catalogue, and returned.

    The position comes last, so that a kill in between only has the batch written again.
    """
    try:
        catalogue.write(changes)
    except CatalogueRefused:
        return _write_in_parts(catalogue, changes)
    return []


def _write_in_parts(catalogue: Catalogue, changes: Changes) -> list[Refused]:
    before = catalogue.position()
    refused: list[Refused] = []

    def put(items: Sequence[_Item]) -> None:
        try:
            catalogue.write(_changes(items, replace(changes, position=before)))
        except CatalogueRefused as error:
            if len(items) == 1:
                name, item = items[0]
                what = f"{name} {_name(item)}"[:_LONGEST]
                tobi = (item.id, item.claims[-1].state or "") if isinstance(item, Obi) and item.claims else ("", "")
                position = changes.position
                refused.append(Refused(what, position.run, position.batch, error.message[:_LONGEST], *tobi))
                return
            half = len(items) // 2
            put(items[:half])
            put(items[half:])

    items: list[_Item] = [(name, item) for name in _collections() for item in getattr(changes, name)]
    put(items)
    catalogue.write(Changes(changes.position, refused=refused))
    return refused


def _collections() -> list[str]:
    return [field.name for field in fields(Changes) if field.name not in ("position", "refused")]


def _changes(items: Sequence[_Item], like: Changes) -> Changes:
    """The part of a batch that these items are."""
    return Changes(like.position, **{name: [item for of, item in items if of == name] for name in _collections()})


_NAMES: Sequence[Callable[[Any], object]] = (
    lambda item: item.id,
    lambda item: item.key,
    lambda item: item.sha256,
    lambda item: item.base_url,
    lambda item: item.host,
    lambda item: item.tist,
)


def _name(item: object) -> str:
    """What an item is known by."""
    for named in _NAMES:
        try:
            return str(named(item))
        except AttributeError:
            continue
    return str(item)
