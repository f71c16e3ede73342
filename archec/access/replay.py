"""Raw replay: status, headers and bytes of a record as captured, made safe for browsers, with range requests.

Pages are not rewritten. All headers of the capture have the prefix ``X-Archive-Orig-``, where clients of the Internet
Archive look for them; those that cannot affect the connection, proxies or other pages are there as they were, too.
``X-Archive-Orig-Content-Type`` is always there: another archec knows by it that all others are ours. A redirect points
to the capture of its target.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from starlette.responses import Response

from archec.access.exchange import Exchange, answer, as_uri, errors_of
from archec.access.memento import Addresses
from archec.access.query import joined
from archec.access.record import HEADER_NAME, Record, dechunked, exactly
from archec.access.remote_records import REMOTE
from archec.access.resource import Loaded
from archec.access.sources import Errors
from archec.access.stamps import http_date
from archec.server.responses import BodyResponse, in_pieces
from archec.web.messages import http_date as time_of

_ORIG = "x-archive-orig-"
_UNSAFE = re.compile(
    r"connection|keep-alive|te|trailer|transfer-encoding|upgrade|content-length|proxy-.*"  # of the connection
    r"|date|etag|link|location|server|status|vary|via|content-(location|range)|accept-.*|reserrors|www-authenticate"
    r"|(archive|memento|warc|warcserver|x-archive)-.*"  # of this server
    r"|age|expires|pragma|retry-after|warning|.*cache.*|(akamai|cdn|edge|fastly|surrogate)-.*"
    r"|x-(accel|envoy|forwarded|lighttpd|litespeed|proxy|reproxy|sendfile).*"  # of caches and proxies
    r"|(access-control|attribution|clear|content-security|critical|cross-origin|document|expect|feature|integrity)-.*"
    r"|(no-vary|observe|origin|permissions|public-key|referrer|require|sec|service-worker|set|speculation)-.*"
    r"|(strict-transport|supports-loading|timing-allow|use-as|x-content|x-dns|x-frame|x-permitted|x-webkit|x-xss)-.*"
    r"|activate-storage-access|alt-svc|alternate-protocol|nel|refresh|report-to|reporting-endpoints|server-timing"
    r"|tk|(x-)?source-?map|x-robots-tag"  # of browsers
)
"""Headers that are not passed on under their own names."""
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.IGNORECASE)
_CONTROL = re.compile(rb"[^\x20-\x7e\x80-\xff]")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_SANDBOX = "default-src 'none'; sandbox"


class _HeldPart(NamedTuple):
    """The part of a resource that a record contains: its first byte, its length, and the total size ("*": unknown)."""

    first: int
    length: int
    of: str


def answer_replay(
    exchange: Exchange, loaded: Loaded, at: Addresses, links: str, errors: Errors, *, negotiated: bool = False
) -> Response:
    """Returns the response that a record contains. ``errors`` are those of sources. ``negotiated``: it is the response
    of a TimeGate."""
    row, record = loaded
    chunked = "chunked" in record.http_header("transfer-encoding").lower()
    size = -1 if chunked else record.size
    status, tag = _status(record), _tag(loaded)
    held = _held(record, status, size)
    headers = [
        ("Memento-Datetime", http_date(loaded.timestamp)),
        ("Content-Location", at.memento(row)),
        ("Link", links),
        ("ETag", tag),
        ("Accept-Ranges", "bytes" if held is not None else "none"),
        ("Content-Security-Policy", _SANDBOX),
        (f"{_ORIG}content-type", record.media_type),
        *([("Vary", "accept-datetime")] if negotiated else []),
        *errors_of(errors),
    ]
    if 200 <= status < 300 and (met := _precondition(exchange, tag, record)):
        return _without_body(record, answer(met, b"", "text/html", headers))
    part = _part(exchange, held, (tag, record.http_header("last-modified"))) if held is not None else None
    body = dechunked(record.body) if chunked else record.body
    if held is not None and part is not None:
        first, length = part
        if not length:
            of = [("Content-Range", f"bytes */{held.of}")] if held.of != "*" else []
            return _without_body(record, answer(416, b"", "text/plain", of))
        headers.append(("Content-Range", f"bytes {first}-{first + length - 1}/{held.of}"))
        status, body, size = 206, exactly(body, length, first - held.first), length
    if status == 206 and part is None and (given := record.http_header("content-range")):
        headers.append(("Content-Range", given))
    made = answer(status, b"", record.media_type or "application/octet-stream", headers)
    made.raw_headers.extend(_original_headers(record, row.url, at, row.timestamp))
    if status in (204, 304):
        return _without_body(record, made)
    return BodyResponse(made, size, body, record.close)


def _precondition(exchange: Exchange, tag: str, record: Record) -> int:
    """The status that the preconditions of a request demand: 412, 304 if the client has these bytes, or 0."""
    given = exchange.headers.get
    if tags := given("if-match"):
        if not _names(tags, tag):
            return 412
    elif _unchanged_since(given("if-unmodified-since"), record) is False:
        return 412
    if tags := given("if-none-match"):
        return 304 if _names(tags.replace("W/", ""), tag) else 0
    return 304 if _unchanged_since(given("if-modified-since"), record) else 0


def _names(tags: str, tag: str) -> bool:
    return tags.strip() == "*" or tag in [one.strip() for one in tags.split(",")]


def _unchanged_since(date: str | None, record: Record) -> bool | None:
    """Whether the capture says that it was last modified at this date or before. None if either is no date."""
    modified, given = time_of(record.http_header("last-modified")), time_of(date or "")
    return None if modified is None or given is None else modified <= given


def _tag(loaded: Loaded) -> str:
    row, record = loaded
    digest = record.get("WARC-Payload-Digest") or row.text("digest")
    own = record.get("WARC-Record-ID") if row.origin.type not in REMOTE else ""  # a new one for each answer there
    parts = (row.url, row.timestamp, digest, own)
    return f'"{hashlib.sha256("|".join(parts).encode("utf-8", "replace")).hexdigest()[:32]}"'


def _status(record: Record) -> int:
    text = record.http_status
    if not record.http:
        return 200
    if re.fullmatch("[6-9][0-9][0-9]", text):  # cannot be sent; clients must take it for a failure of the server
        return 502
    return int(text) if re.fullmatch("[2-5][0-9][0-9]", text) else 200


def _held(record: Record, status: int, size: int) -> _HeldPart | None:
    """The part of a resource that a record contains, or None if it is unknown, so that ranges cannot be served."""
    if size < 0 or status not in (200, 206):
        return None
    if status == 200:
        return _HeldPart(0, size, str(size))
    match = _CONTENT_RANGE.fullmatch(record.http_header("content-range").strip())
    if match is None or int(match[2]) - int(match[1]) + 1 != size:
        return None
    if match[3] != "*" and int(match[3]) <= int(match[2]):
        return None
    return _HeldPart(int(match[1]), size, match[3])


def _original_headers(record: Record, url: str, at: Addresses, stamp: str) -> Iterator[tuple[bytes, bytes]]:
    target = joined(url, location) if (location := record.http_header("location")) else ""
    if target:
        yield b"location", f"{at.base}/{stamp}id_/{as_uri(target)}".encode("ascii")
    for name, value in record.http_headers() if record.http else []:
        lowered = name.lower()
        if not HEADER_NAME.fullmatch(name) or lowered == "content-type":
            continue
        if lowered == "location" and target:
            continue  # no second one: clients take a prefixed header for one more of that name
        data = _CONTROL.sub(b"?", value.encode("utf-8", "surrogateescape"))
        yield f"{_ORIG}{lowered}".encode("ascii"), data
        if not _UNSAFE.fullmatch(lowered.replace("_", "-")):
            yield lowered.encode("ascii"), data


def _part(exchange: Exchange, held: _HeldPart, unchanged: tuple[str, ...]) -> tuple[int, int] | None:
    """The part of the requested range that is held: its first byte in the resource and its length, which is 0 if none
    of it is held. None if no range is requested, or one of other bytes."""
    match = _RANGE.fullmatch(exchange.headers.get("range", "").strip())
    if match is None or exchange.method != "GET" or exchange.headers.get("if-range", unchanged[0]) not in unchanged:
        return None
    first, last = match[1], match[2]
    if not first and (not last or held.of == "*"):
        return None
    if first and last and int(last[:18]) < int(first[:18]):
        return None
    end = held.first + held.length - 1
    begin = int(first[:18]) if first else int(held.of) - int(last[:18])
    end = min(end, int(last[:18])) if first and last else end
    begin = max(begin, held.first)
    return begin, max(end - begin + 1, 0)


def _without_body(record: Record, made: Response) -> Response:
    return BodyResponse(made, -1 if made.status_code in (204, 304) else 0, in_pieces(b""), record.close)
