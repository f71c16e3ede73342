"""Downloads one file into the obi store. Checksums are computed on the way, and interrupted downloads are resumed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from archec.archive.budget import BudgetUse
from archec.archive.report import Report
from archec.archive.unfinished_downloads import Download, UnfinishedDownloads, validator_of
from archec.catalogue.model import FilesetManifestFile
from archec.config import FetchConfig
from archec.fileset.asking import Asker
from archec.fileset.checksums import digest_of, mismatch, other_checksum
from archec.fileset.interior import unpack_gzip
from archec.fileset.platforms.base import FilesetPlatformHelper
from archec.fileset.records import FobiBody
from archec.fileset.redaction import public_text, public_url
from archec.fileset.status import PlatformHttpError, Status
from archec.progress import Meter
from archec.store.writer import Temp, Writer
from archec.text.sniff import UNKNOWN, bare_type, sniff
from archec.web.door import Response, content
from archec.web.messages import kept
from archec.web.policy import Tuning

_T = TypeVar("_T")
_BLOCK = 1 << 20
"""Bytes that a thread hashes and writes at once. A smaller file is not resumed after a kill."""
_SMALL = 1 << 15
"""Bytes of a body from which on a thread hashes and writes it. For a smaller one, waking the thread takes longer."""
_HEAD = 4096
_MOST_OF_ERROR = 100_000
_MOST_ATTEMPTS = 1000
"""Requests for one file in one run. An attempt that adds more than 1 %, or 1 MiB if that is less, is no failure, unless
all of them together are slower than ``fetch.min_rate``."""
_GRACE = Tuning().rate_grace
_DROPPED = frozenset({"location", "link"})
UNPACKED = "x-archive-orig-content-encoding"
"""Replaces the Content-Encoding header of a response whose body is stored decompressed."""
_NO_REQUEST = {status: status for status in (Status.BLOCKED_ADDRESS, Status.SKIP_URL_BLOCKLIST, Status.ROBOTS)}
"""What keeps a file from being requested at all."""
_MISSING = (404, 410)
_ZIP = "application/zip"
PAGE = "text/html"
"""The value of ``NotFetched.received`` for a login or error page that was sent with status 200 instead of the file."""
_PAGES = re.compile(r"\.(?:x?html?|aspx?|php)$", re.I)


class NotFetched(NamedTuple):
    """Why a download failed; ``received``: the media type of what was sent instead of the file."""

    status: Status
    message: str
    received: str = ""

    @classmethod
    def after(cls, error: PlatformHttpError) -> NotFetched:
        return cls(_NO_REQUEST.get(error.status, Status.ERROR_PLATFORM_DOWNLOAD), error.message)


class BudgetSpent(Exception):
    """The budget of the run is used up. Partial downloads are kept for the next run."""


@dataclass(slots=True)
class Room:
    """The remaining bytes that the files of a data set may have together, including files of unknown size."""

    left: int


@dataclass(slots=True)
class Counter:
    """The progress of a run: counts for its meter, and the number of results by status. ``report`` is the report of the
    run; None for a dry run."""

    meter: Meter
    use: BudgetUse
    statuses: dict[str, int] = field(default_factory=dict)
    report: Report | None = None

    def begin(self) -> None:
        """Counts a requested file. Raises BudgetSpent if no more may be requested."""
        if self.use.spent:
            raise BudgetSpent
        self.use.files += 1

    def received(self, count: int) -> None:
        """Counts received bytes. Raises BudgetSpent if no more may be received."""
        self.use.bytes += count
        self._show()
        if self.use.exhausted:
            raise BudgetSpent

    def ended(self, status: str) -> None:
        """Counts a result."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._show()

    def _show(self) -> None:
        self.meter.at(self.use.bytes, f"{self.use.files} files, {sum(self.statuses.values())} data sets")


@dataclass(frozen=True, slots=True)
class Downloader:
    """Downloads files for one run. ``receiving`` has the fobis that are being received."""

    asker: Asker
    writer: Writer
    unfinished: UnfinishedDownloads
    run: int
    threads: Executor
    config: FetchConfig
    counter: Counter
    receiving: dict[str, asyncio.Event] = field(default_factory=dict)

    @asynccontextmanager
    async def alone(self, obi: str) -> AsyncIterator[bool]:
        """Within it, this task alone may fetch ``obi``, for which others wait: they would take up its temporary file.
        Yields whether another one has fetched it just now, so that what is known of it may have changed."""
        has_waited = False
        while (other := self.receiving.get(obi)) is not None:
            has_waited = True
            await other.wait()
        left = self.unfinished.left(obi)
        done = self.receiving[obi] = asyncio.Event()
        try:
            yield has_waited or (left is not None and left.tist == self.run and bool(left.sha256))
        finally:
            del self.receiving[obi]
            done.set()

    async def fetch(
        self, file: FilesetManifestFile, url: str, obi: str, helper: FilesetPlatformHelper | None, room: Room
    ) -> FobiBody | NotFetched:
        """Downloads a file from ``url``, to be kept as the fobi ``obi``, and verifies it; :meth:`alone`. Stops at the
        limit of ``room`` and at the size in the manifest.

        Resumes the partial download of an earlier process, and leaves one itself if it is interrupted. Raises
        StorageFull, StorageFailed, BudgetSpent.
        """
        self.counter.begin()
        transfer = _Transfer(self, file, url, obi, helper, room)
        try:
            return await transfer.run()
        except (asyncio.CancelledError, BudgetSpent):
            transfer.keep()
            raise
        finally:
            transfer.end()

    def committed(self, also: str = "") -> None:
        """Called when nothing is left to be committed: what was received completely is held. What a task is reading
        again, as an earlier run has left it, is not; ``also``: what the caller alone may fetch, and has not begun to.
        """
        self.unfinished.committed(self.run, self.receiving.keys() - {also})


class _Transfer:
    """One download, with retries as long as they make progress."""

    def __init__(
        self, of: Downloader, file: FilesetManifestFile, url: str, obi: str, helper: FilesetPlatformHelper | None,
        room: Room,
    ) -> None:  # fmt: skip
        self._of, self._file, self._url, self._obi, self._helper, self._room = of, file, url, obi, helper, room
        self._size = 0
        """Bytes received; those in ``_pieces`` are not written yet."""
        self._pieces: list[bytes] = []
        self._is_over = False
        self._temp: Temp | None = None
        self._answer = Download(obi)
        self._is_kept = False
        self._takes_ranges = True
        self._head = b""

    async def run(self) -> FobiBody | NotFetched:
        left = self._of.unfinished.left(self._obi)
        if left is not None:
            whole = await self._take_up(left)
            if whole is not None:
                return whole
        failures = attempts = 0
        most = first = self._size
        began = time.monotonic()
        while True:
            attempts, started = attempts + 1, time.monotonic()
            try:
                outcome = await self._attempt()
                if outcome is not None:
                    return outcome
            except PlatformHttpError as error:
                now, seconds = self._size, time.monotonic() - began
                has_grown = bool(self._answer.validator) and now > most + min(_BLOCK, most // 100)
                is_slow = seconds > _GRACE and now - first < self._of.config.min_rate * seconds
                failures = 0 if has_grown and not is_slow else failures + 1
                if now - most > self._of.config.min_rate * (time.monotonic() - started):
                    self._of.asker.progressed(self._answer.terminal_url or self._url)
                if self._pieces:
                    await self._in_thread(self._write, self._pieces)
                most = max(most, now)
                if failures > self._of.config.retries or attempts >= _MOST_ATTEMPTS:
                    self.keep()
                    return NotFetched.after(error)

    async def _take_up(self, left: Download) -> FobiBody | NotFetched | None:
        """Takes over the partial download of an earlier process. Returns its outcome if it is complete; else the next
        attempt continues it, or starts again if it has no validator."""
        final = (left.tist, left.url) if left.sha256 else None  # which a run that was killed in its commit gave it
        temp = self._of.writer.take_up(left.temp, final)
        if temp is None:
            return None
        self._of.unfinished.note(replace(left, tist=self._of.run))  # it is no longer what an earlier run has left
        await self._in_thread(temp.reread)
        self._temp, self._answer, self._head = temp, left, self._head_of(temp)
        self._take(temp.size)
        digests = temp.digests
        is_complete = self._file.size is not None or (left.sha256 and digests.sha256 == left.sha256)
        if is_complete and mismatch(self._file, digests) is None:
            return await self._judge()
        if left.sha256 or not left.validator:
            self._restart()
        return None

    async def _attempt(self) -> FobiBody | NotFetched | None:
        """Sends one request. Returns the outcome, or None if another request is needed. Raises PlatformHttpError."""
        headers: dict[str, str] = {}
        size = self._size
        if size and self._answer.validator and self._takes_ranges:
            headers = {"Range": f"bytes={size}-", "If-Range": self._answer.validator}
        elif size and self._takes_ranges:
            self._restart()
        page = self._helper is not None and not self._helper.is_documented
        async with self._of.asker.request(self._url, headers, self._helper, page=page) as (response, fields):
            status = response.status_code
            end = self._answer.size_after(size, fields) if status == 206 and headers else 0
            is_joined = bool(end) or (status == 416 and bool(headers) and self._answer.is_whole(size, fields))
            if status != 200 and not is_joined:
                if headers:  # perhaps the server refuses ranges only, or has another file now
                    self._takes_ranges = False
                    return None
                if status not in _MISSING:  # perhaps the URL has expired, and the next ingest gets another
                    self.keep()
                return await _refused(response, self._url)
            if status == 200 and size:
                self._restart()
            if status != 416:
                await self._receive(response, fields)
            if end and self._size != end and not self._is_over:
                self._restart()
                raise PlatformHttpError(f"{self._url[:300]}: a range has another length than it says")
        outcome = await self._judge()
        if is_joined and isinstance(outcome, NotFetched) and not self._is_over:  # parts of different files, perhaps
            self._restart()
            self._takes_ranges = False
            return None
        return outcome

    async def _receive(self, response: Response, fields: dict[str, str]) -> None:
        """Writes a response body to the temporary file, up to the size limits."""
        if response.status_code == 200:
            public = tuple((name, public_text(value)) for name, value in kept(fields) if name not in _DROPPED)
            self._answer = Download(
                self._obi, validator=validator_of(fields), status=200, headers=public,
                terminal_url=public_url(response.url),
            )  # fmt: skip
        total = self._answer.total
        if self._size or total is None or total >= _BLOCK:
            self._note(kept=False)
        most = self._file.size
        slack = (most or 0) // 1000 + 1000 if self._is_packed else 0  # gzip makes random bytes longer
        waiting = 0
        writing: asyncio.Future[Temp] | None = None
        try:
            async for piece in response:
                self._pieces.append(piece)
                waiting += len(piece)
                self._take(len(piece))
                self._of.counter.received(len(piece))
                self._is_over = self._room.left < 0
                if self._is_over or (most is not None and self._size > most + slack):
                    break
                if waiting >= _BLOCK:
                    if writing is not None:
                        await _finished(writing)
                    writing = self._start(self._write, self._pieces)
                    self._pieces, waiting = [], 0
        finally:
            if writing is not None:
                await _finished(writing)

    def _opened(self) -> Temp:
        """The temporary file. That of a small body is created when it is complete."""
        if self._temp is None:
            self._temp = self._of.writer.temp(self._of.run, self._obi, sha1=True)
        return self._temp

    def _write(self, pieces: list[bytes]) -> Temp:
        """Writes the pieces to the temporary file and clears the list."""
        temp = self._opened()
        for piece in pieces:  # joining them takes a tenth of the CPU of a large file
            if temp.size < _HEAD:
                self._head += piece[: _HEAD - temp.size]
            temp.write(piece)
        pieces.clear()
        return temp

    async def _judge(self) -> FobiBody | NotFetched:
        """Verifies a complete body and returns the outcome."""
        file = self._file
        if self._is_over:
            return NotFetched(Status.TOO_LARGE_SIZE, "the data set exceeds its size limit")
        try:
            wrong = self._close() if self._size < _SMALL else await self._in_thread(self._close)
            temp = self._opened()
            is_unclear = wrong is not None or self._is_bundle
            if is_unclear and self._is_packed and (unpacked := await self._unpacked(temp)) is not None:
                temp, wrong = unpacked, None
        except asyncio.CancelledError:
            self._note()
            raise
        digests, head, fields = temp.digests, self._head, dict(self._answer.headers)
        coding, stated = fields.get("content-encoding", ""), fields.get("content-type", "")
        kind = sniff(head, stated, coding)
        is_page = kind == PAGE or (file.size is None and kind.startswith("text/") and bare_type(stated) == PAGE)
        if is_page and not _is_page(file) and (wrong is not None or not _has_checksum(file)):
            return NotFetched(Status.ERROR_PLATFORM_DOWNLOAD, "received a page instead of the file", PAGE)
        if wrong is not None:
            return wrong
        if bare_type(file.mimetype or "") not in ("", UNKNOWN):
            kind = sniff(head, file.mimetype or "", coding)
        self._note(digests.sha256)
        answer = self._answer
        terminal = "" if answer.terminal_url == public_url(self._url) else answer.terminal_url
        return FobiBody(digests, kind, answer.status, answer.headers, terminal, temp.path)

    def _head_of(self, temp: Temp) -> bytes:
        """Reads the first bytes of a file that an earlier process received, or that was decompressed."""
        with open(self._path(temp), "rb") as stream:
            return stream.read(_HEAD)

    def _close(self, plain: Temp | None = None) -> NotFetched | None:
        """Closes a complete body, or ``plain``, and compares it with the manifest. Returns the mismatch, or None."""
        temp = plain or self._write(self._pieces)
        # A large file is synced here, in a thread: syncing it with its batch would block all downloads.
        temp.close(sync=temp.size >= _BLOCK)
        digests = temp.digests
        status = mismatch(self._file, digests)
        if status is not None:
            return NotFetched(status, f"received {digests.size} bytes with md5 {digests.md5}, sha256 {digests.sha256}")
        other = other_checksum(self._file)
        if other is not None and digest_of(self._path(temp), other[0]) != other[1]:
            return NotFetched(Status.MISMATCH, f"received {digests.size} bytes with another {other[0]} than {other[1]}")
        return None

    @property
    def _is_bundle(self) -> bool:
        """Whether the file is a zip, possibly gzipped, whose size and checksums are not in the manifest."""
        file = self._file
        is_verifiable = file.size is not None or any((file.md5, file.sha1, file.sha256))
        return not is_verifiable and sniff(self._head, content_encoding="gzip") == _ZIP

    @property
    def _is_packed(self) -> bool:
        """Whether the server compressed the file, although the request did not accept that."""
        return dict(self._answer.headers).get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")

    async def _unpacked(self, temp: Temp) -> Temp | None:
        """Decompresses ``temp`` and replaces it. Returns None, and keeps ``temp``, if that does not match the manifest
        either."""
        size = self._file.size
        most = size if size is not None else temp.size + self._room.left
        plain = self._of.writer.temp(self._of.run, self._obi, sha1=True)
        is_it = False
        try:
            is_it = await self._in_thread(unpack_gzip, self._path(temp), plain, most)
            is_it = is_it and await self._in_thread(self._close, plain) is None
        finally:
            if not is_it:
                plain.discard()
        if not is_it:
            return None
        self._take(plain.size - temp.size)
        temp.discard()
        self._temp, self._head = plain, self._head_of(plain)
        headers = ((UNPACKED if name == "content-encoding" else name, value) for name, value in self._answer.headers)
        self._answer = replace(self._answer, headers=tuple(headers))
        return plain

    def _note(self, sha256: str = "", *, kept: bool = True) -> None:
        """Records the temporary file. ``kept``: it is closed, and is not discarded at the end."""
        self._of.unfinished.note(replace(self._answer, temp=self._opened().path, tist=self._of.run, sha256=sha256))
        self._is_kept = kept

    def _path(self, temp: Temp) -> Path:
        return Path(self._of.writer.layout.root) / temp.path

    def _take(self, count: int) -> None:
        self._size += count
        self._room.left -= count

    def _start(self, work: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._of.threads, work, *arguments)

    async def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await _finished(self._start(work, *arguments))

    def _restart(self) -> None:
        """Discards everything received so far."""
        self._take(-self._size)
        if self._temp is not None:
            self._temp.discard()
            self._of.unfinished.over([self._obi])
        self._temp, self._answer, self._head, self._pieces = None, Download(self._obi), b"", []

    def keep(self) -> None:
        """Keeps a partial download for the next run, if it has a validator for a range request."""
        if self._size and self._answer.validator and not self._is_kept:
            self._write(self._pieces).close()
            self._note()

    def end(self) -> None:
        """Discards the temporary file unless it is kept."""
        if not self._is_kept:
            self._restart()


async def _finished(writing: asyncio.Future[_T]) -> _T:
    """Waits for a thread to finish writing, even if the download is cancelled meanwhile (then raises CancelledError
    afterwards)."""
    cancelled: asyncio.CancelledError | None = None
    while not writing.done():
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError as error:
            cancelled = error
    result = writing.result()
    if cancelled is not None:
        raise cancelled
    return result


async def _refused(response: Response, url: str) -> NotFetched:
    status = response.status_code
    message = f"{url[:300]}: HTTP {status}"
    if status in (401, 403, 451):
        return NotFetched(Status.PLATFORM_RESTRICTED, message)
    if status == 400 and b"guestbook" in (await content(response, _MOST_OF_ERROR)).lower():  # Dataverse
        return NotFetched(Status.PLATFORM_RESTRICTED, f"{message}: the file requires a guestbook entry")
    return NotFetched(Status.ERROR_PLATFORM_DOWNLOAD, message)


def _has_checksum(file: FilesetManifestFile) -> bool:
    """Whether a platform states a checksum of the bytes that it sends."""
    if (file.extra or {}).get("soft_checksum"):
        return False
    return any((file.md5, file.sha1, file.sha256, other_checksum(file)))


def _is_page(file: FilesetManifestFile) -> bool:
    return bool(_PAGES.search(file.path)) or "html" in (file.mimetype or "")
