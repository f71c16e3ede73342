"""Current losses, with the details an operator needs; and returns.

Lists are sorted by time and read by key. The lost files of a small archive are found through its templates, so that
the losses of all other archives are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from archec.archive.claims import last_seen
from archec.archive.evidence import Evidence, evidence_of
from archec.archive.lookup import path_held
from archec.archive.opening import Archive
from archec.catalogue.documents import Moment
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi
from archec.report.changes import MOST_WORKS, SOME_WORKS, chunks_in_time, of_archive
from archec.tist import MAX_TIST

_SMALL = 10_000
"""Maximum number of templates of an archive whose lost files are found through them."""


class LostQuery(NamedTuple):
    """A selection of losses: ``since`` <= tist < ``until`` (of the loss or the return), lost for at least ``at_least``
    seconds (until ``now``, or until the return), of an archive (for files: of a template that mentions them; no
    filesets), with a reason that contains ``reason``, case-insensitively."""

    now: int
    kinds: tuple[Kind, ...] = ("tobi", "fobi")
    since: int = 0
    until: int = MAX_TIST + 1
    at_least: float = 0.0
    archive: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NamingWork:
    """A template that mentions a file. ``held``: it is not lost itself. ``names``: its newest version still mentions
    the file. ``rendering``: another held file of its newest version, empty if there is none."""

    id: str
    handle: str
    title: str
    held: bool
    names: bool
    rendering: str


@dataclass(frozen=True, slots=True)
class Lost:
    """An obi that is currently lost; it was lost between ``last_seen`` and ``lost``. ``noted`` is the last tist at
    which it was noted. ``path`` is that of the held copy, None if it is not in the obi store. ``title`` is that of a
    template. ``works`` are the first :data:`MOST_WORKS` that mention a file; ``more``: there are others."""

    id: str
    kind: Kind
    noted: int
    last_seen: int
    lost: int
    reason: str
    md5: str
    sha256: str
    path: str | None
    handle: str = ""
    title: str = ""
    works: tuple[NamingWork, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """An obi that was lost between ``last_seen`` and ``lost``, and came back. ``same``: with the same bytes as
    before."""

    id: str
    kind: Kind
    last_seen: int
    lost: int
    returned: int
    reason: str
    same: bool
    md5: str
    sha256: str
    path: str | None
    handle: str = ""
    title: str = ""


def lost(archive: Archive, query: LostQuery) -> Iterator[Lost]:
    """The obis that are currently lost, by the tist of their loss."""
    catalogue = archive.catalogue
    few = _lost_of_few(catalogue, query.archive) if query.archive else None
    evidence = evidence_of(catalogue)
    streams = {kind: _lost_moments(catalogue, kind, query, few) for kind in query.kinds}
    for kind, moments in chunks_in_time(streams):
        ids = of_archive(catalogue, kind, [moment.id for moment in moments], query.archive)
        obis = catalogue.obis(kind, ids)
        named = catalogue.referring(ids, SOME_WORKS) if kind == "fobi" else {}
        for obi in (obis[i] for i in ids if i in obis):
            when = obi.history.lost
            if when and _wanted(query, _reason(obi, when)):
                yield _lost(archive, obi, when, last_seen(obi, evidence) or 0, named.get(obi.id, []))


def returned(archive: Archive, query: LostQuery) -> Iterator[Returned]:
    """The obis that were lost and returned, by the tist of their return."""
    catalogue = archive.catalogue
    evidence = evidence_of(catalogue)
    streams = {kind: _until(query.until, catalogue.returned(kind, Moment(query.since, ""))) for kind in query.kinds}
    for kind, moments in chunks_in_time(streams):
        obis = catalogue.obis(kind, of_archive(catalogue, kind, [moment.id for moment in moments], query.archive))
        for tist, obi in moments:
            one = _returned(archive, obis[obi], tist, evidence) if obi in obis else None
            if one is not None and _wanted(query, one.reason) and tist - one.lost >= query.at_least:
                yield one


# -- when -----------------------------------------------------------------------------------------


def _until(tist: int, moments: Iterator[Moment]) -> Iterator[Moment]:
    return takewhile(lambda moment: moment.tist < tist, moments)


def _lost_moments(
    catalogue: Catalogue, kind: Kind, query: LostQuery, few: Mapping[Kind, list[Moment]] | None
) -> Iterator[Moment]:
    until = min(query.until, int(query.now - query.at_least) + 1) if query.at_least else query.until
    if few is not None:
        return _until(until, (moment for moment in few.get(kind, ()) if moment.tist >= query.since))
    return _until(until, catalogue.lost(kind, Moment(query.since, "")))


def _lost_of_few(catalogue: Catalogue, archive: str) -> dict[Kind, list[Moment]] | None:
    """The lost templates of an archive and the lost files that they mention, by time; None if it has too many."""
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


# -- details --------------------------------------------------------------------------------------


def _reason(obi: Obi, tist: int) -> str:
    note = obi.notes.get(tist)
    return note.reason if note is not None else ""


def _wanted(query: LostQuery, reason: str) -> bool:
    return query.reason.lower() in reason.lower()


def _noted(obi: Obi, before: int) -> int:
    """The last tist before ``before`` at which contents were noted."""
    return max((tist for tist in obi.history.noted if tist < before), default=0)


def _digests(obi: Obi, tist: int) -> tuple[str, str]:
    """md5 and sha256 of the contents as of a tist."""
    version = obi.version_at(tist)
    return (version.md5, version.sha256) if version is not None else ("", obi.history.at(tist) or "")


def _title(tobi: Obi) -> str:
    version = tobi.newest
    return version.title if version is not None else ""


def _lost(archive: Archive, obi: Obi, when: int, seen: int, named: list[Obi]) -> Lost:
    """The details of a loss; ``named`` are the templates that mention the file."""
    noted = _noted(obi, when)
    path, digests = path_held(archive, obi, noted), _digests(obi, noted)
    works = tuple(_works(archive.catalogue, obi.id, named[:MOST_WORKS])) if named else ()
    more = len(named) > MOST_WORKS
    title = _title(obi)
    reason = _reason(obi, when)
    return Lost(obi.id, obi.kind, noted, seen, when, reason, *digests, path, obi.handle, title, works, more)


def _works(catalogue: Catalogue, url: str, named: list[Obi]) -> Iterator[NamingWork]:
    now = {tobi.id: _names_now(tobi) for tobi in named}
    states = catalogue.file_states({other for urls in now.values() for other in urls})
    for tobi in named:
        names = now[tobi.id]
        held = (other for other in names if other != url and other in states and states[other].held)
        yield NamingWork(tobi.id, tobi.handle, _title(tobi), tobi.history.held, url in names, next(held, ""))


def _names_now(tobi: Obi) -> list[str]:
    version = tobi.newest
    return list(dict.fromkeys(ref.url for ref in version.refs)) if version is not None else []


def _returned(archive: Archive, obi: Obi, tist: int, evidence: Evidence) -> Returned | None:
    """The details of a return; None if the history has changed since the list was read."""
    history = obi.history
    before = [when for when in history.tists if when < tist]
    state = history.at(tist)
    if state is None or not before or history.at(before[-1]) is not None:
        return None
    gone = before[-1]
    had = history.at(_noted(obi, gone))
    digests = _digests(obi, tist)
    path = path_held(archive, obi, tist)
    reason, same, seen = _reason(obi, gone), had == state, last_seen(obi, evidence, gone) or 0
    return Returned(obi.id, obi.kind, seen, gone, tist, reason, same, *digests, path, obi.handle, _title(obi))
