"""Bodies as the extractors read them: opened safely, Content-Encoding undone, never beyond a limit."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from archec.text.result import NoText

__all__ = ["Limits", "gunzipped", "open_body", "pieces", "whole"]

_CHUNK = 1 << 16
_MAX_CODINGS = 2
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one extraction may use: bytes of the body as stored and as decoded, seconds."""

    max_size: int = 100_000_000
    timeout: float = 30.0


def open_body(path: str, limits: Limits) -> BinaryIO:
    """Opens a regular file for reading; NoText ``too-large`` before a byte is read, ``unreadable``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise NoText("unreadable") from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > limits.max_size:
        os.close(descriptor)
        raise NoText("too-large" if stat.S_ISREG(about.st_mode) else "unreadable")
    return os.fdopen(descriptor, "rb", buffering=0)


def pieces(body: BinaryIO, content_encoding: str, limits: Limits) -> Iterator[bytes]:
    """The body in pieces, with its Content-Encoding undone.

    Raises NoText: ``encoding`` for one that is unknown or broken, ``bomb`` beyond ``max_size``.
    """
    stream = _read(body)
    codings = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in codings if name not in ("", "identity")]
    if len(codings) > _MAX_CODINGS or any(name not in ("gzip", "x-gzip", "deflate") for name in codings):
        raise NoText("encoding")
    for name in reversed(codings):
        stream = _limited(_inflate(stream, raw=name == "deflate"), limits.max_size)
    return stream


def gunzipped(stream: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    """The inside of a gzip file; NoText ``damaged`` or ``bomb``."""
    try:
        yield from _limited(_inflate(stream, raw=False), limits.max_size)
    except NoText as error:
        raise NoText("damaged" if error.reason == "encoding" else error.reason) from error


def whole(stream: Iterator[bytes]) -> bytes:
    """All of a stream, which its limit keeps to a size that fits."""
    return b"".join(stream)


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
    """gzip (all members) or zlib; with ``raw`` also a bare deflate stream, as some servers send.

    What follows the last gzip member and is not another one is padding. NoText ``encoding``.
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
