"""Fixity: whether the bytes of an entry are there, and are those that journal and catalogue name."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from os import close, readv

from archec.audit.disk import judge
from archec.audit.expected import Entry, Objection, entry_at, histories, objection
from archec.audit.findings import Finding
from archec.catalogue.interface import Catalogue
from archec.digest import Digests
from archec.errors import ArchecError, CorruptArchive
from archec.ids import is_url, slash_variant
from archec.store.directories import Directories
from archec.store.layout import Layout
from archec.store.reader import Chain, follow

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ = 1 << 20
_NOT_A_FILE = frozenset({errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EINVAL})


class Pace:
    """Reads no faster than ``rate`` bytes a second, so that an audit leaves the disk to others; 0 means no limit. What
    was not used is not saved up."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._free_at = 0.0

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return bool(self._rate)

    def passed(self, count: int) -> None:
        """Waits, after so many bytes were read, until more may be."""
        if not self._rate:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        ahead = self._free_at - now
        if ahead > 0.05:
            self._sleep(ahead)


class Inspector:
    """Reads what entries name, and compares: one for each process, to be closed. ``read`` counts bytes.

    Without a catalogue the journal's checksums alone count.
    """

    def __init__(self, layout: Layout, catalogue: Catalogue | None, pace: Pace) -> None:
        self._layout, self._catalogue, self._pace = layout, catalogue, pace
        self._directories = Directories(layout)
        self._buffer = memoryview(bytearray(_READ))
        self._views: Sequence[memoryview] = (self._buffer,)
        self._paced = pace.limits
        self.read = 0

    def inspect(self, entries: Sequence[Entry], paths: Sequence[str], *, compare: bool = True) -> list[Finding]:
        """What is wrong with these entries, which lie at these paths; ``compare``: also between the
        journals and the catalogue."""
        catalogue = self._catalogue if compare else None
        known = histories(catalogue, {entry.id for entry in entries}) if catalogue is not None else {}
        findings: list[Finding] = []
        for entry, path in zip(entries, paths, strict=True):
            theirs = objection(entry, known.get(entry.id)) if catalogue is not None else None
            wrong = self._look(entry, path)
            if theirs is not None:
                findings.append(_settled(entry, path, wrong, theirs))
            elif wrong:
                findings += wrong
        return findings

    def inspect_one(self, entry: Entry, *, compare: bool = True) -> Finding | None:
        """What is wrong with one entry, None where nothing is."""
        found = self.inspect([entry], [self._layout.path(entry.tist, entry.id)], compare=compare)
        return found[0] if found else None

    def close(self) -> None:
        """Closes directories; not the catalogue."""
        self._directories.close()

    def refresh(self) -> None:
        """Forgets open directories: something was moved."""
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
            return [_finding("missing", entry, path, error.message)]
        except ArchecError as error:
            return [_finding("unreadable", entry, path, error.message)]
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._redirect(entry, path)
            if error.errno in _NOT_A_FILE:
                return [_finding("not-a-file", entry, path, "cannot be opened as a file")]
            return [_finding("unreadable", entry, path, error.strerror or str(error))]
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
                if self._paced:
                    self._pace.passed(count)
                count = readv(fd, views)
                if count:
                    digests.update(buffer[:count])
            if not size and not stat.S_ISREG(os.fstat(fd).st_mode):
                return [_finding("not-a-file", entry, path, "a device, pipe or socket")]
        except OSError as error:
            code = "not-a-file" if error.errno in _NOT_A_FILE else "unreadable"
            return [_finding(code, entry, path, error.strerror or str(error))]
        finally:
            close(fd)
        self.read += size
        found = digests.sha256
        if found == entry.sha256:
            if entry.md5 in ("", digests.md5):
                return ()
            message = f"its bytes have md5 {digests.md5}, where the journal says {entry.md5}; their sha256 is right"
            return [_finding("journal-line", entry, path, message, found)]
        wanted = f"{entry.size} bytes with sha256 {entry.sha256}" if entry.size >= 0 else f"sha256 {entry.sha256}"
        message = f"{size} bytes with sha256 {found}, where the journal says {wanted}"
        return [_finding("corrupt", entry, path, message, found)]

    def _redirect(self, entry: Entry, path: str) -> Iterable[Finding]:
        """A link: it must lead, within the store, to the bytes of the entry, which are read once only."""
        wrong = judge(self._directories, path)
        if wrong is not None:
            return [_finding(wrong[0], entry, path, wrong[1])]
        return self._at(entry, path, follow(self._directories, path, entry.id))

    def _at(self, entry: Entry, path: str, chain: Chain) -> Iterable[Finding]:
        last = chain.hops[-1] if chain.hops else None
        if last is not None and last.id is not None and self._holds(last.id, last.tist, entry.sha256):
            return ()  # a body with an entry of its own, which is read in its turn
        directory, _, name = chain.path.rpartition("/")
        try:
            folder = self._directories.find(directory)
            if folder is None:  # gone since it was located; without a directory the name would be sought elsewhere
                return [_finding("unreadable", entry, path, f"{chain.path}: has gone")]
            fd = os.open(name, _OPEN, dir_fd=folder)
        except OSError as error:
            return [_finding("unreadable", entry, path, f"{chain.path}: {error.strerror}")]
        return self._hash(entry, path, fd)

    def _holds(self, obi: str, tist: int, sha256: str) -> bool:
        """Whether the catalogue knows these bytes as those of another obi at exactly that tist."""
        if self._catalogue is None:
            return False
        return entry_at(histories(self._catalogue, [obi]).get(obi), tist) == (tist, sha256)

    def _elsewhere(self, entry: Entry, path: str) -> Iterable[Finding]:
        """No such name: fine where the URL redirected to the one that differs by a final slash only."""
        variant = slash_variant(entry.id) if is_url(entry.id) else None
        if variant is None or variant != entry.target:
            return [_finding("missing", entry, path, "is not there")]
        try:
            chain = follow(self._directories, path, entry.id)
            if chain.fault is not None and self._catalogue is not None:
                there = entry_at(histories(self._catalogue, [variant]).get(variant), entry.tist)
                if there is not None and there[1] == entry.sha256:  # noted earlier, and the same at this tist
                    chain = follow(self._directories, self._layout.path(there[0], variant), variant)
            if chain.fault is None:
                return self._at(entry, path, chain)
        except CorruptArchive:
            pass  # a directory of the store is none: nothing can be there
        return [_finding("missing", entry, path, f"and neither is {variant}, to which it redirected")]


def _settled(entry: Entry, path: str, wrong: Iterable[Finding], theirs: Objection) -> Finding:
    """One finding where journal and catalogue disagree: whose side the bytes are on."""
    for finding in wrong:
        if finding.code == "corrupt" and theirs.sha256 and finding.found == theirs.sha256:
            message = f"its bytes have the sha256 that the catalogue names, {finding.found}; the journal says "
            return _finding("journal-disagrees", entry, path, f"{message}{entry.sha256}", finding.found)
        return _finding(finding.code, entry, path, f"{finding.message}; and {theirs.message}", finding.found)
    code = "catalogue-disagrees" if theirs.sha256 or theirs.lost else "catalogue-lacks"
    return _finding(code, entry, path, f"its bytes are those of the journal, and {theirs.message}", entry.sha256)


def _finding(code: str, entry: Entry, path: str, message: str, found: str = "") -> Finding:
    return Finding(code, path, message, entry.tist, entry.id, entry.sha256, found)
