"""The finished form of a journal: compressed, read back, durable, before the plain form goes."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import BinaryIO

from archec.errors import CorruptJournal, Occupied
from archec.store.durable import Disk, create_temp, failure
from archec.store.failpoints import hit
from archec.store.journalfile import open_plain
from archec.store.layout import Layout
from archec.store.sweep import sweep_runs

_LEVEL = 3
_CHUNK = 1 << 18
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def pack(plain: Path, packed: Path, disk: Disk) -> None:
    """Compresses ``plain`` to ``packed`` (gzip, no time in it, so the same bytes each time); removes it."""
    try:
        dir_fd = os.open(plain.parent, _DIRECTORY)
    except OSError as error:
        raise failure(error, plain.parent) from error
    try:
        fd, temp = create_temp(disk, dir_fd, str(plain.parent))
        try:
            try:
                _compress(plain, fd)
                disk.fsync(fd, str(packed))
            except OSError as error:
                raise failure(error, packed) from error
            finally:
                os.close(fd)
            if not _same(plain, plain.parent / temp):
                raise CorruptJournal(f"{plain}: its compressed form does not read back the same")
            hit("journal.mid-finish")
            if disk.rename_noreplace(temp, dir_fd, packed.name, dir_fd, str(packed)) != "done":
                raise Occupied(f"{packed}: is there already")
        except BaseException:
            disk.unlink(temp, dir_fd, str(packed))
            raise
        disk.fsync_dir(dir_fd, str(plain.parent))
        hit("journal.after-finish-rename")
        disk.unlink(plain.name, dir_fd, str(plain))
        disk.fsync_dir(dir_fd, str(plain.parent))
    finally:
        os.close(dir_fd)


def tidy(layout: Layout) -> int:
    """Settles what a kill in ``finish`` left: temporary files, and the plain form beside a finished one.

    How many files it removed. Only for who holds the run lock. Raises :class:`CorruptJournal` where the
    two forms differ; both stay then.
    """
    removed = sweep_runs(layout)
    disk = Disk()
    if not layout.runs.is_dir():
        return removed
    for packed in sorted(layout.runs.glob("*.jsonl.gz")):
        plain = packed.with_suffix("")
        if not plain.exists():
            continue
        if not _same(plain, packed):
            raise CorruptJournal(f"{plain}: differs from its finished form beside it", hint="keep both and compare")
        try:
            dir_fd = os.open(plain.parent, _DIRECTORY)
        except OSError as error:
            raise failure(error, plain.parent) from error
        try:
            disk.fsync_dir(dir_fd, str(plain.parent))
            removed += disk.unlink(plain.name, dir_fd, str(plain))
        finally:
            os.close(dir_fd)
    return removed


def _compress(plain: Path, fd: int) -> None:
    with (
        open_plain(plain) as source,
        open(fd, "wb", closefd=False) as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as sink,
    ):
        while data := source.read(_CHUNK):
            sink.write(data)


def _same(plain: Path, packed: Path) -> bool:
    """Whether the packed form holds exactly the plain one's bytes."""
    try:
        with open_plain(plain, packed=False) as one, open_plain(packed, packed=True) as two:
            return _hash(one) == _hash(two)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    except OSError as error:
        raise failure(error, packed) from error


def _hash(file: BinaryIO) -> str:
    running = hashlib.sha256()
    while data := file.read(_CHUNK):
        running.update(data)
    return running.hexdigest()
