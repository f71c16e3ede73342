"""Clusters: fields that belong together, nested (an author and her workplaces, a file and its format).

A cluster begins at its key field (``*-Name``, ``*-URL``); the fields with its prefix that follow
belong to it until the key comes again. Fields of a cluster that stand apart from it are still taken
for it, and a field before any key opens a cluster without one: the specification would drop the
template, and archec does not drop what it can read. Source: ReDIF version 1, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from archec.ids import without_userinfo
from archec.redif.fields import Field, Role, Spec

__all__ = ["Cluster", "ClusterBuilder", "RawRefipo"]


_new = tuple.__new__  # what a NamedTuple's own constructor calls; half the time in the hottest loops


class RawRefipo(NamedTuple):
    """A reference to file information as a template has it; what it leaves out is ``""``.

    ``url_raw`` has no white space and no user information, and is not normalised.
    """

    url_raw: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Cluster(NamedTuple):
    """A person, an organisation or a file inside a template.

    ``prefix`` is what the names of its fields begin with (``Author``, ``Author-Workplace``,
    ``File``); ``fields`` keep their whole names.
    """

    role: Role
    prefix: str
    line: int
    fields: tuple[Field, ...]
    clusters: tuple[Cluster, ...] = ()

    def get(self, leaf: str) -> str:
        """The first value of the field ``<prefix>-<leaf>`` that is not empty, else ``""``."""
        name = f"{self.prefix}-{leaf}"
        for field in self.fields:
            if field.name == name and field.value:
                return field.value
        return ""

    @property
    def name(self) -> str:
        """The name of the person or organisation."""
        return self.get("Name")

    def refipo(self) -> RawRefipo:
        """What a file cluster refers to."""
        return raw_refipo(self.prefix, self.fields)


def raw_refipo(prefix: str, fields: Iterable[Field]) -> RawRefipo:
    """The refipo in the fields of a file cluster; of a field that is repeated, the first value counts."""
    size = len(prefix) + 1
    leaves: dict[str, str] = {}
    for name, value, _ in fields:
        if value:
            leaves.setdefault(name[size:], value)
    get = leaves.get
    url = get("URL", "")
    if url.isspace() or " " in url or "\t" in url or not url.isprintable():
        url = "".join(url.split())
    if "@" in url:
        url = without_userinfo(url)
    return RawRefipo(url, get("Format", ""), get("Function", ""), get("Size", ""), get("Restriction", ""))


class ClusterBuilder:
    """Sorts a template's fields into clusters, in the order in which they come."""

    __slots__ = ("_open", "_top", "keyless")

    def __init__(self) -> None:
        self._top: list[_Growing] = []
        self._open: dict[str, _Growing] = {}
        self.keyless: list[Field] = []

    def add(self, spec: Spec, field: Field) -> None:
        """Takes one field of a cluster; ``keyless`` collects those that no key opened."""
        _, role, prefix, key, parent, _ = spec
        if not key:
            cluster = self._open.get(prefix)
            if cluster is not None:
                cluster[3].append(field)
                return
            self.keyless.append(field)
        cluster = self._open[prefix] = (role, prefix, field[2], [field], [])
        if parent:
            self._parent(parent, field[2])[4].append(cluster)
            return
        self._top.append(cluster)
        if role == "person":
            self._open.pop(f"{prefix}-Workplace", None)

    def clusters(self) -> tuple[Cluster, ...]:
        """All clusters so far that are in no other."""
        return tuple([_grown(cluster) for cluster in self._top])

    def _parent(self, prefix: str, line: int) -> _Growing:
        parent = self._open.get(prefix)
        if parent is None:
            parent = self._open[prefix] = ("person", prefix, line, [], [])
            self._top.append(parent)
        return parent


_Growing = tuple[Role, str, int, list[Field], list[Any]]
"""A cluster that may still grow: role, prefix, line, fields, the clusters inside it."""


def _grown(cluster: _Growing) -> Cluster:
    role, prefix, line, fields, inner = cluster
    return _new(Cluster, (role, prefix, line, tuple(fields), tuple([_grown(one) for one in inner]) if inner else ()))
