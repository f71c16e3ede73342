"""The scratch database: sorted without the system's temporary files, whatever the order of what is put in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_disk import small_disk

from archec.archive.held_back import Loss
from archec.catalogue.engines import open_catalogue
from archec.config import Config
from archec.errors import StorageFailed, StorageFull
from archec.gather.directory_cache import DirectoryMemory
from archec.gather.gone_files import GoneFiles
from archec.gather.options import Options
from archec.gather.spool import ChunkRead, FileRow, SeenRow, Spool, line_of, row_of
from archec.gather.template_texts import Job, chunk_reader, writing
from archec.ids import MAX_ID
from archec.redif.files import Blob
from archec.store.layout import create

FILE = FileRow(b"RePEc/aaa/sss/x\n.rdf", 1, "aaa/sss/x\n.rdf", 1)


def row(obi: str, n: int = 0, member: int = 1) -> SeenRow:
    return SeenRow(obi, f"{n:064x}", 1, member, n, obi, n, "utf-8", 1, 0, 0, FILE.path, FILE.place)


def read(rows: Iterable[SeenRow] = (), files: Iterable[FileRow] = (FILE,)) -> ChunkRead:
    return ChunkRead(list(map(line_of, rows)), list(files), [], {}, {}, 0)


@settings(max_examples=60, deadline=None)
@given(lots=st.lists(st.lists(st.text("ab:\0\u20ac\U0001f600", min_size=1, max_size=3), max_size=12), max_size=8))
def test_any_rows_come_by_id(lots: list[list[str]]) -> None:
    every = [obi for lot in lots for obi in lot]
    with TemporaryDirectory() as folder, Spool(Path(folder) / "spool") as spool:
        numbers = iter(range(len(every)))
        for lot in lots:
            spool.add([read(row(obi, next(numbers)) for obi in lot)])
        found = list(spool.found(frozenset()))
        assert [winner.id for winner, _ in found] == sorted(set(every))
        for winner, others in found:
            numbers = [n for n, obi in enumerate(every) if obi == winner.id]
            assert winner == row(winner.id, max(numbers))
            assert others == len(numbers) - 1


def test_places_of_a_repeated_handle_are_listed_in_the_order_of_the_data_set(tmp_path: Path) -> None:
    """Though what was seen is sorted by the texts."""
    rows = [
        row("RePEc:aaa:sss:1", n, member)._replace(own=own, sha256=sha256(b"%d %d" % (n, member)).hexdigest())
        for member, own in ((1, 1), (2, 3), (3, 0))
        for n in range(3)
    ]
    listing = BytesIO()
    with Spool(tmp_path / "spool") as spool:
        spool.add([read(reversed(rows))])
        (winner,) = spool.found(frozenset(), listing)
    assert winner == (rows[5], 8)
    at = f"{FILE.place}:"
    places = [at + n for n in "201201012"]
    assert listing.getvalue().decode()[:-1].split("\t") == ["RePEc:aaa:sss:1", "9", *places]


HANDLE = "RePEc:aaa:ssssss:"
WHITE = " \t\v\x1c\x1f\u3000"


@settings(max_examples=60, deadline=None)
@given(
    space=st.text(WHITE, min_size=1, max_size=4),
    item=st.text("z\x01\xe9\U0001f600", min_size=1, max_size=4),
    times=st.tuples(st.integers(0, 50_000), st.integers(1, 4_000)),
    kind=st.text("x ", max_size=4),
)
@example(space="\x1c", item="z", times=(300_000, 1), kind="")
@example(space=" ", item="\x01", times=(1, MAX_ID - len(HANDLE)), kind="")
@example(space=" ", item="\0", times=(0, MAX_ID - len(HANDLE)), kind="x")
def test_what_is_sorted_of_a_template_is_small_whatever_it_holds(
    space: str, item: str, times: tuple[int, int], kind: str
) -> None:
    spaces, items = times
    obi, path = HANDLE + item * items, f"RePEc/aaa/ssssss/{'x' * 4_000}.rdf"
    handle = HANDLE + space * spaces + item * items
    text = f"Template-Type: ReDIF-Paper 1.0{kind * 50_000}\nTitle: {'t' * 300_000}\nHandle: {handle}\n"
    with TemporaryDirectory() as folder:
        ((line,),) = [found.lines for found in chunk_reader(Path(folder))([Blob(path, text.encode(), 0, True, 1, 1)])]
    seen = row_of(line)
    assert seen.id == obi
    assert seen.handle == (handle if len(handle) <= MAX_ID else obi)
    assert seen.own == 1 + 2 * (not spaces), "the handle as written decides"
    assert len(line) < 20 * MAX_ID


def test_the_templates_of_a_file_with_a_long_name_take_no_memory_for_it(tmp_path: Path) -> None:
    path = f"RePEc/aaa/ssssss/{'x' * 4_000}.rdf"
    text = b"".join(b"Template-Type: x\nHandle: %d\n" % n for n in range(1000))
    (found,) = chunk_reader(tmp_path)([Blob(path, text, 0, True, 1, 1)])
    assert len(b"".join(found.lines)) < 250 * 1000
    with Spool(tmp_path / "spool") as spool:
        spool.add([found])
        rows = [winner for winner, _ in spool.found(frozenset())]
    assert {(row.path, row.place) for row in rows} == {(path.encode(), path[6:])}


@pytest.mark.slow
def test_more_repeats_of_an_id_than_a_block_holds(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        for n in range(0, 130_000, 10_000):
            spool.add([read(row("RePEc:aaa:sss:1", n + i) for i in range(10_000))])
            spool.add([read(row(f"RePEc:aaa:sss:{n}{i}", n + i) for i in range(500))])
        found = {winner.id: (winner, others) for winner, others in spool.found(frozenset())}
        assert len(found) == 13 * 500 + 1
        winner, others = found["RePEc:aaa:sss:1"]
        assert (others, winner.number) == (129_999, 129_999)


def test_no_statement_sorts_into_the_system_s_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*arguments: object, **options: object) -> sqlite3.Connection:
        db = connect(*arguments, **options)  # type: ignore[call-overload]
        db.set_trace_callback(asked.add)
        made.append(db)
        return db

    monkeypatch.setattr(sqlite3, "connect", watched)
    with Spool(tmp_path / "spool") as spool:
        files = [FileRow(b"x", 1, "aaa/x", 1), FileRow(b"x", 2, "aaa/x", 0, 0, "empty")]
        spool.add([read((row(f"RePEc:aaa:sss:{n}", n) for n in range(10)), files)])
        assert spool.superseded() == {1}
        assert spool.count() == (2, 1)
        assert spool.unread() == {2}
        assert list(spool.places()) == ["aaa/x"] * 2
        assert list(spool.unreadable(frozenset())) == [("aaa/x", False, "empty")]
        assert list(spool.unreadable(frozenset({2}))) == []
        assert len(list(spool.found(frozenset({7})))) == 10
        spool.add_losses([Loss("aaa", "all", "a"), Loss("bbb", "bbb", "b")])
        assert [loss.id for loss in spool.losses()] == ["a", "b"]
        spool.replan(["http://b/1", "http://a/2", "http://b/3"])
        assert sorted(spool.plan_hosts()) == [(0, "b", 2), (1, "a", 1)]
        assert spool.plan_after("b", 0, 5) == [(2, "http://b/3")]
        made[0].set_trace_callback(None)
        for statement in asked:
            if not statement.startswith(("SELECT", "INSERT", "DELETE")):
                continue
            plan = made[0].execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            assert "TEMP B-TREE" not in str(plan), statement


def test_a_file_of_which_a_part_could_not_be_read_is_not_read(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        spool.add([read(files=[FileRow(b"x", 1, "aaa/x", 1, 0)])])
        spool.add([read(files=[FileRow(b"x", 1, "aaa/x", 0, 0, "digest")])])
        spool.add([read(files=[FileRow(b"x", 1, "aaa/x", 1, 1)])])
        assert spool.superseded() == frozenset()
        assert list(spool.unreadable(frozenset())) == [("aaa/x", True, "digest")]


def test_a_full_disk_while_files_that_are_gone_are_noted(tmp_path: Path) -> None:
    urls = [f"http://www.example.org/{n}.pdf" for n in range(10_000)]
    full = pytest.raises(StorageFull, match="gone: No space left")
    with small_disk(tmp_path / "disk", "size=32k") as disk, closing(GoneFiles(disk)) as gone, full:
        list(map(gone.add, urls))


def test_texts_that_cannot_be_read_or_added_are_a_failure_of_storage(tmp_path: Path) -> None:
    layout, folder = create(tmp_path / "archive"), tmp_path / "spool"
    with pytest.raises(StorageFailed, match="texts-1: No such file"):
        writing(layout, folder, 1, True)([Job("RePEc:aaa:ssssss:1", "x.rdf", 1, 1, 0, 5, None)])
    text = b"Template-Type: ReDIF-Paper 1.0\nTitle: T\nHandle: RePEc:aaa:ssssss:1\n"
    config = Config(base=tmp_path)
    config.data_path.mkdir(parents=True)
    (config.data_path / "x.rdf").write_bytes(text)
    template = row("RePEc:aaa:ssssss:1")._replace(path=b"x.rdf", sha256=sha256(text).hexdigest())
    with (
        closing(open_catalogue(config.database, base=tmp_path, create=True)) as catalogue,
        DirectoryMemory(tmp_path / "reading.sqlite", config, Options(), catalogue) as memory,
        pytest.raises(StorageFailed, match=r"texts-\d+: No such file"),
    ):
        memory.reread(template, folder)
