"""What values of fields must look like. Pure functions; sources: ReDIF version 1, and what RePEc's services accept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType

from archec.redif.schema import KINDS, Family

_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_EMAIL = re.compile(r"[^\s@<>,;\"]+@[A-Za-z0-9](?:[A-Za-z0-9-]*\.)+[A-Za-z]{2,}")
_JEL = re.compile(r"[A-Z](?:[0-9]{1,2})?", re.I)
_MIME = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*(?:\s*;.*)?", re.I)
_INSTITUTION = re.compile(r"RePEc:edi:[a-z0-9]{7}", re.I)
_STATUS = re.compile(r"(?:published|forthcoming)\b", re.I)
_SERIES_TYPES = tuple(name for name, family in KINDS.values() if family == "work")
_VERSION = "1.0"

SINGLE: Mapping[Family, frozenset[str]] = MappingProxyType(
    {
        "work": frozenset(
            (
                *("Title", "Number", "Creation-Date", "Publication-Date", "Publication-Status", "Length", "Series"),
                *("Price", "Journal", "Volume", "Year", "Issue", "Month", "Pages", "Edition", "Book-Title", "Chapter"),
            )
        ),
        "series": frozenset(("Name", "Type", "Maintainer-Name", "Maintainer-Email", "ISSN", "Price")),
        "archive": frozenset(("Name", "URL", "Maintainer-Name", "Maintainer-Email")),
        "person": frozenset(("Name-Full", "Name-First", "Name-Last", "Short-Id")),
        "institution": frozenset(),
        "other": frozenset(),
    }
)
"""Fields that a template has once at most. (Handles are counted for themselves.)"""


def trouble_of(family: Family, name: str, value: str) -> str:
    """What is wrong with the value of a field (canonical name), ``""`` if nothing is, or it is empty."""
    leaf = name.rpartition("-")[2]
    if not value:
        return ""
    if leaf == "Date":
        return "" if _is_date(value) else "is not a date: write 2009, 2009-05 or 2009-05-31"
    if leaf == "Email":
        return "" if _EMAIL.fullmatch(value) else "is not one e-mail address"
    if name == "Classification-JEL":
        odd = [code for code in re.split(r"[\s,;.]+", value) if code and not _JEL.fullmatch(code)]
        return f"has {odd[0]!r}, which is no JEL code such as C12" if odd else ""
    if name.endswith("File-Format"):
        return "" if _MIME.fullmatch(value) else "is not a MIME type such as application/pdf"
    if leaf == "Institution":
        return "" if _INSTITUTION.fullmatch(value) else "is not the handle of an institution such as RePEc:edi:abcdeus"
    if name == "Type" and family == "series":
        return "" if value in _SERIES_TYPES else f"is not one of {', '.join(_SERIES_TYPES)}"
    if name == "Publication-Status":
        return "" if _STATUS.match(value) else "does not begin with Published or Forthcoming"
    return ""


def version_trouble(version: str) -> str:
    """What is wrong with the version in a ``Template-Type`` of a known type."""
    if version == _VERSION:
        return ""
    return f"has the version {version}, not {_VERSION}" if version else f"has no version: write {_VERSION} behind it"


def _is_date(value: str) -> bool:
    match = _DATE.fullmatch(value)
    if match is None:
        return False
    try:
        date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return False
    return True
