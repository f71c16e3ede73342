"""A run's journal, written and read batch by batch; each batch is complete or absent.

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

import errno
import gzip
import hashlib
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from isal import isal_zlib

from archec.closing import Closing
from archec.errors import (
    BrokenChain,
    ConfigError,
    CorruptArchive,
    CorruptJournal,
    StorageFailed,
    failure,
    storage_errors,
)
from archec.store.durable import Disk, armed, fsync_dir, hit, open_directory, temporary_file
from archec.store.layout import Layout
from archec.store.writer import sweep_runs
from archec.tist import MAX_TIST

BATCH_PREFIX = b'{"type":"batch",'
MOST_BYTES = 1 << 27
"""Maximum size of a batch in bytes, which bounds the memory for reading a damaged journal."""

NO_BATCH = "0" * 64
"""The head of the chain before the first batch of the archive."""

_END = re.compile(
    rb"(" + re.escape(BATCH_PREFIX) + rb'"n":([1-9][0-9]{0,17}),"lines":([1-9][0-9]{0,8}),"stamp":([0-9]{1,18})'
    rb',"prev":"([0-9a-f]{64})"),"sha256":"([0-9a-f]{64})"\}'
)
_VERSION_1 = re.compile(re.escape(BATCH_PREFIX) + rb'"n":[0-9]+,"lines":[0-9]+,"stamp":[0-9]+,"xxh3":"[0-9a-f]{32}"\}')
_BUFFER = 1 << 18
_TAIL = 1 << 18
_OPEN_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LEVEL = 1
_OPEN_TO_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalBatch(NamedTuple):
    """One batch: number, tist of writing, JSON texts without line ends, offset in the plain file, the sha256 of the
    previous batch in the archive, and its own sha256."""

    n: int
    stamp: int
    lines: list[bytes]
    offset: int
    prev: str
    sha256: str


def read_batches(path: Path) -> Iterator[JournalBatch]:
    """The batches of a journal in order, each checked; one batch in memory at a time.

    The torn tail of an unfinished journal is skipped. Raises :class:`CorruptJournal` with file and line for any other
    damage.
    """
    return Scanner(path).batches()


def newest_batch(path: Path) -> int:
    """The number of the last batch of an unfinished journal, read from its last bytes; unchecked.

    0 if there is none, because the journal is empty or has a long torn tail.
    """
    with storage_errors(path), open_plain(path, packed=False) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        tail = file.read(_TAIL)
    ends = [match for match in _END.finditer(tail) if tail[match.end() : match.end() + 1] == b"\n"]
    return int(ends[-1][2]) if ends else 0


def open_plain(path: Path, *, packed: bool | None = None) -> BinaryIO:
    """A journal's plain bytes, from either form (determined by its name, or by ``packed``); links are not followed. If
    the plain form is no longer there, because its run has ended, the compressed one is read."""
    try:
        fd = os.open(path, _OPEN_TO_READ)
    except OSError as error:
        if error.errno == errno.ENOENT and packed is None and path.suffix == ".jsonl":
            return open_plain(path.with_name(f"{path.name}.gz"))
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise CorruptJournal(f"{path}: is not a file") from error
        raise failure(error, path) from error
    status = os.fstat(fd)
    packed = path.name.endswith(".gz") if packed is None else packed
    if not stat.S_ISREG(status.st_mode) or (packed and not status.st_size):
        os.close(fd)
        raise CorruptJournal(f"{path}: {'is empty' if stat.S_ISREG(status.st_mode) else 'is not a file'}")
    raw = open(fd, "rb", buffering=_BUFFER)  # noqa: SIM115 - the caller closes it
    return cast(BinaryIO, io.BufferedReader(_Unpacked(raw), _BUFFER)) if packed else raw


class _Unpacked(gzip.GzipFile):
    """A gzip reader that closes the underlying file."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._raw_file = raw

    def close(self) -> None:
        super().close()
        self._raw_file.close()


class _End(NamedTuple):
    """The last line of a batch: its contents, its bytes before the hash, and its size with the line end."""

    n: int
    lines: int
    stamp: int
    prev: str
    sha256: str
    head: bytes
    size: int

    @classmethod
    def of(cls, match: re.Match[bytes], size: int) -> _End:
        return cls(int(match[2]), int(match[3]), int(match[4]), match[5].decode(), match[6].decode(), match[1], size)

    def fits(self, lines: list[bytes]) -> bool:
        """Whether these are the lines of its batch."""
        running = hashlib.sha256()
        for line in lines:
            running.update(line)
        running.update(self.head)
        return running.hexdigest() == self.sha256

    def closes(self, lines: list[bytes]) -> bool:
        """Whether a valid batch ends here, although lines before it may be damaged.

        It may follow a batch whose end is unreadable, or an end without a line end.
        """
        if self.lines > len(lines):
            return False
        own = lines[len(lines) - self.lines :]
        if self.fits(own):
            return True
        merged = _END.match(own[0])
        return merged is not None and self.fits([own[0][merged.end() + 1 :], *own[1:]])


class Scanner:
    """One pass over a journal. ``valid`` is the offset at which the last valid batch so far ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._finished = path.name.endswith(".gz")
        self.valid = 0

    def batches(self) -> Iterator[JournalBatch]:
        """See :func:`read_batches`."""
        try:
            with open_plain(self._path) as file:
                yield from self._scan(file)
        except CorruptJournal as error:
            error.path = self._path
            raise
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"{self._path}: after byte {self.valid} of its text: {error}"
            raise CorruptJournal(message, path=self._path) from error
        except OSError as error:
            raise failure(error, self._path) from error

    def _scan(self, file: BinaryIO) -> Iterator[JournalBatch]:
        number, n, head = 1, 1, ""
        while True:
            lines, end = self._next(file, number)
            if end is None:
                if lines:
                    whole_end = lines[-1].startswith(BATCH_PREFIX) and lines[-1].endswith(b"\n")
                    self._torn(number, lines, "the batch that begins here has no end", damaged=whole_end)
                return
            if end.lines != len(lines) or not end.fits(lines):
                self._damaged(file, number, lines, end)
                return
            if end.n != n or (head and end.prev != head):
                raise BrokenChain(
                    f"{self._path}:{number}: batch {end.n} does not follow batch {n - 1}: "
                    "a batch was removed, swapped or rewritten"
                )
            start = self.valid
            self.valid += sum(map(len, lines)) + end.size
            yield JournalBatch(n, end.stamp, [line[:-1] for line in lines], start, end.prev, end.sha256)
            head = end.sha256
            number += len(lines) + 1
            n += 1

    def _next(self, file: BinaryIO, number: int) -> tuple[list[bytes], _End | None]:
        """The lines up to the next end of a batch, and that end; None at the end of the journal."""
        lines: list[bytes] = []
        size = 0
        while line := file.readline(MOST_BYTES):
            if line.startswith(BATCH_PREFIX) and line.endswith(b"\n"):
                match = _END.fullmatch(line, 0, len(line) - 1)
                if match is not None:
                    return lines, _End.of(match, len(line))
                if _VERSION_1.fullmatch(line, 0, len(line) - 1):
                    raise ConfigError(
                        f"{self._path}: is a journal of version 1; this archec reads version 2",
                        hint="use the archec that wrote it, or create a new archive",
                    )
            lines.append(line)
            size += len(line)
            if size > MOST_BYTES:
                raise CorruptJournal(f"{self._path}:{number}: no batch ends within {MOST_BYTES} bytes of here")
        return lines, None

    def _damaged(self, file: BinaryIO, number: int, lines: list[bytes], end: _End) -> None:
        """Handles a batch that does not match its end."""
        why = "the batch that begins here is damaged, or one is missing before it"
        first, following = lines, cast(_End | None, end)
        while following is not None:
            if following.closes(lines):
                raise CorruptJournal(f"{self._path}:{number}: {why}, and a valid one follows")
            lines, following = self._next(file, number)
        self._torn(number, first, why, damaged=True)

    def _torn(self, number: int, lines: list[bytes], why: str, *, damaged: bool) -> None:
        """Handles an invalid end of a journal: allowed while its run is active, damage once it has finished.

        An interrupted append has no end of its batch. If it has (``damaged``), only a power failure can explain that:
        blocks that were not written are NULs.
        """
        if self._finished or (damaged and not any(b"\0" in line for line in lines)):
            raise CorruptJournal(f"{self._path}:{number}: {why}")


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
                fd = os.open(self.path, _OPEN_TO_WRITE)
            except FileNotFoundError:
                fd = os.open(self.path, _OPEN_TO_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
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
        while data := source.read(_BUFFER):
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
    while data := file.read(min(size, _BUFFER)):
        running.update(data)
        size -= len(data)
    return running.hexdigest()
