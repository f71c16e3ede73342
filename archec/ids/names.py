"""Names on disk: the name of an id in the obi store (design, section 3).

It is the id escaped as Perl's ``URI::Escape::uri_escape_utf8`` does it by default, cut and completed by a hash
where it would be over 255 bytes.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from archec.errors import BadName
from archec.ids.limits import MAX_NAME

__all__ = ["escape", "fan", "file_name", "unescape"]

_HASH_TAIL = 1 + 32
_LIKE_CUT = re.compile(r".*~[0-9a-f]{32}", re.S)


def escape(obi: str) -> str:
    """``uri_escape_utf8`` of Perl by default: UTF-8, all but ``A-Z a-z 0-9 - . _ ~`` escaped."""
    return quote(obi, safe="~", encoding="utf-8", errors="surrogatepass")


def unescape(name: str) -> str:
    """The id behind an escaped name that was not cut; BadName if it is not one."""
    try:
        obi = unquote_to_bytes(name).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BadName(f"{name!r} is not an escaped id") from error
    if escape(obi) != name:
        raise BadName(f"{name!r} is not an escaped id")
    return obi


def file_name(obi: str) -> str:
    """The file name of an id: its escaped form, or a prefix, ``~`` and xxh3_128 if over 255 bytes.

    The ids ``.`` and ``..`` have their dots escaped, since no file can have those names; an id whose
    own name looks like one that was cut is hashed, too, so that no two ids share a name.
    """
    name = escape(obi)
    if len(name) <= MAX_NAME and not (len(name) > MAX_NAME - 3 and _LIKE_CUT.fullmatch(name)):
        return name if name.strip(".") or len(name) > 2 else name.replace(".", "%2E")
    cut = min(MAX_NAME, len(name)) - _HASH_TAIL
    for back in (1, 2):
        if name[cut - back] == "%":
            cut -= back
            break
    digest = xxh3_128_hexdigest(obi.encode("utf-8", "surrogatepass"))
    return f"{name[:cut]}~{digest}"


def fan(obi: str) -> str:
    """The two hex digits of xxh3_64(id) that name the fan-out directory of an id."""
    return xxh3_64_hexdigest(obi.encode("utf-8", "surrogatepass"))[:2]
