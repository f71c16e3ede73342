"""The text checksum of a file: which parser is used, in which order, within which limits.

The same bytes, type and encoding give the same result with the same versions of the parsers. A new version may find
another text; a file that has changed meanwhile then counts as changed, never as cosmetic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from archec.text.body import TextLimits, decoded, gunzipped, open_body, pieces
from archec.text.parsers import digest_html, digest_pdf, digest_postscript
from archec.text.result import NoText, TextDigest, TextResult, TextTask
from archec.text.sniff import GZIP, HEAD, HTML, PDF, POSTSCRIPT, is_plain, sniff


def extractor(max_size: int, timeout: float) -> Callable[[TextTask], TextResult]:
    """Makes this process a worker of the text pool: gives the function that takes the text from a file."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # native libraries print there
    os.close(null)
    limits = TextLimits(max_size=max_size, timeout=timeout)

    def extract(task: TextTask) -> TextResult:
        result = text_md5(str(task.path), task.media_type, task.content_encoding, limits)
        if result.reason == "memory":
            raise MemoryError  # another process follows this one
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
    """A body that can be read several times from its beginning."""

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
        """Whether the file contains the bytes as they are."""
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
            _read(reading, page, digest)
        except UnicodeDecodeError:
            digest.clear()
            continue
        return


def _read(reading: Iterator[str], page: bool, digest: TextDigest) -> None:
    if page:
        digest_html(reading, digest)
        return
    for piece in reading:
        digest.feed(piece)
