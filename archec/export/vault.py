"""The vault: the directory of an export, laid out like a collection of pywb.

::

    vault.json                         what this directory is
    archive/aaa/aaa+sss+00001.warc.gz  records of a series; files are added and never changed
    indexes/aaa+sss.cdxj               its index, sorted; always complete, and names complete files only
    lock                               held by the export that works here

The index is the only record of exports: what is in it has been exported. A WARC file that no index names was left by a
killed export; the next one replaces it.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, cast

from warcio.recordloader import ArcWarcRecord
from warcio.warcwriter import WARCWriter

from archec.errors import ConfigError, CorruptArchive, UsageError, storage_errors
from archec.export.units import Unit
from archec.files import open_file, read_file
from archec.store.durable import Disk, atomic_write, create_temp, hit, is_temp
from archec.store.layout import Layout
from archec.warc.cdxj import IndexLine, read_index
from archec.warc.records import WARC_VERSION

_DESCRIPTOR = "vault.json"
_VERSION = 1
_KNOWN = {_DESCRIPTOR, "archive", "indexes", "lock", "lost+found"}
_BUFFER = 1 << 20


class Vault(NamedTuple):
    """The directory of a vault."""

    root: Path

    def index_path(self, unit: Unit) -> Path:
        return self.root / "indexes" / f"{unit.name}.cdxj"

    def warc(self, unit: Unit, number: int) -> Path:
        return self.root / "archive" / unit.folder / f"{unit.name}+{number:05d}.warc.gz"

    def filename(self, path: Path) -> str:
        """The name of a WARC file in an index: its path below ``archive``."""
        return f"{path.parent.name}/{path.name}"

    def lines(self, unit: Unit) -> Iterator[IndexLine]:
        """The lines of the index, if there is one. Raises CorruptArchive if it is damaged."""
        path = self.index_path(unit)
        with storage_errors(path), suppress(FileNotFoundError), open_file(path) as file:
            yield from read_index(file, str(path))

    def next_number(self, unit: Unit) -> int:
        """The number of the next WARC file: one more than the greatest one in the index."""
        pattern = re.compile(re.escape(f"{unit.folder}/{unit.name}+").encode() + rb"([0-9]{5,9})\.warc\.gz")
        found = (pattern.fullmatch(line.filename) for line in self.lines(unit))
        return max((int(match[1]) for match in found if match is not None), default=0) + 1


class TempFile:
    """A file under a temporary name in its directory, until :meth:`publish` renames it durably.

    As a context manager it is removed unless it has been published. Raises StorageFull and StorageFailed.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        with ExitStack() as stack:
            with storage_errors(path.parent):
                self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, self._directory)
            self._fd, self._temp = create_temp(disk, self._directory, str(path.parent))
            self._stack = stack.pop_all()
        self._buffer = bytearray()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= _BUFFER:
            self.drain()
        return len(data)

    def flush(self) -> None:
        """Does nothing: warcio flushes after each record, and :meth:`finish` syncs once, at the end."""

    def drain(self) -> None:
        if self._buffer:
            self._disk.write(self._fd, self._buffer, str(self.path))
            self._buffer.clear()

    def cut(self, size: int) -> None:
        self.drain()
        self._disk.truncate(self._fd, size, str(self.path))
        os.lseek(self._fd, size, os.SEEK_SET)
        self.size = size

    def finish(self) -> None:
        """Syncs and closes the file, so that the many files of a large series are not all open. May be repeated."""
        if self._fd >= 0:
            self.drain()
            self._disk.fsync(self._fd, str(self.path))
            fd, self._fd = self._fd, -1
            self._disk.close(fd, str(self.path))

    def publish(self) -> None:
        """Renames the file, replacing a file that no index names."""
        self.finish()
        self._disk.replace(self._temp, self.path.name, self._directory, str(self.path))
        self._temp = ""
        self._disk.fsync_dir(self._directory, str(self.path.parent))

    def __enter__(self) -> TempFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            if self._fd >= 0:
                os.close(self._fd)
            if self._temp:
                self._disk.unlink(self._temp, self._directory, str(self.path))


class WarcFile:
    """A WARC file that is being written: complete records only, each a gzip member."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.temp = TempFile(path, disk)
        # warcio only calls write and flush of its output.
        self._writer = WARCWriter(cast(io.BufferedIOBase, self.temp), gzip=True, warc_version=WARC_VERSION)

    def write(self, record: ArcWarcRecord) -> tuple[int, int]:
        """Adds a record and closes its stream; returns offset and length of its gzip member. If that fails, nothing of
        the record is left in the file."""
        start = self.temp.size
        try:
            hit("export.mid-record")
            self._writer.write_record(record)
        except BaseException:
            self.temp.cut(start)
            raise
        finally:
            record.raw_stream.close()
        return start, self.temp.size - start


def open_vault(root: Path, store: Layout, *, dry: bool) -> Vault:
    """Opens the vault at ``root``, and creates it if it does not exist, unless ``dry``.

    Raises UsageError for a directory in the obi store; ConfigError for a directory that contains anything else and for
    a vault of another version.
    """
    root = root.absolute()
    if root.resolve() == store.root.resolve() or store.root.resolve() in root.resolve().parents:
        raise UsageError(f"{root}: is in the obi store", hint="use a directory outside it")
    with storage_errors(root):
        names = sorted(os.listdir(root)) if os.path.lexists(root) else []
        if _DESCRIPTOR in names:
            _check(root / _DESCRIPTOR)
        elif foreign := [name for name in names if name not in _KNOWN and not is_temp(name)]:
            raise ConfigError(
                f"{root}: is not a vault: it contains {foreign[0]!a}", hint="use an empty or a new directory"
            )
        if not dry:
            for folder in (root, root / "archive", root / "indexes"):
                folder.mkdir(parents=True, exist_ok=True)
            if _DESCRIPTOR not in names:
                text = {"type": "archec vault of WARC files", "version": _VERSION}
                atomic_write(root / _DESCRIPTOR, json.dumps(text, indent=2).encode() + b"\n")
    return Vault(root)


def sweep(vault: Vault) -> None:
    """Removes the temporary files of killed exports. The caller must hold the lock."""
    with storage_errors(vault.root):
        folders = [vault.root, vault.root / "indexes"]
        with os.scandir(vault.root / "archive") as entries:
            folders += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if is_temp(entry.name) and entry.is_file(follow_symlinks=False):
                        os.unlink(entry.path)


def _check(path: Path) -> None:
    with storage_errors(path):
        data = read_file(path)
    try:
        found = json.loads(data)
        version = found["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptArchive(f"{path}: is damaged", hint="docs/export.md has its contents") from error
    if version != _VERSION:
        raise ConfigError(f"{path}: a vault of version {version!a}; this archec knows version {_VERSION}")
