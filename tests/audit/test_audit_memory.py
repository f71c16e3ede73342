"""What is remembered of checks, the order that follows from it, and the parts that keep memory flat."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.audit import entries as entries_module
from archec.audit.entries import Entry, Told, key_of, told_by
from archec.audit.memory import Bad, Memory, Stretch
from archec.audit.pace import Pace
from archec.audit.plan import parts_of
from archec.audit.sieve import KEY, Sieve
from archec.catalogue.model import KINDS, Kind, Note, Refipo, Version
from archec.catalogue.records import ObiChange, encode
from archec.errors import CorruptJournal, StorageFailed
from archec.store.journalfile import JournalFile
from archec.tist import MAX_TIST

checks = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(0, 10)).map(lambda c: (c[0], c[1], c[1] + c[2])),
    max_size=25,
)


@settings(max_examples=40)
@given(checks)
def test_stretches_say_when_each_batch_was_checked_last(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[int, int, int]]
) -> None:
    oracle: dict[tuple[int, int], int] = {}
    with Memory(tmp_path_factory.mktemp("memory") / "fixity.sqlite") as memory:
        for at, (run, first, last) in enumerate(done, 100):
            memory.checked(run, first, last, at)
            oracle.update(((run, batch), at) for batch in range(first, last + 1))
        said: dict[tuple[int, int], int] = {}
        for stretch in memory.stretches():
            for batch in range(stretch.first, stretch.last + 1):
                assert (stretch.run, batch) not in said
                said[stretch.run, batch] = stretch.at
        assert said == oracle


@given(checks, st.integers(0, 40))
def test_the_plan_has_everything_once_and_the_oldest_first(done: list[tuple[int, int, int]], end: int) -> None:
    oracle = {(run, batch): 0 for run in (1, 2, 3) for batch in range(1, 42)}
    for at, (run, first, last) in enumerate(done, 100):
        oracle.update(((run, batch), at) for batch in range(first, last + 1))
    known = [Stretch(run, batch, batch, at) for (run, batch), at in oracle.items() if at]
    journals = [JournalFile(run, Path(f"{run}.jsonl.gz"), True) for run in (1, 2, 3)]
    parts = parts_of(journals, known, {1: 41, 2: 41}, 10**9)
    planned = [
        (part.at, part.journal.tist, batch)
        for part in parts
        for batch in range(part.first, (part.last or 41) + 1)
    ]
    assert planned == sorted((at, run, batch) for (run, batch), at in oracle.items())
    assert all(part.at < 110 for part in parts_of(journals, known, {}, 110))


def test_consecutive_checks_are_one_row(tmp_path: Path) -> None:
    with Memory(tmp_path / "fixity.sqlite") as memory:
        for first in range(1, 1001, 10):
            memory.checked(7, first, first + 9, 100)
        assert memory.stretches() == [Stretch(7, 1, 1000, 100)]


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
        memory.know_journal(9, 4, 1200)
        assert memory.journals() == {9: (4, 1200)}
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
def test_the_sieve_keeps_every_record_in_order(
    tmp_path_factory: pytest.TempPathFactory, one: list[bytes], two: list[bytes], in_memory: int
) -> None:
    folder = tmp_path_factory.mktemp("sieve")
    with Sieve(folder, (KEY, KEY + 1), in_memory=in_memory) as sieve:
        for key in one:
            sieve.add(0, key)
        sieve.add(1, b"".join(key + b"!" for key in two))
        parts = list(sieve.parts())
    for side, given_keys, width in ((0, one, KEY), (1, two, KEY + 1)):
        kept = [part[side][i : i + KEY] for part in parts for i in range(0, len(part[side]), width)]
        assert kept == sorted(given_keys, key=lambda key: key[0])
    assert list(folder.iterdir()) == []


def test_keys_of_names_that_are_not_text() -> None:
    assert len(key_of("001/002/0003/\udcff")) == KEY


def test_pace() -> None:
    clock, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    pace = Pace(1000, clock=lambda: clock[0], sleep=sleep)
    for _ in range(100):
        pace.passed(100)
    assert sum(slept) == pytest.approx(10, abs=0.2)
    clock[0] += 50
    pace.passed(100)
    pace.passed(100)
    assert sum(slept) == pytest.approx(10.2, abs=0.2)
    Pace(0, sleep=sleep).passed(10**12)


ids = st.text(min_size=1).map(lambda text: f"RePEc:{text}") | st.from_regex(r"RePEc:[a-z]{3}:\w+:\d+", fullmatch=True)
sha256s = st.text("0123456789abcdef", min_size=64, max_size=64)
md5s = st.text("0123456789abcdef", min_size=32, max_size=32)
puts = st.dictionaries(st.integers(0, MAX_TIST), sha256s | st.none(), min_size=1, max_size=3)


@given(st.sampled_from(KINDS), ids, st.text(), puts, sha256s, md5s, st.integers(0, 10**9))
def test_lines_are_read_as_the_journal_has_them(
    kind: Kind, obi: str, handle: str, put: dict[int, str | None], other: str, md5: str, size: int
) -> None:
    """The quick way of reading a line says what the thorough one says."""
    sha256 = next((state for state in put.values() if state is not None), other)
    target = handle if kind == "fobi" else ""
    notes = {tist: Note(1, "new", path=handle, target=target) for tist in put}
    version = Version(sha256, md5, size, md5, "ReDIF-Paper", handle)
    line = encode(ObiChange(kind, obi, handle, put, version=version, notes=notes))
    told = told_by(line, "a test")
    if told is None:
        assert set(put.values()) == {None}
        return
    assert (told.id, told.put, told.sha256, told.size, told.target, told.md5) == (obi, put, sha256, size, target, md5)
    assert [entry.tist for entry in told.entries()] == [tist for tist, state in put.items() if state is not None]


def test_the_usual_line_is_read_without_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that is new: the pattern for such lines follows what the journal writes."""
    monkeypatch.setattr(entries_module, "_told_by_json", None)
    sha256, md5 = "1" * 64, "2" * 32
    for text, refs in (("3" * 32, (Refipo("http://h/a"),)), (None, ())):
        version = Version(sha256, md5, 7, text, "ReDIF-Paper 1.0", "A title", refs)
        notes = {5: Note(9, "new", path="RePEc/a/b.rdf", line=3, encoding="utf-8")}
        for handle in ("RePEc:A:b:1", ""):
            line = encode(ObiChange("tobi", "RePEc:a:b:1", handle, {5: sha256}, version=version, notes=notes))
            assert told_by(line, "a test") == Told("RePEc:a:b:1", {5: sha256}, sha256, 7, "", md5)


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
        told_by(line, "a test")
