"""What an ingest works with, what it was asked to do, and what it has found so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from archec.archive.commit import CommitItem, Commits
from archec.archive.ledger import Ledger
from archec.archive.opening import Archive
from archec.catalogue.model import FilesetManifestFile
from archec.fileset.asking import Asker
from archec.fileset.download import Downloader
from archec.fileset.items import Items
from archec.fileset.manifest import Selection
from archec.fileset.model import ArchiveStrategyResult, FilesetPlatformItem, IngestStrategy
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    PlatformAnswer,
)
from archec.fileset.platforms.registry import Registry
from archec.fileset.records import Body
from archec.fileset.strategy_choice import StrategyPolicy
from archec.store.writer import Writer


class IngestOptions(Struct, frozen=True, omit_defaults=True):
    """What an ingest was asked to do. ``max_total`` is bytes."""

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
    def selection(self) -> Selection:
        """The files that are wanted."""
        return Selection(self.include, self.exclude)

    def as_value(self) -> dict[str, Any]:
        """As the journal keeps them."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> IngestOptions:
        """From what the journal keeps."""
        return msgspec.convert(value, cls)


@dataclass(slots=True)
class Work:
    """What an ingest works with. ``commits`` drops everything in a dry run; ``items`` is None if nothing is to be
    uploaded; ``kept`` is called with what was kept. ``refused``: ids and sha256 of what could not be stored, as other
    bytes are held there."""

    archive: Archive
    run: int
    commits: Commits
    writer: Writer | None
    ledger: Ledger | None
    asker: Asker
    downloader: Downloader | None
    registry: Registry
    policy: StrategyPolicy
    options: IngestOptions
    items: Items | None = None
    kept: Callable[[CommitItem, Body], None] = lambda item, body: None
    busy: dict[str, asyncio.Lock] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True)
class Found:
    """What is known of a request so far. ``domain`` and ``platform_id`` are those of a data set without an ``item``."""

    url: str = ""
    helper: FilesetPlatformHelper | None = None
    domain: str | None = None
    platform_id: str | None = None
    item: FilesetPlatformItem | None = None
    landing: PlatformAnswer | None = None
    answers: list[PlatformAnswer] = field(default_factory=list)
    strategy: IngestStrategy | None = None
    preferred: IngestStrategy | None = None
    files: list[FilesetManifestFile] = field(default_factory=list)
    done: ArchiveStrategyResult | None = None
    state: str = ""
    is_existing: bool = False

    def take(self, done: ArchiveStrategyResult) -> None:
        """The result of a strategy."""
        self.files, self.done = done.manifest, done

    @property
    def bundle(self) -> FilesetManifestFile | None:
        """The enclosing file, where there is one."""
        return self.done.bundle if self.done is not None else None
