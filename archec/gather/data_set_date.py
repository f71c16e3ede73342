"""The date of a data set (design, section 4)."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from archec.errors import BadName
from archec.tist import MAX_TIST, iso

_IN_NAME = re.compile(r"(?<![0-9])((?:19|20)[0-9]{2})([-_.]?)([0-9]{2})\2([0-9]{2})(?![0-9])")
_MONTH = (
    "(?<![a-z])(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_LIKE_A_DATE = re.compile(
    r"(?<![0-9])(?:"
    r"((?:19|20)[0-9]{2})[-_.]([0-9]{1,2})[-_.]([0-9]{1,2})|([0-9]{1,2})[-_.]([0-9]{1,2})[-_.]((?:19|20)[0-9]{2})"
    r"|([0-9]{2})-([0-9]{2})-([0-9]{2})|((?:19|20)[0-9]{2})(?:[-_.]([0-9]{1,2})|([01][0-9]))"
    r"|((?:19|20)[0-9]{2}[0-3][0-9][0-3][0-9]|[0-3][0-9][0-3][0-9](?:19|20)[0-9]{2})"
    r"|((?:19|20)[0-9]{2})([01][0-9])([0-3][0-9])[0-2][0-9](?:[0-5][0-9]){0,2}"
    rf"|(?:19|20)[0-9]{{2}}[-_. ]?{_MONTH}(?![a-z])"
    rf"|[0-9]{{0,2}}[-_. ]?{_MONTH}[-_. ]?(?:[0-9]{{1,2}}[-_., ]{{1,2}})?(?:19|20)[0-9]{{2}}"
    r")(?![0-9])",
    re.I,
)
_ONE_DATE = "give the date with --as-of, or rename the file"


def date_of(
    name: str = "", as_of: int | None = None, *, now: int = 0, newest: int = 0, whole: bool = True
) -> tuple[int, str]:
    """The tist of a data set and what determines it; 0 if that is not known (yet).

    It is ``as_of``, else the date in its ``name``, else ``now`` (of a plain directory), else the time of its ``newest``
    member, if it is ``whole``: in a damaged one the newest may come after the damage. Raises :class:`BadName`.
    """
    if as_of is not None:
        return as_of, "--as-of"
    if (named := date_in_name(name)) is not None:
        return named, "the name"
    if now:
        return now, "the clock"
    if newest > 0 and whole:
        return newest, "the newest member"
    return 0, "none: give one with --as-of"


def date_in_name(name: str) -> int | None:
    """The date in the file name of a data set, as the tist of its midnight UTC, or None if there is none.

    Recognises ``RePEc_2009-05-01.tar.gz``, ``RePEc-2016-04-20.tgz``, ``RePEc20090501.tar`` and the like; only dates
    after 1970-01-01 count. Raises :class:`BadName` if a name has several dates, or only dates in another form, which
    are ambiguous (01-05-2009) or invalid (2009-02-30).
    """
    found = {_midnight(match[1], match[3], match[4]) for match in _IN_NAME.finditer(name)} - {0}
    if len(found) > 1:
        readings = [iso(tist)[:10] for tist in sorted(found)]
        raise BadName(f"{name}: has several dates; it may be {' or '.join(readings)}", hint=_ONE_DATE)
    if found:
        return found.pop()
    if like := _LIKE_A_DATE.search(name):
        readings = _readings(*(part for part in like.groups() if part is not None))
        may_be = f"; it may be {' or '.join(readings)}" if readings else ""
        raise BadName(
            f"{name}: {like[0]} is not a date in the form 2009-05-01{may_be}",
            hint=_ONE_DATE,
        )
    return None


def _readings(*parts: str) -> list[str]:
    """The possible readings of a date in an unusual form, in ISO 8601."""
    if not parts:
        return []
    if len(parts) == 2:
        return [f"any day of {parts[0]}-{parts[1]:0>2}"] if _midnight(*parts, "1") else []
    if len(parts) == 1:
        (digits,) = parts
        cuts = [(digits[:4], digits[4:6], digits[6:]), (digits[4:], digits[:2], digits[2:4])]
        orders = [(year, *order) for year, *rest in cuts for order in (rest, rest[::-1])]
    else:
        orders = [(a, *rest) for a, *others in (parts, parts[::-1]) for rest in (others, others[::-1])]
        orders = [(century + year if len(year) == 2 else year, month, day)
                  for year, month, day in orders for century in ("19", "20")]  # fmt: skip
    tists = {_midnight(*order) for order in orders if len(order[0]) == 4}
    return [iso(tist)[:10] for tist in sorted(tists) if tist]


def _midnight(year: str, month: str, day: str) -> int:
    """The tist at which a day begins; 0 if the day does not exist or is before 1970-01-02."""
    try:
        tist = int(datetime(int(year), int(month), int(day), tzinfo=timezone.utc).timestamp())
    except ValueError:
        return 0
    return tist if 0 < tist <= MAX_TIST else 0
