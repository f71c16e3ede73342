"""The run lock: one writer for an archive at a time (invariant 7).

The lock is ``flock`` on the file ``lock`` in the archive. It is released when its process ends, however that
happens. The text in the file only identifies the current or last holder and decides
nothing. Child processes that were forked (not spawned) share the lock until they end.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from archec.closing import Closing
from archec.errors import CorruptArchive, LockHeld, StorageFailed, storage_errors
from archec.progress import Meter
from archec.store.layout import Layout
from archec.tist import MAX_TIST, iso
from archec.units import human_duration

LOCK = "lock"
QUIET = 6 * 3600
"""Seconds without a new batch in its journal after which a run may hang."""
_MOST_BYTES = 4096
_TRIES = 200
_NO_RUNS = frozenset({"check", "rebuild", "repair", "export warc"})
_NO_CATALOGUE = frozenset({"repair", "export warc"})
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO})
"""Errors of opening a directory, a link, a socket."""


class Holder(NamedTuple):
    """The recorded holder of the lock: process id, host, tist of taking the lock, activity; for a run also the seconds
    since it appended to its journal, or took the lock."""

    pid: int
    host: str
    since: int
    what: str
    quiet: int = 0

    @property
    def is_run(self) -> bool:
        """Whether it writes a journal."""
        return self.what not in _NO_RUNS

    @property
    def writes_catalogue(self) -> bool:
        """Whether it may write the catalogue."""
        return self.what not in _NO_CATALOGUE

    def __str__(self) -> str:
        if not self.pid:
            return self.what
        since = iso(self.since) if 0 <= self.since <= MAX_TIST else "?"
        quiet = f", nothing journalled for {human_duration(self.quiet)}" if self.quiet >= QUIET else ""
        return f"{self.what}, process {self.pid} on {self.host}, since {since}{quiet}"

    @property
    def remedy(self) -> str:
        """What to do if it may hang, else empty."""
        if self.quiet < QUIET:
            return ""
        return f"if it hangs, 'kill {self.pid}' on {self.host}, or 'kill -9 {self.pid}'; the next run continues"


class RunLock(Closing):
    """The archive's run lock, held from its creation on: ``with RunLock(layout, "gather"): ...``.

    Raises :class:`LockHeld` with the holder if another run has it, :class:`CorruptArchive` if a held file is in the
    place of the lock, and :class:`StorageFailed` if something else is.
    """

    def __init__(self, layout: Layout, what: str = "gather") -> None:
        path = layout.root / LOCK
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time()), "what": what}
        with storage_errors(path):
            self._fd = _open(path, os.O_RDWR | os.O_CREAT)
            try:
                if not os.fstat(self._fd).st_mode & stat.S_IWUSR:  # root may write to it all the same
                    raise CorruptArchive(
                        f"{path}: is read-only, like a held file, so nothing is written to it",
                        hint="if it is the lock, chmod u+w; else move it to where 'archec check' misses a file",
                    )
                if not _take(self._fd):
                    who = _read(self._fd, layout)
                    raise LockHeld(
                        f"{path}: another run is active on this archive: {who or 'an unknown one'}",
                        hint=(who and who.remedy) or "wait until it ends, or use --wait if the command has it",
                    )
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, json.dumps(about).encode() + b"\n", 0)
            except BaseException:
                os.close(self._fd)
                raise

    def close(self) -> None:
        """Releases the lock; may be called repeatedly."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


@contextmanager
def run_lock(layout: Layout, what: str, meter: Meter, *, wait: bool) -> Iterator[None]:
    """Takes the run lock. If it is taken, waits for it with ``wait``, and raises :class:`LockHeld` otherwise."""
    waiting_for = ""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(RunLock(layout, what))
                break
            except LockHeld:
                if not wait:
                    raise
                who = holder(layout)
                if who is not None and who.what != waiting_for:
                    waiting_for = who.what
                    meter.phase(f"waiting for {who.what}", None)
                time.sleep(0.25)
        yield


def holder(layout: Layout) -> Holder | None:
    """The current holder of the run lock, None if it is free. Has no side effects."""
    path = layout.root / LOCK
    with storage_errors(path), suppress(FileNotFoundError):
        fd = _open(path, os.O_RDONLY)
        try:
            if not _flock(fd, fcntl.LOCK_SH):
                return _read(fd, layout) or Holder(0, "?", -1, "an unknown run")
        finally:
            os.close(fd)
    return None


def _open(path: Path, flags: int) -> int:
    try:
        fd = os.open(path, flags | _FLAGS, 0o644)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
    raise StorageFailed(f"{path}: is not a file", hint="move it away: archec creates this file for its lock")


def _flock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _take(fd: int) -> bool:
    """Takes the exclusive lock unless another run has it; waits while :func:`holder` briefly has it."""
    for _ in range(_TRIES):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if not _flock(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.001)
    return False


def _read(fd: int, layout: Layout) -> Holder | None:
    try:
        found = json.loads(os.pread(fd, _MOST_BYTES, 0))
        who = Holder(int(found["pid"]), str(found["host"])[:200], int(found["since"]), str(found["what"])[:200])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    active = who.since
    for journal in layout.runs.glob("*.jsonl"):
        with suppress(FileNotFoundError):
            active = max(active, int(journal.stat().st_mtime))
    return who._replace(quiet=max(0, int(time.time()) - active)) if who.is_run else who
