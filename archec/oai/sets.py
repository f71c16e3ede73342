"""Which sets an item is in: pure.

Separate trees (the thesis's three and two more): ``archive:aaa:ssssss`` by handle, under its other name
``RePEc:aaa:ssssss`` too; ``type:paper`` by template type; ``dom:org:nber:www`` by a fobi's host,
reversed; ``mim:application:pdf`` by what its bytes are; ``col:NAME``, the operator's collections. A lost
item stays in the sets it was in last, so that selective harvests learn of its loss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import astuple
from xxhash import xxh3_64_hexdigest

from archec.catalogue.codec import canonical
from archec.catalogue.model import Fobi, Tobi
from archec.config import Collection
from archec.history import History
from archec.ids import archive_of, host_of, series_of
from archec.oai.model import ItemKind
from archec.oai.names import set_path

__all__ = ["ALIAS", "ALIASED", "TREES", "SetRules", "aliased", "stored", "trees_for"]

TREES = ("archive", "RePEc", "type", "dom", "mim", "col")
"""The trees there are; the configuration names those that are served."""

ALIASED, ALIAS = "archive", "RePEc"
"""One tree under two names: the index holds the first."""

_VERSION = "1"
"""To be raised with every change of what this module gives: indexes then reckon sets anew."""
_ADDRESS = re.compile(r"[0-9.]+|\[.*\]")


_OF_FOBIS = frozenset(["dom", "mim", "col"])
_OF_TOBIS = frozenset(["archive", "RePEc", "type", "col"])


def trees_for(trees: Sequence[str], kinds: Sequence[ItemKind]) -> tuple[str, ...]:
    """Those of ``trees`` that may have items of these kinds."""
    filled = (_OF_TOBIS if "tobi" in kinds else frozenset[str]()) | (_OF_FOBIS if "fobi" in kinds else frozenset())
    return tuple(tree for tree in trees if tree in filled)


def stored(path: str) -> str:
    """The setSpec under which the index has the set that a harvester calls ``path``."""
    head, colon, rest = path.partition(":")
    return f"{ALIASED}{colon}{rest}" if head == ALIAS else path


def aliased(path: str) -> str:
    """The other name of a set of the aliased tree."""
    return ALIAS + path[len(ALIASED) :]


class SetRules:
    """What membership depends on: the trees that are served, and the operator's collections."""

    def __init__(self, trees: Sequence[str], collections: Sequence[Collection]) -> None:
        self.trees = frozenset(trees)
        self.collections = tuple(collections)
        value = [_VERSION, sorted(self.trees), [astuple(collection) for collection in self.collections]]
        self.checksum = xxh3_64_hexdigest(canonical(value).encode("utf-8", "surrogatepass"))

    def of_tobi(self, tobi: Tobi) -> tuple[str, ...]:
        """The sets of a tobi, sorted, without those above them."""
        found: list[str] = []
        archive, series = archive_of(tobi.id), series_of(tobi.id)
        if archive and self.trees & {ALIASED, ALIAS}:
            found.append(set_path((ALIASED, archive, series)))
        version = tobi.versions.get(last_held(tobi.history) or "")
        if version is not None and "type" in self.trees:
            found.append(set_path(("type", _type(version.kind))))
        if "col" in self.trees:
            runs = {note.run for note in tobi.notes.values()}
            for col in self.collections:
                if archive in col.archives or f"{archive}:{series}" in col.series or runs & set(col.runs):
                    found.append(set_path(("col", col.name)))
        return tuple(sorted(path for path in found if ":" in path))

    def of_fobi(self, fobi: Fobi) -> tuple[str, ...]:
        """The sets of a fobi, sorted, without those above them."""
        found: list[str] = []
        host = host_of(fobi.id)
        if "dom" in self.trees:
            found.append(set_path(("dom", *reversed_host(host))))
        version = fobi.versions.get(last_held(fobi.history) or "")
        if version is not None and "mim" in self.trees:
            found.append(set_path(("mim", *version.type.partition(";")[0].strip().split("/", 1))))
        if "col" in self.trees:
            runs = {note.run for note in fobi.notes.values()}
            for col in self.collections:
                if any(_within(host, one) for one in col.hosts) or runs & set(col.runs):
                    found.append(set_path(("col", col.name)))
        return tuple(sorted(path for path in found if ":" in path))


def last_held(history: History) -> str | None:
    """The md5 of the newest contents that were held, None where there never were any."""
    return next((state for state in reversed(history.states) if state is not None), None)


def reversed_host(host: str) -> list[str]:
    """``www.nber.org:8080`` gives org, nber, www, :8080; an address stays whole."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name, port = host, ""
    labels = [name] if _ADDRESS.fullmatch(name) else [label for label in name.split(".")[::-1] if label]
    return [*labels, f":{port}"] if port else labels


def _within(host: str, domain: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
    return host == domain or name == domain or name.endswith(f".{domain}")


def _type(kind: str) -> str:
    return kind.strip().lower().removeprefix("redif-").partition(" ")[0]
