"""The rows of lists that the catalogue returns."""

from __future__ import annotations

from typing import NamedTuple

from archec.catalogue.model import Kind
from archec.tist import MAX_TIST


class ObiState(NamedTuple):
    """A row of the sorted scan with which a data set is merged.

    ``last`` and ``state`` are the newest entry of the history. ``h`` is the whole history as JSON text; None if the
    newest entry is the only one. ``place`` and ``since`` are those of the :class:`Obi`.
    """

    id: str
    last: int
    state: str | None
    h: str | None
    place: str = ""
    since: int = MAX_TIST


class TextPlace(NamedTuple):
    """The place where the text with the checksum ``text`` is held: the least (tist, id) of all of them."""

    text: str
    tist: int
    id: str


class DueFobi(NamedTuple):
    """A fobi that is due. ``due`` is 0 if it was never visited."""

    due: int
    id: str


class Moment(NamedTuple):
    """An incidence: the tist and the id of the obi. Lists are in the order of these pairs, and can be continued after
    any of them."""

    tist: int
    id: str


START = Moment(-1, "")
"""Less than any moment: the start of a list."""


class TobiFiles(NamedTuple):
    """The files that a tobi names. ``last`` is the tist of its newest entry, ``held`` whether it is held now, ``type``
    its template type as written. ``files`` are the fobis that its newest version names, each once, in its order,
    ``former`` those that only older versions name. ``bad_urls`` counts the bad File-URLs of the newest version."""

    id: str
    last: int
    held: bool
    type: str
    files: tuple[str, ...]
    former: tuple[str, ...] = ()
    bad_urls: int = 0


class FileState(NamedTuple):
    """The current state of a fobi. ``held`` is None if it was never held, ``type`` the sniffed type of its newest
    contents (empty: none), ``outcome`` that of its last visit (empty: never visited), ``last`` the tist of its newest
    entry (0: none)."""

    held: bool | None = None
    type: str = ""
    outcome: str = ""
    last: int = 0


class Place(NamedTuple):
    """The place where bytes are held: the first entry of an obi with these bytes, at ``tist``."""

    kind: Kind
    id: str
    tist: int
    size: int
