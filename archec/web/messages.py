"""Requests and responses as transports exchange them: no more than the wire has. A response is its own body stream.
Header fields of responses: which ones are kept, how they are cleaned, what they mean.
"""

from __future__ import annotations

import re
import socket
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timezone
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from archec.config import FetchConfig
from archec.errors import BadName
from archec.ids import normalise_url, remove_dot_segments, without_userinfo
from archec.web.outcome import BadUrl, ProtocolError, TimedOut, TooLarge
from archec.web.policy import PORTS

if TYPE_CHECKING:  # slow to import
    from archec.web.h1 import Answer

Pairs = Sequence[tuple[bytes, bytes]]
"""Header fields, in their order: names and values as sent."""
_ORIGIN = re.compile(r"(https?|ftp)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_ADDRESS = re.compile(r"(?:[0-9]+\.){3}[0-9]+")
_SIMPLE = "[A-Za-z0-9_.~!$&()*+,;=:@/?-]*"
_NORMAL = re.compile(rf"(https?://[a-z0-9._-]+(?::[0-9]+)?)(/{_SIMPLE}(?:%[0-9A-Fa-f]{{2}}{_SIMPLE})*)")
_MAX_URL = 65_536
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BLANK = re.compile(r"\s")
_SAFE = "!$%&'()*+,/:;=?@[\\]^|~"
_BEGIN = re.compile(r"[A-Za-z]+://[^/?#]*")
_USER = re.compile(r"[^:/?#]+://([^/?#]*)@")
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
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_GZIP = b"\x1f\x8b"


class Origin(NamedTuple):
    """Where a request is sent to, normalised. ``host`` is in ASCII and has no brackets, ``netloc`` is host and port as
    in a URL."""

    scheme: str
    host: str
    port: int
    netloc: str

    def url(self, target: bytes) -> str:
        """The URL of a request target."""
        return f"{self.scheme}://{self.netloc}{target.decode('ascii')}"


@lru_cache(4096)
def origin_at(text: str) -> Origin:
    """The origin ``http://host:80`` of a normalised URL. Raises BadUrl."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise BadUrl(f"{text} is not the origin of a URL")
    scheme, name = found[1], found[2]
    host, port = name.strip("[]"), int(found[3] or PORTS[scheme])
    try:
        if _ADDRESS.fullmatch(host):
            socket.inet_aton(host)  # in any notation, as the resolver does
    except OSError as error:
        raise BadUrl(f"{host} is not an address") from error
    if not 0 < port < 65536:
        raise BadUrl(f"port {port} is invalid")
    return Origin(scheme, host, port, name if port == PORTS[scheme] else f"{name}:{port}")


class Located(NamedTuple):
    """Where a URL leads: the origin, what is requested there, and the value of Authorization if it names a user."""

    origin: Origin
    target: bytes
    authorization: bytes = b""


@lru_cache(64)
def located(url: str) -> Located:
    """Takes a URL apart. The target is as written, but for its fragment, dot segments, and characters that may not be
    sent. Raises BadUrl."""
    found = _NORMAL.fullmatch(url)
    if found is not None and "/." not in found[2] and len(url) <= _MAX_URL:
        return Located(origin_at(found[1]), found[2].encode("ascii"))
    begin = _BEGIN.match(url)
    if begin is None or len(url) > _MAX_URL or _CONTROL.search(url):
        raise BadUrl("not a URL" if begin is None else "a URL that is too long, or with control characters")
    try:
        scheme, _, netloc, _ = normalise_url(_BLANK.sub(lambda blank: quote(blank[0]), begin[0]) + "/").split("/", 3)
    except BadName as error:
        raise BadUrl(error.message) from error
    authorization = b""
    if (user := _USER.match(url)) is not None:
        name, _, password = user[1].partition(":")
        authorization = b"Basic " + b64encode(f"{unquote(name)}:{unquote(password)}".encode("utf-8", "replace"))
    path, mark, query = url[begin.end() :].partition("#")[0].partition("?")
    target = quote(remove_dot_segments(path) or "/", safe=_SAFE, errors="replace") + mark
    target += quote(query, safe=_SAFE + "{}`", errors="replace")
    return Located(origin_at(f"{scheme}//{netloc}"), target.encode("ascii"), authorization)


def trusted(url: str, own: str) -> tuple[Located, bool]:
    """Where a URL leads, and whether that is the origin of one that the operator has configured. If so, the user and
    password of that one hold unless the URL has its own. Raises BadUrl."""
    home = located(own)
    at = home if url == own else located(url)
    if at.origin != home.origin:
        return at, False
    return Located(at.origin, at.target, at.authorization or home.authorization), True


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs lead to the same scheme, host and port."""
    try:
        return one == other or located(one).origin == located(other).origin
    except BadUrl:
        return False


class Request(NamedTuple):
    """A request.

    ``target`` is sent exactly as it is. ``headers`` state the length of ``content``.
    ``named``: the operator has configured the origin, so its addresses need not be public. ``sent`` is called once
    there is a connection. ``fresh``: use a new connection.
    """

    method: str
    origin: Origin
    target: bytes
    headers: Pairs = ()
    content: AsyncIterator[bytes] | None = None
    named: bool = False
    sent: Callable[[], None] | None = None
    fresh: bool = False


class Response:
    """A response, and the iterator over its body. The receiver closes it.

    ``read`` returns the next piece of the body, b"" at its end; ``end`` is called when the response is closed. ``tls``
    has the TLS exceptions that were needed, ``answer`` the state of the connection, ``message`` the reason of a failure
    if it is not in the status.
    """

    def __init__(
        self,
        request: Request,
        status_code: int,
        raw: Pairs,
        read: Callable[[], Awaitable[bytes]],
        end: Callable[[], None],
        *,
        tls: str = "",
        answer: Answer | None = None,
        message: str = "",
    ) -> None:
        self.request, self.status_code, self.raw = request, status_code, raw
        self.tls, self.answer, self.message = tls, answer, message
        self.received = 0
        """Bytes of the body received so far."""
        self._read, self._end = read, end
        self._is_open = True
        self._limits: FetchConfig | None = None

    @property
    def url(self) -> str:
        """The URL that was requested, normalised, without user and password."""
        return self.request.origin.url(self.request.target)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The fields by lower-case name. Values of repeated ones are joined with commas."""
        fields: dict[str, str] = {}
        for raw_name, value in self.raw:
            name = raw_name.decode("latin-1").lower()
            try:
                text = value.decode()
            except UnicodeDecodeError:
                text = value.decode("latin-1")
            fields[name] = f"{fields[name]}, {text}" if name in fields else text
        return fields

    def transfer_coding(self) -> str:
        """``chunked``, ``identity`` or "". Raises ProtocolError for any other, whose body would be taken for the
        contents."""
        coding = self.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked", "identity"):
            raise ProtocolError(f"a transfer coding that was not requested: {coding[:40]}")
        return coding

    def bound(self, limits: FetchConfig, grace: float, started: float, clock: Callable[[], float] = monotonic) -> None:
        """Sets limits to the body: iterating raises an error if it is too large, too slow or takes too long.

        Limits are checked for each piece, so a silent server may exceed ``total_timeout`` by up to ``idle_timeout``.
        ``min_rate`` applies after ``grace`` seconds. The time that the reader takes does not count against the server.

        Raises:
            TooLarge: the stated length exceeds the limit.
            ProtocolError: the body has a transfer coding that was not requested.
        """
        self._limits, self._grace, self._started, self._clock = limits, grace, started, clock
        self._waited = 0.0
        is_limited = limits.max_size and self.request.method != "HEAD"
        if is_limited and (whole(self.headers.get("content-length", "")) or 0) > limits.max_size:
            self.close()
            raise TooLarge(f"larger than {limits.max_size} bytes")
        try:
            self.transfer_coding()
        except ProtocolError:
            self.close()
            raise

    def __aiter__(self) -> Response:
        return self

    async def __anext__(self) -> bytes:
        if not self._is_open:
            raise StopAsyncIteration
        begun = self._clock() if self._limits is not None else 0.0
        piece = await self._read()
        if not piece:
            raise StopAsyncIteration
        self.received += len(piece)
        if self._limits is not None:
            self._check(self._limits, begun)
        return piece

    async def upto(self, limit: int) -> bytes:
        """The body; if it has more than ``limit`` bytes, so much of it that this shows."""
        pieces = []
        async for piece in self:
            pieces.append(piece)
            if self.received > limit:
                break
        return b"".join(pieces)

    def _check(self, limits: FetchConfig, begun: float) -> None:
        now = self._clock()
        self._waited += now - begun
        if limits.max_size and self.received > limits.max_size:
            raise TooLarge(f"larger than {limits.max_size} bytes")
        if limits.total_timeout and now - self._started > limits.total_timeout:
            raise TimedOut(f"took longer than {limits.total_timeout:g} s")
        if self._waited > self._grace and self.received < limits.min_rate * self._waited:
            raise TimedOut(f"slower than {limits.min_rate} bytes per second")

    def close(self) -> None:
        """Keeps the connection if the body was read completely, and closes it otherwise."""
        if self._is_open:
            self._is_open = False
            self._end()

    async def aclose(self) -> None:
        """The same, for ``aclosing``."""
        self.close()


def clean(value: bytes) -> str:
    """Decodes a header value as ISO-8859-1. Control characters are replaced by blanks, and both ends are stripped."""
    text = value.decode("latin-1")
    return text.strip() if text.isprintable() else _CONTROLS.sub(" ", text).strip()


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
    return without_userinfo(_CONTROLS.sub("", value).strip()).strip()
