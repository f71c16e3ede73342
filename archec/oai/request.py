"""From the arguments of a request to what is asked for: pure, with every rule of the protocol.

Arguments come as the list of pairs that stood in the request, so that a repeated one is seen. Sources:
OAI-PMH 2.0, sections 3.1, 3.3, 3.5, 3.6 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from archec.oai.dates import parse_moment
from archec.oai.faults import OaiFault
from archec.oai.names import METADATA_PREFIX, SET_SPEC
from archec.oai.xml import is_clean

__all__ = ["LISTS", "Pair", "Request", "parse_pairs", "read_request"]

Pair = tuple[str | None, str | None]
"""Name and value of one argument; None for what is not UTF-8."""

MOST_PAIRS = 50
"""Arguments that are looked at; no right request has more than six."""


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
"""RFC 3986, without the finer rules for what stands where."""


class Request(NamedTuple):
    """A request whose form is right. ``arguments`` are all of them, to be told back.

    ``start`` and ``end`` are the tists of from and until (0 and None where they were not given).
    """

    verb: str
    arguments: Mapping[str, str]
    identifier: str = ""
    prefix: str = ""
    set: str = ""
    start: int = 0
    end: int | None = None
    token: str = ""


class _Rule(NamedTuple):
    required: frozenset[str]
    optional: frozenset[str]
    token: bool


def _rule(required: str = "", optional: str = "", *, token: bool = False) -> _Rule:
    return _Rule(frozenset(required.split()), frozenset(optional.split()), token)


_RULES: Mapping[str, _Rule] = {
    "GetRecord": _rule("identifier metadataPrefix"),
    "Identify": _rule(),
    "ListIdentifiers": _rule("metadataPrefix", "from until set", token=True),
    "ListMetadataFormats": _rule("", "identifier"),
    "ListRecords": _rule("metadataPrefix", "from until set", token=True),
    "ListSets": _rule(token=True),
}

LISTS = frozenset(verb for verb, rule in _RULES.items() if rule.token)
"""The verbs whose answers may come in parts."""


def parse_pairs(query: bytes) -> list[Pair]:
    """The pairs of a query string or of a form, in order, with repetitions and empty values."""
    pairs: list[Pair] = []
    for piece in query.split(b"&", MOST_PAIRS):
        if piece:
            name, _, value = piece.partition(b"=")
            pairs.append((_decoded(name), _decoded(value)))
    return pairs


def _decoded(raw: bytes) -> str | None:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        return None


def read_request(pairs: Sequence[Pair]) -> Request:
    """The request behind its arguments. Raises :class:`OaiFault`: badVerb, badArgument."""
    verb = _verb(pairs)
    arguments = _unrepeated(pairs)
    rule = _RULES[verb]
    names = arguments.keys() - {"verb"}
    known = rule.required | rule.optional | ({"resumptionToken"} if rule.token else set())
    for name in sorted(names - known):
        raise _bad(f"{verb} has no argument {name!r}")
    if "resumptionToken" in names:
        if len(names) > 1:
            raise _bad("resumptionToken is an exclusive argument: it carries all the others")
        return Request(verb, arguments, token=_filled(arguments, "resumptionToken"))
    for name in sorted(rule.required - names):
        raise _bad(f"{verb} needs the argument {name}")
    start, end = _dates(arguments)
    return Request(
        verb,
        arguments,
        identifier=_identifier(arguments),
        prefix=_matching(arguments, "metadataPrefix", METADATA_PREFIX),
        set=_matching(arguments, "set", SET_SPEC),
        start=start,
        end=end,
    )


def _verb(pairs: Sequence[Pair]) -> str:
    verbs = [value for name, value in pairs if name == "verb"]
    if len(verbs) != 1:
        raise OaiFault("badVerb", "the argument verb is missing" if not verbs else "the argument verb is repeated")
    verb = verbs[0]
    if verb is None or verb not in _RULES:
        raise OaiFault("badVerb", f"the verb is none of {', '.join(_RULES)}")
    return verb


def _unrepeated(pairs: Sequence[Pair]) -> dict[str, str]:
    arguments: dict[str, str] = {}
    if len(pairs) > MOST_PAIRS:
        raise _bad(f"there are more than {MOST_PAIRS} arguments")
    for name, value in pairs:
        if name is None or value is None:
            raise _bad("an argument is not in UTF-8")
        if name in arguments:
            raise _bad(f"the argument {name!r} is repeated")
        if not is_clean(value):
            raise _bad(f"the argument {name!r} holds characters that XML does not allow")
        arguments[name] = value
    return arguments


def _filled(arguments: Mapping[str, str], name: str) -> str:
    if not arguments[name]:
        raise _bad(f"the argument {name} is empty")
    return arguments[name]


def _matching(arguments: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    if name not in arguments:
        return ""
    value = _filled(arguments, name)
    if form.fullmatch(value) is None:
        raise _bad(f"the argument {name} has a form that the protocol does not allow")
    return value


def _identifier(arguments: Mapping[str, str]) -> str:
    if "identifier" not in arguments:
        return ""
    value = _filled(arguments, "identifier")
    if _URI.fullmatch(value) is None:
        raise _bad("the argument identifier is not a URI")
    return value


def _dates(arguments: Mapping[str, str]) -> tuple[int, int | None]:
    first = parse_moment(arguments["from"]) if "from" in arguments else None
    last = parse_moment(arguments["until"]) if "until" in arguments else None
    for name, moment in (("from", first), ("until", last)):
        if name in arguments and moment is None:
            raise _bad(f"the argument {name} is neither YYYY-MM-DD nor YYYY-MM-DDThh:mm:ssZ")
    if first is not None and last is not None:
        if first.is_day != last.is_day:
            raise _bad("from and until are of different granularity")
        if first.first > last.last:
            raise _bad("from is later than until")
    return first.first if first is not None else 0, last.last if last is not None else None


def _bad(message: str) -> OaiFault:
    return OaiFault("badArgument", message)
