"""What an operator meets on a first day: empty mounts, read-only copies, narrow terminals, codes that are unknown."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    change,
    make,
    on_terminal,
    run,
    tarball,
    template,
    write_papers,
)

from archec.config import Config
from archec.errors import UsageError
from archec.terminal.output import TextOnly


@pytest.fixture
def config(memory_folder: Callable[[], Path]) -> Config:
    return make(memory_folder() / "a", {"max_loss_least": 5})


@pytest.fixture
def filled(config: Config) -> Config:
    write_papers(config, ["http://127.0.0.1:9/a", "http://127.0.0.1:9/b"])
    run(config, fetch=False)
    return config


def states(config: Config) -> list[str]:
    done = archec_inline(config, "runs", "--json")
    return [json.loads(line)["state"] for line in done.out.splitlines()]


def test_file_names_are_utf_8_in_any_locale(config: Config) -> None:
    write_papers(config, ["http://127.0.0.1:9/a"])
    (path,) = config.data_path.rglob("*.rdf")
    path.rename(path.with_name("G\u00f3rski.rdf"))
    command = [sys.executable, "-m", "archec", "gather", "--no-fetch", "--config", str(config.file)]
    ascii_names = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env={**os.environ, **ascii_names}, capture_output=True)
    assert (done.returncode, b"problems" in done.stdout) == (0, False), done
    names = {claim[3].rpartition("/")[2] for line in archec_inline(config, "dump", "--all").out.splitlines()
             for claim in json.loads(line).get("claims", [])}  # fmt: skip
    assert names == {"G\u00f3rski.rdf"}


# -- what is no file, and files of another user ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("config.yaml", "status"),
        ("archive/layout.json", "status"),
        ("archive/lock", "check --fix"),
        ("archive/lock", "runs"),
        ("data/oai.secret", "serve --port 0"),
        ("data/oai.sqlite", "serve --port 0"),
        ("data/access.tokens", "access token list"),
        ("about.xml", "serve --port 0"),
        ("audit.log", "serve --port 0"),
        ("access.log", "serve --port 0"),
        ("seal.key", "seal"),
        ("vault/vault.json", "export warc vault"),
        ("pywb.yaml", "serve --pywb pywb.yaml --port 0"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(filled: Config, place: str, command: str) -> None:
    files = {"oai.description": ["about.xml"], "access.audit": "audit.log", "server.access_log": "access.log"}
    own = change(filled, {**files, "seal.key": "seal.key", "collections": {"own": "$archive"}})
    (own.base / "about.xml").write_text('<about xmlns="http://example.org/"/>')
    path = own.base / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    done = archec_cli(own, *command.split(), cwd=own.base)
    assert done.code in (1, 6), done
    assert path.name in done.err
    assert "is not a file" in done.err or "No such device" in done.err
    assert "Traceback" not in done.err


def test_a_pipe_in_the_place_of_a_cache_is_not_waited_for(filled: Config) -> None:
    data = filled.base / "data"
    (data / "work.reading.sqlite").unlink()
    for name in ("work.unbegun.json", "work.sealed.json", "work.reading.sqlite"):
        os.mkfifo(data / name)
    assert archec_cli(filled, "runs").code == 0
    assert archec_cli(filled, "seal").code == 0
    assert archec_cli(filled, "gather", "--no-fetch").code == 0


def test_a_file_in_the_place_of_the_journals(filled: Config, tmp_path: Path) -> None:
    shutil.copytree(filled.store_path, tmp_path / "copy", symlinks=True)
    runs = filled.store_path / "runs"
    shutil.rmtree(runs)
    runs.touch()
    for command in ("status", "check", "verify", "rebuild"):
        done = archec_inline(filled, command)
        assert (done.code, f"{runs}: is not a directory (move it away; " in done.err) == (6, True)
    runs.rename(filled.base / "away")
    assert archec_inline(filled, "verify", "--repair-from", tmp_path / "copy").code == 0
    assert archec_inline(filled, "check").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_messages_about_a_refused_file_say_whose_it_is(filled: Config) -> None:
    commands = {
        filled.base / "config.yaml": "status", filled.base / "data" / "catalogue.sqlite": "status",
        filled.base / "archive" / "layout.json": "dump", filled.base / "archive" / "lock": "gather",
        filled.base / "archive": "dump",
    }  # fmt: skip
    for command in set(commands.values()):
        archec_inline(filled, command)  # imports what it needs
    filled.base.parent.chmod(0o755)
    filled.base.parent.parent.chmod(0o755)
    for path, command in commands.items():
        mode = path.stat().st_mode
        path.chmod(0o700)
        os.setresuid(65534, 65534, 0)
        try:
            done = archec_inline(filled, command)
        finally:
            os.setresuid(0, 0, 0)
            path.chmod(mode)
        told = [line for line in done.err.splitlines() if not line.startswith("archec-run ")]
        assert (done.code, len(told), str(path) in told[0]) == (1, 1, True), done.err
        assert "it belongs to root, and this is run as nobody" in told[0], done.err


def test_an_obi_store_that_is_not_mounted(filled: Config) -> None:
    filled.store_path.rename(filled.base / "elsewhere")
    filled.store_path.mkdir()
    for command in ("gather", "status", "rebuild"):
        done = archec_inline(filled, command)
        assert (done.code, "check that it is mounted" in done.err) == (1, True), done
    assert not any(filled.store_path.iterdir())


# -- a data set that is not there -------------------------------------------------------------------


def test_an_empty_data_set_is_an_error_where_the_archive_holds_templates(filled: Config) -> None:
    before = archec_inline(filled, "dump").out
    shutil.rmtree(filled.data_path / "aaa")
    for arguments in (["--no-fetch"], [], ["--dry-run"]):
        done = archec_inline(filled, "gather", *arguments)
        assert done.code == 1, done.err
        told = [line for line in done.err.splitlines() if line.startswith("archec: ")]
        assert len(told) == 1
        assert f"{filled.data_path}: contains no template files" in told[0]
        assert "check that it is mounted" in told[0]
    assert states(filled)[0] == "failed"
    assert archec_inline(filled, "dump").out == before
    write_papers(filled, ["http://127.0.0.1:9/a", "http://127.0.0.1:9/b"])
    assert archec_inline(filled, "gather", "--no-fetch").code == 0
    assert archec_inline(filled, "dump").out == before


def test_an_empty_data_set_of_a_new_archive_is_a_warning(config: Config) -> None:
    done = archec_inline(config, "gather")
    assert done.code == 0
    assert f"archec: warning: {config.data_path}: contains no template files" in done.err
    assert states(config) == ["done"]


def test_a_tarball_that_broke_off_is_refused_and_seen_in_metrics(config: Config, tmp_path: Path) -> None:
    """It is told once, also by a dry run. The run that noted nothing of it cannot be retracted, that which did can."""
    members = [Member(f"RePEc/aaa/sss/{n}.rdf", template(f"RePEc:aaa:sss:{n}").encode() * 50) for n in range(9)]
    path = tarball(tmp_path / "RePEc_2001-01-01.tar", members)
    os.truncate(path, path.stat().st_size // 2)
    for option in ("--dry-run", "--no-fetch"):
        done = archec_inline(config, "gather", "-f", path, option)
        assert done.code == 8
        (told, line) = done.err.splitlines()
        ended = json.loads(line.removeprefix("archec-run "))
        assert (ended["state"], ended["exit"], f"archec: {ended['message']}") == ("damaged", 8, told)
        assert f"{path}: " in told
        assert "--salvage" in told
        shown = done.out.decode()
        assert ("nothing of it was noted" in shown, "it ends early" in shown) == (True, False)
    damaged = json.loads(archec_inline(config, "runs", "last", "--json").out)["run"]
    assert "message     " in archec_inline(config, "runs", damaged).out.decode()
    assert b"archec_last_run_data_set_whole 0" in archec_inline(config, "metrics").out
    salvaged = archec_inline(config, "gather", "-f", path, "--no-fetch", "--salvage", "--json")
    assert salvaged.code == 0
    assert "no checksum verifies" in salvaged.err
    refused = archec_inline(config, "retract", damaged, "--reason", "wrong")
    assert (refused.code, f"noted by run {json.loads(salvaged.out)['run']}" in refused.err) == (7, True)
    run(config, tarball(tmp_path / "RePEc_2001-01-02.tar", members))
    assert b"archec_last_run_data_set_whole 1" in archec_inline(config, "metrics").out


def test_a_date_in_a_name_with_two_readings_is_refused(config: Config, tmp_path: Path) -> None:
    path = tarball(
        tmp_path / "RePEc_01-05-2009.tar.gz", [Member("RePEc/aaa/1.rdf", template("RePEc:aaa:sss:1").encode())]
    )
    done = archec_inline(config, "gather", "-f", path, "--no-fetch")
    assert done.code == 2
    assert "it may be 2009-01-05 or 2009-05-01" in done.err
    assert archec_inline(config, "gather", "-f", path, "--as-of", "2009-05-01", "--no-fetch").code == 0


def test_only_template_files_are_read(config: Config, tmp_path: Path) -> None:
    stale, text = template("RePEc:aaa:sss:1", "Stale").encode(), template("RePEc:aaa:sss:2").encode()
    members = [Member("RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1", "Live").encode())]
    members += [Member(f"RePEc/aaa/sss/1.rdf{end}", stale) for end in ("~", ".old", ".disabled", ".$$$")]
    path = tarball(tmp_path / "RePEc_2001-01-01.tar", [*members, Member("RePEc/aaa/sss/2.TXT", text)])
    done = archec_inline(config, "gather", "-f", path, "--no-fetch", "--json")
    files, templates = json.loads(done.out)["files"], json.loads(done.out)["templates"]
    assert (done.code, files["read"], files["other"], templates["total"], templates["duplicates"]) == (0, 1, 5, 1, 0)
    assert files["others"][0] == "RePEc/aaa/sss/1.rdf~"
    assert b"Title: Live" in archec_inline(config, "get", "RePEc:aaa:sss:1").out
    path.rename(tmp_path / "RePEc_2001-01-02.tar")
    config = change(config, {"template_files": ["*.txt"]})
    done = archec_inline(config, "gather", "-f", tmp_path / "RePEc_2001-01-02.tar", "--no-fetch", "--json")
    assert (json.loads(done.out)["files"]["read"], json.loads(done.out)["tobis"]["new"]) == (2, 1)
    journal = gzip.decompress(max((config.store_path / "runs").glob("*.gz")).read_bytes())
    assert b'"template_files":["*.txt"]' in journal


# -- an archive that can only be read ---------------------------------------------------------------


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mounts a folder on itself, read-only."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder read-only")
    mount = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip(f"cannot mount here: {mount.stderr.decode()}")
    try:
        again = subprocess.run(["mount", "-o", "remount,bind,ro", folder], capture_output=True, check=False)
        if again.returncode:
            pytest.skip(f"cannot mount read-only here: {again.stderr.decode()}")
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def reads(config: Config, vault: Path) -> None:
    """All that only reads works."""
    for command in (
        ("status",), ("history", "RePEc:aaa:sss:0"), ("get", "RePEc:aaa:sss:0"), ("runs",), ("runs", "last"),
        ("changes",), ("lost",), ("coverage",), ("dump",), ("dump", "--all"), ("metrics",), ("check",),
        ("export", "warc", vault),
    ):  # fmt: skip
        done = archec_inline(config, *command)
        assert done.code == 0, (command, done.err)


def test_a_read_only_archive_can_be_read(filled: Config, tmp_path: Path) -> None:
    assert archec_inline(filled, "verify").code == 0
    expected = archec_inline(filled, "dump", "--all").out
    with read_only(filled.base):
        reads(filled, tmp_path / "vault")
        assert archec_inline(filled, "dump", "--all").out == expected
        done = archec_inline(filled, "verify")
        assert done.code == 0
        assert b"read-only file system" in done.out.lower()
        done = archec_inline(filled, "gather")
        assert done.code == 1
        assert "read-only file system" in done.err.lower()


@pytest.mark.slow
def test_a_read_only_copy_of_a_catalogue_in_use(filled: Config, tmp_path: Path) -> None:
    """With its log and what belongs to it, it is read; without, the message says what is missing."""
    program = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA wal_autocheckpoint = 0');"
        "[(db.execute(f'UPDATE position SET stamp = stamp + {n}'), db.commit()) for n in (1, -1)]; os._exit(0)"
    )
    path = filled.base / "data" / "catalogue.sqlite"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert path.with_name("catalogue.sqlite-wal").stat().st_size > 0
    with read_only(filled.base):
        reads(filled, tmp_path / "vault")
    path.with_name("catalogue.sqlite-shm").unlink()
    with read_only(filled.base):
        for command in ("status", "check"):
            done = archec_inline(filled, command)
            assert done.code == 1, done
            assert "read-only file system" in done.err
            assert "-wal" in done.err


# -- terminals --------------------------------------------------------------------------------------


def test_tables_fit_a_narrow_terminal(filled: Config) -> None:
    run(filled)
    for command in (["coverage"], ["status"], ["runs"], ["history", "RePEc:aaa:sss:0"]):
        text, err = on_terminal(filled, *command, columns=60)
        wide = archec_inline(filled, *command).out.decode()
        parted = [line for line in text.splitlines() if len(line) > 60 and " " in line.strip()]
        assert not parted, (command, parted)
        assert "…" not in text
        if command == ["coverage"]:
            assert "too narrow for: files, lost, gone, unreachable, forbidden, never tried, bad URL, other" in err
            assert "works  w. a file  held  PDFs" in text
        else:
            assert not err
            assert [word for word in wide.split() if word.isdecimal() and len(word) == 10] == [
                word for word in text.split() if word.isdecimal() and len(word) == 10
            ]  # fmt: skip


def test_nothing_to_tell_is_said(filled: Config) -> None:
    assert on_terminal(filled, "lost", columns=80) == ("", "archec: no losses found\n")
    assert archec_inline(filled, "lost", "--returned").err == "archec: no returns found\n"
    assert archec_inline(filled, "changes", "--since", "2999-01-01").err == "archec: no incidences found\n"
    assert archec_inline(filled, "lost", "--json").err == ""


def test_binary_is_not_written_to_a_terminal(filled: Config) -> None:
    target = b"%PDF-1.4\n\x00\x01\x1b[2J"
    for first, asked in ((b"text: \xc3\xa4\n\t", True), (target, False)):
        written = io.BytesIO()
        with contextlib.nullcontext() if asked else pytest.raises(UsageError, match="use -o FILE"):
            assert TextOnly(written).write(first) == len(first)
        assert written.getvalue() == (first if asked else b"")
    text, err = on_terminal(filled, "get", "RePEc:aaa:sss:0", columns=80)
    assert text.startswith("Template-Type:")
    assert "RePEc:aaa:sss:0 noted" in err


# -- what is unknown --------------------------------------------------------------------------------


def test_unknown_and_malformed_archive_codes(filled: Config, tmp_path: Path) -> None:
    for command in (
        ["lost", "--archive"], ["coverage", "--archive"], ["export", "warc", str(tmp_path / "v"), "--archive"],
        ["gather", "--no-fetch", "--accept-losses"],
    ):  # fmt: skip
        done = archec_inline(filled, *command, "zzz")
        assert done.code == 0, done.err
        assert "archec: the archive holds nothing of zzz\n" in done.err
        assert "holds nothing" not in archec_inline(filled, *command, "aaa").err
        assert archec_inline(filled, *command, "a/b").code == 2


def test_an_option_without_effect_is_refused(filled: Config, tmp_path: Path) -> None:
    before = states(filled)
    for command in (
        ["gather", "--dry-run", "--resume"], ["gather", "--salvage"], ["runs", "last", "--limit", 2],
        ["gather", "--no-fetch", "--repeated", tmp_path / "nowhere" / "x"],
    ):  # fmt: skip
        done = archec_inline(filled, *command)
        option = next(word for word in reversed(command) if str(word).startswith("--"))
        assert (done.code, str(option) in done.err) == (2, True), done
    assert states(filled) == before


def test_small_hints(filled: Config, tmp_path: Path) -> None:
    done = archec_inline(filled, "metrics", "-o", tmp_path / "x.txt")
    assert (done.code, "only reads *.prom files" in done.err) == (0, True)
    assert archec_inline(filled, "metrics", "-o", tmp_path / "x.prom").err == ""
    done = archec_inline(None, "status", "--config", tmp_path)
    assert done.code == 1
    assert f"{tmp_path}: is a directory" in done.err
    done = archec_inline(filled, "changes", "--since", "2026-11-23", "--until", "2020-01-01")
    assert (done.code, "--until must be later" in done.err) == (2, True)


def test_an_archive_that_is_not_there_is_told_by_file_and_key(filled: Config) -> None:
    path = filled.base / "config.yaml"
    text = path.read_text()
    for key, value, command, told in (
        ("object_store", "nowhere", ["status"], "check that it is mounted"),
        ("object_store", "archive/../nowhere", ["check"], f"object_store: {filled.base}/nowhere: "),
        ("ReDIF_directory", "nowhere", ["gather"], f"ReDIF_directory: {filled.base}/nowhere: no such data set"),
        ("database", "mysql://x/y", ["dump"], "must be sqlite:///PATH"),
    ):
        lines = [f"{key}: {value}" if line.startswith(f"{key}:") else line for line in text.splitlines()]
        path.write_text("\n".join(lines))
        done = archec_inline(None, *command, "--config", path)
        assert done.code == 1, done
        assert f"archec: {path}: {key}: " in done.err
        assert told in done.err
    path.write_text(text)
