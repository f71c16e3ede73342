"""Timestamps of indexes, 14 digits (seconds) or 17 (milliseconds), in full or shortened, and HTTP dates."""

from __future__ import annotations

import calendar
import re
import time
from datetime import datetime, timezone
from email.utils import formatdate
from functools import lru_cache

from archec.errors import UsageError
from archec.tist import iso
from archec.warc.cdxj import timestamp

_DIGITS = re.compile(r"[0-9]{1,14}|[0-9]{17}")
_RFC1123 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([0-9]{4})"
    r" ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def checked(name: str, value: str) -> str:
    """Validates a timestamp, full or shortened, of the parameter ``name``. Raises UsageError."""
    if not _DIGITS.fullmatch(value):
        raise UsageError(f"{name}={value[:40]!r} is not a timestamp of 1 to 14 digits")
    return value


def upper(value: str) -> str:
    """An upper bound of all timestamps that begin with ``value``."""
    return value.ljust(17, "9")


@lru_cache(maxsize=4096)
def last_moment(value: str) -> str:
    """The last second of a shortened timestamp: ``2014`` is 20141231235959."""
    return value if len(value) >= 14 else _possible(value.ljust(14, "9"))


def _possible(stamp: str) -> str:
    """A timestamp with each of its parts within limits, the year from 1000 on: the 31st of February is the last day of
    it."""
    year, month = max(stamp[:4], "1000"), _within(stamp[4:6], 1, 12)
    last_day = calendar.monthrange(int(year), int(month))[1]
    clock = (_within(stamp[8:10], 0, 23), _within(stamp[10:12], 0, 59), _within(stamp[12:14], 0, 59))
    return "".join((year, month, _within(stamp[6:8], 1, last_day), *clock))


def _within(digits: str, least: int, most: int) -> str:
    return f"{min(max(int(digits), least), most):02d}"


def _day(digits: str) -> int:
    """Days since 0000-03-01. Every combination of digits has a value, so that invalid dates are sorted, too."""
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
    year -= month <= 2
    month = (month + 9) % 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 306 + 5) // 10 + day - 1


@lru_cache(maxsize=4096)
def seconds(stamp: str) -> float:
    """A timestamp in seconds, for distances."""
    clock = int(stamp[8:14])
    whole = _day(stamp[:8]) * 86400 + clock // 10000 * 3600 + clock // 100 % 100 * 60 + clock % 100
    return whole + int(stamp[14:]) / 1000 if len(stamp) > 14 else whole


def of_date(date: str) -> str:
    """The timestamp of a ``WARC-Date``. Has fewer than 14 digits if the date is invalid."""
    return re.sub("[^0-9]", "", date)[:14]


def now_stamp() -> str:
    """The current second."""
    return timestamp(int(time.time()))


def moment(stamp: str) -> datetime | None:
    """The time of a timestamp, or None if it is invalid."""
    try:
        day = int(stamp[:4]), int(stamp[4:6]), int(stamp[6:8])
        return datetime(*day, int(stamp[8:10]), int(stamp[10:12]), int(stamp[12:14]), tzinfo=timezone.utc)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def http_date(stamp: str) -> str:
    """A timestamp as an HTTP date (RFC 1123); of an invalid one, a possible time near it."""
    return formatdate(to_tist(_possible(stamp)), usegmt=True)


def iso_date(stamp: str) -> str:
    """A timestamp in the format of ``WARC-Date``; of an invalid one, a possible time near it."""
    return iso(to_tist(_possible(stamp)))


def from_http_date(text: str) -> str:
    """The timestamp of an HTTP date. Raises UsageError for a format that RFC 7089 does not allow."""
    match = _RFC1123.fullmatch(text.strip())
    if match is not None:
        day, month, year, hour, minute, second = match.groups()
        stamp = f"{year}{_MONTHS.index(month) + 1:02d}{day}{hour}{minute}{second}"
        if moment(stamp) is not None:
            return stamp
    raise UsageError(f"Accept-Datetime {text[:60]!r} is not a date like 'Thu, 31 May 2007 20:35:00 GMT'")


def to_tist(stamp: str) -> int:
    """The tist of a timestamp, 0 if it is invalid."""
    when = moment(stamp)
    return int(when.timestamp()) if when is not None else 0
