"""A cache of the current data set, so that the next run reads only what has changed.

It holds the status (size, times of change, inode) and the contents of each file that was read. If a run found nothing
new, it also holds a digest of all names and statuses in the directory, with which the next run detects that nothing
has changed. The cache is next to the scratch space of runs and may be deleted at any time: the next run then reads
everything. A file whose times are not older than the reading is not cached, because its status might not show a change
right after it was read (git treats such files in its index in the same way).
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import msgspec
from xxhash import xxh3_128, xxh3_128_hexdigest

from archec import __version__
from archec.archive.report import Report, RunReport
from archec.catalogue.documents import built, canonical
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet
from archec.config import Config
from archec.digest import sha256_hex
from archec.errors import DataSetError, StorageFailed, storage_errors, unreadable_directory
from archec.gather.options import Options
from archec.gather.spool import ChunkRead, SeenRow, line_of, row_of
from archec.redif.files import PART, Blob, template_names
from archec.redif.problems import Problem
from archec.redif.scan import RawTemplate, scan
from archec.redif.source import open_below, read_file
from archec.sqlite import Database, Role

_VERSION = 4
_SLACK_NS = 2_000_000_000
"""Minimum age of a file's times at the beginning of the reading: some file systems have clocks of two seconds."""
_MAX_DEPTH = 64
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, status BLOB NOT NULL, found BLOB NOT NULL) WITHOUT ROWID;
"""
_ROLE = Role("the cache of the current data set", StorageFailed, "delete it: the next run reads everything")
_PASSING = ("unreadable", "changed-while-reading", "truncated")
"""Codes of problems that may disappear although no status has changed."""
_found = msgspec.msgpack.Decoder(ChunkRead)
_status = struct.Struct("<qqqQQ").pack
_name = attrgetter("name")


def open_memory(config: Config, options: Options, catalogue: Catalogue, report: Report) -> DirectoryMemory | None:
    """The cache of ReDIF_directory. One that is unusable, or belongs to another archive, is replaced. If it cannot be
    written, adds a problem to the report and returns None; then all files are read."""
    path = _path(config)
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return DirectoryMemory(path, config, options, catalogue)
        except StorageFailed:
            for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                name.unlink(missing_ok=True)
            return DirectoryMemory(path, config, options, catalogue)
    except (StorageFailed, OSError) as error:
        message = f"all files are read, as {_ROLE.name} cannot be written ({error}): make its directory writable"
        report.problem(Problem(str(path), 0, "not-remembered", message))
        return None


def memory_to_read(config: Config, options: Options, catalogue: Catalogue) -> DirectoryMemory | None:
    """The cache, opened read-only for a dry run; None if it is unusable."""
    try:
        return DirectoryMemory(_path(config), config, options, catalogue, read_only=True)
    except StorageFailed:
        return None


def _path(config: Config) -> Path:
    return config.memory("reading.sqlite")


class DirectoryMemory(Database):
    """The cache described in the module. :meth:`keep` commits what was written; closing rolls back the rest. With
    ``read_only`` nothing is written, and StorageFailed is raised if the cache would have to be replaced."""

    def __init__(
        self, path: Path, config: Config, options: Options, catalogue: Catalogue, *, read_only: bool = False
    ) -> None:
        super().__init__(path, _ROLE, create=not read_only, read_only=read_only)
        self._root, self._max_file, self._catalogue = config.data_path, config.max_template_file, catalogue
        self._counts = template_names(options.template_files)
        self._began = time.time_ns()
        self._racy = self._began - _SLACK_NS
        self._pending: dict[str, bytes] = {}
        self._last = ("", b"")
        self._digest = ""
        try:
            with self.translated():
                if not read_only:
                    self.connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")
                self.connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
                about = {
                    "version": f"{_VERSION} {__version__}",
                    "root": f"{os.fsencode(self._root).hex()} {self._root.stat().st_dev}",
                    "rules": json.dumps([options.complete, options.template_files, self._max_file]),
                }
                now = self._began // 10**9
                since = int(self._about("since") or 0)
                known = {str(data_set.run) for data_set in catalogue.data_sets()}
                same = all(self._about(key) == value for key, value in about.items())
                if options.reread or not same or self._about("run") not in known:
                    since = 0
                if not now - config.reread_after < since <= now:
                    if read_only:
                        raise StorageFailed(f"{path}: {_ROLE.name} was made with other rules")
                    self.connection.execute("DELETE FROM files")
                    self.connection.execute("DELETE FROM about")
                    self._store(**about, since=str(now))
        except BaseException as error:
            super().close()
            if isinstance(error, OSError):
                raise unreadable_directory(self._root, error) from error
            raise

    def close(self) -> None:
        """Closes the file; rolls back what was not committed."""
        with suppress(StorageFailed), self.translated():
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        super().close()

    # -- file by file -----------------------------------------------------------------------------

    def unchanged(self, path: str, status: os.stat_result) -> bool:
        """Whether a file has not changed since it was read; if so, :meth:`found` returns its contents."""
        self._pending.pop(path, None)
        if not stat.S_ISREG(status.st_mode) or status.st_size > PART:
            return False
        if max(status.st_mtime_ns, status.st_ctime_ns) >= self._racy:
            return False
        now = _status_of(status)
        rows = self.fetch("SELECT status, found FROM files WHERE path = ?", (os.fsencode(path),))
        if rows and rows[0][0] == now:
            self._last = (path, rows[0][1])
            return True
        self._pending[path] = now
        return False

    def found(self, path: str, member: int) -> ChunkRead:
        """The contents of the file last passed to :meth:`unchanged`. The texts of its templates are not in the spool,
        so its rows have 0 as their spool."""
        if self._last[0] != path:
            raise ValueError(f"{path} is not the file that was last passed to unchanged()")
        found = _found.decode(self._last[1])
        return found._replace(
            lines=[line_of(row_of(line)._replace(member=member, spool=0, start=0)) for line in found.lines],
            files=[file._replace(member=member) for file in found.files],
        )

    def remember(self, found: ChunkRead) -> None:
        """Records the contents of a file that was read completely."""
        path = found.files[0].path if len(found.files) == 1 else b""
        status = self._pending.pop(os.fsdecode(path), None)
        if status is not None and not self.read_only:
            with self.translated():
                self.connection.execute(
                    "INSERT OR REPLACE INTO files VALUES (?,?,?)", (path, status, msgspec.msgpack.encode(found))
                )

    def forget(self, path: str) -> None:
        """Drops the status of a file that could not be read."""
        self._pending.pop(path, None)

    def reread(self, row: SeenRow, folder: Path) -> SeenRow:
        """Appends the text of a cached template to the spool and returns its new row. Raises DataSetError if the file
        has changed since, StorageFull and StorageFailed."""
        templates = _scanned(self._root, row.path, self._max_file, self._began)
        text = templates[row.number].text if row.number < len(templates) else b""
        if sha256_hex(text) != row.sha256:
            path = self._root / os.fsdecode(row.path)
            raise DataSetError(f"{path}: changed while the data set was read", hint="gather again")
        path = folder / f"texts-{os.getpid()}"
        with storage_errors(path), path.open("ab") as texts:
            start = texts.tell()
            texts.write(text)
        return row._replace(spool=os.getpid(), start=start, size=len(text))

    # -- the directory as a whole -----------------------------------------------------------------

    def repeated(self, tist: int) -> RunReport | None:
        """Returns the report of the previous run if this one, whose data set has the date ``tist``, would find the
        same: nothing has changed in the directory or the known data sets, all of which are older, and that run found
        nothing new. Returns None if the directory must be read."""
        if any(known.tist > tist for known in self._catalogue.data_sets()):
            return None
        self._digest = self._digest_of_tree()
        settled = json.loads(self._about("settled") or "{}")
        if not self._digest or settled.get("digest") != self._digest:
            return None
        if settled.get("data_sets") != self._data_sets():
            return None
        return built(RunReport, settled["report"])

    def keep(self, report: Report) -> None:
        """Commits the cache after the run has merged the data set."""
        if self.read_only:
            return
        known = sorted(self._catalogue.data_sets(), key=lambda item: (item.tist, item.run))
        settled: dict[str, object] = {}
        if self._digest and _found_nothing_new(report, known):
            value = report.as_value() | {"seconds": {}}
            settled = {"digest": self._digest, "data_sets": self._data_sets(), "report": value}
        self._store(run=str(report.run), settled=json.dumps(settled))
        with self.translated():
            self.connection.execute("COMMIT")

    def _digest_of_tree(self) -> str:
        """A digest of all names and statuses; empty if one is unavailable or may hide a change."""
        running = xxh3_128()
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._add_names(running.update, root, "", 0)
            finally:
                os.close(root)
        except (OSError, _RacyFile):
            return ""
        return running.hexdigest()

    def _add_names(self, update: Callable[[bytes], None], directory: int, prefix: str, depth: int) -> None:
        counts, racy = self._counts, self._racy
        names, found = [prefix], list[object]()
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=_name):
                name = entry.name
                names.append(name)
                if entry.is_file(follow_symlinks=False) and counts(prefix + name):
                    status = entry.stat(follow_symlinks=False)
                    mtime, ctime = status.st_mtime_ns, status.st_ctime_ns
                    if ctime >= racy or mtime >= racy:
                        raise _RacyFile
                    found.append((status.st_size, mtime, ctime, status.st_ino, status.st_dev))
                elif entry.is_dir(follow_symlinks=False):
                    found.append("directory")
                    if depth < _MAX_DEPTH:
                        below = os.open(
                            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
                        )
                        try:
                            self._add_names(update, below, f"{prefix}{name}/", depth + 1)
                        finally:
                            os.close(below)
                else:
                    found.append("link" if entry.is_symlink() else "other")
        update(msgspec.msgpack.encode((os.fsencode("//".join(names)), found)))

    def _data_sets(self) -> str:
        """A digest of the known data sets."""
        known = sorted(self._catalogue.data_sets(), key=lambda item: (item.tist, item.run))
        return xxh3_128_hexdigest(b"".join(map(canonical, known)))

    # -- key and value ----------------------------------------------------------------------------

    def _about(self, key: str) -> str:
        rows = self.fetch("SELECT value FROM about WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else ""

    def _store(self, **values: str) -> None:
        with self.translated():
            self.connection.executemany("INSERT OR REPLACE INTO about VALUES (?,?)", values.items())


class _RacyFile(Exception):
    """Raised for a file whose times are not older than the reading."""


def _status_of(status: os.stat_result) -> bytes:
    return _status(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def _found_nothing_new(report: Report, known: list[DataSet]) -> bool:
    """Whether a run found the same as the previous one, so that reading the same data set again gives nothing new.

    In that case the unreadable files are also the same, and do not affect the next run.
    """
    changed = any(count for kind, count in report.tobis.items() if kind != "same")
    passing = any(report.problem_counts[code] for code in _PASSING)
    if changed or passing or report.conflicts or report.held_back or len(known) < 2:
        return False
    return known[-1].run == report.run and known[-1].coverage == known[-2].coverage


@lru_cache(maxsize=8)
def _scanned(root: Path, path: bytes, max_file: int, reading: int) -> list[RawTemplate]:
    """The templates of a file, read again. ``reading`` only separates the cached results of different runs."""
    try:
        file = open_below(root, os.fsdecode(path))
    except OSError as error:
        raise DataSetError(f"{root / os.fsdecode(path)}: {error.strerror}") from error
    try:
        items = list(read_file(file, os.fstat(file), os.fsdecode(path), 0, max_file))
    finally:
        os.close(file)
    return scan(items[0]).templates if len(items) == 1 and isinstance(items[0], Blob) else []

