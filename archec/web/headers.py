"""Header fields of an answer, made safe: which are kept, how they are cleaned, what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit, urlunsplit

from archec.ids import without_userinfo

__all__ = ["KEPT", "clean", "kept", "location_of", "media_type", "raw_headers", "retry_after"]

KEPT = frozenset(
    {
        "content-disposition", "content-encoding", "content-language", "content-length", "content-type", "date", "etag",
        "last-modified", "link", "location", "server", "x-robots-tag",
    }
)  # fmt: skip
"""The headers that are handed on; the rest of an answer's head is not kept."""

_WANTED = {
    name.encode("ascii"): name for name in KEPT | {"retry-after", "transfer-encoding"}
}
_LONGEST = 1024
_LONGEST_LOCATION = 8192
_WHOLE_OR_NOT = frozenset({"etag", "last-modified", "content-length", "date"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def clean(value: bytes) -> str:
    """A header value as text: ISO-8859-1, control characters made blanks, ends stripped."""
    text = value.decode("latin-1")
    return text.strip() if text.isprintable() else _CONTROL.sub(" ", text).strip()


def raw_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The wanted fields by lower-case name; of a repeated one the first.

    Location is read as UTF-8 where it is that, as servers send it. A value that is too long is cut; a
    validator, a date or a Location that is too long is left out, since a part of it would be another one.
    """
    found: dict[str, str] = {}
    for name, value in raw:
        key = _WANTED.get(name) or _WANTED.get(name.lower())
        if key is None or key in found:
            continue
        if key == "location":
            if len(value) <= _LONGEST_LOCATION:
                found[key] = _location_text(value)
        elif len(value) <= _LONGEST:
            found[key] = clean(value)
        elif key not in _WHOLE_OR_NOT:
            found[key] = clean(value[:_LONGEST])
    return found


def kept(fields: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The fields to hand on, in the order they came; URLs in them without user information."""
    return tuple((name, _public(name, value)) for name, value in fields.items() if name in KEPT)


def _public(name: str, value: str) -> str:
    if "@" not in value or name in _WHOLE_OR_NOT:
        return value
    return without_user(value) if name == "location" else without_userinfo(value)


def media_type(content_type: str) -> str:
    """``text/html`` of ``Text/HTML; charset=x``; ``""`` where there is none."""
    return content_type.partition(";")[0].strip().lower()


def retry_after(value: str, now: float) -> float | None:
    """Seconds to wait of a Retry-After header (seconds or an HTTP date), None where it says nothing.

    ``now`` is the Unix time. What lies in the past is 0.
    """
    if value.isascii() and value.isdecimal():
        return float(value[:12])
    try:
        when = parsedate_to_datetime(value)
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        return max(0.0, (when - datetime.fromtimestamp(now, timezone.utc)).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def location_of(url: str, location: str) -> str:
    """Where a redirect of ``url`` leads: absolute, without user information and fragment.

    Raises ValueError where ``location`` cannot be resolved at all.
    """
    return without_user(urljoin(url, location)).partition("#")[0]


def without_user(url: str) -> str:
    """``url`` without a user name and password before its host."""
    if "@" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return re.sub(r"//[^/?#]*@", "//", url, count=1)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _location_text(value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return _CONTROL.sub("", text).strip()
