"""Dates of the protocol: days and seconds in UTC, nothing else.

Source: OAI-PMH 2.0, section 3.3. No fractions, no offsets, no months alone, no days that the calendar
does not have; ``until=DAY`` means to the last second of that day.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import NamedTuple

__all__ = ["Moment", "parse_moment"]

_FORM = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2}):([0-9]{2})Z)?")


class Moment(NamedTuple):
    """A date as it was given: the tists of its first and its last second, and whether it is a day."""

    first: int
    last: int
    is_day: bool


def parse_moment(text: str) -> Moment | None:
    """The moment behind ``YYYY-MM-DD`` or ``YYYY-MM-DDThh:mm:ssZ``; None for anything else."""
    match = _FORM.fullmatch(text)
    if match is None or not text.isascii():
        return None
    year, month, day, *clock = match.groups()
    is_day = clock[0] is None
    hour, minute, second = (0, 0, 0) if is_day else (int(part) for part in clock)
    try:
        when = datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    first = int(when.timestamp())
    return Moment(first, first + 86399 if is_day else first, is_day)
