"""A tarball as a source: streamed, never unpacked, one pass, memory independent of its size."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType

from archec.errors import DataSetError
from archec.redif.inflate import Damaged, Raw, chunks
from archec.redif.items import PART, Blob, Directory, Item, Unread
from archec.redif.parts import HEAD, in_parts
from archec.redif.problems import Problem, shown
from archec.redif.sniff import could_be_template_file
from archec.redif.tarheader import BLOCK, REGULAR, Header, Pax, clean_name, parse_header, parse_pax

__all__ = ["Tarball"]

_MAX_EXTENDED = 1024 * 1024
_CHUNK = 512 * 1024
_ZEROS = bytes(BLOCK)
_NO_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_REFUSED = {
    b"1": ("link", "a hard link, which is not followed"),
    b"2": ("link", "a symbolic link, which is not followed"),
    b"3": ("bad-member", "a character device"),
    b"4": ("bad-member", "a block device"),
    b"6": ("bad-member", "a named pipe"),
    b"S": ("bad-member", "a sparse file"),
    b"M": ("bad-member", "the rest of a file that begins on another volume"),
}
_IGNORED = (b"g", b"V", b"N")
_EXTENDED = (b"x", b"X", b"L", b"K")


class Tarball:
    """See :class:`archec.redif.items.Source`. Raises DataSetError where ``path`` is no tarball."""

    def __init__(self, path: Path, *, max_file: int) -> None:
        self._path = path
        self._max_file = max_file
        self._now = int(time.time())
        try:
            self._file = path.open("rb", buffering=0)
            self.size = path.stat().st_size
        except OSError as error:
            raise DataSetError(f"cannot open the tarball {path}: {error.strerror}") from error
        self._raw = Raw(self._file)
        self.newest = 0
        self.whole = False
        self.damage: Problem | None = None
        self.files = 0
        self.bytes_read = 0
        self._member = 0
        self._left = 0
        try:
            self._stream = _Stream(chunks(self._raw))
            first = self._stream.peek(BLOCK)
            if first == _ZEROS:
                raise Damaged("it is empty")
            parse_header(first)
        except Damaged as error:
            self._file.close()
            raise DataSetError(
                f"{path} cannot be read as a tarball: {error}",
                hint="a data set is a directory or a .tar, .tar.gz, .tar.zst, .tar.xz or .tar.bz2 file",
            ) from error
        self._items = self._read()

    @property
    def position(self) -> int:
        """Bytes of the tarball consumed so far, as it lies on disk."""
        return self._raw.position

    def __iter__(self) -> Iterator[Item]:
        return self._items

    def __enter__(self) -> Tarball:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration and closes the file; harmless when repeated."""
        self._items.close()
        self._file.close()

    def _read(self) -> Generator[Item, None, None]:
        try:
            for item in self._members():
                yield item._replace(member=self._member) if type(item) is Unread else item
            self.whole = True
        except Damaged as error:
            self.damage = Problem(shown(str(self._path)), 0, "truncated", f"the tarball is not whole: {error}")

    def _members(self) -> Iterator[Item]:
        stream = self._stream
        largest = min(PART, self._max_file)
        change: Pax | None = None
        while True:
            block = stream.take(BLOCK)
            if block == _ZEROS:
                if self._at_end():
                    return
                continue
            header = parse_header(block)
            kind = header.kind
            if kind in _EXTENDED:
                change = self._extended(header, change)
                continue
            if kind in _IGNORED:
                stream.skip(_padded(header.size))
                continue
            self._member += 1
            trouble = ""
            if change is not None:
                header, trouble = _changed(header, change), change.trouble
                change = None
            if self.newest < header.mtime <= self._now:
                self.newest = header.mtime
            path, bad = clean_name(header.name)
            if kind not in REGULAR or bad or trouble or header.name[-1:] == b"/" or header.size > largest:
                yield from self._unusual(header, block, path, bad, trouble)
                continue
            size = header.size
            try:
                data = stream.take(size)
                stream.skip(-size % BLOCK)
            except Damaged as error:
                yield Unread.of(path, "truncated", str(error))
                raise
            self.files += 1
            self.bytes_read += size
            yield Blob(path, data, 0, True, 1, self._member)

    def _at_end(self) -> bool:
        """After a block of zeros: whether the tarball ends; its compression is then checked to the end."""
        following = self._stream.peek(BLOCK)
        if following and following != _ZEROS:
            return False
        self._stream.drain()
        return True

    def _extended(self, header: Header, change: Pax | None) -> Pax:
        """What a pax or GNU header changes of the member that follows, on top of ``change``."""
        size = header.size
        if size > _MAX_EXTENDED:
            self._stream.skip(_padded(size))
            return (change or Pax())._replace(trouble=f"an extended header of {size} bytes")
        data = self._stream.take(size)
        self._stream.skip(-size % BLOCK)
        if header.kind == b"L":
            return (change or Pax())._replace(name=data.partition(b"\0")[0])
        if header.kind == b"K":
            return change or Pax()
        new = parse_pax(data)
        if change is None:
            return new
        return Pax(
            change.name if new.name is None else new.name,
            change.size if new.size is None else new.size,
            change.mtime if new.mtime is None else new.mtime,
            new.trouble or change.trouble,
        )

    def _unusual(self, header: Header, block: bytes, path: str, bad: str, trouble: str) -> Iterator[Item]:
        """Whatever is not a small regular file with a good name."""
        kind, size = header.kind, header.size
        if kind == b"S" and block[482]:
            while self._stream.take(BLOCK)[504]:
                pass
        directory = kind in (b"5", b"D") or (kind in REGULAR and header.name[-1:] == b"/")
        self._left = 0 if kind in _NO_DATA else _padded(size)
        key = (path.rstrip("/") + "/" if directory else path) or "?"
        if bad:
            yield Unread.of(key, "bad-name", bad)
        elif trouble:
            yield Unread.of(key, "bad-member", trouble)
        elif directory:
            if path:
                yield Directory(key)
        elif kind not in REGULAR:
            code, message = _REFUSED.get(kind, ("bad-member", f"a member of the unknown type {kind!r}"))
            yield Unread.of(key, code, message)
        elif not path:
            yield Unread.of("?", "bad-name", "the name is empty")
        else:
            yield from self._large(path, size)
        self._stream.skip(self._left)

    def _large(self, path: str, size: int) -> Iterator[Item]:
        """A file that is too large for one blob, or for ``max_file``."""
        head = self._stream.peek(min(HEAD, size))
        if not could_be_template_file(path, head):
            self.files += 1
            self.bytes_read += size
            yield Blob(path, head, 0, True, 1, self._member)
        elif size > self._max_file:
            yield Unread.of(path, "too-large", f"{size} bytes are more than max_file = {self._max_file}")
        else:
            self.files += 1
            self.bytes_read += size
            try:
                yield from in_parts(path, self._member, self._chunks(size))
            except Damaged as error:
                yield Unread.of(path, "truncated", str(error))
                raise

    def _chunks(self, size: int) -> Iterator[bytes]:
        padding = self._left - size
        while self._left > padding:
            chunk = self._stream.take(min(_CHUNK, self._left - padding))
            self._left -= len(chunk)
            yield chunk


class _Stream:
    """Takes exact numbers of bytes from chunks; :class:`Damaged` where there are not so many."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        at = self._at
        end = at + size
        if end > len(self._data):
            self._need(size)
            at, end = 0, size
            if len(self._data) < size:
                raise Damaged("it ends in the middle of a member" if self._data else "it ends without its end mark")
        self._at = end
        return self._data[at:end]

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end, without taking them."""
        if self._at + size > len(self._data):
            self._need(size)
        return self._data[self._at : self._at + size]

    def skip(self, size: int) -> None:
        """Lets go of the next ``size`` bytes."""
        while size > len(self._data) - self._at:
            size -= len(self._data) - self._at
            self._data, self._at = next(self._chunks, b""), 0
            if not self._data:
                raise Damaged("it ends in the middle of a member")
        self._at += size

    def drain(self) -> None:
        """Lets go of everything, so that checksums at the end of the compressed stream are checked."""
        self._data, self._at = b"", 0
        for _ in self._chunks:
            pass

    def _need(self, size: int) -> None:
        """Puts what is left and as many chunks as give ``size`` bytes, if there are, in one piece."""
        pieces = [self._data[self._at :]]
        have = len(pieces[0])
        while have < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            pieces.append(chunk)
            have += len(chunk)
        self._data, self._at = b"".join(pieces), 0


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _changed(header: Header, change: Pax) -> Header:
    return Header(
        header.kind,
        header.name if change.name is None else change.name,
        header.size if change.size is None else change.size,
        header.mtime if change.mtime is None else change.mtime,
    )
