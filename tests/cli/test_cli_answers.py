"""What commands say to a slip of the hand or to a damaged archive: a clear answer, and nothing is spoilt by it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gather_support import archec_inline, environment, make, run

from archec.config import Config
from archec.store.layout import journals, open_layout

HANDLE = "RePEc:aaa:sss:1"
TEXT = "Template-Type: ReDIF-Paper 1.0\nTitle: T\nHandle: RePEc:aaa:sss:1\n"


@pytest.fixture
def archive(folder: Path) -> Config:
    """An archive that holds one template."""
    config = make(folder / "archive")
    (config.data_path / "aaa/sss").mkdir(parents=True)
    (config.data_path / "aaa/sss/p.rdf").write_text(TEXT)
    run(config, fetch=False)
    return config


def held(config: Config) -> Path:
    """The file of the template."""
    value = json.loads(archec_inline(config, "history", HANDLE, "--json").out)
    return config.store_path / value["incidences"][0]["path"]


# -- get and rebuild of a damaged archive ---------------------------------------------------------


@pytest.mark.parametrize(("data", "printed"), [(TEXT.replace("T\n", "U\n"), True), (TEXT[:-1], False), ("", False)])
def test_get_gives_no_other_bytes(archive: Config, folder: Path, data: str, printed: bool) -> None:
    path = held(archive)
    path.chmod(0o644)
    path.write_text(data)
    before = set(folder.iterdir())
    for output in ([], ["-o", folder / "x"]):
        done = archec_inline(archive, "get", HANDLE, *output)
        assert done.code == 6
        assert str(path) in done.err
        assert "archec verify --repair-from COPY" in done.err
        assert (done.out != b"") == (printed and not output)
        if printed:
            assert done.err.count(" sha256 ") == 1
            assert "was noted" in done.err
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("fanout", [0, 256])
@pytest.mark.parametrize("last", ["1", "x" * 300, "é" * 100, "a" + "é" * 100, "a~" + "0" * 300])
def test_an_obi_is_found_by_the_path_that_is_printed(folder: Path, last: str, fanout: int) -> None:
    """Also where the name in it was truncated, or does not begin like that of a handle."""
    config = make(folder / "archive", fanout=fanout)
    (config.data_path / "aaa/sss").mkdir(parents=True)
    handles = [f"RePEc:aaa:sss:{last}", f"RePEc:aaa:sss:{last}{last}", f"loose:{last}"]
    (config.data_path / "aaa/sss/p.rdf").write_text("\n".join(TEXT.replace(HANDLE, one) for one in handles))
    run(config, fetch=False)
    for handle in handles:
        value = json.loads(archec_inline(config, "history", handle, "--json").out)
        path = value["incidences"][0]["path"]
        for typed in (path, f" archive/{path} "):
            assert json.loads(archec_inline(config, "history", typed, "--json").out) == value
    assert archec_inline(config, "history", path[:-1]).code == 7


def test_get_of_a_file_that_is_gone(archive: Config, folder: Path) -> None:
    path = held(archive)
    path.unlink()
    done = archec_inline(archive, "get", HANDLE, "-o", folder / "x")
    assert done.code == 6
    assert str(path) in done.err
    assert "archec verify --repair-from COPY" in done.err
    assert not (folder / "x").exists()


def test_get_writes_whole_files(archive: Config, folder: Path) -> None:
    assert archec_inline(archive, "get", HANDLE, "-o", "-").out.decode() == TEXT
    target, link = folder / "x", folder / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("x")
    assert archec_inline(archive, "get", HANDLE, "-o", link).code == 0
    assert (target.read_text(), target.stat().st_mode & 0o777, link.is_symlink()) == (TEXT, 0o600, True)
    assert archec_inline(archive, "get", HANDLE, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


def test_a_rebuild_that_cannot_be_done_spoils_nothing(archive: Config) -> None:
    run(archive, fetch=False)
    whole = archec_inline(archive, "dump", "--all").out
    journal = journals(open_layout(archive.store_path))[-1].path
    good = journal.read_bytes()
    journal.chmod(0o644)
    journal.write_bytes(good[:-20] + bytes(20))
    done = archec_inline(archive, "rebuild")
    assert done.code == 6
    assert str(journal) in done.err
    assert "archec verify --repair-from COPY" in done.err
    journal.write_bytes(good)
    assert archec_inline(archive, "dump", "--all").out == whole
    assert archec_inline(archive, "rebuild").code == 0
    assert archec_inline(archive, "dump", "--all").out == whole


# -- what people type -----------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [f"<{HANDLE}>", "RePEc%3Aaaa%3Asss%3A1", f"URL:{HANDLE}", f" <URL: {HANDLE} > "])
def test_ids_as_they_are_pasted(archive: Config, typed: str) -> None:
    assert archec_inline(archive, "get", typed).out.decode() == TEXT


def test_what_is_not_there_is_named_as_it_was_typed(archive: Config) -> None:
    for typed in ("<HTTP://Example.ORG/x>", "repec:AAA:nothing"):
        done = archec_inline(archive, "history", typed)
        assert done.code == 7
        assert done.err.startswith(f"archec: {typed}: unknown to the archive (check the spelling")
    assert "secret" not in archec_inline(archive, "history", "http://me:secret@example.org/x").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", HANDLE, "--at", "Monday"], ["changes", "--since", "03/04/2024"], ["lost", "--until", "10:00"],
        ["lost", "--since", "2020-02", "--until", "2020-01"],
        ["changes", "--diff", HANDLE, "--from", "2020-02", "--to", "2020-01"], ["demo", "--config", "nope.yaml"],
    ],
)  # fmt: skip
def test_what_makes_no_sense(archive: Config, arguments: list[str]) -> None:
    done = archec_inline(None if arguments[0] == "demo" else archive, *arguments)
    assert (done.code, done.out) == (2, b"")


def test_options_go_after_the_command(archive: Config) -> None:
    done = archec_inline(None, "--config", archive.base / "config.yaml", "history", HANDLE)
    assert done.code == 2
    assert "options go after the command: archec COMMAND --config" in done.err


def test_what_was_probably_meant(archive: Config) -> None:
    for words, meant in (
        (["statsu"], "Did you mean 'status'?"), (["find", "ab" * 32], "--sha256 abab"),
        (["find", "ab" * 16], "--md5 abab"),
        (["get", HANDLE, "--at", "3000-01-01"], "3000-01-01T00:00:00Z is in the future (omit --at"),
    ):
        done = archec_inline(archive, *words)
        assert (done.code, meant in done.err, done.out) == (2, True, b""), done.err


@pytest.mark.parametrize("url", ["foo", "mysql://x/y", "sqlite:///", "mongodb://a:b/c@d/x", "mongodb://u:secret@localhost/x"])
def test_init_refuses_a_database_before_it_makes_anything(folder: Path, url: str) -> None:
    done = archec_inline(None, "init", folder / "new", "--database", url)
    assert done.code in (1, 2)
    assert len(done.err.splitlines()) == 1
    assert "secret" not in done.err
    assert not (folder / "new").exists()


def test_report_reads_the_configuration_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = archec_inline(None, "report", "-o", "x.html", cwd=folder)
    assert (done.code, "no such configuration file" in done.err) == (1, True)
    config = make(folder / "archive")
    run(config, fetch=False)
    done = archec_inline(config, "report", "-o", folder / "x.html")
    assert done.code == 1
    assert "pip install 'archec[report]'" in done.err
    assert "pip install '.[report]'" in done.err


def test_redif_goes_on_and_reads_stdin(folder: Path) -> None:
    (folder / "good.rdf").write_text(TEXT)
    done = archec_inline(None, "redif", folder / "nope", folder / "good.rdf", cwd=folder)
    assert done.code == 1
    assert f"cannot open {folder}/nope" in done.err
    done = archec_inline(None, "redif", folder, folder / "good.rdf", cwd=folder)
    assert done.code == 1
    assert f"{folder}: is a directory" in done.err
    assert HANDLE in done.out.decode()
    assert HANDLE in done.out.decode()
    command = [sys.executable, "-m", "archec", "redif", "--json", "-"]
    piped = subprocess.run(
        command, input=TEXT.encode(), capture_output=True, env=environment(), check=False, cwd=folder
    )
    assert piped.returncode == 0
    assert json.loads(piped.stdout.splitlines()[0])["path"] == "-"
    assert archec_inline(None, "redif", "--help").code == 0
