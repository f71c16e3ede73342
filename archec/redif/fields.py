"""Fields: which names a template type knows, how they are spelt, what part they play in clusters.

A line ``word: ...`` begins a field only where the template's type knows the word, by name or by the
prefix of a cluster; otherwise it continues the value above it (``Purpose:``, ``https://`` inside an
abstract). Sources: ReDIF version 1; field names met in RePEc's archives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from archec.redif.kinds import Family

__all__ = ["Columns", "Field", "Role", "Row", "Spec", "cut", "joined", "spec_of", "specified", "unless_url"]


class Field(NamedTuple):
    """A field as it is read: canonical name, value with its continuation lines joined, line in the file."""

    name: str
    value: str
    line: int


Row = tuple[str, str]
"""Canonical name and value of a field: what templates and clusters hold, being the cheapest."""

Role = Literal["plain", "person", "organisation", "file"]
"""What a cluster describes; ``plain`` is a field of the template itself."""


class Spec(NamedTuple):
    """What a field's name means.

    ``name`` is the canonical spelling; ``prefix`` the cluster it belongs to (``Author``,
    ``Author-Workplace``, ``File``), ``""`` for a plain field; ``key`` whether it opens the cluster;
    ``parent`` the prefix of the cluster around it; ``listed`` whether ReDIF has the field, or it is
    only known by its prefix.
    """

    name: str
    role: Role
    prefix: str
    key: bool
    parent: str
    listed: bool


class Columns(NamedTuple):
    """The fields of a template, column by column: meaning, all that follows the colon, value."""

    specs: list[Spec]
    raws: list[str]
    values: list[str]


_NEXT = re.compile(r"\n([A-Za-z][A-Za-z0-9#-]{0,99})[ \t]*:")
_CONFLICT = ("<<<<<<< ", ">>>>>>> ", "=======", "<<<<<<<", ">>>>>>>", "||||||| ")

_EVERYWHERE = "Template-Type Handle"
_PLAIN: Mapping[Family, str] = {
    "work": (
        "Title Abstract Keywords Number Creation-Date Revision-Date Publication-Date Publication-Status"
        " Publication-Type Note Length Series Availability Order-URL Order-Email Order-Postal Order-Homepage"
        " Order-Phone Order-Fax Restriction Price Language Contact-Email DOI Article-Handle Book-Handle"
        " Chapter-Handle Paper-Handle Software-Handle Journal Volume Year Issue Month Pages Edition ISBN ISSN"
        " HasChapter Book-Title Chapter In-Book Programming-Language Version Size Requires Copyright"
        " Classification-JEL Short-Title Amendment Replication-Handle"
    ),
    "series": (
        "Name Title Type Description Abstract Maintainer-Name Maintainer-Email Maintainer-Phone Maintainer-Fax"
        " Maintainer-Postal Maintainer-Homepage ISSN ISBN Followup Predecessor Order-URL Order-Email Order-Postal"
        " Order-Homepage Order-Phone Order-Fax Restriction Homepage Notification Price Keywords Language Note"
        " Copyright Classification-JEL Short-Title"
    ),
    "archive": (
        "Name URL Homepage Description Notification Restriction Maintainer-Name Maintainer-Email Maintainer-Phone"
        " Maintainer-Fax Maintainer-Postal Maintainer-Homepage Classification-JEL Copyright Note"
    ),
    "person": (
        "Name-Full Name-First Name-Last Name-Middle Name-Prefix Name-Suffix Name-ASCII Name Email Homepage Fax"
        " Postal Phone Short-Id Last-Login-Date Registered-Date Deceased Author-Paper Author-Article Author-Book"
        " Author-Chapter Author-Software Editor-Book Editor-Series Classification-JEL Twitter Wikipedia-ID ORCID"
        " Copyright"
    ),
    "institution": "Name Homepage Email Phone Fax Postal Location Note Classification-JEL Copyright",
    "other": "",
}
_PLAIN_PREFIXES: Mapping[Family, tuple[str, ...]] = {
    "work": ("classification", "order", "publication", "creation", "revision", "contact"),
    "series": ("classification", "order", "maintainer"),
    "archive": ("classification", "maintainer"),
    "person": ("author", "editor", "classification", "name"),
    "institution": ("classification",),
    "other": (),
}
_CLUSTERS: Mapping[Family, Mapping[str, Role]] = {
    "work": {"author": "person", "editor": "person", "provider": "organisation", "publisher": "organisation"},
    "series": {"editor": "person", "provider": "organisation", "publisher": "organisation"},
    "archive": {"provider": "organisation"},
    "person": {"workplace": "organisation"},
    "institution": {
        "primary": "organisation", "secondary": "organisation", "tertiary": "organisation", "quaternary": "organisation"
    },
    "other": {
        "author": "person", "editor": "person", "provider": "organisation", "publisher": "organisation",
        "workplace": "organisation",
    },
}  # fmt: skip
_LEAVES: Mapping[Role, frozenset[str]] = {
    "person": frozenset(["name", "name-first", "name-last", "homepage", "email", "fax", "postal", "phone", "person"]),
    "organisation": frozenset(
        (
            *("name", "name-english", "homepage", "postal", "location", "email", "phone", "fax"),
            *("share", "institution", "defunct"),
        )
    ),
    "file": frozenset(["url", "format", "function", "size", "restriction"]),
}
_FILE = re.compile(r"((?:.*-)?file)-([a-z0-9#]+)")
_UPPER = frozenset(["url", "jel", "doi", "isbn", "issn", "id", "orcid", "ascii"])
_SPELT = {name.lower(): name for name in " ".join([_EVERYWHERE, *_PLAIN.values()]).split()}
_KNOWN: Mapping[Family, frozenset[str]] = {
    family: frozenset(f"{_EVERYWHERE} {names}".lower().split()) for family, names in _PLAIN.items()
}


@lru_cache(maxsize=8192)
def spec_of(family: Family, raw: str) -> Spec | None:
    """What a field's name, in any case, means in a family of types; None where it is not known.

    Names that begin with ``X-`` are local and known everywhere; unknown types know every name but ``RePEc``.
    """
    name = raw.lower()
    match = _FILE.fullmatch(name)
    if name.startswith("x-"):
        return _file(match, name) if match is not None and match[2] in _LEAVES["file"] else _plain(name, True)
    if name in _KNOWN[family]:
        return _plain(name, True)
    if match is not None and (match[1] == "file" or match[2] in _LEAVES["file"]):
        return _file(match, name)
    head, dash, leaf = name.partition("-")
    role = _CLUSTERS[family].get(head) if dash else None
    if role == "person" and leaf.startswith("workplace-"):
        return _leaf(name, f"{head}-workplace", leaf[10:], "organisation", head)
    if role is not None:
        return _leaf(name, head, leaf, role, "")
    if family == "other":
        return _plain(name, True) if name != "repec" else None  # a handle's first part, on a line of its own
    if dash and head in _PLAIN_PREFIXES[family]:
        return _plain(name, head in ("classification", "order"))
    return None


def cut(text: str) -> tuple[str, list[str], list[str]]:
    """Cuts a text before each line that begins like a field, whether its name is known or not.

    Gives what stands before the first of them, the names, and all that follows each name's colon.
    """
    pieces = _NEXT.split("\n" + text)
    return pieces[0], pieces[1::2], pieces[2::2]


def specified(family: Family, names: list[str], raws: list[str], plain: bool) -> Columns:
    """The fields of one template, from its part of what :func:`cut` gives.

    ``plain`` promises that there are no comments, conflict markers or Ctrl-Zs among the lines.

    Where the template's type does not know a name, the piece continues the field above it. A full
    parse spends most of its time here, which is why the usual template is done column by column in C.
    """
    specs: list[Spec | None] = list(map(_usual(family).get, names))
    if not all(specs) or family == "other":  # ten times as fast as None in specs
        specs = [spec or spec_of(family, name) for spec, name in zip(specs, names, strict=True)]
        if family == "other":
            specs = list(map(unless_url, specs, raws))
        if not all(specs):
            specs, raws = _merged(specs, names, raws)
    values = list(map(str.strip, raws))
    if not plain:
        values = [joined(raw) if "\n" in raw else value for raw, value in zip(raws, values, strict=True)]
    elif "\n" in "".join(values):
        values = [_joined_plain(value) if "\n" in value else value for value in values]
    return Columns(cast("list[Spec]", specs), raws, values)


def unless_url(spec: Spec | None, value: str) -> Spec | None:
    """No field at all where an unknown type has ``https://`` at the beginning of a line."""
    return None if spec is not None and spec.role == "plain" and value[:2] == "//" and spec.name != "Handle" else spec


def _merged(specs: list[Spec | None], names: list[str], raws: list[str]) -> tuple[list[Spec | None], list[str]]:
    """The same columns with what has no meaning put back into the values that it is part of."""
    known: list[Spec | None] = []
    parts: list[list[str]] = []
    for spec, name, raw in zip(specs, names, raws, strict=True):
        if spec is not None:
            known.append(spec)
            parts.append([raw])
        elif parts:
            parts[-1].append(f"{name}:{raw}")
    return known, ["\n".join(part) for part in parts]


@lru_cache(maxsize=8)
def _usual(family: Family) -> Mapping[str, Spec]:
    """The meaning of a family's names in their canonical spelling, as nearly all templates have them."""
    names = f"{_EVERYWHERE} {_PLAIN[family]}".split()
    names += [f"File-{leaf}" for leaf in ("URL", "Format", "Function", "Size", "Restriction")]
    names += ["X-Code", "Classification-Jel", "Author-X-Name-First", "Author-X-Name-Last"]
    for prefix, role in _CLUSTERS[family].items():
        names += [_spelt(f"{prefix}-{leaf}") for leaf in _LEAVES[role]]
        if role == "person":
            names += [_spelt(f"{prefix}-workplace-{leaf}") for leaf in _LEAVES["organisation"]]
    names += ["Template-type", "Author-WorkPlace-Name", *map(str.lower, names)]
    specs = {name: spec_of(family, name) for name in names}
    return {name: spec for name, spec in specs.items() if spec is not None}


def joined(raw: str) -> str:
    """A value from the text after its colon: lines joined by a blank; without blank lines, comments
    and the marker lines of a merge conflict."""
    if "\n" not in raw:
        return raw.strip()
    lines = raw.split("\n")
    kept = [lines[0].strip()]
    kept += [line.strip() for line in lines[1:] if line[:1] != "#" and not line.startswith(_CONFLICT)]
    return " ".join([line for line in kept if line and line != "\x1a"])


def _joined_plain(raw: str) -> str:
    """What :func:`joined` gives where there is nothing to leave out but blank lines."""
    return " ".join(filter(None, map(str.strip, raw.split("\n"))))


def _plain(name: str, listed: bool) -> Spec:
    return Spec(_spelt(name), "plain", "", False, "", listed)


def _file(match: re.Match[str], name: str) -> Spec:
    return Spec(_spelt(name), "file", _spelt(match[1]), match[2] == "url", "", match[2] in _LEAVES["file"])


def _leaf(name: str, prefix: str, leaf: str, role: Role, parent: str) -> Spec:
    listed = leaf in _LEAVES[role] or leaf.startswith("x-")
    return Spec(_spelt(name), role, _spelt(prefix), leaf == "name", _spelt(parent), listed)


def _spelt(name: str) -> str:
    """The canonical spelling of a lower-case name."""
    known = _SPELT.get(name)
    if known is not None:
        return known
    return "-".join([part.upper() if part in _UPPER else part.capitalize() for part in name.split("-")])
