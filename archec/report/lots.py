"""Several streams of places as one, in lots: documents are looked up a lot at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from archec.catalogue.model import Kind, Moment

_FIRST, _MOST = 10, 200


def lots_in_time(streams: Mapping[Kind, Iterator[Moment]]) -> Iterator[tuple[Kind, list[Moment]]]:
    """The streams merged by (tist, id), in lots of one kind; the first are small, so that something is there soon."""
    size, kind, lot = _FIRST, next(iter(streams)), list[Moment]()
    for place, this in heapq.merge(*(_tagged(kind, stream) for kind, stream in streams.items())):
        if lot and (this != kind or len(lot) >= size):
            yield kind, lot
            size, lot = min(size * 2, _MOST), []
        kind = this
        lot.append(place)
    if lot:
        yield kind, lot


def _tagged(kind: Kind, stream: Iterator[Moment]) -> Iterator[tuple[Moment, Kind]]:
    return ((place, kind) for place in stream)
