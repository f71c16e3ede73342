"""How far a WARC or ARC file is whole.

Libraries for web archives accept files that were cut or overwritten: they return what is there of a record, or skip
what they cannot parse. Here each record is checked: its header, its length, what follows it, the checksum of its gzip
member, and its ``WARC-Block-Digest``. ISO 28500 and RFC 1952 say what they must be. A file is read once: what else is
to be known of a record is taken from it on the way.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_CHUNK = 1 << 16
_MAX_LINE = 1 << 16
_MAX_HEADER = 1 << 20
_WARC = b"WARC/"
_GZIP = b"\x1f\x8b"
_VERSION = re.compile(rb"WARC/[0-9]\.[0-9]{1,2}[ \t]*\r*\n")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:|[ \t]")
_ARC_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:[^\0-\x1f]* ([0-9]{1,15})\r?\n")
_CONTROL = bytes([*range(9), 11, 12, *range(14, 32), 127])
_NEED_URI = (b"response", b"resource", b"request", b"revisit", b"conversion", b"continuation")
_WARC_END, _ARC_END = 4, 1
"""Number of bytes that follow a record: of a WARC file CR LF CR LF, of an ARC file LF."""
_DIGESTS = {"md5": hashlib.md5, "sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha512": hashlib.sha512}


class Framing(NamedTuple):
    """The records before the offset ``end`` are whole, except those at the offsets ``altered``, which do not match
    their digests. ``damage`` says what follows them; "" if that is the end of the file. Those at ``misstated`` do not
    match their digests either, but the checksum of gzip: they were written with a wrong digest."""

    end: int
    damage: str
    altered: frozenset[int]
    misstated: frozenset[int] = frozenset()


class Block(io.RawIOBase):
    """The block of a record: the next ``left`` bytes of a file, of which the digest is computed."""

    def __init__(self, file: io.BufferedReader[Any], length: int, digest: BlockDigest) -> None:
        super().__init__()
        self._file, self.left, self._digest = file, length, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """See :class:`io.RawIOBase`. Raises _Damaged at the end of the file."""
        view = memoryview(buffer)[: self.left]
        size = self._file.readinto(view)
        if size < len(view):
            raise _DamagedRecord("is truncated in the record")
        self._digest.update(view)
        self.left -= size
        return size


Look = Callable[[bytes, Mapping[bytes, bytes], Block], T | None]
"""Called with the first line of a record, the fields of its header (none of an ARC record), and its block, of which it
may read any part. None: nothing is to be known of it."""


class _DamagedRecord(Exception):
    """A record is not whole. If ``has_contents``, only what follows it is missing."""

    def __init__(self, what: str, *, has_contents: bool = False) -> None:
        super().__init__(what)
        self.has_contents = has_contents


class BlockDigest:
    """Compares a block with its ``WARC-Block-Digest`` while it is read. Without one of a known kind, every block
    matches."""

    def __init__(self, digest: str) -> None:
        name, _, self._wanted = digest.partition(":")
        hasher = _DIGESTS.get(name.lower().replace("-", ""))
        self._seen = hasher(usedforsecurity=False) if hasher is not None else None

    def update(self, data: bytes | memoryview) -> None:
        """Takes the next bytes of the block."""
        if self._seen is not None:
            self._seen.update(data)

    @property
    def matches(self) -> bool:
        """Whether all bytes so far have the digest."""
        if self._seen is None:
            return True
        base32 = base64.b32encode(self._seen.digest()).decode("ascii").rstrip("=")
        return self._wanted.rstrip("=").upper() in (self._seen.hexdigest().upper(), base32)


class Records(Generic[T]):
    """Reads a file up to the first damage, once: offset and length of each whole record, and what ``look`` returned for
    it. Those that do not match their digests are left out, as :class:`Framing` says.

    ``offset`` is where the current record begins; ``framing`` is known after the last.
    """

    framing: Framing

    def __init__(self, file: io.BufferedReader[Any], look: Look[T]) -> None:
        self._file, self._look, self.offset = file, look, 0

    def __iter__(self) -> Iterator[tuple[int, int, T]]:
        """Raises OSError, and what ``look`` raises."""
        file, differing, damage = self._file, set[int](), ""
        is_packed = file.peek(2)[:2] == _GZIP
        while not damage and file.peek(1):
            self.offset = start = file.tell()
            record = _Record(self._look)
            try:
                (record.read_member if is_packed else record.read_plain)(file)
            except _DamagedRecord as error:
                damage = f"{error} at {start}"
                if not error.has_contents:
                    file.seek(start)
                    break
            if not record.matches:
                differing.add(start)
            if record.found is not None and (is_packed or record.matches):
                yield start, record.end - start, record.found
        offsets = frozenset(differing)
        altered, misstated = (frozenset[int](), offsets) if is_packed else (offsets, frozenset[int]())
        self.framing = Framing(file.tell(), damage, altered, misstated)


class _Record(Generic[T]):
    """A record that is read. ``matches``: it has the right digest. ``found``: what ``look`` returned. ``end``: the
    offset in the file at which it ends."""

    found: T | None = None
    matches = True
    end = 0

    def __init__(self, look: Look[T]) -> None:
        self._look = look

    def read_plain(self, file: io.BufferedReader[Any]) -> None:
        """Reads a record that is not compressed, and what follows it."""
        needed = self._read(file)
        self.end = file.tell()
        newlines = _read_newlines(file)
        if newlines < needed and not file.peek(1):
            raise _DamagedRecord("is truncated after the record", has_contents=True)
        if newlines:
            return
        # The stated length is too small. If it is so by a line at most, this record alone is lost.
        file.readline(_MAX_LINE)
        _read_newlines(file)
        after = file.tell()
        if file.read(len(_WARC)) != _WARC:
            raise _DamagedRecord("has an invalid length in the record")
        file.seek(after)
        self.matches = False

    def read_member(self, file: io.BufferedReader[Any]) -> None:
        """Reads a gzip member with one record, or none."""
        member = io.BufferedReader(_Member(file), _CHUNK)
        try:
            _read_newlines(member)
            if member.peek(1):
                self._read(member)
                _read_newlines(member)
            if member.peek(1):
                raise _DamagedRecord("has several records (each must be compressed alone) in the gzip member")
        except zlib.error as error:
            raise _DamagedRecord("has invalid gzip data in the record") from error
        self.end = file.tell()

    def _read(self, file: io.BufferedReader[Any]) -> int:
        """Reads a record. Returns how many bytes must follow it."""
        line = file.readline(_MAX_LINE)
        fields: Mapping[bytes, bytes] = {}
        if _VERSION.fullmatch(line):
            fields, needed = _read_header(file), _WARC_END
            length = int(fields[b"content-length"])
        elif header := _ARC_HEADER.fullmatch(line):
            length, needed = int(header[1]), _ARC_END
        elif b"\n" in line or len(line) == _MAX_LINE:
            raise _DamagedRecord("has no WARC or ARC record")
        else:
            raise _DamagedRecord("is truncated in the record")
        digest = BlockDigest(fields.get(b"warc-block-digest", b"").decode("latin-1"))
        block = Block(file, length, digest)
        self.found = self._look(line, fields, block)
        buffer = bytearray(min(_CHUNK, block.left))
        while block.left:
            block.readinto(buffer)
        self.matches = digest.matches
        return needed


class _Member(io.RawIOBase):
    """The decompressed bytes of the gzip member at the position of a file, which is then at its end. Its end is only
    reached if its checksum is right."""

    def __init__(self, file: io.BufferedReader[Any]) -> None:
        super().__init__()
        self._file, self._inflater = file, zlib.decompressobj(31)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """See :class:`io.RawIOBase`. Raises _Damaged at the end of the file, and zlib.error."""
        while not self._inflater.eof:
            given = self._file.peek(1)
            data = self._inflater.decompress(given, len(buffer))
            left = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            self._file.read(len(given) - len(left))
            if data:
                buffer[: len(data)] = data
                return len(data)
            if not given and not self._inflater.eof:
                raise _DamagedRecord("is truncated in the record")
        return 0


def _read_header(file: io.BufferedReader[Any]) -> Mapping[bytes, bytes]:
    """Reads the fields of a WARC record, by their names in lower case. Of repeated ones the first counts."""
    fields: dict[bytes, bytes] = {}
    size, name = 0, b""
    while (line := file.readline(_MAX_LINE)).lstrip(b"\r") != b"\n":
        size += len(line)
        if not line.endswith(b"\n") and len(line) < _MAX_LINE:
            raise _DamagedRecord("is truncated in the record")
        if size > _MAX_HEADER or not _FIELD.match(line) or line.translate(None, _CONTROL) != line:
            raise _DamagedRecord("has an invalid header in the record")
        if line[:1] in (b" ", b"\t"):  # continues the field before
            fields[name] = fields.get(name, b"") + b" " + line.strip()
            continue
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        fields.setdefault(name, value.strip())
    length, kind = fields.get(b"content-length", b""), fields.get(b"warc-type", b"")
    if not re.fullmatch(b"[0-9]{1,15}", length) or not kind or (kind in _NEED_URI and b"warc-target-uri" not in fields):
        raise _DamagedRecord("has an invalid header in the record")
    return fields


def _read_newlines(file: io.BufferedReader[Any]) -> int:
    """Reads CR and LF, and returns their number."""
    count = 0
    while newlines := len(data := file.peek(1)) - len(data.lstrip(b"\r\n")):
        file.read(newlines)
        count += newlines
    return count
