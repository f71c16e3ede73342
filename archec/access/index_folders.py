"""Local index files as a source: one file, or a directory, which is listed again when it has changed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from archec.access.errors import MayBlock, SourceFailed
from archec.access.index_files import ENDINGS, IndexFile, SortedFile, newer_of
from archec.access.ordering import first_of_each, merge_rows, ordered_rows
from archec.access.query import Query
from archec.access.rows import Row, RowOrigin
from archec.access.sources import Errors, LocalSource, guarded
from archec.access.zipnum import ZipNumFile

SUMMARIES = (".idx", ".summary")
"""The endings of names of summaries of ZipNum indexes."""
_MAX_OPEN = 200
"""Number of files of a directory that stay open between queries."""
_SETTLED = 2.0
"""Age in seconds from which a directory's mtime accounts for all changes: file systems record it with a coarse
resolution."""


class FileSource(LocalSource):
    """An index file, or a directory of them. ``packed`` is the file that they were extracted from, if any."""

    def __init__(self, name: str, type_: str, path: Path, packed: Path | None = None) -> None:
        super().__init__(name)
        self.type = type_
        self._path, self._packed = path, packed
        self._newer = newer_of(path) if type_ == "file" and path.name.endswith(".cdxj") else None
        self._files: dict[str, IndexFile] = {}
        self._listed = (-1, 0.0)

    def parts(self, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        found: dict[Path, Iterator[Row]] = {}
        files = self._present(errors)
        if at_once and len(files) > _MAX_OPEN:
            raise MayBlock
        for number, file in enumerate(files):
            try:
                lines, read = file.lines(at_once=at_once)
                rows = ordered_rows(lines, read, RowOrigin(file.name, self.name, self.type), query)
                found[file.path] = guarded(rows, file.name, errors)
            except SourceFailed as error:
                errors[file.name] = error.message
            if number >= _MAX_OPEN:
                file.forget()
        has_newer = len(found) > 1 and any(path.name.endswith(",new.cdxj") for path in found)
        for path in [one for one in found if one.suffix == ".cdxj"] if has_newer else ():
            if (newer := newer_of(path)) in found:
                found[path] = first_of_each(merge_rows([found.pop(newer), found[path]], query), attrgetter("line"))
        return list(found.values())

    def prepare(self) -> None:
        for number, file in enumerate(self._present(Errors())):
            with suppress(SourceFailed):  # faults() reports it
                file.opened()
            if number >= _MAX_OPEN:
                file.forget()

    def faults(self) -> Iterable[str]:
        """The faults of its files. An empty directory is not a fault: every answer reports it."""
        return [file.fault for file in list(self._files.values()) if file.fault]

    def largest(self, query: Query) -> tuple[SortedFile, bool] | None:
        """The file with the most data in the range of a query, and whether it is the summary of a ZipNum index. Pages
        are cut by it. None if no file can be read."""
        best: tuple[SortedFile, bool] | None = None
        most = -1
        for file in self._present(Errors()):
            try:
                lines, _ = file.opened()
                size = lines.find(query.range.end) - lines.find(query.range.start)
            except SourceFailed:
                continue
            if size > most:
                best, most = (lines, isinstance(file, ZipNumFile)), size
        return best

    def _present(self, errors: Errors) -> list[IndexFile]:
        try:
            status = os.stat(self._path)
        except OSError as error:
            errors[self.name] = f"{self.name}: cannot be read: {error.strerror}"
            return []
        if not stat.S_ISDIR(status.st_mode):
            paths = [self._path]
            if self._newer is not None and os.path.exists(self._newer):
                paths.insert(0, self._newer)
            for path in paths:
                if path.name not in self._files:
                    self._files[path.name] = self._file(path, self.name)
            return [self._files[path.name] for path in paths]
        if self._listed[0] != status.st_mtime_ns or self._listed[1] < status.st_mtime + _SETTLED:
            try:
                self._list(status)
            except OSError as error:
                errors[self.name] = f"{self.name}: cannot be read: {error.strerror}"
                return []
        if not self._files:
            below = "; its directory indexes has" if os.path.isdir(self._path / "indexes") else ""
            errors[self.name] = f"{self.name}: the directory has no index files{below}"
        return list(self._files.values())

    def _list(self, status: os.stat_result) -> None:
        endings = (*ENDINGS, *SUMMARIES)
        names = {entry.name for entry in os.scandir(self._path) if entry.name.endswith(endings) and _may_be_file(entry)}
        if any(name.endswith(SUMMARIES) for name in names):  # compressed files are the blocks of a ZipNum index
            names = {name for name in names if not name.endswith(".gz")}
        self._files = {
            name: self._files.get(name) or self._file(self._path / name, f"{self.name}:{name}")
            for name in sorted(names)
        }
        self._listed = (status.st_mtime_ns, time.time())

    def _file(self, path: Path, name: str) -> IndexFile:
        if self.type == "zipnum" or path.name.endswith(SUMMARIES):
            return ZipNumFile(path, name, self._packed and self._packed / path.name)
        return IndexFile(path, name, shown_path=self._packed and self._packed / path.name)


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file, or a link whose target cannot be found, which is an error once it is opened."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True
