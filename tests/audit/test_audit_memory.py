"""What is remembered of checks, the order that follows from it, and the parts that keep memory flat."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.audit.cross_check import KEY, PartitionedDiff
from archec.audit.expected import Amount, Entry, change_of, entries_of, key_of
from archec.audit.fixity import ReadPace
from archec.audit.journals import Ends
from archec.audit.last_checked import Bad, Checked, Memory, Part, parts_of
from archec.catalogue.journal_lines import ObiChange, encode
from archec.catalogue.model import TEXTS, Kind, Note, Version
from archec.errors import CorruptJournal, StorageFailed
from archec.store.layout import JournalFile
from archec.tist import MAX_TIST

SIZES = {1: 7, 2: 1, 3: 12}
"""Batches of three finished journals."""


def finished() -> list[JournalFile]:
    return [JournalFile(run, Path(f"{run}.jsonl.gz"), True) for run in SIZES]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 25), st.integers(1, 4)), max_size=15))
def test_sessions_of_checks(tmp_path_factory: pytest.TempPathFactory, sessions: list[tuple[int, int]]) -> None:
    """Sessions that stop after so many batches, in steps: each plan has all, the oldest first; memory never says that
    a batch was checked later than it was, and nothing is checked again before all was."""
    checked_at = {(run, batch): 0 for run, size in SIZES.items() for batch in range(1, size + 1)}
    with Memory(tmp_path_factory.mktemp("memory") / "fixity.sqlite") as memory:
        for now, (budget, step) in enumerate(sessions, 100):
            known = memory.checked()
            parts = parts_of(finished(), known, now)
            assert [part.at for part in parts] == sorted(part.at for part in parts)
            batches = [
                (part.journal.tist, batch, part.at, part.last is None)
                for part in parts
                for batch in range(part.first, (part.last or SIZES[part.journal.tist]) + 1)
            ]
            assert sorted(batch[:2] for batch in batches) == sorted(checked_at)
            assert all(at <= checked_at[run, batch] for run, batch, at, _ in batches)
            unchecked = [place for place, at in checked_at.items() if not at]
            assert [batch[:2] for batch in batches[: len(unchecked)]] == unchecked
            while batches and budget > 0:
                run, first, at, tail = batches[0]
                chunk = [batch for batch in batches[:step] if batch[0] == run and batch[2:] == (at, tail)]
                last = chunk[-1][1]
                memory.advance(run, first, last, now, end=tail and last == SIZES[run])
                checked_at.update(((run, batch), now) for batch in range(first, last + 1))
                del batches[: len(chunk)]
                budget -= len(chunk)
            if not batches:
                memory.complete(now)
                assert {row.oldest for row in memory.checked().values()} == {now}
            assert (memory.oldest() or 0) <= min((at for at in checked_at.values() if at), default=0)
        assert len(memory.checked()) <= len(SIZES)


def test_a_journal_that_grows(tmp_path: Path) -> None:
    """What a run has added to its journal since it was checked was never checked, and comes first."""
    (done, growing) = JournalFile(1, Path("1.jsonl.gz"), True), JournalFile(2, Path("2.jsonl"), False)
    with Memory(tmp_path / "fixity.sqlite") as memory:
        memory.advance(1, 1, 5, 100, end=True)
        memory.advance(2, 1, 3, 100, end=False)
        assert memory.checked() == {1: Checked(1, 100), 2: Checked(2, 0, 3, 100)}
        parts = parts_of([done, growing], memory.checked(), 200)
        assert parts == [Part(growing, 4, None, 0), Part(done, 1, None, 100), Part(growing, 1, 3, 100)]
        finished = growing._replace(finished=True)
        memory.advance(2, 4, 6, 200, end=True)
        assert parts_of([finished], memory.checked(), 300) == [Part(finished, 1, None, 100)]
        memory.advance(2, 1, 2, 300, end=False)
        assert memory.checked()[2] == Checked(2, 100, 2, 300)


def test_bad_entries(tmp_path: Path) -> None:
    bad = [Bad(Entry(tist, f"RePEc:a:b:{tist}", "0" * 64, 5, "", "0" * 32), "corrupt", 9, 100) for tist in range(1200)]
    with Memory(tmp_path / "new" / "fixity.sqlite") as memory:
        for item in random.Random(1).sample(bad, len(bad)):
            memory.remember_bad(item)
        assert list(memory.bad()) == bad
        assert memory.count_bad() == 1200
        memory.forget_bad(3, "RePEc:a:b:3")
        assert memory.seen_bad(3, "RePEc:a:b:3") is None
        assert memory.seen_bad(4, "RePEc:a:b:4") == 100
    with Memory(tmp_path / "new" / "fixity.sqlite") as memory:
        assert memory.count_bad() == 1199
        known = Amount(1200, 6000), Ends("0" * 64, "1" * 64, 4)
        memory.know_journal(9, *known)
        assert memory.journals() == {9: known}
        memory.forget_run(9)
        assert (memory.count_bad(), memory.journals(), memory.runs()) == (0, {}, set())


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"x" * 5000)
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE something (x)")
    db.close()
    for name in ("damaged", "other"):
        with pytest.raises(StorageFailed, match=name):
            Memory(tmp_path / name)


@settings(max_examples=40)
@given(
    st.lists(st.binary(min_size=KEY, max_size=KEY), max_size=60),
    st.lists(st.binary(min_size=KEY, max_size=KEY), max_size=60),
    st.integers(1, 400),
)
def test_the_diff_keeps_every_record_in_order(
    tmp_path_factory: pytest.TempPathFactory, one: list[bytes], two: list[bytes], in_memory: int
) -> None:
    folder = tmp_path_factory.mktemp("diff")

    @contextmanager
    def scratch() -> Iterator[Path]:
        with TemporaryDirectory(dir=folder) as name:
            yield Path(name)

    with closing(PartitionedDiff(scratch, (KEY, KEY + 1), in_memory=in_memory)) as diff:
        for key in one:
            diff.add(0, key)
        diff.add(1, b"".join(key + b"!" for key in two))
        parts = list(diff.parts())
    for side, given_keys in ((0, one), (1, two)):
        kept = [record[:KEY] for part in parts for record in part[side]]
        assert kept == sorted(given_keys, key=lambda key: key[0])
    assert list(folder.iterdir()) == []


def test_keys_of_names_that_are_not_text() -> None:
    assert len(key_of("001/002/0003/\udcff")) == KEY


def test_pace() -> None:
    clock, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    pace = ReadPace(1000, clock=lambda: clock[0], sleep=sleep)
    for _ in range(100):
        pace.passed(100)
    assert sum(slept) == pytest.approx(10, abs=0.2)
    clock[0] += 50
    pace.passed(100)
    pace.passed(100)
    assert sum(slept) == pytest.approx(10.2, abs=0.2)
    ReadPace(0, sleep=sleep).passed(10**12)


ids = st.text(min_size=1).map(lambda text: f"RePEc:{text}") | st.from_regex(r"RePEc:[a-z]{3}:\w+:\d+", fullmatch=True)
sha256s = st.text("0123456789abcdef", min_size=64, max_size=64)
md5s = st.text("0123456789abcdef", min_size=32, max_size=32)
puts = st.dictionaries(st.integers(0, MAX_TIST), sha256s | st.none(), min_size=1, max_size=3)


@given(st.sampled_from([*TEXTS]), ids, st.text(), puts, sha256s, md5s, st.integers(0, 10**9))
def test_lines_are_read_as_the_journal_has_them(
    kind: Kind, obi: str, handle: str, put: dict[int, str | None], other: str, md5: str, size: int
) -> None:
    sha256 = next((state for state in put.values() if state is not None), other)
    target = handle if kind == "fobi" else ""
    notes = {tist: Note(1, "new", reason=handle, target=target) for tist in put}
    version = Version(sha256, md5, size, md5, "ReDIF-Paper", handle)
    line = encode(ObiChange(kind, obi, handle, put, version=version, notes=notes))
    change = change_of(line, "a test")
    assert change is not None
    assert entries_of(change) == [
        Entry(tist, obi, state, size, target, md5) if state == sha256 else Entry(tist, obi, state, -1, target)
        for tist, state in put.items()
        if state is not None
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"obi","kind":"tobi","id":1,"put":{"1":null}}',
        b'{"type":"obi","kind":"tobi","id":"a","put":{"x":null}}',
        b'{"type":"obi","kind":"tobi","id":"a","put":{"-1":null}}',
        b'{"type":"obi","kind":"tobi","id":"a","put":{"1":"short"}}',
        b'{"type":"obi","kind":"tobi","id":"a","put":{"1":5}}',
        b'{"type":"obi","kind":"tobi","id":"a","put":{"1":null},"version":{}}',
        b'{"type":"obi","kind":"fobi","id":"a","put":{"1":null},"version":{"sha256":"","md5":"","size":-1}}',
        b'{"type":"obi","kind":"fobi","id":"a","put":{"1":null},"version":{"sha256":"","size":1}}',
        b'{"type":"obi","kind":"fobi","id":"a","put":{"1":null},"version":{"sha256":"","md5":"","size":1},"notes":[]}',
        b'{"type":"obi","kind":"fobi","id":"a","put":{"',
    ],
)
def test_lines_that_make_no_sense(line: bytes) -> None:
    with pytest.raises(CorruptJournal, match="a test"):
        change_of(line, "a test")
