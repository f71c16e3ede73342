"""The interfaces of the obi store and of a run's journal, and the types of a batch.

:mod:`archec.store.writer` and :mod:`archec.store.journal_writer` are the implementation, on a POSIX file system.
Runs rely on these guarantees: disk before journal before catalogue (invariant 2), held is held
(invariant 1). Paths are relative to the store's root, with ``/`` between their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Protocol

from archec.store.layout import Layout


class Stored(NamedTuple):
    """A complete temporary file: its path, the hex digests of its bytes, and its size in bytes."""

    temp: str
    md5: str
    sha256: str
    size: int


class Placement(NamedTuple):
    """A complete temporary file that is to be renamed to (tist, id); ``sha256`` is that of its bytes."""

    temp: str
    tist: int
    id: str
    sha256: str


class Link(NamedTuple):
    """A redirect: (tist, id) leads to (to_tist, to_id)."""

    tist: int
    id: str
    to_tist: int
    to_id: str


class HardLink(NamedTuple):
    """Contents stated again: (tist, id) is to hold the same bytes as (from_tist, from_id)."""

    from_tist: int
    from_id: str
    tist: int
    id: str


class CommitResult(NamedTuple):
    """The result for one item of a batch.

    ``stored``: (tist, id) now resolves as requested. ``adopted``: it did already, because of an interrupted
    run. ``occupied``: something else is held there and stays; ``sha256`` is that of the bytes it
    resolves to, ``""`` if there are none. ``missing``: contents to be stated again are not held.
    Otherwise ``sha256`` is that of a placement's bytes, ``""`` for links.
    """

    kind: Literal["stored", "adopted", "occupied", "missing"]
    tist: int
    id: str
    sha256: str


class LinkStep(NamedTuple):
    """One step of a chain of redirects; ``id`` is None if the name on disk is truncated (the journal has the id)."""

    tist: int
    id: str | None
    name: str


class Located(NamedTuple):
    """The place of an obi's bytes: a path, and the redirects from its own name to it."""

    path: str
    hops: tuple[LinkStep, ...]


class Digest(NamedTuple):
    """Hex digests and size in bytes of what is held."""

    md5: str
    sha256: str
    size: int


class ObiStore(Protocol):
    """An obi store: a map from (tist, id) to bytes that only grows.

    Reading methods raise :class:`archec.errors.NotHeld` if nothing was noted, :class:`archec.errors.CorruptArchive` for
    links that leave the store, loop or dangle, and :class:`archec.errors.StorageFailed`. Writing methods raise
    :class:`archec.errors.StorageFull` and :class:`archec.errors.StorageFailed`.
    """

    layout: Layout

    def locate(self, tist: int, id: str) -> Located:  # noqa: A002
        """The file that holds what was noted of an obi at ``tist``; redirects are followed."""
        ...

    def open(self, tist: int, id: str) -> BinaryIO:  # noqa: A002
        """What was noted of an obi at ``tist``, open for reading."""
        ...

    def digest(self, tist: int, id: str) -> Digest:  # noqa: A002
        """The digests and the size of what was noted of an obi at ``tist``."""
        ...

    def put(self, tist: int, id: str, data: bytes) -> Stored:  # noqa: A002
        """A complete temporary file with ``data``, not visible yet."""
        ...

    def discard(self, temp: str) -> None:
        """Removes an unneeded temporary file, if it still exists."""
        ...

    def commit(
        self, placements: Sequence[Placement], links: Sequence[Link] = (), restated: Sequence[HardLink] = ()
    ) -> list[CommitResult]:
        """Makes a batch durable; the results are in the order of placements, links, restated.

        When it returns, everything ``stored`` or ``adopted`` is on disk under its name. If it raises, some names may
        exist already; committing the same batch again completes it.
        """
        ...


class Journal(Protocol):
    """The journal of one run, to which batches are appended.

    ``batches`` is the number of the last batch, ``head`` its sha256, to which the next batch is chained.
    """

    tist: int
    batches: int
    head: str

    def append(self, lines: Iterable[bytes | str], stamp: int) -> int:
        """Appends one batch of JSON texts, durably, and returns its number. ``stamp`` is the tist of writing it.

        Raises :class:`archec.errors.StorageFull` if there is no space: the journal is then unchanged, and the batch can
        be appended again. After :class:`archec.errors.StorageFailed` nothing more can be appended.
        """
        ...

    def finish(self) -> Path:
        """Finishes the journal and returns its path."""
        ...
