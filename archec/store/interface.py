"""The interface of the obi store: the items of a batch and their results, and the places of bytes.

Paths are relative to the store's root, with ``/`` between their parts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Stored(NamedTuple):
    """A complete temporary file: its path, the hex digests of its bytes, and its size in bytes."""

    temp: str
    md5: str
    sha256: str
    size: int


class Placement(NamedTuple):
    """A complete temporary file that is to be renamed to (tist, id); ``sha256`` is that of its bytes."""

    temp: str
    tist: int
    id: str
    sha256: str


class Link(NamedTuple):
    """A redirect: (tist, id) leads to (to_tist, to_id)."""

    tist: int
    id: str
    to_tist: int
    to_id: str


class HardLink(NamedTuple):
    """Restated contents: (tist, id) is to hold the same bytes as (from_tist, from_id)."""

    from_tist: int
    from_id: str
    tist: int
    id: str


class CommitResult(NamedTuple):
    """The result for one item of a batch.

    ``stored``: (tist, id) now resolves as requested. ``adopted``: it already did, because of an interrupted
    run. ``occupied``: something else is held there and stays; ``sha256`` is that of the bytes it
    resolves to, ``""`` if there are none. ``missing``: contents to be restated are not held.
    Otherwise ``sha256`` is that of a placement's bytes, ``""`` for links.
    """

    kind: Literal["stored", "adopted", "occupied", "missing"]
    tist: int
    id: str
    sha256: str


class LinkStep(NamedTuple):
    """One step of a chain of redirects; ``id`` is None if the name on disk is truncated (the journal has the id)."""

    tist: int
    id: str | None
    name: str
