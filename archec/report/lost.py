"""What has been lost, with all that an operator asks of it, and what came back.

Lists come in the order of time and are read by key. Only where an archive is small are its lost files looked for from
the side of its templates: else one would read all that others have lost to find them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from archec.archive.lookup import path_held
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import START, Kind, Moment, Obi
from archec.ids import archive_of
from archec.report.lots import lots_in_time
from archec.store.layout import Layout

__all__ = ["MOST_WORKS", "Lost", "LostQuery", "Returned", "Work", "lost", "returned"]

MOST_WORKS = 10
"""Works told of for one file: some URLs stand in thousands of templates."""
_MOST_REFERRING = 10_000
"""Templates among which one of the archive that is asked for is looked for."""
_SMALL = 10_000
"""Templates of an archive up to which its lost files are looked for from their side."""


class LostQuery(NamedTuple):
    """Which losses are asked for: ``since`` <= tist < ``until`` (of the loss; of the return for what came back),
    for at least so many seconds ``at_least`` (until ``now``, or until it came back), of an archive (for a file: of
    a template that names it), with ``reason`` somewhere in its reason, in any case."""

    now: int
    kinds: tuple[Kind, ...] = ("tobi", "fobi")
    since: int = 0
    until: int | None = None
    at_least: float = 0.0
    archive: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """A template that names a file. ``held``: it is not lost itself; ``names``: its newest version still names the
    file; ``rendering``: another file of its newest version that is held, empty where there is none."""

    id: str
    handle: str
    title: str
    held: bool
    names: bool
    rendering: str


@dataclass(frozen=True, slots=True)
class Lost:
    """An obi that is lost now. ``noted`` is the last tist at which it was noted, ``path`` that of the copy held (None:
    it is not in the obi store), ``title`` that of a template; ``works`` are told for a file, the first
    :data:`MOST_WORKS`, and ``more`` says that there are others."""

    id: str
    kind: Kind
    noted: int
    lost: int
    reason: str
    md5: str
    sha256: str
    path: str | None
    handle: str = ""
    title: str = ""
    works: tuple[Work, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """An obi that was lost, and came back; ``same``: with the bytes that it had before."""

    id: str
    kind: Kind
    lost: int
    returned: int
    reason: str
    same: bool
    md5: str
    sha256: str
    path: str | None
    handle: str = ""
    title: str = ""


def lost(layout: Layout, catalogue: Catalogue, query: LostQuery) -> Iterator[Lost]:
    """What is lost now, by the tist of its loss."""
    few = _lost_of_few(catalogue, query.archive) if query.archive else None
    streams = {kind: _lost_places(catalogue, kind, query, few) for kind in query.kinds}
    for kind, places in lots_in_time(streams):
        ids = [place.id for place in places]
        if kind == "tobi":
            tobis = catalogue.obis("tobi", ids)
            for tobi in (tobis[i] for i in ids if i in tobis):
                if tobi.history.lost and _wanted(query, _reason(tobi, tobi.history.lost)):
                    yield _lost_tobi(layout, catalogue, tobi, tobi.history.lost)
            continue
        fobis = catalogue.obis("fobi", ids)
        named = catalogue.referring(ids, MOST_WORKS + 1)
        for fobi in (fobis[i] for i in ids if i in fobis):
            when = fobi.history.lost
            if when and _wanted(query, _reason(fobi, when)) and _of_archive(query, fobi.id, named, catalogue):
                yield _lost_fobi(layout, catalogue, fobi, when, named.get(fobi.id, []))


def returned(layout: Layout, catalogue: Catalogue, query: LostQuery) -> Iterator[Returned]:
    """What had been lost and came back, by the tist of its return."""
    streams = {kind: _in_time(catalogue.returned(kind, _start(query)), query) for kind in query.kinds}
    for kind, places in lots_in_time(streams):
        ids = [place.id for place in places]
        obis = catalogue.obis(kind, ids)
        named = catalogue.referring(ids, MOST_WORKS + 1) if kind == "fobi" and query.archive else {}
        for tist, obi in places:
            found = obis.get(obi)
            if found is None or (kind == "tobi" and query.archive and archive_of(obi) != query.archive):
                continue
            if kind == "fobi" and not _of_archive(query, obi, named, catalogue):
                continue
            one = _returned(layout, catalogue, found, kind, tist)
            if one is not None and _wanted(query, one.reason) and tist - one.lost >= query.at_least:
                yield one


# -- places ---------------------------------------------------------------------------------------


def _start(query: LostQuery) -> Moment:
    return Moment(query.since, "") if query.since > 0 else START


def _in_time(places: Iterator[Moment], query: LostQuery) -> Iterator[Moment]:
    if query.until is None:
        return places
    until = query.until
    return takewhile(lambda place: place.tist < until, places)


def _lost_places(
    catalogue: Catalogue, kind: Kind, query: LostQuery, few: Mapping[Kind, list[Moment]] | None
) -> Iterator[Moment]:
    if query.at_least:
        before = int(query.now - query.at_least) + 1
        query = query._replace(until=before if query.until is None else min(before, query.until))
    if few is not None:
        return _in_time((place for place in few[kind] if place.tist >= query.since), query)
    places = _in_time(catalogue.lost(kind, _start(query)), query)
    if kind == "tobi" and query.archive:
        return (place for place in places if archive_of(place.id) == query.archive)
    return places


def _lost_of_few(catalogue: Catalogue, archive: str) -> dict[Kind, list[Moment]] | None:
    """What an archive's templates have lost and the lost files that they name, by time; None where it has too many."""
    inside = catalogue.tobi_files(f"RePEc:{archive}:", f"RePEc:{archive};")
    listed = list(islice(inside, _SMALL + 1))
    if len(listed) > _SMALL:
        return None
    own = catalogue.obis("tobi", [f"RePEc:{archive}"]).values()
    tobis = [Moment(tobi.last, tobi.id) for tobi in listed if not tobi.held]
    tobis += [Moment(tobi.history.lost, tobi.id) for tobi in own if tobi.history.lost]
    urls = {url for tobi in listed for url in (*tobi.files, *tobi.former)}
    urls.update(url for tobi in own for url in tobi.names)
    states = catalogue.file_states(urls)
    return {
        "tobi": sorted(tobis),
        "fobi": sorted(Moment(state.last, url) for url, state in states.items() if state.held is False),
    }


# -- what is told of them -------------------------------------------------------------------------


def _reason(obi: Obi, tist: int) -> str:
    note = obi.notes.get(tist)
    return note.reason if note is not None else ""


def _wanted(query: LostQuery, reason: str) -> bool:
    return query.reason.lower() in reason.lower()


def _of_archive(query: LostQuery, url: str, named: dict[str, list[Obi]], catalogue: Catalogue) -> bool:
    """Whether a template of the archive that is asked for names this file."""
    if not query.archive:
        return True
    tobis = named.get(url, [])
    if any(archive_of(tobi.id) == query.archive for tobi in tobis):
        return True
    if len(tobis) <= MOST_WORKS:
        return False
    every = catalogue.referring([url], _MOST_REFERRING).get(url, [])
    return any(archive_of(tobi.id) == query.archive for tobi in every)


def _noted(obi: Obi, before: int) -> int:
    """The last tist before ``before`` at which contents were noted."""
    return max((tist for tist in obi.history.noted if tist < before), default=0)


def _digests(obi: Obi, tist: int) -> tuple[str, str]:
    """md5 and sha256 of the contents in force at a tist."""
    version = obi.version_at(tist)
    return (version.md5, version.sha256) if version is not None else ("", obi.history.at(tist) or "")


def _title(tobi: Obi) -> str:
    version = tobi.newest
    return version.title if version is not None else ""


def _lost_tobi(layout: Layout, catalogue: Catalogue, tobi: Obi, when: int) -> Lost:
    noted = _noted(tobi, when)
    path, digests = path_held(layout, catalogue, tobi, noted), _digests(tobi, noted)
    return Lost(tobi.id, "tobi", noted, when, _reason(tobi, when), *digests, path, tobi.handle, _title(tobi))


def _lost_fobi(layout: Layout, catalogue: Catalogue, fobi: Obi, when: int, named: list[Obi]) -> Lost:
    noted = _noted(fobi, when)
    digests = _digests(fobi, noted)
    shown = named[:MOST_WORKS]
    now = {tobi.id: _names_now(tobi) for tobi in shown}
    states = catalogue.file_states({url for urls in now.values() for url in urls})
    works = []
    for tobi in shown:
        others = [url for url in now[tobi.id] if url != fobi.id and url in states and states[url].held]
        rendering = others[0] if others else ""
        held = tobi.history.held
        works.append(Work(tobi.id, tobi.handle, _title(tobi), held, fobi.id in now[tobi.id], rendering))
    path = path_held(layout, catalogue, fobi, noted)
    return Lost(
        fobi.id, "fobi", noted, when, _reason(fobi, when), *digests, path,
        works=tuple(works), more=len(named) > MOST_WORKS,
    )  # fmt: skip


def _names_now(tobi: Obi) -> list[str]:
    """The files that a template's newest version names."""
    version = tobi.newest
    return list(dict.fromkeys(ref.url for ref in version.refs)) if version is not None else []


def _returned(
    layout: Layout, catalogue: Catalogue, obi: Obi, kind: Kind, tist: int
) -> Returned | None:
    """None where the history has moved on since the list was read."""
    history = obi.history
    before = [when for when in history.tists if when < tist]
    state = history.at(tist)
    if state is None or not before or history.at(before[-1]) is not None:
        return None
    gone = before[-1]
    had = history.at(_noted(obi, gone))
    digests = _digests(obi, tist)
    path = path_held(layout, catalogue, obi, tist)
    return Returned(obi.id, kind, gone, tist, _reason(obi, gone), had == state, *digests, path, obi.handle, _title(obi))
