"""URLs, whose normalised form is the id of a fobi."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, unquote_to_bytes

import idna

from archec.errors import BadName
from archec.ids.names import MAX_ID

_DEFAULT_PORT = {"http": "80", "https": "443", "ftp": "21"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.S)
_AUTHORITY = re.compile(r"//([^/?#]*)(.*)", re.S)
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_LOOSE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SAFE = "!$&'()*+,;=:@/%"
_QUERY_SAFE = _PATH_SAFE + "?"
_SCHEMES = ("http:", "https:", "ftp:")
_AT = re.compile(r"%40|\uff20|\ufe6b", re.I)
_LONGEST_HOST = 253
_HOST_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_PLAIN_URL = re.compile(
    r"(?:https?|ftp)://[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*(?::[1-5]?[1-9][0-9]{3})?"
    r"(?:/[A-Za-z0-9_~!$&'()*+,;=:@-][A-Za-z0-9._~!$&'()*+,;=:@-]*)+/?"
)


def is_url(text: str) -> bool:
    """Whether ``text`` has the scheme of a URL that the archive keeps (http, https, ftp)."""
    return text.startswith(_SCHEMES) or "".join(text.split())[:8].lower().startswith(_SCHEMES)


def normalise_url(raw: str) -> str:
    """The id of a fobi: the URL normalised by RFC 3986, section 6.2.2. Idempotent.

    White space is removed, scheme and host become lower-case, the host IDNA. Default port, fragment and user
    information are dropped, dot segments resolved. Escapes become upper-case, those of unreserved characters are
    undone, and everything else outside the grammar is escaped as UTF-8. An empty path becomes ``/``; the query is
    kept. Raises BadName, also for an id of more than MAX_ID characters; its message never shows a password.
    """
    # Most URLs are already normalised; one pattern detects that, except for "--" in a host (IDNA) and dot segments.
    if len(raw) <= MAX_ID and _PLAIN_URL.fullmatch(raw) and "./" not in raw:
        host = host_of(raw)
        if "--" not in host and len(host) <= _LONGEST_HOST:
            return raw
    text = "".join(raw.split())
    if not text:
        raise BadName("the URL is empty")
    match = _URL.fullmatch(text)
    if match is None:
        raise BadName(f"{_shown(text)} has no scheme")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in _DEFAULT_PORT:
        raise BadName(f"{_shown(text)} has the scheme {scheme!r}; only http, https and ftp are kept")
    match = _AUTHORITY.fullmatch(rest)
    if match is None:
        raise BadName(f"{_shown(text)} has no host")
    host = _authority(match[1], scheme, text)
    path, mark, query = match[2].partition("#")[0].partition("?")
    path = remove_dot_segments(_clean(path, _PATH_SAFE))
    url = f"{scheme}://{host}{path or '/'}{mark}{_clean(query, _QUERY_SAFE)}"
    if len(url) > MAX_ID:
        raise BadName(f"{_shown(text)} has {len(url)} characters, more than {MAX_ID}")
    return url


def host_of(url: str) -> str:
    """Host and port of a normalised URL: ``www.nber.org``, ``h:8080``."""
    return url.split("/", 3)[2]


def ranges_of(host: str) -> list[tuple[str, str]]:
    """The URLs of a host (as returned by :func:`host_of`), as half-open ranges of strings."""
    return [(f"{scheme}://{host}/", f"{scheme}://{host}0") for scheme in ("ftp", "http", "https")]


def slash_variant(url: str) -> str | None:
    """The URL that differs from this normalised one only by a trailing slash.

    None if there is none, because the path is ``/`` or there is a query.
    """
    if "?" in url:
        return None
    if url.endswith("/"):
        return url[:-1] if url.count("/") > 3 else None
    return url + "/"


def without_userinfo(raw: str) -> str:
    """A raw URL without user name and password, for a message or a journal."""
    return re.sub(r"(//)[^/?#\s]*@", r"\1", raw)


def _shown(text: str) -> str:
    """A URL for a message. A password may make the URL invalid (a slash in it, an escaped @), so everything up to the
    last @ is removed, wherever it is."""
    _, at, rest = _AT.sub("@", text).rpartition("@")
    text = f"...@{rest}" if at else text
    return repr(text if len(text) <= 200 else text[:200] + "...")


def _authority(authority: str, scheme: str, url: str) -> str:
    host, port = authority.rpartition("@")[2], ""
    if host.startswith("["):
        host, bracket, port = host.partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadName(f"{_shown(url)} has a broken IPv6 host")
        host, port = _ipv6(host[1:], url), port[1:]
    else:
        host, _, port = host.partition(":")
        host = _host(host, url)
    if port:
        if not (port.isascii() and port.isdecimal() and int(port[:6]) <= 65535 and len(port) < 12):
            raise BadName(f"{_shown(url)} has a port that is not a number up to 65535")
        port = str(int(port))
        if port != _DEFAULT_PORT[scheme]:
            return f"{host}:{port}"
    return host


def _ipv6(text: str, url: str) -> str:
    if "%" in text:
        raise BadName(f"{_shown(url)} has an IPv6 host with a zone, which is only valid on one machine")
    try:
        return f"[{ipaddress.IPv6Address(text).compressed}]"
    except ValueError as error:
        raise BadName(f"{_shown(url)} has a broken IPv6 host") from error


def _host(host: str, url: str) -> str:
    try:
        host = unquote_to_bytes(host).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadName(f"{_shown(url)} has a host that is not text") from error
    host = host.lower()
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True, transitional=False).decode("ascii")
        except (idna.IDNAError, UnicodeError) as error:
            raise BadName(f"{_shown(url)} has a host that IDNA does not allow") from error
    bare = host[:-1] if host.endswith(".") else host
    labels = bare.split(".")
    if not bare or len(bare) > _LONGEST_HOST or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise BadName(f"{_shown(url)} has no valid host")
    return host


def _clean(text: str, safe: str) -> str:
    """Normalises the escapes of a path or a query, and escapes all characters that are not ``safe``."""
    text = _LOOSE_PERCENT.sub("%25", text)
    text = _ESCAPED.sub(_tidy_escape, text)
    return quote(text, safe=safe + "~", encoding="utf-8", errors="surrogatepass")


def _tidy_escape(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else f"%{match[1].upper()}"


def remove_dot_segments(path: str) -> str:
    """RFC 3986 section 5.2.4 for a path that is empty or begins with ``/``."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)
