"""Reading many obis: the same bytes and the same refusals as one by one, with few directories open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from archec.errors import ArchecError, CorruptArchive, NotHeld
from archec.store.layout import Layout, file_name
from archec.store.reader import Reader, open_obi
from archec.store.writer import Placement, Writer

TIST = 1352481230
BODIES = {
    "RePEc:aaa:s:1": b"one",
    "RePEc:aaa:s:2": b"",
    "http://h.org/" + "x" * 4000: b"long name",
    "http://h.org/large": b"0123456789abcdef" * 100_000,
    "http://h.org/slash/": b"slash",
}


@pytest.fixture
def held(layout: Layout) -> Layout:
    """A store with some obis at several tists, and a link."""
    with Writer(layout) as writer:
        placements = []
        for tist in (TIST, TIST + 1, 5):
            for obi, body in BODIES.items():
                stored = writer.put(tist, obi, body)
                placements.append(Placement(stored.temp, tist, obi, stored.sha256))
        writer.commit(placements)
    foo = layout.root / layout.path(TIST, "http://h.org/foo")
    foo.parent.mkdir(parents=True, exist_ok=True)
    up = "../" * layout.depth
    os.symlink(f"{up}{layout.directory(TIST, 'http://h.org/large')}/{file_name('http://h.org/large')}", foo)
    return layout


def one_by_one(layout: Layout, tist: int, obi: str) -> bytes:
    with open_obi(layout, tist, obi) as file:
        return file.read()


def outcome(read: Callable[[], bytes]) -> bytes | str:
    """What was read, or why nothing was."""
    try:
        return read()
    except NotHeld as error:
        return error.message


def test_the_same_bytes_as_one_by_one(held: Layout) -> None:
    names = [*BODIES, "http://h.org/foo", "http://h.org/slash", "RePEc:aaa:s:9"]
    with Reader(held) as reader:
        for tist in (TIST, TIST + 1, 5, 6):
            for obi in names:
                assert outcome(lambda tist=tist, obi=obi: reader.read(tist, obi)) == outcome(  # type: ignore[misc]
                    lambda tist=tist, obi=obi: one_by_one(held, tist, obi)  # type: ignore[misc]
                )


def test_few_directories_are_open(layout: Layout) -> None:
    tists = range(200)
    with Writer(layout) as writer:
        writer.commit([
            Placement(stored.temp, tist, "RePEc:aaa:s:1", stored.md5)
            for tist in tists for stored in [writer.put(tist, "RePEc:aaa:s:1", b"%d" % tist)]
        ])  # fmt: skip
    before = len(os.listdir("/proc/self/fd"))
    with Reader(layout) as reader:
        for _ in range(2):
            for tist in tists:
                assert reader.read(tist, "RePEc:aaa:s:1") == b"%d" % tist
                assert len(os.listdir("/proc/self/fd")) < before + 150
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_planted_links_lead_nowhere(held: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    place = held.root / held.path(TIST, "http://h.org/planted")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(outside / "secret", place)
    os.mkfifo(held.root / held.path(5, "RePEc:aaa:s:1").rpartition("/")[0] / "pipe")
    other = held.root / held.directory(7, "RePEc:aaa:s:1")
    other.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(outside, other)
    (outside / file_name("RePEc:aaa:s:1")).write_bytes(b"secret")
    with Reader(held) as reader:
        with pytest.raises(CorruptArchive):
            reader.read(TIST, "http://h.org/planted")
        with pytest.raises(CorruptArchive):
            reader.read(7, "RePEc:aaa:s:1")
        with pytest.raises(ArchecError):
            reader.read(5, "pipe")


def test_what_changes_meanwhile(held: Layout) -> None:
    """A file that is gone is not held, though its directory is open."""
    with Reader(held) as reader:
        reader.read(TIST, "RePEc:aaa:s:1")
        path = held.root / held.path(TIST, "RePEc:aaa:s:1")
        path.unlink()
        with pytest.raises(NotHeld):
            reader.read(TIST, "RePEc:aaa:s:1")
