"""The URI of an obi in WARC records, and the key of a URI in a CDXJ index.

The key follows SURT, the sort-friendly URI reordering transform, as pywb applies it; the tests compare the two.
It is implemented here because the existing libraries are under the GPL and the AGPL. A key is for lookups and does not
identify anything: the index line contains the URI itself.
"""

from __future__ import annotations

import re
from collections import deque
from urllib.parse import quote, unquote, unquote_to_bytes

from archec.ids import is_fileset, is_url

_WWW = re.compile(r"www[0-9]*\.")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%#")
_URN_SAFE = "-._~:@!$&'()*+,;=/"
_URNS = {"urn:x-repec:": "repec:", "urn:x-redif:": ""}
"""The prefixes of the URNs of handles, mapped to those of the handles."""
_FILESETS = "urn:x-archec:"
_MAX_UNESCAPES = 20
_SESSIONS = tuple(
    re.compile(f"{session}(?:&|$)")
    for session in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
)
_ASP_SESSION = re.compile(r"/\((?:[0-9a-z]{24}|(?:[a-z]\([0-9a-z]{24}\))+)\)(?=/[^?]+\.aspx)")


def target_uri(obi: str) -> str:
    """The URI under which an obi is exported: a fobi's URL as it is, a URN for a tobi's handle or a fileset.

    ``RePEc:aaa:ssssss:1`` becomes ``urn:x-repec:aaa:ssssss:1``: tools for web archives do not accept a handle as a
    URI, and RePEc has registered none. A handle without ``RePEc:`` becomes ``urn:x-redif:...``.
    """
    if obi.startswith("RePEc:"):
        return "urn:x-repec:" + quote(obi[6:], safe=_URN_SAFE, errors="surrogatepass")
    if is_url(obi) and obi.isascii() and obi.isprintable():  # other URLs are not normalised: it must be a handle
        return obi
    if is_fileset(obi):
        return _FILESETS + quote(obi, safe=_URN_SAFE, errors="surrogatepass")
    return "urn:x-redif:" + quote(obi, safe=_URN_SAFE, errors="surrogatepass")


def handle_in(uri: str) -> str:
    """The handle, or the beginning of one, in a URN from :func:`target_uri` in any spelling; "" if there is none."""
    for urn, prefix in _URNS.items():
        if uri[: len(urn)].lower() == urn:
            text = "".join((prefix + unquote(uri[len(urn) :], errors="surrogatepass")).split()).lower()
            return "RePEc:" + text[6:] if text.startswith("repec:") else text
    return ""


def fileset_in(uri: str) -> str:
    """The id of a fileset, or the beginning of one, in a URN from :func:`target_uri` in any spelling; "" if there is
    none."""
    if uri[: len(_FILESETS)].lower() != _FILESETS:
        return ""
    text = unquote(uri[len(_FILESETS) :], errors="surrogatepass") or "fileset:"
    if not is_fileset(text):
        return ""
    kind, *place = text.split(":", 3)
    place[:2] = [quote(unquote(part).lower(), safe="~", errors="surrogatepass") for part in place[:2]]
    return ":".join([kind.lower(), *place])


def urlkey(uri: str) -> str:
    """The CDXJ key of a URI from :func:`target_uri`, in printable ASCII without blanks."""
    if uri.startswith("urn:"):
        return uri.lower()
    _, _, rest = uri.partition("://")
    authority, slash, rest = rest.partition("/")
    path, mark, query = (slash + rest).partition("?")
    return f"{_host(authority)}){_path(path)}{_query(query) if mark else ''}"


def _host(authority: str) -> str:
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host + port
    host, colon, port = authority.partition(":")
    host = _WWW.sub("", host.rstrip("."), count=1) if _WWW.match(host) else host.rstrip(".")
    return ",".join(reversed(host.split("."))) + colon + port


def _path(path: str) -> str:
    kept: list[bytes] = []
    for segment in _unescaped(path).split(b"/"):
        if segment == b".." and kept:
            kept.pop()
        elif segment not in (b"", b"."):
            kept.append(segment)
    text = _escaped(b"/" + b"/".join(kept)).lower()
    return _without_last(_ASP_SESSION, text) or "/"


def _query(query: str) -> str:
    text = _escaped(_unescaped(query)).lower()
    for session in _SESSIONS:
        text = _without_last(session, text)
    if not text:
        return ""
    return "?" + "&".join(sorted(text.split("&"), key=lambda argument: argument.split("=", 1)))


def _without_last(pattern: re.Pattern[str], text: str) -> str:
    found = deque(pattern.finditer(text), maxlen=1)
    return text[: found[0].start()] + text[found[0].end() :] if found else text


def _unescaped(text: str) -> bytes:
    """Unescapes repeatedly until no escapes are left."""
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(_MAX_UNESCAPES):
        plain = unquote_to_bytes(data)
        if plain == data:
            break
        data = plain
    return data


def _escaped(data: bytes) -> str:
    return quote(data, safe=_SAFE)
