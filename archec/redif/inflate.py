"""The bytes of a tarball, decompressed chunk by chunk; its magic number tells the format.

Chunks have at most about 1 MiB, whatever the compression ratio, and the windows of the decompressors are limited: a
decompression bomb costs time but no memory. For gzip ISA-L (package ``isal``) is used if installed: it takes 40 % of
zlib's time.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import BinaryIO, Protocol, cast

import zstandard

CHUNK = 512 * 1024
_READ = 128 * 1024
_XZ_MEMORY = 512 * 1024 * 1024
_ZSTD_WINDOW = 128 * 1024 * 1024


class Damaged(Exception):
    """The stream is truncated or damaged; the message says how."""


class Raw:
    """The file on disk, which counts what has been read of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.position = 0

    def read(self, size: int = _READ) -> bytes:
        """Up to ``size`` bytes, none at the end. Raises Damaged if the file cannot be read."""
        try:
            data = self._file.read(size)
        except OSError as error:
            raise Damaged(f"cannot be read: {error.strerror}") from error
        self.position += len(data)
        return data

    def rewind(self) -> None:
        """Back to the first byte."""
        self._file.seek(0)
        self.position = 0


def chunks(raw: Raw) -> Iterator[bytes]:
    """The decompressed bytes of ``raw`` in chunks that are not empty. Raises Damaged."""
    magic = raw.read(6)
    raw.rewind()
    for begin, decompress in _FORMATS:
        if magic.startswith(begin):
            return decompress(raw)
    return iter(lambda: raw.read(CHUNK), b"")


class _Inflater(Protocol):
    """What the decompressors of lzma and bz2 have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def _gunzip(raw: Raw) -> Iterator[bytes]:
    inflater = _inflate_module()
    failures: tuple[type[Exception], ...] = (zlib.error, inflater.error)
    data = raw.read()
    while data:
        stream = inflater.decompressobj(31)
        wants_more = False
        while not stream.eof:
            if wants_more and not data:
                data = raw.read()
                if not data:
                    raise Damaged("the gzip stream ends early")
            try:
                out = stream.decompress(data, CHUNK)
            except failures as error:
                raise Damaged(f"the gzip stream is damaged: {error}") from error
            data = stream.unconsumed_tail
            wants_more = len(out) < CHUNK
            if out:
                yield out
        data = _next_stream(raw, stream.unused_data, b"\x1f\x8b")


def _streams(new: Callable[[], _Inflater], name: str, magic: bytes) -> Callable[[Raw], Iterator[bytes]]:
    def inflate(raw: Raw) -> Iterator[bytes]:
        data = raw.read()
        while data:
            stream = new()
            while not stream.eof:
                if stream.needs_input and not data:
                    data = raw.read()
                    if not data:
                        raise Damaged(f"the {name} stream ends early")
                try:
                    out = stream.decompress(data, CHUNK)
                except (lzma.LZMAError, OSError, ValueError, EOFError) as error:
                    raise Damaged(f"the {name} stream is damaged: {error}") from error
                data = b""
                if out:
                    yield out
            data = _next_stream(raw, stream.unused_data, magic)

    return inflate


def _next_stream(raw: Raw, rest: bytes, magic: bytes) -> bytes:
    """The beginning of another stream after a finished one, ``b""`` if padding or anything else follows."""
    rest = rest.lstrip(b"\0")
    while len(rest) < len(magic):
        more = raw.read()
        if not more:
            return b""
        rest = (rest + more).lstrip(b"\0")
    return rest if rest.startswith(magic) else b""


def _unzstd(raw: Raw) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    with decompressor.stream_reader(cast("BinaryIO", raw), read_across_frames=True, closefd=False) as reader:
        while True:
            try:
                out = reader.read(CHUNK)
            except zstandard.ZstdError as error:
                raise Damaged(f"the zstd stream is damaged: {error}") from error
            if not out:
                return
            yield out


def _inflate_module() -> ModuleType:
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib


_FORMATS: tuple[tuple[bytes, Callable[[Raw], Iterator[bytes]]], ...] = (
    (b"\x1f\x8b", _gunzip),
    (b"\x28\xb5\x2f\xfd", _unzstd),
    (b"\xfd7zXZ\0", _streams(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), "xz", b"\xfd7zXZ\0")),
    (b"BZh", _streams(bz2.BZ2Decompressor, "bzip2", b"BZh")),
)
