"""Builds the result of an ingest, after storing the platform's responses and the record of the ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from shutil import copyfileobj
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.archive.lookup import held_at
from archec.catalogue.journal_lines import IngestDone, ObiChange
from archec.catalogue.model import FilesetManifestFile, Ingest
from archec.digest import Digests
from archec.errors import ArchecError, BadName, CorruptArchive, NotHeld
from archec.fileset.context import RequestFindings, Work
from archec.fileset.fetching import received_item
from archec.fileset.finding import identifier_of
from archec.fileset.json_lines import FilesetBundle, FilesetFile, IngestResult
from archec.fileset.lookup import capture_of
from archec.fileset.manifest import is_whole
from archec.fileset.model import ArchiveStrategyResult, FilesetPlatformItem, IngestRequest
from archec.fileset.pages import Page
from archec.fileset.platforms.base import PlatformAnswer
from archec.fileset.records import FobiBody, manifest_of, unkept_items
from archec.fileset.redaction import public_body, public_text, public_url
from archec.fileset.status import FilesetProblem, Status
from archec.ids import normalise_url
from archec.text.sniff import sniff
from archec.tist import MAX_TIST, iso
from archec.warc.cdxj import timestamp


def _keep_answer(work: Work, answer: PlatformAnswer, stream: IO[bytes]) -> str:
    """Stores a response as a fobi. ``stream`` is its body, which contains no secrets. Returns its id; empty in a dry
    run, and if its URL cannot be an id."""
    if work.downloader is None:
        return ""
    try:
        obi = normalise_url(public_url(answer.url))
    except BadName:
        return ""
    stream.seek(0)
    head = stream.read(4096)
    stream.seek(0)
    with work.downloader.writer.temp(work.run, obi, sha1=True) as temp:
        copyfileobj(stream, temp)
        temp.close()
    if any(isinstance(one.record, ObiChange) and one.record.id == obi for one in work.commits.uncommitted):
        work.commits.commit()  # so that it is known: the platform gave the same answer before
    known = work.archive.catalogue.obis("fobi", [obi]).get(obi)
    headers = tuple((name, public_text(value)[:1024]) for name, value in answer.headers.items() if name in _KEPT)
    kind = sniff(head, answer.headers.get("content-type", ""))
    body = FobiBody(temp.digests, kind, answer.status, headers, "", temp.path)
    item, _ = received_item(work, known, obi, body)
    work.keep(item, body)
    return obi


_KEPT = frozenset({"content-type", "content-length", "date", "etag", "last-modified", "server"})


def finish(
    work: Work, request: IngestRequest, found: RequestFindings, status: Status, message: str, due: int
) -> IngestResult:
    """Stores the responses and the record of an ingest, and returns its result. A dry run stores nothing."""
    name = found.helper.name if found.helper is not None else ""
    item = found.item or FilesetPlatformItem(
        platform_name=name, platform_domain=found.domain, platform_id=found.platform_id
    )
    done = found.done or ArchiveStrategyResult(ingest_strategy="", status="", manifest=[])
    before = work.archive.catalogue.ingest(request.ingest_type, _public(request.base_url))
    landing, page_url = "", None
    answers: tuple[str, ...] = ()
    if found.landing is not None:
        found.landing = replace(found.landing, body=public_body(found.landing.body))
    if found.is_existing:
        if before is None or not before.landing:
            others = (one for one in work.archive.catalogue.ingests() if one.state == found.state and one.landing)
            before = next(others, before)
        if before is not None:
            landing, answers = before.landing, before.answers
    else:
        if found.landing is not None:
            landing = _keep_answer(work, found.landing, BytesIO(found.landing.body))
            page_url = public_url(found.landing.url)
        answers = tuple(kept for one in found.answers if (kept := _keep_answer(work, one.answer, one.body)))
    files = found.files or item.manifest or []
    sizes = [file.size for file in files if file.size is not None]
    is_counted = found.item is not None and bool(files or not item.bundle_only)
    fileset = item.fileset.obi if found.state else ""
    held = before if before is not None and before.fileset and not found.state else None
    if due <= work.run:  # the end of an embargo that was not lifted is no date to wait for
        due = _due(work, status, found.files, is_held=held is not None or bool(found.state))
    state = found.state or _note_files(work, found)
    record = Ingest(
        ingest_type=request.ingest_type, base_url=_public(request.base_url), tist=work.run, status=status.value,
        platform_name=item.platform_name, platform_domain=item.platform_domain or "",
        platform_id=item.platform_id or "", platform_base_url=public_url(found.url),
        ingest_strategy=str(found.strategy or ""), ingest_strategy_preferred=str(found.preferred or ""),
        fileset=fileset, state=state, file_count=len(files) if is_counted else None,
        total_size=sum(sizes) if is_counted and (sizes or not files) else None,
        archiveorg_item_name=done.archiveorg_item_name or "", archiveorg_bundle_path=done.bundle_archiveorg_path or "",
        web_bundle_url=(done.bundle.platform_url or "") if done.bundle is not None else "",
        web_bundle_dt=(done.bundle.terminal_dt or "") if done.bundle is not None else "",
        landing=landing, answers=answers, message=public_text(message)[:1000], due=due, cite_as=item.cite_as,
        dois=_dois(item, before, fileset), options=replace(work.options, force=False).as_value(),
        confirmed=work.run if found.state else 0, listed=len(item.manifest or ()),
    )  # fmt: skip
    # What a helper of another package says may be of any type, and what is journalled cannot be unsaid.
    stored = record = msgspec.json.decode(msgspec.json.encode(record), type=Ingest)
    if held is not None:  # a failed ingest must not hide what is held
        stored = replace(
            record, fileset=held.fileset, state=state or held.state, options=held.options,
            confirmed=0 if state else held.confirmed, listed=record.listed if state else held.listed,
        )  # fmt: skip
        if found.item is None:
            stored = replace(
                stored, platform_name=held.platform_name, platform_domain=held.platform_domain,
                platform_id=held.platform_id, platform_base_url=held.platform_base_url, cite_as=held.cite_as,
            )  # fmt: skip
    work.commits.add(CommitItem(IngestDone(stored)))
    work.commits.commit()
    if work.downloader is not None:
        work.downloader.committed()
        rows = found.files if found.bundle is None else [found.bundle]
        urls = (normalise_url(row.platform_url) for row in rows if row.platform_url and is_whole(row))
        work.downloader.unfinished.settle(urls, work.run, work.downloader.writer)
    return _result(request, found, record, message, _landing(work, landing, page_url))


def postpone(work: Work, request: IngestRequest) -> None:
    """Makes a data set that is due the last of those that are: the budget ended in it, and those after it had none. A
    data set that fails each time before its end would be asked in each run, and the others never."""
    before = work.archive.catalogue.ingest(request.ingest_type, _public(request.base_url))
    if before is not None and before.is_due(work.run) and work.downloader is not None:
        work.commits.add(CommitItem(IngestDone(replace(before, due=work.run))))


def _result(
    request: IngestRequest, found: RequestFindings, record: Ingest, message: str,
    page: tuple[FilesetFile, dict[str, Any] | None] | None,
) -> IngestResult:  # fmt: skip
    """The result of the ingest with this record. ``page`` is the landing page with its bibliographic data, if it is
    held."""
    fileset = str(found.item.fileset) if found.item is not None and found.state else found.withdrawn
    result = IngestResult(
        hit=Status(record.status).is_hit, status=record.status, message=public_text(message) or None,
        request=_given(request), ingest_type=record.ingest_type, manifest=found.files or None,
        platform_name=record.platform_name or None, platform_domain=record.platform_domain or None,
        platform_id=record.platform_id or None, platform_base_url=record.platform_base_url or None,
        ingest_strategy=record.ingest_strategy or None,
        ingest_strategy_preferred=record.ingest_strategy_preferred or None,
        archiveorg_item_name=record.archiveorg_item_name or None, file_count=record.file_count,
        total_size=record.total_size, fileset=fileset or None, due=iso(record.due) if record.due else None,
    )  # fmt: skip
    if page is not None:
        capture, result.html_biblio = page
        result.terminal, result.file_meta = capture.terminal, capture.file_meta
        result.cdx, result.revisit_cdx = capture.cdx, capture.revisit_cdx
    elif found.landing is not None:
        result.html_biblio = html_biblio(found.landing.body, found.landing.headers)
    done = found.done
    if done is not None and done.file_file_meta is not None:
        result.fileset_file = FilesetFile(
            file_meta=done.file_file_meta, terminal=done.file_terminal, cdx=done.file_cdx,
            revisit_cdx=done.file_revisit_cdx,
        )  # fmt: skip
    if done is not None and done.bundle is not None:
        result.fileset_bundle = FilesetBundle(
            file_meta=done.bundle_file_meta, cdx=done.bundle_cdx, revisit_cdx=done.bundle_revisit_cdx,
            terminal=done.bundle_terminal, archiveorg_bundle_path=done.bundle_archiveorg_path,
        )  # fmt: skip
    return result


def _dois(item: FilesetPlatformItem, before: Ingest | None, fileset: str) -> tuple[tuple[str, str], ...]:
    """The DOIs by which a data set is found, each with its version: those known ``before``, and those of ``item`` if
    ``fileset`` is not empty."""
    known = dict(before.dois) if before is not None and fileset in ("", before.fileset) else {}
    if fileset:
        doi = (item.archiveorg_item_meta or {}).get("doi")
        versions = {doi: item.version or item.platform_id or ""} if isinstance(doi, str) else {}
        for name, version in (versions | {item.work_id: "", item.work_doi: ""}).items():
            identifier = identifier_of(name) or ""
            if identifier.startswith("10."):
                known[identifier.lower()] = version
    return tuple(sorted(known.items()))


def _note_files(work: Work, found: RequestFindings) -> str:
    """Notes the files and statuses of a data set of which no file is held. Returns the sha256 of the manifest; empty if
    there is none."""
    if found.item is None or not found.files:
        return ""
    items, sha256 = unkept_items(manifest_of(found.item, found.files, found.bundle))
    if next(iter(work.archive.catalogue.manifest(sha256)), None) is None:
        for one in items:
            work.commits.add(one)
    return sha256


def _given(request: IngestRequest) -> Any:
    return {**(request.given or {"ingest_type": request.ingest_type}), "base_url": _public(request.base_url)}


def _public(base_url: str) -> str:
    """The requested URL as it was given, unless it holds secrets: these are removed."""
    public = public_url(base_url)
    return base_url if public == base_url.partition("#")[0] else public


_PASSING = frozenset({
    Status.SUCCESS_PARTIAL, Status.PLATFORM_HTTP_ERROR, Status.TIMEOUT, Status.ERROR_PLATFORM_DOWNLOAD,
    Status.ERROR_ARCHIVEORG_UPLOAD, Status.BUDGET, Status.PLATFORM_RESTRICTED, Status.NO_CAPTURE,
    Status.TERMINAL_BAD_STATUS, Status.REDIRECT_LOOP, Status.REDIRECTS_EXCEEDED, Status.EMPTY_BLOB,
})  # fmt: skip
"""Statuses of problems that may be temporary."""


def _due(work: Work, status: Status, files: Sequence[FilesetManifestFile], *, is_held: bool) -> int:
    """The tist from which another attempt is useful, 0 if none is: after ``revisit_min`` for problems that may be
    temporary, and after ``revisit_max`` for data sets that are held, to find new versions. If all missing files are
    embargoed, it is the end of the first embargo, but no later than ``revisit_max``."""
    fetch = work.archive.config.fetch
    sooner, later = work.run + int(fetch.revisit_min), work.run + int(fetch.revisit_max)
    if status in (Status.SUCCESS_PARTIAL, Status.PLATFORM_RESTRICTED):
        lacking = [int((file.extra or {}).get("due", 0)) for file in files if not is_whole(file)]
        first = min(lacking, default=0)
        return min(first if first > work.run else sooner, later)
    is_unread = status is Status.BUNDLE_INCOMPLETE and not is_held  # a damaged download, perhaps
    if status in _PASSING or status.value.startswith("mismatch") or is_unread:
        return sooner
    return later if status.is_hit or is_held else 0


def _landing(work: Work, obi: str, url: str | None) -> tuple[FilesetFile, dict[str, Any] | None] | None:
    """What the result says about the landing page that is held as ``obi`` and was received from ``url``, and its
    bibliographic data; None if there is none, or if it is damaged."""
    known = work.archive.catalogue.obis("fobi", [obi]).get(obi) if obi else None
    version = known.version_at(MAX_TIST) if known is not None else None
    if known is None or version is None:
        return None
    try:
        with held_at(work.archive, known, MAX_TIST).open(work.archive.layout) as stream:
            data = stream.read()
    except (NotHeld, CorruptArchive):
        return None
    digests = Digests(sha1=True)
    digests.update(data)
    if digests.sha256 != version.sha256:
        return None
    tist = known.history.last or 0
    note = known.notes.get(tist)
    file = FilesetManifestFile(
        "", version.size, version.md5, digests.sha1, version.sha256, version.type, platform_url=obi, terminal_url=url,
        terminal_dt=timestamp(tist),
    )  # fmt: skip
    status, headers = (note.status, dict(note.headers)) if note is not None else (200, {})
    return capture_of(work.archive.catalogue, file, work.run, status), html_biblio(data, headers)


def file_result(result: IngestResult) -> IngestResult | None:
    """The result of type ``dataset-file``, for a data set that is one file; None for others."""
    if result.status != Status.SUCCESS_FILE or result.fileset_file is None:
        return None
    part = result.fileset_file
    return IngestResult(
        hit=True, status=Status.SUCCESS.value, request=result.request, ingest_type=f"{result.ingest_type}-file",
        terminal=part.terminal, file_meta=part.file_meta, cdx=part.cdx, revisit_cdx=part.revisit_cdx,
        platform_name=result.platform_name,
        platform_domain=result.platform_domain, platform_id=result.platform_id,
        platform_base_url=result.platform_base_url, ingest_strategy=result.ingest_strategy, fileset=result.fileset,
        archiveorg_item_name=result.archiveorg_item_name,
    )  # fmt: skip


def failure(request: IngestRequest | None, line: str, problem: ArchecError) -> IngestResult:
    """The result of a request that was not started or not finished."""
    status = problem.status if isinstance(problem, FilesetProblem) else Status.ERROR_STORAGE
    given: Any = _given(request) if request is not None else public_text(line)[:1000]
    kind = request.ingest_type if request is not None else None
    message = public_text(str(problem))
    return IngestResult(hit=False, status=status.value, message=message, request=given, ingest_type=kind)


_BIBLIO = {
    "citation_title": "title", "dc.title": "title", "citation_doi": "doi", "dc.identifier": "doi",
    "citation_publication_date": "release_date", "citation_date": "release_date", "dc.date": "release_date",
    "citation_publisher": "publisher", "dc.publisher": "publisher", "citation_journal_title": "container_name",
    "citation_abstract_html_url": "html_fulltext_url", "citation_author": "contrib_names",
    "dc.creator": "contrib_names",
}  # fmt: skip
_MOST_NAMES = 1000


def html_biblio(body: bytes, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """The bibliographic data in the meta elements of a page with these headers; None if there are none."""
    found: dict[str, Any] = {}
    for name, content in Page(body, headers.get("content-type", "")).meta():
        key = _BIBLIO.get(name.lower().replace("dcterms.", "dc."))
        if key == "contrib_names":
            names = found.setdefault(key, [])
            if content not in names and len(names) < _MOST_NAMES:
                names.append(content)
        elif key is not None:
            found.setdefault(key, content)
    return found or None
