"""A run's journal, appended batch by batch; each batch is complete or absent.

The journal is ``runs/<tist>.jsonl`` during the run and ``runs/<tist>.jsonl.gz`` when it has finished. Lines are JSON
texts. The last line of a batch is
``{"type":"batch","n":3,"lines":500,"stamp":1352481230,"prev":"...","sha256":"..."}``: the batch's number from 1 on, the
number of lines before this one that belong to it, the tist of writing, the sha256 of the previous batch, and the sha256
of all bytes of the plain batch before ``,"sha256"``. The batches of all runs form one chain (design, invariant 11); the
first ``prev`` is zeros. The catalogue is derived from the journals (invariant 3).

An interrupted run leaves a torn tail: data after the last valid batch that has no last line, or blocks of NULs that a
power failure kept from being written. It does not count, and is removed when writing continues. An interruption cannot
cause other damage, so that raises :class:`CorruptJournal`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from archec.closing import Closing
from archec.errors import CorruptArchive, CorruptJournal, StorageFailed
from archec.store.durable import Disk, armed, failure, fsync_dir, hit, open_directory, storage_errors, temporary_file
from archec.store.journal_reader import BATCH_PREFIX, MOST_BYTES, NO_BATCH, Scanner, open_plain
from archec.store.layout import Layout
from archec.store.writer import sweep_runs
from archec.tist import MAX_TIST

_LEVEL = 1
_CHUNK = 1 << 18
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalWriter(Closing):
    """Appends to the journal of one run; creates it, or reopens it if the run was interrupted.

    ``head`` is the sha256 of the archive's newest batch, to which the next one is chained; it is replaced by that of
    the journal's last batch, if it has any. Reopening removes a torn tail, whose size in bytes is ``torn``.
    ``batches`` is the number of the last batch; if the catalogue contains a later one, the journal is older than the
    catalogue. Raises :class:`CorruptJournal` for damage, :class:`CorruptArchive` if the run has already finished.
    """

    def __init__(self, layout: Layout, tist: int, *, head: str = NO_BATCH, disk: Disk | None = None) -> None:
        self.tist = tist
        self.head = head or NO_BATCH
        self.path = layout.runs / f"{tist}.jsonl"
        self.finished_path = layout.runs / f"{tist}.jsonl.gz"
        self.batches = 0
        self.torn = 0
        self._disk = disk or Disk()
        self._size = 0
        self._broken = False
        if os.path.lexists(self.finished_path):
            raise CorruptArchive(f"{self.finished_path}: this run has finished; nothing can be added to its journal")
        self._fd = self._open()

    def _open(self) -> int:
        with storage_errors(self.path):
            self.path.parent.mkdir(exist_ok=True)
            try:
                fd = os.open(self.path, _FLAGS)
            except FileNotFoundError:
                fd = os.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            self._recover(fd)
            fsync_dir(self.path.parent, disk=self._disk)
            fsync_dir(self.path.parent.parent, disk=self._disk)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _recover(self, fd: int) -> None:
        scanner = Scanner(self.path)
        for batch in scanner.batches():
            self.batches, self.head = batch.n, batch.sha256
        self._size = scanner.valid
        with storage_errors(self.path):
            self.torn = os.fstat(fd).st_size - scanner.valid
            if self.torn:
                self._disk.truncate(fd, scanner.valid, str(self.path))
                self._disk.fsync(fd, str(self.path))
            os.lseek(fd, scanner.valid, os.SEEK_SET)

    def append(self, lines: Iterable[bytes | str], stamp: int) -> int:
        """Appends one batch of JSON texts, durably, and returns its number. ``stamp`` is the tist of writing it.

        Without texts no batch is written, and the number of the last one is returned.

        Raises :class:`StorageFull` if there is no space: the journal is then unchanged, and the batch can be
        appended again. After :class:`StorageFailed` nothing more can be appended. Raises ValueError for a
        text that is empty, contains a line end, or looks like the end of a batch.
        """
        if self._broken or self._fd < 0:
            raise StorageFailed(f"{self.path}: cannot be appended to", hint="see the failure before this one")
        if os.fstat(self._fd).st_size != self._size:
            self._broken = True
            raise StorageFailed(
                f"{self.path}: was changed since the last append", hint="an append was interrupted before this one"
            )
        texts = [line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass") for line in lines]
        if not texts:
            return self.batches
        if not 0 <= stamp <= MAX_TIST:
            raise ValueError(f"{stamp} is not a tist")
        for text in texts:
            if not text or b"\n" in text or text.startswith(BATCH_PREFIX):
                raise ValueError(f"not a line of a journal: {text[:80]!r}")
        body = b"\n".join([*texts, b""])
        if len(body) > MOST_BYTES:
            raise StorageFailed(f"{self.path}: a batch of {len(body)} bytes is too large")
        n = self.batches + 1
        head = f'"n":{n},"lines":{len(texts)},"stamp":{stamp},"prev":"{self.head}"'.encode()
        hashed = hashlib.sha256(body)
        hashed.update(BATCH_PREFIX + head)
        sha256 = hashed.hexdigest()
        data = b"".join((body, BATCH_PREFIX, head, b',"sha256":"', sha256.encode(), b'"}\n'))
        hit("journal.before-append")
        self._write(data)
        hit("journal.after-append")
        self.batches, self.head = n, sha256
        self._size += len(data)
        return n

    def _write(self, data: bytes) -> None:
        where = str(self.path)
        try:
            half = len(data) // 2 if armed("journal.mid-append") else 0
            if half:
                self._disk.write(self._fd, data[:half], where)
            hit("journal.mid-append")
            self._disk.write(self._fd, data[half:], where)
        except BaseException:  # removes a partly written batch; if that fails, reopening repairs it
            self._broken = True
            self._disk.truncate(self._fd, self._size, where)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            self._broken = False
            raise
        try:
            # The catalogue may follow only when this returns: it must never know more than the journals.
            self._disk.fdatasync(self._fd, where)
        except BaseException:
            # The kernel may drop data that it failed to write: nothing can be trusted after this.
            self._broken = True
            raise

    def finish(self) -> Path:
        """Finishes the journal: compresses, verifies and syncs it, then removes the plain form. Returns its new path.

        A kill in between leaves both forms, which :func:`tidy` cleans up.
        """
        if self._broken or self._fd < 0:
            raise StorageFailed(f"{self.path}: cannot be finished", hint="see the failure before this one")
        self.close()
        _pack(self.path, self.finished_path, self._disk)
        return self.finished_path

    def close(self) -> None:
        """Closes the file; the journal stays unfinished for a run that is resumed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd, str(self.path))


# -- the finished form -------------------------------------------------------------------------------


def _pack(plain: Path, packed: Path, disk: Disk) -> None:
    """Compresses ``plain`` to ``packed`` (gzip without a time stamp, so that the bytes are reproducible) and removes
    it."""
    folder = str(plain.parent)
    with open_directory(folder) as dir_fd:
        with temporary_file(disk, dir_fd, folder) as (fd, temp):
            with storage_errors(packed):
                _compress(plain, fd)
            disk.fsync(fd, str(packed))
            if not _agree(plain, plain.parent / temp, sys.maxsize):
                raise CorruptJournal(f"{plain}: its compressed form does not decompress to the same bytes")
            hit("journal.mid-finish")
            if disk.rename_noreplace(temp, dir_fd, packed.name, dir_fd, str(packed)) != "done":
                raise CorruptArchive(f"{packed}: already exists")
        # The new name must be durable before the old one is removed, or a power failure could lose both.
        disk.fsync_dir(dir_fd, folder)
        hit("journal.after-finish-rename")
        disk.unlink(plain.name, dir_fd, str(plain))
        disk.fsync_dir(dir_fd, folder)


def tidy(layout: Layout) -> int:
    """Cleans up after a kill in ``finish``: temporary files, and the plain form next to a finished one. That may also
    be the part that was there when the archive was copied during the run.

    Returns the number of removed files. Only while holding the run lock. Raises :class:`CorruptJournal` if the plain
    form has anything else; both then stay.
    """
    removed, disk = sweep_runs(layout), Disk()
    for packed in sorted(layout.runs.glob("*.jsonl.gz")):
        plain = packed.with_suffix("")
        if not plain.exists():
            continue
        if not has_all_of(packed, plain):
            hint = "'archec check --fix' moves it to quarantine if it is damaged or another run's, and the other whole"
            raise CorruptJournal(f"{plain}: differs from its finished form", hint=hint)
        with open_directory(layout.runs) as dir_fd:
            disk.fsync_dir(dir_fd, str(layout.runs))
            removed += disk.unlink(plain.name, dir_fd, str(plain))
    return removed


def _compress(plain: Path, fd: int) -> None:
    packing = isal_zlib.compressobj(_LEVEL, wbits=31)  # gzip, without a time stamp
    with open_plain(plain) as source, open(fd, "wb", closefd=False) as sink:
        while data := source.read(_CHUNK):
            sink.write(packing.compress(data))
        sink.write(packing.flush())


def has_all_of(packed: Path, plain: Path) -> bool | None:
    """Whether the compressed form is intact and begins with all batches of the plain one; None if that is damaged."""
    size = _valid(plain)
    return None if size is None else _agree(plain, packed, size)


def is_whole(path: Path) -> bool:
    """Whether a journal can be read to its end, of whichever form."""
    return _valid(path) is not None


def _valid(path: Path) -> int | None:
    """The bytes of all batches; None if the journal is damaged."""
    scanner = Scanner(path)
    try:
        for _ in scanner.batches():
            pass
    except CorruptJournal:
        return None
    return scanner.valid


def _agree(plain: Path, packed: Path, size: int) -> bool:
    """Whether the compressed form is intact and has the same first ``size`` bytes as the plain one."""
    try:
        with open_plain(plain, packed=False) as one, open_plain(packed, packed=True) as two:
            same = _hash(one, size) == _hash(two, size)
            _hash(two, sys.maxsize)  # to its end, where its checksum is
            return same
    except (CorruptJournal, EOFError, zlib.error, gzip.BadGzipFile):
        return False
    except OSError as error:
        raise failure(error, packed) from error


def _hash(file: BinaryIO, size: int) -> str:
    running = hashlib.sha256()
    while data := file.read(min(size, _CHUNK)):
        running.update(data)
        size -= len(data)
    return running.hexdigest()
