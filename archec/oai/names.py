"""Identifiers and setSpecs: pure functions, both ways.

An item's identifier is ``oai:DOMAIN:LOCAL`` (oai-identifier 2.0). The local part of a tobi is its
handle; handles that lack ``RePEc:`` have ``tobi:`` put before them, so that none can be taken for a fobi.
That of a fobi is ``fobi:`` and 32 hexadecimal digits of a hash of its URL: it never changes, and says
nothing of where the file is stored. A setSpec's parts may hold few characters; every other byte is
``!`` and two upper-case hexadecimal digits, and so is ``!`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import quote, unquote_to_bytes

__all__ = [
    "DOMAIN",
    "METADATA_PREFIX",
    "SET_SPEC",
    "ancestors",
    "escaped",
    "fobi_local",
    "identifier",
    "local_of",
    "set_part",
    "set_part_text",
    "set_path",
    "tobi_local",
]

DOMAIN = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+")
"""What oai-identifier.xsd allows for a repositoryIdentifier."""

METADATA_PREFIX = re.compile(r"[A-Za-z0-9_.!~*'()-]+")
SET_SPEC = re.compile(r"[A-Za-z0-9_.!~*'()-]+(:[A-Za-z0-9_.!~*'()-]+)*")

_LOCAL_SAFE = "-_.!~*'();/?:@&=+$,"
_PLAIN_LOCAL = re.compile(r"[A-Za-z0-9:._/-]+")
_SET_UNSAFE = re.compile(rb"[^A-Za-z0-9_.~*'()-]")
_SET_ESCAPE = re.compile(r"!([0-9A-F]{2})")


def tobi_local(obi: str) -> str:
    """The local part, not escaped, of a tobi's identifier."""
    return obi if obi.startswith("RePEc:") else f"tobi:{obi}"


def fobi_local(url: str) -> str:
    """The local part of a fobi's identifier: BLAKE2b of its id, 16 bytes."""
    return f"fobi:{blake2b(url.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def escaped(local: str) -> str:
    """``local`` with what oai-identifier.xsd does not allow percent-encoded."""
    if _PLAIN_LOCAL.fullmatch(local):
        return local
    return quote(local, safe=_LOCAL_SAFE, encoding="utf-8", errors="surrogatepass")


def identifier(domain: str, local: str) -> str:
    """``oai:DOMAIN:LOCAL``."""
    return f"oai:{domain}:{escaped(local)}"


def local_of(domain: str, given: str) -> str | None:
    """The local part behind an identifier exactly as :func:`identifier` writes it; else None."""
    head = f"oai:{domain}:"
    if not given.startswith(head):
        return None
    try:
        local = unquote_to_bytes(given[len(head) :]).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return local if local and identifier(domain, local) == given else None


def set_part(text: str) -> str:
    """One part of a setSpec from any text that is not empty."""
    data = text.encode("utf-8", "surrogatepass")
    return _SET_UNSAFE.sub(lambda match: b"!%02X" % match[0][0], data).decode("ascii")


def set_part_text(part: str) -> str:
    """The text behind one part of a setSpec."""
    data = _SET_ESCAPE.sub(lambda match: chr(int(match[1], 16)), part).encode("latin-1", "replace")
    return data.decode("utf-8", "replace")


def set_path(parts: Sequence[str]) -> str:
    """A setSpec from the texts of its parts; empty parts are left out."""
    return ":".join([set_part(part) for part in parts if part])


def ancestors(path: str) -> list[str]:
    """A setSpec and all those above it: ``dom:org:nber`` gives ``dom``, ``dom:org``, ``dom:org:nber``."""
    found = [path]
    while ":" in path:
        path = path.rpartition(":")[0]
        found.append(path)
    return found[::-1]
