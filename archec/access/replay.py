"""Raw replay: status, headers and bytes of a record as they were, safe to look at, with ranges.

Nothing in a page is rewritten. What would act on this server, on the client's connection or on other pages is kept
under ``X-Archive-Orig-``; a redirect leads to the capture of its target.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urljoin

from starlette.responses import Response

from archec.access.exchange import Exchange, answer, as_uri
from archec.access.memento import Addresses
from archec.access.record import Record, dechunked
from archec.access.resource import Loaded, RecordAnswer
from archec.access.stamps import http_date

_ORIG = "X-Archive-Orig-"
_KEPT = frozenset(
    {
        "content-type", "content-encoding", "content-language", "content-disposition", "last-modified", "content-md5",
    }
)  # fmt: skip
"""Headers that mean the same here as they did there."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_SANDBOX = "default-src 'none'; sandbox"


class _Part(NamedTuple):
    """A stretch of a body: its first byte and its length."""

    first: int
    length: int


def answer_replay(
    exchange: Exchange, loaded: Loaded, at: Addresses, links: str, *, negotiated: bool = False
) -> Response:
    """The record as the answer that it was. ``negotiated``: this is the answer of a TimeGate."""
    row, record = loaded
    chunked = "chunked" in record.http_header("transfer-encoding").lower()
    size = -1 if chunked else record.size
    tag = _tag(loaded)
    headers = [
        ("Memento-Datetime", http_date(row.timestamp)),
        ("Content-Location", at.memento(row)),
        ("Link", links),
        ("ETag", tag),
        ("Accept-Ranges", "bytes" if size >= 0 else "none"),
        ("Content-Security-Policy", _SANDBOX),
        *([("Vary", "accept-datetime")] if negotiated else []),
    ]
    if _is_known(exchange, tag, record):
        return _Closing(record, answer(304, b"", "text/html", headers))
    status = _status(record)
    headers += _original_headers(record, row.url, at, row.timestamp)
    media_type = _media_type(record)
    body = dechunked(record.body) if chunked else record.body
    part = _part(exchange, size, tag) if status == 200 and size >= 0 else None
    if part is not None and part.length < 0:
        return _Closing(record, answer(416, b"", "text/plain", [("Content-Range", f"bytes */{size}")]))
    if part is not None:
        status = 206
        headers.append(("Content-Range", f"bytes {part.first}-{part.first + part.length - 1}/{size}"))
        body, size = _cut(body, part), part.length
    made = answer(status, b"", media_type, headers)
    if status in (204, 304):
        return _Closing(record, made)
    return RecordAnswer(b"", Record(record.headers, b"", size, body, record.close), b"", made)


def _is_known(exchange: Exchange, tag: str, record: Record) -> bool:
    """Whether the client says that it has these bytes."""
    tags = exchange.headers.get("if-none-match", "")
    if tags:
        return tags.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in tags.split(",")]
    since = exchange.headers.get("if-modified-since", "")
    return bool(since) and since == record.http_header("last-modified")


def _tag(loaded: Loaded) -> str:
    """A tag of these bytes."""
    row, record = loaded
    digest = record.get("WARC-Payload-Digest") or row.text("digest")
    parts = (row.url, row.timestamp, digest, record.get("WARC-Record-ID"))
    return f'"{hashlib.sha256("|".join(parts).encode("utf-8", "replace")).hexdigest()[:32]}"'


def _status(record: Record) -> int:
    text = record.http_status
    if not record.http:
        return 200
    status = int(text) if re.fullmatch("[2-5][0-9][0-9]", text) else 200
    return 200 if status in (206, 304) else status


def _media_type(record: Record) -> str:
    given = record.http_header("content-type") if record.http else record.get("Content-Type")
    return given or "application/octet-stream"


def _original_headers(record: Record, url: str, at: Addresses, stamp: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in record.http_headers() if record.http else []:
        lowered = name.lower()
        if not _TOKEN.fullmatch(name) or lowered == "content-type":
            continue
        if lowered == "location":
            found.append(("Location", f"{at.base}/{stamp}id_/{as_uri(urljoin(url, value))}"))
        if lowered in _KEPT:
            found.append((name, value))
        else:
            found.append((_ORIG + name, value))
    return found


def _part(exchange: Exchange, size: int, tag: str) -> _Part | None:
    """The range that is asked for; None for all, a negative length for one that there is not."""
    match = _RANGE.fullmatch(exchange.headers.get("range", "").strip())
    if match is None or exchange.headers.get("if-range", tag) != tag:
        return None
    first, last = match[1], match[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last[:18]), size)
        return _Part(size - length, length or -1)
    begin = int(first[:18])
    end = min(int(last[:18]), size - 1) if last else size - 1
    return _Part(begin, end - begin + 1 if begin < size and end >= begin else -1)


async def _cut(body: AsyncIterator[bytes], part: _Part) -> AsyncIterator[bytes]:
    skip, left = part.first, part.length
    async for piece in body:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        piece = piece[skip : skip + left]
        skip = 0
        left -= len(piece)
        yield piece
        if not left:
            return


class _Closing(RecordAnswer):
    """An answer without the body of a record, which is closed."""

    def __init__(self, record: Record, made: Response) -> None:
        nothing = Record(record.headers, b"", 0, _nothing(), record.close)
        super().__init__(b"", nothing, b"", made)
        if made.status_code in (204, 304):
            self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
