"""Safe reading: whatever was planted in the store, no file outside it is ever read."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.errors import ArchecError, BadName, CorruptArchive, NotHeld, StorageFailed
from archec.ids import escape
from archec.store.durable import open_directory
from archec.store.layout import Layout, create, file_name, id_of_name
from archec.store.reader import digest, held_tists, locate, open_held, open_obi
from archec.store.writer import Placement, Redirect, Writer

TIST = 1352481230
FOO, BAR = "http://a.org/foo", "http://b.org/bar"
SECRET = b"root:x:0:0"


@pytest.fixture
def held(layout: Layout) -> Layout:
    """A store that holds BAR, in which FOO's directory is there too; a secret file lies beside it."""
    with Writer(layout) as writer:
        placements = []
        for obi in (BAR, FOO):
            stored = writer.put(TIST, obi, b"held")
            placements.append(Placement(stored.temp, TIST, obi, stored.sha256))
        writer.commit(placements)
    (layout.root / layout.path(TIST, FOO)).unlink()
    (layout.root.parent / "passwd").write_bytes(SECRET)
    return layout


def plant(layout: Layout, text: str, id: str = FOO) -> None:  # noqa: A002
    os.symlink(text, layout.root / layout.path(TIST, id))


def refused(layout: Layout, id: str = FOO) -> str:  # noqa: A002
    message = ""
    for read in (locate, open_obi, digest):
        with pytest.raises(CorruptArchive) as caught:
            read(layout, TIST, id)
        message = caught.value.message
    return message


def test_digest(held: Layout) -> None:
    md5, sha256 = (hashlib.new(name, b"held").hexdigest() for name in ("md5", "sha256"))
    found = digest(held, TIST, BAR)
    assert (found.md5, found.sha256, found.size) == (md5, sha256, 4)


@pytest.mark.parametrize("id", [FOO, "RePEc:aaa:bbb:c", "/", "http:", "https://x", "ftp:/y", ".", "\0", "a" * 4000])
def test_what_is_not_held(held: Layout, id: str) -> None:  # noqa: A002
    for tist in (TIST, TIST + 1, 0):
        with pytest.raises(NotHeld):
            open_obi(held, tist, id)
    with pytest.raises(BadName):
        locate(held, -1, id)


@pytest.mark.parametrize(
    "text",
    [
        "/etc/passwd",
        "//etc/passwd",
        "../" * 40 + "etc/passwd",
        "../../../../passwd",
        "../../../../../passwd",
        "../../../layout.json",
        "../../../../layout.json",
        "../../../runs/1352481230.jsonl",
        "..",
        ".",
        "sub/../../../../../passwd",
        "../2531",
        "../../184/2531/../../../../passwd",
        "../../../032/184/2531",
        "../../../٠٣٢/184/2531/x",
        "../../../" + "9" * 200 + "/184/2531/x",
        "name with blank",
        ".+1-1.part",
        "%zz",
        "x\n",
    ],
)
def test_planted_links(held: Layout, text: str) -> None:
    plant(held, text)
    assert str(held.root) in refused(held)


def test_a_planted_absolute_link_into_the_store_itself(held: Layout) -> None:
    plant(held, str(held.root / held.path(TIST, BAR)))
    assert "absolute" in refused(held)


def test_a_link_whose_text_is_not_utf8(held: Layout) -> None:
    os.symlink(b"\xff\xfe", os.fsencode(held.root / held.path(TIST, FOO)))
    refused(held).encode("utf-8", "surrogateescape")


def test_a_longer_way_round_inside_the_store_is_fine(held: Layout) -> None:
    up = "../" * held.depth
    plant(held, f"{up}./032/../032//184/2531/{held.path(TIST, BAR).split('/', 3)[3]}")
    assert digest(held, TIST, FOO).size == 4
    assert [(hop.tist, hop.id) for hop in locate(held, TIST, FOO).hops] == [(TIST, BAR)]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_loops(held: Layout, length: int) -> None:
    ring = [FOO, *(f"http://h{i}.org/" for i in range(length - 1))]
    with Writer(held) as writer:
        writer.commit([], [Redirect(TIST, one, TIST, two) for one, two in pairwise(ring)])
        last = ring[-1]
        place = held.root / held.path(TIST, last)
        place.parent.mkdir(exist_ok=True)
        os.symlink("../" * held.depth + held.path(TIST, FOO), place)
    assert "circle" in refused(held)


def test_a_chain_that_is_too_long(held: Layout) -> None:
    chain = [FOO, *(f"http://h{i}.org/" for i in range(100)), BAR]
    with Writer(held) as writer:
        writer.commit([], [Redirect(TIST, one, TIST, two) for one, two in pairwise(chain)])
    assert "circle" in refused(held)


def test_a_link_to_nothing(held: Layout) -> None:
    with Writer(held) as writer:
        writer.commit([], [Redirect(TIST, FOO, TIST + 5, "http://gone.org/")])
    assert "gone.org" in refused(held)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_directory_swapped_for_a_link(held: Layout, level: int) -> None:
    """The same bytes at the other end make it no better: what is outside may be changed by others."""
    path = held.root / "/".join(["032", "184", "2531"][: level + 1])
    outside = held.root.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    assert str(path) in refused(held, BAR)


def test_a_directory_swapped_for_a_file(held: Layout) -> None:
    path = held.root / "032/184"
    path.rename(held.root / "was")
    path.write_bytes(SECRET)
    refused(held, BAR)


def test_a_directory_or_a_pipe_in_the_place_of_a_file(held: Layout) -> None:
    path = held.root / held.path(TIST, FOO)
    path.mkdir()
    refused(held)
    path.rmdir()
    os.mkfifo(path)
    refused(held)
    with pytest.raises(CorruptArchive):
        open_held(held, held.path(TIST, FOO))
    path.unlink()
    plant(held, str(held.root.parent / "passwd"))
    with pytest.raises(CorruptArchive):
        open_held(held, held.path(TIST, FOO))


def test_a_file_swapped_between_locating_and_opening(held: Layout) -> None:
    located = locate(held, TIST, BAR)
    path = held.root / located.path
    path.unlink()
    with pytest.raises(NotHeld):
        open_held(held, located.path)
    path.symlink_to(held.root.parent / "passwd")
    with pytest.raises(CorruptArchive):
        open_held(held, located.path)


def test_the_root_may_be_a_link(held: Layout) -> None:
    link = held.root.with_name("link")
    link.symlink_to(held.root)
    assert digest(Layout(link, held.fanout), TIST, BAR).size == 4


def test_a_disk_that_does_not_read(held: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_obi(held, TIST, BAR) as stream, open_directory(held.root) as other:
        os.dup2(other, stream.fileno())  # reading fails from now on
        for read in (stream.read, lambda: stream.read(1)):
            with pytest.raises(StorageFailed, match=re.escape(held.path(TIST, BAR))):
                read()
    monkeypatch.setattr(os, "readlink", broken)
    plant(held, "x")
    with pytest.raises(ArchecError, match=r"Input/output error"):
        locate(held, TIST, FOO)


def test_no_descriptor_is_left_open(held: Layout) -> None:
    plant(held, "/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        refused(held)
        digest(held, TIST, BAR)
        with pytest.raises(NotHeld):
            locate(held, TIST, "u:none")
    assert len(os.listdir("/proc/self/fd")) == before


@settings(max_examples=150)
@given(
    text=st.one_of(
        st.lists(
            st.sampled_from(["..", ".", "", "032", "184", "2531", "etc", "passwd", "runs", "lock", "0e", "a%2F"]),
            min_size=1,
            max_size=12,
        ).map("/".join),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=80),
    )
)
def test_no_link_leads_out(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    layout = create(tmp_path_factory.mktemp("links") / "archive")
    place = layout.root / layout.path(TIST, FOO)
    place.parent.mkdir(parents=True)
    for at in (layout.root.parent, layout.root, layout.root / "032", layout.root / "032/184"):
        (at / "passwd").write_bytes(SECRET)
    if not text:
        return
    os.symlink(text, place)
    with pytest.raises(CorruptArchive):
        open_obi(layout, TIST, FOO).close()


@given(st.text(min_size=1, max_size=80))
def test_names_tell_their_ids(id: str) -> None:  # noqa: A002
    assert id_of_name(file_name(id)) == (id if len(escape(id)) < 253 else id_of_name(file_name(id)))
    assert id_of_name(file_name(id + "x" * 300)) is None


def test_names_that_are_none() -> None:
    assert id_of_name("%2E") == "."
    assert id_of_name("%2E%2E") == ".."
    for name in ("%ff", "%", "a b", "%C3", Path("/").name):
        assert id_of_name(name) in (None, "")


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_what_cannot_be_listed_is_skipped(held: Layout, monkeypatch: pytest.MonkeyPatch, levels: int) -> None:
    other = TIST + 1
    folder = held.root / held.directory(other, FOO)
    folder.mkdir(parents=True)
    (folder / "x").touch()
    assert set(held_tists(held)) == {TIST, other}
    refused = held.root.joinpath(*Path(held.path(other, FOO)).parts[:levels])
    scan = os.scandir

    def broken(where: str) -> object:
        if Path(where) == refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scan(where)

    monkeypatch.setattr(os, "scandir", broken)
    assert set(held_tists(held)) == {TIST}
