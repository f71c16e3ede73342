"""Looking at filesets that are held, and taking them out: list, show, verify, changes, exports, SQL, candidates."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import bagit
import msgspec
import pytest
from access_support import client, give_tokens, serving
from click.testing import CliRunner
from fileset_platform import Platform, bytes_of, zenodo
from fileset_support import Filesets, make_archive
from gather_support import Done, archec_inline
from msgspec.structs import replace
from rocrate.rocrate import ROCrate
from warcio.archiveiterator import ArchiveIterator

from archec.archive.commit import CommitItem, Committer
from archec.archive.opening import opened
from archec.catalogue.engines import open_catalogue
from archec.catalogue.journal_lines import ObiChange, RunStart
from archec.catalogue.model import FilesetManifestFile, Note, Obi, Refipo, Version
from archec.cli.coverage import coverage
from archec.cli.fileset import fileset
from archec.cli.get import get
from archec.config import parse
from archec.config.types import PlatformConfig
from archec.errors import ArchecError, Exit, NotHeld, UsageError
from archec.fileset.candidates import candidates
from archec.fileset.export import export
from archec.fileset.fields import clean
from archec.fileset.lookup import HeldFileset, find_fileset
from archec.fileset.manifest import Manifest
from archec.fileset.platforms.registry import Registry
from archec.monitor.page import Account, page
from archec.monitor.plots import series_of
from archec.monitor.runs import runs
from archec.report.coverage import coverage_of_filesets
from archec.store.journal import JournalWriter
from archec.store.layout import open_store
from archec.store.writer import Placement, Writer

SIZES = {"data/p q.csv": 1000, "data/P Q.csv": 10, "empty": 0}


def command(filesets: Filesets, *arguments: str) -> tuple[int, str]:
    """A command's exit code and output."""
    found = CliRunner().invoke(fileset, [*arguments, "--config", str(filesets.config.file)])
    if isinstance(found.exception, ArchecError):
        return int(found.exception.exit_code), found.exception.message
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def rows(filesets: Filesets, *arguments: str) -> list[dict[str, Any]]:
    code, out = command(filesets, *arguments, "--json")
    assert code == 0, out
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@pytest.fixture
def one(filesets: Filesets, platform: Platform) -> Filesets:
    """An archive with one version of a fileset, ingested by its DOI."""
    url = zenodo(platform, 7, SIZES, doi="10.5281/zenodo.7")
    platform.bodies["/api/handles/10.5281/zenodo.7"] = {"values": [{"type": "URL", "data": {"value": url}}]}
    assert filesets.ingest("doi:10.5281/zenodo.7")[0].status == "success"
    return filesets


def test_examples_of_the_help_run(one: Filesets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, found in fileset.commands.items():
        example = inspect.cleandoc(found.help or "").rpartition("Example: archec fileset ")[2]
        words = shlex.split(example.replace("zenodo.3904280", "zenodo.7"))
        assert words[0] == name
        code, out = command(one, *words)
        assert code == 0, (example, out)


def test_list_and_show(one: Filesets, platform: Platform) -> None:
    (row,) = rows(one, "list")
    assert row["id"] == f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:6"
    assert (row["title"], row["files"], row["files_held"], row["size"], row["held"]) == ("Prices 7", 3, 3, 1010, True)
    for name in (row["id"], row["id"] + "@7", "10.5281/zenodo.7", "https://doi.org/10.5281/ZENODO.7",
                 f"{platform.url}/records/7"):  # fmt: skip
        (shown,) = rows(one, "show", name)
        assert [file["path"] for file in shown["manifest"]] == list(SIZES)
    assert shown["ingests"][0]["base_url"] == "doi:10.5281/zenodo.7"
    assert command(one, "show", row["id"] + "@99")[0] == 7
    for words in (["history"], ["access", "explain"]):
        told = archec_inline(one.config, *words, "doi:10.5281/zenodo.7").out.decode()
        assert told.startswith(row["id"]), told
    code, out = command(one, "list")
    assert code == 0
    assert "3 of 3 files" in out
    assert command(one, "ingest", "--requests", os.devnull) == (0, "archec: there were no requests\n")


def test_what_is_selected_and_what_is_not_held_is_told(filesets: Filesets, platform: Platform) -> None:
    url, other = zenodo(platform, 7, {"p.csv": 10, "q": 10}), zenodo(platform, 17, {"r": 5}, concept=16)
    platform.bodies["/api/records/17"] = 403
    filesets.ingest(url, other, include=("*.csv",))
    assert "1 of 1 selected file," in command(filesets, "list")[1]
    code, out = command(filesets, "show", url)
    for part in (f"{url} --include '*.csv': success-file 20", "; 1 of 2 files selected\n"):
        assert (code, part in out) == (0, True)
    (row,) = rows(filesets, "show", url)
    assert (row["id"], row["lost"]) == (f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:6@7", None)
    (held, failed) = rows(filesets, "list", "--all")
    assert (held["selected"], failed["base_url"], failed["status"]) == (True, other, "platform-restricted")
    assert failed["due"] > failed["tist"]
    assert f"{other}  (not held)\n    platform-restricted 20" in command(filesets, "list", "--all")[1]
    code, out = command(filesets, "show", other)
    for part in ("holds no such data set", "resulted in platform-restricted; due again 20"):
        assert (code, part in out) == (7, True)
    name = f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:16@17"
    assert command(filesets, "show", name) == (7, out.replace(other, name, 1))
    whole = platform.bodies["/api/records/7"]
    platform.bodies["/api/records/7"] = 500
    assert filesets.ingest(url)[0].status == "platform-http-error"
    assert "1 of 1 selected file," in command(filesets, "list")[1]
    platform.bodies["/api/records/7"] = whole
    for include in ((), ("*.csv",)):
        filesets.ingest(url, include=include)
        assert "2 of 2 files," in command(filesets, "list")[1]
        assert [row["selected"] for row in rows(filesets, "list")] == [False]
    platform.bodies["/api/records/7"] = 410
    assert filesets.ingest(url)[0].fileset == held["id"]
    (row,) = rows(filesets, "show", url)
    assert "    lost 20" in (out := command(filesets, "show", url)[1])
    assert f"({row['lost']}): the platform has withdrawn it" in out
    assert command(filesets, "changes", url)[1].endswith("Z  lost\n")


def test_verify_finds_what_was_altered(one: Filesets, platform: Platform, tmp_path: Path) -> None:
    assert command(one, "verify", "10.5281/zenodo.7")[0] == 0
    data = bytes_of("data/p q.csv", 1000)
    (path,) = [path for path in Path(one.config.store_path).rglob("*") if path.is_file() and path.read_bytes() == data]
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b"!")
    code, out = command(one, "verify", "10.5281/zenodo.7")
    assert code == 6
    for part in ("mismatch-sha256: 1,000 bytes with sha256", "--repair-from", "ingest --force"):
        assert part in out
    for form in ("folder", "bagit"):
        code, out = command(one, "export", "10.5281/zenodo.7", "--as", form, str(tmp_path / "new"))
        assert (code, "data/p q.csv: has sha256" in out, list(tmp_path.iterdir())) == (6, True, [])
    damaged = path.read_bytes()
    (result,) = one.ingest("doi:10.5281/zenodo.7", force=True)
    assert (result.hit, result.status) == (True, "success")
    assert command(one, "verify", "10.5281/zenodo.7")[0] == 0, "what was received took the place of the damaged bytes"
    assert path.read_bytes() == damaged, "and left them where they are"
    assert archec_inline(one.config, "get", "doi:10.5281/zenodo.7!/data/p q.csv").out == data
    (path,) = [path for path in Path(one.config.store_path).rglob("*") if path.is_file() and path.read_bytes() == data]
    path.chmod(0o644)
    path.write_bytes(damaged)
    platform.bodies["/data"] = b'<link rel="item" href="/api/records/7/files/data/p%20q.csv/content">'
    assert one.ingest(f"{platform.url}/data")[0].status == "success-file", "another data set with the same file"
    for name in (f"{platform.url}/data", "10.5281/zenodo.7"):
        assert command(one, "verify", name)[0] == 0
    found, _, summary = json_of(archec_inline(one.config, "verify", "--json"))
    assert (found["finding"], summary["wrong"]) == ("corrupt", 2)
    for manifest in Path(one.config.store_path).rglob("fileset%3A*"):
        manifest.chmod(0o644)
        manifest.write_bytes(manifest.read_bytes().replace(b"q.csv", b"r.csv"))
    code, out = command(one, "verify", "10.5281/zenodo.7")
    assert (code, "was noted" in out) == (6, True)


def test_a_platform_answer_whose_held_copy_is_damaged_is_stored_again(one: Filesets, platform: Platform) -> None:
    url = f"{platform.url}/api/records/7"
    data = archec_inline(one.config, "get", url).out
    path = next(path for path in Path(one.config.store_path).rglob("*") if path.is_file() and path.read_bytes() == data)
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b" ")
    one.ingest("doi:10.5281/zenodo.7", force=True)
    assert archec_inline(one.config, "get", url).out == data
    before = one.dump()
    assert archec_inline(one.config, "rebuild").code == 0
    assert one.dump() == before


def test_verify_counts_what_is_not_held(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 10, "r": 10})
    platform.bodies["/api/records/7"]["files"][1]["key"] = "../evil.txt"
    filesets.ingest(url)
    code, out = command(filesets, "verify", url)
    assert code == 0
    assert out == "3 files, 2 held, 1 not held, 0 wrong\n"
    assert rows(filesets, "verify", url) == [{"type": "summary", "files": 3, "held": 2, "not_held": 1, "wrong": 0}]


def test_a_damaged_manifest_is_that_of_its_version_and_ends_its_own_request_only(
    filesets: Filesets, platform: Platform
) -> None:
    old, new = zenodo(platform, 7, {"p": 10}), zenodo(platform, 8, {"p": 11})
    filesets.ingest(old, new)
    with filesets.archive() as archive:
        name = find_fileset(archive, new).obi.id
        path = archive.layout.root / archive.layout.path(find_fileset(archive, new).tist, name)
    for damage in (b"{", None):
        path.chmod(0o600)
        path.write_bytes(damage) if damage is not None else path.unlink()
        assert rows(filesets, "show", f"{name}@7")[0]["version"] == "7"
        for asked in (name, f"{name}@8"):
            assert archec_inline(filesets.config, "fileset", "show", asked).code == 6
        broken, *others = filesets.ingest(new, zenodo(platform, 20, {"q": 10}, concept=19))
        assert (broken.status, str(path) in (broken.message or "")) == ("error-storage", True)
        assert others[0].hit
        assert archec_inline(filesets.config, "get", f"{platform.url}/records/99").code == 7
        assert filesets.ingest(f"{platform.url}/records/99")[0].status == "platform-404"


def test_force_restores_a_damaged_manifest(filesets: Filesets, platform: Platform) -> None:
    old, new = zenodo(platform, 7, {"p": 10}), zenodo(platform, 8, {"p": 11})
    filesets.ingest(old, new)
    with filesets.archive() as archive:
        held = [find_fileset(archive, asked) for asked in (old, new)]
        paths = [archive.layout.root / archive.layout.path(one.tist, one.obi.id) for one in held]
    for path in paths:
        path.chmod(0o600)
        path.write_bytes(b"{")
    assert filesets.ingest(new)[0].status == "error-storage"
    assert [one.status for one in filesets.ingest(new, old, force=True) if one.ingest_type == "dataset"] == [
        "success-file", "success-file",
    ]  # fmt: skip
    assert all(path.read_bytes() == b"{" for path in paths), "held is held"
    for one in held:
        assert filesets.ingest(one.manifest.web_base_url or "")[0].status == "success-existing"
        with filesets.archive() as archive:
            assert find_fileset(archive, f"{one.obi.id}@{one.manifest.version}").manifest == one.manifest
            assert find_fileset(archive, one.obi.id).obi.history.as_dict() == one.obi.history.as_dict()
    assert archec_inline(filesets.config, "check").code == 0
    after = filesets.dump()
    assert archec_inline(filesets.config, "rebuild").code == 0
    assert filesets.dump() == after


def test_blanks_around_an_id_with_a_version(filesets: Filesets, platform: Platform) -> None:
    filesets.ingest(zenodo(platform, 7, {"p": 10}))
    with filesets.archive() as archive:
        name = find_fileset(archive, f"{platform.url}/records/7").obi.id
    for asked in (f"{name}@7", f" {name}@7 "):
        told = archec_inline(filesets.config, "get", asked, "--at", "2026-01-01")
        assert (told.code, "both select a state" in told.err) == (2, True)
    assert archec_inline(filesets.config, "history", f"{name}@7").code == 0


def test_force_moves_no_older_version(filesets: Filesets, platform: Platform) -> None:
    urls = [zenodo(platform, number, {"p": number}) for number in (7, 8, 9)]
    filesets.ingest(*urls)  # at three tists without a free one between them
    with filesets.archive() as archive:
        before = find_fileset(archive, urls[0]).obi
    for url in urls:
        assert filesets.ingest(url, force=True)[0].status == "success-file"
    with filesets.archive() as archive:
        assert find_fileset(archive, urls[0]).obi.history.as_dict() == before.history.as_dict()


def test_force_passes_over_a_damaged_manifest_that_is_no_longer_given(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    filesets.ingest(url)
    with filesets.archive() as archive:
        held = find_fileset(archive, url)
        (archive.layout.root / archive.layout.path(held.tist, held.obi.id)).unlink()
    zenodo(platform, 7, {"p": 10, "q": 10})
    assert filesets.ingest(url, force=True)[0].status == "success"
    assert filesets.ingest(url)[0].status == "success-existing"


def test_exports_say_what_is_not_held(filesets: Filesets, platform: Platform, tmp_path: Path) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 10})
    platform.files.pop("/api/records/7/files/q/content")
    filesets.ingest(url)
    lacking = "1 of 2 files; not held: q (error-platform-download)"
    for form, file in (("bagit", "bag-info.txt"), ("ro-crate", "ro-crate-metadata.json"),
                       ("datapackage", "datapackage.json"), ("croissant", "croissant.json")):  # fmt: skip
        folder = tmp_path / form
        assert command(filesets, "export", url, "--as", form, str(folder)) == (0, f"archec: {folder}: {lacking}\n")
        assert lacking in (folder / file).read_text()
    assert bagit.Bag(str(tmp_path / "bagit")).validate()
    (told,) = rows(filesets, "export", url, "--as", "folder", str(tmp_path / "folder"))
    assert (told["files"], told["not_held"]) == (1, [{"path": "q", "status": "error-platform-download"}])
    code, out = command(filesets, "export", url, "--as", "urls", str(tmp_path / "urls"))
    assert (code, out) == (0, f"archec: {tmp_path}/urls: 2 URLs; held are {lacking}\n")


def test_changes_between_versions(one: Filesets, platform: Platform) -> None:
    one.ingest(zenodo(platform, 8, {"data/p q.csv": 1001, "new": 5, "empty": 0}))
    found = [(row["version"], row["what"], row["path"]) for row in rows(one, "changes", "10.5281/zenodo.7")]
    assert found[3:] == [("8", "removed", "data/P Q.csv"), ("8", "changed", "data/p q.csv"), ("8", "added", "new")]
    with one.archive() as archive:
        name = f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:6"
        assert find_fileset(archive, name).manifest.version == "8"
        assert find_fileset(archive, name + "@7").manifest.version == "7"


def test_get_gives_the_manifest_of_a_version(one: Filesets, platform: Platform) -> None:
    page = zenodo(platform, 8, {"new": 5}, doi="10.5281/ZENODO.8", conceptdoi="10.5281/zenodo.6")
    one.ingest(page)
    name = f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:6"

    def got(*arguments: str) -> Any:
        return CliRunner().invoke(get, [*arguments, "--config", str(one.config.file)])

    for asked in (f"{page}!/new", "doi:10.5281/zenodo.8!/new", "10.5281/zenodo.6!/new"):
        assert got(asked).stdout.encode().startswith(bytes_of("new", 5))
    one.ingest(zenodo(platform, 9, {"newer": 5}, doi="10.5281/zenodo.9"))
    one.ingest(page)
    named = {"10.5281/zenodo.8": "8", "10.5281/zenodo.6": "9", f"{page}@9": "9"}
    assert named == {asked: rows(one, "show", asked)[0]["version"] for asked in named}
    assert isinstance(got(f"{page}!/old").exception, NotHeld)
    dois = (("doi:10.5281/zenodo.8", "8"), ("10.5281/zenodo.6", "9"), ("10.5281/zenodo.6@8", "8"))
    for asked, version in ((name, "9"), (name + "@8", "8"), (name + "@7", "7"), *dois):
        assert json.loads(got(asked).stdout.partition("\n")[0])["version"] == version
    urls = {f"{platform.url}/record/8": "8", f"{page}@8": "8", f"{platform.url}/api/records/9?x=1": "9"}
    urls |= {"<https://doi.org/10.5281/zenodo.8>": "8", "info:doi/10.5281/zenodo.6": "9", f" {name}@8 ": "8"}
    assert {asked: json.loads(got(asked).stdout.partition("\n")[0])["version"] for asked in urls} == urls
    assert all(isinstance(got(asked + "@10").exception, NotHeld) for asked in (name, "10.5281/zenodo.6", page))
    assert isinstance(got(name + "@7", "--at", "2026-01-01").exception, UsageError)
    assert got("10.5281/zenodo.6@8!/new").stdout.encode().startswith(bytes_of("new", 5))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as bundle:
        bundle.writestr("inner", b"of the zip file")
        bundle.writestr("inner ", b"of another name")
    page = zenodo(platform, 30, {"p.zip": 5, "q": 5}, concept=29)
    platform.files["/api/records/30/files/p.zip/content"] = zipped.getvalue()
    platform.bodies["/api/records/30"]["files"][0] |= {"checksum": None, "size": None}
    one.ingest(page)
    assert got(f"{platform.url}/api/records/30/files/p.zip/content!/inner").stdout == "of the zip file"
    assert got(f" {platform.url}/api/records/30/files/p.zip/content!/inner ").stdout == "of another name"
    assert got(f"{platform.url}/record/30!/q").stdout_bytes == bytes_of("q", 5)
    found = got(name + "@7!/data/P Q.csv")
    assert (found.exit_code, found.stderr.startswith(f"archec: data/P Q.csv in {name} noted ")) == (0, True)


def test_get_of_a_file_by_its_safe_path_and_of_one_that_is_not_held(filesets: Filesets, platform: Platform) -> None:
    page = zenodo(platform, 7, {"p": 5, "P": 6, "q": 7})
    platform.files["/api/records/7/files/q/content"] = b"wrong"
    filesets.ingest(page)

    def got(path: str) -> Done:
        return archec_inline(filesets.config, "get", f"{page}!/{path}")

    assert [got(path).out for path in ("p", "P", "P (2)")] == [
        bytes_of("p", 5), bytes_of("P", 6), bytes_of("P", 6),
    ]  # fmt: skip
    assert (got("q").code, got("q").err) == (Exit.NOT_HELD, f"archec: {page}: q is not held: mismatch-size\n")
    assert (got("r").code, got("r").err) == (Exit.NOT_HELD, f"archec: {page}: it contains no file r\n")


def test_a_fileset_is_found_by_every_url_of_its_platform(filesets: Filesets, platform: Platform) -> None:
    pages = [zenodo(platform, 7, {"p": 10})]
    platform.bodies["/api/records/6"] = platform.bodies["/api/records/7"]
    filesets.ingest(f"{platform.url}/records/6", follow_concept=True)
    assert command(filesets, "show", pages[0])[0] == 0
    pages.append(zenodo(platform, 8, {"p": 11}))
    platform.bodies["/api/records/6"] = platform.bodies["/api/records/8"]
    filesets.ingest(f"{platform.url}/records/6", follow_concept=True)
    for number, url in zip((7, 8), pages, strict=True):
        for asked in (url, url.replace("records", "record"), f"{url}?q=1", f"{platform.url}/api/records/{number}"):
            assert rows(filesets, "show", asked)[0]["version"] == str(number), asked
    assert rows(filesets, "show", f"{platform.url}/record/6")[0]["version"] == "8"
    assert rows(filesets, "show", f"{platform.url}/record/6/files@7")[0]["version"] == "7"
    assert command(filesets, "show", f"{platform.url}/record/6/latest@7")[0] == Exit.NOT_HELD
    for url, lost in zip(pages, (False, True), strict=True):
        platform.bodies[url.replace("/records", "/api/records").removeprefix(platform.url)] = 410
        (result,) = filesets.ingest(url)
        assert (result.status, str(result.fileset).endswith(":6")) == ("platform-gone", True)
        assert (rows(filesets, "show", url)[0]["lost"] is not None) == lost
    missing = CliRunner().invoke(get, [f"{platform.url}/record/9", "--config", str(filesets.config.file)])
    assert isinstance(missing.exception, NotHeld)


def test_a_version_is_found_by_its_doi_and_its_url_where_all_versions_have_one_id(
    folder: Path, platform: Platform
) -> None:
    platforms = {"figshare": {"hosts": [platform.host], "rate": "none"}}
    filesets = make_archive(folder, platform, fileset={"platforms": platforms})
    platform.files["/files/1"] = b"abc"
    for version in (1, 2):
        row = {"id": 1, "name": f"p{version}", "size": 3, "download_url": f"{platform.url}/files/1"}
        platform.bodies[f"/v2/articles/123456/versions/{version}"] = {
            "id": 123456, "version": version, "is_public": True, "title": "T", "files": [row],
            "doi": f"10.6084/m9.figshare.123456.v{version}",
        }  # fmt: skip
        filesets.ingest(f"{platform.url}/articles/dataset/x/123456/{version}")
    known = {"10.6084/m9.figshare.123456": "2", f"{platform.url}/articles/123456": "2"}
    for version in ("1", "2"):
        names = f"10.6084/m9.figshare.123456.v{version}", f"{platform.url}/articles/123456/{version}"
        known |= dict.fromkeys(names, version)
    assert {asked: rows(filesets, "show", asked)[0]["version"] for asked in known} == known


def test_coverage_counts_filesets_apart(one: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 9, {"p": 10, "q": 10, "r": 10}, concept=99)
    platform.bodies["/api/records/9"]["files"][1]["key"] = "../evil.txt"
    platform.files.pop("/api/records/9/files/r/content")
    one.ingest(url)

    def last_two() -> list[dict[str, Any]]:
        found = CliRunner().invoke(coverage, ["--json", "--config", str(one.config.file)])
        return [json.loads(line) for line in found.output.splitlines() if line.startswith("{")][-2:]

    filesets, everything = last_two()
    assert (filesets["of"], everything["of"], everything["works"]) == ("filesets", "all", 0)
    names = ("works", "with_file", "files", "held", "other", "unreachable", "lost")
    assert [filesets[name] for name in names] == [2, 2, 6, 4, 1, 1, 0]
    with one.archive() as archive:
        view = next(runs(archive))
        account = Account("a", 1, view, series_of([view]), (), filesets=coverage_of_filesets(archive.catalogue))
    assert ">filesets</" in page(account)
    assert account.as_value()["filesets"]["works"] == 2
    platform.bodies["/api/records/9"] = 410
    one.ingest(url)
    assert [last_two()[0][name] for name in names] == [2, 1, 6, 3, 1, 1, 1]


# -- exports --------------------------------------------------------------------------------------


def exported(one: Filesets, form: str, folder: Path, *options: str) -> Path:
    target = folder / form
    code, out = command(one, "export", "10.5281/zenodo.7", "--as", form, str(target), *options)
    assert code == 0, out
    return target


def test_files_in_a_folder_have_safe_paths(one: Filesets, tmp_path: Path) -> None:
    folder = exported(one, "folder", tmp_path)
    assert (folder / "data/p q.csv").read_bytes() == bytes_of("data/p q.csv", 1000)
    assert (folder / "data/P Q (2).csv").read_bytes() == bytes_of("data/P Q.csv", 10)
    assert (folder / "empty").read_bytes() == b""
    assert command(one, "export", "10.5281/zenodo.7", "--as", "folder", str(folder))[0] == 2


def test_a_large_manifest_is_shown_in_pieces(one: Filesets, monkeypatch: pytest.MonkeyPatch) -> None:
    with one.archive() as archive:
        held = find_fileset(archive, "10.5281/zenodo.7")
    first = held.manifest.manifest[0]
    many = tuple(replace(first, path=f"{number}.csv") for number in range(20_000))
    large = held._replace(manifest=replace(held.manifest, manifest=many))
    monkeypatch.setattr("archec.cli.fileset.find_fileset", lambda *_: large)
    tracemalloc.start()
    try:
        code, out = command(one, "show", "10.5281/zenodo.7", "--json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (code, len(json.loads(out)["manifest"])) == (0, len(many))
    assert peak < 4 * len(out)


def test_copies_are_kept_up_to_date(one: Filesets, tmp_path: Path) -> None:
    ingest = ("ingest", "10.5281/zenodo.7", "--to", str(tmp_path))
    assert command(one, *ingest)[0] == 0
    (copy,) = tmp_path.rglob("p q.csv")
    assert copy.parts[-3].endswith(f"_{one.platform.server_port}-7")
    copy.unlink()
    assert command(one, *ingest)[0] == 0
    assert copy.stat().st_size == SIZES["data/p q.csv"]
    copy.write_text("mine")
    assert command(one, *ingest)[0] == 2
    assert copy.read_text() == "mine"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == len(SIZES)


def test_copies_are_of_the_selected_files_and_none_in_a_dry_run(one: Filesets, tmp_path: Path) -> None:
    ingest = ("ingest", "10.5281/zenodo.7", "--to", str(tmp_path / "to"))
    assert command(one, *ingest, "--dry-run")[0] == 0
    assert not (tmp_path / "to").exists()
    assert command(one, *ingest, "--include", "*/p q.csv")[0] == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["p q.csv"]


def test_bags_are_valid(one: Filesets, platform: Platform, tmp_path: Path) -> None:
    bag = bagit.Bag(str(exported(one, "bagit", tmp_path)))
    assert bag.validate()
    name = f"fileset:zenodo:127.0.0.1%3A{platform.server_port}:6@7"
    page = f"{platform.url}/records/7"
    assert bag.info["External-Identifier"] == [name, "https://doi.org/10.5281/zenodo.7", page]
    assert len(bag.payload_entries()) == 3
    folder = tmp_path / "holey"
    code, out = command(one, "export", "10.5281/zenodo.7", "--as", "bagit", "--fetch", str(folder), "--json")
    (listed,), told = rows(one, "list"), json.loads(out)
    tist = listed["noted"]
    assert (code, told) == (
        0, {"id": listed["id"], "tist": tist, "form": "bagit", "folder": str(folder), "files": 3,
            "not_held": []},
    )  # fmt: skip
    holey = bagit.Bag(str(folder))
    assert len(list(holey.fetch_entries())) == 3
    assert not list((folder / "data").iterdir())


@pytest.mark.parametrize("form", ["bagit", "ro-crate", "folder"])
def test_an_interrupted_export_is_continued(one: Filesets, tmp_path: Path, form: str) -> None:
    target, words = tmp_path / "target", ("export", "10.5281/zenodo.7", "--as", form)
    target.mkdir()
    (target / "~unfinished-export").touch()
    whole = exported(one, form, tmp_path)
    data = bytes_of("data/P Q.csv", 10)
    (path,) = [path for path in Path(one.config.store_path).rglob("*") if path.is_file() and path.read_bytes() == data]
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    assert command(one, *words, str(target))[0] == 6
    path.write_bytes(data)
    (copied,) = target.rglob("p q.csv")
    (copied.parent / f".{hashlib.sha256(data).hexdigest()}.part").write_bytes(b"of a killed export")
    for other in (("export", "10.5281/zenodo.7", "--as", "croissant"), ("export", "10.5281/zenodo.7", "--as", "urls")):
        assert command(one, *other, str(target))[0] == 2
    before = copied.stat().st_ino
    assert command(one, *words, str(target))[0] == 0
    assert copied.stat().st_ino == before, "what was complete is not written again"
    found = [{path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
             for top in (whole, target)]  # fmt: skip
    assert found[0] == found[1]
    assert command(one, *words, str(target))[0] == 2, "now it is complete"


def test_a_refused_export_changes_nothing(one: Filesets, tmp_path: Path) -> None:
    (tmp_path / "mine/empty").mkdir(parents=True)
    assert command(one, "export", "10.5281/zenodo.7", "--as", "folder", str(tmp_path))[0] == 2
    assert (tmp_path / "mine/empty").is_dir()


def test_a_data_set_with_a_folder_named_like_a_description(
    filesets: Filesets, platform: Platform, tmp_path: Path
) -> None:
    url = zenodo(platform, 7, {"Datapackage.json/p": 10})
    filesets.ingest(url)
    code, out = command(filesets, "export", url, "--as", "datapackage", str(tmp_path / "new"))
    assert (code, "the data set itself has datapackage.json" in out, list(tmp_path.iterdir())) == (1, True, [])


def test_bags_with_percent_signs_and_line_separators_are_valid(
    one: Filesets, platform: Platform, tmp_path: Path
) -> None:
    url = zenodo(platform, 9, {"95%CI.csv": 10, "a%2Fb": 5, "a%0Ab": 4, "%0d": 6, "a\u2028b\u2029c": 3}, concept=99)
    one.ingest(url)
    assert command(one, "export", url, "--as", "bagit", str(tmp_path))[0] == 0
    assert bagit.Bag(str(tmp_path)).validate()


def test_crates_are_readable(one: Filesets, tmp_path: Path) -> None:
    crate = ROCrate(str(exported(one, "ro-crate", tmp_path)))
    assert crate.name == "Prices 7"
    assert sorted(file["name"] for file in crate.get_by_type("File")) == sorted(SIZES)
    for file in crate.get_by_type("File"):
        assert Path(tmp_path / "ro-crate" / file.id.replace("%20", " ")).exists()


def test_packages_croissants_sums_and_urls(one: Filesets, tmp_path: Path) -> None:
    folder = exported(one, "datapackage", tmp_path)
    package = json.loads((folder / "datapackage.json").read_text())
    for resource in package["resources"]:
        data = (folder / resource["path"]).read_bytes()
        assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert len({resource["name"] for resource in package["resources"]}) == 3
    folder = exported(one, "croissant", tmp_path)
    croissant = json.loads((folder / "croissant.json").read_text())
    assert [one["@type"] for one in croissant["distribution"]] == ["cr:FileObject"] * 3
    assert [one["@id"] for one in croissant["distribution"]] == ["file-1", "file-2", "file-3"], "ids have no blanks"
    assert croissant["@context"]["md5"] == "cr:md5"
    files = exported(one, "folder", tmp_path)
    for form, tool in (("md5sums", "md5sum"), ("sha256sums", "sha256sum")):
        shutil.copy(exported(one, form, tmp_path) / f"{form}.txt", files / "sums")
        subprocess.run([tool, "--check", "--strict", "sums"], cwd=files, check=True, capture_output=True)
    assert len((exported(one, "urls", tmp_path) / "urls.txt").read_text().splitlines()) == 3


@pytest.mark.parametrize("form", ["ro-crate", "datapackage", "croissant"])
def test_a_large_description_takes_little_more_memory_than_its_bytes(
    filesets: Filesets, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [FilesetManifestFile(f"data/{n:07}.csv", 9, f"{n:032}", None, f"{n:064}", "text/csv", status="success",
                                 platform_url=f"https://h/{n:07}") for n in range(10_000)]  # fmt: skip
    manifest = Manifest(
        fileset="fileset:a:b:c", platform_name="a", platform_domain="b", platform_id="c", manifest=tuple(files)
    )
    monkeypatch.setattr("archec.fileset.export._folder", lambda of: None)
    held = HeldFileset(Obi(manifest.fileset, "fileset"), 1, "", manifest)
    with filesets.archive() as archive:
        tracemalloc.start()
        try:
            export(archive, held, form, tmp_path / "x")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    (written,) = (tmp_path / "x").iterdir()
    assert written.read_text().count("0000007.csv") >= 1
    assert peak < 3 * written.stat().st_size


def test_the_url_of_a_file_is_one_line(filesets: Filesets, platform: Platform, tmp_path: Path) -> None:
    """Also where it is hostile: a further line would be another URL, in a bag with a path of its own."""
    url = zenodo(platform, 7, {"p": 10, "q": 10, "r": 10})
    filesets.ingest(url)
    for row, more in zip(platform.bodies["/api/records/7"]["files"], ("\n", "\u2028", ""), strict=True):
        row["links"]["self"] += f"?x={more}http://evil.example.org/ 5 data/../x" if more else ""
    (result,) = filesets.ingest(url)
    assert result.status == "success", result.message
    assert command(filesets, "export", url, "--as", "urls", str(tmp_path / "urls"))[0] == 0
    urls = (tmp_path / "urls" / "urls.txt").read_text().splitlines()
    assert command(filesets, "export", url, "--as", "bagit", "--fetch", str(tmp_path / "bag"))[0] == 0
    lines = (tmp_path / "bag" / "fetch.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == urls
    assert [line.split(" ")[1:] for line in lines] == [["10", f"data/{name}"] for name in "pqr"]


# -- SQL ------------------------------------------------------------------------------------------


def test_sql_is_taken_by_sqlite_again_and_again(one: Filesets, platform: Platform) -> None:
    one.ingest(f"{platform.url}/records/99", "no url at all")
    database = sqlite3.connect(":memory:")
    for _ in range(2):
        code, script = command(one, "export-sql", "--dialect", "sqlite")
        assert code == 0
        database.executescript(script)
    columns = "base_url, hit, status, platform_id, manifest"
    found = database.execute(f"SELECT {columns} FROM ingest_fileset_platform").fetchall()
    assert [row[:4] for row in sorted(found)] == [
        ("doi:10.5281/zenodo.7", 1, "success", "7"), (f"{platform.url}/records/99", 0, "platform-404", "99"),
    ]  # fmt: skip
    assert [file["path"] for file in json.loads(min(found)[4])] == list(SIZES)
    with pytest.raises(sqlite3.IntegrityError):
        database.execute("UPDATE ingest_fileset_platform SET web_bundle_dt = '2026'")
    database.close()


def test_sql_has_the_files_of_a_data_set_that_is_not_held(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.files["/api/records/7/files/p/content"] = b"x" * 10
    for _ in range(2):
        (result,) = filesets.ingest(url)
    assert (result.status, result.fileset) == ("mismatch-md5", None)
    _, script = command(filesets, "export-sql", "--dialect", "sqlite")
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(script)
        ((manifest,),) = database.execute("SELECT manifest FROM ingest_fileset_platform")
    assert json.loads(manifest) == [msgspec.to_builtins(file) for file in result.manifest or ()]
    assert rows(filesets, "list") == []
    assert len([line for line in filesets.dump() if line["collection"] == "manifests"]) == 1


def test_sql_has_the_files_that_were_selected(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p.csv": 10, "q.csv": 20, "r.txt": 40})
    filesets.ingest(url)
    (result,) = filesets.ingest(url, include=("*.csv",))
    _, script = command(filesets, "export-sql", "--dialect", "sqlite")
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(script)
        ((count, size, manifest),) = database.execute(
            "SELECT file_count, total_size, manifest FROM ingest_fileset_platform"
        )
    assert (count, size) == (2, 30)
    assert json.loads(manifest) == [msgspec.to_builtins(file) for file in result.manifest or ()]


def test_sql_of_what_postgresql_does_not_hold(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p\\u0000\0\0": 10, "q": 10})
    for row in platform.bodies["/api/records/7"]["files"]:
        row["size"] = 2**63 - 1
    (result,) = filesets.ingest(url)
    assert (result.status, result.total_size) == ("too-large-size", 2**64 - 2)
    _, script = command(filesets, "export-sql", "--dialect", "postgresql")
    assert str(2**64 - 2) not in script
    assert r'"path": "p\\u0000\ufffd\ufffd"' in script


def test_sqlite_takes_rows_without_a_manifest(filesets: Filesets, platform: Platform) -> None:
    zenodo(platform, 7, {})
    filesets.ingest(f"{platform.url}/records/7")
    _, script = command(filesets, "export-sql", "--dialect", "sqlite")
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(script)
        rows_of = database.execute("SELECT status, manifest FROM ingest_fileset_platform").fetchall()
        assert rows_of == [("empty-manifest", None)]
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("UPDATE ingest_fileset_platform SET manifest = 'no JSON'")


def test_sql_of_postgresql_has_its_words(one: Filesets) -> None:
    code, script = command(one, "export-sql", "--dialect", "postgresql")
    assert code == 0
    for word in ("octet_length(web_bundle_dt) = 14", "DEFAULT now()", "JSONB", "PRIMARY KEY (ingest_type, base_url)",
                 "ON CONFLICT (ingest_type, base_url) DO UPDATE", "TRUE"):  # fmt: skip
        assert word in script


HOSTILE = "it's \\ \"quoted\" \u00e9\u0000 $1"
ASKED = "SELECT base_url, hit, platform_id, file_count, manifest FROM ingest_fileset_platform"


def hostile_script(filesets: Filesets, platform: Platform, dialect: str) -> tuple[str, str]:
    """Ingests a data set with a hostile file name and one that does not exist; gives its URL and the SQL of both."""
    url = zenodo(platform, 7, {"p.csv": 10, "q": 20})
    platform.bodies["/api/records/7"]["files"][1]["key"] = HOSTILE
    filesets.ingest(url, f"{platform.url}/records/99")
    return url, command(filesets, "export-sql", "--dialect", dialect)[1]


@pytest.mark.slow
def test_sql_is_taken_by_the_program_of_sqlite(filesets: Filesets, platform: Platform, tmp_path: Path) -> None:
    program = shutil.which("sqlite3")
    if program is None:
        pytest.skip("no sqlite3 program here")
    url, script = hostile_script(filesets, platform, "sqlite")
    for _ in range(2):
        subprocess.run([program, "-bail", tmp_path / "s"], input=script, text=True, check=True)
    found = subprocess.run([program, tmp_path / "s", ASKED], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"{url}|0|7|2|[")


@pytest.mark.slow
def test_sql_is_taken_by_postgresql(filesets: Filesets, platform: Platform) -> None:
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("no PostgreSQL here")
    url, script = hostile_script(filesets, platform, "postgresql")
    where = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    try:
        with postgresql(where, programs) as psql:
            for _ in range(2):
                psql(script)
            gone = psql(f"{ASKED} WHERE platform_id = '99';")
            row = psql(f"{ASKED} WHERE platform_id = '7';").rstrip("\n").split("|", 4)
        assert gone == f"{platform.url}/records/99|f|99||\n"
        assert row[:4] == [url, "f", "7", "2"]
        assert [file["path"] for file in json.loads(row[4])] == ["p.csv", clean(HOSTILE).replace("\0", "\ufffd")]
    finally:
        shutil.rmtree(where)


def postgresql_programs() -> Path | None:
    """Where PostgreSQL's own programs are: Debian keeps those of the server off PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@contextmanager
def postgresql(where: Path, programs: Path) -> Iterator[Callable[[str], str]]:
    """A server of PostgreSQL on a socket below ``where``, whose superuser is who owns it; gives what runs SQL there."""
    owner = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    if owner is not None:
        where.chmod(0o755)
        shutil.chown(where, owner)
    data, environ = where / "data", {**os.environ, "PGHOST": str(where), "PGUSER": "archec", "PGDATABASE": "postgres"}

    def done(program: str, *words: str | Path, text: str = "") -> str:
        made = subprocess.run(
            [programs / program, *words], input=text, capture_output=True, text=True, cwd=where, env=environ,
            user=owner, timeout=60, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        return made.stdout

    done("initdb", "-D", data, "-U", "archec", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
    with subprocess.Popen(
        [programs / "postgres", "-D", data, "-k", where, "-c", "listen_addresses=", "-F"], cwd=where, user=owner,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        try:
            until = time.monotonic() + 30
            while not list(where.glob(".s.PGSQL.*[0-9]")) and time.monotonic() < until:
                time.sleep(0.02)
            yield lambda text: done("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", text=text)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
            subprocess.run(["rm", "-rf", data], user=owner, check=True)


# -- candidates -----------------------------------------------------------------------------------


def test_candidates_are_data_sets_that_templates_name(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    names = [url, "https://doi.org/10.7910/DVN/ABC", "http://h.example.org/p.pdf"]
    refs = tuple(Refipo(one) for one in names)
    version = Version("0" * 64, "0" * 32, 1, None, "ReDIF-Paper 1.0", "T", refs)
    layout = open_store(filesets.config)
    catalogue = open_catalogue(filesets.config.database, base=filesets.config.base)
    with closing(catalogue), JournalWriter(layout, 100) as journal, Writer(layout) as writer:
        committer = Committer(writer, journal, catalogue)
        committer.add(CommitItem(RunStart(100)))
        for handle in ("RePEc:aaa:s:1", "RePEc:bbb:s:1"):
            text = writer.put(100, handle, b"Template-Type: ReDIF-Paper 1.0\nDOI: https://doi.org/10.3886/E7V1\n")
            change = ObiChange("tobi", handle, handle, {100: text.sha256}, (), replace(version, sha256=text.sha256),
                               {100: Note(100, "new")})  # fmt: skip
            committer.add(CommitItem(change, Placement(text.temp, 100, handle, text.sha256)))
        committer.commit()
    found = [(row["id"], row["platform"]) for row in rows(filesets, "candidates", "--archive", "aaa")]
    assert found == [("RePEc:aaa:s:1", "zenodo"), ("RePEc:aaa:s:1", "dataverse"), ("RePEc:aaa:s:1", "openicpsr")]
    names.insert(2, "doi:10.3886/E7V1")
    assert len(rows(filesets, "candidates")) == 6
    with filesets.archive() as archive:
        registry = Registry({name: PlatformConfig(enabled=False) for name in ("openicpsr", "dataverse")})
        assert {one.base_url for one in candidates(archive, registry)} == set()
        assert {one.platform for one in candidates(archive, Registry({}))} == {"dataverse", "openicpsr"}
    wanted = filesets.config.base / "wanted"
    wanted.write_bytes(archec_inline(filesets.config, "fileset", "candidates", "--archive", "bbb", "--json").out)
    done = archec_inline(filesets.config, "fileset", "ingest", "--dry-run", "--requests", wanted)
    given = [json.loads(line)["request"] for line in done.out.splitlines()]
    assert [(one["id"], one["base_url"]) for one in given] == [("RePEc:bbb:s:1", name) for name in names[:3]]
    resolver = platform.bodies["/api/handles/10.5281/zenodo.7"] = {
        "values": [{"type": "URL", "data": {"value": url.replace("records", "record")}}]
    }
    filesets.ingest("10.5281/zenodo.7", "http://[bad", "http://ex\u2100a.org/")
    assert archec_inline(filesets.config, "fileset", "show", "http://[bad").code in (2, 7)
    assert [row["base_url"] for row in rows(filesets, "candidates", "--archive", "aaa")] == names[1:3]
    resolver["values"] = []
    assert [result.status for result in filesets.ingest("10.5281/zenodo.7")] == ["platform-404"]
    assert [row["base_url"] for row in rows(filesets, "candidates", "--archive", "aaa")] == names[1:3]


def test_a_vault_has_filesets_with_their_files_pages_and_losses(one: Filesets, platform: Platform) -> None:
    one.ingest(zenodo(platform, 8, {**SIZES, "data/P Q.csv": 11}))
    platform.bodies["/api/records/8"] = 410
    one.ingest(f"{platform.url}/records/8")
    platform.bodies["/data"] = b'<link rel="item" href="javascript:x"><link rel="item" href="/q">'
    platform.files["/q"] = b"q"
    assert one.ingest(f"{platform.url}/data")[0].status == "success-partial"
    vault = one.config.base / "vault"
    (summary,) = json_of(archec_inline(one.config, "export", "warc", str(vault), "--json"))
    assert (summary["series"], summary["failed"]) == (1, 0)
    found: dict[str, list[bytes]] = {}
    for path in (vault / "archive").rglob("*.warc.gz"):
        with open(path, "rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                uri, kind = record.rec_headers.get_header("WARC-Target-URI"), record.rec_type
                found.setdefault(f"{kind} {uri}", []).append(record.content_stream().read())
    assert found[f"response {platform.url}/q"] == [b"q"]
    held = rows(one, "list")[1]
    name = "urn:x-archec:" + held["id"].replace("%", "%25")
    manifests = [json.loads(body) for body in found[f"resource {name}"]]
    assert [manifest["version"] for manifest in manifests] == ["7", "8"]
    for manifest in manifests:
        for file in manifest["manifest"]:
            digests = [hashlib.md5(body).hexdigest() for body in found[f"response {file['platform_url']}"]]
            assert file["md5"] in digests
    assert b"reason" in found[f"metadata urn:x-archec:lost:{name}"][0]
    assert found[f"response {platform.url}/records/7"]
    assert len(found[f"response {platform.url}/api/records/8"]) == 2, "the record and its tombstone"
    (again,) = json_of(archec_inline(one.config, "export", "warc", str(vault), "--json"))
    assert (again["records"], again["existing"]) == ({}, sum(summary["records"].values()))
    (other,) = json_of(archec_inline(one.config, "export", "warc", str(vault), "--json", "--archive", "aaa"))
    assert other["series"] == 0


def json_of(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_files_of_filesets_are_rows_of_the_own_archive(one: Filesets, platform: Platform) -> None:
    collections = parse("collections: {own: $archive}", one.config.file).collections
    server = dataclasses.replace(one.config.server, port=0, access_log="")
    config = dataclasses.replace(one.config, collections=collections, server=server)
    give_tokens(config)
    (shown,) = rows(one, "show", "10.5281/zenodo.7")
    with opened(config) as archive, serving(config, archive) as url, client(url) as get:
        for file in shown["manifest"]:
            asked = {"url": file["platform_url"], "output": "json"}
            (row,) = [json.loads(line) for line in get.get("/own/index", params=asked).text.splitlines()]
            record = next(iter(ArchiveIterator(io.BytesIO(get.get("/own/resource", params=asked).content))))
            assert record.content_stream().read() == bytes_of(file["path"], SIZES[file["path"]])
        below = get.get("/own/index", params={"url": f"{platform.url}/*", "output": "json"}).text
        assert len(below.splitlines()) >= len(SIZES)


def test_manifests_are_rows_of_the_own_archive(one: Filesets, platform: Platform) -> None:
    one.ingest(zenodo(platform, 8, {"data/P Q.csv": 11}))
    platform.bodies["/data"] = b'<link rel="item" href="/q">'
    platform.files["/q"] = b"q"
    one.ingest(f"{platform.url}/data")
    collections = parse("collections: {own: $archive}", one.config.file).collections
    server = dataclasses.replace(one.config.server, port=0, access_log="")
    config = dataclasses.replace(one.config, collections=collections, server=server)
    give_tokens(config)
    archec_inline(one.config, "export", "warc", str(one.config.base / "vault"))
    vault: dict[tuple[str, str], bytes] = {}
    for path in (one.config.base / "vault" / "archive").rglob("*.warc.gz"):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream):
                head = record.rec_headers
                key = (head.get_header("WARC-Target-URI"), head.get_header("WARC-Payload-Digest"))
                vault[key] = head.to_bytes(encoding="utf-8") + record.content_stream().read()
    with opened(config) as archive, serving(config, archive) as url, client(url) as get:

        def found(asked: str, match: str = "exact") -> list[dict[str, Any]]:
            answer = get.get("/own/index", params={"url": asked, "matchType": match, "output": "json"})
            assert "reserrors" not in answer.headers, asked
            return [json.loads(line) for line in answer.text.splitlines()]

        held = [row["id"] for row in rows(one, "list")]
        every: list[dict[str, Any]] = []
        for obi in held:
            name = "urn:x-archec:" + obi.replace("%", "%25")
            every += (known := found(name))
            assert known == found(obi) == found(name, "prefix")
            place, _, work = name.rpartition(":")  # whose case counts, as in the path of a URL
            for spelled in (place.upper(), place.title(), place.replace("en", "%65n")):
                assert known == found(f"{spelled}:{work}") == found(f"{spelled}:{work}", "prefix"), spelled
            for row in known:
                assert (row["obi"], row["url"], row["mime"]) == (obi, name, "application/json")
                record = next(iter(ArchiveIterator(io.BytesIO(get.get(
                    "/own/resource", params={"url": obi, "closest": row["timestamp"]}
                ).content))))  # fmt: skip
                head = record.rec_headers
                whole = head.to_bytes(encoding="utf-8") + record.content_stream().read()
                assert whole == vault[name, head.get_header("WARC-Payload-Digest")]
            assert get.get(f"/own/{row['timestamp']}id_/{name}").headers["content-type"] == "application/json"
            (explained,) = json_of(archec_inline(one.config, "access", "explain", obi, "--json"))
            assert (explained["url"], explained["mime"], explained["held"]) == (name, "application/json", True)
        assert sorted(len(found(obi)) for obi in held) == [1, 2]
        assert sorted(every, key=str) == sorted(found("urn:x-archec:*", "prefix"), key=str)
        assert every[-1] in found("urn:x-archec:fileset:*", "prefix")
        backwards = get.get("/own/index", params={"url": "urn:x-archec:*", "sort": "reverse", "output": "json"}).text
        assert len(backwards.splitlines()) == len(every)
        for unknown in ("fileset:zenodo:zenodo.org:77", "urn:x-archec:nothing", "urn:x-archec:fileset:zenodo"):
            assert found(unknown) == []
        assert get.get("/own/index", params={"url": "fileset:zenodo"}).status_code == 400
