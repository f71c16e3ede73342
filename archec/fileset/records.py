"""Journal records of an ingest: files and responses as fobis, manifests as states of a fileset. Pure functions, except
that manifests are written to temporary files of the writer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.catalogue.journal_lines import ManifestNoted, ObiChange
from archec.catalogue.model import FilesetManifestFile, Note, Obi, Version, Visit
from archec.digest import Digests
from archec.fileset.manifest import Manifest, encode, parts
from archec.fileset.model import FilesetPlatformItem
from archec.history import History
from archec.store.writer import HardLink, Placement, Writer
from archec.tist import MAX_TIST
from archec.web.outcome import Outcome

NEVER = MAX_TIST + 1
"""The due date of a file of a fileset, later than any visit: such files are visited by an ingest only."""


class FobiBody(NamedTuple):
    """The bytes of a fobi: in a temporary file, or held already at ``place`` (tist and id).

    ``digests`` have a SHA-1. ``terminal`` is the URL after all redirects; empty if there were none.
    """

    digests: Digests
    mimetype: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    terminal: str = ""
    temp: str = ""
    place: tuple[int, str] | None = None


def file_item(known: Obi | None, obi: str, body: FobiBody, run: int) -> tuple[CommitItem, int]:
    """Returns the record for a file, a response or a page, and the tist of the state with its bytes."""
    fobi = known or Obi(obi, "fobi")
    state, digests = fobi.history.at(run), body.digests
    sha256 = digests.sha256
    outcome = Outcome.SAME if state == sha256 else Outcome.NEW if state is None else Outcome.CHANGED
    fields = dict(body.headers)
    etag, modified = fields.get("etag", ""), fields.get("last-modified", "")
    visit = Visit(run, outcome.value, body.status, body.terminal, etag, modified, checked=run, read=run)
    if state == sha256:
        entry = fobi.history.entry_at(run)
        return CommitItem(ObiChange("fobi", obi, visit=visit, due=NEVER)), entry[0] if entry is not None else run
    kind = "returned" if state is None and len(fobi.history) else outcome.value
    note = Note(run, kind, status=body.status, headers=body.headers, suspect="" if digests.size else "empty")
    version = Version(sha256, digests.md5, digests.size, None, body.mimetype)
    record = ObiChange("fobi", obi, "", {run: sha256}, (), version, {run: note}, visit, NEVER)
    if body.place is not None:
        return CommitItem(record, restated=(HardLink(*body.place, run, obi),)), run
    return CommitItem(record, Placement(body.temp, run, obi, sha256)), run


def replaced_item(known: Obi, tist: int, body: FobiBody, run: int) -> CommitItem:
    """Returns the record for a file whose state at ``tist`` is held with damaged bytes: the same state, whose bytes are
    stored again, under the tist of the run."""
    note = replace(known.notes[tist], at=run, target="")
    visit = Visit(run, Outcome.SAME.value, body.status, body.terminal, checked=run, read=run)
    sha256 = body.digests.sha256
    version = known.versions[sha256]
    record = ObiChange(
        "fobi", known.id, "", {tist: sha256}, (), version, {tist: note}, visit, NEVER, kept={run: sha256}
    )
    return CommitItem(record, Placement(body.temp, run, known.id, sha256))


def restored_item(
    known: Obi, manifest: Manifest, damaged: Sequence[int], run: int, writer: Writer
) -> CommitItem | None:
    """Returns the record for a manifest that is a state of its fileset already, and held with damaged bytes at one of
    the tists ``damaged``: its bytes are stored again, under the tist of the run, or the next that is free, for all of
    these tists. None if it is none of them."""
    used = {*known.history.tists, *(note.at for note in known.notes.values())}
    at = next(tist for tist in count(run) if tist not in used)
    with writer.temp(at, manifest.fileset) as temp:
        for piece in encode(manifest):
            temp.write(piece)
        stored = temp.close()
    states = known.history.as_dict()
    put: dict[int, str | None] = {tist: stored.sha256 for tist in damaged if states[tist] == stored.sha256}
    if not put:
        writer.discard(stored.temp)
        return None
    notes = {tist: replace(known.notes[tist], at=at) for tist in put}
    record = ObiChange("fileset", known.id, put=put, notes=notes, kept={at: stored.sha256})
    return CommitItem(record, Placement(stored.temp, at, known.id, stored.sha256))


def manifest_of(
    item: FilesetPlatformItem, files: list[FilesetManifestFile], bundle: FilesetManifestFile | None
) -> Manifest:
    """Builds the manifest of a data set."""
    return Manifest(
        fileset=item.fileset.obi,
        platform_name=item.platform_name,
        platform_domain=item.platform_domain or "",
        platform_id=item.platform_id or "",
        version=item.version,
        order=item.order,
        published=item.published,
        title=item.title,
        web_base_url=item.web_base_url or None,
        metadata=item.archiveorg_item_meta or {},
        bundle=bundle,
        manifest=tuple(files),
    )


def state_items(
    known: Obi, manifest: Manifest, when: int, run: int, writer: Writer, newer: Sequence[int] = ()
) -> tuple[list[CommitItem], str]:
    """Returns the records that make a manifest the state of its fileset at ``when``, and its sha256. The list is empty
    if it is the state already, or that of the next entry, or any before those of newer versions at ``newer``."""
    with writer.temp(when, manifest.fileset) as temp:
        for piece in encode(manifest):
            temp.write(piece)
        stored = temp.close()
    is_noted = newer and any(state == stored.sha256 for tist, state in known.history if tist < min(newer))
    if is_noted or known.history.noting(when, stored.sha256) != ():
        writer.discard(stored.temp)
        return [], stored.sha256
    is_first = not len(known.history) or when < known.history.tists[0]
    kind = "new" if is_first else "returned" if known.history.at(when) is None else "changed"
    version = Version(stored.sha256, stored.md5, stored.size, None, "application/json", manifest.title[:2000])
    record = ObiChange(
        "fileset", manifest.fileset, "", {when: stored.sha256}, (), version, {when: Note(run, kind)}
    )  # fmt: skip
    items = [CommitItem(ManifestNoted(part)) for part in parts(stored.sha256, manifest.manifest)]
    place = Placement(stored.temp, when, manifest.fileset, stored.sha256)
    return [*items, CommitItem(record, place)], stored.sha256


def noted_again(known: Obi, state: str, when: int, run: int) -> CommitItem:
    """Creates the record by which the entry with ``state`` that is nearest to ``when`` is the one noted last of its
    version."""
    tist = min((tist for tist, there in known.history if there == state), key=lambda tist: abs(tist - when))
    note = replace(known.notes[tist], run=run)
    return CommitItem(ObiChange("fileset", known.id, "", {tist: state}, notes={tist: note}))


def unkept_items(manifest: Manifest) -> tuple[list[CommitItem], str]:
    """Returns the records for a manifest that is not a state because none of its files is held, and its sha256."""
    digests = Digests()
    for piece in encode(manifest):
        digests.update(piece)
    return [CommitItem(ManifestNoted(part)) for part in parts(digests.sha256, manifest.manifest)], digests.sha256


def loss_item(known: Obi, run: int, reason: str, seen: int) -> CommitItem:
    """The record for the loss of a held data set that its platform has withdrawn, and listed last at ``seen``."""
    when, note = tist_for(known.history, run), Note(run, "lost", reason=reason[:200], seen=seen)
    return CommitItem(ObiChange("fileset", known.id, "", {when: None}, (), None, {when: note}))


def tist_for(
    history: History, run: int, newer: Sequence[int] = (), published: int = 0, taken: Collection[int] = ()
) -> int:
    """The tist for a version: that of the run, or a later one if the run has noted another version already, but never
    one of ``taken``, at which other bytes are held.

    A version older than those at ``newer`` is noted before them: at ``published``, if that is between the state before
    them and the earliest of them, else at the last free tist before them.
    """
    if not newer:
        when = max(run, (history.last or 0) + 1)
        while when in taken:
            when += 1
        return when
    before = min(newer)
    after = max((tist for tist in history.tists if tist < before), default=0)
    when = published if after < published < before else before - 1
    while (when in history.tists or when in taken) and when > 1:
        when -= 1
    return when
