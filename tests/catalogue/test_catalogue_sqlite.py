"""What only the embedded engine can get wrong: its file."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue_data import fobi, lot, tobi
from msgspec.structs import replace

from archec import sqlite
from archec.catalogue.dump import dump
from archec.catalogue.model import TEXTS, Claim, DataSet, Run
from archec.catalogue.sqlite import SCHEMA_VERSION, SQLiteCatalogue
from archec.errors import CatalogueError, StorageFull
from archec.history import History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c # ?%41.sqlite"


@pytest.fixture
def catalogue(path: Path) -> Iterator[SQLiteCatalogue]:
    catalogue = SQLiteCatalogue("sqlite:///c", path, create=True)
    yield catalogue
    catalogue.close()


def opened(path: Path, *, create: bool = False, read_only: bool = False) -> SQLiteCatalogue:
    return SQLiteCatalogue(f"sqlite:///{path}", path, create=create, read_only=read_only)


def read_all(path: Path) -> None:
    catalogue = opened(path)
    try:
        list(dump(catalogue, everything=True))
    finally:
        catalogue.close()


def test_a_foreign_file_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"This is a letter, not a database. " * 100)
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(CatalogueError, match="not an SQLite database"):
            opened(path, create=create)
    assert path.read_bytes() == before


def test_a_foreign_database_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mi (id)")
    other.close()
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(CatalogueError, match="something else"):
            opened(path, create=create)
    assert path.read_bytes() == before


def test_a_snapshot_does_not_change_while_another_process_writes(path: Path, catalogue: SQLiteCatalogue) -> None:
    catalogue.write(lot(1, tobi("repec:a", 100)))
    with opened(path, read_only=True) as reader:
        with reader.snapshot():
            before = reader.position()
            with reader.snapshot():
                pass  # the outer one is not ended by it
            catalogue.write(lot(2, tobi("repec:a", 100, 200)))
            assert reader.position() == before
            assert reader.obis("tobi", ["repec:a"])["repec:a"].history.tists == (100,)
        assert reader.position().batch == 2
        assert reader.obis("tobi", ["repec:a"])["repec:a"].history.tists == (100, 200)
        with pytest.raises(CatalogueError), reader.snapshot():
            reader.fetch("SELECT nothing FROM nowhere")
        catalogue.write(lot(3))
        assert reader.position().batch == 3


def test_an_empty_file_becomes_one_only_on_demand(path: Path) -> None:
    path.touch()
    with pytest.raises(CatalogueError, match="is empty"):
        opened(path)
    opened(path, create=True).close()
    opened(path).close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"no directory .*/nowhere"):
        opened(tmp_path / "nowhere" / "c.sqlite", create=True)
    with pytest.raises(CatalogueError):
        opened(tmp_path, create=True)


@pytest.mark.parametrize(("version", "advice"), [(0, "rebuild"), (99, "newer")])
def test_another_schema_version_is_refused(catalogue: SQLiteCatalogue, path: Path, version: int, advice: str) -> None:
    catalogue.close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(CatalogueError, match=f"version {version}, this archec works with {SCHEMA_VERSION}") as caught:
        opened(path)
    assert advice in caught.value.hint


def test_damage_is_named_with_the_way_out(catalogue: SQLiteCatalogue, path: Path) -> None:
    catalogue.write(lot(1, *[tobi(f"t{i:05d}") for i in range(3000)]))
    catalogue.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(3 * 8192)
        file.write(os.urandom(size - 4 * 8192))
    with pytest.raises(CatalogueError) as caught:
        read_all(path)
    assert "damaged" in caught.value.message
    assert "archec rebuild" in caught.value.hint


def test_half_a_file(catalogue: SQLiteCatalogue, path: Path) -> None:
    catalogue.write(lot(1, *[tobi(f"t{i:05d}") for i in range(3000)]))
    catalogue.close()
    os.truncate(path, path.stat().st_size // 2 + 17)
    with pytest.raises(CatalogueError, match="damaged"):
        read_all(path)


DOCUMENTS = (("versions", "doc"), ("entries", "note"), ("visits", "doc"), ("runs", "doc"), ("data_sets", "doc"))


FOREIGN = ("", "{", "[]", "1", '{"id":"a"}', '{"sha256":"a","md5":[],"size":1}', "[" * 100_000)


@pytest.mark.parametrize("doc", FOREIGN)
def test_a_document_of_someone_else(catalogue: SQLiteCatalogue, path: Path, doc: str) -> None:
    catalogue.write(lot(1, tobi("a"), fobi("a", 1), runs=[Run(1)], data_sets=[DataSet(1, 1)]))
    with sqlite3.connect(path) as db:
        changed = [db.execute(f"UPDATE {table} SET {column} = ?", (doc,)).rowcount for table, column in DOCUMENTS]
    db.close()
    assert all(changed)
    for kind in TEXTS:
        with pytest.raises(CatalogueError):
            list(catalogue.all(kind))
        with pytest.raises(CatalogueError):
            catalogue.obis(kind, ["a"])
    with pytest.raises(CatalogueError):
        list(catalogue.tobi_files())
    for read in (catalogue.runs, catalogue.data_sets):
        with pytest.raises(CatalogueError):
            list(read())


@pytest.mark.parametrize(("table", "column"), [*DOCUMENTS, ("claims", "doc"), ("mi", "h"), ("mi", "place")])
def test_a_number_in_the_place_of_a_text(catalogue: SQLiteCatalogue, path: Path, table: str, column: str) -> None:
    """A flipped bit can make one of a text; SQLite itself would not keep it in such a column."""
    claimed = replace(tobi("a", 1, 2), claims=(Claim(1, 1, None),))
    catalogue.write(lot(1, claimed, fobi("a", 1), runs=[Run(1)], data_sets=[DataSet(1, 1)]))
    with sqlite3.connect(path) as db:
        sql = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        db.execute("PRAGMA writable_schema = ON")
        untyped = sql.replace(f" {column} TEXT", f" {column}")
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (untyped, table))
    db.close()
    with sqlite3.connect(path) as db:
        assert db.execute(f"UPDATE {table} SET {column} = 5").rowcount
    db.close()
    with pytest.raises(CatalogueError):
        read_all(path)


def test_ids_that_are_no_texts(catalogue: SQLiteCatalogue, path: Path) -> None:
    catalogue.write(lot(1, tobi("a"), fobi("u", 1)))
    with sqlite3.connect(path) as db:
        for table in ("mo", "entries"):
            db.execute(f"UPDATE {table} SET id = x'ff'")
    db.close()
    for read in (catalogue.incidences("tobi"), catalogue.all("fobi"), catalogue.due(5)):
        with pytest.raises(CatalogueError, match=r"the catalogue is damaged: b'\\xff' as id"):
            list(read)


def test_values_are_checked_without_copies_of_them(catalogue: SQLiteCatalogue) -> None:
    """A host may have a million files, which are read at once."""
    sql = "WITH RECURSIVE n(tist) AS (SELECT 1 UNION ALL SELECT tist + 1 FROM n LIMIT 50000) SELECT tist FROM n"
    tracemalloc.start()
    try:
        found = catalogue.fetch(sql)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 50_000
    assert most - held < 1_000_000


@pytest.mark.parametrize("table", ["mi", "versions", "entries", "visits"])
def test_one_part_of_someone_else(catalogue: SQLiteCatalogue, path: Path, table: str) -> None:
    catalogue.write(lot(1, tobi("a", 1, 2), fobi("a", 1)))
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {table} SET {'h' if table == 'mi' else dict(DOCUMENTS)[table]} = '[]'")
    db.close()
    said = "the history of a in the catalogue is invalid" if table == "mi" else "a catalogue document is broken"
    with pytest.raises(CatalogueError, match=said):
        list(catalogue.all("fobi" if table == "visits" else "tobi"))


def test_a_full_disk_undoes_the_lot_and_keeps_the_rest(catalogue: SQLiteCatalogue) -> None:
    catalogue.write(lot(1, tobi("a")))
    before = list(dump(catalogue, everything=True))
    pages = catalogue.fetch("PRAGMA page_count")[0][0]
    catalogue.fetch(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(StorageFull, match="no space left"):
        catalogue.write(lot(2, *[tobi(f"t{i}") for i in range(1000)]))
    assert list(dump(catalogue, everything=True)) == before
    catalogue.fetch("PRAGMA max_page_count = 1000000")
    catalogue.write(lot(2, *[tobi(f"t{i}") for i in range(1000)]))
    assert catalogue.position().batch == 2


def test_a_lock_that_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_BUSY", 0.05)
    catalogue = opened(path, create=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogueError, match="locked"):
        catalogue.write(lot(1))
    assert catalogue.position().batch == 0
    other.execute("ROLLBACK")
    other.close()
    catalogue.write(lot(1))
    catalogue.close()


def test_a_file_or_folder_that_may_not_be_used(catalogue: SQLiteCatalogue, path: Path) -> None:
    catalogue.close()
    path.chmod(0o000)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read and write everywhere")
    for read_only in (True, False):
        with pytest.raises(CatalogueError, match=r"cannot be opened.*no permission to read"):
            opened(path, read_only=read_only)
    path.chmod(0o400)
    reader, writer = opened(path, read_only=True), opened(path)
    with pytest.raises(CatalogueError, match="cannot be written"):
        writer.write(lot(1))
    writer.close()
    reader.close()
    path.parent.chmod(0o000)
    try:
        with pytest.raises(CatalogueError, match=r"cannot be reached.*check the owner"):
            opened(path)
    finally:
        path.parent.chmod(0o700)


def test_pages_cost_the_same_at_any_depth(catalogue: SQLiteCatalogue) -> None:
    """Each ordered read is one range of an index: no sorting, no reading of what was passed."""
    statements: list[str] = []
    catalogue.write(lot(1, tobi("a"), fobi("u", 1), runs=[Run(1)]))
    catalogue.connection.set_trace_callback(statements.append)
    for kind in TEXTS:
        catalogue.changed(kind, 0, "x")
    for pages in (catalogue.scan(), catalogue.all("tobi"), catalogue.all("fobi"), catalogue.due(5)):
        next(iter(pages))
    next(iter(catalogue.texts("tobi")))
    next(catalogue.runs())
    catalogue.connection.set_trace_callback(None)
    ordered = [statement for statement in statements if "ORDER BY" in statement]
    assert len(ordered) == 8
    for statement in statements:
        plan = [row[3] for row in catalogue.connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert plan[0].startswith("SEARCH "), (statement, plan)
        if statement in ordered:
            behind = (">(?,?)", "(id>?)", "(kind=? AND text>?)", "(tist>?)")
            assert any(key in plan[0] for key in behind), (statement, plan)
        else:
            assert re.search(r"\(id=\?( AND kind=\?)?\)", plan[0]), (statement, plan)
        assert not any("TEMP B-TREE" in step for step in plan), (statement, plan)


@pytest.mark.parametrize("column", ["sha256", "md5", "text"])
def test_versions_are_found_by_their_checksums(catalogue: SQLiteCatalogue, column: str) -> None:
    where = "kind = 'tobi' AND text = x'00' AND first IS NOT NULL" if column == "text" else f"{column} = x'00'"
    sql = f"EXPLAIN QUERY PLAN SELECT id FROM versions WHERE {where}"
    ((_, _, _, plan),) = catalogue.connection.execute(sql)
    assert f"versions_{column} (" in plan
    assert f"{column}=?" in plan


def test_pages_of_lists_are_ranges_of_an_index(catalogue: SQLiteCatalogue) -> None:
    statements: list[str] = []
    gone = fobi("u", 1)
    gone = replace(gone, history=History.of({1: gone.history.states[0], 2: None, 3: gone.history.states[0], 4: None}))
    lost = replace(gone, id="w")
    catalogue.write(lot(1, tobi("a"), tobi("b", 1, 2, lost=True), gone, lost))
    catalogue.connection.set_trace_callback(statements.append)
    reads = (catalogue.incidences, catalogue.lost, catalogue.returned)
    of_run = catalogue.incidences("tobi", run=1)
    for pages in (*(read(kind) for read in reads for kind in TEXTS), of_run, catalogue.tobi_files("a")):
        next(iter(pages), None)
    catalogue.referring(["http://h/all"], 5)
    catalogue.file_states(["u"])
    catalogue.connection.set_trace_callback(None)
    assert sum(") > (" in statement for statement in statements) == 7
    for statement in statements:
        if statement in ("BEGIN", "COMMIT"):
            continue
        plan = [row[3] for row in catalogue.connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert all(step.startswith(("SEARCH ", "LIST SUBQUERY")) for step in plan), (statement, plan)
        assert ">(?,?)" in plan[0] or ") > (" not in statement, (statement, plan)


def test_many_urls_that_no_template_names_are_looked_up_at_once(catalogue: SQLiteCatalogue) -> None:
    catalogue.write(lot(1, tobi("a"), tobi("b")))
    statements: list[str] = []
    catalogue.connection.set_trace_callback(statements.append)
    found = catalogue.referring([*(f"http://h/{number}" for number in range(300)), "http://h/all"], 1)
    assert {url: [one.id for one in named] for url, named in found.items()} == {"http://h/all": ["a"]}
    assert len(statements) < 10


def _read(path: Path, ready: Any, done: Any) -> None:
    reader = SQLiteCatalogue("sqlite:///x", path, read_only=True)
    ready.wait()
    last = False
    while not last:
        last = done.is_set()
        least = reader.position().batch * 50
        ids = [one.id for one in reader.scan()]
        assert ids == sorted(set(ids))
        assert least <= len(ids) <= 3000
    assert len(ids) == 3000
    reader.close()


def test_other_processes_read_while_one_writes(catalogue: SQLiteCatalogue, path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(3), context.Event()
    readers = [context.Process(target=_read, args=(path, ready, done)) for _ in range(2)]
    for reader in readers:
        reader.start()
    ready.wait(60)
    for number in range(1, 61):
        catalogue.write(lot(number, *[tobi(f"{i:03d}-{number:02d}") for i in range(50)]))
    done.set()
    for reader in readers:
        reader.join(60)
        assert reader.exitcode == 0


def test_what_was_written_survives_kill_9(path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from archec.catalogue.sqlite import SCHEMA_VERSION, SQLiteCatalogue
        from catalogue_data import lot, tobi
        catalogue = SQLiteCatalogue("sqlite:///x", Path(sys.argv[1]), create=True)
        number = 0
        while True:
            number += 1
            catalogue.write(lot(number, *[tobi(f"{number}-{i}") for i in range(20)]))
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
    """
    here = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": here}) as child:
        assert child.stdout is not None
        for _ in range(40):
            said = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        said = max([said, *map(int, child.stdout.read().split())])
    catalogue = opened(path)
    assert catalogue.position().batch in (said, said + 1)
    assert sum(1 for _ in catalogue.scan()) == 20 * catalogue.position().batch
    catalogue.close()
