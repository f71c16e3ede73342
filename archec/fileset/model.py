"""What an ingest is asked, what a platform provides, and what a strategy did, with the names of the first proposal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from archec.catalogue.model import FilesetManifestFile as FilesetManifestFile


class IngestStrategy(str, Enum):
    """Where a data set goes, and in what form: ``BACKEND-ENTITY``."""

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
        """Whether the data set is one file."""
        return self in (IngestStrategy.WEB_FILE, IngestStrategy.ARCHIVEORG_FILE)

    @property
    def is_bundled(self) -> bool:
        """Whether one enclosing file is kept."""
        return self in (IngestStrategy.WEB_FILESET_BUNDLED, IngestStrategy.ARCHIVEORG_FILESET_BUNDLED)

    @property
    def on_web(self) -> IngestStrategy:
        """The same in the obi store."""
        return IngestStrategy(self.value.replace("archiveorg-", "web-"))


class IngestRequest(Struct, frozen=True):
    """One request. ``given`` is the request as it came, without secrets, which the result repeats; ``ext_ids`` are
    identifiers such as the DOI. ``options``: those of an earlier ingest, as journalled, in place of the run's."""

    base_url: str
    ingest_type: str = "dataset"
    ext_ids: Mapping[str, Any] = {}
    given: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}


class Resource(Struct, frozen=True):
    """A landing page: the URL to which its redirects led, status, headers (lower-case names) and bytes."""

    terminal_url: str
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


class FilesetPlatformItem(Struct, frozen=True, kw_only=True):
    """One version of one data set, as its platform tells of it.

    ``platform_id`` names the version, ``work_id`` all versions together; ``version`` is the platform's word for it, and
    of two versions the newer one has the greater ``order`` (empty: they cannot be compared). ``published`` is a tist,
    0 if it is not known. ``web_bundle_url`` is one download for everything; ``bundle_only``: there is no other.
    ``cite_as`` is the URL under which it is to be cited, if the landing page says so; ``work_doi`` is the DOI of all
    versions together, if that is not the id itself.
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
    def file_count(self) -> int:
        """The number of files."""
        return len(self.manifest or ())

    @property
    def total_size(self) -> int:
        """The sum of the sizes that are known, in bytes."""
        return sum(file.size or 0 for file in self.manifest or ())

    @property
    def largest_size(self) -> int:
        """The greatest of the sizes that are known, in bytes."""
        return max((file.size or 0 for file in self.manifest or ()), default=0)


class ArchiveStrategyResult(Struct, frozen=True, kw_only=True):
    """What a strategy did. ``file_*`` are of the only file of a ``*-file`` strategy, ``bundle_*`` of the enclosing
    one, where they are held; ``archiveorg_item_name`` is the item that holds all of it, too."""

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
