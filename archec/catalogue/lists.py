"""What the lists over a whole catalogue are made of: places in time, works with their files, states of files.

A list is read by key, page by page: a :class:`Place` is its key, and any row may be the place to go on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from archec.catalogue.model import Tobi
from archec.history import History

__all__ = ["START", "FileState", "ObiKind", "Place", "TobiFiles", "last_held", "named_by", "tobi_files_of"]

_NO_VERSION: Mapping[str, Any] = {"kind": ""}
ObiKind = Literal["tobi", "fobi"]


class Place(NamedTuple):
    """Something that happened to an obi at a tist; lists are in the order of these pairs."""

    tist: int
    id: str


START = Place(-1, "")
"""Before every place."""


class TobiFiles(NamedTuple):
    """A tobi that was ever held: the tist of its newest entry, whether it is held now, its template type as written,
    the ids of the fobis that its newest version names, each once, in their order, and those that only older
    versions name."""

    id: str
    last: int
    held: bool
    kind: str
    files: tuple[str, ...]
    former: tuple[str, ...] = ()


class FileState(NamedTuple):
    """A fobi now. ``held`` is None where it never was, ``type`` the sniffed type of its newest contents (empty:
    none), ``outcome`` that of its last visit (empty: never visited), ``last`` the tist of its newest entry, or 0."""

    held: bool | None = None
    type: str = ""
    outcome: str = ""
    last: int = 0


def last_held(history: History) -> str | None:
    """The md5 of the newest contents that were held, None where there never were any."""
    return next((state for state in reversed(history.states) if state is not None), None)


def named_by(tobi: Tobi) -> set[str]:
    """The fobis that any version of a tobi names."""
    return {ref.url for version in tobi.versions.values() for ref in version.refs}


def tobi_files_of(obi: str, h: Mapping[str, str | None], versions: Mapping[str, Any]) -> TobiFiles | None:
    """Of the parts of a tobi's document (:mod:`archec.catalogue.codec`); None where it never was held.

    Raises KeyError, TypeError, ValueError, IndexError or AttributeError for what is no such document.
    """
    if len(h) == 1:
        ((last, newest),) = h.items()
        held = newest is not None
    else:
        tists = sorted(h, key=int)
        states = [h[tist] for tist in tists]
        last, held = (tists[-1], states[-1] is not None) if tists else ("0", False)
        newest = next((state for state in reversed(states) if state is not None), None)
    if newest is None:
        return None
    version = versions.get(newest, _NO_VERSION)
    files = tuple(dict.fromkeys([ref[0] for ref in version.get("refs", ())]))
    if len(versions) < 2:
        return TobiFiles(obi, int(last), held, version["kind"], files)
    older = {ref[0] for other in versions.values() for ref in other.get("refs", ())}
    return TobiFiles(obi, int(last), held, version["kind"], files, tuple(sorted(older.difference(files))))
