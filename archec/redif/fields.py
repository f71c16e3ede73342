"""Converts the text of a template to fields, and the fields to clusters.

A line ``word: ...`` begins a field only if the template's type knows the word, by name or by the prefix of a cluster;
otherwise it continues the value above it (``Purpose:``, ``https://`` inside an abstract).

A cluster is a group of fields (an author and her workplaces, a file and its format). It begins at its key field
(``*-Name``, ``*-URL``), and includes the fields with its prefix that follow, until the next key. Fields that are
separated from their cluster still belong to it, and a field before any key opens a cluster without one: the
specification (ReDIF version 1, section 3) would drop the template, but archec does not drop what it can read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast

from archec.ids import without_userinfo
from archec.redif.schema import Family, Role, Spec, spec_of, usual_specs

_NEXT = re.compile(r"\n([A-Za-z][A-Za-z0-9#-]{0,99})[ \t]*:")
_CONFLICT = ("<<<<<<<", ">>>>>>>", "=======", "||||||| ")

Row = tuple[str, str]
"""Canonical name and value of a field: the cheapest form, used in templates and clusters."""


class Field(NamedTuple):
    """A field: canonical name, value with its continuation lines joined, line in the file."""

    name: str
    value: str
    line: int


class RawRefipo(NamedTuple):
    """A refipo as in a template, with ``""`` for missing fields.

    ``url_raw`` has no white space and no user information, and is not normalised.
    """

    url_raw: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Cluster(NamedTuple):
    """A person, an organisation or a file inside a template.

    ``prefix`` is the common prefix of its field names (``Author``, ``Author-Workplace``, ``File``). ``rows`` are
    its own fields, as pairs of the whole canonical name and the value; ``clusters`` are the clusters inside it.
    """

    role: Role
    prefix: str
    rows: Sequence[Row]
    clusters: Sequence[Cluster] = ()

    def get(self, leaf: str) -> str:
        """The first value of the field ``<prefix>-<leaf>`` that is not empty, or ``""``."""
        wanted = f"{self.prefix}-{leaf}"
        return next((value for name, value in self.rows if name == wanted and value), "")

    @property
    def name(self) -> str:
        return self.get("Name")

    def refipo(self) -> RawRefipo:
        """The refipo of a file cluster. If a field is repeated, its first value counts."""
        first = {name: value for name, value in reversed(self.rows) if value}
        leaves = ("URL", "Format", "Function", "Size", "Restriction")
        url, *others = [first.get(f"{self.prefix}-{leaf}", "") for leaf in leaves]
        url = "".join(url.split())
        return RawRefipo(without_userinfo(url) if "@" in url else url, *others)


def cut(text: str) -> tuple[str, list[str], list[str]]:
    """Cuts a text before each line that begins like a field, whether or not its name is known.

    Returns the text before the first such line, the names, and everything after the colon of each name.
    """
    pieces = _NEXT.split("\n" + text)
    return pieces[0], pieces[1::2], pieces[2::2]


def specified(
    family: Family, names: list[str], raws: list[str], plain: bool
) -> tuple[list[Spec], list[str], list[str]]:
    """The fields of a template, from the names and pieces that :func:`cut` returns, by columns: the spec, everything
    after the colon, and the value.

    A piece whose name is unknown to the template's type continues the previous field. ``plain`` promises that no line
    is a comment, a conflict marker or a Ctrl-Z.
    """
    # A full parse spends most of its time here: the usual template goes through map() column by column.
    specs: list[Spec | None] = list(map(usual_specs(family).get, names))
    if not all(specs) or family == "other":  # ten times as fast as None in specs
        specs = [spec or spec_of(family, name) for spec, name in zip(specs, names, strict=True)]
        if family == "other":
            specs = list(map(_unless_url, specs, raws))
        if not all(specs):
            specs, raws = _merged(specs, names, raws)
    values = list(map(str.strip, raws))
    if not plain:
        values = [joined(raw) if "\n" in raw else value for raw, value in zip(raws, values, strict=True)]
    elif "\n" in "".join(values):
        values = [_joined_plain(value) if "\n" in value else value for value in values]
    return cast("list[Spec]", specs), raws, values


def joined(raw: str) -> str:
    """The value in the text after a colon: its lines joined by blanks, without comments, blank lines and the markers
    of a merge conflict."""
    if "\n" not in raw:
        return raw.strip()
    lines = raw.split("\n")
    kept = [lines[0].strip()]
    kept += [line.strip() for line in lines[1:] if line[:1] != "#" and not line.startswith(_CONFLICT)]
    return " ".join([line for line in kept if line and line != "\x1a"])


def grouped(specs: Sequence[Spec], values: Sequence[str]) -> tuple[tuple[Cluster, ...], list[int]]:
    """The clusters of a template in order, and the indexes of fields that come before the key of their cluster."""
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
        # A cluster is made when it begins; its lists grow until this function returns, never later.
        rows_of[prefix] = rows = [(spec[0], values[at])]
        role, parent = spec[1], spec[4]
        if role == "person":
            inner: list[Cluster] = []
            inner_of[prefix] = inner
            top.append(Cluster(role, prefix, rows, inner))
            rows_of.pop(f"{prefix}-Workplace", None)
        elif parent:
            if parent not in inner_of:
                rows_of[parent], inner_of[parent] = [], []
                top.append(Cluster("person", parent, rows_of[parent], inner_of[parent]))
            inner_of[parent].append(Cluster(role, prefix, rows))
        else:
            top.append(Cluster(role, prefix, rows))
    return tuple(top), keyless


def _unless_url(spec: Spec | None, value: str) -> Spec | None:
    """``spec``, or None for ``https://`` at the beginning of a line, which would be a field in an unknown type."""
    return None if spec is not None and spec.role == "plain" and value[:2] == "//" and spec.name != "Handle" else spec


def _merged(specs: list[Spec | None], names: list[str], raws: list[str]) -> tuple[list[Spec | None], list[str]]:
    """The columns without unknown names; their pieces are appended to the values before them."""
    known: list[Spec | None] = []
    parts: list[list[str]] = []
    for spec, name, raw in zip(specs, names, raws, strict=True):
        if spec is not None:
            known.append(spec)
            parts.append([raw])
        elif parts:
            parts[-1].append(f"{name}:{raw}")
    return known, ["\n".join(part) for part in parts]


def _joined_plain(raw: str) -> str:
    """Like :func:`joined`, for a text in which only blank lines must be removed."""
    return " ".join(filter(None, map(str.strip, raw.split("\n"))))
