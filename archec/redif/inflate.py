"""Decompresses a tarball chunk by chunk; its magic number determines the format.

Chunks have at most about 1 MiB, whatever the compression ratio (16 MiB for zstd), and the windows of the decompressors
are limited: a decompression bomb costs time but no memory. All checks of a format are made, up to the last byte of the
file: only NULs may follow the compressed data. Everything before the damage is yielded. gzip is decompressed by ISA-L,
which takes 40 % of zlib's time, and from the start of a damaged stream again by zlib.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, Union, cast

import zstandard
from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

CHUNK = 512 * 1024
_READ = 128 * 1024
_PIECE = 512
_HEAD = 6
"""Bytes of a stream by which its format is recognised."""
_XZ_MEMORY = 512 * 1024 * 1024
_ZSTD_WINDOW = 128 * 1024 * 1024
_FAILURES = (
    cast("type[Exception]", IsalError), zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, ValueError, EOFError,
)  # fmt: skip
"""Exceptions of decompressors for damaged data."""
_ADVICE = "; if it is intact, decompress it, or compress it with a smaller window (zstd: 128 MiB at most)"
"""For a window that is too large: a flipped bit can make it so, and nobody can tell."""
_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"
_SKIPPABLE = tuple(bytes((first,)) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
"""The magic numbers of zstd frames without contents; pzstd begins with one."""


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


_Decompressor = Union[lzma.LZMADecompressor, bz2.BZ2Decompressor, IgzipDecompressor, "_ZstdFrame"]


class _ZstdFrame:
    """The decompression of one zstd frame, used as those of the other formats. Its output has no limit but that of
    :data:`_PIECE` bytes of input."""

    def __init__(self, decompressor: zstandard.ZstdDecompressor) -> None:
        self._frame = decompressor.decompressobj()
        self._rest = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._rest

    def decompress(self, data: bytes, most: int = -1) -> bytes:
        """The contents of the next piece; ``most`` is ignored."""
        given = memoryview(data) if data else self._rest
        self._rest = given[_PIECE:]
        return self._frame.decompress(given[:_PIECE])


def _streams(
    new: Callable[[], _Decompressor],
    name: str,
    *magics: bytes,
    salvage: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None,
) -> Callable[[Raw], Iterator[bytes]]:
    """Decompresses streams that follow each other and begin with one of ``magics``, each by a ``new`` decompressor;
    ``salvage`` decompresses the small pieces of a damaged one, instead of that."""

    def inflate(raw: Raw) -> Iterator[bytes]:
        data = raw.read()
        while data:
            begin, done, head = raw.position - len(data), 0, data[:5]
            if name == "gzip" and len(head) > 3 and head[3] & 0xE0:  # isal does not check them
                raise raw.damaged(name, "reserved flags are set")
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
                    plain = salvage(again) if salvage is not None else _drained(new(), again)
                    yield from _before_damage(plain, done)
                    advice = _ADVICE if "memory" in str(error).lower() else ""
                    raise raw.damaged(name, f"{error}{advice}") from error
                data = b""
                if out:
                    done += len(out)
                    yield out
            if isinstance(stream, lzma.LZMADecompressor) and stream.check == lzma.CHECK_NONE:
                raw.unchecked = "an xz stream"
            if head.startswith(_ZSTD) and not head[4] & 4:
                raw.unchecked = "a zstd frame"
            data = _next_stream(raw, stream.unused_data, name, magics)

    return inflate


def _drained(stream: _Decompressor, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for data in pieces:
        yield stream.decompress(data, CHUNK)
        while not (stream.needs_input or stream.eof):
            yield stream.decompress(b"", CHUNK)


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


def _next_stream(raw: Raw, rest: bytes, name: str, magics: tuple[bytes, ...]) -> bytes:
    """The beginning of the next stream after a finished one, ``b""`` at the end of the file; NULs are padding."""
    rest = rest.lstrip(b"\0")
    while len(rest) < _HEAD:
        more = raw.read()
        if not more:
            break
        rest = (rest + more).lstrip(b"\0")
    if rest and not rest.startswith(magics):
        raise raw.damaged(name, "other bytes than NUL follow it")
    return rest


def _unzstd(raw: Raw) -> Iterator[bytes]:
    # one for all frames: to make it takes longer than to decompress a small frame
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return _streams(lambda: _ZstdFrame(decompressor), "zstd", _ZSTD, *_SKIPPABLE)(raw)


_FORMATS: tuple[tuple[re.Pattern[bytes], Callable[[Raw], Iterator[bytes]]], ...] = (
    (
        re.compile(_GZIP + b"\x08.{7}", re.S),
        _streams(
            lambda: IgzipDecompressor(DECOMP_GZIP),
            "gzip",
            _GZIP,
            salvage=lambda pieces: map(zlib.decompressobj(31).decompress, pieces),
        ),
    ),
    (re.compile(re.escape(_ZSTD) + rb"|[\x50-\x5f]\x2a\x4d\x18"), _unzstd),
    (re.compile(_XZ), _streams(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), "xz", _XZ)),
    (re.compile(_BZIP2 + b"[1-9]1AY&SY"), _streams(bz2.BZ2Decompressor, "bzip2", _BZIP2)),
)
