"""Where a redirect leads: ``Location`` is read as browsers read it, by the URL standard of the WHATWG.

Blanks at the ends and tabs and line ends anywhere are dropped, a backslash is a slash, what does not belong into a URL
is escaped, and bytes that are not ASCII are escaped as they stand, in whatever encoding. The result can be normalised
like any URL.

Source: https://url.spec.whatwg.org/ (basic URL parser, special schemes).
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import idna

_ENDS = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.S)
_PORTS = {"http": "80", "https": "443", "ftp": "21"}
_TWO_SLASHES = re.compile(r"[/\\]{2}")
_OF_PATH = re.compile(r"[\x00-\x20\"<>^`{}\x7f-\U0010ffff]")
_OF_QUERY = re.compile(r"[\x00-\x20\"<>'\x7f-\U0010ffff]")
_NOT_IN_HOST = re.compile(r"[\x00-\x20\x7f#%/:<>?@\[\\\]^|]")
_DOT = re.compile(r"%2e", re.I)
_NUMBER = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)")


def location_of(url: str, location: str) -> str:
    """Where a redirect of the normalised ``url`` leads: absolute, without user name, password and fragment.

    Characters of ``location`` beyond U+007F are its bytes (ISO-8859-1). Raises ValueError if the standard fails, and
    for any scheme but http, https and ftp.
    """
    text = re.sub(r"[\t\n\r]", "", location.strip(_ENDS))
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    path, mark, query = rest.partition("?")
    path, query = slash + path, mark + query
    found = _SCHEME.match(text)
    if found is not None:
        named, text = found[1].lower(), found[2]
        if named not in _PORTS:
            raise ValueError(f"the scheme {named} is not followed")
        if named != scheme or _TWO_SLASHES.match(text):
            return _absolute(named, text.lstrip("/\\"))
    if _TWO_SLASHES.match(text):
        return _absolute(scheme, text.lstrip("/\\"))
    text = text.partition("#")[0]
    ours, mark, asked = text.partition("?")
    if ours:
        ours = ours.replace("\\", "/")
        path = _resolved(ours if ours.startswith("/") else path[: path.rfind("/") + 1] + ours)
        query = ""
    if mark:
        query = "?" + _escaped(_OF_QUERY, asked)
    return f"{scheme}://{authority}{path}{query}"


def _absolute(scheme: str, text: str) -> str:
    text = text.partition("#")[0]
    end = next((place for place, char in enumerate(text) if char in "/\\?"), len(text))
    host, port = text[:end].rpartition("@")[2], ""
    colon = host.find(":", host.rfind("]") + 1)
    if colon >= 0:
        host, port = host[:colon], _port(host[colon + 1 :], scheme)
    path, mark, query = text[end:].partition("?")
    path = _resolved(path.replace("\\", "/") or "/")
    return f"{scheme}://{_host(host)}{port}{path}{mark and '?' + _escaped(_OF_QUERY, query)}"


def _port(text: str, scheme: str) -> str:
    """A port with its colon; empty for the default one, and where there is only the colon."""
    port = text.lstrip("0") or text[-1:]
    if not port or port == _PORTS[scheme]:
        return ""
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65535:
        raise ValueError("the port is invalid")
    return f":{port}"


def _host(host: str) -> str:
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError("the address is not closed")
        return host  # judged where it is normalised
    try:
        name = unquote_to_bytes(host.encode("latin-1")).decode("utf-8")
        if not name.isascii():
            name = idna.encode(name, uts46=True).decode("ascii")
    except (UnicodeError, idna.IDNAError) as error:
        raise ValueError("the host is not a name") from error
    name = name.lower()
    if not name or _NOT_IN_HOST.search(name):
        raise ValueError("the host is not a name")
    return _address(name)


def _address(name: str) -> str:
    """A host that ends in a number is an IPv4 address, in however strange a spelling."""
    parts = name.removesuffix(".").split(".")
    if not (parts[-1].isdecimal() or re.fullmatch(r"0x[0-9a-f]*", parts[-1])):
        return name
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        raise ValueError("the host is no address")
    numbers = [_number(part) for part in parts]
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        raise ValueError("the host is no address")
    whole = last + sum(number * 256 ** (3 - place) for place, number in enumerate(first))
    return ".".join(str(byte) for byte in whole.to_bytes(4, "big"))


def _number(text: str) -> int:
    if text[:2].lower() == "0x":
        return int(text[2:] or "0", 16)
    return int(text, 8 if len(text) > 1 and text.startswith("0") else 10)


def _resolved(path: str) -> str:
    """An absolute path without dot segments, escaped ones too, and with what does not belong there escaped."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for number, segment in enumerate(segments, 1):
        plain = _DOT.sub(".", segment)
        if plain in (".", ".."):
            if plain == ".." and kept:
                kept.pop()
            if number == len(segments):
                kept.append("")
        else:
            kept.append(_escaped(_OF_PATH, segment))
    return "/" + "/".join(kept)


def _escaped(wrong: re.Pattern[str], text: str) -> str:
    return wrong.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("latin-1")), text)
