"""Fetches the files of a manifest. Each is then held and verified, or its row says why it is not."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.catalogue.documents import BytesPlace
from archec.catalogue.model import FilesetManifestFile, Obi
from archec.config import FilesetConfig
from archec.digest import Digests
from archec.errors import BadName, CorruptArchive, NotHeld, StorageFailed
from archec.fileset.checksums import mismatch, read_whole
from archec.fileset.context import Work, at_once
from archec.fileset.download import UNPACKED, BudgetSpent, Downloader, NotFetched, Room
from archec.fileset.manifest import is_whole
from archec.fileset.platforms.base import FilesetPlatformHelper
from archec.fileset.records import FobiBody, file_item, replaced_item
from archec.fileset.redaction import public_text
from archec.fileset.status import PlatformHttpError, Status
from archec.ids import normalise_url
from archec.store.reader import open_obi
from archec.text.sniff import bare_type, sniff
from archec.tist import MAX_TIST
from archec.warc.cdxj import timestamp

_log = logging.getLogger(__name__)
_IN_PROGRESS = 8
"""Files of one data set that are in progress at once. A kill costs no more than these."""
_LOOKED_UP = 100
"""Files about which the catalogue is asked at once."""
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "text/plain"})
_INNER_TYPES = frozenset({"application/zip", "application/gzip", "application/x-ole-storage", "application/xml"})
_NEVER_INNER = ("text/", "image/", "audio/", "video/", "application/pdf")


class _Wanted(NamedTuple):
    """A file to be fetched: its number and row, the id of its fobi, what the catalogue has of that, and a place where
    bytes with its checksum are held."""

    number: int
    file: FilesetManifestFile
    obi: str
    known: Obi | None
    place: tuple[int, str] | None


async def fetch_all(
    work: Work,
    helper: FilesetPlatformHelper | None,
    listed: Sequence[FilesetManifestFile],
    urls: Sequence[str],
    limits: FilesetConfig,
) -> list[FilesetManifestFile]:
    """Fetches each of ``listed`` that is not held from its URL, several at a time. Returns all of them with their
    statuses; rows that have a status already are left as they are."""
    files = list(listed)
    room = Room(limits.max_total_size)
    queue = _wanted(work, files)

    is_spent = False

    async def one_after_the_other() -> None:
        nonlocal is_spent
        for wanted in queue:
            try:
                files[wanted.number] = await _fetch_one(work, helper, wanted, urls[wanted.number], room)
            except BudgetSpent:  # those that were begun within the budget are not cancelled
                is_spent = True
                return
            work.commits.tick()
            if work.downloader is not None and not work.commits.uncommitted:
                work.downloader.committed()

    fetch = work.archive.config.fetch
    await at_once(min(fetch.concurrency, max(fetch.per_host, _IN_PROGRESS), len(files)), one_after_the_other)
    work.commits.commit()
    if is_spent:
        raise BudgetSpent
    return [_as_stored(work, file) for file in files]


def _wanted(work: Work, files: list[FilesetManifestFile]) -> Iterator[_Wanted]:
    """Yields the files without a status. The catalogue is asked about many of them at once, and again after a commit.
    Files whose URL cannot be an id get a status instead."""
    catalogue = work.archive.catalogue
    waiting = deque(number for number, file in enumerate(files) if file.status is None)
    while waiting:
        batches, part = work.commits.batches, list(islice(waiting, _LOOKED_UP))
        obis: dict[int, str] = {}
        for number in part:
            try:
                obis[number] = normalise_url(files[number].platform_url or "")
            except BadName as error:
                files[number] = _failed(files[number], Status.ERROR_PLATFORM_DOWNLOAD, error.message)
        known = catalogue.obis("fobi", obis.values())
        holding = catalogue.holding({files[number].sha256 or files[number].md5 or "" for number in obis} - {""})
        for number in part:
            if work.commits.batches != batches:
                break
            waiting.popleft()
            if number in obis:
                file, obi = files[number], obis[number]
                place = _place(work, file, known.get(obi), holding.get(file.sha256 or file.md5 or ""))
                yield _Wanted(number, file, obi, known.get(obi), place)


def _as_stored(work: Work, file: FilesetManifestFile) -> FilesetManifestFile:
    """Returns a file's row as of its commit: as failed if the commit was refused, because other bytes were stored for
    the same URL."""
    url = file.platform_url
    if work.refused and url and is_whole(file) and (normalise_url(url), file.sha256) in work.refused:
        message = "not stored: other bytes were received for the same URL in this run"
        return _failed(file, Status.ERROR_PLATFORM_DOWNLOAD, message)
    return file


async def _fetch_one(
    work: Work, helper: FilesetPlatformHelper | None, wanted: _Wanted, url: str, room: Room
) -> FilesetManifestFile:
    """Fetches one file unless its bytes are held. Returns its row with what was found, or with why it failed."""
    if (downloader := work.downloader) is None:
        return wanted.file
    async with downloader.alone(wanted.obi) as has_changed:
        if has_changed:
            work.commits.commit()
            downloader.committed(wanted.obi)
            wanted = next(_wanted(work, [wanted.file]))
        return await _fetch_alone(work, downloader, helper, wanted, url, room)


async def _fetch_alone(
    work: Work, downloader: Downloader, helper: FilesetPlatformHelper | None, wanted: _Wanted, url: str, room: Room
) -> FilesetManifestFile:
    """Fetches a file that no other task fetches at the same time."""
    _, file, obi, known, place = wanted
    is_fetched = known is not None and known.visit is not None and known.visit.tist == work.continued
    if place is not None and (is_fetched or not work.options.force):
        held = await asyncio.get_running_loop().run_in_executor(None, _held, work, wanted, place)
        if held is not None:
            room.left -= held.digests.size
            item, tist = file_item(known, obi, held, work.run)
            work.keep(item, held)
            return _whole_file(file, held, tist, Status.EXISTS)
    try:
        body = await downloader.fetch(file, url, obi, helper, room)
    except PlatformHttpError as error:
        body = NotFetched.after(error)
    if isinstance(body, NotFetched):
        return _failed(file, body.status, body.message, body.received)
    if known is None:
        item, tist = file_item(known, obi, body, work.run)
    else:
        item, tist = await asyncio.get_running_loop().run_in_executor(None, received_item, work, known, obi, body)
        if item.placement is None:
            downloader.unfinished.held(obi, known.bytes_at(tist))
    work.keep(item, body)
    return _whole_file(file, body, tist, Status.SUCCESS)


def received_item(work: Work, known: Obi | None, obi: str, body: FobiBody) -> tuple[CommitItem, int]:
    """Returns the record for received bytes, and the tist of their state. It has no placement if they are held already
    and the held copy is not damaged: the received ones are not needed then."""
    item, tist = file_item(known, obi, body, work.run)
    if known is None or item.placement is not None:
        return item, tist
    place = known.bytes_at(tist), obi
    there = _read_held(work, place)
    if there is not None and there[0].sha256 == body.digests.sha256:
        return item, tist
    _log.warning("%s: the held copy of %d is damaged; what was received is stored again", obi[:300], place[0])
    return replaced_item(known, tist, body, work.run), tist


def _read_held(work: Work, place: tuple[int, str]) -> tuple[Digests, bytes] | None:
    """Returns the checksums and the first bytes of what is held at ``place``, or None if it cannot be read."""
    try:
        with open_obi(work.archive.layout, *place) as stream:
            return read_whole(work.readable(stream))
    except (NotHeld, CorruptArchive, StorageFailed):
        return None


def _place(
    work: Work, file: FilesetManifestFile, known: Obi | None, found: BytesPlace | None
) -> tuple[int, str] | None:
    """Finds bytes with the checksum of a file: those of its own fobi, or those ``found`` by it. Returns their tist and
    id, or None if none are held. The catalogue cannot search by SHA-1."""
    checksum = file.sha256 or file.md5
    if not (checksum or file.sha1) or (file.extra or {}).get("soft_checksum"):
        return None
    version = known.version_at(MAX_TIST) if known is not None else None
    if known is not None and version is not None and checksum in (None, version.sha256, version.md5):
        return known.bytes_at(known.history.last or 0), known.id
    if found is None or found.kind != "fobi" or (file.size is not None and found.size != file.size):
        return None
    other = work.archive.catalogue.obis("fobi", [found.id]).get(found.id)
    return (other.bytes_at(found.tist), found.id) if other is not None else None


def _held(work: Work, wanted: _Wanted, place: tuple[int, str]) -> FobiBody | None:
    """Reads the bytes held at ``place`` again. Returns None unless they can be read and match the manifest."""
    there = _read_held(work, place)
    if there is None:
        return None
    digests, head = there
    if mismatch(wanted.file, digests) is not None:
        return None
    known = wanted.known
    terminal = known.visit.target if known is not None and known.visit is not None and place[1] == known.id else ""
    kind = sniff(head, wanted.file.mimetype or "")
    return FobiBody(digests, kind, terminal=terminal, place=place)


def _whole_file(file: FilesetManifestFile, body: FobiBody, tist: int, status: Status) -> FilesetManifestFile:
    """A file's row, completed with checksums, size and media type. Platform values that differ go to ``extra``."""
    extra, sums = file.extra or {}, body.digests
    if file.md5 is not None and file.md5 != sums.md5:
        extra = {**extra, "platform_md5": file.md5}
    if packed := dict(body.headers).get(UNPACKED):
        extra = {**extra, "content_encoding": packed}
    theirs, ours = bare_type(file.mimetype or ""), body.mimetype
    if ours not in _GENERIC_TYPES and (theirs in _GENERIC_TYPES or _is_wrong(theirs, ours)):
        if file.mimetype:
            extra = {**extra, "platform_mimetype": file.mimetype}
    else:
        ours = file.mimetype or ours
    return replace(
        file, size=sums.size, md5=sums.md5, sha1=sums.sha1, sha256=sums.sha256, mimetype=ours, extra=extra,
        status=status.value, terminal_url=body.terminal or file.platform_url, terminal_dt=sys.intern(timestamp(tist)),
    )  # fmt: skip


def _is_wrong(theirs: str, ours: str) -> bool:
    """Whether the platform's media type (``theirs``) contradicts the bytes'. Formats that are zip, gzip, OLE or XML
    inside do not."""
    if ours in _INNER_TYPES:
        return theirs.startswith(_NEVER_INNER) and not theirs.endswith("xml")
    return ours != theirs


def _failed(file: FilesetManifestFile, status: Status, message: str, received: str = "") -> FilesetManifestFile:
    extra = {**(file.extra or {}), "error": public_text(message)[:500]}
    return replace(file, status=status.value, extra=extra | ({"received": received} if received else {}))
