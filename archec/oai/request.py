"""Parses the arguments of an HTTP request to a valid OAI-PMH request, or raises the appropriate protocol error.

Arguments are a list of pairs as in the request, so that repetitions can be detected. Sources: OAI-PMH 2.0,
sections 3.1, 3.3, 3.5, 3.6 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from archec.oai.xml import is_clean

Argument = tuple[str | None, str | None]
"""Name and value of one argument; None stands for bytes that are not UTF-8."""

MAX_ARGUMENTS = 50
"""No valid request has more than six."""

ErrorCode = Literal[
    "badArgument",
    "badResumptionToken",
    "badVerb",
    "cannotDisseminateFormat",
    "idDoesNotExist",
    "noMetadataFormats",
    "noRecordsMatch",
    "noSetHierarchy",
]

_PREFIX = re.compile(r"[A-Za-z0-9_.!~*'()-]+")
_SET_SPEC = re.compile(r"[A-Za-z0-9_.!~*'()-]+(:[A-Za-z0-9_.!~*'()-]+)*")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2}):([0-9]{2})Z)?")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
"""Only checks that all characters are allowed in URIs by RFC 3986, not their positions."""


class OaiError(Exception):
    """A protocol error: a response with HTTP status 200, not a failure of the server.

    Not an :class:`archec.errors.ArchecError`, because it tells a harvester what is wrong with its request and never
    reaches the operator.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message


class OaiRequest(NamedTuple):
    """A well-formed request. ``arguments`` are all of its arguments, for the response; ``start`` and
    ``end`` are the tists of from and until (0 and None if not given)."""

    verb: str
    arguments: Mapping[str, str]
    identifier: str = ""
    prefix: str = ""
    set: str = ""
    start: int = 0
    end: int | None = None
    token: str = ""


class OaiDate(NamedTuple):
    """A date of the protocol: the tists of its first and last second, and whether it is a whole day."""

    first: int
    last: int
    is_day: bool


class _Rule(NamedTuple):
    """The arguments of a verb. ``token``: its response is a list in pages, and it accepts a resumptionToken."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    token: bool = False


_LIST_RULE = _Rule(frozenset(["metadataPrefix"]), frozenset(["from", "until", "set"]), token=True)

VERBS: Mapping[str, _Rule] = {
    "GetRecord": _Rule(frozenset(["identifier", "metadataPrefix"])),
    "Identify": _Rule(),
    "ListIdentifiers": _LIST_RULE,
    "ListMetadataFormats": _Rule(optional=frozenset(["identifier"])),
    "ListRecords": _LIST_RULE,
    "ListSets": _Rule(token=True),
}

LISTS = frozenset(verb for verb, rule in VERBS.items() if rule.token)


def parse_arguments(query: bytes) -> list[Argument]:
    """The arguments of a query string or a form, in order, including repetitions and empty values.

    Everything after :data:`MAX_ARGUMENTS` arguments is kept as one more, which makes the request invalid.
    """
    arguments: list[Argument] = []
    for piece in query.split(b"&", MAX_ARGUMENTS):
        if piece:
            name, _, value = piece.partition(b"=")
            arguments.append((_decode(name), _decode(value)))
    return arguments


def _decode(raw: bytes) -> str | None:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        return None


def read_request(arguments: Sequence[Argument]) -> OaiRequest:
    """Converts arguments to a request. Raises :class:`OaiError`: badVerb, badArgument."""
    verb = _verb(arguments)
    given = _as_mapping(arguments)
    rule = VERBS[verb]
    names = given.keys() - {"verb"}
    allowed = rule.required | rule.optional | ({"resumptionToken"} if rule.token else set())
    for name in sorted(names - allowed):
        raise _bad(f"{verb} has no argument {name!r}")
    if "resumptionToken" in names:
        if len(names) > 1:
            raise _bad("resumptionToken is an exclusive argument")
        return OaiRequest(verb, given, token=_value(given, "resumptionToken"))
    for name in sorted(rule.required - names):
        raise _bad(f"{verb} requires the argument {name}")
    start, end = _dates(given)
    return OaiRequest(
        verb,
        given,
        identifier=_value(given, "identifier", _URI),
        prefix=_value(given, "metadataPrefix", _PREFIX),
        set=_value(given, "set", _SET_SPEC),
        start=start,
        end=end,
    )


def _verb(arguments: Sequence[Argument]) -> str:
    verbs = [value for name, value in arguments if name == "verb"]
    if len(verbs) != 1:
        raise OaiError("badVerb", "the argument verb is repeated" if verbs else "the argument verb is missing")
    verb = verbs[0]
    if verb is None or verb not in VERBS:
        raise OaiError("badVerb", f"the verb is none of {', '.join(VERBS)}")
    return verb


def _as_mapping(arguments: Sequence[Argument]) -> dict[str, str]:
    """The arguments by name. Raises :class:`OaiError` for repeated ones, and for characters not allowed in XML."""
    if len(arguments) > MAX_ARGUMENTS:
        raise _bad(f"there are more than {MAX_ARGUMENTS} arguments")
    found: dict[str, str] = {}
    for name, value in arguments:
        if name is None or value is None:
            raise _bad("an argument is not in UTF-8")
        if name in found:
            raise _bad(f"the argument {name!r} is repeated")
        if not is_clean(value):
            raise _bad(f"the argument {name!r} has characters that XML does not allow")
        found[name] = value
    return found


def _value(given: Mapping[str, str], name: str, form: re.Pattern[str] | None = None) -> str:
    """The value of an argument, "" if it is not given. A given value must not be empty, and must match ``form``."""
    if name not in given:
        return ""
    value = given[name]
    if not value:
        raise _bad(f"the argument {name} is empty")
    if form is not None and form.fullmatch(value) is None:
        raise _bad(f"the argument {name} is malformed")
    return value


def _dates(given: Mapping[str, str]) -> tuple[int, int | None]:
    first, last = (parse_date(given[name]) if name in given else None for name in ("from", "until"))
    for name, date in (("from", first), ("until", last)):
        if name in given and date is None:
            raise _bad(f"the argument {name} is neither YYYY-MM-DD nor YYYY-MM-DDThh:mm:ssZ")
    if first is not None and last is not None:
        if first.is_day != last.is_day:
            raise _bad("from and until have different granularities")
        if first.first > last.last:
            raise _bad("from is later than until")
    return first.first if first is not None else 0, last.last if last is not None else None


def parse_date(text: str) -> OaiDate | None:
    """Parses ``YYYY-MM-DD`` or ``YYYY-MM-DDThh:mm:ssZ``; returns None for anything else.

    Fractions, offsets, months alone and days that do not exist are not allowed (OAI-PMH 2.0, section 3.3).
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    is_day = match[4] is None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        begin = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    first = int(begin.timestamp())
    return OaiDate(first, first + 86399 if is_day else first, is_day)


def _bad(message: str) -> OaiError:
    return OaiError("badArgument", message)
