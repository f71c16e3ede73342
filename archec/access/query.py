"""A query to an index: validated once, with the range of keys that it covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, unquote, urljoin

import re2
from msgspec import Struct

from archec.access.rows import ALIASES, Row
from archec.access.stamps import checked, last_moment, now_stamp, upper
from archec.errors import ArchecError, BadName, UsageError
from archec.ids import is_fileset, is_url, normalise, normalise_url, typed
from archec.urlkey import fileset_in, handle_in, target_uri, urlkey
from archec.web.location import location_of

MatchType = Literal["exact", "prefix", "host", "domain"]
Order = Literal["ascending", "reverse", "closest"]
Output = Literal["cdxj", "json", "text", "link"]

DEFAULT_LIMIT = 100_000
MAX_URL = 8192
_SHORT = 1000
"""Length up to which the keys of URLs are remembered: clients choose the URLs."""
_MATCH_TYPES: Sequence[str] = get_args(MatchType)
_OUTPUTS: Sequence[str] = get_args(Output)
_MAX_FILTERS = 100
_MAX_REGEX_MEMORY = 1 << 20
_NUMBER = re.compile(r"-?[0-9]{1,12}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ANY_SCHEME = re.compile(r"^\s*[A-Za-z][A-Za-z0-9+.-]*://(?=[^/])")
_ESCAPED_SCHEME = re.compile(r"(?:https?|ftp|urn|RePEc)%3A", re.I)
_ONE_SLASH = re.compile(r"^((?:https?|ftp):)/(?!/)", re.I)
_FOR_BROWSERS = re.compile(r"[\t\n\r\\]|^[\x00-\x20]|[\x00-\x20]$|^//(/|$)|^(https?|ftp):(?!//[^/])", re.I)
_HOST_PORT = re.compile(r"[^/?#]*:[0-9]+([/?#]|$)")
_OTHER_SCHEMES = ("urn:", "dns:", "mailto:", "whois:", "warcinfo:", "filedesc:", "urn-")

_NAMES = (
    "matchType", "collapseTime", "resolveRevisits", "allowFuzzy", "pageSize", "showNumPages", "showPagedIndex",
    "resumeKey", "showResumeKey", "showDupeCount", "showSkipCount", "lastSkipTimestamp",
)  # fmt: skip
_SPELLED = {name.lower(): name for name in _NAMES}

Argument = tuple[str, str]


class Filter(NamedTuple):
    """A test of a row: ``field`` (the whole row if empty) contains, equals (``=``) or matches (``~``) the value, or
    does not if ``inverted``. ``text`` is the filter as given."""

    text: str
    field: str
    test: Callable[[str], bool]
    inverted: bool

    def holds(self, row: Row) -> bool:
        value = row.text(self.field) if self.field else row.whole
        return self.test(value) != self.inverted


class KeyRange(NamedTuple):
    """The lines from ``start`` (included) to ``end`` (excluded). ``key`` is set for exact matches only.
    ``common`` is what all their keys begin with; for a domain, what those of its subdomains do (``org,example,``)."""

    start: bytes
    end: bytes
    key: str = ""
    common: str = ""


def arguments(query_string: bytes) -> Arguments:
    """Parses a query string. Raises UsageError if it has more than 1000 parameters."""
    try:
        return Arguments(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=1000))
    except ValueError as error:
        raise UsageError("too many parameters") from error


class Arguments:
    """Parameters by name. The first value that is not empty counts."""

    def __init__(self, given: Sequence[Argument]) -> None:
        self.given = given
        self.first = {name: value for name, value in reversed(given) if value}

    def one(self, name: str, alias: str = "") -> str:
        """The first value of a name or of its alias, or ""."""
        return self.first.get(name) or self.first.get(alias, "")

    def all(self, name: str) -> list[str]:
        """All values of a name that are not empty."""
        return [value for key, value in self.given if key == name and value] if name in self.first else []

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        """An integer. Raises UsageError."""
        text = self.first.get(name)
        if text is None:
            return default
        is_number = _NUMBER.fullmatch(text)
        if not is_number or int(text) < least:
            allowed = f": it is {least} or more" if is_number else ""
            raise UsageError(f"Invalid value for {name}= param: {text[:40]}{allowed}")
        return int(text)

    def flag(self, name: str) -> bool:
        """A boolean. Raises UsageError."""
        text = self.first.get(name, "0").lower()
        if text not in ("0", "1", "true", "false"):
            raise UsageError(f"{name}={text[:40]!r} is neither true nor false")
        return text in ("1", "true")


class Query(Struct, frozen=True):
    """A validated query. ``closest``, ``since`` and ``until`` are full timestamps or empty. ``limit`` is None for all
    rows. ``collapse_time`` is -1 if rows are not collapsed. ``sources`` are the sources to query, ``not_sources`` those
    to skip. ``fields`` are the fields to return. ``take`` has the parameters as received, for remote sources.
    ``show_source``: rows name their source. ``may_live``: the viewer may use the live web. ``may_push_limit``: the
    viewer sees all rows, so remote sources may apply the limit. ``page_size`` is 0 for the usual one. ``posted`` is the
    URL under which the request is indexed, if it is not a GET."""

    url: str
    match: MatchType
    range: KeyRange
    closest: str = ""
    since: str = ""
    until: str = ""
    order: Order = "ascending"
    limit: int | None = DEFAULT_LIMIT
    filters: tuple[Filter, ...] = ()
    fields: tuple[str, ...] = ()
    output: Output = "cdxj"
    collapse_time: int = -1
    resolve_revisits: bool = False
    sources: frozenset[str] = frozenset()
    not_sources: frozenset[str] = frozenset()
    take: Arguments = Arguments(())
    show_source: bool = True
    may_live: bool = False
    may_push_limit: bool = False
    page_size: int = 0
    posted: str = ""

    @property
    def key(self) -> str:
        """The key of an exact match, or empty."""
        return self.range.key

    @property
    def source_order(self) -> Order:
        """The order in which sources return rows: that of the keys if later steps need it."""
        if self.collapse_time >= 0 or self.resolve_revisits or (self.order == "closest" and not self.key):
            return "ascending"
        return self.order

    def bounds(self) -> tuple[bytes, bytes]:
        """The range of lines to read. For an exact match, ``until`` and (unless revisits are resolved) ``since`` narrow
        it."""
        start, end = self.range.start, self.range.end
        if not self.key:
            return start, end
        at_key = _bytes(self.key + " ")
        if self.since and not self.resolve_revisits:
            start = max(start, at_key + self.since.encode())
        if self.until:
            end = min(end, at_key + self.until.encode() + b"!")
        return start, end

    def wants(self, name: str) -> bool:
        return (not self.sources or name in self.sources) and name not in self.not_sources


def parse_query(take: Arguments, *, posted: str = "", may_live: bool = False, may_push_limit: bool = False) -> Query:
    """Validates parameters. ``posted`` is the URL under which a POST is indexed.

    Raises UsageError, which names the parameter.
    """
    check_names(take.given)
    first = take.first
    if "url" not in first:
        raise UsageError('The "url" param is required')
    match, url = _match(first["url"], first.get("matchType", ""))
    closest = first.get("closest", "")
    if closest:
        closest = now_stamp() if closest == "now" else last_moment(checked("closest", closest))
    since, until = take.one("from", "from_ts"), first.get("to", "")
    sort = first.get("sort", "default")
    if sort not in ("default", "closest", "reverse"):
        raise UsageError(f"sort={sort[:40]!r} is not one of closest, reverse")
    output = first.get("output", "cdxj")
    if output not in _OUTPUTS:
        raise UsageError(f"output={output[:40]} not supported")
    order: Order = "closest" if closest else "reverse" if sort == "reverse" or take.flag("reverse") else "ascending"
    wanted, not_wanted, colls = _sources(first.get("sources", "*"))
    return Query(
        url,
        match,
        key_range(url, match, urlkey(posted) if posted else ""),
        closest,
        checked("from", since).ljust(14, "0") if since else "",
        upper(checked("to", until)) if until else "",
        order,
        take.number("limit", DEFAULT_LIMIT) or None,
        parse_filters([*take.all("filter"), *(f"=mime:{mime}" for mime in take.all("content_type"))]),
        tuple(ALIASES.get(name, name) for name in take.one("fields", "fl").split(",") if name),
        cast(Output, output),
        take.number("collapseTime", -1),
        take.flag("resolveRevisits"),
        wanted,
        not_wanted,
        Arguments((*take.given, *colls)) if colls else take,
        not take.flag("nosource"),
        may_live,
        may_push_limit,
        take.number("pageSize", 0, least=1),
        posted,
    )


def all_of(url: str, closest: str = "", *, reverse: bool = False) -> Query:
    """The query for all captures of a URL. Raises UsageError."""
    order: Order = "closest" if closest else "reverse" if reverse else "ascending"
    return Query(url, "exact", key_range(url, "exact"), closest=closest, order=order, limit=None)


def check_names(given: Sequence[Argument]) -> None:
    """Raises UsageError for a known parameter in the wrong case (``matchtype``). Unknown ones are ignored: clients send
    those of other servers."""
    for name, _ in given:
        known = _SPELLED.get(name.lower(), name)
        if known != name:
            raise UsageError(f"{name} is not a parameter: write {known}")


def _sources(text: str) -> tuple[frozenset[str], frozenset[str], list[Argument]]:
    """Splits the parameter ``sources``: the sources to query (empty: all, as for ``*``), those to skip (the names after
    the first ``!``), and for each ``SOURCE:COLL`` a parameter with its collection."""
    if text == "*":
        return frozenset(), frozenset(), []
    wanted, _, skipped = text.partition("!")
    parts = [name.partition(":") for name in wanted.split(",") if name]
    names = frozenset(name for name, _, _ in parts)
    colls = [(f"param.{name}.src_coll", coll) for name, _, coll in parts if coll]
    return frozenset() if "*" in names else names, frozenset(skipped.replace("!", "").split(",")) - {""}, colls


def parse_filters(texts: Sequence[str]) -> tuple[Filter, ...]:
    """Parses filters of the form ``[!][=|~]field:value``. Raises UsageError."""
    if len(texts) > _MAX_FILTERS:
        raise UsageError(f"more than {_MAX_FILTERS} filters")
    return tuple(_filter(text) for text in texts)


@lru_cache(maxsize=256)
def _filter(text: str) -> Filter:
    rest = text.removeprefix("!")
    kind = rest[:1] if rest[:1] in ("=", "~") else ""
    field, colon, value = rest[len(kind) :].partition(":")
    if not colon:
        field, value = "", field
    inverted = text.startswith("!")
    if kind == "~":
        pattern = regex("filter", text, value)
        return Filter(text, ALIASES.get(field, field), lambda given: pattern.match(given) is not None, inverted)
    if kind == "=":
        return Filter(text, ALIASES.get(field, field), lambda given: given == value, inverted)
    return Filter(text, ALIASES.get(field, field), lambda given: value in given, inverted)


def regex(name: str, shown: str, pattern: str) -> Any:
    """Compiles a pattern with RE2, which matches in linear time. Raises UsageError for syntax that RE2 lacks."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_REGEX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        detail = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise UsageError(f"{name}={shown[:100]!r} is not a regular expression of RE2: {detail[:200]}") from None


# -- keys -------------------------------------------------------------------------------------------


def _match(url: str, named: str) -> tuple[MatchType, str]:
    if len(url) > MAX_URL:
        raise UsageError(f"url has more than {MAX_URL} characters")
    if named and named not in _MATCH_TYPES:
        raise UsageError(f"Invalid match_type: {named[:40]}")
    match = named or "exact"
    if not named and url.startswith("*.") and len(url) > 2:
        match = "domain"
    elif not named and url.endswith("*"):
        match = "prefix"
    bare = url.removesuffix("*") if match == "prefix" else url.removeprefix("*.") if match == "domain" else url
    if not bare:
        raise UsageError(f"url={url} is not a URL")
    return cast(MatchType, match), bare


def key_of(url: str) -> str:
    """The key of a URL, with or without scheme, or of a handle. Other schemes with a host (``metadata://``) count as
    ``http``. Raises UsageError."""
    return _remembered_key(url) if len(url) <= _SHORT else _key_of(url)


def _key_of(url: str) -> str:
    uri = uri_of(url if is_url(url) else _ANY_SCHEME.sub("http://", url, count=1))
    if not uri.lower().startswith(_OTHER_SCHEMES):
        return urlkey(uri)
    return uri.lower() if handle_in(uri) or fileset_in(uri) else _other_key(uri)


_remembered_key = lru_cache(maxsize=4096)(_key_of)


def _other_key(uri: str) -> str:
    """The key of a URI without a host, as pywb makes it for ``urn:pageinfo:http://example.org/``."""
    path, _, query = uri.partition("#")[0].replace(" ", "%20").lower().partition("?")
    arguments = "&".join(sorted(query.split("&")))
    return path.removesuffix("/") + (f"?{arguments}" if arguments else "")


@lru_cache(maxsize=64)
def uri_of(url: str) -> str:
    """The URI for a URL, with or without scheme, for a RePEc handle or the id of a fileset. Raises UsageError."""
    text = url.strip()
    if text.lower().startswith(_OTHER_SCHEMES):
        obi = handle_in(text) or fileset_in(text)
        return target_uri(obi) if obi else text
    try:
        if text[:6].lower() == "repec:" or is_fileset(text):
            return target_uri(normalise(typed(text))[1])
        if not is_url(text) and (not _SCHEME.match(text) or _HOST_PORT.match(text)):
            text = f"http:{text}" if text.startswith("//") else f"http://{text}"
        return normalise_url(text.replace(" ", "%20"))
    except (BadName, ArchecError) as error:
        raise UsageError(f"url={url[:200]!r} is not a URL") from error


def whole_url(text: str) -> str:
    """Restores a URL from a path: a server may have merged its two slashes, or a client may have escaped it twice."""
    if _ESCAPED_SCHEME.match(text):
        text = unquote(text)
    return _ONE_SLASH.sub(r"\1//", text, count=1)


def joined(base: str, reference: str) -> str:
    """Resolves a reference (a ``Location``, a link) against a base URL. Where browsers differ from RFC 3986, it is
    resolved as the archive does when it follows redirects. "" if it is invalid."""
    try:
        if _FOR_BROWSERS.search(reference):
            return location_of(normalise_url(base), reference.encode("utf-8", "surrogateescape").decode("latin-1"))
        return urljoin(base, reference)
    except (ValueError, ArchecError):
        return ""


def key_range(url: str, match: MatchType, key: str = "") -> KeyRange:
    """The range of lines for a URL. Raises UsageError."""
    key = key or key_of(url)
    if match == "exact":
        return KeyRange(_bytes(key + " "), _bytes(key + "!"), key, key)
    if match == "prefix":
        bare = url.strip()
        for ending in ("/", "?"):
            if bare.endswith(ending) and not key.endswith(ending):
                key += ending
        if re.search("[/?]", bare.partition("://")[2] or bare) is None:
            key = key.removesuffix("/")
        data = _bytes(key)
        return KeyRange(data, data[:-1] + bytes([data[-1] + 1]), common=key)
    name = key.partition(")")[0]
    host = _bytes(name)
    if match == "host":
        return KeyRange(host + b")/", host + b"*", common=f"{name})")
    return KeyRange(host + b")/", host + b"-", common=f"{name},")


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
