"""Lookups: the incidences of an obi, its bytes as of a tist, and the obis that held given bytes or a given text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, BinaryIO

from archec.archive.claims import last_seen
from archec.archive.evidence import Evidence
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue, Checksum
from archec.catalogue.model import KINDS, Kind, Note, Obi
from archec.errors import CorruptArchive, NotHeld
from archec.ids import kind_of, normalise, slash_variant, typed, without_userinfo
from archec.store.layout import Layout, file_name, named_by
from archec.store.reader import Chain, compare, corrupt, locate, missing, open_held
from archec.tist import iso

_MOST_HOPS = 50
_PIECE = 1 << 18
_NO_NOTE = Note(0, "")


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One incidence as ``archec history`` shows it.

    ``path`` is the path of the bytes after all redirects, relative to the obi store. ``redirects`` are the targets of
    the redirects, each with the HTTP status that led to it. ``kind`` is ``appeared``, ``changed``, ``lost`` or
    ``returned``; ``how`` is the more precise kind of the note. ``last_seen`` is when the obi was last seen before a
    loss. ``status`` is the HTTP status of this URL, ``final_status`` that of the URL after all redirects; None if not
    in the catalogue.
    """

    tist: int
    time: str
    kind: str
    how: str
    md5: str | None
    sha256: str | None
    size: int | None
    path: str | None
    redirects: tuple[tuple[str, int], ...]
    status: int | None
    final_status: int | None
    type: str | None
    reason: str
    suspect: str
    last_seen: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The state of an obi as of a time: when it was noted, and where its bytes are."""

    id: str
    tist: int
    sha256: str
    size: int
    located: Chain

    def open(self, layout: Layout) -> BinaryIO:
        return open_held(layout, self.located.path)


def find(catalogue: Catalogue, raw: str) -> Obi:
    """Finds an obi by any spelling of its id (:func:`archec.ids.typed`), or by a URL that differs only in a trailing
    slash.

    Raises BadName for an invalid id, NotHeld if the archive does not know it.
    """
    kind, obi = normalise(typed(raw))
    variant = slash_variant(obi) if kind == "fobi" else None
    known = catalogue.obis(kind, [obi, variant] if variant else [obi])
    found = known.get(obi)
    if found is None or not found.history:
        found = known.get(variant or obi, found)
    if found is None:
        found = _by_path(catalogue, raw.strip())
    if found is not None:
        return found
    hint = "check the spelling; 'archec dump' lists all that is known"
    if kind == "fileset":
        hint = "'archec fileset list' lists all data sets"
    raise NotHeld(f"{without_userinfo(raw.strip())}: unknown to the archive", hint=hint)


def _by_path(catalogue: Catalogue, path: str) -> Obi | None:
    """The obi with this path in the obi store, where its name alone does not tell its id."""
    name, low, high = named_by(path)
    kind = kind_of(low)
    known = catalogue.each_id(kind, low, high) if name else ()
    obi = next((one for one in known if file_name(one) == name), None)
    return None if obi is None else catalogue.obis(kind, [obi]).get(obi)


def rows(archive: Archive, obi: Obi, evidence: Evidence) -> Iterator[HistoryRow]:
    """Yields every incidence of an obi, oldest first."""
    for incidence in obi.history.incidences():
        tist, state = incidence.tist, incidence.state
        path = path_held(archive, obi, tist) if state is not None else None
        note, version = obi.notes.get(tist, _NO_NOTE), obi.versions.get(state or "")
        is_file = obi.kind == "fobi"
        redirects, final = _redirects(archive.catalogue, obi, tist) if is_file and state is not None else ((), None)
        yield HistoryRow(
            tist,
            iso(tist),
            incidence.kind,
            note.kind,
            version.md5 if version else None,
            state,
            version.size if version else None,
            path,
            redirects,
            note.status if is_file and tist in obi.notes else None,
            final,
            version.type if version else None,
            note.reason,
            note.suspect,
            last_seen(obi, evidence, tist) if state is None else None,
        )


def held_at(archive: Archive, obi: Obi, when: int) -> Held:
    """The state as of ``when``. Raises NotHeld with the reason if there was none.

    Raises :class:`CorruptArchive` if it is in the history, but its bytes are not in the obi store.
    """
    entry = obi.history.entry_at(when)
    if entry is None:
        why, hint = _never_held(archive.catalogue, obi, when)
        raise NotHeld(f"{obi.id}: not held at {iso(when)}: {why}", hint=hint)
    tist, state = entry
    if state is None:
        before = obi.history.entry_at(tist - 1)
        hint = f"'archec get --at {tist - 1}' gives what was held until then" if before and before[1] else ""
        raise NotHeld(f"{obi.id}: not held at {iso(when)}: it was lost {iso(tist)} ({tist})", hint=hint)
    version = obi.versions.get(state)
    try:
        located = _locate(archive, obi, tist)
    except NotHeld as error:
        raise missing(archive.layout, archive.layout.path(obi.bytes_at(tist), obi.id), state) from error
    except CorruptArchive as error:
        raise corrupt(error.message) from error
    return Held(obi.id, tist, state, version.size if version is not None else 0, located)


def _never_held(catalogue: Catalogue, obi: Obi, when: int) -> tuple[str, str]:
    """Why an obi was not held at or before ``when``, and a hint what can be done about it."""
    claimed = {claim.key for claim in obi.claims if claim.state is not None and claim.tist <= when}
    for data_set in catalogue.data_sets() if claimed else ():
        if data_set.retracted and data_set.key in claimed:
            what = f"the data set {data_set.name} of {iso(data_set.tist)}, which has it, is retracted"
            undo = f"'archec retract {data_set.run} --undo' makes it count again"
            return f"{what}: {data_set.retracted}", f"{undo}; 'archec history --all' shows what it has"
    if claimed:
        return "it is in data sets only that do not count", "'archec history --all' shows them"
    run = catalogue.run(obi.visit.tist) if obi.visit is not None else None
    if run is not None and run.retracted and not obi.history:
        why = f"the visits of run {run.tist} are retracted: {run.retracted}"
        return why, f"'archec retract {run.tist} --visits --undo' makes them count again"
    found = obi.history.found
    return f"it was first found {iso(found)} ({found})" if found is not None else "it was never held", ""


def give(layout: Layout, held: Held, write: Callable[[bytes], object]) -> None:
    """Passes the bytes of ``held`` to ``write`` in chunks and verifies them: the size before the first chunk, the
    sha256 after the last. Raises :class:`CorruptArchive` if they do not match the noted state."""
    where = f"{layout.root}/{held.located.path}"
    digest = sha256()
    try:
        file = held.open(layout)
    except NotHeld as error:
        raise missing(layout, held.located.path, held.sha256) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size != held.size:
            raise corrupt(f"{where}: has {size} bytes, but {held.size} were noted (sha256 {held.sha256})")
        while data := file.read(_PIECE):
            digest.update(data)
            write(data)
    compare(where, digest.hexdigest(), held.sha256)


def path_held(archive: Archive, obi: Obi, tist: int) -> str | None:
    """The path in the obi store of the bytes noted at (tist, obi), after all redirects; None if they are missing."""
    with suppress(NotHeld, CorruptArchive):
        return _locate(archive, obi, tist).path
    return None


def _locate(archive: Archive, obi: Obi, tist: int) -> Chain:
    """Locates the bytes noted at (tist, obi). A redirect that only adds or removes a trailing slash has no link: it
    leads to the state of the other URL at that tist."""
    try:
        return locate(archive.layout, obi.bytes_at(tist), obi.id)
    except NotHeld:
        variant = slash_variant(obi.id) if obi.kind == "fobi" else None
        fobi = archive.catalogue.obis("fobi", [variant]).get(variant) if variant else None
        entry = fobi.history.entry_at(tist) if fobi is not None else None
        if fobi is None or entry is None or entry[1] is None:
            raise
        return locate(archive.layout, fobi.bytes_at(entry[0]), fobi.id)


def _redirects(catalogue: Catalogue, fobi: Obi, tist: int) -> tuple[tuple[tuple[str, int], ...], int | None]:
    """Returns the redirects noted at ``tist``, each target with the status that led to it, and the status of the URL at
    their end; None if that was not noted, or if the redirects form a loop or are too many."""
    hops: list[tuple[str, int]] = []
    seen = {fobi.id}
    current: Obi | None = fobi
    for _ in range(_MOST_HOPS):
        entry = current.history.entry_at(tist) if current is not None else None
        note = current.notes.get(entry[0]) if current is not None and entry is not None else None
        if note is None:
            return tuple(hops), None
        if not note.target:
            return tuple(hops), note.status or None
        if note.target in seen:
            break
        hops.append((note.target, note.status))
        seen.add(note.target)
        current = catalogue.obis("fobi", [note.target]).get(note.target)
    return tuple(hops), None


@dataclass(frozen=True, slots=True)
class Holding:
    """An obi that held the bytes from the tist ``noted`` until the tist ``until``, when it changed or was lost (None:
    it still holds them). ``path`` is relative to the obi store; None if the bytes are missing."""

    id: str
    kind: Kind
    noted: int
    until: int | None
    sha256: str
    md5: str
    size: int
    type: str
    path: str | None

    def as_value(self) -> dict[str, Any]:
        until = iso(self.until) if self.until is not None else None
        return {
            "id": self.id, "kind": self.kind, "noted": self.noted, "noted_time": iso(self.noted),
            "until": self.until, "until_time": until, "sha256": self.sha256, "md5": self.md5, "size": self.size,
            "type": self.type, "path": self.path,
        }  # fmt: skip


def holdings(archive: Archive, checksum: Checksum, value: str) -> Iterator[Holding]:
    """Yields all obis that held bytes with this ``sha256``, ``md5`` or text checksum (``text``)."""
    for kind in KINDS:
        for obi in archive.catalogue.each(kind, archive.catalogue.holders(kind, checksum, value)):
            yield from _of(archive, obi, checksum, value)


def _of(archive: Archive, obi: Obi, checksum: Checksum, value: str) -> Iterator[Holding]:
    wanted = {version.sha256: version for version in obi.versions.values() if getattr(version, checksum) == value}
    entries = list(obi.history)
    ends = [tist for tist, _ in entries[1:]]
    for (tist, state), until in zip(entries, [*ends, None], strict=True):
        version = wanted.get(state or "")
        if version is not None:
            yield Holding(
                obi.id, obi.kind, tist, until, version.sha256, version.md5, version.size, version.type,
                path_held(archive, obi, tist),
            )  # fmt: skip
