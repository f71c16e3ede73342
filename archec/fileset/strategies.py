"""Strategies: how the files of a data set are fetched and stored. ``check_existing`` comes before any download."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence

from msgspec.structs import replace

from archec.catalogue.model import FilesetManifestFile
from archec.config import FilesetConfig
from archec.fileset.archiveorg_items import ItemFile, differing
from archec.fileset.checksums import Checksums, mismatch
from archec.fileset.context import Work
from archec.fileset.download import PAGE
from archec.fileset.fetching import fetch_all
from archec.fileset.interior import BROKEN, Bounds, OutOfBounds, interior
from archec.fileset.lookup import capture_of, fileset_of, held_version, open_file
from archec.fileset.manifest import as_kept, is_whole, safe_path, set_safe_paths
from archec.fileset.model import ArchiveStrategyResult, FilesetPlatformItem, IngestStrategy
from archec.fileset.platforms.base import MOST_FILES, FilesetPlatformHelper, manifest_file
from archec.fileset.redaction import public_files, public_url
from archec.fileset.status import PlatformRestrictedError, Status, UploadFailed, overall
from archec.units import counted


class FilesetIngestStrategy(ABC):
    """A strategy for one data set. The files of an ``item`` have the URLs to request; those in results have URLs
    without signatures and tokens."""

    def __init__(
        self, work: Work, strategy: IngestStrategy, helper: FilesetPlatformHelper | None, limits: FilesetConfig
    ) -> None:
        self.work, self.strategy, self.helper, self.limits = work, strategy, helper, limits

    @abstractmethod
    async def check_existing(self, item: FilesetPlatformItem) -> ArchiveStrategyResult | None:
        """Returns the held version, if nothing more of it can be fetched; else None."""

    @abstractmethod
    async def process(self, item: FilesetPlatformItem) -> ArchiveStrategyResult:
        """Fetches, verifies and stores what is not held."""

    def _existing(
        self, item: FilesetPlatformItem, files: Sequence[FilesetManifestFile] | None
    ) -> ArchiveStrategyResult | None:
        """Returns the last noted state of this version, if it has these files. ``files`` None: the last one with a
        bundle, if another one could add none of its files."""
        archive = self.work.archive
        held = held_version(archive, fileset_of(archive, item), item, bundled=files is None)
        if held is None:
            return None
        rows = archive.catalogue.manifest(held.state)
        if files is None:
            kept: list[FilesetManifestFile] | None = list(rows)
            closed = {(file.path, file.status) for file in item.manifest or () if file.status is not None}
        else:
            kept = as_kept(files, filter(self.work.options.selection.wants, rows))
        if kept is None or (files is None and not all(_is_final(file, closed) for file in kept)):
            return None
        message = _first_failure(kept)
        status = Status.SUCCESS_PARTIAL if message else Status.SUCCESS_EXISTING
        return self._result(status, kept, message, held.heading.bundle, held.state)

    def _result(
        self, status: Status, files: list[FilesetManifestFile], message: str,
        bundle: FilesetManifestFile | None = None, state: str = "",
    ) -> ArchiveStrategyResult:  # fmt: skip
        """Builds the result, with the capture of the data file or the bundle if it is held."""
        done = ArchiveStrategyResult(
            ingest_strategy=self.strategy.value, status=status.value, manifest=files, bundle=bundle, state=state,
            message=message,
        )  # fmt: skip
        file = files[0] if self.strategy.is_file and files else bundle
        if file is None or not is_whole(file):
            return done
        self.work.commits.commit()  # capture_of reads the catalogue
        found = capture_of(self.work.archive.catalogue, file, self.work.run)
        what = "bundle" if file is bundle else "file"
        return replace(done, **{f"{what}_{name}": getattr(found, name) for name in found.__struct_fields__})


class WebStrategy(FilesetIngestStrategy):
    """Stores each file on its own in the obi store."""

    async def check_existing(self, item: FilesetPlatformItem) -> ArchiveStrategyResult | None:
        """Returns the held version, if the platform still lists the same files and all that can be fetched are held."""
        return self._existing(item, public_files(item.manifest or []))

    async def process(self, item: FilesetPlatformItem) -> ArchiveStrategyResult:
        """Fetches the files that are not held."""
        urls = [file.platform_url or "" for file in item.manifest or ()]
        listed = public_files(item.manifest or [])
        files = await fetch_all(self.work, self.helper, listed, urls, self.limits)
        return self._result(overall(files, single=self.strategy.is_file), files, _first_failure(files))


class WebBundledStrategy(FilesetIngestStrategy):
    """Stores the platform's single download of all files as it is. The files in it are the manifest."""

    async def check_existing(self, item: FilesetPlatformItem) -> ArchiveStrategyResult | None:
        """Returns the held version, if all files of its bundle are held. Bundles themselves are not compared, since a
        platform may create different bytes for each request."""
        return self._existing(item, None)

    async def process(self, item: FilesetPlatformItem) -> ArchiveStrategyResult:
        """Fetches the bundle and reads the files in it."""
        url = item.web_bundle_url or ""
        row = manifest_file("bundle", None, Checksums(), public_url(url))
        (bundle,) = await fetch_all(self.work, self.helper, [row], [url], self.limits)
        if not is_whole(bundle):
            extra = bundle.extra or {}
            if extra.get("received") == PAGE:
                raise PlatformRestrictedError("received a page instead of the bundle: it requires a login")
            status = Status(bundle.status or Status.NOT_PROCESSED.value)
            return self._result(status, [], f"the bundle: {extra.get('error') or status}")
        bounds = Bounds(min(self.limits.max_file_count, MOST_FILES), self.limits.max_total_size)
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._read, bundle, bounds)
        except OutOfBounds as error:
            return self._result(error.status, [], f"the bundle has {error}")
        except BROKEN as error:
            return self._result(Status.BUNDLE_INCOMPLETE, [], f"the bundle cannot be read: {str(error)[:300]}")
        set_safe_paths(found)
        files = _compared(item.manifest or [], found)
        lacking = [file for file in files if file.status == Status.BUNDLE_INCOMPLETE]
        status = Status.BUNDLE_INCOMPLETE if lacking else overall(files, single=False)
        message = _first_failure(files)
        if lacking:
            message = f"the bundle lacks {counted(len(lacking), 'file')}: {lacking[0].path[:200]}"
        return self._result(status, files, message, bundle)

    def _read(self, bundle: FilesetManifestFile, bounds: Bounds) -> list[FilesetManifestFile]:
        with open_file(self.work.archive, bundle) as stream:
            return interior(self.work.readable(stream), bounds)


class ArchiveOrgStrategy(FilesetIngestStrategy):
    """Stores a data set in the obi store, and uploads it from there to an item of archive.org. Files in an item are
    never overwritten."""

    async def check_existing(self, item: FilesetPlatformItem) -> ArchiveStrategyResult | None:
        """Returns the held version, if the obi store has all that can be fetched, and the item has all of that."""
        held = await self._in_store().check_existing(item)
        if held is None or self.work.items is None:
            return None
        wanted = _uploads(item, held)
        if not _is_archiveorg_item(item):
            try:
                there = await self.work.items.files(item.archiveorg_item_name or "")
            except UploadFailed:
                return None
            if differing({path: _as_sent(file) for path, file in wanted.items()}, there):
                return None
        return self._uploaded(item, held)

    async def process(self, item: FilesetPlatformItem) -> ArchiveStrategyResult:
        """Fetches the files that are not held, then uploads those that the item lacks."""
        done = replace(await self._in_store().process(item), ingest_strategy=self.strategy.value)
        if not done.status.startswith("success"):
            return done
        self.work.commits.commit()  # uploads are read from the store
        try:
            if not _is_archiveorg_item(item):
                await self._upload(item, _uploads(item, done))
        except UploadFailed as problem:
            return replace(done, status=problem.status.value, message=problem.message)
        return self._uploaded(item, done)

    def _in_store(self) -> FilesetIngestStrategy:
        return helper_for(self.strategy.on_web)(self.work, self.strategy.on_web, self.helper, self.limits)

    async def _upload(self, item: FilesetPlatformItem, files: Mapping[str, FilesetManifestFile]) -> None:
        """Uploads the files that the item lacks. Raises UploadFailed, also if it does not list them afterwards."""
        items, name = self.work.items, item.archiveorg_item_name
        if items is None or not name:
            raise UploadFailed("the data set has no name for an item")
        wanted = {path: _as_sent(file) for path, file in files.items()}
        there = await items.files(name)
        lacking = differing(wanted, there)
        if taken := next((path for path in lacking if path in there), None):
            raise UploadFailed(f"{name} has another file as {taken[:200]}, which is not replaced")
        headers = items.headers(item, sum(file.size or 0 for file in files.values()))
        for path in lacking:
            with open_file(self.work.archive, files[path]) as stream:
                await items.put(name, path, stream, files[path].size or 0, headers)
        if lacking:
            await items.shown(name, wanted)

    def _uploaded(self, item: FilesetPlatformItem, done: ArchiveStrategyResult) -> ArchiveStrategyResult:
        path = next(iter(_uploads(item, done))) if done.bundle is not None and not _is_archiveorg_item(item) else None
        return replace(
            done, ingest_strategy=self.strategy.value, archiveorg_item_name=item.archiveorg_item_name,
            bundle_archiveorg_path=path,
        )  # fmt: skip


def _is_archiveorg_item(item: FilesetPlatformItem) -> bool:
    """Whether the data set itself is an item of archive.org."""
    return item.platform_name == "archiveorg"


def _uploads(item: FilesetPlatformItem, done: ArchiveStrategyResult) -> dict[str, FilesetManifestFile]:
    """The files for the item by their paths in it: the bundle, or else the held files."""
    if done.bundle is not None:
        suffix = _SUFFIXES.get(done.bundle.mimetype or "", "")
        return {f"{item.archiveorg_item_name}{suffix}": done.bundle}
    return {safe_path(file): file for file in done.manifest if is_whole(file)}


def _as_sent(file: FilesetManifestFile) -> ItemFile:
    return ItemFile(file.size, file.md5)


_SUFFIXES = {
    "application/zip": ".zip", "application/x-tar": ".tar", "application/gzip": ".tar.gz",
    "application/x-bzip2": ".tar.bz2", "application/x-xz": ".tar.xz",
}  # fmt: skip


def helper_for(strategy: IngestStrategy) -> type[FilesetIngestStrategy]:
    """The class that implements a strategy."""
    if strategy is not strategy.on_web:
        return ArchiveOrgStrategy
    return WebBundledStrategy if strategy.is_bundled else WebStrategy


def _first_failure(files: Sequence[FilesetManifestFile]) -> str:
    """A message that names the first file that is not held, and why; empty if all are held."""
    failed = next((file for file in files if not is_whole(file)), None)
    extra = failed.extra or {} if failed is not None else {}
    return "" if failed is None else f"{failed.path[:200]}: {extra.get('error') or extra.get('why') or failed.status}"


def _is_final(file: FilesetManifestFile, closed: Container[tuple[str, str | None]]) -> bool:
    """Whether a file of a bundle is held, or would be as little in another one. ``closed`` are the paths and statuses
    of files that the platform does not give."""
    if is_whole(file) or file.status in (Status.UNSAFE_PATH, Status.NOT_PROCESSED):
        return True
    return (file.path, file.status) in closed


def _compared(
    listed: Sequence[FilesetManifestFile], found: Sequence[FilesetManifestFile]
) -> list[FilesetManifestFile]:
    """Compares the files in a bundle with those that the platform lists. Returns them, with the status of a mismatch if
    one of this path has other bytes, and then the listed files that the bundle lacks, both by path and by checksum:
    as ``bundle-incomplete``, unless the platform does not give them."""
    files, lacking = list(found), []
    places: dict[str, int] = {}
    for inner in (False, True):  # without the bundle's own directory, if there is no such path otherwise
        for number, file in enumerate(files):
            places.setdefault(file.path.partition("/")[2] if inner else file.path, number)
    sums = {digest for file in files for digest in _sums(file)}
    for file in listed:
        if not sums.isdisjoint(_sums(file)):
            continue
        place = places.get(file.path)
        if place is None:
            status = file.status or Status.BUNDLE_INCOMPLETE.value
            lacking.append(replace(file, status=status, platform_url=None))
        elif file.status is None and is_whole(files[place]):
            other = files[place]
            wrong = mismatch(file, other)
            files[place] = replace(other, status=wrong.value) if wrong is not None else other
    return [*files, *lacking]


def _sums(file: FilesetManifestFile) -> list[str]:
    return [digest for digest in (file.md5, file.sha1, file.sha256) if digest]
