"""``archec export warc``: the vault holds what the archive holds, once, and says so in its index."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
from collections import Counter
from pathlib import Path

import pytest
from export_support import PACKED, Record, World, all_records, check_vault, clone, exported, records_of, tree
from failpoint import killed_at
from fastwarc.warc import ArchiveIterator as FastIterator
from gather_site import Answer, Site, moved, page
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    catalogue_of,
    change,
    make,
    run,
    tarball,
    template,
    write_papers,
)
from small_disk import fill, small_disk

from archec.archive.lookup import held_at
from archec.archive.opening import Archive
from archec.errors import ConfigError, CorruptArchive, LockHeld, UsageError
from archec.export import run as export_run
from archec.export.units import UnitSelection
from archec.store.layout import Layout
from archec.store.lock import RunLock
from archec.tist import iso
from archec.urlkey import target_uri
from archec.warc.records import digest_of


@pytest.fixture(scope="session")
def vault(pristine: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault of everything; only to be read."""
    folder = tmp_path_factory.mktemp("vault") / "v"
    summary, problems = exported(pristine, folder)
    assert problems == []
    assert summary.failed == 0
    return folder


# -- what is in it ----------------------------------------------------------------------------------


def test_every_noted_state_is_there_with_its_bytes(pristine: World, vault: Path) -> None:
    check_vault(vault)
    found = {(r.uri, r.date): r for r in all_records(vault) if r.type not in ("revisit", "metadata")}
    with catalogue_of(pristine.config) as catalogue:
        wanted = 0
        for obi in (*catalogue.all("tobi"), *catalogue.all("fobi")):
            for tist in obi.history.noted:
                wanted += 1
                record = found[target_uri(obi.id), iso(tist)]
                if record.status.startswith("3"):
                    assert record.body == b""
                    assert record.http["location"]
                    assert "WARC-X-Archec-SHA256" not in record.headers
                    continue
                held = held_at(Archive(pristine.config, pristine.layout, catalogue), obi, tist)
                with held.open(pristine.layout) as file:
                    assert record.body == file.read(), obi.id
                assert record.headers["WARC-X-Archec-SHA256"] == obi.history.at(tist)
                assert hashlib.sha256(record.body).hexdigest() == obi.history.at(tist)
        assert wanted == len(found)


def test_kinds_of_records(pristine: World, vault: Path) -> None:
    by_url = {(r.uri, r.date): r for r in all_records(vault)}
    first, second, urls = iso(pristine.first), iso(pristine.second), pristine.urls
    assert by_url["urn:x-repec:zzz", "2001-01-01T00:00:00Z"].type == "resource"
    assert by_url["urn:x-repec:aaa:sss:0", first].headers["Content-Type"] == "text/plain; charset=utf-8"
    packed = by_url[urls["/packed"], first]
    assert (packed.type, packed.status, packed.body) == ("response", "200 OK", PACKED)
    assert packed.http["content-encoding"] == "gzip"
    assert packed.http["content-length"] == str(len(PACKED))
    hop = by_url[urls["/hop"], first]
    assert (hop.type, hop.status, hop.http["location"]) == ("response", "302 Found", urls["/old"])
    assert hop.headers["WARC-Truncated"] == "unspecified"
    assert by_url[urls["/old"], first].http["location"] == urls["/a.pdf"]
    assert by_url[urls["/a.pdf"], first].headers["WARC-Identified-Payload-Type"] == "application/pdf"
    assert by_url[urls["/b.html"], second].type == "response"
    assert by_url[urls["/empty"], first].body == b""
    same, not_modified = by_url[urls["/packed"], second], by_url[urls["/tagged"], second]
    for revisit, profile in ((same, "identical-payload-digest"), (not_modified, "server-not-modified")):
        assert revisit.type == "revisit"
        assert revisit.headers["WARC-Profile"] == f"http://netpreserve.org/warc/1.1/revisit/{profile}"
        original = by_url[revisit.uri, revisit.headers["WARC-Refers-To-Date"]]
        assert original.uri == revisit.headers["WARC-Refers-To-Target-URI"]
        assert original.id == revisit.headers["WARC-Refers-To"]
        assert original.headers["WARC-Payload-Digest"] == revisit.headers["WARC-Payload-Digest"]
    lost = "urn:x-repec:aaa:sss:6"
    loss = by_url[f"urn:x-archec:lost:{lost}", second]
    fields = dict(line.split(": ", 1) for line in loss.body.decode().splitlines())
    assert (loss.type, fields["last-seen"], fields["lost"]) == ("metadata", first, second)
    assert fields["reason"].startswith("no longer in aaa/sss/papers.rdf")
    assert loss.headers["WARC-Refers-To"] == by_url[lost, first].id


def test_visits_that_found_other_bytes_are_no_revisits(tmp_path: Path) -> None:
    config = make(tmp_path / "archive")
    with Site() as site:
        site["/r"], site["/a"] = moved("/a"), page("words", ETag='"1"')
        write_papers(config, [site.url("/r")])
        first = run(config).run
        site["/a"] = Answer(200, page("words").body + b"<!-- -->", page("words", ETag='"2"').headers)
        run(config)
        site["/a"] = Answer(304)
        run(config)
        site["/a"] = page("words", ETag='"1"')
        last = run(config).run
        urls = {site.url("/r"), site.url("/a")}
    exported(World(config, {}, first, last), tmp_path / "vault")
    records = {(r.type, r.uri, r.date) for r in all_records(tmp_path / "vault") if r.uri in urls}
    kinds = {("response", iso(first)), ("revisit", iso(last))}
    assert records == {(kind, url, date) for kind, date in kinds for url in urls}


def test_files_belong_to_every_series_that_mentions_them(pristine: World, vault: Path) -> None:
    where = Counter(
        path.parent.name
        for path in vault.rglob("*.warc.gz")
        for record in records_of(path)
        if record.uri == pristine.urls["/a.pdf"] and record.type == "response"
    )
    assert where == {"aaa": 1, "bbb": 1}
    names = {path.name for path in vault.rglob("*.warc.gz")}
    wanted = {f"{name}+00001.warc.gz" for name in ("aaa+sss", "bbb+sss", "zzz", "zzz+sss")}
    assert names == wanted


def test_each_file_begins_with_what_it_is(vault: Path) -> None:
    for path in vault.rglob("*.warc.gz"):
        head = next(records_of(path))
        assert head.type == "warcinfo"
        assert head.headers["WARC-Filename"] == path.name
        assert b"isPartOf: RePEc:" in head.body


def test_fastwarc_reads_it(vault: Path) -> None:
    count = 0
    for path in vault.rglob("*.warc.gz"):
        with open(path, "rb") as file:
            for record in FastIterator(file, parse_http=False):
                count += 1
                # What precedes a payload that is not in the record is no part of the block.
                assert record.verify_block_digest(), record.headers
    assert count == len(all_records(vault)) + len(list(vault.rglob("*.warc.gz")))


def test_warcio_checks_it(vault: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from warcio.cli import main

    with pytest.raises(SystemExit) as left:
        main(["check", *(str(path) for path in vault.rglob("*.warc.gz"))])
    assert not left.value.code, capsys.readouterr().out


# -- again and again --------------------------------------------------------------------------------


def test_once_more_changes_nothing(pristine: World, vault: Path) -> None:
    before = tree(vault)
    summary, _ = exported(pristine, vault)
    assert not summary.records
    assert summary.existing == len(all_records(vault))
    assert tree(vault) == before


def test_a_fresh_export_is_the_same_to_the_byte(pristine: World, vault: Path, tmp_path: Path) -> None:
    exported(pristine, tmp_path / "v")
    assert tree(tmp_path / "v") == tree(vault)


def test_only_what_is_new_is_added(world: World, tmp_path: Path) -> None:
    exported(world, tmp_path / "v")
    before = tree(tmp_path / "v")
    write_papers(world.config, [], archive="bbb")
    write_papers(world.config, ["http://127.0.0.1:1/never"], title="A third title")
    run(world.config, fetch=False)
    summary, _ = exported(world, tmp_path / "v")
    assert dict(summary.records) == {"resource": 1}
    after = tree(tmp_path / "v")
    assert {name for name in before if after[name] != before[name]} == {"indexes/aaa+sss.cdxj"}
    assert set(after) - set(before) == {"archive/aaa/aaa+sss+00002.warc.gz"}
    check_vault(tmp_path / "v")
    exported(world, tmp_path / "fresh")
    assert ids(tmp_path / "fresh") == ids(tmp_path / "v")


def ids(vault: Path) -> Counter[str]:
    return Counter(record.id for record in all_records(vault))


def test_large_files_are_cut(pristine: World, vault: Path, tmp_path: Path) -> None:
    summary, _ = exported(pristine, tmp_path / "v", max_bytes=1500)
    assert summary.files > 6
    check_vault(tmp_path / "v")
    assert ids(tmp_path / "v") == ids(vault)


def test_a_series_of_many_files_needs_few_open_ones(tmp_path: Path) -> None:
    config = make(tmp_path / "archive")
    texts = "\n".join(template(f"RePEc:aaa:s:{n}") for n in range(80))
    run(config, tarball(tmp_path / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/s/p.rdf", texts.encode())]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 120, hard))
    try:
        summary, problems = exported(World(config, {}, 0, 0), tmp_path / "v", max_bytes=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (problems, summary.files) == ([], 80)


def test_worker_processes_write_the_same(
    world: World, vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_run, "_SMALL", 0)
    other = World(change(world.config, {"workers": 2}), world.urls, world.first, world.second)
    exported(other, tmp_path / "v")
    assert tree(tmp_path / "v") == tree(vault)


# -- parts ------------------------------------------------------------------------------------------


def test_dry_run_writes_nothing(pristine: World, vault: Path, tmp_path: Path) -> None:
    summary, _ = exported(pristine, tmp_path / "v", dry=True)
    assert sum(summary.records.values()) == len(all_records(vault))
    assert not (tmp_path / "v").exists()
    again, _ = exported(pristine, vault, dry=True)
    assert not again.records


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (UnitSelection("zzz"), {"zzz.cdxj", "zzz+sss.cdxj"}),
        (UnitSelection("zzz", "sss"), {"zzz+sss.cdxj"}),
        (UnitSelection("aaa", "none"), set()),
        (UnitSelection("aa"), set()),
    ],
)
def test_selection(pristine: World, vault: Path, tmp_path: Path, wanted: UnitSelection, names: set[str]) -> None:
    exported(pristine, tmp_path / "v", wanted=wanted)
    assert {path.name for path in (tmp_path / "v" / "indexes").iterdir()} == names
    for name in names:
        assert (tmp_path / "v" / "indexes" / name).read_bytes() == (vault / "indexes" / name).read_bytes()


def test_since(pristine: World, vault: Path, tmp_path: Path) -> None:
    exported(pristine, tmp_path / "v", since=pristine.second)
    check_vault(tmp_path / "v")
    found = all_records(tmp_path / "v")
    dates = {(record.uri, record.date) for record in found}
    referred = {(r.uri, r.headers["WARC-Refers-To-Date"]) for r in found if r.type == "revisit"}
    assert referred <= dates
    assert all(date >= iso(pristine.second) for uri, date in dates - referred)
    assert {r.id for r in found if r.date >= iso(pristine.second)} == {
        r.id for r in all_records(vault) if r.date >= iso(pristine.second)
    }
    exported(pristine, tmp_path / "v")
    assert ids(tmp_path / "v") == ids(vault)


def test_without_revisits(pristine: World, tmp_path: Path) -> None:
    summary, _ = exported(pristine, tmp_path / "v", revisits=False)
    assert "revisit" not in summary.records
    assert {record.type for record in all_records(tmp_path / "v")} == {"resource", "response", "metadata"}


# -- what is wrong ----------------------------------------------------------------------------------


def test_spoilt_bytes_are_named_and_left_out(world: World, vault: Path, tmp_path: Path) -> None:
    layout, urls = world.layout, world.urls
    bad = layout.root / layout.path(world.first, urls["/packed"])
    gone = layout.root / layout.path(world.first, "RePEc:aaa:sss:1")
    kept = (bad.read_bytes(), gone.read_bytes())
    bad.chmod(0o644)
    bad.write_bytes(kept[0][:-1] + b"?")
    gone.unlink()
    summary, problems = exported(world, tmp_path / "v")
    assert {(problem.code, problem.id) for problem in problems} == {
        ("corrupt", urls["/packed"]),
        ("missing", "RePEc:aaa:sss:1"),
    }
    assert summary.failed == 2
    check_vault(tmp_path / "v")
    assert not any(record.uri == urls["/packed"] for record in all_records(tmp_path / "v"))
    done = archec_inline(world.config, "export", "warc", tmp_path / "v", "--json")
    assert done.code == 6
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line.get("code") for line in lines] == ["corrupt", "missing", None]
    assert lines[-1]["by_code"] == {"corrupt": 1, "missing": 1}
    bad.write_bytes(kept[0])
    gone.write_bytes(kept[1])
    assert exported(world, tmp_path / "v")[0].failed == 0
    assert ids(tmp_path / "v") == ids(vault)


def test_no_revisit_of_a_spoilt_state_refers_to_the_one_before(tmp_path: Path) -> None:
    """A visit that found a file as it was last noted, where that state is spoilt and an older one is not."""
    config = make(tmp_path / "archive")
    with Site() as site:
        url = site.url("/b.html")
        write_papers(config, [url])
        site["/b.html"] = page("first")
        first = run(config).run
        site["/b.html"] = page("second")
        second = run(config).run
        assert run(config).fobis["same"] == 1
    world, vault = World(config, {}, first, second), tmp_path / "v"
    changed = world.layout.root / world.layout.path(second, url)
    good = changed.read_bytes()
    changed.chmod(0o644)
    changed.write_bytes(b"spoilt")
    summary, _ = exported(world, vault)
    assert summary.failed == 1
    assert [record.date for record in all_records(vault) if record.uri == url] == [iso(first)]
    changed.write_bytes(good)
    exported(world, vault)
    (revisit,) = [record for record in all_records(vault) if record.type == "revisit"]
    assert revisit.headers["WARC-Payload-Digest"] == digest_of(good)
    check_vault(vault)


def test_a_link_out_of_the_store_is_not_followed(world: World, tmp_path: Path) -> None:
    path = world.layout.root / world.layout.path(world.first, world.urls["/a.pdf"])
    path.unlink()
    path.symlink_to("/etc/passwd")
    summary, problems = exported(world, tmp_path / "v")
    assert {problem.code for problem in problems} == {"corrupt"}
    assert not any(b"root:" in record.body for record in all_records(tmp_path / "v"))


def test_foreign_folders_are_refused(pristine: World, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(ConfigError, match=r"letter\.txt"):
        exported(pristine, tmp_path)
    with pytest.raises(UsageError, match="obi store"):
        exported(pristine, pristine.layout.root / "vault")
    assert not (pristine.layout.root / "vault").exists()
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "vault.json").write_text('{"version": 2}')
    with pytest.raises(ConfigError, match="version 2"):
        exported(pristine, tmp_path / "v")
    (tmp_path / "v" / "vault.json").write_text("[]")
    with pytest.raises(CorruptArchive):
        exported(pristine, tmp_path / "v")


def test_a_damaged_index_is_named(world: World, tmp_path: Path) -> None:
    exported(world, tmp_path / "v")
    index = tmp_path / "v" / "indexes" / "aaa+sss.cdxj"
    whole = index.read_bytes()
    for data in (whole[:-10], whole.replace(b"\n", b"\nnonsense\n", 1), whole + whole):
        index.chmod(0o644)
        index.write_bytes(data)
        with pytest.raises(CorruptArchive, match=r"aaa\+sss\.cdxj:[0-9]+: "):
            exported(world, tmp_path / "v")
    index.unlink()
    exported(world, tmp_path / "v")
    assert index.read_bytes() == whole
    check_vault(tmp_path / "v")


def test_what_a_worker_finds_wrong_is_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = World(change(world.config, {"workers": 2}), world.urls, world.first, world.second)
    exported(other, tmp_path / "v")
    index = tmp_path / "v" / "indexes" / "zzz.cdxj"
    index.chmod(0o644)
    index.write_bytes(b"nonsense\n")
    monkeypatch.setattr(export_run, "_SMALL", 0)
    with pytest.raises(CorruptArchive, match=r"zzz\.cdxj:1: ") as error:
        exported(other, tmp_path / "v")
    assert "remove this index" in error.value.hint
    assert list(other.config.work_path.iterdir()) == []


def test_handles_of_another_form_have_a_place(world: World, tmp_path: Path) -> None:
    members = [Member("zzz/other.rdf", b"Template-Type: ReDIF-Paper 1.0\nTitle: T\nHandle: xyz/../\xc3\xbc:1\n")]
    run(world.config, tarball(tmp_path / "RePEc_2004-01-01.tar", members), accept={"zzz"})
    exported(world, tmp_path / "v")
    check_vault(tmp_path / "v")
    (found,) = records_of_file(tmp_path / "v" / "archive" / "+other" / "+other+00001.warc.gz")
    assert found.uri == "urn:x-redif:xyz/../%C3%BC:1"
    assert found.body.endswith(b"Handle: xyz/../\xc3\xbc:1\n")


def records_of_file(path: Path) -> list[Record]:
    return [record for record in records_of(path) if record.type != "warcinfo"]


def test_an_archive_on_a_full_disk_is_exported(
    pristine: World, vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its catalogue can then be opened only once."""
    monkeypatch.setattr("archec.sqlite._BUSY", 0.1)
    with small_disk(tmp_path / "small", "size=20m") as place:
        full = clone(pristine, place / "world")
        fill(place)
        done = archec_inline(full.config, "export", "warc", tmp_path / "vault")
        assert done.code == 0, done.err
        done = archec_inline(full.config, "export", "warc", place / "vault")
        assert (done.code, "No space left on device" in done.err) == (1, True), done
    assert tree(tmp_path / "vault") == tree(vault)


def test_what_this_machine_lacks_leaves_nothing_out(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = os.open

    def refused(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and str(path).startswith("RePEc%3A"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        done = archec_inline(world.config, "export", "warc", tmp_path / "vault")
        assert (done.code, "ulimit -n" in done.err, b"unreadable" in done.out) == (1, True, False), done
    assert archec_inline(world.config, "export", "warc", tmp_path / "vault").code == 0


def test_one_export_at_a_time(pristine: World, vault: Path) -> None:
    with RunLock(Layout(vault), "export warc"), pytest.raises(LockHeld, match="export warc"):
        exported(pristine, vault)


# -- the command ------------------------------------------------------------------------------------


def test_command(pristine: World, tmp_path: Path) -> None:
    done = archec_inline(pristine.config, "export", "warc", tmp_path / "v", "--series", "RePEc:aaa:sss")
    assert done.code == 0, done.err
    assert b"records of 1 series" in done.out
    done = archec_inline(pristine.config, "export", "warc", tmp_path / "v", "--json", "--dry-run", "--since", "2002")
    value = json.loads(done.out)
    assert value["dry_run"] is True
    assert value["records"]["resource"] > 0
    for wrong in (("--series", "sss"), ("--archive", "a:b"), ("--archive", "aaa", "--series", "bbb:sss")):
        done = archec_inline(pristine.config, "export", "warc", tmp_path / "v", *wrong)
        assert (done.code, done.out) == (2, b""), wrong


POINTS = (
    "export.mid-record", "export.mid-record:9", "export.before-files", "export.after-file", "export.after-file:3",
    "export.before-index", "export.before-index:2", "export.after-index", "export.after-index:2",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_costs_work_and_nothing_else(world: World, vault: Path, tmp_path: Path, point: str) -> None:
    done = archec_cli(world.config, "export", "warc", tmp_path / "v", env=killed_at(point))
    assert done.code == -9
    for path in (tmp_path / "v").rglob("*.warc.gz"):
        assert list(records_of(path)), "a visible file is whole"
    for index in (tmp_path / "v" / "indexes").glob("*.cdxj"):
        assert index.read_bytes() == (vault / "indexes" / index.name).read_bytes()
    done = archec_inline(world.config, "export", "warc", tmp_path / "v")
    assert done.code == 0, done.err
    assert tree(tmp_path / "v") == tree(vault)


def test_every_fail_point_is_tried() -> None:
    folder = Path(export_run.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert {part.split('"')[0] for part in source.split('hit("')[1:]} == {p.partition(":")[0] for p in POINTS}


def test_a_vault_is_checked_against_its_own_index(pristine: World, vault: Path, tmp_path: Path) -> None:
    """Before anything is said to be there already; and all of it is read with --verify."""

    def told(*options: str) -> tuple[int, list[tuple[str, str]], dict[str, object]]:
        done = archec_inline(pristine.config, "export", "warc", copy, "--json", *options)
        *faults, summary = (json.loads(line) for line in done.out.splitlines())
        return done.code, [(fault["code"], fault["path"]) for fault in faults], summary

    copy = tmp_path / "v"
    shutil.copytree(vault, copy)
    code, faults, summary = told("--verify")
    records = len([record for record in all_records(vault) if record.type != "warcinfo"])
    assert (code, faults, summary["records"], summary["faults"]) == (0, [], records, 0)
    warcs = sorted((copy / "archive").rglob("*.warc.gz"))
    one, two, three = (f"archive/{path.relative_to(copy / 'archive')}" for path in warcs[:3])
    data = bytearray(warcs[0].read_bytes())
    data[-len(data) // 4] ^= 1
    for path in copy.rglob("*.*"):
        path.chmod(0o644)
    warcs[0].write_bytes(data)
    assert told()[:2] == (0, [])
    code, faults, _ = told("--verify")
    assert (code, set(faults)) == (6, {("vault-corrupt", one)})
    sound = warcs[1].read_bytes()
    warcs[1].write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
    assert told()[:2] == (6, [("vault-corrupt", two)]), "the record about the file itself is in no index"
    assert set(told("--verify")[1]) == {("vault-corrupt", one), ("vault-corrupt", two)}
    warcs[1].write_bytes(sound)
    warcs[1].write_bytes(warcs[1].read_bytes()[:-1])
    warcs[2].unlink()
    for options in ((), ("--verify",)):
        code, faults, summary = told(*options)
        assert code == 6
        assert {("vault-size", two), ("vault-missing", three)} == set(faults) - {("vault-corrupt", one)}
    for path in (copy / "indexes").iterdir():
        path.unlink()
    assert told()[0] == 0
    assert told("--verify")[:2] == (0, [])
    assert archec_inline(pristine.config, "export", "warc", copy, "--verify", "--dry-run").code == 2
    index = min((copy / "indexes").iterdir())
    index.chmod(0o644)
    index.write_bytes(re.sub(rb'"length":"[0-9]+"', b'"length":"-5"', index.read_bytes(), count=1))
    done = archec_inline(pristine.config, "export", "warc", copy, "--verify")
    assert (done.code, "names no record" in done.err) == (6, True)
