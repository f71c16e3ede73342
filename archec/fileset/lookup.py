"""Looking at what is held: one fileset by any of its names, its versions, its files, what changed between them; and
what a result says of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from archec.archive.lookup import held_at
from archec.archive.observing import index_fields
from archec.archive.observing import state as state_of
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import FilesetManifestFile, Ingest, Obi
from archec.errors import ArchecError, BadName, CorruptArchive, NotHeld
from archec.fileset.checksums import Checksums, mismatch, read_whole
from archec.fileset.finding import identifier_of
from archec.fileset.interior import open_member
from archec.fileset.manifest import Manifest, decode, is_whole, safe_path
from archec.fileset.model import FilesetPlatformItem
from archec.ids import is_fileset, normalise_url, parse_fileset, target_uri, urlkey
from archec.store.reader import open_obi
from archec.tist import MAX_TIST, iso
from archec.warc.cdxj import timestamp
from archec.warc.records import Observation


class HeldFileset(NamedTuple):
    """One version of a fileset: its entry of the history and its manifest."""

    obi: Obi
    tist: int
    state: str
    manifest: Manifest


def read_manifest(archive: Archive, tist: int, fileset: str) -> Manifest:
    """The manifest that is at (tist, fileset). Raises NotHeld and CorruptArchive."""
    with open_obi(archive.layout, tist, fileset) as file:
        return decode(file.read(), f"{fileset} at {tist}")


def find_fileset(archive: Archive, asked: str) -> HeldFileset:
    """The fileset behind an id (with or without ``@VERSION``), a DOI, a handle or a URL that was ingested, under which
    its landing page wants to be cited, or that its platform gave (what was ingested counts more).

    Without a version, or the DOI of one, the newest state that was held. Raises NotHeld if there is none.
    """
    fileset, version, state = _names(archive.catalogue, asked.strip())
    obi = archive.catalogue.obis("fileset", [fileset]).get(fileset) if fileset else None
    if obi is None:
        raise _not_held(asked)
    if state not in (there for _, there in obi.history):
        state = ""  # that of an ingest that failed
    for tist, there in _last_noted_first(obi) if version else reversed(list(obi.history)):
        if there is None or (state and there != state):
            continue
        manifest = read_manifest(archive, obi.bytes_at(tist), obi.id)
        if not version or version in (manifest.version, manifest.platform_id):
            return HeldFileset(obi, tist, there, manifest)
    raise _not_held(asked)


def _not_held(asked: str) -> NotHeld:
    return NotHeld(f"{asked.strip()[:300]}: the archive holds no such data set", hint="'archec fileset list' lists all")


def held_version(archive: Archive, obi: Obi, item: FilesetPlatformItem, *, bundled: bool) -> HeldFileset | None:
    """What was noted last of a version, even if it was lost since: as one ``bundled`` file, or each file on its own."""
    for tist, state in _last_noted_first(obi):
        manifest = read_manifest(archive, obi.bytes_at(tist), obi.id)
        is_version = (manifest.platform_id, manifest.version) == (item.platform_id or "", item.version)
        if is_version and (manifest.bundle is not None) == bundled:
            return HeldFileset(obi, tist, state, manifest)
    return None


def _last_noted_first(obi: Obi) -> list[tuple[int, str]]:
    """The states of a fileset with their tists, by the run that noted them: that of an older version may be the newer
    one."""
    states = [(tist, state) for tist, state in obi.history if state is not None]
    return sorted(states, key=lambda entry: (obi.notes[entry[0]].run, entry[0]), reverse=True)


def _names(catalogue: Catalogue, asked: str) -> tuple[str, str, str]:
    """The id of a fileset, its version, and the state that an ingest of this very URL came to."""
    if is_fileset(asked):
        found = parse_fileset(asked)
        return found.obi, found.version, ""
    wanted, cited = key_of(asked), ("", "", "")
    for ingest in catalogue.ingests():
        if ingest.fileset and wanted in (key_of(ingest.base_url), key_of(ingest.platform_base_url)):
            return ingest.fileset, "", ingest.state
        if ingest.fileset and ingest.cite_as and wanted == key_of(ingest.cite_as):
            cited = ingest.fileset, "", ingest.state
        elif ingest.fileset and wanted in (dois := dict(ingest.dois)):
            cited = ingest.fileset, dois[wanted], ""
    return cited


def key_of(text: str) -> str:
    """What a DOI, a handle or a URL has in common with its other spellings."""
    identifier = identifier_of(text)
    if identifier is not None:
        return identifier.lower()
    try:
        return normalise_url(text)
    except BadName:
        return text


def all_filesets(archive: Archive) -> Iterator[Mapping[str, Any]]:
    """A row for each fileset, by id: its newest state, its counts."""
    for obi in archive.catalogue.all("fileset"):
        state, last = obi.history.last_held, max(obi.history.noted, default=0)
        files = list(archive.catalogue.manifest(state)) if state is not None else []
        version = obi.versions.get(state or "")
        yield {
            "id": obi.id,
            "title": version.title if version is not None else "",
            "held": obi.history.held,
            "versions": len(set(obi.history.states) - {None}),
            "noted": last,
            "noted_time": iso(last),
            "files": len(files),
            "files_held": sum(is_whole(file) for file in files),
            "size": sum(file.size or 0 for file in files),
        }


def ingests_of(catalogue: Catalogue, fileset: str) -> list[Ingest]:
    """The ingests that came to a fileset, by base URL."""
    return [ingest for ingest in catalogue.ingests() if ingest.fileset == fileset]


class FileFinding(NamedTuple):
    """What is wrong with a file of a fileset."""

    path: str
    url: str
    message: str


def verify_fileset(archive: Archive, held: HeldFileset) -> Iterator[FileFinding]:
    """Reads every file of a manifest that is held; what is wrong with them."""
    for file in held.manifest.manifest:
        if not is_whole(file):
            continue
        try:
            with open_file(archive, file, held.manifest.bundle) as stream:
                digests, _ = read_whole(stream)
        except (ArchecError, OSError) as error:
            yield FileFinding(file.path, file.platform_url or "", str(error))
            continue
        hard = FilesetManifestFile(file.path, file.size, file.md5, file.sha1, file.sha256)
        status = mismatch(hard, digests.size, Checksums.of(digests))
        if status is not None:
            yield FileFinding(file.path, file.platform_url or "", f"{status}: has sha256 {digests.sha256}")


@contextmanager
def open_file(
    archive: Archive, file: FilesetManifestFile, bundle: FilesetManifestFile | None = None
) -> Iterator[BinaryIO]:
    """The bytes of a file of a manifest, open for reading; ``bundle`` is what those without a URL are in. Raises
    NotHeld and CorruptArchive."""
    if file.platform_url is None and bundle is not None:
        number = (file.extra or {}).get("member", 1)
        with open_file(archive, bundle) as whole, open_member(whole, file.path, number) as stream:
            yield cast(BinaryIO, stream)
        return
    obi = normalise_url(file.platform_url or "")
    fobi = archive.catalogue.obis("fobi", [obi]).get(obi)
    for tist, state in fobi.history if fobi is not None else ():
        if state == file.sha256 and fobi is not None:
            with held_at(archive, fobi, tist).open(archive.layout) as whole:
                yield whole
            return
    raise CorruptArchive(f"{obi}: sha256 {file.sha256} is not held under this URL")


class Change(NamedTuple):
    """What came with a state: ``what`` is ``added``, ``removed``, ``changed``, ``lost`` or ``returned``; ``path`` is
    empty if the whole fileset is meant."""

    tist: int
    version: str
    what: str
    path: str = ""
    before: str | None = None
    after: str | None = None


def changes_of(archive: Archive, obi: Obi) -> Iterator[Change]:
    """What changed from state to state, oldest first; the first one adds all its files."""
    before: dict[str, FilesetManifestFile] = {}
    was_lost = False
    for tist, state in obi.history:
        if state is None:
            yield Change(tist, "", "lost")
            was_lost = True
            continue
        version = read_manifest(archive, obi.bytes_at(tist), obi.id).version
        if was_lost:
            yield Change(tist, version, "returned")
        was_lost = False
        files = archive.catalogue.manifest(state)
        after = {safe_path(file): file for file in files}  # paths may be equal
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            path = new.path if new is not None else old.path if old is not None else ""
            if old is None or new is None:
                what = "added" if old is None else "removed"
                yield Change(tist, version, what, path, _identity(old), _identity(new))
            elif _identity(old) != _identity(new):
                yield Change(tist, version, "changed", path, _identity(old), _identity(new))
        before = after


def _identity(file: FilesetManifestFile | None) -> str | None:
    return None if file is None else file.sha256 if is_whole(file) else file.status


class Capture(NamedTuple):
    """``cdx`` is the row of the access layer for the state that is held; ``revisit_cdx`` that of the visit of this run
    which found it unchanged, if it is an earlier one."""

    terminal: dict[str, Any]
    file_meta: dict[str, Any]
    cdx: dict[str, Any] | None = None
    revisit_cdx: dict[str, Any] | None = None


def capture_of(catalogue: Catalogue, file: FilesetManifestFile, run: int, status: int = 200) -> Capture:
    """What is said of a file, of which all is known; ``status`` is that of the answer."""
    url = file.platform_url or ""
    cdx, revisit = _rows(catalogue, url, file.sha256, run)
    return Capture(
        {
            "terminal_url": file.terminal_url or url, "terminal_dt": file.terminal_dt, "terminal_status_code": status,
            "terminal_sha1hex": file.sha1,
        },
        {
            "size_bytes": file.size, "md5hex": file.md5, "sha1hex": file.sha1, "sha256hex": file.sha256,
            "mimetype": file.mimetype,
        },
        cdx,
        revisit,
    )  # fmt: skip


def _rows(
    catalogue: Catalogue, url: str, sha256: str | None, run: int
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    obi = normalise_url(url)
    fobi = catalogue.obis("fobi", [obi]).get(obi)
    for tist, there in reversed(list(fobi.history)) if fobi is not None else ():
        if there is None or there != sha256 or fobi is None:
            continue
        seen, visit = state_of(fobi, tist, there), fobi.visit
        again = visit is not None and visit.tist == run > tist and fobi.history.at(MAX_TIST) == sha256
        return _row(seen), _row(seen._replace(kind="revisit", tist=run)) if again else None
    return None, None


def _row(seen: Observation) -> dict[str, Any]:
    return {"urlkey": urlkey(target_uri(seen.id)), "timestamp": timestamp(seen.tist), **index_fields(seen)}
