"""Writing to the obi store: durable batches that never overwrite anything.

The order of a durable batch (:meth:`Writer.commit`): sync the bytes of all temporary files; create every name, by a
rename that never overwrites; create the links of redirects and the restated contents; sync the directories and their
new parents. Only then may a journal or the catalogue refer to them (:mod:`archec.archive.commit`). A process that dies
in between leaves temporary files, or complete files that the next run adopts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple

from archec.digest import Digests
from archec.errors import CorruptArchive, NotHeld, StorageFailed, failure, storage_errors
from archec.ids import escape, is_url, slash_variant
from archec.store.durable import Data, Disk, create_temp, fsync_file, hit, is_temp
from archec.store.layout import MAX_NAME, RUNS, Directories, Layout, file_name, tist_path
from archec.store.reader import Reader, link_text, look

if TYPE_CHECKING:  # slow to import, and rarely needed
    from concurrent.futures import ThreadPoolExecutor


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


class Redirect(NamedTuple):
    """A redirect: (tist, id) leads to (to_tist, to_id)."""

    tist: int
    id: str
    to_tist: int
    to_id: str


class HardLink(NamedTuple):
    """Restated contents: (tist, id) is to hold the same bytes as (from_tist, from_id)."""

    from_tist: int
    from_id: str
    tist: int
    id: str


class CommitResult(NamedTuple):
    """The result for one item of a batch.

    ``stored``: (tist, id) now resolves as requested. ``adopted``: it already did, because of an interrupted
    run. ``occupied``: something else is held there and stays; ``sha256`` is that of the bytes it
    resolves to, ``""`` if there are none. ``missing``: contents to be restated are not held.
    Otherwise ``sha256`` is that of a placement's bytes, ``""`` for links.
    """

    kind: Literal["stored", "adopted", "occupied", "missing"]
    tist: int
    id: str
    sha256: str


_LARGE = 1 << 17
"""Minimum size in bytes of a file whose writeback starts when it is complete, before its batch is synced."""
_AHEAD = 1 << 23
"""Bytes after which the writeback of a larger file starts, so that it is not all left to the sync at its end."""
_SYNC_THREADS = 16
_MANY_DIRECTORIES = 16
_BUFFER = 1 << 18


class Temp:
    """A temporary file that is being written. As a context manager it is discarded unless closed.

    It is in the directory of its final name, so that committing it is a rename. Any process may create one; it passes
    plain data (:class:`Stored`) to the process that commits.
    """

    __slots__ = ("_fd", "_store", "_where", "digests", "path")

    def __init__(self, store: Writer, path: str, fd: int, digests: Digests) -> None:
        self.path = path
        """The relative path in the store."""
        self._store, self._fd, self._where = store, fd, f"{store.layout.root}/{path}"
        self.digests = digests
        """The digests of the bytes written so far."""

    @property
    def size(self) -> int:
        return self.digests.size

    def write(self, data: Data) -> None:
        """Adds bytes. Raises StorageFull or StorageFailed; the file must then be discarded."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        self._store.disk.write(self._fd, data, self._where)
        before = self.digests.size
        self.digests.update(data)
        if self.digests.size // _AHEAD > before // _AHEAD:
            self._store.disk.begin_sync(self._fd)

    def reread(self) -> None:
        """Adds what an earlier process wrote to the digests. May run in a thread. Raises StorageFailed, after closing
        the file."""
        try:
            while data := os.read(self._fd, _BUFFER):
                self.digests.update(data)
        except OSError as error:
            self._close()
            raise failure(error, self._where) from error

    def close(self, *, sync: bool = False) -> Stored:
        """Closes a complete file; ``sync`` also syncs it, for a file that is not part of a batch."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        if sync:
            self._store.disk.fsync(self._fd, self._where)
        elif self.digests.size >= _LARGE:
            self._store.disk.begin_sync(self._fd)
        self._close()
        return Stored(self.path, self.digests.md5, self.digests.sha256, self.digests.size)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        self._store.disk.close(fd, self._where)

    def discard(self) -> None:
        """Removes the file, open or closed, unless it is gone or has its final name."""
        try:
            if self._fd >= 0:
                self._close()
        finally:
            self._store.discard(self.path)

    def __enter__(self) -> Temp:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self.discard()


class Writer(Reader):
    """Reads and writes one obi store, which only grows. One per process; a context manager. Only temporary files may be
    created by other threads, too.

    Only the process that holds the :class:`archec.store.lock.RunLock` commits. Opens the root of the store when
    created; from then on, :meth:`commit` reports all failed writes. ``numbers`` are those of temporary names: several
    writers of a process that share them do not try the names of each other.
    """

    def __init__(self, layout: Layout, *, disk: Disk | None = None, numbers: Iterator[int] | None = None) -> None:
        self.disk = disk or Disk()
        super().__init__(layout, Directories(layout, self.disk, limit=64 + layout.fanout))
        self._syncfs = self.disk.has_syncfs(self._directories.root)
        self._numbers = numbers or count()
        self._anchored: set[str] = {""}
        self._pool: ThreadPoolExecutor | None = None

    # -- temporary files --------------------------------------------------------------------------

    def temp(self, tist: int, id: str, *, sha1: bool = False) -> Temp:  # noqa: A002
        """A new temporary file in the directory of (tist, id); with ``sha1`` its digests include SHA-1."""
        directory = self.layout.directory(tist, id)
        with self._directories.lock:
            dir_fd = self._directories.make(directory)
            fd, name = create_temp(self.disk, dir_fd, f"{self.layout.root}/{directory}", self._numbers)
        return Temp(self, f"{directory}/{name}", fd, Digests(sha1=sha1))

    def take_up(self, temp: str, final: tuple[int, str] | None = None) -> Temp | None:
        """Reopens a temporary file that an earlier process left, to be :meth:`read again <Temp.reread>` and continued;
        its digests include SHA-1. A complete one, for the tist and id ``final``, is not continued, and may have its
        final name already. None if it is gone. Only for the holder of the run lock."""
        directory, name = _temp_parts(temp)
        dir_fd, where = self._directories.find(directory), f"{self.layout.root}/{temp}"
        if dir_fd is None:
            return None
        if final is not None:
            with suppress(NotHeld, CorruptArchive):
                there, _, old = self.locate(*final).path.rpartition("/")
                self.disk.link(old, self._directories.make(there), name, dir_fd, where)
        fd = self.disk.reopen(name, dir_fd, where, append=final is None)
        return None if fd is None else Temp(self, temp, fd, Digests(sha1=True))

    def put(self, tist: int, id: str, data: Data) -> Stored:  # noqa: A002
        """Writes ``data`` to a complete temporary file."""
        with self.temp(tist, id) as temp:
            temp.write(data)
            return temp.close()

    def discard(self, temp: str) -> None:
        """Removes an unneeded temporary file by its relative path, if it still exists."""
        directory, name = _temp_parts(temp)
        self.disk.unlink(name, self._directories.make(directory), f"{self.layout.root}/{temp}")

    # -- committing -------------------------------------------------------------------------------

    def commit(
        self, placements: Sequence[Placement], links: Sequence[Redirect] = (), restated: Sequence[HardLink] = ()
    ) -> list[CommitResult]:
        """Makes a batch durable; the results are in the order of placements, links, restated.

        When it returns, everything ``stored`` or ``adopted`` is on disk under its name. If it raises, some names may
        exist already; committing the same batch again completes it. Raises :class:`archec.errors.StorageFull` and
        :class:`StorageFailed`.
        """
        if not (placements or links or restated):
            return []
        # Bytes before names: after a power failure a name may be missing, but never refers to an empty or partial file.
        # Links come after the files in the same batch that they may lead to.
        hit("store.before-sync")
        self._sync_files(placements)
        hit("store.after-sync")
        touched: dict[str, None] = {}
        outcomes = []
        for placement in placements:
            outcomes.append(self._place(placement, touched))
            hit("store.mid-rename")
        outcomes += [self._link(link, touched) for link in links]
        outcomes += [self._restate(again, touched) for again in restated]
        hit("store.after-rename")
        self._sync_directories(touched)
        hit("store.after-fsync-dir")
        return outcomes

    def _sync_files(self, placements: Sequence[Placement]) -> None:
        if not placements:
            return
        if self._syncfs:
            # Once per batch: hundreds of small files cost one flush of the disk's cache. An fsync per file is a flush
            # per file, and halves the rate even with many of them in parallel.
            self.disk.syncfs(self._directories.root, str(self.layout.root))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="fsync")
        for _ in self._pool.map(self._sync_file, [placement.temp for placement in placements]):
            pass

    def _sync_file(self, temp: str) -> None:
        """Syncs one temporary file; if it is gone, :meth:`_place` reports it."""
        _temp_parts(temp)
        fsync_file(f"{self.layout.root}/{temp}", disk=self.disk)

    def _place(self, placement: Placement, touched: dict[str, None]) -> CommitResult:
        temp, tist, id, sha256 = placement  # noqa: A001
        old_directory, old_name = _temp_parts(temp)
        directory = self.layout.directory(tist, id)
        old_fd = self._directories.make(old_directory)
        new_fd = old_fd if directory == old_directory else self._directories.make(directory)
        touched[directory] = touched[old_directory] = None
        name = file_name(id)
        # A plain rename would silently replace the bytes that are held (invariant 1).
        done = self.disk.rename_noreplace(old_name, old_fd, name, new_fd, f"{self.layout.root}/{directory}/{name}")
        if done == "done":
            return CommitResult("stored", tist, id, sha256)
        # The name may come from a killed run. The file is hashed: the catalogue does not know it yet.
        held = self._held(tist, id)
        if done == "exists" and held == sha256:
            self.discard(temp)
        elif done != "exists" and held is None:
            raise StorageFailed(f"{self.layout.root}/{temp}: disappeared before it was given its name")
        return CommitResult("adopted" if held == sha256 else "occupied", tist, id, held or "")

    def _link(self, link: Redirect, touched: dict[str, None]) -> CommitResult:
        tist, id, to_tist, to_id = link  # noqa: A001
        if _implied(link):
            return CommitResult("stored", tist, id, "")
        directory, name = self.layout.directory(tist, id), file_name(id)
        text = link_text(self.layout, tist, id, to_tist, to_id)
        fd = self._directories.make(directory)
        touched[directory] = None
        where = f"{self.layout.root}/{directory}/{name}"
        if self.disk.symlink(text, name, fd, where):
            return CommitResult("stored", tist, id, "")
        if look(self._directories, f"{directory}/{name}") == text:
            return CommitResult("adopted", tist, id, "")
        return CommitResult("occupied", tist, id, self._held(tist, id) or "")

    def _restate(self, again: HardLink, touched: dict[str, None]) -> CommitResult:
        from_tist, from_id, tist, id = again  # noqa: A001
        try:
            source = self.locate(from_tist, from_id).path
        except (NotHeld, CorruptArchive):
            return CommitResult("missing", tist, id, "")
        old_directory, _, old_name = source.rpartition("/")
        directory, name = self.layout.directory(tist, id), file_name(id)
        where = f"{self.layout.root}/{directory}/{name}"
        touched[directory] = None
        old_fd, new_fd = self._directories.make(old_directory), self._directories.make(directory)
        done = self.disk.link(old_name, old_fd, name, new_fd, where)
        if done == "refused":
            return self._copy(source, tist, id, touched)
        if done == "gone":
            return CommitResult("missing", tist, id, "")
        if done == "done":
            return CommitResult("stored", tist, id, "")
        held = self._held(tist, id)
        same = held is not None and held == self._held(from_tist, from_id)
        return CommitResult("adopted" if same else "occupied", tist, id, held or "")

    def _copy(self, source: str, tist: int, id: str, touched: dict[str, None]) -> CommitResult:  # noqa: A002
        """Restates contents by a copy, if the file system does not allow (more) hard links."""
        with self.open_path(source) as file, self.temp(tist, id) as temp:
            while data := file.read(_BUFFER):
                temp.write(data)
            stored = temp.close(sync=True)
        outcome = self._place(Placement(stored.temp, tist, id, stored.sha256), touched)
        if outcome.kind == "occupied":
            self.discard(stored.temp)
        return outcome

    def _held(self, tist: int, id: str) -> str | None:  # noqa: A002
        """Syncs the file that (tist, id) resolves to, and returns its sha256; None if there is none."""
        with suppress(NotHeld, CorruptArchive):
            path = self.locate(tist, id).path
            with self.open_path(path) as file:
                self.disk.fsync(file.fileno(), f"{self.layout.root}/{path}")
                return Digests.of(file).sha256
        return None

    def _sync_directories(self, touched: dict[str, None]) -> None:
        """Syncs the names in the directories of the batch and in their new parents."""
        # A name is durable only when its directory is synced, and so on upwards: if the name of a new directory is
        # lost, so are all its files. ``_anchored`` are the directories already synced up to the root.
        pending, new = dict(touched), set()
        for directory in touched:
            while directory not in self._anchored and directory not in new:
                new.add(directory)
                directory = directory.rpartition("/")[0]
                pending[directory] = None
        if self._syncfs and len(pending) > _MANY_DIRECTORIES:
            self.disk.syncfs(self._directories.root, str(self.layout.root))
        else:
            for directory in sorted(pending, reverse=True):  # a directory's contents before its own name
                self.disk.fsync_dir(self._directories.make(directory), f"{self.layout.root}/{directory}")
        self._anchored |= new

    def close(self) -> None:
        """Closes open files; may be called repeatedly. Temporary files that were not committed stay."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        super().close()


def _temp_parts(temp: str) -> tuple[str, str]:
    """Directory and name of a temporary file. Raises ValueError for any other name, such as that of a held file."""
    directory, _, name = temp.rpartition("/")
    if not is_temp(name):
        raise ValueError(f"{temp!r} is not a temporary file")
    return directory, name


def _implied(link: Redirect) -> bool:
    """Whether looking up (tist, id) finds the target without a link: they are equal, or differ by a trailing slash."""
    if link.tist != link.to_tist:
        return False
    if link.id == link.to_id:
        return True
    return (
        is_url(link.id)
        and link.id.count("/") > 2
        and slash_variant(link.id) == link.to_id
        and len(escape(link.id)) <= MAX_NAME
    )


# -- for other processes ---------------------------------------------------------------------------


class BodySink(NamedTuple):
    """Temporary files of one run, into which fetching processes write bodies (:class:`archec.web.outcome.Sink`)."""

    temp: Callable[[str], Temp]
    """A temporary file in the final directory of the body of a URL."""
    discard: Callable[[str], None]


def body_sink(layout: Layout, run: int) -> BodySink:
    writer = Writer(layout)
    return BodySink(partial(writer.temp, run), writer.discard)


# -- leftovers of killed runs ------------------------------------------------------------------------


def sweep_parts(layout: Layout, tists: Iterable[int], keep: Collection[str] = ()) -> int:
    """Removes the temporary files in the directories of these tists, except those in ``keep`` (relative paths), and
    returns their number.

    Only while holding the run lock: files of an active run would be removed, too.
    """
    disk = Disk()
    with Directories(layout) as directories:
        removed = 0
        for tist in tists:
            directory = tist_path(tist)
            removed += _sweep(directories, directory, disk, keep)
            if layout.fanout:
                removed += sum(_sweep(directories, f"{directory}/{n:02x}", disk, keep) for n in range(layout.fanout))
        return removed


def sweep_runs(layout: Layout) -> int:
    """Removes the temporary files next to the journals and in the root, and returns their number."""
    disk = Disk()
    with Directories(layout) as directories:
        return _sweep(directories, RUNS, disk) + _sweep(directories, "", disk)


def _sweep(directories: Directories, directory: str, disk: Disk, keep: Collection[str] = ()) -> int:
    fd = directories.find(directory)
    if fd is None:
        return 0
    where = f"{directories.layout.root}/{directory}"
    with storage_errors(where):
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if is_temp(entry.name) and entry.is_file(follow_symlinks=False)]
        gone = [name for name in names if f"{directory}/{name}" not in keep]
        return sum(disk.unlink(name, fd, f"{where}/{name}") for name in gone)
