"""The rows of the catalogue's lists."""

from __future__ import annotations

from typing import NamedTuple

from archec.catalogue.model import Kind
from archec.tist import MAX_TIST


class ObiState(NamedTuple):
    """A row of the sorted scan that a data set is merged with.

    ``last`` and ``state`` are the newest entry of the history; ``h`` is the history's map as JSON
    text, or None if the newest entry is the only one. ``place`` and ``since`` are those of the :class:`Obi`.
    """

    id: str
    last: int
    state: str | None
    h: str | None
    place: str = ""
    since: int = MAX_TIST


class TextPlace(NamedTuple):
    """Where the text with checksum ``text`` is held: the least (tist, id) of all places."""

    text: str
    tist: int
    id: str


class DueFobi(NamedTuple):
    """A fobi in the order in which it is due; ``due`` 0 means that it was never visited."""

    due: int
    id: str


class Moment(NamedTuple):
    """Something that happened to an obi at a tist; lists are in the order of these pairs, and any of them may be the
    one to go on from."""

    tist: int
    id: str


START = Moment(-1, "")
"""Before every moment."""


class TobiFiles(NamedTuple):
    """A tobi that was ever held: the tist of its newest entry, whether it is held now, its template type as written,
    the ids of the fobis that its newest version names, each once, in their order, those that only older
    versions name, and how many File-URLs of the newest version are bad."""

    id: str
    last: int
    held: bool
    type: str
    files: tuple[str, ...]
    former: tuple[str, ...] = ()
    bad_urls: int = 0


class FileState(NamedTuple):
    """A fobi now. ``held`` is None if it never was, ``type`` the sniffed type of its newest contents (empty:
    none), ``outcome`` that of its last visit (empty: never visited), ``last`` the tist of its newest entry, or 0."""

    held: bool | None = None
    type: str = ""
    outcome: str = ""
    last: int = 0


class Place(NamedTuple):
    """Where bytes are held: the obi's entry at ``tist``, which is its first one with these bytes."""

    kind: Kind
    id: str
    tist: int
    size: int
