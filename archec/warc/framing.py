"""How far a WARC or ARC file is whole.

Libraries for web archives accept files that were cut or overwritten: they return what is there of a record, or skip
what they cannot parse. Here each record is checked: its header, its length, what follows it, the checksum of its gzip
member, and its ``WARC-Block-Digest``. ISO 28500 and RFC 1952 say what they must be.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zlib
from typing import Any, NamedTuple

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
_NEWLINES = (b"\r", b"\n")
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


class _Damaged(Exception):
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

    def update(self, data: bytes) -> None:
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


def framing_of(file: io.BufferedReader[Any]) -> Framing:
    """Reads a file up to the first damage. Raises OSError."""
    is_packed = file.peek(2)[:2] == _GZIP
    read = _read_member if is_packed else _read_plain
    differing: set[int] = set()
    damage = ""
    while not damage and file.peek(1):
        start = file.tell()
        try:
            if not read(file):
                differing.add(start)
        except _Damaged as error:
            damage = f"{error} at {start}"
            if not error.has_contents:
                file.seek(start)
    if is_packed:
        return Framing(file.tell(), damage, frozenset(), frozenset(differing))
    return Framing(file.tell(), damage, frozenset(differing))


def _read_plain(file: io.BufferedReader[Any]) -> bool:
    """Reads a record that is not compressed, and what follows it. Returns whether it matches its digest."""
    needed, matches = _read_record(file)
    newlines = _read_newlines(file)
    if newlines < needed and not file.peek(1):
        raise _Damaged("is truncated after the record", has_contents=True)
    if newlines:
        return matches
    # The stated length is too small. If it is so by a line at most, this record alone is lost.
    file.readline(_MAX_LINE)
    _read_newlines(file)
    after = file.tell()
    if file.read(len(_WARC)) != _WARC:
        raise _Damaged("has an invalid length in the record")
    file.seek(after)
    return False


def _read_member(file: io.BufferedReader[Any]) -> bool:
    """Reads a gzip member with one record, or none. Returns whether the record matches its digest."""
    member = io.BufferedReader(_Member(file), _CHUNK)
    try:
        _read_newlines(member)
        if not member.peek(1):
            return True
        _, matches = _read_record(member)
        _read_newlines(member)
        if member.peek(1):
            raise _Damaged("has several records (each must be compressed alone) in the gzip member")
    except zlib.error as error:
        raise _Damaged("has invalid gzip data in the record") from error
    return matches


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
                raise _Damaged("is truncated in the record")
        return 0


def _read_record(file: io.BufferedReader[Any]) -> tuple[int, bool]:
    """Reads a record. Returns how many bytes must follow it, and whether it matches its digest."""
    line = file.readline(_MAX_LINE)
    if _VERSION.fullmatch(line):
        length, digest = _read_header(file)
        needed = _WARC_END
    elif header := _ARC_HEADER.fullmatch(line):
        length, digest, needed = int(header[1]), "", _ARC_END
    elif b"\n" in line or len(line) == _MAX_LINE:
        raise _Damaged("has no WARC or ARC record")
    else:
        raise _Damaged("is truncated in the record")
    seen = BlockDigest(digest)
    while length:
        data = file.read(min(_CHUNK, length))
        if not data:
            raise _Damaged("is truncated in the record")
        length -= len(data)
        seen.update(data)
    return needed, seen.matches


def _read_header(file: io.BufferedReader[Any]) -> tuple[int, str]:
    """Reads the fields of a WARC record. Returns the length of its contents and their digest, or ""."""
    fields: dict[bytes, bytes] = {}
    size = 0
    while (line := file.readline(_MAX_LINE)).lstrip(b"\r") != b"\n":
        size += len(line)
        if not line.endswith(b"\n") and len(line) < _MAX_LINE:
            raise _Damaged("is truncated in the record")
        if size > _MAX_HEADER or not _FIELD.match(line) or line.translate(None, _CONTROL) != line:
            raise _Damaged("has an invalid header in the record")
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    length, kind = fields.get(b"content-length", b""), fields.get(b"warc-type", b"")
    if not re.fullmatch(b"[0-9]{1,15}", length) or not kind or (kind in _NEED_URI and b"warc-target-uri" not in fields):
        raise _Damaged("has an invalid header in the record")
    return int(length), fields.get(b"warc-block-digest", b"").decode("latin-1")


def _read_newlines(file: io.BufferedReader[Any]) -> int:
    """Reads CR and LF, and returns their number."""
    count = 0
    while file.peek(1)[:1] in _NEWLINES:
        file.read(1)
        count += 1
    return count
