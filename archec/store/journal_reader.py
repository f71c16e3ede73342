"""Reading journals: their batches one by one, distinguishing a torn tail from damage."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from archec.errors import BrokenChain, ConfigError, CorruptJournal
from archec.store.durable import failure, storage_errors

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
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        fd = os.open(path, _OPEN)
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
