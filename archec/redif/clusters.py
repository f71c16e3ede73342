"""Clusters: fields that belong together, nested (an author and her workplaces, a file and its format).

A cluster begins at its key field (``*-Name``, ``*-URL``); the fields with its prefix that follow
belong to it until the key comes again. Fields of a cluster that stand apart from it are still taken
for it, and a field before any key opens a cluster without one: the specification would drop the
template, and archec does not drop what it can read. Source: ReDIF version 1, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from archec.ids import without_userinfo
from archec.redif.fields import Role, Row, Spec

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
    ``File``); ``rows`` are its own fields as pairs of their whole canonical name and
    their value; those of the clusters inside it are theirs.
    """

    role: Role
    prefix: str
    rows: Sequence[Row]
    clusters: Sequence[Cluster] = ()

    def get(self, leaf: str) -> str:
        """The first value of the field ``<prefix>-<leaf>`` that is not empty, else ``""``."""
        wanted = f"{self.prefix}-{leaf}"
        return next((value for name, value in self.rows if name == wanted and value), "")

    @property
    def name(self) -> str:
        """The name of the person or organisation."""
        return self.get("Name")

    def refipo(self) -> RawRefipo:
        """What a file cluster refers to."""
        return raw_refipo(self.prefix, self.rows)


def raw_refipo(prefix: str, rows: Iterable[Row]) -> RawRefipo:
    """The refipo in the rows of a file cluster; of a field that is repeated, the first value counts."""
    size = len(prefix) + 1
    leaves: dict[str, str] = {}
    for name, value in rows:
        if value:
            leaves.setdefault(name[size:], value)
    get = leaves.get
    url = "".join(get("URL", "").split())
    if "@" in url:
        url = without_userinfo(url)
    return RawRefipo(url, get("Format", ""), get("Function", ""), get("Size", ""), get("Restriction", ""))


def grouped(specs: Sequence[Spec], values: Sequence[str]) -> tuple[tuple[Cluster, ...], list[int]]:
    """A template's clusters in order, and the places of the fields whose cluster no key had opened."""
    top: list[Cluster] = []
    keyless: list[int] = []
    rows_of: dict[str, list[Row]] = {}
    inner_of: dict[str, list[Cluster]] = {}
    for at, spec in enumerate(specs):
        prefix = spec[2]
        if not prefix:
            continue
        if not spec[3]:
            if prefix in rows_of:
                rows_of[prefix].append((spec[0], values[at]))
                continue
            keyless.append(at)
        # A cluster is made at once; its lists grow until the end of this function, and never after.
        rows_of[prefix] = rows = [(spec[0], values[at])]
        role, parent = spec[1], spec[4]
        if role == "person":
            inner: list[Cluster] = []
            inner_of[prefix] = inner
            top.append(_new(Cluster, (role, prefix, rows, inner)))
            rows_of.pop(f"{prefix}-Workplace", None)
        elif parent:
            if parent not in inner_of:
                rows_of[parent], inner_of[parent] = [], []
                top.append(Cluster("person", parent, rows_of[parent], inner_of[parent]))
            inner_of[parent].append(_new(Cluster, (role, prefix, rows, ())))
        else:
            top.append(_new(Cluster, (role, prefix, rows, ())))
    return tuple(top), keyless
