"""The target of a redirect: ``Location`` is parsed as browsers do, by the URL standard of the WHATWG, then normalised.

Blanks at the ends, and tabs and line ends anywhere, are dropped. A backslash is a slash. Invalid characters are
escaped. Bytes that are not ASCII are escaped as they are, in any encoding.

Source: https://url.spec.whatwg.org/ (basic URL parser, special schemes).
"""

from __future__ import annotations

import re
import socket

from archec.errors import BadName
from archec.ids import host_of, normalise_url

_ENDS = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPED = re.compile(r"[\x00-\x20\x7f-\xff]")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_ZERO = re.compile(r"(?<![^.])0x(?![^.])")
"""A part of an address without digits. To the standard, though not to the C library, it is 0."""


def location_of(url: str, location: str) -> str:
    """The normalised target of a redirect from the normalised ``url``.

    Characters of ``location`` beyond U+007F represent bytes (ISO-8859-1). Raises BadName if the URL is invalid by the
    standard, or if its scheme is not http, https or ftp.
    """
    text = re.sub(r"[\t\n\r]", "", location.strip(_ENDS)).partition("#")[0]
    path, mark, query = text.partition("?")
    path, query = path.replace("\\", "/"), mark + query.replace("'", "%27")
    scheme = url.partition(":")[0]
    named = _SCHEME.match(path)
    if named is not None:
        path = path[named.end() :]
        if named[1].lower() != scheme or path.startswith("//"):
            scheme, path = named[1], "//" + path
    if path.startswith("//"):
        base = f"{scheme}://{path.lstrip('/')}"
    elif path.startswith("/"):
        base = f"{scheme}://{host_of(url)}{path}"
    elif path:
        base = f"{url.partition('?')[0].rpartition('/')[0]}/{path}"
    else:
        base = url.partition("?")[0] if mark else url
    return _with_address(normalise_url(_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", base + query)))


def _with_address(url: str) -> str:
    """Normalises a host that ends in a number, which is an IPv4 address in any notation."""
    host = host_of(url)
    name, colon, port = host.partition(":")
    name = name.removesuffix(".")
    if host.startswith("[") or not _NUMERIC.fullmatch(name):
        return url
    try:
        address = socket.inet_ntoa(socket.inet_aton(_ZERO.sub("0", name)))
    except OSError as error:
        raise BadName(f"{name!r} is not an address") from error
    return url.replace(host, f"{address}{colon}{port}", 1)
