"""Directories as sources: order, links, what cannot be read, what changes meanwhile."""

from __future__ import annotations

import os
import resource
import tarfile
from pathlib import Path

import pytest

from archec.errors import DataSetError
from archec.redif.files import Blob, DataSetSource, Item, Other, Unread
from archec.redif.source import open_source


def read(path: Path, max_file: int = 50_000_000) -> tuple[list[Item], DataSetSource]:
    with open_source(path, max_file=max_file, patterns=["*"]) as source:
        return list(source), source


def summary(items: list[Item]) -> list[tuple[str, str]]:
    return [
        (item.path, item.problem.code if isinstance(item, Unread) else type(item).__name__.lower()) for item in items
    ]


def test_a_tree_in_byte_order(tmp_path: Path) -> None:
    for name in ("RePEc/bbb/x.rdf", "RePEc/aaa/b.rdf", "RePEc/aaa/B.rdf", "RePEc/aaa/ü.rdf", "RePEc/aaa/s/1.rdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1000, 1000))
    os.utime(tmp_path / "RePEc/aaa/b.rdf", (2000, 2000))
    os.utime(tmp_path / "RePEc/bbb/x.rdf", (2**34, 2**34))
    (tmp_path / "RePEc/ccc").mkdir()
    items, source = read(tmp_path)
    assert summary(items) == [
        ("RePEc/", "directory"),
        ("RePEc/aaa/", "directory"),
        ("RePEc/aaa/B.rdf", "blob"),
        ("RePEc/aaa/b.rdf", "blob"),
        ("RePEc/aaa/s/", "directory"),
        ("RePEc/aaa/s/1.rdf", "blob"),
        ("RePEc/aaa/ü.rdf", "blob"),
        ("RePEc/bbb/", "directory"),
        ("RePEc/bbb/x.rdf", "blob"),
        ("RePEc/ccc/", "directory"),
    ]
    assert all(item.data.decode() == item.path for item in items if isinstance(item, Blob))
    assert (source.whole, source.newest, source.files, source.damage) == (True, 2000, 5, None)
    assert source.bytes_read == source.position == sum(len(i.data) for i in items if isinstance(i, Blob))
    assert source.size == 0


def test_links_and_devices_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "aaa").mkdir()
    (tmp_path / "aaa/real.rdf").write_text("x")
    (tmp_path / "aaa/link.rdf").symlink_to("real.rdf")
    (tmp_path / "aaa/loop").symlink_to("..")
    (tmp_path / "aaa/dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "aaa/pipe")
    items, source = read(tmp_path)
    assert summary(items) == [
        ("aaa/", "directory"),
        ("aaa/dangling", "link"),
        ("aaa/link.rdf", "link"),
        ("aaa/loop", "link"),
        ("aaa/pipe", "bad-member"),
        ("aaa/real.rdf", "blob"),
    ]
    assert source.whole


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "2020").mkdir()
    (tmp_path / "2020/x").write_text("x")
    (tmp_path / "current").symlink_to("2020")
    assert summary(read(tmp_path / "current")[0]) == [("x", "blob")]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"G\xf3rski.rdf")).write_text("x")
    (tmp_path / os.fsdecode(b"d\xf3")).mkdir()
    items, _ = read(tmp_path)
    assert summary(items) == [("G\udcf3rski.rdf", "bad-name"), ("d\udcf3/", "bad-name")]
    assert all(item.problem.path.isprintable() for item in items if isinstance(item, Unread))


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.rdf", "b.rdf", "c.rdf"):
        (tmp_path / name).write_text("x")
    real = os.open

    def refusing(path: object, *args: object, **more: object) -> int:
        if path in ("b.rdf", "sub"):
            raise PermissionError(13, "Permission denied")
        if path == "c.rdf":
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    items, source = read(tmp_path)
    assert summary(items) == [
        ("a.rdf", "blob"),
        ("b.rdf", "unreadable"),
        ("c.rdf", "changed-while-reading"),
        ("sub/", "unreadable"),
    ]
    assert source.whole


def test_a_machine_without_resources_is_no_fault_of_the_data_set(tmp_path: Path) -> None:
    (tmp_path / "/".join("abcdefgh")).mkdir(parents=True)
    (tmp_path / "/".join("abcdefgh") / "1.rdf").write_text("x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found: set[str] = set()
    try:
        for limit in range(max(map(int, os.listdir("/proc/self/fd"))) + 15):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                items, source = read(tmp_path)
                found.add(f"{len(items)} {source.whole}")
            except DataSetError as error:
                found.add(str(error).removeprefix("cannot read the data set: "))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    reason = "Too many open files (allow more open files (ulimit -n))"
    found.discard(f"cannot read the directory {tmp_path}: {reason}")
    assert found == {reason, "9 True"}


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
@pytest.mark.parametrize("by", [-5, 5])
def test_files_that_change_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, by: int
) -> None:
    line = b"Template-Type: ReDIF-Paper 1.0\n" * (size // 31 + 1)
    (tmp_path / "a.rdf").write_bytes(line[:size])
    real = os.fstat

    def before_it_changed(file: int) -> os.stat_result:
        status = list(real(file))
        status[6] -= by
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", before_it_changed)
    items, _ = read(tmp_path)
    assert summary(items)[-1] == ("a.rdf", "changed-while-reading")
    assert all(not (isinstance(item, Blob) and item.last) for item in items)


def test_sizes(tmp_path: Path) -> None:
    (tmp_path / "a.rdf").write_bytes(b"")
    (tmp_path / "b.rdf").write_bytes(b"Title: x\n" * 20_000)
    (tmp_path / "c.mov").write_bytes(b"\0\1\2\3" * 2_000_000)
    (tmp_path / "d.rdf").write_bytes(b"\0\1\2\3" * 50_000)
    with open_source(tmp_path, max_file=190_000) as source:
        items = list(source)
    assert summary(items) == [("a.rdf", "blob"), ("b.rdf", "blob"), ("c.mov", "other"), ("d.rdf", "too-large")]
    assert [len(item.data) for item in items if isinstance(item, Blob)] == [0, 180_000]
    assert source.files == 2


NAMES = ["a.rdf", "b.RDF", "c.ReDIF", "d.rdf~", "e.rdf.old", "f.redif.disabled", "g.txt", "g.TXT", "h", "i.pdf", ".rdf"]


@pytest.mark.parametrize(
    ("patterns", "more"),
    [
        ([], ""),
        (["*.txt"], "g.txt g.TXT"),
        (["AAA/*"], "d.rdf~ e.rdf.old f.redif.disabled g.txt g.TXT h i.pdf"),
        (["H", "*.old"], "h e.rdf.old"),
    ],
)
@pytest.mark.parametrize("form", ["directory", "tarball"])
def test_which_files_count(tmp_path: Path, form: str, patterns: list[str], more: str) -> None:
    folder = tmp_path / "RePEc" / "aaa"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(b"Template-Type: ReDIF-Paper 1.0\n")
    os.mkfifo(folder / "pipe.pdf")
    path = tmp_path / "RePEc"
    if form == "tarball":
        path = tmp_path / "RePEc.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(tmp_path / "RePEc" / "aaa", "aaa")
    else:
        (folder / "unreadable.pdf").symlink_to("/nowhere")
    with open_source(path, max_file=1000, patterns=patterns) as source:
        items = list(source)
    read = {item.path.removeprefix("aaa/") for item in items if isinstance(item, Blob)}
    assert read == {"a.rdf", "b.RDF", "c.ReDIF", ".rdf", *more.split()}
    others = {item.path.removeprefix("aaa/") for item in items if isinstance(item, Other)}
    assert others == {*NAMES, "pipe.pdf"} - read - ({"pipe.pdf"} if "AAA/*" in patterns else set())
    assert source.files == len(read)


def test_endless_depth(tmp_path: Path) -> None:
    here = tmp_path
    for _ in range(80):
        here = here / "d"
        here.mkdir()
    items, source = read(tmp_path)
    assert summary(items)[-1][1] == "too-deep"
    assert len(items) < 70
    assert source.whole


def test_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with open_source(tmp_path, max_file=10) as source:
            next(iter(source))
        source.close()
        assert not source.whole
        assert list(source) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_root_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*args: object, **more: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(DataSetError, match="Permission denied"):
        open_source(tmp_path, max_file=1)
