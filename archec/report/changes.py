"""Incidences in the order of time: what was new, what changed and how, what was lost, what came back."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from archec.catalogue.interface import Catalogue
from archec.catalogue.lists import START, ObiKind, Place, last_held
from archec.catalogue.model import Fobi, Tobi
from archec.history import Incidence
from archec.report.lots import lots_in_time

__all__ = ["Incident", "changes", "changes_of_runs", "first_run"]

_Obi = TypeVar("_Obi", Tobi, Fobi)
_KINDS: tuple[ObiKind, ...] = ("tobi", "fobi")
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
    kind: ObiKind
    what: str
    how: str
    run: int
    md5: str | None
    handle: str = ""
    title: str = ""
    suspect: str = ""
    reason: str = ""


def changes(catalogue: Catalogue, since: int = 0) -> Iterator[Incident]:
    """All incidences from the tist ``since`` on, by (tist, id)."""
    after = Place(since, "") if since > 0 else START
    for kind, places in lots_in_time({kind: catalogue.incidences(kind, after) for kind in _KINDS}):
        ids = [place.id for place in places]
        obis = catalogue.tobis(ids) if kind == "tobi" else catalogue.fobis(ids)
        for tist, obi in places:
            found = obis.get(obi)
            if found is not None:
                yield from (one for one in _incidents(found) if one.tist == tist)


def changes_of_runs(catalogue: Catalogue, run: int) -> Iterator[Incident]:
    """What this run and those after it have noted, in the order in which they last touched an obi.

    A replay of an old data set notes what is old: by their tists one would not find its incidences together.
    """
    tobis = _changed(catalogue.changed_tobis, run)
    fobis = _changed(catalogue.changed_fobis, run)
    for _, _, incidents in heapq.merge(tobis, fobis, key=lambda entry: entry[:2]):
        yield from (one for one in incidents if one.run >= run)


def first_run(catalogue: Catalogue, text: str) -> int | None:
    """The run that ``text`` names, None where it names none: a run's tist, or ``last``."""
    tists = [run.tist for run in catalogue.runs()]
    if text == "last" and tists:
        return tists[-1]
    return int(text) if text.isascii() and text.isdecimal() and int(text) in tists else None


def _changed(read: Callable[[int, str, int], list[_Obi]], run: int) -> Iterator[tuple[int, str, list[Incident]]]:
    stamp, obi = run - 1, _LAST
    while page := read(stamp, obi, _PAGE):
        for found in page:
            yield found.stamp, found.id, list(_incidents(found))
        stamp, obi = page[-1].stamp, page[-1].id


def _incidents(obi: Tobi | Fobi) -> Iterator[Incident]:
    for incidence in obi.history.incidences():
        yield _of_tobi(obi, incidence) if isinstance(obi, Tobi) else _of_fobi(obi, incidence)


def _of_tobi(tobi: Tobi, incidence: Incidence) -> Incident:
    note = tobi.notes.get(incidence.tist)
    version = tobi.versions.get(incidence.md5 or last_held(tobi.history) or "")
    return Incident(
        incidence.tist, tobi.id, "tobi", _what(incidence), _how(incidence, note.kind if note else ""),
        note.run if note else 0, incidence.md5, tobi.handle, version.title if version else "",
        reason=note.reason if note else "",
    )  # fmt: skip


def _of_fobi(fobi: Fobi, incidence: Incidence) -> Incident:
    note = fobi.notes.get(incidence.tist)
    return Incident(
        incidence.tist, fobi.id, "fobi", _what(incidence), _how(incidence, note.kind if note else ""),
        note.run if note else 0, incidence.md5,
        suspect=note.suspect if note else "", reason=note.reason if note else "",
    )  # fmt: skip


def _what(incidence: Incidence) -> str:
    return _WHAT.get(incidence.kind, incidence.kind)


def _how(incidence: Incidence, kind: str) -> str:
    if kind in ("cosmetic", "file-url", "restated"):
        return kind
    return "content" if incidence.kind == "changed" else ""
