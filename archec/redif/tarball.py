"""A tarball as a source: streamed in one pass, never unpacked, with memory that does not depend on its size.

Headers are parsed by hand (ustar, GNU and pax; POSIX.1-2017, GNU tar manual), which takes an eighth of the time of
tarfile. Only what a data set needs is read from them; everything is checked, nothing is guessed. A tarball is whole if
all headers and all checksums of its compression are right, and it ends with NULs, of which one block is enough.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from archec.errors import DataSetError, hint_of
from archec.redif.files import PART, Blob, DataSetSource, Directory, Item, Other, Unread, in_parts, template_names
from archec.redif.inflate import Damaged, Raw, chunks
from archec.redif.problems import Problem, shown

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_MAX_EXTENDED = 1024 * 1024
_CHUNK = 512 * 1024
_MAX_NAME = 4096
"""Maximum length of a name in bytes (PATH_MAX). The scratch files of a run repeat the name with every template."""

_NOT_UTF8 = "the name is not UTF-8"
_REGULAR = (b"0", b"\0", b"7")
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
_INCREMENTAL = "files of this directory that have not changed are not in this incremental tarball"
_IGNORED = (b"V", b"N")
_VOLUME = "it is a further volume of a tarball in several: unpack all of them with tar -xM, and use the directory"
_EXTENDED = (b"x", b"X", b"L", b"K")
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_PAX_LENGTH = re.compile(rb"([0-9]{1,10}) ")
_PAX_ONLY_MTIME = re.compile(rb"([0-9]{2}) mtime=([0-9]{1,12})(?:\.[0-9]*)?\n")
_PAX_NUMBER = re.compile(rb"(-?)([0-9]{1,20})(?:\.[0-9]*)?")


class Header(NamedTuple):
    """A header block: ``name`` as stored, with its prefix; ``size`` in bytes; ``mtime`` a tist."""

    kind: bytes
    name: bytes
    size: int
    mtime: int


class Pax(NamedTuple):
    """The fields of the next header that an extended header replaces.

    ``trouble`` says why the next member must not be read, ``""`` if it may be.
    """

    fields: dict[str, Any]
    trouble: str = ""


class Tarball(DataSetSource):
    """A tarball as a source. Raises DataSetError if ``path`` is not a tarball.

    A tarball that is damaged at its very beginning is accepted: it has no items, and ``damage`` is set.
    """

    def __init__(self, path: Path, *, max_file: int, patterns: Sequence[str] = ()) -> None:
        super().__init__()
        self._path = path
        self._max_file = max_file
        self._counts = template_names(patterns)
        self._now = int(time.time())
        try:
            self._file = path.open("rb", buffering=0)
            self.size = path.stat().st_size
        except OSError as error:
            message = f"cannot open the tarball {path}: {error.strerror}"
            raise DataSetError(message, hint=hint_of(error, path)) from error
        self._raw = Raw(self._file)
        self._member = 0
        self._left = 0
        self._continues = False
        self._last = ("", "")
        self._stream = _Stream(chunks(self._raw))
        try:
            self._items = self._read(self._first_damage())
        except Damaged as error:
            self._file.close()
            raise DataSetError(
                f"{path} cannot be read as a tarball: {error}",
                hint="a data set is a directory or a .tar, .tar.gz, .tar.zst, .tar.xz or .tar.bz2 file",
            ) from error

    def _first_damage(self) -> Damaged | None:
        """The damage at the very beginning, if any. Raises Damaged if this is no tarball at all."""
        try:
            first = self._stream.peek(_BLOCK)
        except Damaged as error:
            return error
        if first == _ZEROS:
            raise Damaged("it is empty")
        try:
            parse_header(first)
        except Damaged as error:
            if first[257:262] == b"ustar":
                return error
            raise
        return None

    @property
    def position(self) -> int:
        return self._raw.position

    def __iter__(self) -> Iterator[Item]:
        return self._items

    def close(self) -> None:
        self._items.close()
        self._file.close()

    def _read(self, damage: Damaged | None) -> Generator[Item, None, None]:
        try:
            if damage is not None:
                raise damage
            for item in self._members():
                yield item._replace(member=self._member) if type(item) is Unread else item
            self.whole = True
        except Damaged as error:
            where = f"{self._last[0]} {shown(self._last[1])}" if self._last[0] else "at the beginning"
            at = f"at byte {self._stream.offset:,} of its contents, {where}"
            self.damage = Problem(shown(str(self._path)), 0, "truncated", f"the tarball is not whole: {error}; {at}")
        if self._raw.unchecked:
            self._warn("no-checksum", f"{self._raw.unchecked} has no checksum: damage in it may not be found")

    def _warn(self, code: str, message: str) -> None:
        self.warnings.append(Problem(shown(str(self._path)), 0, code, message))

    def _members(self) -> Iterator[Item]:
        stream = self._stream
        largest = min(PART, self._max_file)
        change: Pax | None = None
        while True:
            block = stream.take(_BLOCK)
            if block == _ZEROS:
                if change is not None:
                    raise Damaged("it ends between an extended header and its member")
                self._end()
                return
            header = parse_header(block)
            kind = header.kind
            if kind in _EXTENDED:
                change = self._extended(header, change)
                continue
            if kind in _IGNORED:
                stream.skip(_padded(header.size))
                continue
            if kind == b"g":  # global pax records
                size = min(header.size, _MAX_EXTENDED)
                self._continues |= b" GNU.volume.offset=" in stream.take(size) and not self._member
                stream.skip(_padded(header.size) - size)
                continue
            self._continues |= kind == b"M" and not self._member
            self._member += 1
            trouble = ""
            if change is not None:
                header, trouble = header._replace(**change.fields), change.trouble
                change = None
            if self.newest < header.mtime <= self._now:
                self.newest = header.mtime
            path, bad = clean_name(header.name)
            self._last = ("in", path)
            if kind not in _REGULAR or bad or trouble or header.name[-1:] == b"/" or header.size > largest:
                yield from self._unusual(header, block, path, bad, trouble)
                self._last = ("after", path)
                continue
            size = header.size
            if not self._counts(path):
                stream.skip(_padded(size))
                self._last = ("after", path)
                yield Other(path)
                continue
            try:
                data = stream.take(size)
                stream.skip(-size % _BLOCK)
            except Damaged as error:
                yield Unread.of(path, "truncated", str(error))
                raise
            self.files += 1
            self.bytes_read += size
            self._last = ("after", path)
            yield Blob(path, data, 0, True, 1, self._member)

    def _end(self) -> None:
        """Checks everything after the first block of zeros. A further volume lacks what is on the ones before it."""
        if self._continues:
            raise Damaged(_VOLUME)
        if len(self._stream.peek(_BLOCK)) < _BLOCK:
            self._warn("one-end-block", "the tarball ends with one block of NULs, not with two: is it whole?")
        self._stream.only_nuls()

    def _extended(self, header: Header, change: Pax | None) -> Pax:
        """The changes of a pax or GNU header to the next member, in addition to ``change``."""
        size = header.size
        fields, trouble = change or ({}, "")
        if size > _MAX_EXTENDED:
            self._stream.skip(_padded(size))
            return Pax(fields, f"an extended header of {size} bytes")
        data = self._stream.take(size)
        self._stream.skip(-size % _BLOCK)
        if header.kind == b"L":
            return Pax({**fields, "name": data.partition(b"\0")[0]}, trouble)
        if header.kind == b"K":
            return Pax(fields, trouble)
        new = parse_pax(data)
        return Pax({**fields, **new.fields}, new.trouble or trouble)

    def _unusual(self, header: Header, block: bytes, path: str, bad: str, trouble: str) -> Iterator[Item]:
        """Handles any member that is not a small regular file with a valid name."""
        kind, size = header.kind, header.size
        if kind == b"S" and block[482]:  # GNU sparse headers go on in further blocks
            while self._stream.take(_BLOCK)[504]:
                pass
        directory = kind in (b"5", b"D") or (kind in _REGULAR and header.name[-1:] == b"/")
        self._left = 0 if kind in _NO_DATA else _padded(size)
        if kind == b"D":  # GNU's form of a directory in an incremental tarball
            trouble = trouble or _omits(self._chunks(size))
        key = (path.rstrip("/") + "/" if directory else path) or "?"
        if not directory and kind != b"2" and bad in ("", _NOT_UTF8) and path and not self._counts(path):
            yield Other(path)
        elif bad:
            yield Unread.of(key, "bad-name", bad)
        elif trouble:
            yield Unread.of(key, "bad-member", trouble)
        elif directory:
            if path:
                yield Directory(key)
        elif kind not in _REGULAR:
            code, message = _REFUSED.get(kind, ("bad-member", f"a member of the unknown type {kind!r}"))
            yield Unread.of(key, code, message)
        elif not path:
            yield Unread.of("?", "bad-name", "the name is empty")
        else:
            yield from self._large(path, size)
        self._stream.skip(self._left)

    def _large(self, path: str, size: int) -> Iterator[Item]:
        """Handles a file that is too large for a single blob, or for ``max_file``."""
        if size > self._max_file:
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
    """Splits chunks into requested numbers of bytes. Raises Damaged if there are not enough."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = b""
        self._at = 0
        self._before = 0

    @property
    def offset(self) -> int:
        """Number of bytes taken so far."""
        return self._before + self._at

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
        """The next ``size`` bytes, or fewer at the end, without taking them."""
        if self._at + size > len(self._data):
            self._need(size)
        return self._data[self._at : self._at + size]

    def skip(self, size: int) -> None:
        """Discards the next ``size`` bytes."""
        while size > len(self._data) - self._at:
            size -= len(self._data) - self._at
            self._before += len(self._data)
            self._at, self._data = 0, b""
            self._data = next(self._chunks, b"")
            if not self._data:
                raise Damaged("it ends in the middle of a member")
        self._at += size

    def only_nuls(self) -> None:
        """Reads to the end, so that checksums at the end of a compressed stream are checked."""
        data = self._data[self._at :]
        while data:
            if data.count(0) != len(data):
                raise Damaged("other bytes than NUL follow its end mark")
            self._at += len(data)
            data = next(self._chunks, b"")

    def _need(self, size: int) -> None:
        """Joins the rest of the current chunk with further ones until there are ``size`` bytes or no more chunks."""
        pieces = [self._data[self._at :]]
        have = len(pieces[0])
        while have < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            pieces.append(chunk)
            have += len(chunk)
        self._before += self._at
        self._data, self._at = b"".join(pieces), 0


def parse_header(block: bytes) -> Header:
    """The header in a block of 512 bytes. Raises Damaged if the block is not a header."""
    if len(block) < _BLOCK:
        raise Damaged("it is shorter than a tar header")
    match = _OCTAL.fullmatch(block, 148, 156)
    if match is None:
        raise Damaged("a tar header has no checksum")
    stored = int(match[1] or b"0", 8)
    rest = block[:148] + block[156:]
    # Most of a header is NULs: without them the sum is the same, and takes a third of the time.
    if sum(rest.translate(None, b"\0")) + 256 != stored and _signed_sum(rest) != stored:
        raise Damaged("a tar header has a wrong checksum")
    size, mtime = _number(block, 124, 136), _number(block, 136, 148)
    if size < 0:
        raise Damaged("a tar header has a negative size")
    name = block[:100]
    end = name.find(b"\0")
    if end >= 0:
        name = name[:end]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return Header(block[156:157], name, size, mtime)


def parse_pax(data: bytes) -> Pax:
    """The records of an extended header. Raises Damaged if they are malformed."""
    match = _PAX_ONLY_MTIME.fullmatch(data)
    if match is not None and int(match[1]) == len(data):
        return Pax({"mtime": int(match[2])})
    fields: dict[str, Any] = {}
    sparse: dict[str, bytes] = {}
    trouble = ""
    at = 0
    while at < len(data) and data[at]:
        match = _PAX_LENGTH.match(data, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1] != 10:
            raise Damaged("a pax header is malformed")
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        if not equals:
            raise Damaged("a pax header is malformed")
        if key == b"path":
            fields["name"] = value
        elif key == b"mtime" and _PAX_NUMBER.fullmatch(value):
            fields["mtime"] = int(value.partition(b".")[0])
        elif key == b"size":
            if value[:1] == b"-" or not _PAX_NUMBER.fullmatch(value):
                raise Damaged("a pax header has a wrong size")
            fields["size"] = int(value.partition(b".")[0])
        elif key.startswith(b"GNU.sparse."):
            trouble = "a sparse file"
            if key == b"GNU.sparse.name":  # ``path`` is then a name made up by tar, with the id of its process
                sparse["name"] = value
        elif key == b"GNU.dumpdir":
            trouble = trouble or _omits([value])
        at = end
    return Pax({**fields, **sparse}, trouble)


def _omits(listing: Iterable[bytes]) -> str:
    """The trouble with a directory of an incremental tarball of GNU tar; "" if none of its files is missing.

    ``listing`` are the chunks of its entries, which end in NUL. An entry begins with N if the file is not in the
    tarball.
    """
    before = b"\0"
    for chunk in listing:
        if b"\0N" in before + chunk:
            return _INCREMENTAL
        before = chunk[-1:]
    return ""


def clean_name(name: bytes) -> tuple[str, str]:
    """``(path, "")`` for a member's stored name, or ``(name, the reason)`` if it is invalid.

    The path has no leading ``./``, no empty and no ``.`` components and no trailing slash; ``""`` is the root of the
    data set.
    """
    if len(name) > _MAX_NAME:
        return name[:_MAX_NAME].decode("utf-8", "surrogateescape"), f"the name has {len(name)} bytes"
    try:
        path = name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("utf-8", "surrogateescape"), _NOT_UTF8
    if "\0" in path:
        return path, "the name holds a NUL"
    if not ("/." in path or "//" in path or path[:1] in "./" or path[-1:] == "/"):
        return path, ""
    if path.startswith("/"):
        return path, "the name is absolute"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return path, "the name holds '..'"
    return "/".join(parts), ""


def _number(block: bytes, begin: int, end: int) -> int:
    """A number in octal or in base 256 (GNU); -1 for any negative number."""
    match = _OCTAL.fullmatch(block, begin, end)
    if match is not None:
        return int(match[1] or b"0", 8)
    if block[begin] == 0x80:
        return int.from_bytes(block[begin + 1 : end], "big")
    if block[begin] == 0xFF:
        return -1
    raise Damaged("a tar header has a malformed number")


def _signed_sum(rest: bytes) -> int:
    """The checksum as some old systems computed it, over signed characters."""
    return sum(byte - 256 if byte > 127 else byte for byte in rest) + 256


def _padded(size: int) -> int:
    return size + -size % _BLOCK
