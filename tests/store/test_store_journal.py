"""Journals: whole batches or none, torn tails, damage, the finished form."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fakes import FakeDisk

from archec.errors import CorruptArchive, CorruptJournal, StorageFailed, StorageFull
from archec.store.journal import NO_BATCH, JournalWriter, newest_batch, read_batches, tidy
from archec.store.layout import Layout, create, journals

TIST = 1352481230
HALF_END = b'{"type":"batch","n":4,"lines":1,"stamp":1,"prev":"%064d","sha256":"%064d"}' % (0, 0)
BATCHES = [[b'{"a":1}', b'{"type":"x"}'], [b'{"b":2}'], [b'{"c":3}', '{"d":"–"}'.encode(), b"[]"]]


def write(layout: Layout, batches: list[list[bytes]] = BATCHES) -> Path:
    with JournalWriter(layout, TIST) as journal:
        for i, lines in enumerate(batches):
            assert journal.append(lines, TIST + i) == i + 1
    return journal.path


def lines_of(path: Path) -> list[list[bytes]]:
    return [batch.lines for batch in read_batches(path)]


def test_batches_come_back(flat: Layout) -> None:
    path = write(flat)
    data = path.read_bytes()
    found = list(read_batches(path))
    assert [batch.lines for batch in found] == BATCHES
    assert [(batch.n, batch.stamp) for batch in found] == [(1, TIST), (2, TIST + 1), (3, TIST + 2)]
    for batch in found:
        assert data[batch.offset :].startswith(batch.lines[0] + b"\n")


def test_the_end_of_a_batch_is_as_documented(flat: Layout) -> None:
    path = write(flat, BATCHES[:2])
    data, second = path.read_bytes(), list(read_batches(path))[1].offset
    prev = NO_BATCH
    for n, batch in enumerate((data[:second], data[second:]), 1):
        end = json.loads(batch.splitlines()[-1])
        sha256 = hashlib.sha256(batch[: batch.rindex(b',"sha256"')]).hexdigest()
        count, stamp = len(BATCHES[n - 1]), TIST + n - 1
        assert end == {"type": "batch", "n": n, "lines": count, "stamp": stamp, "prev": prev, "sha256": sha256}
        assert list(end) == ["type", "n", "lines", "stamp", "prev", "sha256"]
        prev = sha256
    assert NO_BATCH == "0" * 64


def test_the_newest_batch_is_found_from_the_end(flat: Layout) -> None:
    path = write(flat)
    data = path.read_bytes()
    assert newest_batch(path) == 3
    for torn in (b'{"half', HALF_END):
        path.write_bytes(data + torn)
        assert newest_batch(path) == 3
    path.write_bytes(data[:-1])
    assert newest_batch(path) == 2
    path.write_bytes(b"")
    assert newest_batch(path) == 0


def test_text_and_bytes_and_nothing(flat: Layout) -> None:
    with JournalWriter(flat, TIST) as journal:
        assert journal.append(iter(['"–"', b'"x"', '"\ud800"']), 0) == 1
        assert journal.append([], 0) == 1
    assert lines_of(journal.path) == [['"–"'.encode(), b'"x"', b'"\xed\xa0\x80"']]


@pytest.mark.parametrize("line", [b"", "", b"a\nb", "\n", b'{"type":"batch","n":9}'])
def test_what_is_no_line(flat: Layout, line: bytes | str) -> None:
    with JournalWriter(flat, TIST) as journal:
        with pytest.raises(ValueError, match="not a line"):
            journal.append([b"{}", line], 0)
        with pytest.raises(ValueError, match="not a tist"):
            journal.append([b"{}"], -1)
        assert journal.append([b"{}"], 0) == 1
    assert lines_of(journal.path) == [[b"{}"]]


def test_reopening_carries_on(flat: Layout) -> None:
    for i, lines in enumerate(BATCHES):
        with JournalWriter(flat, TIST) as journal:
            assert (journal.batches, journal.torn) == (i, 0)
            journal.append(lines, TIST)
    assert lines_of(journal.path) == BATCHES


def test_torn_at_every_byte_of_the_last_batch(flat: Layout) -> None:
    path = write(flat)
    data = path.read_bytes()
    start = list(read_batches(path))[-1].offset
    for cut in range(start, len(data)):
        for rubbish in (b"", b"\0" * 9, b"\0" * (len(data) - cut - 1) + b"\n", b"}\n"):
            path.write_bytes(data[:cut] + rubbish)
            if (data[:cut] + rubbish) == data:
                continue
            if rubbish == b"}\n" and b'{"type":"batch",' in data[start:cut]:
                with pytest.raises(CorruptJournal):  # no append ends so
                    lines_of(path)
                continue
            assert lines_of(path) == BATCHES[:2]
            with JournalWriter(flat, TIST) as journal:
                assert journal.batches == 2
                assert journal.torn == cut + len(rubbish) - start
                assert path.read_bytes() == data[:start]
                assert journal.append(BATCHES[2], TIST + 2) == 3
            assert path.read_bytes() == data


def test_a_flipped_byte_anywhere(flat: Layout) -> None:
    """It is damage, unless it hides the end of the last batch, or is a NUL: then it may be a torn write."""
    path = write(flat)
    data = path.read_bytes()
    end = data.rindex(b'{"type":"batch",')
    hiding = {*range(end - 1, end + len(b'{"type":"batch",')), len(data) - 1}
    for at in range(len(data)):
        for flip in (1, 0x20, 0x80):
            changed = bytearray(data)
            changed[at] ^= flip
            path.write_bytes(changed)
            if at in hiding or not changed[at]:
                assert lines_of(path) == BATCHES[:2]
                continue
            with pytest.raises(CorruptJournal, match=str(path)) as caught:
                lines_of(path)
            assert caught.value.message.startswith((f"{path}:1:", f"{path}:4:", f"{path}:6:"))
            with pytest.raises(CorruptJournal):
                JournalWriter(flat, TIST)
            assert path.read_bytes() == changed


def test_batches_that_are_missing_or_doubled(flat: Layout) -> None:
    path = write(flat)
    data = path.read_bytes()
    offsets = [batch.offset for batch in read_batches(path)]
    one, two, three = (data[a:b] for a, b in zip(offsets, [*offsets[1:], len(data)], strict=True))
    for parts in ([one, three], [two, three], [one, one, two], [two], [one, two, two], [three, two, one]):
        path.write_bytes(b"".join(parts))
        with pytest.raises(CorruptJournal):
            lines_of(path)
    path.write_bytes(b"")
    assert lines_of(path) == []


@settings(max_examples=80)
@given(
    batches=st.lists(
        st.lists(
            st.one_of(st.binary(max_size=40), st.just(b'{"type":"batch"')).map(lambda b: b.replace(b"\n", b"") or b"0"),
            min_size=1,
            max_size=4,
        ),
        max_size=5,
    ),
    tail=st.binary(max_size=60),
    stamp=st.integers(0, 253402300799),
)
def test_any_lines_with_any_tail(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], tail: bytes, stamp: int
) -> None:
    layout = create(tmp_path_factory.mktemp("journal") / "archive")
    batches = [[line for line in lines if not line.startswith(b'{"type":"batch",')] or [b"1"] for lines in batches]
    with JournalWriter(layout, TIST) as journal:
        for lines in batches:
            journal.append(lines, stamp)
    with open(journal.path, "ab") as file:
        file.write(tail)
    assert lines_of(journal.path) == batches
    with JournalWriter(layout, TIST) as again:
        assert (again.batches, again.torn) == (len(batches), len(tail))


def test_a_file_that_is_no_journal(flat: Layout) -> None:
    path = flat.runs / f"{TIST}.jsonl"
    for data in (b"\0" * 100_000, b"\n" * 1000, os.urandom(100_000)):
        path.write_bytes(data)
        assert lines_of(path) == []
    path.unlink()
    with pytest.raises(StorageFailed, match="No such file"):
        lines_of(path)
    path.symlink_to("/etc/passwd")
    with pytest.raises(CorruptJournal, match="is not a file"):
        lines_of(path)
    with pytest.raises(StorageFailed):
        JournalWriter(flat, TIST)


def test_memory_stays_flat(flat: Layout) -> None:
    with JournalWriter(flat, TIST) as journal:
        for i in range(120):
            journal.append([b'{"id":"%06d %s"}' % (j, b"x" * 80) for j in range(i, i + 500)], TIST)
        path = journal.finish()
    tracemalloc.start()
    try:
        assert sum(len(batch.lines) for batch in read_batches(path)) == 60_000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


# -- the finished form ----------------------------------------------------------------------------


def test_finishing(flat: Layout) -> None:
    with JournalWriter(flat, TIST) as journal:
        for lines in BATCHES:
            journal.append(lines, TIST)
        plain = journal.path.read_bytes()
        path = journal.finish()
    assert path == flat.runs / f"{TIST}.jsonl.gz"
    assert gzip.decompress(path.read_bytes()) == plain
    assert path.read_bytes()[4:8] == b"\0\0\0\0"
    assert os.listdir(flat.runs) == [path.name]
    assert lines_of(path) == BATCHES
    with pytest.raises(CorruptArchive, match="finished"):
        JournalWriter(flat, TIST)
    for use in (lambda: journal.append([b"1"], 0), journal.finish):
        with pytest.raises(StorageFailed):
            use()


def test_a_finished_journal_has_no_torn_tail(flat: Layout) -> None:
    plain = write(flat).read_bytes()
    path = flat.runs / f"{TIST}.jsonl.gz"
    for data in (plain[:-1], plain + b"x", plain[:-1] + b"x"):
        path.write_bytes(gzip.compress(data))
        with pytest.raises(CorruptJournal, match=str(path)):
            lines_of(path)


def test_a_damaged_finished_journal(flat: Layout) -> None:
    write(flat)
    path = JournalWriter(flat, TIST).finish()
    data = path.read_bytes()
    path.chmod(0o644)
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(CorruptJournal):
            lines_of(path)
    silent = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        path.write_bytes(changed)
        try:
            found = lines_of(path)
        except CorruptJournal:
            continue
        assert found == BATCHES
        silent += 1
    assert silent <= 10  # gzip's own header: a time, a system, which say nothing of the text


def test_both_forms_are_one_journal(flat: Layout) -> None:
    plain = write(flat)
    data = plain.read_bytes()
    (flat.runs / "99.jsonl").write_bytes(b"")
    (flat.runs / "notes.txt").write_bytes(b"")
    (flat.runs / "007.jsonl").write_bytes(b"")
    packed = JournalWriter(flat, TIST).finish()
    plain.write_bytes(data)
    (flat.runs / ".+1-1.part").write_bytes(b"half")
    assert [tuple(j) for j in journals(flat)] == [
        (99, flat.runs / "99.jsonl", False),
        (TIST, packed, True),
    ]
    assert tidy(flat) == 2
    assert sorted(os.listdir(flat.runs)) == ["007.jsonl", f"{TIST}.jsonl.gz", "99.jsonl", "notes.txt"]
    assert tidy(flat) == 0


def test_the_part_of_a_journal_that_was_copied_during_its_run_is_removed(flat: Layout) -> None:
    plain = write(flat)
    data = plain.read_bytes()
    packed = JournalWriter(flat, TIST).finish()
    assert lines_of(plain) == BATCHES, "its run has ended since it was listed"
    for size in range(0, len(data) + 1, 7):
        plain.write_bytes(data[:size])
        assert tidy(flat) == 1
    assert os.listdir(flat.runs) == [packed.name]


@pytest.mark.parametrize("damage", ["packed", "plain"])
def test_two_forms_that_differ_both_stay(flat: Layout, damage: str) -> None:
    plain = write(flat)
    data = plain.read_bytes()
    packed = JournalWriter(flat, TIST).finish()
    plain.write_bytes(data.replace(b"1", b"2", 1) if damage == "plain" else data)
    if damage == "packed":
        packed.chmod(0o644)
        packed.write_bytes(packed.read_bytes()[:-3])
    with pytest.raises(CorruptJournal, match="differs"):
        tidy(flat)
    assert plain.exists()
    assert packed.exists()


def test_no_journals_at_all(flat: Layout) -> None:
    flat.runs.rmdir()
    assert journals(flat) == []
    assert tidy(flat) == 0
    write(flat)
    assert [journal.tist for journal in journals(flat)] == [TIST]


# -- faults ---------------------------------------------------------------------------------------


def test_a_batch_is_on_the_disk_before_append_returns(flat: Layout, fake_disk: FakeDisk) -> None:
    with JournalWriter(flat, TIST, disk=fake_disk) as journal:
        assert fake_disk.order == ["fsync_dir"]
        fake_disk.log.clear()
        journal.append([b"1"], 0)
        assert fake_disk.order == ["write", "fdatasync"]
        fake_disk.log.clear()
        journal.finish()
        assert fake_disk.order == ["create", "fsync", "rename", "fsync_dir"]


def test_no_room_takes_the_batch_back_whole(flat: Layout, fake_disk: FakeDisk) -> None:
    with JournalWriter(flat, TIST, disk=fake_disk) as journal:
        journal.append(BATCHES[0], TIST)
        before = journal.path.read_bytes()
        for room in range(30):
            fake_disk.room = fake_disk.written + room
            with pytest.raises(StorageFull, match=str(journal.path)):
                journal.append(BATCHES[1], TIST)
            assert journal.path.read_bytes() == before
        fake_disk.room = None
        assert journal.append(BATCHES[1], TIST) == 2
    assert lines_of(journal.path) == BATCHES[:2]


@pytest.mark.parametrize("steps", [["fdatasync"], ["write", "truncate"]])
def test_nothing_is_appended_after_a_failed_sync(flat: Layout, fake_disk: FakeDisk, steps: list[str]) -> None:
    with JournalWriter(flat, TIST, disk=fake_disk) as journal:
        journal.append(BATCHES[0], TIST)
        fake_disk.breaking = dict.fromkeys(steps, errno.EIO)
        with pytest.raises(StorageFailed, match=str(journal.path)):
            journal.append(BATCHES[1], TIST)
        fake_disk.breaking = {}
        with pytest.raises(StorageFailed, match="cannot be appended"):
            journal.append(BATCHES[1], TIST)
        with pytest.raises(StorageFailed, match="cannot be finished"):
            journal.finish()
    assert lines_of(journal.path)[0] == BATCHES[0]


@pytest.mark.parametrize("step", ["create", "fsync", "rename"])
def test_a_fault_while_finishing_keeps_the_plain_form(flat: Layout, fake_disk: FakeDisk, step: str) -> None:
    write(flat)
    journal = JournalWriter(flat, TIST, disk=fake_disk)
    fake_disk.breaking = {step: errno.ENOSPC}
    with pytest.raises(StorageFull):
        journal.finish()
    assert os.listdir(flat.runs) == [f"{TIST}.jsonl"]
    assert lines_of(journal.path) == BATCHES
    JournalWriter(flat, TIST).finish()
