"""The OAI index: the sets of each item, and all items in the order of their datestamps. Never a source of truth.

It is derived from the catalogue (:mod:`archec.oai.follow`) and may be deleted at any time: it is created again. There
is one interface with SQLite and MongoDB behind it, as for the catalogue; a contract test runs on both.

Harvesting relies on one promise: *when the second S has begun, no item will ever appear again with a stamp <= S*. So a
list that ends at the present second never loses a record, and the next harvest may begin in that same second.
:meth:`Index.publish` keeps the promise: it stamps a chunk with a second in the future and, after writing the chunk,
checks that this second has not begun yet.

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
"""The kinds of obis that are items. Indexes store their positions in this tuple."""

LEADS = (2, 4, 8, 16, 32, 64)
"""Numbers of seconds into the future for the stamp of a chunk; the next one is tried if writing takes longer."""

END_OF_TIME = 1 << 62


class SortKey(NamedTuple):
    """The position of an item in every list: its stamp, and the engine's own order of items with the same stamp."""

    stamp: int
    tie: str


class IndexEntry(NamedTuple):
    """The new content of the index for an item.

    ``obi`` is its id in the catalogue and ``local`` the local part of its identifier. ``stamp`` is the catalogue's.
    ``mark`` changes whenever the item's record changes. ``sets`` are the sets it belongs to, without their ancestors.
    """

    kind: Kind
    local: str
    obi: str
    stamp: int
    mark: int
    deleted: bool
    sets: tuple[str, ...]


class IndexRow(NamedTuple):
    """An item in a list; see :class:`IndexEntry`. ``left``: it is listed because it was in the requested set, but is
    no longer."""

    key: SortKey
    kind: Kind
    local: str
    obi: str
    deleted: bool
    sets: tuple[str, ...]
    left: bool = False


class ListQuery(NamedTuple):
    """The contents of a list: items of these kinds in a set ("" for all) with ``start`` <= stamp <= ``end``."""

    kinds: tuple[Kind, ...]
    set: str
    start: int
    end: int


class Cursor(NamedTuple):
    """The progress in one collection of the catalogue: everything up to (stamp, id) was seen."""

    stamp: int = 1
    id: str = ""


class IndexState(NamedTuple):
    """The state of the index.

    ``generation`` identifies this index, because another one orders items of one stamp differently. ``rules`` is the
    checksum of the set rules. ``ready``: it has caught up once, and harvesters have received its stamps since.
    ``cursors`` has one for each of :data:`ITEM_KINDS`. ``seen`` is the catalogue's position when the index last caught
    up. ``last`` is the newest stamp used. ``archive`` identifies the archive of its catalogue. ``whole``: every item
    must be compared with the catalogue again.
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
    """The interface described in the module. ``name`` is for messages. Errors of the engine are raised as
    :class:`archec.errors.CatalogueError`."""

    name: str

    def publish(self, entries: Sequence[IndexEntry], state: IndexState, clock: Callable[[], float]) -> int:
        """Writes one chunk and ``state``, whose ``last`` is set here; returns the number of changed items.

        An entry that has the same mark, deletion and sets as in the index changes nothing. While the index is not
        ``ready``, an item keeps the catalogue's stamp; later its stamp is chosen as the promise requires.
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
        """Writes the state and the entries that change something (all of them with ``force``).

        Returns the stamp of these entries, which is ``stamp`` or the newest in the index if that is later, and the
        entries written.
        """

    @abstractmethod
    def state(self) -> IndexState:
        """The state of the index."""

    @abstractmethod
    def page(self, query: ListQuery, after: SortKey | None, limit: int) -> list[IndexRow]:
        """At most ``limit`` items after ``after``, in the order of their keys."""

    @abstractmethod
    def count(self, query: ListQuery) -> int:
        """The number of items that match a query."""

    @abstractmethod
    def find(self, local: str) -> IndexRow | None:
        """The item with this local part."""

    @abstractmethod
    def sets(self, after: str, limit: int) -> list[str]:
        """At most ``limit`` setSpecs greater than ``after``, in order, including ancestors of other sets."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection to the engine."""

    def earliest(self) -> int | None:
        """The least stamp; None if the index is empty."""
        first = self.page(ListQuery(ITEM_KINDS, "", 0, END_OF_TIME), None, 1)
        return first[0].key.stamp if first else None
