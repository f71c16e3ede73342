"""Requests, data sets as platforms describe them, and results of strategies, with the names of the first proposal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from archec.catalogue.model import FilesetManifestFile as FilesetManifestFile
from archec.ids import FilesetId


class IngestStrategy(str, Enum):
    """Where a data set is stored, and in what form: ``BACKEND-ENTITY``."""

    WEB_FILE = "web-file"
    WEB_FILESET = "web-fileset"
    WEB_FILESET_BUNDLED = "web-fileset-bundled"
    ARCHIVEORG_FILE = "archiveorg-file"
    ARCHIVEORG_FILESET = "archiveorg-fileset"
    ARCHIVEORG_FILESET_BUNDLED = "archiveorg-fileset-bundled"

    def __str__(self) -> str:
        return self.value

    @property
    def is_file(self) -> bool:
        """Whether the data set is a single file."""
        return self in (IngestStrategy.WEB_FILE, IngestStrategy.ARCHIVEORG_FILE)

    @property
    def is_bundled(self) -> bool:
        """Whether one enclosing file is kept, such as a zip file."""
        return self in (IngestStrategy.WEB_FILESET_BUNDLED, IngestStrategy.ARCHIVEORG_FILESET_BUNDLED)

    @property
    def on_web(self) -> IngestStrategy:
        """The same strategy for the obi store."""
        return IngestStrategy(self.value.replace("archiveorg-", "web-"))


class IngestRequest(Struct, frozen=True):
    """One request. ``ext_ids`` are identifiers such as the DOI. ``given`` is the request as received, without secrets,
    for the result. ``options`` are the journalled options of an earlier ingest; they replace those of the run.
    ``identifier`` is the DOI or handle that ``base_url`` was resolved from."""

    base_url: str
    ingest_type: str = "dataset"
    ext_ids: Mapping[str, Any] = {}
    given: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    identifier: str = ""


class Resource(Struct, frozen=True):
    """A landing page: the URL after all redirects, the status, headers (with lower-case names) and body."""

    terminal_url: str
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


class FilesetPlatformItem(Struct, frozen=True, kw_only=True):
    """One version of one data set, as its platform describes it.

    ``platform_id`` identifies the version, ``work_id`` all versions together. ``version`` is the platform's name of the
    version; the newer of two versions has the greater ``order`` (empty: they cannot be compared). ``published`` is a
    tist, 0 if unknown. ``web_bundle_url`` is a single download of all files; ``bundle_only``: files cannot be
    downloaded one by one. ``cite_as`` is the URL for citations, if the landing page states one. ``work_doi`` is the DOI
    of all versions together, if that is not the id itself.
    """

    platform_name: str
    platform_status: str = "success"
    platform_domain: str | None = None
    platform_id: str | None = None
    manifest: list[FilesetManifestFile] | None = None
    archiveorg_item_name: str | None = None
    archiveorg_item_meta: dict[str, Any] | None = None
    web_base_url: str | None = None
    web_bundle_url: str | None = None
    work_id: str = ""
    version: str = ""
    order: tuple[int, ...] = ()
    published: int = 0
    title: str = ""
    bundle_only: bool = False
    cite_as: str = ""
    work_doi: str = ""

    @property
    def fileset(self) -> FilesetId:
        """The id of the fileset, with this version."""
        work = self.work_id or self.platform_id or "-"
        return FilesetId(self.platform_name, self.platform_domain or "-", work, self.version)

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self.manifest or ())

    @property
    def total_size(self) -> int:
        """The sum of the known sizes, in bytes."""
        return sum(file.size or 0 for file in self.manifest or ())

    @property
    def largest_size(self) -> int:
        """The largest known size, in bytes."""
        return max((file.size or 0 for file in self.manifest or ()), default=0)


class ArchiveStrategyResult(Struct, frozen=True, kw_only=True):
    """The result of a strategy. ``file_*`` describe the file of a ``*-file`` strategy, ``bundle_*`` the enclosing file
    of a ``*-bundled`` one, if they are held. ``archiveorg_item_name`` is the item that holds all of it as well."""

    ingest_strategy: str
    status: str
    manifest: list[FilesetManifestFile]
    file_file_meta: dict[str, Any] | None = None
    file_terminal: dict[str, Any] | None = None
    file_cdx: dict[str, Any] | None = None
    file_revisit_cdx: dict[str, Any] | None = None
    bundle_file_meta: dict[str, Any] | None = None
    bundle_terminal: dict[str, Any] | None = None
    bundle_cdx: dict[str, Any] | None = None
    bundle_revisit_cdx: dict[str, Any] | None = None
    bundle_archiveorg_path: str | None = None
    bundle: FilesetManifestFile | None = None
    archiveorg_item_name: str | None = None
    state: str = ""
    message: str = ""
