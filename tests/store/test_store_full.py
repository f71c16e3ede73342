"""A disk that is really full: a small file system of our own, or a limit on file sizes."""

from __future__ import annotations

import errno
import os
import resource
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_disk import small_disk

from archec.archive.unfinished_downloads import UnfinishedDownloads
from archec.errors import StorageFailed, StorageFull
from archec.gather.received_bodies import ReceivedHops
from archec.store.durable import atomic_write
from archec.store.journal import JournalWriter, read_batches
from archec.store.layout import create
from archec.store.reader import digest
from archec.store.sorting import SortedLines
from archec.store.writer import Placement, Writer

TIST = 1352481230


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "size=1m,nr_inodes=500") as place:
        yield place


def test_a_file_that_cannot_be_created_is_told_by_its_directory(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=1m,nr_inodes=1") as place, pytest.raises(StorageFull) as raised:
        atomic_write(place / "x", b"")
    assert raised.value.message == f"{place}: No space left on device"
    assert "inodes" in raised.value.hint


def test_lines_that_cannot_be_sorted_leave_the_disk_as_it_was(disk: Path) -> None:
    free = os.statvfs(disk).f_bfree
    with SortedLines(disk, in_memory=2_000_000) as lines, pytest.raises(StorageFull) as raised:
        deque((lines.add(b"%0200d" % number) for number in range(30_000)), 0)
    assert (raised.value.__cause__ is not None, os.statvfs(disk).f_bfree) == (True, free)


def test_bytes_run_out(disk: Path) -> None:
    layout = create(disk / "archive")
    held: list[str] = []

    def fill(writer: Writer, journal: JournalWriter) -> None:
        for n in range(1000):
            stored = writer.put(TIST, f"u:{n}", bytes(50_000))
            writer.commit([Placement(stored.temp, TIST, f"u:{n}", stored.sha256)])
            held.append(f"u:{n}")
            journal.append([f'{{"id":"u:{n}"}}'], TIST)

    def fill_up(journal: JournalWriter) -> None:
        for _ in range(1000):
            journal.append(['"' + "x" * 10_000 + '"'], TIST)

    with Writer(layout) as writer, JournalWriter(layout, TIST) as journal:
        with pytest.raises(StorageFull, match=str(disk)) as caught:
            fill(writer, journal)
        assert caught.value.hint
        assert len(held) > 10
        with pytest.raises(StorageFull):
            fill_up(journal)
        batches = journal.batches
    assert all(digest(layout, TIST, obi).size == 50_000 for obi in held)
    assert len(list(read_batches(journal.path))) == batches
    with JournalWriter(layout, TIST) as again:
        assert (again.batches, again.torn) == (batches, 0)


@pytest.mark.parametrize("opened", [UnfinishedDownloads, partial(ReceivedHops, run=TIST)])
def test_a_disk_that_becomes_read_only(opened: Callable[[Path], Any], tmp_path: Path, monkeypatch: Any) -> None:
    """The records of downloads in progress, which are removed at the end of a run."""

    def refused(path: Path, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with pytest.raises(StorageFailed, match="Read-only"), opened(tmp_path):
        monkeypatch.setattr(Path, "unlink", refused)


def test_inodes_run_out(disk: Path) -> None:
    layout = create(disk / "archive")
    with Writer(layout) as writer:
        with pytest.raises(StorageFull):
            deque((writer.put(TIST, f"u:{n}", b"") for n in range(1000)), maxlen=0)
        with pytest.raises(StorageFull):
            writer.put(TIST + 1, "u:x", b"")
        with pytest.raises(StorageFull):
            JournalWriter(layout, TIST)


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    layout = create(tmp_path / "archive")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Writer(layout) as writer, JournalWriter(layout, TIST) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(StorageFailed, match="File too large"):
                writer.put(TIST, "u:x", bytes(10_000))
            journal.append([b"1"], TIST)
            with pytest.raises(StorageFailed, match="File too large"):
                journal.append([b'"' + b"x" * 5000 + b'"'], TIST)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert journal.append([b"2"], TIST) == 2
    assert [batch.lines for batch in read_batches(journal.path)] == [[b"1"], [b"2"]]
    assert os.listdir(layout.root / layout.directory(TIST, "u:x")) == []
