"""WACZ files: an index and WARC files in one zip file. The index is extracted once; records are read in place.

The sizes in a zip file are not trusted: its directory, which is read into memory, and its index are limited.
"""

from __future__ import annotations

import io
import lzma
import os
import shutil
import struct
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from archec.access.errors import MayBlock, SourceFailed
from archec.access.index_files import ENDINGS, MAX_UNPACKED, IndexFile, Stamp, stamp_of
from archec.access.index_folders import SUMMARIES, FileSource
from archec.access.loading import WarcPlace
from archec.access.query import Query
from archec.access.rows import Row
from archec.access.sources import Errors
from archec.archive.opening import temporary_folder
from archec.errors import StorageFailed

_INDEXES = "indexes/"
_ARCHIVE = "archive/"
_FAULTS = (
    OSError, zipfile.BadZipFile, RuntimeError, EOFError, ValueError, OverflowError, struct.error, zlib.error,
    lzma.LZMAError, StorageFailed,
)  # fmt: skip
_PACKED = -1
_PREFIX = "archec-wacz-"
_MAX_DIRECTORY = 16 << 20
"""Maximum size in bytes of the directory of a zip file: about 100,000 files."""


class WaczSource(FileSource):
    """The index of a WACZ file, in a directory into which it is extracted: each of its folders into one of its own."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, "wacz", path, path)
        self._wacz, self._fault = path, ""
        self._folders: list[FileSource] = []
        self._stamp: Stamp | None = None
        self._extracted = ExitStack()
        self._lock = threading.Lock()

    def parts(self, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        if at_once:  # the index may have to be extracted
            raise MayBlock
        return super().parts(query, errors)

    def faults(self) -> Iterable[str]:
        return [self._fault] if self._fault else [fault for one in self._folders for fault in one.faults()]

    def close(self) -> None:
        self._extracted.close()

    def _present(self, errors: Errors) -> list[IndexFile]:
        """The files of the index, which is extracted once. If that fails, it is not tried again until the WACZ file
        changes."""
        with self._lock:
            try:
                stamp = stamp_of(os.stat(self._wacz))
            except OSError as error:
                errors[self.name] = f"{self.name}: cannot be read: {error.strerror}"
                return []
            if stamp != self._stamp:
                self._fault, self._stamp = "", stamp
                try:
                    self._extract()
                except _FAULTS as error:
                    cause = error.__cause__ or error  # an OSError, perhaps
                    reason = getattr(cause, "strerror", None) or error  # without the path
                    self._fault = f"{self.name}: is not a readable WACZ file: {reason}"
        if self._fault:
            errors[self.name] = self._fault
            return []
        return [file for one in self._folders for file in one._present(errors)]

    def _extract(self) -> None:
        self.close()
        root = self._extracted.enter_context(temporary_folder(Path(tempfile.gettempdir()), _PREFIX))
        folders: dict[str, Path] = {}
        with _LimitedReads(self._wacz) as wacz, zipfile.ZipFile(wacz) as packed:
            entries = [one for one in packed.infolist() if one.filename.startswith(_INDEXES)]
            entries = [one for one in entries if one.filename.endswith((*ENDINGS, *SUMMARIES))]
            if sum(one.file_size for one in entries) > MAX_UNPACKED:  # zipfile reads no more than the stated size
                raise zipfile.BadZipFile(f"its index is larger than {MAX_UNPACKED} bytes when it is unpacked")
            for entry in entries:
                parent, _, name = entry.filename.rpartition("/")
                folder = folders.setdefault(parent, root / str(len(folders)))
                folder.mkdir(exist_ok=True)
                with packed.open(entry) as inner, open(folder / name, "wb") as out:
                    shutil.copyfileobj(inner, out, 1 << 20)
        self._folders = [FileSource(self.name, "wacz", one, self._wacz) for one in folders.values() or [root]]


class WaczResolver:
    """The WARC files of a WACZ file. See :class:`archec.access.loading.WarcResolver`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._offsets: dict[str, int] = {}

    def places(self, filename: str) -> Sequence[WarcPlace]:
        try:
            stamp = stamp_of(os.stat(self._path))
            if stamp != self._stamp:
                self._offsets, self._stamp = _offsets(self._path), stamp
        except _FAULTS as error:
            raise SourceFailed(f"{self._path.name}: the WACZ file cannot be read") from error
        offset = self._offsets.get(filename.removeprefix(_ARCHIVE))
        if offset == _PACKED:
            raise SourceFailed(f"{filename} is compressed in {self._path.name}, where it must be stored as it is")
        return [WarcPlace(str(self._path), offset)] if offset is not None else []


class _LimitedReads(io.FileIO):
    """A file that refuses large reads."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory is larger than {_MAX_DIRECTORY} bytes")
        return super().read(size) or b""


def _offsets(path: Path) -> dict[str, int]:
    """The offset of each WARC file in a zip file; _PACKED for those that are compressed."""
    found: dict[str, int] = {}
    with _LimitedReads(path) as wacz, zipfile.ZipFile(wacz) as packed, open(path, "rb") as file:
        for entry in packed.infolist():
            if entry.filename.startswith(_ARCHIVE):
                file.seek(entry.header_offset + 26)
                name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
                begin = entry.header_offset + 30 + name + extra
                is_stored = entry.compress_type == zipfile.ZIP_STORED
                found[entry.filename.removeprefix(_ARCHIVE)] = begin if is_stored else _PACKED
    return found
