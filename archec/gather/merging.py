"""Merging: a data set, sorted by id, against the catalogue, sorted by id.

Pure over its two streams. Where an id is in both with the same contents nothing comes out, which
is what makes a run over an unchanged data set cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from archec.catalogue import codec
from archec.catalogue.model import ObiState
from archec.gather.spool import Found
from archec.history import History
from archec.ids import archive_of


class Present(NamedTuple):
    """A tobi whose contents in the data set are news: new, changed, returned, or in conflict."""

    found: Found
    sha256: str
    history: History


class Absent(NamedTuple):
    """A tobi that the catalogue holds as of the data set's tist and that the data set lacks."""

    id: str
    archive: str


class Merged:
    """Counts of a merge, filled while it runs."""

    def __init__(self) -> None:
        self.distinct = 0
        self.duplicates = 0
        self.same = 0


def history_of(state: ObiState) -> History:
    """The whole history behind a row of the scan."""
    if state.h is None:
        return History((state.last,), (state.state,))
    return codec.history_of(state.h)


def merge(
    found: Iterable[Found],
    known: Iterable[ObiState],
    tist: int,
    merged: Merged,
    *,
    on_seen: Callable[[str], None],
    on_held: Callable[[str], None],
) -> Iterator[Present | Absent]:
    """Every difference between the data set and the catalogue's state as of ``tist``, by id.

    ``on_seen`` is called with every id of the data set, ``on_held`` with every id that the
    catalogue holds as of ``tist``.
    """
    states = iter(known)
    state = next(states, None)
    for item in found:
        obi = item.id
        merged.distinct += 1
        if item.times > 1:
            merged.duplicates += item.times - 1
        on_seen(obi)
        while state is not None and state.id < obi:
            absent = _absent(state, tist)
            if absent is not None:
                on_held(absent.id)
                yield absent
            state = next(states, None)
        sha256 = item.sha256.hex()
        if state is None or state.id != obi:
            yield Present(item, sha256, History())
            continue
        if state.last <= tist:
            now = state.state
            if now is not None:
                on_held(obi)
            if now == sha256:
                merged.same += 1
            else:
                yield Present(item, sha256, history_of(state))
        else:
            history = history_of(state)
            now = history.at(tist)
            if now is not None:
                on_held(obi)
            if now == sha256:
                merged.same += 1
            else:
                yield Present(item, sha256, history)
        state = next(states, None)
    while state is not None:
        absent = _absent(state, tist)
        if absent is not None:
            on_held(absent.id)
            yield absent
        state = next(states, None)


def _absent(state: ObiState, tist: int) -> Absent | None:
    now = state.state if state.last <= tist else history_of(state).at(tist)
    return Absent(state.id, archive_of(state.id)) if now is not None else None
