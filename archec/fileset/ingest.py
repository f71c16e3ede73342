"""The ingest of one request: find the data set, keep its files, and build the result."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
from msgspec.structs import replace

from archec.catalogue.model import FilesetManifestFile, Ingest, Obi
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
from archec.fileset.manifest import is_whole, set_safe_paths
from archec.fileset.model import FilesetPlatformItem, IngestRequest
from archec.fileset.platforms.checking import checked_item
from archec.fileset.records import loss_item, manifest_of, noted_again, restored_item, state_items, tist_for
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
    if damaged and (restored := restored_item(known, manifest, damaged, work.run, downloader.writer)) is not None:
        work.commits.add(restored)
        work.commits.commit()
        known = fileset_of(work.archive, item)
        damaged = damaged_manifests(work.archive, known)
    noted = [tist for tist, state in known.history if state is not None and tist not in damaged]
    newer = [tist for tist in noted if _is_newer(work, known, tist, item)]
    taken: set[int] = set()
    while not taken or (known.id, found.state) in work.refused:
        when = tist_for(known.history, work.run, newer, item.published, taken)
        items, found.state = state_items(known, manifest, when, work.run, downloader.writer, newer)
        work.refused.discard((known.id, found.state))
        taken.add(when)  # bytes of a former state may be held there
        for one in items:
            work.commits.add(one)
        work.commits.commit()
    last = held_version(work.archive, known, item, bundled=found.bundle is not None, damaged=damaged)
    if last is not None and not items and last.state != found.state:
        work.commits.add(noted_again(known, found.state, when, work.run))
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
    seen = last_listed(work.archive.catalogue, known)
    work.commits.add(loss_item(known, work.run, problem.message, seen))
    work.commits.commit()


def _is_present(work: Work, known: Obi, ingest_: Ingest) -> bool:
    """Whether an ingest was of the version that is currently held."""
    present = read_heading(work.archive, known, known.history.last or 0)
    for tist, state in known.history:
        if state == ingest_.state:
            then = read_heading(work.archive, known, tist)
            return (then.platform_id, then.version) == (present.platform_id, present.version)
    return ingest_.platform_id == present.platform_id  # its manifest is no state: no file was held
