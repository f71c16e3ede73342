"""The OAI index: which item is in which set, in the order of datestamps. Never a source of truth.

It follows the catalogue (:mod:`archec.oai.follow`) and may be deleted at any time: it is made again. One interface
with SQLite and MongoDB behind it, as with the catalogue; a contract test runs on both.

The one promise that harvesting rests on: *when the second S has begun, no item will ever again appear with a
stamp <= S*. So a list that was closed at the present second never loses a record, and the next harvest may begin
in that very second. :meth:`Index.publish` keeps it by dating a chunk into the future and checking, once it is
written, that that second had not begun yet.

An *item* is a tobi or a fobi that was ever held. Its *stamp* is its datestamp: the second in which its last change
became visible to harvesters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from archec.catalogue.model import Kind, Position
from archec.errors import CatalogueError

ITEM_KINDS: tuple[Kind, ...] = ("tobi", "fobi")
"""The kinds of obis that are items. Their numbers are those of indexes."""

LEADS = (2, 4, 8, 16, 32, 64)
"""Seconds into the future that a chunk is dated, tried in turn while writing it takes longer than that."""

END_OF_TIME = 1 << 62


class SortKey(NamedTuple):
    """Where an item is in every list: its stamp, and what orders items of one stamp (the engine's own)."""

    stamp: int
    tie: str


class IndexEntry(NamedTuple):
    """An item as the index is to have it from now on.

    ``obi`` is its id in the catalogue and ``local`` the local part of its identifier; ``stamp`` is the
    catalogue's; ``mark`` differs whenever the item's record differs; ``sets`` are those that it is in, without
    those above them.
    """

    kind: Kind
    local: str
    obi: str
    stamp: int
    mark: int
    deleted: bool
    sets: tuple[str, ...]


class IndexRow(NamedTuple):
    """An item as a list has it; see :class:`IndexEntry`. ``left``: it is listed because it was in the set that was
    asked for, and is not any more."""

    key: SortKey
    kind: Kind
    local: str
    obi: str
    deleted: bool
    sets: tuple[str, ...]
    left: bool = False


class ListQuery(NamedTuple):
    """What a list has: items of these kinds in a set ("" for all), ``start`` <= stamp <= ``end``."""

    kinds: tuple[Kind, ...]
    set: str
    start: int
    end: int


class Cursor(NamedTuple):
    """How far one collection of the catalogue has been followed: everything up to (stamp, id) was seen."""

    stamp: int = 1
    id: str = ""


class IndexState(NamedTuple):
    """How far the index has come.

    ``generation`` names this index: another one orders items of one stamp differently. ``rules`` is the checksum of
    the set rules. ``ready``: it has caught up once, and harvesters have been given its stamps since. ``cursors`` has
    one for each of :data:`ITEM_KINDS`, ``seen`` is the catalogue's position when the index last caught up, ``last`` the
    newest stamp given. ``archive`` says whose catalogue it follows; ``whole``: every item is to be compared with the
    catalogue again.
    """

    generation: str
    rules: str = ""
    ready: bool = False
    cursors: tuple[Cursor, ...] = (Cursor(),) * len(ITEM_KINDS)
    seen: Position = Position()
    last: int = 0
    archive: str = ""
    whole: bool = False


class Index(ABC):
    """See the module. ``name`` is for messages. Errors of the engine are raised as
    :class:`archec.errors.CatalogueError`."""

    name: str

    def publish(self, entries: Sequence[IndexEntry], state: IndexState, clock: Callable[[], float]) -> int:
        """Writes one chunk and ``state`` (``last`` is set here); returns how many items changed.

        An entry with the mark, fate and sets that the index already has changes nothing. In an index that is not
        ``ready`` an item keeps the catalogue's stamp; later it is dated as the promise demands.
        """
        chunk = {entry.local: entry for entry in entries}
        for attempt, lead in enumerate(LEADS):
            stamp, chunk = self._write(chunk, state, int(clock()) + lead, force=attempt > 0)
            if not chunk or not state.ready or clock() < stamp:
                return len(chunk)
        raise CatalogueError(f"{self.name}: writing a chunk takes more than {LEADS[-1]} s")

    @abstractmethod
    def _write(
        self, chunk: Mapping[str, IndexEntry], state: IndexState, stamp: int, *, force: bool
    ) -> tuple[int, dict[str, IndexEntry]]:
        """Writes those entries that change something (all of them with ``force``) and the state.

        Returns the stamp that they were given, which is ``stamp`` or the newest in the index if that is later, and
        the entries written.
        """

    @abstractmethod
    def state(self) -> IndexState:
        """How far the index has come."""

    @abstractmethod
    def page(self, query: ListQuery, after: SortKey | None, limit: int) -> list[IndexRow]:
        """At most ``limit`` items behind ``after``, in the order of their keys."""

    @abstractmethod
    def count(self, query: ListQuery) -> int:
        """How many items a query has."""

    @abstractmethod
    def find(self, local: str) -> IndexRow | None:
        """The item with this local part."""

    @abstractmethod
    def sets(self, after: str, limit: int) -> list[str]:
        """At most ``limit`` setSpecs greater than ``after``, in order, those above others included."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection to the engine."""

    def earliest(self) -> int | None:
        """The least stamp; None if the index is empty."""
        first = self.page(ListQuery(ITEM_KINDS, "", 0, END_OF_TIME), None, 1)
        return first[0].key.stamp if first else None
