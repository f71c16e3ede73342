"""Names of sets for people: what setName says."""

from __future__ import annotations

from collections.abc import Sequence

from archec.oai.names import set_part_text
from archec.oai.repository import Repository
from archec.oai.sets import ALIAS, ALIASED

__all__ = ["set_names"]

_TREES = {
    "archive": "Templates by archive and series",
    "RePEc": "Templates by archive and series (RePEc handles)",
    "type": "Templates by type",
    "dom": "Files by domain",
    "mim": "Files by media type",
    "col": "Collections",
}


def set_names(paths: Sequence[str], repository: Repository) -> dict[str, str]:
    """The names of sets; those of archives and series are the titles that they give themselves."""
    parts = {path: [set_part_text(part) for part in path.split(":")] for path in paths}
    handles = {path: _handle(found) for path, found in parts.items()}
    titles = repository.source.titles({handle for handle in handles.values() if handle})
    collections = {collection.name: collection.title for collection in repository.collections}
    return {path: titles.get(handles[path], "") or _name(found, collections) for path, found in parts.items()}


def _handle(parts: Sequence[str]) -> str:
    return ":".join(("RePEc", *parts[1:])) if parts[0] in (ALIASED, ALIAS) and len(parts) > 1 else ""


def _name(parts: Sequence[str], collections: dict[str, str]) -> str:
    tree, *rest = parts
    if not rest:
        return _TREES.get(tree, tree)
    if tree in (ALIASED, ALIAS):
        return f"Archive {rest[0]}" + (f", series {rest[1]}" if len(rest) > 1 else "")
    if tree == "type":
        return f"Templates of type {rest[0]}"
    if tree == "dom":
        port = rest.pop() if rest[-1].startswith(":") else ""
        return f"Files on {'.'.join(rest[::-1])}{port}"
    if tree == "mim":
        return f"Files of type {'/'.join(rest)}"
    return collections.get(rest[0], "") or rest[0]
