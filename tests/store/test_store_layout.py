"""The descriptor of an obi store, and f(tist, id) for the ids that a hostile source may send."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import ArchecError, BadName, ConfigError, CorruptArchive
from archec.ids import escape, unescape
from archec.store import layout as layouts
from archec.store.layout import (
    DESCRIPTOR,
    NAMASTE,
    Layout,
    create,
    fan,
    file_name,
    open_layout,
    tist_of_path,
    tist_path,
)
from archec.tist import MAX_TIST

TIST = 1352481230
TISTS = st.integers(0, MAX_TIST)

HOSTILE = st.one_of(
    st.text(min_size=1, max_size=60),
    st.text(alphabet="/.\0~%–aA \n", min_size=1, max_size=300),
    st.sampled_from([".", "..", "...", "/", "\0", "a" * 5000, "–" * 5000, "%2E", "x" * 300 + "~" + "0" * 32, "\ud800"]),
)


def test_create_writes_a_tree_that_says_what_it_is(tmp_path: Path) -> None:
    layout = create(tmp_path / "deep" / "archive", fanout=256)
    text = (layout.root / NAMASTE).read_text(encoding="utf-8")
    words = ("tist", "RePEc%3Aaaa%3Assssss%3A1", "032/184/2531", "runs/", "fanout", "symbolic link", "sha256", "XXH3")
    for word in words:
        assert word in text
    assert json.loads((layout.root / DESCRIPTOR).read_text())["version"] == 1
    assert layout.runs.is_dir()
    assert open_layout(layout.root) == layout


def test_the_notice_tells_the_truth(tmp_path: Path) -> None:
    layout = create(tmp_path / "archive")
    url = "http://openlib.org/home/krichel/"
    assert layout.path(TIST, url) in (layout.root / NAMASTE).read_text(encoding="utf-8")
    long = layout.path(TIST, "a" * 400).rpartition("/")[2]
    assert len(long) == 255
    assert long[222] == "~"


def test_create_again_is_fine_and_another_fanout_is_not(tmp_path: Path) -> None:
    layout = create(tmp_path / "archive")
    before = (layout.root / DESCRIPTOR).stat().st_mtime_ns
    assert create(tmp_path / "archive") == layout
    assert (layout.root / DESCRIPTOR).stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="already an archive with a fan-out of 0"):
        create(tmp_path / "archive", fanout=256)
    with pytest.raises(ConfigError, match="not possible"):
        create(tmp_path / "other", fanout=7)


def test_create_refuses_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    (tmp_path / "letters").touch()
    with pytest.raises(ConfigError, match="'letters'"):
        create(tmp_path)
    (tmp_path / "letters").unlink()
    create(tmp_path)


def test_create_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchecError, match="file"):
        create(tmp_path / "file")


def test_create_carries_on_after_a_crash(tmp_path: Path) -> None:
    layout = create(tmp_path / "archive")
    (layout.root / DESCRIPTOR).unlink()
    (layout.root / ".+1-1.part").touch()
    assert create(layout.root) == layout


def test_open_what_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="archec init"):
            open_layout(path)
    layout = create(tmp_path / "archive")
    (layout.runs / "1.jsonl").touch()
    (layout.root / DESCRIPTOR).unlink()
    with pytest.raises(ConfigError, match="verify --repair-from COPY"):
        open_layout(layout.root)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 2}, ConfigError, "version 2"),
        ({"version": "1"}, CorruptArchive, "no version"),
        ({"version": True}, CorruptArchive, "no version"),
        ({"fanout": 16}, CorruptArchive, "fanout"),
        ({"fanout": False}, CorruptArchive, "fanout"),
        ({"inversion": "none"}, CorruptArchive, "inversion"),
        ({"name": None}, CorruptArchive, "name"),
        ({"max_name": 100}, CorruptArchive, "max_name"),
        ({"more": 1}, CorruptArchive, "'more'"),
    ],
)
def test_a_descriptor_that_says_something_else(
    tmp_path: Path, change: dict[str, object], error: type[ArchecError], message: str
) -> None:
    path = create(tmp_path / "archive").root / DESCRIPTOR
    path.chmod(0o644)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(error, match=message) as caught:
        open_layout(path.parent)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 60_000, b"null", b'{"version":1}'])
def test_a_damaged_descriptor(tmp_path: Path, data: bytes) -> None:
    path = create(tmp_path / "archive").root / DESCRIPTOR
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(CorruptArchive, match="verify --repair-from COPY"):
        open_layout(path.parent)


def test_the_papers_example_with_its_slip_corrected() -> None:
    assert tist_path(1352481230) == "032/184/2531"


@given(TISTS)
def test_the_directory_of_a_tist_leads_back_to_it(tist: int) -> None:
    path = tist_path(tist)
    assert [len(part) for part in path.split("/")][:2] == [3, 3]
    assert tist_of_path(path) == tist


@given(TISTS, TISTS)
def test_two_tists_never_share_a_directory(one: int, other: int) -> None:
    assert (tist_path(one) == tist_path(other)) == (one == other)


@pytest.mark.parametrize("path", ["", "032/184", "032/184/2531/x", "03a/184/2531", "0321/84/2531", "../184/2531"])
def test_what_is_no_directory_of_a_tist(path: str) -> None:
    with pytest.raises(BadName):
        tist_of_path(path)


@given(HOSTILE)
def test_file_names_are_names_and_lead_back(obi: str) -> None:
    name = file_name(obi)
    assert len(name.encode()) <= 255
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..")
    escaped = escape(obi)
    assert unescape(escaped) == obi
    if 2 < len(escaped) <= 255:
        assert name == escaped


@given(st.text(min_size=100, max_size=400), st.text(min_size=100, max_size=400))
def test_long_names_stay_apart(one: str, other: str) -> None:
    try:
        assert (file_name(one) == file_name(other)) == (one == other)
    except UnicodeEncodeError:
        pytest.fail("a lone surrogate must not stop the archive")


def test_a_long_name_is_cut_at_an_escape() -> None:
    url = "http://x/" + "é" * 300
    name = file_name(url)
    head, _, digest = name.rpartition("~")
    assert len(digest) == 32
    assert escape(url).startswith(head)
    assert head.count("%") * 3 == len(head) - len("httpx")
    assert len(name) > 250


@given(id=HOSTILE, tist=TISTS, fanout=st.sampled_from([0, 256]))
def test_every_id_has_a_path_of_plain_components(id: str, tist: int, fanout: int) -> None:  # noqa: A002
    layout = Layout(Path("/a"), fanout)
    path = layout.path(tist, id)
    assert path.startswith(layout.directory(tist, id) + "/")
    parts = path.split("/")
    assert len(parts) == layout.depth + 1
    for part in parts:
        assert 0 < len(os.fsencode(part)) <= 255
        assert part not in (".", "..")
        assert "\0" not in part
    if fanout:
        assert parts[3] == fan(id)


@given(one=HOSTILE, two=HOSTILE)
def test_two_ids_never_share_a_path(one: str, two: str) -> None:
    layout = Layout(Path("/a"))
    assert (layout.path(TIST, one) == layout.path(TIST, two)) == (one == two)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENAMETOOLONG])
def test_a_file_system_without_links_or_long_names_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(ConfigError, match="has no symbolic links with names of 255 bytes"):
        create(tmp_path / "archive")
    monkeypatch.undo()
    assert create(tmp_path / "archive").runs.is_dir()


def test_a_kill_while_the_file_system_is_tried_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(os, "symlink", lambda target, link: made.append(os.fspath(link)))
    create(tmp_path / "archive")
    monkeypatch.undo()
    (link,) = made
    assert len(os.fsencode(Path(link).name)) == 255
    (root := tmp_path / "killed").mkdir()
    (root / Path(link).name).symlink_to(NAMASTE)
    create(root)
    assert sorted(os.listdir(root)) == [NAMASTE, DESCRIPTOR, "runs"]


def test_a_file_system_that_ignores_case_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folding(path: Path) -> bool:
        return path.parent.is_dir() and path.name.lower() in map(str.lower, os.listdir(path.parent))

    monkeypatch.setattr(layouts.Path, "exists", folding)
    with pytest.raises(ConfigError, match="does not distinguish upper and lower case"):
        create(tmp_path / "archive")
