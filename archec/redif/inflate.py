"""Decompresses a tarball chunk by chunk; its magic number determines the format.

Chunks have at most about 1 MiB, whatever the compression ratio, and the windows of the decompressors are limited: a
decompression bomb costs time but no memory. All checks of a format are made, up to the last byte of the
file: only NULs may follow the compressed data. Everything before the damage is yielded. gzip is decompressed by ISA-L,
which takes 40 % of zlib's time, and from the start of a damaged stream again by zlib.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import BinaryIO, cast

import zstandard
from isal import isal_zlib

CHUNK = 512 * 1024
_READ = 128 * 1024
_PIECE = 4096
_XZ_MEMORY = 512 * 1024 * 1024
_ZSTD_WINDOW = 128 * 1024 * 1024
_FAILURES = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, ValueError, EOFError)
"""Exceptions of decompressors for damaged data."""
_ISAL_ERROR = cast(type[Exception], isal_zlib.error)
_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"


class Damaged(Exception):
    """The stream is truncated or damaged; the message says how."""


class Raw:
    """The file on disk; counts the bytes read.

    ``unchecked`` names a stream that has no checksum although its format allows one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.position = 0
        self.unchecked = ""

    def read(self, size: int = _READ) -> bytes:
        """Up to ``size`` bytes; empty at the end. Raises Damaged if the file cannot be read."""
        try:
            data = self._file.read(size)
        except OSError as error:
            raise Damaged(f"cannot be read: {error.strerror}") from error
        self.position += len(data)
        return data

    def pieces(self, begin: int, fine: int) -> Iterator[bytes]:
        """The file from the byte ``begin`` on in small pieces, and from the byte ``fine`` on byte by byte."""
        self.seek(begin)
        return iter(lambda: self.read(min(_PIECE, fine - self.position) if self.position < fine else 1), b"")

    def seek(self, position: int) -> None:
        self._file.seek(position)
        self.position = position

    def damaged(self, stream: str, how: object) -> Damaged:
        """The error for a fault in a compressed stream, at or before the current position."""
        return Damaged(f"the {stream} stream is damaged at or before byte {self.position:,} of the file: {how}")


def chunks(raw: Raw) -> Iterator[bytes]:
    """The decompressed bytes of ``raw`` in non-empty chunks. Raises Damaged, at the latest at the end."""
    magic = raw.read(10)
    raw.seek(0)
    for begin, decompress in _FORMATS:
        if begin.match(magic):
            return decompress(raw)
    return iter(lambda: raw.read(CHUNK), b"")


def _gunzip(raw: Raw) -> Iterator[bytes]:
    data = raw.read()
    while data:
        begin, done = raw.position - len(data), 0
        if len(data) > 3 and data[3] & 0xE0:  # isal does not check them
            raise raw.damaged("gzip", "reserved flags are set")
        stream = isal_zlib.decompressobj(31)
        wants_more = False
        while not stream.eof:
            if wants_more and not data:
                data = raw.read()
                if not data:
                    raise raw.damaged("gzip", "it ends early")
            try:
                out = stream.decompress(data, CHUNK)
            except _ISAL_ERROR as error:
                again = raw.pieces(begin, raw.position - len(data))
                yield from _before_damage(map(zlib.decompressobj(31).decompress, again), done)
                raise raw.damaged("gzip", error) from error
            data = stream.unconsumed_tail
            wants_more = len(out) < CHUNK
            if out:
                done += len(out)
                yield out
        data = _next_stream(raw, stream.unused_data, "gzip", _GZIP)


def _streams(
    new: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor], name: str, magic: bytes
) -> Callable[[Raw], Iterator[bytes]]:
    def inflate(raw: Raw) -> Iterator[bytes]:
        data = raw.read()
        while data:
            begin, done = raw.position - len(data), 0
            stream = new()
            while not stream.eof:
                if stream.needs_input and not data:
                    data = raw.read()
                    if not data:
                        raise raw.damaged(name, "it ends early")
                try:
                    out = stream.decompress(data, CHUNK)
                except _FAILURES as error:
                    again = raw.pieces(begin, raw.position - len(data) if data else raw.position - _READ)
                    yield from _before_damage(map(new().decompress, again), done)
                    raise raw.damaged(name, error) from error
                data = b""
                if out:
                    done += len(out)
                    yield out
            if isinstance(stream, lzma.LZMADecompressor) and stream.check == lzma.CHECK_NONE:
                raw.unchecked = "an xz stream"
            data = _next_stream(raw, stream.unused_data, name, magic)

    return inflate


def _before_damage(again: Iterator[bytes], done: int) -> Iterator[bytes]:
    """The contents of a stream after its first ``done`` bytes, up to the damage; ``again`` decompresses it in small
    pieces.

    A decompressor that fails discards what it decompressed from the same piece before the fault.
    """
    with suppress(*_FAILURES):
        for piece in again:
            if len(piece) > done:
                yield piece[done:]
            done = max(0, done - len(piece))


def _next_stream(raw: Raw, rest: bytes, name: str, magic: bytes) -> bytes:
    """The beginning of the next stream after a finished one, ``b""`` at the end of the file; NULs are padding."""
    rest = rest.lstrip(b"\0")
    while len(rest) < max(len(magic), 4):
        more = raw.read()
        if not more:
            break
        rest = (rest + more).lstrip(b"\0")
    if rest and not rest.startswith(magic):
        raise raw.damaged(name, "other bytes than NUL follow it")
    return rest


def _unzstd(raw: Raw) -> Iterator[bytes]:
    frames, done = _Frames(raw), 0
    try:
        for out in _zstd_chunks(frames):
            done += len(out)
            yield out
    except zstandard.ZstdError as error:
        raw.seek(0)
        yield from _before_damage(_zstd_chunks(_Frames(raw), fine=done), done)
        raise raw.damaged("zstd", error) from error
    if not frames.ended:
        raise raw.damaged("zstd", "it ends early")


def _zstd_chunks(frames: _Frames, fine: int | None = None) -> Iterator[bytes]:
    """The contents of the frames, from the byte ``fine`` on byte by byte."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    with decompressor.stream_reader(cast("BinaryIO", frames), read_across_frames=True, closefd=False) as reader:
        yield from iter(lambda: reader.read(1 if fine is not None and reader.tell() >= fine else CHUNK), b"")


class _Frames:
    """The input file of a zstd decompressor.

    It parses the structure of the frames (RFC 8878, section 3.1), because the decompressor accepts a truncated frame
    and does not say whether frames have checksums.
    """

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._have = b""
        self._between = False
        self._steps = self._walk()
        self._skip, self._want = next(self._steps)

    @property
    def ended(self) -> bool:
        """Whether the data read so far ends with a complete frame."""
        return self._between and not self._skip and not self._have

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the frames, empty at the end; ``size`` is ignored."""
        data = self._raw.read()
        at = 0
        while at < len(data):
            if self.ended and not data[at]:
                self._padding(data[at:])
                return data[:at]
            step = min(self._skip, len(data) - at)
            self._skip -= step
            at += step
            if step:
                continue  # the next byte may be padding
            part = data[at : at + self._want - len(self._have)]
            self._have += part
            at += len(part)
            if part and len(self._have) == self._want:
                have, self._have = self._have, b""
                self._skip, self._want = self._steps.send(have)
        return data

    def _padding(self, data: bytes) -> None:
        while data:
            if data.strip(b"\0"):
                raise self._raw.damaged("zstd", "other bytes than NUL follow it")
            data = self._raw.read()

    def _walk(self) -> Generator[tuple[int, int], bytes, None]:
        """Yields the number of bytes to skip, and the number of bytes to send after that."""
        skip = 0
        while True:
            self._between = True
            magic = yield skip, 1
            self._between = False
            magic += yield 0, 3
            if magic == _ZSTD:
                (flags,) = yield 0, 1
                single, checked = flags & 0x20, flags & 4
                skip = (not single) + (0, 1, 2, 4)[flags & 3] + (1 if single else 0, 2, 4, 8)[flags >> 6]
                last = 0
                while not last:
                    head = int.from_bytes((yield skip, 3), "little")
                    last, skip = head & 1, 1 if head >> 1 & 3 == 1 else head >> 3
                if not checked:
                    self._raw.unchecked = "a zstd frame"
                skip += 4 if checked else 0
            else:  # a skippable frame; the decompressor refuses anything else
                skip = int.from_bytes((yield 0, 4), "little")


_FORMATS: tuple[tuple[re.Pattern[bytes], Callable[[Raw], Iterator[bytes]]], ...] = (
    (re.compile(_GZIP + b"\x08.{7}", re.S), _gunzip),
    (re.compile(re.escape(_ZSTD) + rb"|[\x50-\x5f]\x2a\x4d\x18"), _unzstd),  # pzstd begins with a skippable frame
    (re.compile(_XZ), _streams(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), "xz", _XZ)),
    (re.compile(_BZIP2 + b"[1-9]1AY&SY"), _streams(bz2.BZ2Decompressor, "bzip2", _BZIP2)),
)
