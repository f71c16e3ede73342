"""The template types and fields of ReDIF: their spelling, the fields a type requires, the fields that form clusters.

Sources: ReDIF version 1, and additional field names that RePEc's archives use (``DOI``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

Family = Literal["work", "series", "archive", "person", "institution", "other"]
"""Types that share their fields; ``other`` are types unknown to ReDIF."""

Role = Literal["plain", "person", "organisation", "file"]
"""What a cluster describes; ``plain`` is a field outside of clusters."""


class Kind(NamedTuple):
    """A template type: ``ReDIF-Paper``, ``1.0``. The ``name`` of an unknown type is as written."""

    name: str
    version: str
    family: Family


class Spec(NamedTuple):
    """The meaning of a field name.

    ``name`` is the canonical spelling. ``prefix`` is the cluster it belongs to (``Author``, ``Author-Workplace``,
    ``File``), ``""`` for a plain field. ``key``: it opens the cluster. ``parent`` is the prefix of the enclosing
    cluster. ``listed`` is false for a field that ReDIF does not have and that is only known by its prefix.
    """

    name: str
    role: Role
    prefix: str
    key: bool
    parent: str
    listed: bool


KINDS: Mapping[str, tuple[str, Family]] = {
    "paper": ("ReDIF-Paper", "work"),
    "article": ("ReDIF-Article", "work"),
    "software": ("ReDIF-Software", "work"),
    "book": ("ReDIF-Book", "work"),
    "chapter": ("ReDIF-Chapter", "work"),
    "series": ("ReDIF-Series", "series"),
    "archive": ("ReDIF-Archive", "archive"),
    "person": ("ReDIF-Person", "person"),
    "institution": ("ReDIF-Institution", "institution"),
}
"""The nine types of ReDIF by the lower-case word after ``ReDIF-``."""

REQUIRED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ReDIF-Paper": (("Title",), ("Author-Name",), ("Handle",)),
    "ReDIF-Article": (("Title",), ("Author-Name",), ("Handle",)),
    "ReDIF-Software": (("Title",), ("Author-Name",), ("Handle",)),
    "ReDIF-Book": (("Title",), ("Handle",), ("Author-Name", "Editor-Name"), ("Provider-Name", "Publisher-Name")),
    "ReDIF-Chapter": (("Title",), ("Author-Name",), ("Handle",)),
    "ReDIF-Series": (("Name",), ("Handle",), ("Maintainer-Email",)),
    "ReDIF-Archive": (("Handle",), ("URL",), ("Maintainer-Email",), ("Name",)),
    "ReDIF-Person": (("Handle",), ("Name-Full",)),
    "ReDIF-Institution": (("Handle",), ("Primary-Name",)),
}
"""The fields that each type requires; one field of each tuple is enough."""

_KIND = re.compile(r"\s*(?:re?dif)[-_\s]*([a-z]+)\W*?(?:\s+([0-9][0-9.]*))?(?:[\s<.].*)?", re.I | re.S)

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
    "organisation": frozenset([
        "name", "name-english", "homepage", "postal", "location", "email", "phone", "fax", "share", "institution",
        "defunct",
    ]),
    "file": frozenset(["url", "format", "function", "size", "restriction"]),
}
_FILE = re.compile(r"((?:.*-)?file)-([a-z0-9#]+)")
_UPPER = frozenset(["url", "jel", "doi", "isbn", "issn", "id", "orcid", "ascii"])
_SPELT = {name.lower(): name for name in " ".join([_EVERYWHERE, *_PLAIN.values()]).split()}
_KNOWN: Mapping[Family, frozenset[str]] = {
    family: frozenset(f"{_EVERYWHERE} {names}".lower().split()) for family, names in _PLAIN.items()
}


def kind_of(raw: str) -> Kind:
    """The type in a value of ``Template-Type:``, in any case, with or without version.

    Any other misspelling is an unknown type: archec does not guess.
    """
    match = _KIND.fullmatch(raw)
    if match is not None and match[1].lower() in KINDS:
        name, family = KINDS[match[1].lower()]
        return Kind(name, (match[2] or "").rstrip("."), family)
    return Kind(" ".join(raw.split())[:200], "", "other")


def type_of(raw: str) -> str:
    """The canonical type in a value of ``Template-Type:``, ``other`` if it is unknown."""
    kind = kind_of(raw)
    return kind.name if kind.family != "other" else "other"


@lru_cache(maxsize=8192)
def spec_of(family: Family, raw: str) -> Spec | None:
    """The meaning of a field name, in any case, in a family of types; None if it is unknown.

    Names that begin with ``X-`` are local and known everywhere. Unknown types know every name but ``RePEc``.
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
        return _plain(name, True) if name != "repec" else None  # the first part of a handle, on its own line
    if dash and head in _PLAIN_PREFIXES[family]:
        return _plain(name, head in ("classification", "order"))
    return None


@lru_cache(maxsize=8)
def usual_specs(family: Family) -> Mapping[str, Spec]:
    """The specs of a family by the spellings that nearly all templates use: a dictionary is faster than spec_of."""
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
