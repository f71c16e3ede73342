"""Fixity: checks that the bytes of an entry exist and match journal and catalogue.

The input comes in chunks of journal lines, which are sent to worker processes; these read the named files.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from os import close, readv
from pathlib import Path
from typing import NamedTuple

from archec.archive.evidence import Evidence, evidence_of
from archec.archive.journal_records import records
from archec.audit.disk import judge
from archec.audit.expected import (
    Entry,
    Objection,
    change_of,
    entries_of,
    histories,
    is_claimed,
    key_of,
    objection,
)
from archec.audit.findings import Finding, about
from archec.audit.journals import Journals
from archec.audit.last_checked import Memory, Part
from archec.audit.opening import Audited
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue, redact
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Position
from archec.closing import Closing
from archec.digest import Digests
from archec.errors import (
    ArchecError,
    CatalogueError,
    CatalogueGone,
    CorruptArchive,
    CorruptJournal,
    failure,
    is_out_of_resources,
)
from archec.history import History
from archec.ids import is_url, slash_variant
from archec.store.layout import RUNS, Directories, Layout, journal_of
from archec.store.reader import Chain, follow
from archec.workers.pool import Pool

_START = Position()
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ = 1 << 20
_NOT_A_FILE = frozenset({errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EINVAL})


class ReadPace:
    """Limits reading to ``rate`` bytes a second, to leave disk bandwidth for others; 0 means no limit. Unused bandwidth
    is not accumulated."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._free_at = 0.0

    def passed(self, count: int) -> None:
        """Records that this many bytes were read, and waits until more may be read."""
        if not self._rate:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        ahead = self._free_at - now
        if ahead > 0.05:
            self._sleep(ahead)


class Inspector(Closing):
    """Reads and compares the files of entries. One per process; must be closed. ``read`` counts bytes. Some entries may
    be compared with the journal only: ``unreadable`` is the reason why they could not be read from the catalogue, and
    ``rebuilt`` whether it had not followed the journals to ``position``, because it was being rebuilt.

    Without a catalogue, only the checksums of the journal count.
    """

    def __init__(
        self, layout: Layout, catalogue: Catalogue | None, pace: ReadPace, position: Position = _START
    ) -> None:
        self._layout, self._catalogue, self._pace = layout, catalogue, pace
        self._position = position
        self._directories = Directories(layout)
        self._evidence: Evidence | None = None
        self._retracted: Collection[int] = ()
        self._settled = True
        self._doubtful: dict[int, set[str]] = {}
        self._buffer = memoryview(bytearray(_READ))
        self._views: Sequence[memoryview] = (self._buffer,)
        self.read = 0
        self.unreadable = ""
        self.rebuilt = False

    def inspect(self, entries: Sequence[Entry], paths: Sequence[str], *, compare: bool = True) -> list[Finding]:
        """The findings about these entries at these paths. With ``compare``, also compares the journals with the
        catalogue."""
        findings: list[Finding] = []
        objections: list[Objection | None] = [None] * len(entries)
        if compare and self._catalogue is not None:
            try:
                objections = self._objections(self._catalogue, entries)
            except CatalogueGone:
                raise
            except CatalogueError as error:
                self.unreadable = error.message
        for entry, path, theirs in zip(entries, paths, objections, strict=True):
            wrong = self._look(entry, path)
            if theirs is not None:
                findings.append(_settled(entry, path, wrong, theirs))
            elif wrong:
                findings += wrong
        return findings

    def _objections(self, catalogue: Catalogue, entries: Sequence[Entry]) -> list[Objection | None]:
        """For each entry, how the catalogue contradicts it without an explanation; None if it does not, or if it is
        being rebuilt."""
        level = self._is_level(catalogue)
        known = histories(catalogue, {entry.id for entry in entries})
        theirs = [objection(entry, known.get(entry.id, History())) for entry in entries]
        theirs = [
            one if one is not None and not self._is_explained(catalogue, entry) else None
            for entry, one in zip(entries, theirs, strict=True)
        ]
        if any(theirs) and not (level and self._is_level(catalogue)):
            self.rebuilt, self._evidence = True, None
            return [None] * len(entries)
        return theirs

    def _is_level(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue has followed the journals as far as when it was opened."""
        now = catalogue.position()
        return (now.run, now.batch) >= (self._position.run, self._position.batch)

    def _is_explained(self, catalogue: Catalogue, entry: Entry) -> bool:
        """Whether a history lacks an entry for a valid reason: another claim counts, the run that noted it was
        retracted, or that run found its own answer doubtful."""
        if self._evidence is None:
            self._evidence = evidence_of(catalogue)
            self._retracted = catalogue.retracted_runs()
            newest = catalogue.run(catalogue.position().run)
            self._settled = newest is None or newest.state != "running"
        if entry.tist in self._retracted or is_claimed(catalogue, self._evidence, entry, settled=self._settled):
            return True
        if entry.tist not in self._doubtful:
            self._doubtful[entry.tist] = set(_doubtful_in(self._layout, entry.tist))
        return entry.id in self._doubtful[entry.tist]

    def inspect_one(self, entry: Entry, *, compare: bool = True) -> Finding | None:
        """The finding about one entry, None if it is intact."""
        found = self.inspect([entry], [self._layout.path(entry.tist, entry.id)], compare=compare)
        return found[0] if found else None

    def close(self) -> None:
        """Closes the directories, but not the catalogue."""
        self._directories.close()

    def refresh(self) -> None:
        """Closes open directories, because something was moved."""
        self._directories.forget()

    # -- one entry --------------------------------------------------------------------------------

    def _look(self, entry: Entry, path: str) -> Iterable[Finding]:
        directory, _, name = path.rpartition("/")
        try:
            folder = self._directories.find(directory)
            if folder is None:
                return self._elsewhere(entry, path)
            fd = os.open(name, _OPEN, dir_fd=folder)
        except FileNotFoundError:
            return self._elsewhere(entry, path)
        except CorruptArchive as error:
            return [about("missing", entry, path, error.message)]
        except ArchecError as error:
            if is_out_of_resources(error):
                raise
            return [about("unreadable", entry, path, error.message)]
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._redirect(entry, path)
            if error.errno in _NOT_A_FILE:
                return [about("not-a-file", entry, path, "cannot be opened as a file")]
            return [_unreadable(entry, path, error)]
        return self._hash(entry, path, fd)

    def _hash(self, entry: Entry, path: str, fd: int) -> Iterable[Finding]:
        """Reads an open file to its end, and closes it."""
        buffer, views, size = self._buffer, self._views, 0
        try:
            count = readv(fd, views)
            digests = Digests()
            digests.update(buffer[:count])
            while count:
                size += count
                self._pace.passed(count)
                count = readv(fd, views)
                if count:
                    digests.update(buffer[:count])
            if not size and not stat.S_ISREG(os.fstat(fd).st_mode):
                return [about("not-a-file", entry, path, "a device, pipe or socket")]
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return [about("not-a-file", entry, path, error.strerror or str(error))]
            return [_unreadable(entry, path, error)]
        finally:
            close(fd)
        self.read += size
        found = digests.sha256
        if found == entry.sha256:
            if entry.md5 in ("", digests.md5):
                return ()
            message = f"its bytes have md5 {digests.md5}, where the journal says {entry.md5}; their sha256 is right"
            return [about("journal-line", entry, path, message, found)]
        wanted = f"{entry.size} bytes with sha256 {entry.sha256}" if entry.size >= 0 else f"sha256 {entry.sha256}"
        message = f"{size} bytes with sha256 {found}, where the journal says {wanted}"
        return [about("corrupt", entry, path, message, found)]

    def _redirect(self, entry: Entry, path: str) -> Iterable[Finding]:
        """Checks a link: it must lead, within the store, to the bytes of the entry, which are read only once."""
        wrong = judge(self._directories, path)
        if wrong is not None:
            return [about(wrong[0], entry, path, wrong[1])]
        return self._at(entry, path, follow(self._directories, path, entry.id))

    def _at(self, entry: Entry, path: str, chain: Chain) -> Iterable[Finding]:
        last = chain.hops[-1] if chain.hops else None
        if last is not None and last.id is not None and self._noted(last.id, last.tist) == (last.tist, entry.sha256):
            return ()  # a body with its own entry, which is read separately
        directory, _, name = chain.path.rpartition("/")
        try:
            folder = self._directories.find(directory)
            if folder is None:  # gone since it was located; os.open without a directory would use the working directory
                return [about("unreadable", entry, path, f"{chain.path}: has gone")]
            fd = os.open(name, _OPEN, dir_fd=folder)
        except OSError as error:
            return [_unreadable(entry, path, error, f"{chain.path}: ")]
        return self._hash(entry, path, fd)

    def _noted(self, obi: str, when: int) -> tuple[int, str | None] | None:
        """The entry that the catalogue has of an obi as of ``when``; None also if it cannot be read."""
        if self._catalogue is None:
            return None
        try:
            history = histories(self._catalogue, [obi]).get(obi, History())
        except CatalogueGone:
            raise
        except CatalogueError as error:
            self.unreadable = error.message
            return None
        return history.entry_at(when)

    def _elsewhere(self, entry: Entry, path: str) -> Iterable[Finding]:
        """Handles a missing name, which is allowed if the URL redirected to one that only differs by a final slash."""
        variant = slash_variant(entry.id) if is_url(entry.id) else None
        if variant is None or variant != entry.target:
            return [about("missing", entry, path, "is not there")]
        try:
            chain = follow(self._directories, path, entry.id)
            if chain.fault is not None:
                there = self._noted(variant, entry.tist)
                if there is not None and there[1] == entry.sha256:  # noted earlier, and the same at this tist
                    chain = follow(self._directories, self._layout.path(there[0], variant), variant)
            if chain.fault is None:
                return self._at(entry, path, chain)
        except CorruptArchive:
            pass  # a directory of the store is not a directory: nothing can be there
        return [about("missing", entry, path, f"and neither is {variant}, to which it redirected")]


def _doubtful_in(layout: Layout, run: int) -> Iterator[str]:
    """The files whose states a run dropped again, because the answer may have belonged to another request."""
    journal = journal_of(layout, run)
    if journal is not None:
        with suppress(CorruptJournal):  # the audit's reader of the journals reports it
            doubtful = records(journal.path, ObiChange, obis="fobi", words=(b'"outcome":"doubtful"',))
            yield from (record.id for record in doubtful if record.drop)


def _settled(entry: Entry, path: str, wrong: Iterable[Finding], theirs: Objection) -> Finding:
    """The one finding if journal and catalogue disagree; it says which of them the bytes agree with."""
    for finding in wrong:
        if finding.code == "corrupt" and theirs.sha256 and finding.found == theirs.sha256:
            message = f"its bytes have the sha256 that the catalogue names, {finding.found}; the journal says "
            return about("journal-disagrees", entry, path, f"{message}{entry.sha256}", finding.found)
        return about(finding.code, entry, path, f"{finding.message}; and {theirs.message}", finding.found)
    return about(theirs.code, entry, path, f"its bytes are those of the journal, and {theirs.message}", entry.sha256)


_WEIGHT, _FOBIS = 2000, 66
"""Maximum number of lines of a chunk: about templates, or about fobis, whose files are larger."""
_FOBI = b'{"type":"obi","kind":"fobi"'
_INLINE = 900
"""Weight that is processed without workers: less than that of a full chunk."""


# -- chunks -----------------------------------------------------------------------------------------


class Tools(NamedTuple):
    """The environment of a worker: the store, the catalogue's URL (empty: none), its base and its position, bytes per
    second (0: no limit), and whether to return the keys of the entries that were read."""

    layout: Layout
    url: str
    base: Path
    position: Position
    rate: float
    keys: bool


class Chunk(NamedTuple):
    """Lines of the journal at ``path`` (relative), counting only those that name something, from ``first`` on;
    ``batches`` are the first and the last of their batches. ``compare``: the catalogue has followed the journal up to
    here. ``weight`` is an estimate of the work; a small file counts 1. ``end``: a finished journal ends here."""

    path: str
    run: int
    first: int
    lines: list[bytes] = []
    batches: tuple[int, ...] = ()
    compare: bool = True
    weight: int = 0
    end: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def where(self) -> str:
        """For messages about a line."""
        return "batch " + " to ".join(map(str, dict.fromkeys(self.batches)))

    def plus(self, lines: list[bytes], weight: int, batch: int, *, compare: bool) -> Chunk:
        """The chunk with further lines, of the same or the next batch."""
        batches, weight = (*self.batches[:1], batch), self.weight + weight
        return self._replace(lines=self.lines + lines, batches=batches, compare=compare, weight=weight)

    def cut(self, most: int) -> Chunk:
        """The chunk, limited to its first ``most`` lines."""
        if len(self.lines) <= most:
            return self
        return self._replace(lines=self.lines[:most], end=False)


class Seen(NamedTuple):
    """The result of a chunk: the number of entries and bytes read, the findings with their entries (None: about a
    line), and the keys of the entries, 16 bytes each."""

    files: int
    read: int
    findings: list[tuple[Entry | None, Finding]]
    keys: bytes


def inspectors(tools: Tools, inspector: Inspector, workers: int, *, alone: bool) -> Pool[Chunk, Seen]:
    """A pool that processes chunks and returns results in order; ``inspector`` processes a few small ones here, or all
    if it is ``alone``."""
    return Pool(
        "archec.audit.fixity:inspecting",
        [tools],
        Seen,
        workers=workers,
        here=lambda chunk: inspect(chunk, inspector, tools),
        inline=sys.maxsize if alone else _INLINE,
        ordered=True,
    )


def chunks_of(part: Part, archive: Audited, reader: Journals, memory: Memory) -> Iterator[Chunk]:
    """The lines of a part that name something, in chunks of about the same amount of work."""
    journal, path = part.journal, f"{RUNS}/{part.journal.path.name}"
    chunk, named = Chunk(path, journal.tist, part.first), 0
    for batch, lines in reader.batches(journal):
        first = max(0, part.first - 1 - named)
        last = len(lines) if part.last is None else max(0, min(len(lines), part.last - named))
        compare = archive.followed(journal.tist, batch.n)
        most = _FOBIS if any(line.startswith(_FOBI) for line in lines[first:last]) else _WEIGHT
        for start in range(first, last, most):
            some = lines[start : min(start + most, last)]
            weight = len(some) * _WEIGHT // most
            if chunk.lines and (chunk.weight + weight > _WEIGHT or chunk.compare != compare):
                yield chunk
                chunk = Chunk(path, journal.tist, named + start + 1)
            chunk = chunk.plus(some, weight, batch.n, compare=compare)
        named += len(lines)
        if part.last is not None and named >= part.last:
            break
    end = part.last is None and journal.finished and path not in reader.unread
    if end:
        memory.know_journal(journal.tist, reader.named[journal.tist], reader.ends[journal.tist])
    if end or chunk.lines:
        yield chunk._replace(end=end)


def _unreadable(entry: Entry, path: str, error: OSError, where: str = "") -> Finding:
    """The finding about a file that cannot be read. Raises StorageFailed if that says nothing about the file."""
    if is_out_of_resources(error):
        raise failure(error, path) from error
    return about("unreadable", entry, path, f"{where}{error.strerror or error}")


# -- in a worker ------------------------------------------------------------------------------------


def inspecting(tools: Tools) -> Callable[[Chunk], Seen]:
    """Returns the function that reads the files of a chunk in a worker."""
    inspector: Inspector | None = None

    def work(chunk: Chunk) -> Seen:
        nonlocal inspector
        if inspector is None:
            catalogue = open_catalogue(tools.url, base=tools.base, read_only=True) if tools.url else None
            inspector = Inspector(tools.layout, catalogue, ReadPace(tools.rate), tools.position)
        return inspect(chunk, inspector, tools)

    return work


def inspect(chunk: Chunk, inspector: Inspector, tools: Tools) -> Seen:
    """Reads and compares all files of a chunk."""
    findings: list[tuple[Entry | None, Finding]] = []
    entries: list[Entry] = []
    for line in chunk.lines:
        try:
            change = change_of(line, chunk.where)
        except CorruptJournal as error:
            findings.append((None, Finding("journal-line", chunk.path, error.message)))
            continue
        if change is not None:
            entries += entries_of(change)
    before = inspector.read
    paths = [tools.layout.path(entry.tist, entry.id) for entry in entries]
    wrong = inspector.inspect(entries, paths, compare=chunk.compare)
    by_place = {(entry.tist, entry.id): entry for entry in entries} if wrong else {}
    findings += [(by_place[finding.tist, finding.id], finding) for finding in wrong]
    if inspector.unreadable:
        findings.append((None, Finding("catalogue-unreadable", redact(tools.url), inspector.unreadable)))
    if inspector.rebuilt:
        findings.append((None, Finding("not-compared", redact(tools.url), "it was being rebuilt meanwhile")))
    keys = b"".join(map(key_of, paths)) if tools.keys else b""
    return Seen(len(entries), inspector.read - before, findings, keys)
