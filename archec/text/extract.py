"""Computes the text checksum of a file: opens, decompresses and decodes it within limits, and runs the parser of its
type.

The result only depends on bytes, type, encoding and the versions of the parsers. Another version may find another text;
a file that has changed meanwhile then counts as changed, never as cosmetic.
"""

from __future__ import annotations

import codecs
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from archec.text.charset import declared
from archec.text.checksum import NoText, TextDigest, TextLimits, TextResult, TextTask
from archec.text.parsers import digest_html, digest_pdf, digest_postscript
from archec.text.sniff import BOMS, GZIP, HEAD, HTML, PDF, POSTSCRIPT, is_plain, sniff

_CHUNK = 1 << 16
_MAX_CODINGS = 2
_GZIP = b"\x1f\x8b"


def open_body(path: str, limits: TextLimits) -> BinaryIO:
    """Opens a regular file for reading. Raises NoText: ``too-large`` (before anything is read), ``unreadable``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise NoText("unreadable") from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > limits.max_size:
        os.close(descriptor)
        raise NoText("too-large" if stat.S_ISREG(about.st_mode) else "unreadable")
    return os.fdopen(descriptor, "rb", buffering=0)


def pieces(body: BinaryIO, content_encoding: str, limits: TextLimits) -> Iterator[bytes]:
    """Yields the body in chunks, without its Content-Encoding.

    Raises NoText: ``encoding`` if that is unknown or the data is invalid, ``bomb`` beyond ``max_size``.
    """
    stream = _read(body)
    codings = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in codings if name not in ("", "identity")]
    if len(codings) > _MAX_CODINGS or any(name not in ("gzip", "x-gzip", "deflate") for name in codings):
        raise NoText("encoding")
    for name in reversed(codings):
        stream = _limited(_inflate(stream, raw=name == "deflate"), limits.max_size)
    return stream


def gunzipped(stream: Iterator[bytes], limits: TextLimits) -> Iterator[bytes]:
    """Yields the decompressed contents of a gzip file. Raises NoText: ``damaged``, ``bomb``."""
    try:
        yield from _limited(_inflate(stream, raw=False), limits.max_size)
    except NoText as error:
        raise NoText("damaged" if error.reason == "encoding" else error.reason) from error


def decoded(source: Callable[[], Iterator[bytes]], content_type: str, page: bool) -> Iterator[Iterator[str]]:
    """Yields decodings of a body, to be tried in turn until one does not raise UnicodeDecodeError.

    ``source`` reads the body from its beginning. The charset is that of a byte-order mark, else the one in
    ``content_type``, else, in a ``page``, the one in its ``<meta>``; then invalid bytes are replaced, except that an
    invalid body declared as UTF-8 is cp1252. Without a charset the body is UTF-8 if all of it is valid, else cp1252,
    which decodes anything. Charsets are not guessed, because the results, and thus text checksums, would change with
    the version of the library that guesses.
    """
    stream = source()
    first = next(stream, b"")
    for mark, name in BOMS:
        if first.startswith(mark):
            yield _decode(chain((first[len(mark) :],), stream), name, "replace")
            return
    charset = declared(content_type, first if page else b"")
    if charset == "cp1252":
        yield _cp1252(chain((first,), stream))
        return
    if charset:
        yield _decode(chain((first,), stream), charset, "strict" if charset == "utf-8" else "replace")
        if charset != "utf-8":
            return
    else:
        yield _decode(chain((first,), stream), "utf-8", "strict")
    yield _cp1252(source())


def _read(body: BinaryIO) -> Iterator[bytes]:
    try:
        while piece := body.read(_CHUNK):
            yield piece
    except OSError as error:
        raise NoText("unreadable") from error


def _limited(stream: Iterator[bytes], limit: int) -> Iterator[bytes]:
    total = 0
    for piece in stream:
        total += len(piece)
        if total > limit:
            raise NoText("bomb")
        yield piece


def _inflate(stream: Iterator[bytes], raw: bool) -> Iterator[bytes]:
    """Decompresses gzip (all members) or zlib. ``raw``: also a bare deflate stream, which some servers send.

    Anything after the last gzip member is ignored. Raises NoText: ``encoding``.
    """
    machine: zlib._Decompress | None = zlib.decompressobj(47)
    members, data = 0, b""
    for piece in stream:
        data += piece
        if members and machine is None and len(data) < len(_GZIP):
            continue
        while data:
            if machine is None:
                if not data.startswith(_GZIP):
                    return
                machine = zlib.decompressobj(47)
            try:
                out = machine.decompress(data, _CHUNK)
            except zlib.error as error:
                if not raw:
                    raise NoText("encoding") from error
                machine, raw = zlib.decompressobj(-15), False
                continue
            raw = False
            if out:
                yield out
            data = machine.unconsumed_tail
            if machine.eof:
                data, machine, members = machine.unused_data, None, members + 1
                if len(data) < len(_GZIP):
                    break
    if machine is not None:
        yield machine.flush()
        if not machine.eof:
            raise NoText("encoding")


def _decode(stream: Iterator[bytes], name: str, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(name)(errors)
    for piece in stream:
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _cp1252(stream: Iterator[bytes]) -> Iterator[str]:
    """Decodes cp1252 without errors: its five undefined bytes become C1 control characters."""
    table = "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
    for piece in stream:
        yield codecs.charmap_decode(piece, "strict", table)[0]


def extractor(max_size: int, timeout: float) -> Callable[[TextTask], TextResult]:
    """Prepares this process as a worker of the text pool. Returns the function that processes a file."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # native libraries print to stderr
    os.close(null)
    limits = TextLimits(max_size=max_size, timeout=timeout)

    def extract(task: TextTask) -> TextResult:
        result = text_md5(str(task.path), task.media_type, task.content_encoding, limits)
        if result.reason == "memory":
            raise MemoryError  # the pool replaces this process
        return result

    return extract


def text_md5(path: str, media_type: str, content_encoding: str = "", limits: TextLimits | None = None) -> TextResult:
    """The MD5 of the normalised text of a file, or None with a reason. Never raises because of the contents.

    ``media_type`` is the result of :func:`archec.text.sniff.sniff`, with the ``charset`` parameter that the server
    declared, if any. It is checked against the first bytes after the Content-Encoding is removed.
    """
    limits = limits or TextLimits()
    try:
        with open_body(path, limits) as body:
            digest = TextDigest()
            _digest(_BodySource(body, path, content_encoding, limits), media_type, digest)
            md5 = digest.md5()
    except NoText as error:
        return TextResult(None, error.reason)
    except MemoryError:
        return TextResult(None, "memory")
    return TextResult(md5, "" if md5 else "empty")


class _BodySource:
    """A body that can be read repeatedly from its beginning."""

    def __init__(self, body: BinaryIO, path: str, encoding: str, limits: TextLimits, packed: bool = False) -> None:
        self._body = body
        self._encoding = encoding
        self._packed = packed
        self.path = path
        self.limits = limits

    def __call__(self) -> Iterator[bytes]:
        self._body.seek(0)
        stream = pieces(self._body, self._encoding, self.limits)
        return gunzipped(stream, self.limits) if self._packed else stream

    @property
    def plain_file(self) -> bool:
        """Whether the file contains the bytes without any compression."""
        return not self._packed and self._encoding.strip().lower() in ("", "identity")

    def inside(self) -> _BodySource:
        """The contents of a gzip file."""
        return _BodySource(self._body, self.path, self._encoding, self.limits, packed=True)

    def head(self) -> bytes:
        return next(self(), b"")[: 2 * HEAD]


def _digest(source: _BodySource, media_type: str, digest: TextDigest) -> None:
    kind = sniff(source.head(), media_type)
    if kind in GZIP:
        source = source.inside()
        kind = sniff(source.head())
    if kind == PDF:
        digest_pdf(Path(source.path) if source.plain_file else b"".join(source()), digest)
    elif kind == POSTSCRIPT:
        digest_postscript(source(), digest, source.limits)
    elif kind in HTML or is_plain(kind):
        _digest_characters(source, media_type, kind in HTML, digest)
    else:
        raise NoText("no-text-type")


def _digest_characters(source: _BodySource, content_type: str, page: bool, digest: TextDigest) -> None:
    for reading in decoded(source, content_type, page):
        try:
            if page:
                digest_html(reading, digest)
            else:
                for piece in reading:
                    digest.feed(piece)
            return
        except UnicodeDecodeError:
            digest.clear()
