"""Tists: Unix time stamps in whole seconds, UTC; stamping, parsing, printing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timezone

from archec.errors import ArchecError, BadName

MAX_TIST = 253402300799
"""9999-12-31T23:59:59Z, the last second that :func:`iso` can print."""

_MOST_DIGITS = len(str(MAX_TIST))
_DIGITS = re.compile(r"[0-9]{9,12}")
_YEAR_FIRST = re.compile(r"(?<![0-9])(?:[0-9]{4}[-/.][0-9]|[0-9]{8})")


def stamp(previous: int | None = None, *, clock: Callable[[], float] = time.time) -> int:
    """A new software tist: now, or one second after ``previous`` if the clock has not passed it.

    Software tists strictly increase from run to run (design, section 1), even if two runs start
    within one second or the machine's clock was set back. Raises :class:`ArchecError` if the clock
    says what no tist can say.
    """
    now = int(clock())
    if not 0 <= now <= MAX_TIST:
        raise ArchecError("the clock of this machine is before 1970 or after 9999", hint="set the clock")
    return now if previous is None or now > previous else previous + 1


def iso(tist: int) -> str:
    """ISO 8601 in UTC with a final ``Z``, the form that OAI-PMH and WARC use."""
    return datetime.fromtimestamp(tist, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_when(text: str) -> int:
    """Parses the input of an operator: a tist, or any date that python-dateutil reads.

    Dates without a zone are UTC; a missing month, day or time of day defaults to the first:
    ``2009-05`` means 2009-05-01T00:00:00Z. A bare number of nine to twelve digits is a tist;
    ``now`` is now. A year is required, and an ambiguous date such as 03/04/2024 is refused.
    Raises :class:`BadName`.
    """
    text = text.strip()
    if text.lower() == "now":
        return int(time.time())
    if _DIGITS.fullmatch(text):
        tist = int(text)
    else:
        when = _read_date(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        try:
            tist = int(when.timestamp() // 1)
        except (ValueError, OverflowError) as error:
            raise BadName(f"{text!r} is out of range for a date") from error
    if not 0 <= tist <= MAX_TIST:
        raise BadName(f"{text!r} is out of range for a tist")
    return tist


def run_number(text: str) -> int | None:
    """The software tist written in ``text`` as digits, or None."""
    tist = int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else MAX_TIST + 1
    return tist if tist <= MAX_TIST else None


def _read_date(text: str) -> datetime:
    """The parsed date, if it is unambiguous."""
    from dateutil import parser  # here, because it is slow to import

    default = datetime(1970, 1, 1)
    try:
        when, other = (parser.parse(text, default=default.replace(year=year)) for year in (1970, 1971))
        # With dayfirst, dateutil would also swap month and day of 2009-05-01.
        turned = [] if _YEAR_FIRST.search(text) else [
            parser.parse(text, default=default, dayfirst=True), parser.parse(text, default=default, yearfirst=True)
        ]  # fmt: skip
    except (ValueError, OverflowError, TypeError) as error:
        raise BadName(
            f"cannot read {text!r} as a date",
            hint="write it as 2009-05-01, 2009-05-01T12:00:00Z or as a tist",
        ) from error
    if when.year != other.year:
        raise BadName(
            f"{text!r} is not a full date: it has no year", hint="write it as 2009-05-01 or 2009-05-01T12:00:00Z"
        )
    if day := next((one for one in turned if one != when), None):
        first, second = (one.strftime("%Y-%m-%d") for one in (when, day))
        raise BadName(f"{text!r} is ambiguous: {first} or {second}", hint=f"write {first} or {second}")
    return when
