"""The state of an ingest: its options, the objects that it works with, and what it has found so far."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO, NamedTuple, cast

import msgspec
from msgspec import Struct

from archec.archive.commit import CommitItem, Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import FilesetManifestFile
from archec.fileset.archiveorg_items import Items
from archec.fileset.asking import Asker
from archec.fileset.download import Downloader
from archec.fileset.manifest import FileSelection
from archec.fileset.model import ArchiveStrategyResult, FilesetPlatformItem, IngestStrategy
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    PlatformAnswer,
)
from archec.fileset.platforms.registry import Registry
from archec.fileset.records import FobiBody
from archec.store.writer import CommitResult


async def at_once(count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs ``work`` in ``count`` tasks. If one fails, the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(work()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RunEnded(Exception):
    """A thread was still reading when the run ended."""


class _Readable:
    """A file that can be read until the run ends."""

    def __init__(self, file: BinaryIO, ended: threading.Event) -> None:
        self._file, self._ended = file, ended
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if self._ended.is_set():
            raise RunEnded
        return self._file.read(size)


class IngestOptions(Struct, frozen=True, omit_defaults=True):
    """The options of an ingest. ``max_total`` is in bytes."""

    strategy: IngestStrategy | None = None
    force: bool = False
    direct: bool = False
    follow_concept: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dry_run: bool = False
    max_files: int | None = None
    max_total: int | None = None

    @property
    def selection(self) -> FileSelection:
        """The selection of files by ``include`` and ``exclude``."""
        return FileSelection(self.include, self.exclude)

    def as_value(self) -> dict[str, Any]:
        """The options as a journal record stores them."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


@dataclass(slots=True)
class Work:
    """The objects that an ingest works with. In a dry run ``commits`` drops everything, and ``downloader`` is None.
    ``items`` is None if uploads are not configured. ``refused`` has the ids and sha256 of bodies that were not stored
    because other bytes are held in their place. ``continued`` is the tist of a stopped run, which this one continues:
    what it has fetched is not fetched again by force. ``ended`` is set at the end: threads that are not waited for
    stop."""

    archive: Archive
    run: int
    report: Report
    commits: Commits
    asker: Asker
    downloader: Downloader | None
    registry: Registry
    options: IngestOptions
    items: Items | None = None
    continued: int = 0
    busy: dict[str, asyncio.Lock] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)
    ended: threading.Event = field(default_factory=threading.Event)

    def readable(self, file: BinaryIO) -> BinaryIO:
        """A large file, to be read in a thread: reading it raises RunEnded when the run has ended."""
        return cast(BinaryIO, _Readable(file, self.ended))

    def keep(self, item: CommitItem, body: FobiBody) -> None:
        """Adds the record of a body, and removes its temporary file if the record does not need it."""
        if item.placement is not None:
            self.report.stored_bytes += body.digests.size
        elif body.temp:
            self.commits.discard(body.temp)
        self.commits.add(item)
        if isinstance(item.record, ObiChange):
            self.report.visited(item.record)

    def refuse(self, item: CommitItem, outcome: CommitResult) -> None:
        """Called for an item that is not committed because other bytes are held in its place."""
        if isinstance(item.record, ObiChange):
            if item.record.kind == "fobi":
                self.report.conflicts += 1
                self.report.forget(item.record)
            states = item.record.put.values()
            self.refused.update((item.record.id, state) for state in states if state is not None)


class ReceivedAnswer(NamedTuple):
    """An answer, and its body without secrets, which may be in a temporary file."""

    answer: PlatformAnswer
    body: IO[bytes]


@dataclass(slots=True)
class RequestFindings:
    """What is known about a request so far. ``domain`` and ``platform_id`` are for data sets without an ``item``.
    ``withdrawn`` is the id of a fileset that is held, or was, if the platform has withdrawn the version that was
    requested."""

    url: str = ""
    helper: FilesetPlatformHelper | None = None
    domain: str | None = None
    platform_id: str | None = None
    item: FilesetPlatformItem | None = None
    landing: PlatformAnswer | None = None
    answers: list[ReceivedAnswer] = field(default_factory=list)
    strategy: IngestStrategy | None = None
    preferred: IngestStrategy | None = None
    files: list[FilesetManifestFile] = field(default_factory=list)
    done: ArchiveStrategyResult | None = None
    state: str = ""
    is_existing: bool = False
    withdrawn: str = ""

    def take(self, done: ArchiveStrategyResult) -> None:
        """Sets the result of a strategy."""
        self.files, self.done = done.manifest, done

    @property
    def bundle(self) -> FilesetManifestFile | None:
        """The enclosing file, if there is one."""
        return self.done.bundle if self.done is not None else None
