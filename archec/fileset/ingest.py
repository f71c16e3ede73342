"""The ingest of one request: find the data set, keep its files, and build the result."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.archive.report import kept_bytes
from archec.catalogue.journal_lines import ManifestNoted, ObiChange
from archec.catalogue.model import FilesetManifestFile, Ingest, Note, Obi, Version
from archec.fileset.context import IngestOptions, RequestFindings, Work
from archec.fileset.download import Downloader
from archec.fileset.finding import GONE, find_item, landing_page
from archec.fileset.json_lines import IngestResult
from archec.fileset.lookup import (
    damaged_manifests,
    fileset_of,
    held_version,
    last_listed,
    named_by_platform,
    read_heading,
)
from archec.fileset.manifest import Manifest, encode, is_whole, parts, set_safe_paths
from archec.fileset.model import FilesetPlatformItem, IngestRequest
from archec.fileset.platforms.checking import checked_item
from archec.fileset.records import manifest_of
from archec.fileset.redaction import public_files, public_item, public_url
from archec.fileset.status import (
    EmptyManifest,
    FilesetProblem,
    PlatformGone,
    PlatformNotFound,
    PlatformRestrictedError,
    Status,
)
from archec.fileset.strategies import helper_for
from archec.fileset.strategy_choice import choose_strategy, too_much
from archec.fileset.summary import finish
from archec.history import History
from archec.store.writer import Placement, Writer
from archec.units import counted


async def ingest(work: Work, request: IngestRequest) -> IngestResult:
    """Ingests one request. Problems with the request are reported in the result; only errors of the disk and the
    catalogue are raised."""
    found = RequestFindings()
    try:
        return await _ingest(work, request, found)
    finally:
        for one in found.answers:
            one.body.close()


async def _ingest(work: Work, request: IngestRequest, found: RequestFindings) -> IngestResult:
    due, problem = 0, None
    if request.options:
        work = dataclasses.replace(work, options=msgspec.convert(request.options, IngestOptions))
    try:
        found.item = await find_item(work, request, found)
        status, message = await _process(work, found, found.item)
        message = message or _selected(work, found)
    except FilesetProblem as error:
        problem = error
    if found.helper is not None and found.landing is None and not found.is_existing and work.downloader:
        found.landing = await landing_page(work, found)
    if problem is not None:
        if isinstance(problem, PlatformRestrictedError) and problem.item is not None:
            found.item = public_item(checked_item(problem.item, found.helper))
        found.platform_id = problem.platform_id or found.platform_id
        page = found.landing
        if isinstance(problem, PlatformNotFound) and page is not None and page.status == GONE:
            problem = PlatformGone(f"{page.url[:300]}: HTTP {GONE}; {problem.message}")
        status, message = problem.status, _with_url(problem.message, public_url(found.url) or request.base_url)
        due = problem.due
        found.withdrawn = _note_gone(work, found, problem)
    return finish(work, request, found, status, message, due)


def _with_url(message: str, url: str) -> str:
    """Puts the URL before a message that does not name one."""
    return message if url in message or message.startswith(("http://", "https://")) else f"{url[:300]}: {message}"


def _selected(work: Work, found: RequestFindings) -> str:
    """A message with the number of selected files; empty if all were, and were to be."""
    count = len(found.item.manifest or ()) if found.item is not None else 0
    if not (work.options.include or work.options.exclude) or (found.bundle is None and len(found.files) == count):
        return ""
    if found.bundle is not None:
        return "all files are kept, since they are one download: none can be selected"
    return f"{len(found.files)} of {counted(count, 'file')} selected"


async def _process(work: Work, found: RequestFindings, item: FilesetPlatformItem) -> tuple[Status, str]:
    """Keeps the files. Returns the status and message of the result. Raises a FilesetProblem if there are no files."""
    options = work.options
    set_safe_paths(item.manifest or [])
    limits = work.archive.config.fileset
    is_bundled = (options.strategy or choose_strategy(item, limits)).is_bundled  # of which nothing is selected
    wanted = [file for file in item.manifest or () if is_bundled or options.selection.wants(file)]
    found.files = public_files(wanted)
    if not wanted and not item.bundle_only:
        raise EmptyManifest("the data set has no files" + (" that were asked for" if item.manifest else ""))
    chosen = replace(item, manifest=wanted)
    found.preferred = options.strategy or choose_strategy(chosen, limits)
    may_upload = work.items is not None and item.platform_status == Status.SUCCESS
    found.strategy = found.preferred if may_upload else found.preferred.on_web
    if options.max_files is not None:
        limits = dataclasses.replace(limits, max_file_count=options.max_files)
    if options.max_total is not None:
        limits = dataclasses.replace(limits, max_total_size=options.max_total)
    excess = too_much(chosen, limits)
    if excess is not None:
        return excess, f"{chosen.file_count} files, {chosen.total_size} bytes"
    if found.strategy.is_file and chosen.file_count > 1:
        return Status.NO_STRATEGY_HELPER, f"{found.strategy} is for one file, and there are {chosen.file_count}"
    if found.strategy.is_bundled and not item.web_bundle_url:
        return Status.NO_STRATEGY_HELPER, f"{item.platform_name} offers no such download"
    strategy = helper_for(found.strategy)(work, found.strategy, found.helper, limits)
    async with work.busy.setdefault(item.fileset.obi, asyncio.Lock()):
        existing = None if options.force else await strategy.check_existing(chosen)
        if existing is not None:
            found.take(existing)
            found.state = existing.state
            found.is_existing = True
            if work.downloader is not None and not fileset_of(work.archive, item).history.held:
                _keep_state(work, work.downloader, found, item)  # it was withdrawn and has returned
            return Status(existing.status), existing.message
        if work.downloader is None:
            return Status.NOT_PROCESSED, "dry run"
        done = await strategy.process(chosen)
        found.take(done)
        if any(map(is_whole, found.files)):
            _keep_state(work, work.downloader, found, item)
        return Status(done.status), done.message


def _keep_state(work: Work, downloader: Downloader, found: RequestFindings, item: FilesetPlatformItem) -> None:
    known = fileset_of(work.archive, item)
    files = _settled(work, known, found.files)
    is_part = bool(work.options.include or work.options.exclude) and found.bundle is None
    damaged = damaged_manifests(work.archive, known) if work.options.force else []
    before = held_version(work.archive, known, item, bundled=False, damaged=damaged) if is_part else None
    if before is not None:
        paths = [file.path for file in item.manifest or ()]
        files = work.options.selection.with_others(files, work.archive.catalogue.manifest(before.state), paths)
    manifest = manifest_of(item, files, found.bundle)
    if damaged and (restored := _restored_item(known, manifest, damaged, work.run, downloader.writer)) is not None:
        work.commits.add(restored)
        work.commits.commit()
        known = fileset_of(work.archive, item)
        damaged = damaged_manifests(work.archive, known)
    noted = [tist for tist, state in known.history if state is not None and tist not in damaged]
    newer = [tist for tist in noted if _is_newer(work, known, tist, item)]
    taken: set[int] = set()
    while not taken or (known.id, found.state) in work.refused:
        when = _tist_for(known.history, work.run, newer, item.published, taken)
        items, found.state = _state_items(known, manifest, when, work.run, downloader.writer, newer)
        work.refused.discard((known.id, found.state))
        taken.add(when)  # bytes of a former state may be held there
        for one in items:
            work.commits.add(one)
        work.commits.commit()
    work.report.stored_bytes += sum(kept_bytes(one.record) for one in items if isinstance(one.record, ObiChange))
    last = held_version(work.archive, known, item, bundled=found.bundle is not None, damaged=damaged)
    if last is not None and not items and last.state != found.state:
        work.commits.add(_noted_again(known, found.state, when, work.run))
        work.commits.commit()


def _settled(work: Work, known: Obi, files: list[FilesetManifestFile]) -> list[FilesetManifestFile]:
    """The files as the manifest keeps them. Files whose bytes were held already have the same status as fetched ones,
    and a file with the same bytes and URL as before keeps its earlier row (its mirror may differ)."""
    done = Status.SUCCESS.value
    found = [replace(file, status=done) if is_whole(file) and file.status != done else file for file in files]
    state = known.history.last_held
    if state is not None:
        places: dict[tuple[str, str | None, str | None], list[int]] = {}
        for n, file in enumerate(found):
            if file.status == done:
                places.setdefault((file.path, file.platform_url, file.sha256), []).append(n)
        for before in work.archive.catalogue.manifest(state):
            if before.status == done:
                for n in places.get((before.path, before.platform_url, before.sha256), ()):
                    found[n] = before
    return found


def _is_newer(work: Work, known: Obi, tist: int, item: FilesetPlatformItem) -> bool:
    """Whether the state at ``tist`` is of a newer version than ``item``."""
    return bool(item.order) and read_heading(work.archive, known, tist).order > item.order


def _state_items(
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


def _noted_again(known: Obi, state: str, when: int, run: int) -> CommitItem:
    """Creates the record by which the entry with ``state`` that is nearest to ``when`` is the one noted last of its
    version."""
    tist = min((tist for tist, there in known.history if there == state), key=lambda tist: abs(tist - when))
    note = replace(known.notes[tist], run=run)
    return CommitItem(ObiChange("fileset", known.id, "", {tist: state}, notes={tist: note}))


def _restored_item(
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


def _tist_for(
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


def _note_gone(work: Work, found: RequestFindings, problem: FilesetProblem) -> str:
    """Notes the loss of a data set whose present version was withdrawn. Returns the id of the fileset that a withdrawn
    version is of; empty if nothing was withdrawn, or nothing of it was ever held."""
    if not isinstance(problem, PlatformGone) or work.options.dry_run:
        return ""
    for ingest_ in work.archive.catalogue.ingests():
        if ingest_.fileset and found.url and found.url in (ingest_.base_url, ingest_.platform_base_url):
            known = work.archive.catalogue.obis("fileset", [ingest_.fileset]).get(ingest_.fileset)
            if known is not None and known.history.held and _is_present(work, known, ingest_):
                _note_loss(work, known, problem)
            return ingest_.fileset
    fileset, version = named_by_platform(work.archive, found.url)
    known = work.archive.catalogue.obis("fileset", [fileset]).get(fileset) if fileset else None
    if known is not None and known.history.held:
        present = read_heading(work.archive, known, known.history.last or 0)
        if version in ("", present.version, present.platform_id):
            _note_loss(work, known, problem)
    return fileset


def _note_loss(work: Work, known: Obi, problem: FilesetProblem) -> None:
    when, seen = _tist_for(known.history, work.run), last_listed(work.archive.catalogue, known)
    note = Note(work.run, "lost", reason=problem.message[:200], seen=seen)
    work.commits.add(CommitItem(ObiChange("fileset", known.id, put={when: None}, notes={when: note})))
    work.commits.commit()


def _is_present(work: Work, known: Obi, ingest_: Ingest) -> bool:
    """Whether an ingest was of the version that is currently held."""
    present = read_heading(work.archive, known, known.history.last or 0)
    for tist, state in known.history:
        if state == ingest_.state:
            then = read_heading(work.archive, known, tist)
            return (then.platform_id, then.version) == (present.platform_id, present.version)
    return ingest_.platform_id == present.platform_id  # its manifest is no state: no file was held
