"""Incidences in the order of time: what was new, what changed and how, what was lost, what came back."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import KINDS, START, Kind, Moment, Obi
from archec.history import Incidence
from archec.report.lots import lots_in_time

_WHAT = {"appeared": "new"}
_PAGE = 200
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incidence. ``what`` is ``new``, ``changed``, ``lost`` or ``returned``.

    ``how`` is what of a change it was: ``content``, ``file-url`` (File-URLs only), ``cosmetic`` (nothing that counts
    in the text), ``restated`` (stated again, as an older data set split a stretch of time); else empty. ``suspect``
    says why a file may not be what was meant. ``run`` is the run that noted it.
    """

    tist: int
    id: str
    kind: Kind
    what: str
    how: str
    run: int
    md5: str | None
    sha256: str | None
    handle: str = ""
    title: str = ""
    suspect: str = ""
    reason: str = ""


def changes(catalogue: Catalogue, since: int = 0) -> Iterator[Incident]:
    """All incidences from the tist ``since`` on, by (tist, id)."""
    after = Moment(since, "") if since > 0 else START
    for kind, places in lots_in_time({kind: catalogue.incidences(kind, after) for kind in KINDS}):
        ids = [place.id for place in places]
        obis = catalogue.obis(kind, ids)
        for tist, obi in places:
            found = obis.get(obi)
            if found is not None:
                yield from (one for one in _incidents(found) if one.tist == tist)


def changes_of_runs(catalogue: Catalogue, run: int) -> Iterator[Incident]:
    """What this run and those after it have noted, in the order in which they last touched an obi.

    A replay of an old data set notes what is old: by their tists one would not find its incidences together.
    """
    streams = [_changed(catalogue, kind, run) for kind in KINDS]
    for _, _, incidents in heapq.merge(*streams, key=lambda entry: entry[:2]):
        yield from (one for one in incidents if one.run >= run)


def first_run(catalogue: Catalogue, text: str) -> int | None:
    """The run that ``text`` names, None where it names none: a run's tist, or ``last``."""
    tists = [run.tist for run in catalogue.runs() if run.kind == "gather"]
    if text == "last" and tists:
        return tists[-1]
    return int(text) if text.isascii() and text.isdecimal() and int(text) in tists else None


def _changed(catalogue: Catalogue, kind: Kind, run: int) -> Iterator[tuple[int, str, list[Incident]]]:
    stamp, obi = run - 1, _LAST
    while page := catalogue.changed(kind, stamp, obi, _PAGE):
        for found in page:
            yield found.stamp, found.id, list(_incidents(found))
        stamp, obi = page[-1].stamp, page[-1].id


def _incidents(obi: Obi) -> Iterator[Incident]:
    for incidence in obi.history.incidences():
        note, content = obi.notes.get(incidence.tist), obi.versions.get(incidence.state or "")
        speaking = content or obi.newest
        yield Incident(
            incidence.tist,
            obi.id,
            obi.kind,
            _what(incidence),
            _how(incidence, note.kind if note else ""),
            note.run if note else 0,
            content.md5 if content else None,
            incidence.state,
            obi.handle,
            speaking.title if speaking else "",
            note.suspect if note else "",
            note.reason if note else "",
        )


def _what(incidence: Incidence) -> str:
    return _WHAT.get(incidence.kind, incidence.kind)


def _how(incidence: Incidence, kind: str) -> str:
    if kind in ("cosmetic", "file-url", "restated"):
        return kind
    return "content" if incidence.kind == "changed" else ""
