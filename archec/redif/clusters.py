"""Clusters: fields that belong together, nested (an author and her workplaces, a file and its format).

A cluster begins at its key field (``*-Name``, ``*-URL``); the fields with its prefix that follow
belong to it until the key comes again. Fields of a cluster that stand apart from it are still taken
for it, and a field before any key opens a cluster without one: the specification would drop the
template, and archec does not drop what it can read. Source: ReDIF version 1, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from archec.ids import without_userinfo
from archec.redif.fields import Field, Role, Spec

__all__ = ["Cluster", "RawRefipo", "grouped", "raw_refipo"]


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
    url = "".join(get("URL", "").split())
    if "@" in url:
        url = without_userinfo(url)
    return RawRefipo(url, get("Format", ""), get("Function", ""), get("Size", ""), get("Restriction", ""))


def grouped(specs: Sequence[Spec], fields: Sequence[Field]) -> tuple[tuple[Cluster, ...], list[Field]]:
    """A template's clusters in order, and the fields of clusters that no key had opened."""
    top: list[_Growing] = []
    keyless: list[Field] = []
    growing: dict[str, list[Field]] = {}
    inner_of: dict[str, list[_Growing]] = {}
    for spec, field in zip(specs, fields, strict=True):
        prefix = spec[2]
        if not prefix:
            continue
        if not spec[3]:
            group = growing.get(prefix)
            if group is not None:
                group.append(field)
                continue
            keyless.append(field)
        growing[prefix] = group = [field]
        role, parent = spec[1], spec[4]
        if role == "person":
            inner: list[_Growing] = []
            inner_of[prefix] = inner
            top.append((role, prefix, group, inner))
            growing.pop(f"{prefix}-Workplace", None)
        elif parent:
            if parent not in inner_of:
                growing[parent], inner_of[parent] = [], []
                top.append(("person", parent, growing[parent], inner_of[parent]))
            inner_of[parent].append((role, prefix, group, _NONE))
        else:
            top.append((role, prefix, group, _NONE))
    return tuple([_grown(one) for one in top]), keyless


_Growing = tuple[Role, str, list[Field], Sequence[Any]]
"""A cluster that may still grow: role, prefix, fields, the clusters inside it."""
_NONE: tuple[()] = ()


def _grown(cluster: _Growing) -> Cluster:
    role, prefix, fields, inner = cluster
    within = tuple([_grown(one) for one in inner]) if inner else ()
    return _new(Cluster, (role, prefix, fields[0][2] if fields else within[0][2], tuple(fields), within))
