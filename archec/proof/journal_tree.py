"""The journals as a log: their lines are the leaves of a Merkle tree, in the order of the chain of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from archec.archive.journal_records import records_in
from archec.catalogue.journal_lines import Fork
from archec.errors import BrokenChain, storage_errors
from archec.files import read_file
from archec.proof.merkle import Tree, leaf_hash
from archec.proof.seal_file import Seal
from archec.store.durable import atomic_write, fsync_file
from archec.store.journal import NO_BATCH, JournalBatch, read_batches
from archec.store.layout import JournalFile, Layout, journals


class State(msgspec.Struct, frozen=True):
    """The state of hashing the journals: the last hashed batch, of a run, with the sha256 ``head``. ``peaks`` are those
    of the tree over ``size`` lines, in ``runs`` runs and ``batches`` batches. ``forks`` are those declared in them.
    ``file`` is the status of the run's journal (size, time of change in ns, inode) if it was finished and read to its
    end; ``before`` is the digest of the journals before it (:func:`digest_of`)."""

    run: Annotated[int, Meta(ge=0)] = 0
    batch: Annotated[int, Meta(ge=0)] = 0
    head: str = NO_BATCH
    size: Annotated[int, Meta(ge=0)] = 0
    peaks: tuple[Annotated[bytes, Meta(min_length=32, max_length=32)], ...] = ()
    runs: Annotated[int, Meta(ge=0)] = 0
    batches: Annotated[int, Meta(ge=0)] = 0
    forks: tuple[Fork, ...] = ()
    file: tuple[int, int, int] | None = None
    before: str = ""

    def seal(self, origin: str, made: int) -> Seal:
        tree = Tree(self.size, self.peaks)
        return Seal(origin, self.size, tree.root, self.run, self.batch, self.head, self.runs, self.batches, made)


def chain(layout: Layout, after: State | None = None) -> Iterator[tuple[JournalFile, JournalBatch]]:
    """All batches with their journals, in the order of the chain, or those after a batch.

    Raises :class:`BrokenChain` if a batch does not follow its predecessor, :class:`archec.errors.CorruptJournal` for
    damage. At the end, everything read from a journal that is being written is durable.
    """
    after = after or State()
    head, found = after.head, not after.run
    for journal in journals(layout):
        if journal.tist < after.run:
            continue
        if journal.tist == after.run and after.file is not None and after.file == status_of(journal):
            found = True
            continue
        for batch in read_batches(journal.path):
            if journal.tist == after.run and batch.n <= after.batch:
                found |= batch.n == after.batch and batch.sha256 == after.head
                continue
            if batch.prev != head or not found:
                raise BrokenChain(f"{journal.path}: batch {batch.n} does not follow the one before it")
            head = batch.sha256
            yield journal, batch
        if not journal.finished:
            fsync_file(journal.path)  # one that is finished in the meantime is durable
    if not found:
        raise BrokenChain(f"{layout.runs}: batch {after.batch} of run {after.run} is not there any more, or is another")


def status_of(journal: JournalFile) -> tuple[int, int, int] | None:
    """The status of a finished journal, which shows whether it has been replaced; None for an open one."""
    if not journal.finished:
        return None
    with storage_errors(journal.path):
        status = journal.path.lstat()
    return status.st_size, status.st_ctime_ns, status.st_ino


def digest_of(files: Iterable[JournalFile], run: int) -> str:
    """A digest of the names and sizes of the finished journals before a run. It shows, without reading them, whether
    one is missing or was replaced."""
    digest = sha256()
    for journal in files:
        if journal.tist < run and (status := status_of(journal)) is not None:
            digest.update(f"{journal.path.name} {status[0]}\n".encode())
    return digest.hexdigest()


def hashed(layout: Layout, after: State | None = None) -> Iterator[State]:
    """Yields the state after each batch that follows ``after``; the last one is the state of the whole log."""
    state = after or State()
    tree = Tree(state.size, state.peaks)
    for journal, batch in chain(layout, after):
        for line in batch.lines:
            tree.add(leaf_hash(line))
        runs = state.runs + (journal.tist != state.run)
        forks = (*state.forks, *records_in(batch, journal.path, Fork))
        state = State(journal.tist, batch.n, batch.sha256, tree.size, tuple(tree.peaks), runs, state.batches + 1, forks)
        yield state


def remembered(path: Path) -> State | None:
    """The stored state; None if there is no usable one."""
    try:
        state = msgspec.json.decode(read_file(path), type=State)
        Tree(state.size, state.peaks)
        return state
    except (OSError, ValueError, RecursionError):
        return None


def remember(path: Path, state: State) -> None:
    """Stores a state, so that the next seal only reads what is new. It may be lost."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, msgspec.json.encode(state))
