"""Template types: what ``Template-Type:`` says, which fields a type has and which it requires.

Sources: ReDIF version 1, sections 2 and 4, and what RePEc's archives use beside it (``DOI``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

__all__ = ["KINDS", "NO_KIND", "REQUIRED", "Family", "Kind", "kind_of"]


Family = Literal["work", "series", "archive", "person", "institution", "other"]
"""Types that share their fields; ``other`` are the types that ReDIF does not have."""


class Kind(NamedTuple):
    """A template type: ``ReDIF-Paper``, ``1.0``. For an unknown type ``name`` is as it is written."""

    name: str
    version: str
    family: Family

    @property
    def known(self) -> bool:
        """Whether ReDIF has this type."""
        return self.family != "other"


NO_KIND = Kind("", "", "other")
"""The type of a template that does not say one."""

KINDS: Mapping[str, tuple[str, Family]] = MappingProxyType(
    {
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
)
"""The nine types of ReDIF by the lower-case word after ``ReDIF-``."""

REQUIRED: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
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
)
"""What each type requires; one of the names of each tuple is enough."""

_KIND = re.compile(r"\s*(?:re?dif)[-_\s]*([a-z]+)\W*?(?:\s+([0-9][0-9.]*))?(?:[\s<.].*)?", re.I | re.S)


@lru_cache(maxsize=256)
def kind_of(raw: str) -> Kind:
    """The type behind what is written after ``Template-Type:``, in any case, with or without version.

    What is misspelt beyond that is an unknown type: archec does not guess.
    """
    match = _KIND.fullmatch(raw)
    if match is not None and match[1].lower() in KINDS:
        name, family = KINDS[match[1].lower()]
        return Kind(name, (match[2] or "").rstrip("."), family)
    return Kind(" ".join(raw.split())[:200], "", "other")
