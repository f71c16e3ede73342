"""Sets: their setSpecs, the sets of an item, and their names. Pure functions.

A setSpec is a path in one of six trees: ``archive:aaa:ssssss`` by handle, also served as ``RePEc:aaa:ssssss``;
``type:paper`` by template type; ``dom:org:nber:www`` by a file's host, reversed; ``mim:application:pdf`` by media
type; ``col:NAME``, the operator's collections. Few characters are allowed in its parts: every other byte is written as
``!`` and two upper-case hexadecimal digits, and so is ``!`` itself.

A lost item stays in its last sets, so that selective harvests learn of its loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import astuple
from xxhash import xxh3_64_hexdigest

from archec.catalogue.documents import canonical
from archec.catalogue.model import Kind
from archec.config import OaiCollectionConfig
from archec.ids import archive_of, host_of, series_of

ARCHIVE, ALIAS = "archive", "RePEc"
"""One tree under two names; the index uses the first."""

_TREES: Mapping[str, tuple[str, frozenset[Kind]]] = {
    ARCHIVE: ("Templates by archive and series", frozenset(["tobi"])),
    ALIAS: ("Templates by archive and series (RePEc handles)", frozenset(["tobi"])),
    "type": ("Templates by type", frozenset(["tobi"])),
    "dom": ("Files by domain", frozenset(["fobi"])),
    "mim": ("Files by media type", frozenset(["fobi"])),
    "col": ("Collections", frozenset(["tobi", "fobi"])),
}
"""Every tree with its name and the kinds of items that it may contain."""

_RULES_VERSION = "1"
"""Increase this with every change in :meth:`SetRules.sets_of`: indexes then compute the sets of all items again."""

_ADDRESS = re.compile(r"[0-9.]+|\[.*\]")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.~*'()-]")
_ESCAPE = re.compile(r"!([0-9A-F]{2})")


# -- setSpecs -------------------------------------------------------------------------------------


def set_part(text: str) -> str:
    """One part of a setSpec from any non-empty text."""
    data = text.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda match: b"!%02X" % match[0][0], data).decode("ascii")


def set_part_text(part: str) -> str:
    """The text of one part of a setSpec."""
    data = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), part).encode("latin-1", "replace")
    return data.decode("utf-8", "replace")


def set_path(parts: Iterable[str]) -> str:
    """A setSpec from the texts of its parts; empty parts are skipped."""
    return ":".join([set_part(part) for part in parts if part])


def with_ancestors(paths: Iterable[str]) -> set[str]:
    """These sets, all their ancestors, and the set of all items, "": ``dom:org:nber`` is in ``dom`` and ``dom:org``."""
    found = {""}
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition(":")[0]
    return found


def trees_for(trees: Sequence[str], kinds: Iterable[Kind]) -> frozenset[str]:
    """Those of ``trees`` that may contain items of these kinds."""
    return frozenset(tree for tree in trees if not _TREES[tree][1].isdisjoint(kinds))


def stored(path: str) -> str:
    """The setSpec in the index for a setSpec in a request."""
    tree, colon, rest = path.partition(":")
    return f"{ARCHIVE}{colon}{rest}" if tree == ALIAS else path


def aliased(path: str) -> str:
    """The other name of a set in the tree :data:`ARCHIVE`."""
    return ALIAS + path[len(ARCHIVE) :]


def served(paths: Sequence[str], trees: AbstractSet[str]) -> list[str]:
    """The setSpecs of an item that are in ``trees``; the tree with two names may be in it under either or both."""
    found: list[str] = []
    for path in paths:
        tree = path.partition(":")[0]
        if tree in trees:
            found.append(path)
        if tree == ARCHIVE and ALIAS in trees:
            found.append(aliased(path))
    return found


# -- membership -----------------------------------------------------------------------------------


class SetRules:
    """The rules of membership: the trees that are served, and the operator's collections.

    A different ``checksum`` means that items may be in other sets than before.
    """

    def __init__(self, trees: Sequence[str], collections: Sequence[OaiCollectionConfig]) -> None:
        self._trees = frozenset(trees)
        self._collections = tuple(collections) if "col" in trees else ()
        value = [_RULES_VERSION, sorted(self._trees), [astuple(collection) for collection in collections]]
        self.checksum = xxh3_64_hexdigest(canonical(value))

    def sets_of(self, kind: Kind, obi: str, type_: str, runs: AbstractSet[int]) -> tuple[str, ...]:
        """The setSpecs of an item, sorted, without their ancestors.

        ``type_`` is the template type or media type of its newest contents ("" if unknown); ``runs`` are the
        software tists of the runs that noted it.
        """
        found: list[str] = []
        archive = series = host = ""
        if kind == "tobi":
            archive, series = archive_of(obi), series_of(obi)
            if archive and self._trees & {ARCHIVE, ALIAS}:
                found.append(set_path((ARCHIVE, archive, series)))
            if "type" in self._trees:
                found.append(set_path(("type", type_.strip().lower().removeprefix("redif-").partition(" ")[0])))
        else:
            host = host_of(obi)
            if "dom" in self._trees:
                found.append(set_path(("dom", *reversed_host(host))))
            if "mim" in self._trees:
                found.append(set_path(("mim", *type_.partition(";")[0].strip().split("/", 1))))
        for col in self._collections:
            if (
                (archive and (archive in col.archives or f"{archive}:{series}" in col.series))
                or any(_is_within(host, domain) for domain in col.hosts if host)
                or any(run in runs for run in col.runs)
            ):
                found.append(set_path(("col", col.name)))
        return tuple(sorted(path for path in found if ":" in path))


def reversed_host(host: str) -> list[str]:
    """``www.nber.org:8080`` gives org, nber, www, :8080; an IP address is one part."""
    name, port = _split(host)
    labels = [name] if _ADDRESS.fullmatch(name) else [label for label in name.split(".")[::-1] if label]
    return [*labels, f":{port}"] if port else labels


def _is_within(host: str, domain: str) -> bool:
    name, _ = _split(host)
    return host == domain or name == domain or name.endswith(f".{domain}")


def _split(host: str) -> tuple[str, str]:
    """The name of a host, and its port or ""."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")


# -- names for people -----------------------------------------------------------------------------


def set_handle(path: str) -> str:
    """The handle of the archive or series whose templates a set contains, "" for other sets."""
    tree, *rest = [set_part_text(part) for part in path.split(":")]
    return ":".join(("RePEc", *rest)) if rest and tree in (ARCHIVE, ALIAS) else ""


def set_name(path: str, titles: Mapping[str, str], collections: Sequence[OaiCollectionConfig]) -> str:
    """The setName of a set: the title of its archive or series (by handle, in ``titles``), the title of the collection,
    or a description of the path."""
    title = titles.get(set_handle(path), "")
    if title:
        return title
    tree, *rest = [set_part_text(part) for part in path.split(":")]
    if not rest:
        return _TREES[tree][0]
    if tree in (ARCHIVE, ALIAS):
        return f"Archive {rest[0]}" + (f", series {rest[1]}" if len(rest) > 1 else "")
    if tree == "type":
        return f"Templates of type {rest[0]}"
    if tree == "dom":
        port = rest.pop() if rest[-1].startswith(":") else ""
        return f"Files on {'.'.join(rest[::-1])}{port}"
    if tree == "mim":
        return f"Files of type {'/'.join(rest)}"
    return next((col.title for col in collections if col.name == rest[0]), "") or rest[0]
