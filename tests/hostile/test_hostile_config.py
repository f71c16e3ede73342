"""Configurations that are wrong: one line that says what and where, exit 1, and nothing has been touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from gather_support import archec_inline, make
from hostile_support import assert_clean, good, written

WRONG = {
    "unknown key": ("objct_store: x\n", "config.yaml: unknown setting objct_store (did you mean object_store?)"),
    "unknown key in a group": ("fetch:\n  dealy: 3\n", "unknown setting fetch.dealy (did you mean fetch.delay?)"),
    "unknown key that speaks": ('"a\\e[31m": 1\n', "unknown setting a\\x1b[31m"),
    "key that is no text": ("3: x\n", "unknown setting 3"),
    "several": (
        "nam: x\nworkers: -1\nfetch: {dealy: 3}\n",
        "unknown setting nam (did you mean name?); workers: -1: must be a whole number, 0 or more; unknown setting",
    ),
    "wrong type": ("workers: many\n", "workers: 'many'"),
    "number for text": ("name: 3\n", "name: 3: must be text"),
    "text for a list": ("fetch:\n  allow_networks: 10.0.0.0/8\n", "fetch.allow_networks"),
    "list for a group": ("fetch: [1]\n", "fetch must be a group"),
    "text for a group": ("fetch: x\n", "fetch must be a group"),
    "NUL": ('object_store: "a\\0b"\n', "object_store: 'a\\x00b': must be text without control characters"),
    "surrogate": ('object_store: "a\\ud800"\n', "object_store"),
    "no number": ("max_loss: .nan\n", "max_loss"),
    "endless": ("lost_grace: -1\n", "lost_grace"),
    "too many": ("max_loss: 7\n", "max_loss"),
    "not YAML": ("a: [\n", "config.yaml:2: not valid YAML"),
    "two documents": ("name: x\n---\nname: y\n", "not valid YAML"),
    "code": ("name: !!python/object/apply:os.system [echo]\n", "config.yaml:1: not valid YAML"),
    "a group twice": ("access: {open: none}\nname: x\naccess:\n  cors: []\n", "config.yaml:3: access is given twice"),
    "a key twice": ("fetch: {delay: 1s, deny: [], deny: [x.org]}\n", "config.yaml:1: deny is given twice"),
    "a NUL in a path": ('collections:\n  web: {index: "/a\\0b"}\n', "collections: '/a\\x00b': must be text without"),
    "no such day": ("name: 2027-02-30\n", "not valid YAML: day "),
    "no time": ("name: !!timestamp x\n", "not valid YAML"),
    "no switch": ("name: !!bool x\n", "not valid YAML"),
    "no digits": ("name: !!int ''\n", "not valid YAML"),
    "deep": ("- " * 5000 + "x\n", "config.yaml"),
    "itself": ("fetch: &a\n  robots: *a\n", "fetch.robots"),
    "a list": ("- x\n", "key: value"),
    "no such store": ("object_store: nowhere/at/all\n", "nowhere/at/all: is not an archive"),
    "store that is a file": ("object_store: config.yaml\n", "config.yaml: is not an archive"),
    "no such data set": ("ReDIF_directory: nowhere\n", "nowhere: no such data set"),
    "data set that is no tarball": ("ReDIF_directory: config.yaml\n", "config.yaml cannot be read as a tarball"),
    "no such folder for the catalogue": ("database: sqlite:///no/such/folder/x\n", "no/such/folder"),
    "catalogue that is none": ("database: sqlite:///config.yaml\n", "config.yaml"),
    "catalogue that is a folder": ("database: sqlite:///data\n", "data"),
    "work folder that is a file": ("work_directory: config.yaml\n", "config.yaml"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_says_what_and_where(folder: Path, name: str) -> None:
    text, told = WRONG[name]
    config = make(folder / "archive")
    (config.base / "config.yaml").write_text(text)
    before = written(folder)
    for arguments in (["gather", "--no-fetch"], ["gather", "--no-fetch", "--json"]):
        done = archec_inline(config, *arguments)
        assert (done.code, done.out) == (1, b""), done
        assert_clean(done)
        lines = [line for line in done.err.splitlines() if not line.startswith("archec-run ")]
        assert len(lines) == 1, done.err
        assert lines[0].startswith("archec: ")
        assert told in lines[0], lines
        assert len(lines[0]) < 600
    after = written(folder)
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    ours = ("archive/archive/lock", "archive/archive/runs/", "archive/data/cat", "archive/config.yaml.reading.sqlite")
    assert not [path for path in changed if not path.startswith(ours) and not path.endswith(".unbegun.json")]


def test_bytes_that_are_no_text(folder: Path) -> None:
    config = make(folder / "archive")
    for data in (b"\xff\xfe\0", b"name: \x1b[31m\n", b"\x00", b"name: \xe9\n", b"%YAML 9.9\n---\n"):
        (config.base / "config.yaml").write_bytes(data)
        done = archec_inline(config, "gather")
        assert done.code == 1, (data, done)
        assert_clean(done)


def test_the_line_that_is_not_utf_8_is_named(folder: Path) -> None:
    config = make(folder / "archive")
    (config.base / "config.yaml").write_bytes(b"workers: 1\nname: Biblioth\xe8que\n")
    done = archec_inline(config, "status")
    assert (done.code, "config.yaml:2: is not UTF-8 (save it in this encoding)" in done.err) == (1, True), done


def test_a_store_that_cannot_be_written(folder: Path) -> None:
    """Something else stands where the run would write: the run says where, and stops before it does harm."""
    for place in ("runs", "lock", "data/work"):
        config = make(folder / place.replace("/", "-"))
        path = config.base / place if place.startswith("data") else config.store_path / place
        if path.is_dir():
            path.rmdir()
        if place == "lock":
            path.symlink_to("/etc/passwd")
        else:
            path.write_text("in the way")
        data = good()
        (config.data_path / "zzz").mkdir()
        (config.data_path / "zzz/1.rdf").write_bytes(data.data or b"")
        done = archec_inline(config, "gather", "--no-fetch")
        assert done.code in (1, 6), done
        assert_clean(done)
        assert str(path) in done.err


def test_a_directory_of_the_store_that_became_a_link(folder: Path) -> None:
    """Bytes are never written through a link out of the store."""
    outside = folder / "outside"
    outside.mkdir()
    config = make(folder / "archive")
    (config.data_path / "zzz").mkdir()
    (config.data_path / "zzz/1.rdf").write_bytes(good().data or b"")
    for n in range(1000):
        (config.store_path / f"{n:03}").symlink_to(outside)
    done = archec_inline(config, "gather", "--no-fetch")
    assert done.code == 6, done
    assert_clean(done)
    assert list(outside.iterdir()) == []
    assert "was replaced by a file or a link" in done.err
