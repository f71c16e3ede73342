"""What the OAI index holds and is asked: plain values, shared by its engines.

An *item* is a tobi or a fobi that was ever held. Its *stamp* is its datestamp: the second in which its
last change became visible to harvesters.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from archec.catalogue.model import Position

__all__ = ["KINDS", "Cursor", "Entry", "ItemKind", "Place", "Query", "Row", "State"]

ItemKind = Literal["tobi", "fobi"]
KINDS: tuple[ItemKind, ...] = ("tobi", "fobi")


class Place(NamedTuple):
    """A place in a list: the stamp of an item, and what orders items of one stamp (the engine's own)."""

    stamp: int
    key: str


class Row(NamedTuple):
    """An item as a list has it.

    ``obi`` is its id in the catalogue, ``local`` the local part of its identifier, ``sets`` the sets
    that it is in, without those above them. ``left``: it is listed because it was in the set that was
    asked for, and is not any more.
    """

    place: Place
    kind: ItemKind
    local: str
    obi: str
    deleted: bool
    sets: tuple[str, ...]
    left: bool = False


class Entry(NamedTuple):
    """An item as it is to be in the index from now on.

    ``stamp`` is the catalogue's; ``mark`` differs whenever the item's record differs.
    """

    kind: ItemKind
    local: str
    obi: str
    stamp: int
    mark: int
    deleted: bool
    sets: tuple[str, ...]


class Query(NamedTuple):
    """What a list holds: items of these kinds in a set ("" for all), ``start`` <= stamp <= ``end``."""

    kinds: tuple[ItemKind, ...]
    set: str
    start: int
    end: int


class Cursor(NamedTuple):
    """How far one collection of the catalogue has been followed: all up to (stamp, id) was seen."""

    stamp: int = 1
    id: str = ""


class State(NamedTuple):
    """How far the index has come.

    ``generation`` names this index: another one orders items of one stamp differently. ``rules`` is a
    checksum of what membership in sets depends on. ``ready``: it has caught up once, and its stamps
    have been told to harvesters since. ``last`` is the newest stamp that was given. ``archive`` says whose
    catalogue it follows; ``whole``: every item is to be compared with the catalogue anew.
    """

    generation: str
    rules: str = ""
    ready: bool = False
    tobis: Cursor = Cursor()
    fobis: Cursor = Cursor()
    seen: Position = Position()
    last: int = 0
    archive: str = ""
    whole: bool = False
