"""Journal records of an ingest: files and responses as fobis, and manifests that are no states. Pure functions; the
states of filesets are decided in :mod:`archec.fileset.ingest`."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.catalogue.journal_lines import ManifestNoted, ObiChange
from archec.catalogue.model import FilesetManifestFile, Note, Obi, Version, Visit
from archec.digest import Digests
from archec.fileset.manifest import Manifest, encode, parts
from archec.fileset.model import FilesetPlatformItem
from archec.store.writer import HardLink, Placement
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


def unkept_items(manifest: Manifest) -> tuple[list[CommitItem], str]:
    """Returns the records for a manifest that is not a state because none of its files is held, and its sha256."""
    digests = Digests()
    for piece in encode(manifest):
        digests.update(piece)
    return [CommitItem(ManifestNoted(part)) for part in parts(digests.sha256, manifest.manifest)], digests.sha256
