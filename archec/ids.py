"""The ids of obis: a tobi's is its normalised handle, a fobi's its normalised URL, a fileset's a ``fileset:`` string.

Escaped like Perl's ``URI::Escape::uri_escape_utf8`` does by default, they are names in the obi store
(:func:`archec.store.layout.file_name`).
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

import idna

from archec.errors import BadName

MAX_ID = 16_384
"""Maximum length of an id in characters. Ids are keys of the catalogue and occur in every list. No server accepts a
longer URL, and no archive has a longer handle."""

_ESCAPES = [chr(byte) if re.match(r"[A-Za-z0-9\-._~]", chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def escape(obi: str) -> str:
    """Escapes all but ``A-Z a-z 0-9 - . _ ~`` as UTF-8, like Perl's ``uri_escape_utf8``."""
    return obi.encode("utf-8", "surrogatepass").decode("latin-1").translate(_ESCAPES)


def unescape(name: str) -> str:
    """The id of a name that was not truncated. Raises BadName if no id has that name."""
    try:
        obi = unquote_to_bytes(name).decode("utf-8", "surrogatepass")
    except UnicodeError as error:  # also a file name that is not UTF-8
        raise BadName(f"{name!r} is not an escaped id") from error
    if escape(obi) != name:
        raise BadName(f"{name!r} is not an escaped id")
    return obi


# -- URLs -------------------------------------------------------------------------------------------

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
    r"(?:https?|ftp)://[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*(?::(?:[1-9]|[1-5][0-9])[0-9]{3})?"
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
    except UnicodeError as error:
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


# -- filesets ---------------------------------------------------------------------------------------

_FILESET = "fileset:"


class FilesetId(NamedTuple):
    """The parts of an id; ``version`` is that of the platform, empty if none is given."""

    platform: str
    domain: str
    work: str
    version: str = ""

    def __str__(self) -> str:
        parts = (quote(self.platform, safe="~"), quote(self.domain, safe="~"), quote(self.work, safe="~/:"))
        version = f"@{quote(self.version, safe='~')}" if self.version else ""
        return _FILESET + ":".join(parts) + version

    @property
    def obi(self) -> str:
        """The id of the obi, which stands for all versions."""
        return str(self._replace(version=""))


def is_fileset(text: str) -> bool:
    """Whether ``text`` has the prefix of a fileset's id."""
    return text[: len(_FILESET)].lower() == _FILESET


def parse_fileset(text: str) -> FilesetId:
    """The parts of an id in any spelling. Raises BadName."""
    rest, at, version = text.strip().encode("utf-8", "replace").decode().partition("@")
    parts = rest.split(":", 3)
    if not is_fileset(rest) or len(parts) != 4 or not all(parts[1:]) or (at and not version) or len(rest) > MAX_ID:
        raise BadName(
            f"{text[:200]!r} is not the id of a fileset", hint="the form is fileset:PLATFORM:DOMAIN:WORK[@VERSION]"
        )
    return FilesetId(unquote(parts[1]).lower(), unquote(parts[2]).lower(), unquote(parts[3]), unquote(version))


# -- handles, and ids of any kind -------------------------------------------------------------------

_STORE_NAME = re.compile(r"(?:RePEc%3A|fileset%3A|(?:https?|ftp)%3A%2F%2F)", re.I)
_STORE_PATH = re.compile(r"(?:.*/)?[0-9]{3}/[0-9]{3}/[0-9]+/(?:[0-9a-f]{2}/)?([^/]+)", re.S)


def normalise_handle(raw: str) -> str:
    """The id of a tobi: white space removed, ``RePEc:`` prefix, the rest lower-case.

    A handle that does not begin with ``repec:`` (in any case) does not get that prefix: archec does not invent
    identities. Raises BadName for an empty handle, for one of more than MAX_ID characters, for a URL and for
    the id of a fileset, so that ids of tobis, fobis and filesets, and their names in the obi store, never collide.
    """
    text = "".join(raw.split()).lower()
    if not text or text == "repec:":
        raise BadName("the handle is empty")
    if is_url(text):
        raise BadName(f"the handle {text[:50]!r} is a URL")
    if is_fileset(text):
        raise BadName(f"the handle {text[:50]!r} is the id of a fileset")
    if len(text) > MAX_ID:
        raise BadName(f"the handle {text[:50]!r}... has {len(text)} characters, more than {MAX_ID}")
    return "RePEc:" + text[6:] if text.startswith("repec:") else text


def archive_of(handle: str) -> str:
    """The archive code of a normalised handle (``aaa`` of ``RePEc:aaa:ssssss:1``), or ``""``."""
    parts = handle.split(":", 2)
    return parts[1] if len(parts) > 1 and parts[0] == "RePEc" else ""


def series_of(handle: str) -> str:
    """The series code of a normalised handle (``ssssss`` of ``RePEc:aaa:ssssss:1``), or ``""``."""
    parts = handle.split(":", 3)
    return parts[2] if len(parts) > 2 and parts[0] == "RePEc" else ""


def item_of(handle: str) -> str:
    """The rest of a normalised handle after its series, ``""`` for an archive or a series."""
    parts = handle.split(":", 3)
    return parts[3] if len(parts) > 3 and parts[0] == "RePEc" else ""


def normalise(raw: str) -> tuple[Literal["tobi", "fobi", "fileset"], str]:
    """``("tobi", id)``, ``("fobi", id)`` or ``("fileset", id)`` for a handle, URL or fileset's id in any spelling."""
    if is_fileset(raw):
        return "fileset", parse_fileset(raw).obi
    if is_url(raw):
        return "fobi", normalise_url(raw)
    return "tobi", normalise_handle(raw)


def kind_of(obi: str) -> Literal["tobi", "fobi", "fileset"]:
    """The kind of an id, or of the beginning of one that shows it."""
    return "fobi" if is_url(obi) else "fileset" if is_fileset(obi) else "tobi"


def name_in(path: str) -> str:
    """The file name in a path of the obi store; empty if it is no such path."""
    match = None if is_url(path) else _STORE_PATH.fullmatch(path)
    return match[1] if match is not None else ""


def typed(raw: str) -> str:
    """The id in typed or pasted text.

    Removes ``<...>`` around it and ``URL:`` before it, and unescapes a name in the obi store, also one with its
    directories. Anything else is returned unchanged.
    """
    text = raw.strip()
    if text[:1] == "<" and text[-1:] == ">":
        text = text[1:-1].strip()
    if text[:4].lower() == "url:":
        text = text[4:].lstrip()
    name = name_in(text) or text
    if _STORE_NAME.match(name):
        with suppress(BadName):
            text = unescape(name)
    return text
