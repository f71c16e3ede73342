"""Several streams of places as one, in lots: documents are looked up a lot at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from archec.catalogue.lists import ObiKind, Place

__all__ = ["lots_in_time"]

_FIRST, _MOST = 10, 200


def lots_in_time(streams: Mapping[ObiKind, Iterator[Place]]) -> Iterator[tuple[ObiKind, list[Place]]]:
    """The streams merged by (tist, id), in lots of one kind; the first are small, so that something is there soon."""
    size, kind, lot = _FIRST, next(iter(streams)), list[Place]()
    for place, this in heapq.merge(*(_tagged(kind, stream) for kind, stream in streams.items())):
        if lot and (this != kind or len(lot) >= size):
            yield kind, lot
            size, lot = min(size * 2, _MOST), []
        kind = this
        lot.append(place)
    if lot:
        yield kind, lot


def _tagged(kind: ObiKind, stream: Iterator[Place]) -> Iterator[tuple[Place, ObiKind]]:
    return ((place, kind) for place in stream)
