"""The obi store and a run's journal, as those who commit to them see them; the words of a batch.

:mod:`archec.store.writer` and :mod:`archec.store.journal_writer` are the implementation, on a POSIX file system.
What is promised here is what a run relies on: disk before journal before catalogue (invariant 2), held is held
(invariant 1). Paths are relative to the store's root, with ``/`` between their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Protocol

from archec.store.layout import Layout


class Stored(NamedTuple):
    """A whole temporary file: its path, the hex digests of its bytes, and its size in bytes."""

    temp: str
    md5: str
    sha256: str
    size: int


class Placement(NamedTuple):
    """A whole temporary file that is to get the name of (tist, id); ``sha256`` is that of its bytes."""

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
    """Contents stated again: (tist, id) is to hold the bytes that (from_tist, from_id) holds."""

    from_tist: int
    from_id: str
    tist: int
    id: str


class CommitResult(NamedTuple):
    """What became of one part of a batch.

    ``stored``: (tist, id) now resolves as asked. ``adopted``: it did before, a run that was cut off had
    come so far. ``occupied``: something else is held there and stays; ``sha256`` is that of the bytes it
    resolves to, ``""`` where it resolves to none. ``missing``: contents to be stated again are not held.
    Else ``sha256`` is that of a placement's bytes, ``""`` for links.
    """

    kind: Literal["stored", "adopted", "occupied", "missing"]
    tist: int
    id: str
    sha256: str


class LinkStep(NamedTuple):
    """One step of a chain of redirects; ``id`` is None where the name on disk was cut (the journal knows)."""

    tist: int
    id: str | None
    name: str


class Located(NamedTuple):
    """Where an obi's bytes are: a path, and the steps that led there from its own name."""

    path: str
    hops: tuple[LinkStep, ...]


class Digest(NamedTuple):
    """Hex digests and size in bytes of what is held."""

    md5: str
    sha256: str
    size: int


class ObiStore(Protocol):
    """An obi store: a map from (tist, id) to bytes that only grows.

    What reads raises :class:`archec.errors.NotHeld` where nothing was noted, :class:`archec.errors.CorruptArchive` for
    links that leave the store, loop or lead to nothing. What writes raises :class:`archec.errors.StorageFull` and
    :class:`archec.errors.StorageFailed`, which what reads may raise, too.
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
        """A temporary file that holds ``data``, whole; nothing is visible yet."""
        ...

    def discard(self, temp: str) -> None:
        """Removes a temporary file that is not needed; fine where it has gone."""
        ...

    def commit(
        self, placements: Sequence[Placement], links: Sequence[Link] = (), restated: Sequence[HardLink] = ()
    ) -> list[CommitResult]:
        """Makes a batch durable; the outcomes stand in the order of placements, links, restated.

        When it returns, all that is ``stored`` or ``adopted`` is on the disk under its name. Where it raises, the batch
        may be partly named, and giving the same batch again later finishes it.
        """
        ...


class Journal(Protocol):
    """The journal of one run, which batches are appended to.

    ``batches`` is the number of the last batch, ``head`` its sha256, to which the next one is chained.
    """

    tist: int
    batches: int
    head: str

    def append(self, lines: Iterable[bytes | str], stamp: int) -> int:
        """Appends one batch of JSON texts, durably; its number. ``stamp`` is the tist of writing it.

        Raises :class:`archec.errors.StorageFull` where there is no room: the journal is then as before, and the batch
        can be given again. After :class:`archec.errors.StorageFailed` nothing more can be appended.
        """
        ...

    def finish(self) -> Path:
        """Ends the journal for good; where it lies now."""
        ...
