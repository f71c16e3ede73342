"""Queries on held filesets: one by any of its names, its versions, files and changes; and what a result says about a
file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, cast

from archec.archive.lookup import held_at
from archec.archive.opening import Archive
from archec.archive.warc_records import index_fields
from archec.archive.warc_records import state as state_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import FilesetManifestFile, Ingest, Obi
from archec.errors import ArchecError, BadName, CorruptArchive, NotHeld
from archec.fileset.checksums import mismatch, read_whole
from archec.fileset.finding import identifier_of
from archec.fileset.interior import open_member
from archec.fileset.json_lines import FilesetFile
from archec.fileset.manifest import Heading, Manifest, decode, is_whole, safe_path
from archec.fileset.model import FilesetPlatformItem
from archec.fileset.platforms.registry import Registry
from archec.ids import is_fileset, normalise_url, parse_fileset
from archec.store.reader import Reader, missing
from archec.tist import MAX_TIST, iso
from archec.units import counted
from archec.urlkey import target_uri, urlkey
from archec.warc.cdxj import timestamp
from archec.warc.records import Observation

REMEDY = (
    "'archec verify --repair-from COPY' restores good bytes from a second copy, "
    "'archec fileset ingest --force' fetches them again"
)
"""What to do about damaged files of a fileset."""


class HeldFileset(NamedTuple):
    """One version of a fileset: its entry in the history and its manifest."""

    obi: Obi
    tist: int
    state: str
    manifest: Manifest


def read_manifest(archive: Archive, fileset: Obi, tist: int) -> Manifest:
    """Reads the manifest noted at ``tist``. Raises CorruptArchive."""
    return decode(_stored(archive, fileset, tist), f"{fileset.id} at {tist}", Manifest)


def read_heading(archive: Archive, fileset: Obi, tist: int) -> Heading:
    """As :func:`read_manifest`, without the files."""
    return decode(_stored(archive, fileset, tist), f"{fileset.id} at {tist}", Heading)


def _stored(archive: Archive, fileset: Obi, tist: int) -> bytes:
    """The bytes of the manifest noted at ``tist``. Raises CorruptArchive."""
    place, state = fileset.bytes_at(tist), fileset.history.as_dict().get(tist) or ""
    try:
        with Reader(archive.layout) as reader:
            return reader.read(place, fileset.id, state)
    except NotHeld as error:
        raise missing(archive.layout, archive.layout.path(place, fileset.id), state) from error


def find_fileset(archive: Archive, asked: str) -> HeldFileset:
    """Finds a fileset by its id, or by a DOI, handle or URL: one that was ingested, the ``cite-as`` URL of its landing
    page, a DOI from its platform, or any URL of it there (an ingested one takes precedence); each with or without
    ``@VERSION``.

    Returns the newest state that was held, or that of the version if ``asked`` or the DOI names one. Raises NotHeld if
    there is none.
    """
    asked = asked.strip()
    fileset, version, state = _names(archive.catalogue, asked)
    if not fileset and "@" in asked:
        name, _, version = asked.rpartition("@")
        fileset, state = _names(archive.catalogue, name)[0] or named_by_platform(archive, name)[0], ""
    if not fileset:
        fileset, version = named_by_platform(archive, asked)
    obi = archive.catalogue.obis("fileset", [fileset]).get(fileset) if fileset else None
    if obi is None:
        raise _not_held(archive.catalogue, asked)
    if state not in (there for _, there in obi.history):
        state = ""  # of a failed ingest
    damage: CorruptArchive | None = None
    for tist, there in _last_noted_first(obi) if version else reversed(list(obi.history)):
        if there is None or (state and there != state):
            continue
        try:
            manifest = read_manifest(archive, obi, tist)
        except CorruptArchive as error:
            if not version:
                raise
            damage = error  # of another version, perhaps
            continue
        if not version or version in (manifest.version, manifest.platform_id):
            return HeldFileset(obi, tist, there, manifest)
    raise damage or _not_held(archive.catalogue, asked)


def _not_held(catalogue: Catalogue, asked: str) -> NotHeld:
    """The error for a data set that is not held. It says what the last ingest of it resulted in, if there was one."""
    message = f"{asked.strip()[:300]}: the archive holds no such data set"
    last = max(_failed_ingests(catalogue, asked.strip()), key=lambda ingest: ingest.tist, default=None)
    if last is None:
        return NotHeld(message, hint="'archec fileset list' lists all")
    why = f"; {last.message}" if last.message else ""
    due = f"; due again {iso(last.due)}" if last.due else ""
    return NotHeld(f"{message}; its ingest of {iso(last.tist)} resulted in {last.status}{due}{why}")


def _failed_ingests(catalogue: Catalogue, asked: str) -> Iterator[Ingest]:
    """The ingests by a DOI, handle, URL or id of a fileset of which no file is held."""
    fileset = parse_fileset(asked) if is_fileset(asked) else None
    wanted = key_of(asked)
    for ingest in failed_ingests(catalogue):
        if fileset is not None:
            place = ingest.platform_name, ingest.platform_domain
            if place == fileset[:2] and ingest.platform_id == (fileset.version or fileset.work):
                yield ingest
        elif wanted in (key_of(ingest.base_url), key_of(ingest.platform_base_url)):
            yield ingest


def failed_ingests(catalogue: Catalogue) -> Iterator[Ingest]:
    """The ingests of data sets of which no file is held, ordered by base URL."""
    return (ingest for ingest in catalogue.ingests() if not ingest.fileset)


def fileset_of(archive: Archive, item: FilesetPlatformItem) -> Obi:
    """What the catalogue has of the fileset of a data set; without states if it is new."""
    fileset = item.fileset.obi
    return archive.catalogue.obis("fileset", [fileset]).get(fileset) or Obi(fileset, "fileset")


class HeldVersion(NamedTuple):
    """A state of a fileset, and the heading of its manifest."""

    state: str
    heading: Heading


def held_version(
    archive: Archive, obi: Obi, item: FilesetPlatformItem, *, bundled: bool, damaged: Container[int] = ()
) -> HeldVersion | None:
    """Returns the last noted state of a version, even if it was lost since. ``bundled``: of states with one enclosing
    file, else of those with separate files. States noted at ``damaged`` tists are not read."""
    for tist, state in _last_noted_first(obi):
        if tist in damaged:
            continue
        heading = read_heading(archive, obi, tist)
        is_version = (heading.platform_id, heading.version) == (item.platform_id or "", item.version)
        if is_version and (heading.bundle is not None) == bundled:
            return HeldVersion(state, heading)
    return None


def damaged_manifests(archive: Archive, obi: Obi) -> list[int]:
    """The tists of the states whose manifests are held with damaged bytes, or are missing."""
    found: list[int] = []
    for tist, state in obi.history:
        try:
            _ = state is None or read_heading(archive, obi, tist)
        except CorruptArchive:
            found.append(tist)
    return found


def _last_noted_first(obi: Obi) -> list[tuple[int, str]]:
    """The states of a fileset with their tists, the last noted first. That may be an older version, with a smaller
    tist."""
    states = [(tist, state) for tist, state in obi.history if state is not None]
    return sorted(states, key=lambda entry: (obi.notes[entry[0]].run, entry[0]), reverse=True)


def _names(catalogue: Catalogue, asked: str) -> tuple[str, str, str]:
    """Returns the id of a fileset, the requested version, and the state that resulted from the ingest of this URL, or
    of a page with this ``cite-as``. Each is empty if unknown."""
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


def named_by_platform(archive: Archive, url: str) -> tuple[str, str]:
    """The id of a held fileset with any URL of its platform, and the version in the URL. Each is empty if unknown.
    Damaged manifests name none."""
    named = Registry({one.name: one for one in archive.config.fileset.platforms}).identify(url)
    if named is None:
        return "", ""
    place = named.platform, named.domain
    held = (one for one in archive.catalogue.ingests() if one.fileset)
    ingests = [one for one in held if (one.platform_name, one.platform_domain) == place]
    for ingest in ingests:
        if ingest.fileset == named.obi:
            return named.obi, named.version
        if named.work in (ingest.platform_id, *dict(ingest.dois).values()):
            return ingest.fileset, named.work
    for fileset in dict.fromkeys(one.fileset for one in ingests):  # of a version that was followed by others
        obi = archive.catalogue.obis("fileset", [fileset])[fileset]
        for tist, state in obi.history if len(obi.history) > 1 else ():
            with suppress(CorruptArchive):
                if state is not None and read_heading(archive, obi, tist).platform_id == named.work:
                    return fileset, named.work
    return "", ""


def key_of(text: str) -> str:
    """A key that is equal for all spellings of a DOI, handle or URL."""
    identifier = identifier_of(text)
    if identifier is not None:
        return identifier.lower()
    try:
        return normalise_url(text)
    except BadName:
        return text


def all_filesets(archive: Archive) -> Iterator[Mapping[str, Any]]:
    """Yields a row for each fileset, in the order of ids, with its newest state and counts."""
    listed: dict[str, int] = {}  # 0: unknown, and then it is taken for a selection
    for ingest in filter(is_selection, archive.catalogue.ingests()):
        listed[ingest.state] = max(listed.get(ingest.state, 0), ingest.listed)
    for obi in archive.catalogue.all("fileset"):
        state, last = obi.history.last_held, max(obi.history.noted, default=0)
        files = list(archive.catalogue.manifest(state)) if state is not None else []
        count = listed.get(state or "")
        version = obi.versions.get(state or "")
        yield {
            "id": obi.id,
            "title": version.title if version is not None else "",
            "held": obi.history.held,
            "lost": obi.history.lost,
            "selected": count is not None and not 0 < count <= len(files),
            "versions": len(set(obi.history.states) - {None}),
            "noted": last,
            "noted_time": iso(last),
            "files": len(files),
            "files_held": sum(is_whole(file) for file in files),
            "size": sum(file.size or 0 for file in files),
        }


def last_listed(catalogue: Catalogue, obi: Obi) -> int:
    """The last tist at which the platform listed the newest held state of a fileset; 0 if that is not known."""
    ingests = (one for one in catalogue.ingests() if (one.fileset, one.state) == (obi.id, obi.history.last_held))
    return max((one.confirmed for one in ingests), default=0)


def is_selection(ingest: Ingest) -> bool:
    """Whether an ingest was of some files of a data set only, selected by path."""
    return bool({"include", "exclude"} & ingest.options.keys()) and not ingest.web_bundle_url


class FileFinding(NamedTuple):
    """What is wrong with a file of a fileset."""

    path: str
    url: str
    message: str


def verify_fileset(archive: Archive, held: HeldFileset) -> Iterator[FileFinding]:
    """Reads every held file of a manifest. Yields a finding for each that is missing, unreadable or has other bytes."""
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
        status = mismatch(hard, digests)
        if status is not None:
            message = f"{status}: {_described(digests.size, digests.sha256)}, not {_described(file.size, file.sha256)}"
            yield FileFinding(file.path, file.platform_url or "", message)


def _described(size: int | None, sha256: str | None) -> str:
    return f"{counted(size or 0, 'byte')} with sha256 {sha256}"


@contextmanager
def open_file(
    archive: Archive, file: FilesetManifestFile, bundle: FilesetManifestFile | None = None
) -> Iterator[BinaryIO]:
    """Opens a file of a manifest for reading. Files without a URL are read from ``bundle``. Raises NotHeld and
    CorruptArchive."""
    if file.platform_url is None and bundle is not None:
        number = (file.extra or {}).get("member", 1)
        with open_file(archive, bundle) as whole, open_member(whole, file.path, number) as stream:
            yield cast(BinaryIO, stream)
        return
    obi = normalise_url(file.platform_url or "")
    fobi = archive.catalogue.obis("fobi", [obi]).get(obi) or Obi(obi, "fobi")
    for tist, state in fobi.history:
        if state == file.sha256:
            with held_at(archive, fobi, tist).open(archive.layout) as whole:
                yield whole
            return
    raise CorruptArchive(f"{obi}: sha256 {file.sha256} is not held under this URL", hint=REMEDY)


class Change(NamedTuple):
    """A change between two states: ``what`` is ``added``, ``removed``, ``changed``, ``lost`` or ``returned``. ``path``
    is empty if the change is of the whole fileset. ``before`` and ``after`` are the sha256 of a file, or its status if
    it is not held."""

    tist: int
    version: str
    what: str
    path: str = ""
    before: str | None = None
    after: str | None = None


def changes_of(archive: Archive, obi: Obi) -> Iterator[Change]:
    """Yields the changes between successive states, oldest first. The first state adds all its files."""
    before: dict[str, FilesetManifestFile] = {}
    was_lost = False
    for tist, state in obi.history:
        if state is None:
            yield Change(tist, "", "lost")
            was_lost = True
            continue
        version = read_manifest(archive, obi, tist).version
        if was_lost:
            yield Change(tist, version, "returned")
        was_lost = False
        files = archive.catalogue.manifest(state)
        after = {safe_path(file): file for file in files}  # paths may be equal
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            was, now = _identity(old), _identity(new)
            what = "added" if old is None else "removed" if new is None else "changed" if was != now else ""
            if what:
                yield Change(tist, version, what, (new or before[name]).path, was, now)
        before = after


def _identity(file: FilesetManifestFile | None) -> str | None:
    return None if file is None else file.sha256 if is_whole(file) else file.status


def capture_of(catalogue: Catalogue, file: FilesetManifestFile, run: int, status: int = 200) -> FilesetFile:
    """What a result says about a held file. ``status`` is the HTTP status of its response. ``cdx`` is its row in
    the access layer's index, ``revisit_cdx`` that for the visit in this run, if it found an earlier state unchanged."""
    url = file.platform_url or ""
    cdx, revisit = _rows(catalogue, url, file.sha256, run)
    return FilesetFile(
        terminal={
            "terminal_url": file.terminal_url or url, "terminal_dt": file.terminal_dt, "terminal_status_code": status,
            "terminal_sha1hex": file.sha1,
        },
        file_meta={
            "size_bytes": file.size, "md5hex": file.md5, "sha1hex": file.sha1, "sha256hex": file.sha256,
            "mimetype": file.mimetype,
        },
        cdx=cdx,
        revisit_cdx=revisit,
    )  # fmt: skip


def _rows(
    catalogue: Catalogue, url: str, sha256: str | None, run: int
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    obi = normalise_url(url)
    fobi = catalogue.obis("fobi", [obi]).get(obi) or Obi(obi, "fobi")
    for tist, there in reversed(list(fobi.history)):
        if there is None or there != sha256:
            continue
        seen, visit = state_of(fobi, tist, there), fobi.visit
        again = visit is not None and visit.tist == run > tist and fobi.history.at(MAX_TIST) == sha256
        return _row(seen), _row(seen._replace(kind="revisit", tist=run)) if again else None
    return None, None


def _row(seen: Observation) -> dict[str, Any]:
    uri = target_uri(seen.id)
    return {"urlkey": urlkey(uri), "timestamp": timestamp(seen.tist), **index_fields(seen, uri)}
