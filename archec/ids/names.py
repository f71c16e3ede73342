"""The name of an id in the obi store, and the maximum lengths of ids and names.

The name is the id, escaped like Perl's ``URI::Escape::uri_escape_utf8`` does by default. A name over 255 bytes is
truncated, and a hash of the whole id is appended.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from archec.errors import BadName

MAX_NAME = 255
"""Maximum length of a path component in bytes on ext4, xfs and btrfs (NAME_MAX)."""

MAX_ID = 16_384
"""Maximum length of an id in characters. Ids are keys of the catalogue and occur in every list. No server accepts a
longer URL, and no archive has a longer handle."""

_ESCAPED = [chr(byte) if re.match(r"[A-Za-z0-9\-._~]", chr(byte)) else f"%{byte:02X}" for byte in range(256)]
_HASH_TAIL = 1 + 32
_LIKE_CUT = re.compile(r".*~[0-9a-f]{32}", re.S)


def escape(obi: str) -> str:
    """Escapes all but ``A-Z a-z 0-9 - . _ ~`` as UTF-8, like Perl's ``uri_escape_utf8``."""
    return obi.encode("utf-8", "surrogatepass").decode("latin-1").translate(_ESCAPED)


def unescape(name: str) -> str:
    """The id of a name that was not truncated. Raises BadName if no id has that name."""
    try:
        obi = unquote_to_bytes(name).decode("utf-8", "surrogatepass")
    except UnicodeError as error:  # also a file name that is not UTF-8
        raise BadName(f"{name!r} is not an escaped id") from error
    if escape(obi) != name:
        raise BadName(f"{name!r} is not an escaped id")
    return obi


def file_name(obi: str) -> str:
    """The file name of an id: its escaped form or, if that is over 255 bytes, a prefix, ``~`` and xxh3_128 of the id.

    The dots of the ids ``.`` and ``..`` are escaped, since no file can have those names. An id whose name looks
    truncated is hashed as well, so that no two ids share a name.
    """
    name = escape(obi)
    if len(name) <= MAX_NAME and not (len(name) > MAX_NAME - 3 and _LIKE_CUT.fullmatch(name)):
        return name if name.strip(".") or len(name) > 2 else name.replace(".", "%2E")
    cut = min(MAX_NAME, len(name)) - _HASH_TAIL
    for back in (1, 2):  # never cut inside an escape: %C3 would become %C or %
        if name[cut - back] == "%":
            cut -= back
            break
    digest = xxh3_128_hexdigest(obi.encode("utf-8", "surrogatepass"))
    return f"{name[:cut]}~{digest}"


def fan(obi: str) -> str:
    """The two hex digits of xxh3_64(id) that name the fan-out directory of an id."""
    return xxh3_64_hexdigest(obi.encode("utf-8", "surrogatepass"))[:2]
