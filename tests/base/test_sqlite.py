"""SQLite files: opened in one way, with errors in the owner's words."""

from __future__ import annotations

import os
import resource
import sqlite3
from pathlib import Path

import pytest
from small_disk import fill, small_disk

from archec.errors import StorageFailed, StorageFull
from archec.sqlite import Database, Role

ROLE = Role("the list", StorageFailed, "throw it away")
SCHEMA = "CREATE TABLE words (word TEXT PRIMARY KEY);"


def made(path: Path) -> Database:
    database = Database(path, ROLE)
    try:
        database.use_wal()
        database.make(SCHEMA, 7, 1)
    except BaseException:
        database.close()
        raise
    return database


def test_tables_are_made_once_and_rows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a b#?.sqlite"
    with made(path) as database, database.transaction() as db:
        db.execute("INSERT INTO words VALUES ('x')")
    with made(path) as database:
        assert database.kind() == (7, 1)
        assert database.fetch("SELECT word FROM words") == [("x",)]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_an_exception_takes_everything_back(tmp_path: Path) -> None:
    with made(tmp_path / "x") as database:

        def fails() -> None:
            with database.transaction() as db:
                db.execute("INSERT INTO words VALUES ('x')")
                raise KeyError

        with pytest.raises(KeyError):
            fails()
        assert database.fetch("SELECT * FROM words") == []


def test_a_snapshot_that_a_signal_interrupts_hinders_no_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(tmp_path / "x") as database:

        def interrupted(*_: object) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(database, "rows", interrupted)
        with pytest.raises(KeyboardInterrupt), database.snapshot():
            pass
        with database.transaction() as db:
            db.execute("INSERT INTO words VALUES ('x')")
        assert database.fetch("SELECT word FROM words") == [("x",)]


def test_reading_only(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(StorageFailed, match="the list cannot be opened"):
        Database(path, ROLE, read_only=True)
    with pytest.raises(StorageFailed, match="the list cannot be opened"):
        Database(path, ROLE, create=False)
    made(path).close()
    with Database(path, ROLE, read_only=True) as database:
        assert database.fetch("SELECT * FROM words") == []
        with pytest.raises(StorageFailed, match="for reading only"), database.transaction():
            pass
        with pytest.raises(StorageFailed, match="cannot be written to"):
            database.fetch("INSERT INTO words VALUES ('x') RETURNING word")
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=200k") as place:
        with made(place / "x") as database, database.transaction() as db:
            db.execute("INSERT INTO words VALUES ('x')")
        fill(place)
        for _ in range(2):
            with pytest.raises(StorageFull):
                made(place / "x")  # leaves -wal and -shm
            with Database(place / "x", ROLE, read_only=True) as database:
                assert database.fetch("SELECT * FROM words") == [("x",)]
                with pytest.raises(StorageFailed, match="for reading only"), database.transaction():
                    pass


def test_a_disk_without_inodes_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=2m,nr_inodes=4") as place:
        with made(place / "x") as database, database.transaction() as db:
            db.execute("INSERT INTO words VALUES ('x')")
        for n in range(2):
            (place / f"other{n}").touch()
        with pytest.raises(StorageFull, match="no space left") as raised:
            made(place / "x")
        assert "df -i" in raised.value.hint
        with Database(place / "x", ROLE, read_only=True) as database:
            assert database.fetch("SELECT * FROM words") == [("x",)]


def test_a_write_that_the_file_system_refuses(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with made(tmp_path / "x") as database:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            with pytest.raises(StorageFailed, match="SQLite refused: disk I/O error") as raised:
                database.fetch("INSERT INTO words VALUES (?) RETURNING word", ("x" * 50_000,))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert raised.value.hint == "check the disk, its file system and your quota"


def test_a_path_that_is_too_long_for_sqlite(tmp_path: Path) -> None:
    place = tmp_path / ("d" * 250) / ("d" * 250)
    place.mkdir(parents=True)
    with pytest.raises(StorageFailed, match="SQLite opens no file with so long a path"):
        made(place / "x")


def test_a_reader_beside_a_writer(tmp_path: Path) -> None:
    with made(tmp_path / "x") as writer, Database(tmp_path / "x", ROLE, read_only=True) as reader:
        with writer.transaction() as db:
            db.execute("INSERT INTO words VALUES ('x')")
            assert reader.fetch("SELECT * FROM words") == []
        assert reader.fetch("SELECT * FROM words") == [("x",)]


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StorageFailed, match=r"x: this is not an SQLite database.*throw it away"):
        made(path)
    path.unlink()
    with made(path) as database:
        with pytest.raises(StorageFailed, match="a value cannot be stored in the list"):
            database.fetch("SELECT ?", ("\ud800",))
        with pytest.raises(StorageFailed, match="SQLite refused: no such table"):
            database.fetch("SELECT * FROM absent")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with Database(path, ROLE) as database, pytest.raises(StorageFailed, match="the list is damaged"):
        database.fetch("SELECT * FROM words")
    path.write_bytes(data.replace(b"words", b"w\xe9rds").replace(b"CREATE", b"CREATx"))
    with Database(path, ROLE) as database, pytest.raises(StorageFailed, match="the list is damaged"):
        database.is_empty()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe-wal").touch()
    for read_only in (True, False):
        with pytest.raises(StorageFailed, match="pipe: is not a file"):
            Database(tmp_path / "pipe", ROLE, read_only=read_only)


def test_another_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archec.sqlite._BUSY", 0.05)
    made(tmp_path / "x").close()
    other = sqlite3.connect(tmp_path / "x", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with (
            Database(tmp_path / "x", ROLE) as database,
            pytest.raises(StorageFailed, match="locked"),
            database.transaction(),
        ):
            pass
    finally:
        other.close()
