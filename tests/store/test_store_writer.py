"""Writing in batches: the order of steps, nothing overwritten, outcomes, faults."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fakes import FakeDisk

from archec.errors import CorruptArchive, NotHeld, StorageFailed, StorageFull
from archec.store.durable import is_temp
from archec.store.layout import Layout, create
from archec.store.reader import locate, open_obi
from archec.store.writer import HardLink, Placement, Redirect, Stored, Writer

TIST = 1352481230
FOO, BAR = "http://a.org/foo", "http://b.org/bar"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(writer: Writer, tist: int, id: str, data: bytes) -> Placement:  # noqa: A002
    stored = writer.put(tist, id, data)
    return Placement(stored.temp, tist, id, stored.sha256)


def read(layout: Layout, tist: int, id: str) -> bytes:  # noqa: A002
    with open_obi(layout, tist, id) as file:
        return file.read()


def temps(layout: Layout) -> list[str]:
    return [name for _, _, files in os.walk(layout.root) for name in files if is_temp(name)]


def test_what_is_written_is_hashed_and_read_back(layout: Layout, writer: Writer) -> None:
    with writer.temp(TIST, FOO) as temp:
        for part in (b"one ", bytearray(b"two "), memoryview(b"three")):
            temp.write(part)
        stored = temp.close()
    data = b"one two three"
    assert stored == Stored(temp.path, hashlib.md5(data).hexdigest(), sha256(data), len(data))
    with pytest.raises(NotHeld):
        locate(layout, TIST, FOO)
    outcomes = writer.commit([Placement(stored.temp, TIST, FOO, stored.sha256)])
    assert [tuple(outcome) for outcome in outcomes] == [("stored", TIST, FOO, sha256(data))]
    assert read(layout, TIST, FOO) == data
    assert locate(layout, TIST, FOO)[:2] == (layout.path(TIST, FOO), ())
    assert (layout.root / layout.path(TIST, FOO)).stat().st_mode & 0o222 == 0
    assert temps(layout) == []


def test_a_large_file_is_written_to_the_disk_while_it_arrives(layout: Layout, fake_disk: FakeDisk) -> None:
    with Writer(layout, disk=fake_disk) as writer, writer.temp(TIST, FOO) as temp:
        for _ in range(20):
            temp.write(bytes(1 << 20))
        assert [what for what, _ in fake_disk.log].count("begin_sync") == 2
        temp.close(sync=True)


def test_threads_create_temporary_files_while_others_are_committed(layout: Layout, writer: Writer) -> None:
    def one(n: int) -> Placement:
        return put(writer, TIST + n % 20, f"{FOO}{n}", b"%d" % n)

    before = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(8) as threads:
        made = [threads.submit(one, n) for n in range(400)]
        for first in range(0, 400, 40):
            writer.commit([placed.result() for placed in made[first : first + 40]])
    assert all(read(layout, TIST + n % 20, f"{FOO}{n}") == b"%d" % n for n in range(400))
    writer.close()
    assert (temps(layout), len(os.listdir("/proc/self/fd")) < before) == ([], True)


def test_temps_that_are_not_wanted(layout: Layout, writer: Writer) -> None:
    with writer.temp(TIST, FOO) as temp:
        temp.write(b"x")
    assert temps(layout) == []
    writer.discard(writer.put(TIST, FOO, b"x").temp)
    temp = writer.temp(TIST, FOO)
    stored = temp.close()
    for again in (temp.write, lambda _: temp.close()):
        with pytest.raises(ValueError, match="closed"):
            again(b"")
    temp.discard()
    writer.discard(stored.temp)
    assert temps(layout) == []


def test_a_held_name_is_never_taken_for_a_temporary_one(layout: Layout, writer: Writer) -> None:
    writer.commit([put(writer, TIST, FOO, b"held")])
    path = layout.path(TIST, FOO)
    with pytest.raises(ValueError, match="not a temporary"):
        writer.discard(path)
    with pytest.raises(ValueError, match="not a temporary"):
        writer.commit([Placement(path, TIST, BAR, sha256(b"held"))])
    assert read(layout, TIST, FOO) == b"held"


@settings(max_examples=60)
@given(
    ids=st.lists(
        st.one_of(
            st.text(min_size=1, max_size=30),
            st.text(alphabet="/.\0~%–a", min_size=1, max_size=12),
            st.sampled_from(
                [".", "..", "/", "../../../etc/passwd", "\0", "x" * 5000, "–" * 5000, ".+1-1.part", "a~" + "f" * 32]
            ),
        ),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    fanout=st.sampled_from([0, 256]),
)
def test_any_id_is_held_under_its_own_name(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], fanout: int
) -> None:
    layout = create(tmp_path_factory.mktemp("names") / "archive", fanout=fanout)
    with Writer(layout) as writer:
        outcomes = writer.commit([put(writer, TIST, obi, obi.encode("utf-8", "surrogatepass")) for obi in ids])
    assert {outcome.kind for outcome in outcomes} == {"stored"}
    for id in ids:  # noqa: A001
        assert read(layout, TIST, id) == id.encode("utf-8", "surrogatepass")
    assert set(os.listdir(layout.root)) == {"0=archec_1.0", "layout.json", "runs", "032"}


# -- never over what is held ----------------------------------------------------------------------


def test_a_taken_name_is_adopted_or_occupied_and_never_altered(layout: Layout, writer: Writer) -> None:
    writer.commit([put(writer, TIST, FOO, b"held")])
    same, other = put(writer, TIST, FOO, b"held"), put(writer, TIST, FOO, b"other")
    first, second = put(writer, TIST, BAR, b"first"), put(writer, TIST, BAR, b"second")
    outcomes = writer.commit([same, other, first, second])
    assert [(o.kind, o.sha256) for o in outcomes] == [
        ("adopted", sha256(b"held")),
        ("occupied", sha256(b"held")),
        ("stored", sha256(b"first")),
        ("occupied", sha256(b"first")),
    ]
    assert read(layout, TIST, FOO) == b"held"
    assert read(layout, TIST, BAR) == b"first"
    for placement in (other, second):  # whoever committed them may have another place for them
        writer.discard(placement.temp)
    assert temps(layout) == []


def test_giving_a_batch_again_finishes_it(layout: Layout, writer: Writer) -> None:
    batch = [put(writer, TIST, FOO, b"foo"), put(writer, TIST, BAR, b"bar")]
    links, again = [Redirect(TIST, "http://c.org/", TIST, BAR)], [HardLink(TIST, FOO, TIST + 9, FOO)]
    assert {o.kind for o in writer.commit(batch, links, again)} == {"stored"}
    assert {o.kind for o in writer.commit(batch, links, again)} == {"adopted"}


def test_a_temp_that_has_gone_is_a_failure(layout: Layout, writer: Writer) -> None:
    placement = put(writer, TIST, FOO, b"foo")
    writer.discard(placement.temp)
    with pytest.raises(StorageFailed, match="disappeared"):
        writer.commit([placement])


def test_a_link_in_the_place_of_a_file(layout: Layout, writer: Writer) -> None:
    links = [Redirect(TIST, FOO, TIST, BAR), Redirect(TIST, "u:x", TIST, "u:gone")]
    writer.commit([put(writer, TIST, BAR, b"bar")], links)
    outcomes = writer.commit(
        [put(writer, TIST, FOO, b"bar"), put(writer, TIST, FOO, b"else"), put(writer, TIST, "u:x", b"x")],
        [Redirect(TIST, BAR, TIST, FOO), Redirect(TIST, FOO, TIST, "u:x")],
    )
    assert [(o.kind, o.sha256) for o in outcomes] == [
        ("adopted", sha256(b"bar")),
        ("occupied", sha256(b"bar")),
        ("occupied", ""),
        ("occupied", sha256(b"bar")),
        ("occupied", sha256(b"bar")),
    ]


# -- redirects and restated contents --------------------------------------------------------------


def test_redirects_are_relative_links(layout: Layout, writer: Writer) -> None:
    later = TIST + 86400
    writer.commit([put(writer, TIST, BAR, b"bar")], [Redirect(TIST, FOO, TIST, BAR), Redirect(later, FOO, TIST, BAR)])
    for tist in (TIST, later):
        path = layout.root / layout.path(tist, FOO)
        assert not os.readlink(path).startswith("/")
        assert path.resolve() == layout.root / layout.path(TIST, BAR)
        assert path.read_bytes() == read(layout, tist, FOO) == b"bar"
    assert [(hop.tist, hop.id) for hop in locate(layout, later, FOO).hops] == [(TIST, BAR)]
    moved = layout.root.with_name("elsewhere")
    layout.root.rename(moved)
    assert read(Layout(moved, layout.fanout), later, FOO) == b"bar"


def test_a_chain_is_kept_hop_by_hop(layout: Layout, writer: Writer) -> None:
    chain = [f"http://h{i}.org/{'x' * 300 * (i % 2)}" for i in range(6)]
    links = [Redirect(TIST, one, TIST, two) for one, two in pairwise(chain)]
    writer.commit([put(writer, TIST, chain[-1], b"end")], links)
    hops = locate(layout, TIST, chain[0]).hops
    assert [hop.id for hop in hops] == [None if len(obi) > 200 else obi for obi in chain[1:]]
    assert read(layout, TIST, chain[0]) == b"end"


@pytest.mark.parametrize("tail", ["p", "p" * 300])
@pytest.mark.parametrize("slash_first", [True, False])
def test_a_final_slash_needs_no_link(
    layout: Layout, writer: Writer, tail: str, slash_first: bool
) -> None:
    pair = (f"http://a.org/{tail}/", f"http://a.org/{tail}")
    source, goal = pair if slash_first else pair[::-1]
    before = "http://z.org/"
    batch = [put(writer, TIST, goal, b"body")]
    outcomes = writer.commit(batch, [Redirect(TIST, before, TIST, source), Redirect(TIST, source, TIST, goal)])
    assert [o.kind for o in outcomes] == ["stored"] * 3
    # A name that was cut does not tell its id, so that only there a link is made.
    assert os.path.lexists(layout.root / layout.path(TIST, source)) == (len(tail) > 200)
    assert read(layout, TIST, source) == read(layout, TIST, before) == b"body"


def test_a_redirect_to_itself_makes_no_link(layout: Layout, writer: Writer) -> None:
    writer.commit([put(writer, TIST, FOO, b"foo")], [Redirect(TIST, FOO, TIST, FOO)])
    assert read(layout, TIST, FOO) == b"foo"


@pytest.mark.parametrize("no_links", [False, True])
def test_restated_contents(layout: Layout, fake_disk: FakeDisk, no_links: bool) -> None:
    fake_disk.no_links = no_links
    with Writer(layout, disk=fake_disk) as writer:
        writer.commit([put(writer, TIST, BAR, b"bar")], [Redirect(TIST, FOO, TIST, BAR)])
        again = [HardLink(TIST, FOO, TIST + 5, FOO), HardLink(TIST, "u:gone", TIST + 5, "u:gone")]
        outcomes = writer.commit([], [], again)
        assert [o.kind for o in outcomes] == ["stored", "missing"]
        assert read(layout, TIST + 5, FOO) == b"bar"
        assert not locate(layout, TIST + 5, FOO).hops
        one, two = (os.stat(layout.root / layout.path(*at)).st_ino for at in ((TIST, BAR), (TIST + 5, FOO)))
        assert (one == two) is not no_links
        held = writer.commit([put(writer, TIST + 6, FOO, b"else")], [], [HardLink(TIST, FOO, TIST + 6, FOO)])
        assert [(o.kind, o.sha256) for o in held] == [("stored", sha256(b"else")), ("occupied", sha256(b"else"))]
    assert temps(layout) == []


# -- order of steps -------------------------------------------------------------------------------


def test_the_order_of_a_batch(layout: Layout, fake_disk: FakeDisk) -> None:
    with Writer(layout, disk=fake_disk) as writer:
        first = put(writer, TIST, BAR, b"held before")
        writer.commit([first])
        batch = [put(writer, TIST + i, FOO, b"foo%d" % i) for i in (1, 2)]
        fake_disk.log.clear()
        writer.commit(batch, [Redirect(TIST, FOO, TIST, BAR)], [HardLink(TIST, BAR, TIST + 1, BAR)])
    sync = "syncfs" if fake_disk.trusts_syncfs_at(layout.root) else "fsync"
    assert fake_disk.order == [sync, "rename", "symlink", "link", "fsync_dir"]
    synced = [path for what, path in fake_disk.log if what == "fsync_dir"]
    root = str(layout.root)
    named = ((TIST, FOO), (TIST + 1, FOO), (TIST + 2, FOO), (TIST + 1, BAR))
    touched = {f"{root}/{layout.directory(tist, obi)}" for tist, obi in named}
    assert touched <= set(synced)
    for directory in touched - {f"{root}/{layout.directory(TIST, BAR)}"}:
        # A directory that is new is durable only once the one above it has been synced, after it.
        assert os.path.dirname(directory) in synced[synced.index(directory) :]
    assert len(synced) == len(set(synced))


def test_new_parents_are_synced_up_to_the_root_once(layout: Layout, fake_disk: FakeDisk) -> None:
    with Writer(layout, disk=fake_disk) as writer:
        for data, expected in ((b"1", layout.depth + 1), (b"2", 1)):
            batch = [put(writer, TIST, FOO, data)]
            fake_disk.log.clear()
            writer.commit(batch)
            synced = [path for what, path in fake_disk.log if what == "fsync_dir"]
            assert len(synced) == expected
            assert len(synced) == 1 or synced[-1] == f"{layout.root}/"


def test_many_directories_are_synced_in_one_go(tmp_path: Path, fake_disk: FakeDisk) -> None:
    with Writer(create(tmp_path / "a", fanout=256), disk=fake_disk) as writer:
        if not fake_disk.trusts_syncfs_at(tmp_path):
            pytest.skip("syncfs cannot be trusted on this file system")
        writer.commit([put(writer, TIST, f"u:{i}", b"x") for i in range(200)])
    assert fake_disk.order[-3:] == ["syncfs", "rename", "syncfs"]


def test_without_syncfs_each_file_is_synced_before_any_name(layout: Layout, fake_disk: FakeDisk) -> None:
    fake_disk.no_syncfs = True
    with Writer(layout, disk=fake_disk) as writer:
        batch = [put(writer, TIST, f"u:{i}", b"x%d" % i) for i in range(40)]
        fake_disk.log.clear()
        assert {o.kind for o in writer.commit(batch)} == {"stored"}
    assert fake_disk.order == ["fsync", "rename", "fsync_dir"]
    assert len([what for what, _ in fake_disk.log if what == "fsync"]) == 40
    assert read(layout, TIST, "u:39") == b"x39"


def test_an_empty_batch_does_nothing(layout: Layout, fake_disk: FakeDisk) -> None:
    with Writer(layout, disk=fake_disk) as writer:
        assert writer.commit([]) == []
    assert fake_disk.log == []


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["syncfs", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_fault_in_a_batch_loses_nothing(flat: Layout, fake_disk: FakeDisk, step: str, number: int) -> None:
    fake_disk.no_syncfs = step == "fsync"
    with Writer(flat, disk=fake_disk) as writer:
        if step == "syncfs" and not fake_disk.trusts_syncfs_at(flat.root):
            pytest.skip("syncfs cannot be trusted on this file system")
        writer.commit([put(writer, TIST, BAR, b"before")])
        batch = [put(writer, TIST, FOO, b"foo")]
        fake_disk.breaking = {step: number}
        with pytest.raises(StorageFull if number == errno.ENOSPC else StorageFailed, match=str(flat.root)):
            writer.commit(batch)
        if step != "fsync_dir":
            with pytest.raises(NotHeld):
                locate(flat, TIST, FOO)
        fake_disk.breaking = {}
        assert writer.commit(batch)[0].kind == ("adopted" if step == "fsync_dir" else "stored")
    assert read(flat, TIST, FOO) == b"foo"
    assert read(flat, TIST, BAR) == b"before"


def test_no_room_while_writing(flat: Layout, fake_disk: FakeDisk) -> None:
    fake_disk.room = 100
    with Writer(flat, disk=fake_disk) as writer:
        fits = put(writer, TIST, FOO, b"x" * 80)
        with pytest.raises(StorageFull, match=r"\.part"):
            writer.put(TIST, BAR, b"y" * 80)
        assert len(temps(flat)) == 1
        assert writer.commit([fits])[0].kind == "stored"


def test_a_directory_swapped_for_a_link_is_not_written_through(layout: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (layout.root / "032").symlink_to(outside)
    with Writer(layout) as writer, pytest.raises(CorruptArchive, match="032"):
        writer.put(TIST, FOO, b"x")
    assert os.listdir(outside) == []


def test_open_directories_are_bounded(flat: Layout) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Writer(flat) as writer:
        for i in range(0, 400, 4):
            writer.commit([put(writer, TIST + i + j, FOO, b"x") for j in range(4)])
        assert len(os.listdir("/proc/self/fd")) - before <= 66
        with writer.temp(TIST, "u:late") as temp:
            for i in range(100):
                writer.discard(writer.put(TIST + 1000 + i, FOO, b"x").temp)
            stored = temp.close()
        assert writer.commit([Placement(stored.temp, TIST, "u:late", stored.sha256)])[0].kind == "stored"
    assert len(os.listdir("/proc/self/fd")) == before


def _work(layout: Layout, numbers: range) -> list[Placement]:
    with Writer(layout) as writer:
        return [put(writer, TIST, f"u:{n}", b"%d" % n) for n in numbers]


def test_other_processes_make_the_files(
    layout: Layout, writer: Writer, names_in: Callable[[Layout], dict[str, bytes]]
) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.starmap(_work, [(layout, range(50)), (layout, range(50, 100))])
    outcomes = writer.commit(made[0] + made[1])
    assert {o.kind for o in outcomes} == {"stored"}
    assert names_in(layout) == {layout.path(TIST, f"u:{n}"): b"%d" % n for n in range(100)}
