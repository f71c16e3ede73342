"""What the catalogue holds: one frozen document per obi, and the runs and data sets behind them.

``mi`` is the collection of :class:`Tobi`, ``mo`` that of :class:`Fobi`; ``vi`` and ``vo`` map text
checksums to the :class:`TextPlace` where that text is held (Fort Lee paper, "caching database").
All of it derives from the run journals (design, invariant 3): :mod:`archec.catalogue.fold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from archec.history import History

__all__ = [
    "CORE",
    "Changes",
    "DataSet",
    "DueFobi",
    "Fobi",
    "FobiNote",
    "FobiVersion",
    "Position",
    "Refipo",
    "Run",
    "SeenSet",
    "TextPlace",
    "Tobi",
    "TobiNote",
    "TobiState",
    "TobiVersion",
    "Visit",
]

CORE = "all"
"""The core archive: its directory holds the archive and series templates of all archives."""


class Refipo(NamedTuple):
    """Reference to file information: one FILE cluster of a tobi; ``url`` is the fobi's id."""

    url: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


@dataclass(frozen=True, slots=True)
class TobiVersion:
    """One content of a tobi: its file's md5 and size in bytes, its canonical text's md5, and what
    the template says: its type as written, its title, its refipos."""

    md5: str
    size: int
    text: str
    kind: str
    title: str
    refs: tuple[Refipo, ...] = ()


@dataclass(frozen=True, slots=True)
class TobiNote:
    """How an entry of a tobi's history came about.

    ``run`` is the software tist, ``kind`` one of ``new changed cosmetic file-url lost returned
    restated``, ``path`` and ``line`` the place in the data set, ``reason`` why it is lost.
    """

    run: int
    kind: str
    path: str = ""
    line: int = 0
    encoding: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tobi:
    """A template obi. ``stamp``: when its last change became visible (seconds, monotonic)."""

    id: str
    handle: str = ""
    history: History = field(default_factory=History)
    versions: Mapping[str, TobiVersion] = field(default_factory=dict)
    notes: Mapping[int, TobiNote] = field(default_factory=dict)
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class FobiVersion:
    """One content of a fobi: md5, size in bytes, md5 of its text (None: no text), sniffed type."""

    md5: str
    size: int
    text: str | None
    type: str


@dataclass(frozen=True, slots=True)
class FobiNote:
    """How an entry of a fobi's history came about.

    ``target`` is the id that this URL redirected to (empty: the body is this URL's own);
    ``headers`` are the kept response headers; ``suspect`` says why the contents may not be what was
    meant (a page in place of a PDF, an empty body), ``reason`` why it is lost.
    """

    run: int
    kind: str
    status: int = 0
    target: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    suspect: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """The last visit to a fobi.

    ``outcome`` is a word of :class:`archec.web.outcome.Outcome`; ``gone_since`` and ``gone`` are
    the tist of the first and the number of visits in a row that found it gone; ``fails`` the number
    of visits in a row that came to nothing; ``checked`` the last tist at which contents were seen
    or confirmed; ``etag`` and ``modified`` go into conditional requests.
    """

    tist: int
    outcome: str
    status: int = 0
    target: str = ""
    etag: str = ""
    modified: str = ""
    gone_since: int = 0
    gone: int = 0
    fails: int = 0
    checked: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Fobi:
    """A file obi. ``due``: the tist from which it is to be visited again, 0 if it never was."""

    id: str
    history: History = field(default_factory=History)
    versions: Mapping[str, FobiVersion] = field(default_factory=dict)
    notes: Mapping[int, FobiNote] = field(default_factory=dict)
    visit: Visit | None = None
    due: int = 0
    stamp: int = 0


class TobiState(NamedTuple):
    """A row of the sorted scan that a data set is merged with.

    ``last`` and ``state`` are the newest entry of the history; ``h`` is the history's map as JSON
    text, or None where the newest entry is the only one.
    """

    id: str
    last: int
    state: str | None
    h: str | None


class TextPlace(NamedTuple):
    """Where the text with checksum ``text`` is held: the least (tist, id) of all places."""

    text: str
    tist: int
    id: str


class DueFobi(NamedTuple):
    """A fobi in the order in which it is due; ``due`` 0 means that it was never visited."""

    due: int
    id: str


@dataclass(frozen=True, slots=True)
class SeenSet:
    """The handles of one archive that a data set held although it does not cover the archive:
    sorted xxh3_64 of each id, 8 bytes big-endian each. ``key`` is the xxh3_128 of ``ids``."""

    key: str
    ids: bytes


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is known of the data set of one tist, over all runs that read one of this date.

    ``covered`` are the archive codes whose directory was read whole; with ``complete`` also every
    archive that is in neither map. ``partial`` maps archive codes that are not covered to the keys
    of the seen sets that say which of their handles were there. ``guarded`` are archives whose losses
    were held back: the core archive's directory is no evidence for them either.
    """

    tist: int
    names: tuple[str, ...] = ()
    complete: bool = False
    covered: frozenset[str] = frozenset()
    partial: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``state``: ``running``, ``done``, ``held-back``, ``budget``, ``interrupted`` or
    ``failed``; ``report`` is the run's report as JSON text, empty while it runs."""

    tist: int
    state: str = "running"
    data_set: int = 0
    kind: str = "directory"
    source: str = ""
    options: str = "{}"
    report: str = ""


class Position(NamedTuple):
    """How far the catalogue has followed the journals: run, number of its last batch, its stamp."""

    run: int = 0
    batch: int = 0
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """One lot of writes, applied as a whole with the position reached.

    ``mentioned`` are ids of fobis to add if they are not there yet; ``vi`` and ``vo`` replace a
    text's place only by a lesser one.
    """

    position: Position
    tobis: Sequence[Tobi] = ()
    fobis: Sequence[Fobi] = ()
    mentioned: Sequence[str] = ()
    vi: Sequence[TextPlace] = ()
    vo: Sequence[TextPlace] = ()
    runs: Sequence[Run] = ()
    data_sets: Sequence[DataSet] = ()
    seen: Sequence[SeenSet] = ()
