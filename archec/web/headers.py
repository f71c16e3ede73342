"""Header fields of responses: which ones are kept, how they are cleaned, what they mean."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timezone
from email.utils import parsedate_to_datetime

from archec.ids import without_userinfo

KEPT = frozenset(
    {
        "content-disposition", "content-encoding", "content-language", "content-length", "content-type", "date", "etag",
        "last-modified", "link", "location", "server", "x-robots-tag",
    }
)  # fmt: skip
"""The headers that a hop has. All others are dropped."""

TLS_FIELD = "archec-tls"
"""A field that archec adds to those of the server: the TLS exceptions that were needed."""

_WANTED = {
    name.encode("ascii"): name
    for name in (
        *KEPT, "retry-after", "transfer-encoding", "content-range", "x-ratelimit-remaining", "x-ratelimit-reset"
    )
}  # fmt: skip
_MAX_VALUE = 1024
_MAX_LOCATION = 8192
_NEVER_CUT = frozenset({"etag", "last-modified", "content-length", "date"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_GZIP = b"\x1f\x8b"


def clean(value: bytes) -> str:
    """Decodes a header value as ISO-8859-1. Control characters are replaced by blanks, and both ends are stripped."""
    text = value.decode("latin-1")
    return text.strip() if text.isprintable() else _CONTROL.sub(" ", text).strip()


def raw_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The fields that archec uses, by lower-case name. The first of repeated fields counts.

    A Location is returned unchanged, decoded as ISO-8859-1. Values that are too long are truncated, but validators,
    dates and Locations are dropped: a part of one would have another meaning.
    """
    found: dict[str, str] = {}
    for name, value in raw:
        key = _WANTED.get(name.lower())
        if key is None or key in found:
            continue
        if key == "location":
            if len(value) <= _MAX_LOCATION:
                found[key] = value.decode("latin-1").strip()
        elif len(value) <= _MAX_VALUE:
            found[key] = clean(value)
        elif key not in _NEVER_CUT:
            found[key] = clean(value[:_MAX_VALUE])
    return found


def kept(fields: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The fields for a hop, in their order. User information is removed from URLs."""
    found = []
    for name, value in fields.items():
        if name == "location":
            value = _location_text(value)
        elif "@" in value and name not in _NEVER_CUT:
            value = without_userinfo(value)
        if name in KEPT:
            found.append((name, value))
    return tuple(found)


def whole(text: str) -> int | None:
    """The whole number that a field states, None if it states none or has more than 18 digits without leading zeros."""
    digits = text.lstrip("0")
    return int(digits or 0) if text.isascii() and text.isdecimal() and len(digits) <= 18 else None


def wait_asked(fields: Mapping[str, str], now: float) -> float:
    """Seconds to wait according to Retry-After, 0 without one. A date is relative to the Date of the response."""
    asked = fields.get("retry-after", "")
    if asked.isascii() and asked.isdecimal():
        return float(asked[:12])
    until, since = http_date(asked), http_date(fields.get("date", ""))
    return 0.0 if until is None else max(0.0, until - (now if since is None else since))


def http_date(value: str) -> float | None:
    """The Unix time of an HTTP date, or None if it is invalid."""
    try:
        when = parsedate_to_datetime(value)
        return (when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def unpack(content: bytes, encoding: str, limit: int) -> bytes | None:
    """Decodes the content coding of a body, up to ``limit`` bytes. None if the coding is unknown or the data is
    damaged or ends early."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return content
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    found = b""
    while content and len(found) < limit:
        decoder = zlib.decompressobj(32 + zlib.MAX_WBITS)
        try:
            found += decoder.decompress(content, limit - len(found))
        except zlib.error:
            return None
        if not decoder.eof and len(found) < limit:
            return None
        content = decoder.unused_data if decoder.unused_data.startswith(_GZIP) else b""  # gzip has several members
    return found


def _location_text(value: str) -> str:
    """A Location for people, decoded as UTF-8 if possible."""
    with suppress(UnicodeDecodeError):
        value = value.encode("latin-1").decode("utf-8")
    return without_userinfo(_CONTROL.sub("", value).strip()).strip()
