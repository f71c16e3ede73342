"""Strangers: names in the obi store that no journal names, and what each of them may be."""

from __future__ import annotations

from collections.abc import Collection

from archec.archive.follow import last_run
from archec.audit.entries import key_of
from archec.audit.findings import Finding
from archec.audit.links import judge
from archec.audit.walk import Place, Tell, walk
from archec.catalogue.interface import Catalogue
from archec.ids import file_name
from archec.redif.problems import shown
from archec.store.directories import Directories
from archec.store.layout import Layout
from archec.store.links import id_of_name
from archec.store.lock import holder

__all__ = ["MOST", "known_tists", "tell_strangers", "under_way"]

MOST = 100_000
"""So many names are told at most, so that memory stays flat; the rest is counted."""


def known_tists(catalogue: Catalogue | None) -> frozenset[int]:
    """The tists at which the archive notes obis: those of runs and of data sets."""
    if catalogue is None:
        return frozenset()
    runs = catalogue.runs()
    tists = {run.tist for run in runs} | {run.data_set for run in runs}
    return frozenset(tists | {data_set.tist for data_set in catalogue.data_sets()})


def under_way(layout: Layout) -> frozenset[int]:
    """The tists at which a run that is at work now may be writing; empty where there is none."""
    who = holder(layout)
    if who is None or who.what != "gather":
        return frozenset()
    last = last_run(layout)
    if last is None:
        return frozenset()
    return frozenset({last.journal.tist, last.start.data_set if last.start is not None else last.journal.tist})


def tell_strangers(
    layout: Layout,
    keys: Collection[bytes],
    *,
    known: Collection[int],
    passed_over: Collection[int],
    tell: Tell,
    judged: bool = False,
) -> None:
    """Walks the store and tells of every name whose key is among ``keys``; each says what it looks like.

    ``known`` are the tists of runs and data sets; those in ``passed_over`` are another run's affair.
    ``judged``: what is wrong with links, and what is neither file nor link, has been told already.
    """
    if not keys:
        return
    with Directories(layout) as folders:
        for place in walk(layout, lambda finding: None):
            if place.kind != "temp" and place.tist not in passed_over and key_of(place.path) in keys:
                finding = _stranger(layout, folders, place, known)
                if not judged or not (finding.code.startswith("link-") or place.kind == "other"):
                    tell(finding)


def _stranger(layout: Layout, folders: Directories, place: Place, known: Collection[int]) -> Finding:
    path = shown(place.path)
    if place.kind == "other":
        return Finding("unexpected", path, "neither a file nor a link")
    obi = _id_of(layout, place)
    if place.kind == "link":
        wrong = judge(folders, place.path)
        if wrong is not None:
            return Finding(wrong[0], path, f"no journal names it, and it {wrong[1]}")
    if obi is None:
        return Finding("misnamed", path, "no journal names it, and its name is not that of an id in this directory")
    if place.tist not in known:
        return Finding("unexpected", path, f"no journal names it, and no run noted anything at {place.tist}")
    return Finding("orphan", path, "no journal names it", place.tist, obi)


def _id_of(layout: Layout, place: Place) -> str | None:
    """The id that a name stands for (empty where it was cut), None where it cannot be one's in this directory."""
    if not place.name.isascii():
        return None
    obi = id_of_name(place.name)
    if obi is None:
        cut = len(place.name) > 200 and place.name[-33:-32] == "~"
        return "" if cut else None
    if file_name(obi) != place.name or layout.directory(place.tist, obi) != place.directory:
        return None
    return obi
