"""Incidences by time: appearances, changes and their kinds, losses, returns; and the diff of a template."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, takewhile
from typing import NamedTuple

from archec.archive.lookup import Held, give, held_at
from archec.archive.opening import Archive
from archec.catalogue.documents import Moment
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi
from archec.errors import CorruptArchive, NotHeld, UsageError
from archec.history import Incidence
from archec.ids import archive_of
from archec.store.layout import Layout
from archec.tist import MAX_TIST, iso

_FIRST_CHUNK, _MAX_CHUNK = 10, 200
MOST_WORKS = 10
"""Maximum number of works listed for one file: some URLs occur in thousands of templates."""
SOME_WORKS = MOST_WORKS + 1
"""Number of works that are looked up for one file; if there are so many, there may be others."""
_MOST_REFERRING = 10_000
"""Maximum number of templates of a file that are searched for one of the selected archive."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One incidence. ``what`` is ``new``, ``changed``, ``lost`` or ``returned``.

    ``how`` is the kind of a change: ``content``, ``file-url`` (File-URLs only), ``cosmetic`` (no significant change of
    the text), ``restated`` (stated again, because an older data set split an interval); else empty. ``suspect`` is why
    a file may not be the intended one. ``run`` is the run that noted it.
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


class ChangesQuery(NamedTuple):
    """A selection of incidences: ``since`` <= tist < ``until``, noted before the run ``until_run``, of these kinds of
    obis, of an archive (for files: of a template that mentions them; no filesets)."""

    since: int = 0
    until: int = MAX_TIST + 1
    kinds: tuple[Kind, ...] = ("tobi", "fobi")
    archive: str = ""
    until_run: int = MAX_TIST + 1


def changes(catalogue: Catalogue, query: ChangesQuery = ChangesQuery()) -> Iterator[Incident]:  # noqa: B008
    """Incidences by (tist, id)."""
    after = Moment(query.since, "")
    found = _in_time(catalogue, query, {kind: catalogue.incidences(kind, after) for kind in query.kinds})
    return (one for one in found if one.run < query.until_run)


def changes_of_runs(catalogue: Catalogue, run: int, query: ChangesQuery = ChangesQuery()) -> Iterator[Incident]:  # noqa: B008
    """Yields what this run and later ones have noted, by (run, tist, id).

    A replay of an old data set notes old states: sorted by tist, its incidences would be scattered.
    """
    for one in catalogue.runs(run):
        if one.tist >= query.until_run:
            return
        yield from _in_time(catalogue, query, {kind: catalogue.incidences(kind, run=one.tist) for kind in query.kinds})


def _in_time(
    catalogue: Catalogue, query: ChangesQuery, streams: Mapping[Kind, Iterator[Moment]]
) -> Iterator[Incident]:
    within = {kind: takewhile(lambda moment: moment.tist < query.until, stream) for kind, stream in streams.items()}
    for kind, moments in chunks_in_time(within):
        obis = catalogue.obis(kind, of_archive(catalogue, kind, [moment.id for moment in moments], query.archive))
        for tist, obi in moments:
            found = obis.get(obi)
            if found is not None:
                yield from (one for one in _incidents(found) if one.tist == tist)


def of_archive(catalogue: Catalogue, kind: Kind, ids: Sequence[str], archive: str) -> list[str]:
    """Those of ``ids`` that belong to an archive, to which a file belongs that a template of it mentions or mentioned;
    all of them if no archive is selected."""
    if not archive:
        return list(ids)
    if kind == "tobi":
        return [obi for obi in ids if archive_of(obi) == archive]
    named = catalogue.referring(ids, SOME_WORKS)
    return [url for url in ids if _named_by(archive, url, named, catalogue)]


def chunks_in_time(streams: Mapping[Kind, Iterator[Moment]]) -> Iterator[tuple[Kind, list[Moment]]]:
    """Merges the streams by (tist, id), in chunks of one kind, whose documents can be read in one query. The first
    chunks are small, so that the first rows appear immediately."""
    size, kind, chunk = _FIRST_CHUNK, next(iter(streams)), list[Moment]()
    for moment, this in heapq.merge(*(zip(stream, repeat(kind)) for kind, stream in streams.items())):
        if chunk and (this != kind or len(chunk) >= size):
            yield kind, chunk
            size, chunk = min(size * 2, _MAX_CHUNK), []
        kind = this
        chunk.append(moment)
    if chunk:
        yield kind, chunk


def _incidents(obi: Obi) -> Iterator[Incident]:
    for incidence in obi.history.incidences():
        note, content = obi.notes.get(incidence.tist), obi.versions.get(incidence.state or "")
        titled = content or obi.newest
        yield Incident(
            incidence.tist,
            obi.id,
            obi.kind,
            "new" if incidence.kind == "appeared" else incidence.kind,
            _how(incidence, note.kind if note else ""),
            note.run if note else 0,
            content.md5 if content else None,
            incidence.state,
            obi.handle,
            titled.title if titled else "",
            note.suspect if note else "",
            note.reason if note else "",
        )


def _how(incidence: Incidence, kind: str) -> str:
    if kind in ("cosmetic", "file-url", "restated"):
        return kind
    return "content" if incidence.kind == "changed" else ""


def _named_by(archive: str, url: str, named: Mapping[str, Sequence[Obi]], catalogue: Catalogue) -> bool:
    """Whether a template of an archive mentions or mentioned a file; ``named`` has the first :data:`SOME_WORKS`
    templates that do."""
    tobis = named.get(url, [])
    found = any(archive_of(tobi.id) == archive for tobi in tobis)
    if found or len(tobis) < SOME_WORKS:
        return found
    every = catalogue.referring([url], _MOST_REFERRING).get(url, [])
    return any(archive_of(tobi.id) == archive for tobi in every)


# -- the text of a template -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDiff:
    """Two states of a template and their unified diff, as lines without line ends."""

    id: str
    before: int
    after: int
    lines: tuple[str, ...]


def text_diff(
    archive: Archive, tobi: Obi, from_when: int | None = None, to_when: int | None = None
) -> TextDiff:
    """The difference between the states at two times; by default the last two noted states.

    If only ``from_when`` is given, that state is compared with the newest one; if only ``to_when`` is given, with the
    one noted before it. Raises :class:`NotHeld` if there are no such states, :class:`UsageError` if they are in reverse
    order.
    """
    if from_when is not None and to_when is not None and from_when > to_when:
        raise UsageError(f"{iso(from_when)} is after {iso(to_when)}: --from must be before --to")
    noted = tobi.history.noted
    if not noted:
        raise NotHeld(f"{tobi.id}: was never held")
    new = held_at(archive, tobi, noted[-1] if to_when is None else to_when)
    if from_when is None:
        earlier = [tist for tist in noted if tist < new.tist]
        if not earlier:
            raise NotHeld(f"{tobi.id}: nothing to compare with: it was not held before {iso(new.tist)} ({new.tist})")
        from_when = earlier[-1]
    old = held_at(archive, tobi, from_when)
    if old.tist > new.tist:
        raise UsageError(f"{iso(old.tist)} is after {iso(new.tist)}: --from must be before --to")
    names = (f"{tobi.id} {iso(old.tist)}", f"{tobi.id} {iso(new.tist)}")
    lines = difflib.unified_diff(_lines(archive.layout, old), _lines(archive.layout, new), *names, lineterm="")
    return TextDiff(tobi.id, old.tist, new.tist, tuple(lines))


def _lines(layout: Layout, held: Held) -> list[str]:
    pieces: list[bytes] = []
    give(layout, held, pieces.append)
    try:
        return b"".join(pieces).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptArchive(
            f"{held.located.path}: is not UTF-8, as templates are", hint="archec verify checks all files"
        ) from error
