"""Faults: each is found and named, repaired where there is a good copy, and nothing else is touched."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from audit_support import World, checked, clone, codes, flip, rewrite, run_sql, tree, verified
from gather_support import Member, archec_inline, histories, make, run, tarball, template, write_papers

from archec.archive.opening import opened, scratch_folder
from archec.audit.check import check, check_layout
from archec.audit.disk import Stopped
from archec.audit.expected import Entry
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector, ReadPace
from archec.audit.last_checked import fixity, memory_path
from archec.audit.opening import opened_for_audit
from archec.audit.verify import Scope, verify
from archec.catalogue.engines import open_catalogue
from archec.catalogue.sqlite import SQLiteCatalogue
from archec.errors import StorageFull
from archec.gather import operator_decisions
from archec.progress import Meter
from archec.store.layout import Layout, tist_path
from archec.store.lock import RunLock
from archec.tist import parse_when

Damage = Callable[[World], None]


def at(what: str, damage: Callable[[Path], object]) -> Damage:
    return lambda world: damage(world.path(what)) and None


def truncate(path: Path) -> None:
    rewrite(path, path.read_bytes()[:-5])


def lengthen(path: Path) -> None:
    rewrite(path, path.read_bytes() + b"\n")


def empty(path: Path) -> None:
    rewrite(path, b"")


def link_to_passwd(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def link_out(path: Path) -> None:
    path.unlink()
    path.symlink_to("../../../../../etc/passwd")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap(world: World) -> None:
    one, two = world.path("pdf"), world.path("template")
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def swap_versions(world: World) -> None:
    one, two = world.path("old page").read_bytes(), world.path("new page").read_bytes()
    rewrite(world.path("old page"), two)
    rewrite(world.path("new page"), one)


def delete_directory(world: World) -> None:
    shutil.rmtree(world.path("late").parent)


def wrong_link(world: World) -> None:
    link = world.path("link")
    link.unlink()
    link.symlink_to(world.path("old page").name)


def killed(*_: object) -> int:
    raise InterruptedError


def failing_disk(layout: Layout, scratch: SQLiteCatalogue, *_: object) -> None:
    with scratch.translated():
        raise sqlite3.OperationalError("disk I/O error")


class Fault(NamedTuple):
    """What is done, what verify and check say of it (by place), and whether a copy repairs it."""

    damage: Damage
    verify: dict[str, str]
    check: dict[str, str]


FAULTS: dict[str, Fault] = {
    "flipped bit": Fault(at("pdf", flip), {"pdf": "corrupt"}, {}),
    "flipped bit in a template": Fault(at("template", flip), {"template": "corrupt"}, {}),
    "flipped bit under a cut name": Fault(at("cut name", flip), {"cut name": "corrupt"}, {}),
    "flipped bit under two names": Fault(at("early", flip), {"early": "corrupt", "restated": "corrupt"}, {}),
    "truncated": Fault(at("old page", truncate), {"old page": "corrupt"}, {}),
    "longer": Fault(at("old page", lengthen), {"old page": "corrupt"}, {}),
    "emptied": Fault(at("new page", empty), {"new page": "corrupt"}, {}),
    "deleted": Fault(at("new page", Path.unlink), {"new page": "missing"}, {"new page": "missing"}),
    "deleted cut name": Fault(at("cut name", Path.unlink), {"cut name": "missing"}, {"cut name": "missing"}),
    "deleted restated": Fault(at("restated", Path.unlink), {"restated": "missing"}, {"restated": "missing"}),
    "deleted link": Fault(at("link", Path.unlink), {"link": "missing"}, {"link": "missing"}),
    "deleted directory": Fault(delete_directory, {"late": "missing"}, {"late": "missing"}),
    "swapped": Fault(swap, {"pdf": "corrupt", "template": "corrupt"}, {}),
    "swapped versions": Fault(swap_versions, {"old page": "corrupt", "new page": "corrupt"}, {}),
    "link to /etc/passwd": Fault(
        at("pdf", link_to_passwd), {"pdf": "link-escapes"}, {"pdf": "link-escapes"}
    ),
    "relative link to /etc/passwd": Fault(
        at("template", link_out), {"template": "link-escapes"}, {"template": "link-escapes"}
    ),
    "link in a circle": Fault(
        at("old page", link_to_itself), {"old page": "link-dangling"}, {"old page": "link-dangling"}
    ),
    "a redirect's link escapes": Fault(at("link", link_to_passwd), {"link": "link-escapes"}, {"link": "link-escapes"}),
    "a redirect leads elsewhere": Fault(wrong_link, {"link": "corrupt"}, {}),
    "directory in place of a file": Fault(at("pdf", directory), {"pdf": "not-a-file"}, {"pdf": "not-a-file"}),
    "pipe in place of a file": Fault(at("pdf", pipe), {"pdf": "not-a-file"}, {"pdf": "not-a-file"}),
    "damaged journal": Fault(
        at("journal", lambda path: flip(path, 200)), {"journal": "journal-damaged"}, {"journal": "journal-damaged"}
    ),
    "torn journal": Fault(
        at("last journal", truncate), {"last journal": "journal-damaged"}, {"last journal": "journal-damaged"}
    ),
    "emptied journal": Fault(at("journal", empty), {"journal": "journal-damaged"}, {"journal": "journal-damaged"}),
    **{
        f"{what.__name__} in place of a journal": Fault(
            at("journal", what), {"journal": "journal-damaged"}, {"journal": "journal-damaged"}
        )
        for what in (directory, pipe, link_to_itself, link_to_passwd)
    },
    "deleted journal": Fault(
        at("journal", Path.unlink), {"journal": "journal-missing"}, {"journal": "journal-missing"}
    ),
    "deleted last journal": Fault(
        at("last journal", Path.unlink), {"last journal": "journal-missing"}, {"last journal": "journal-missing"}
    ),
}


def test_a_sound_archive_is_clean(pristine: World) -> None:
    before = tree(pristine.config.store_path)
    summary, findings = verified(pristine)
    assert (summary.clean, summary.whole, findings) == (True, True, [])
    assert summary.files > 15
    structure, findings = checked(pristine)
    assert (structure.clean, findings, structure.journals) == (True, [], 5)
    assert tree(pristine.config.store_path) == before


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_and_named_and_repaired_and_nothing_else_is_touched(
    name: str, world: World, pristine: World
) -> None:
    good = tree(pristine.config.store_path)
    fault = FAULTS[name]
    fault.damage(world)
    damaged = tree(world.config.store_path)
    summary, findings = verified(world)
    assert not summary.clean
    for what, code in fault.verify.items():
        assert code in codes(findings, world.places[what]), [str(finding) for finding in findings]
    told = {finding.path for finding in findings if finding.wrong}
    named = {world.places[what] for what in fault.verify}
    assert named <= told
    structure, findings = checked(world)
    assert structure.clean == (not fault.check), [str(finding) for finding in findings]
    for what, code in fault.check.items():
        assert code in codes(findings, world.places[what]), [str(finding) for finding in findings]
    assert tree(world.config.store_path) == damaged, "looking has changed something"
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert summary.clean, [str(finding) for finding in findings]
    assert summary.tally.fixed >= len(fault.verify)
    after = tree(world.config.store_path)
    aside = {path: what for path, what in after.items() if path.startswith("quarantine/")}
    assert {path: what for path, what in after.items() if path not in aside} == good
    changed = {path: what for path, what in damaged.items() if good.get(path) != what}
    assert {path.removeprefix("quarantine/"): what for path, what in aside.items()} == changed
    assert tree(pristine.config.store_path) == good
    summary, findings = verified(world)
    assert (summary.clean, findings) == (True, [])
    structure, findings = checked(world)
    assert (structure.clean, findings) == (True, [])


@pytest.mark.parametrize("name", ["flipped bit", "deleted", "damaged journal"])
def test_a_copy_that_is_as_bad_repairs_nothing(name: str, world: World, pristine: World, tmp_path: Path) -> None:
    FAULTS[name].damage(world)
    copy = clone(world, tmp_path / "copy")
    damaged = tree(world.config.store_path)
    summary, findings = verified(world, copy=copy.config.store_path)
    assert not summary.clean
    assert not summary.tally.fixed
    assert all("not repaired" in finding.message for finding in findings if finding.wrong)
    assert tree(world.config.store_path) == damaged


def test_the_database_is_gone(world: World, pristine: World) -> None:
    (world.config.base / "data" / "catalogue.sqlite").unlink()
    before = tree(world.config.store_path)
    structure, findings = checked(world)
    assert codes(findings) == ["catalogue-unreadable"]
    assert not structure.clean
    assert not (world.config.base / "data" / "catalogue.sqlite").exists()
    structure, findings = checked(world, fix=True)
    assert (structure.clean, codes(findings)) == (True, ["catalogue-behind"])
    assert findings[0].fixed
    assert verified(world)[0].clean
    assert tree(world.config.store_path) == before


def test_verify_makes_no_catalogue(world: World) -> None:
    (world.config.base / "data" / "catalogue.sqlite").unlink()
    summary, findings = verified(world)
    assert (summary.clean, codes(findings)) == (False, ["catalogue-unreadable"])
    assert not (world.config.base / "data" / "catalogue.sqlite").exists()


@pytest.mark.parametrize("swapped", [False, True], ids=["absent", "another archive's"])
@pytest.mark.parametrize("catalogue", [False, True], ids=["no catalogue", "a catalogue"])
def test_journals_that_are_not_those_of_the_store(
    world: World, tmp_path: Path, memory_folder: Callable[[], Path], swapped: bool, catalogue: bool
) -> None:
    copy, other = clone(world, tmp_path / "copy"), make(memory_folder() / "other")
    member = Member("bbb/sss/1.rdf", template("RePEc:bbb:sss:1").encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("archec.gather.run.stamp", lambda *_: 1_000_000_007)  # not by chance that of a run of the world
        run(other, tarball(tmp_path / "RePEc_1999-01-01.tar", [member]))
    shutil.rmtree(world.layout.runs)
    if swapped:
        shutil.copytree(other.store_path / "runs", world.layout.runs)
    if not catalogue:
        (world.config.base / "data" / "catalogue.sqlite").unlink()
    for scope in (Scope(), Scope(share=0.0), Scope(share=0.5), Scope(seconds=60)):
        summary, findings = verified(world, scope=scope)
        assert not summary.clean
        assert "journal-missing" in codes(findings)
    assert "journal-missing" in codes(checked(world)[1])
    done = archec_inline(world.config, "rebuild")
    assert done.code == 6, done
    assert "nothing was rebuilt" in done.err
    if catalogue and not swapped:
        world.layout.runs.mkdir(exist_ok=True)
        assert verified(world, copy=copy.config.store_path)[0].clean
        assert verified(world)[1] == []


def test_a_damaged_database(world: World) -> None:
    path = world.config.base / "data" / "catalogue.sqlite"
    path.write_bytes(b"\0" * 20000)
    for summary, findings in (verified(world), checked(world)):
        assert not summary.clean
        assert codes(findings) == ["catalogue-unreadable"]


def test_a_database_with_a_damaged_page(world: World) -> None:
    path = world.config.base / "data" / "catalogue.sqlite"
    run_sql(world, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    for start in range(8192, len(data), 8192):
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    summary, findings = checked(world)
    assert not summary.clean
    assert set(codes(findings)) <= {"catalogue-unreadable", "catalogue-behind"}


def test_a_handle_of_another_form_is_a_template_all_the_same(world: World, tmp_path: Path) -> None:
    texts = [template(handle) for handle in ("ISBN:123", "http://h.example/not:a:file")]
    member = Member("aaa/sss/odd.rdf", "\n".join(texts).encode())
    run(world.config, tarball(tmp_path / "RePEc_2001-02-01.tar", [member]))
    summary, findings = verified(world)
    assert findings == []
    assert summary.clean


def test_the_catalogue_says_something_else(world: World) -> None:
    wrong = "0" * 64
    run_sql(world, f"UPDATE mi SET state = x'{wrong}', h = NULL WHERE id = 'RePEc:aaa:sss:1'")
    summary, findings = verified(world)
    assert not summary.clean
    assert codes(findings) == ["catalogue-disagrees", "catalogue-lacks"]
    assert any(wrong in finding.message for finding in findings)


def test_the_catalogue_says_that_an_obi_was_lost(world: World) -> None:
    run_sql(world, "UPDATE mi SET state = NULL, h = NULL WHERE id = 'RePEc:aaa:sss:2'")
    for _, findings in (verified(world), checked(world)):
        assert "catalogue-disagrees" in codes(findings)
        assert any("the catalogue has it as lost" in finding.message for finding in findings)


def test_the_catalogue_lacks_an_obi_and_has_another(world: World) -> None:
    run_sql(world, "UPDATE mi SET id = 'RePEc:aaa:sss:9' WHERE id = 'RePEc:aaa:sss:0'")
    summary, findings = verified(world)
    assert codes(findings) == ["catalogue-lacks", "catalogue-lacks"]
    for table in ("entries", "versions"):
        run_sql(world, f"UPDATE {table} SET id = 'RePEc:aaa:sss:9' WHERE id = 'RePEc:aaa:sss:0'")
    structure, findings = checked(world)
    assert codes(findings) == ["catalogue-lacks", "catalogue-lacks", "journal-lacks", "journal-lacks"]
    assert not structure.clean


def test_whose_side_the_bytes_are_on(world: World) -> None:
    """Bytes, catalogue and journal, each against the two others."""
    path = world.path("template")
    forged = path.read_bytes().replace(b"A title", b"B title")
    sha256 = hashlib.sha256(forged).hexdigest()
    rewrite(path, forged)
    real = hashlib.sha256(forged.replace(b"B title", b"A title")).hexdigest()
    run_sql(
        world,
        f"UPDATE mi SET h = replace(h, '{real}', '{sha256}')",
        f"UPDATE versions SET sha256 = x'{sha256}', doc = replace(doc, '{real}', '{sha256}') WHERE sha256 = x'{real}'",
    )
    _, findings = verified(world)
    assert codes(findings) == ["journal-disagrees"], str(findings[0])
    assert (findings[0].sha256, findings[0].found) == (real, sha256)


def test_an_md5_of_the_journal_that_is_not_that_of_the_bytes(world: World) -> None:
    """Where the sha256 is right it is the journal's line that is wrong; no copy of the file is to take its place."""
    data = world.path("template").read_bytes()
    sha256, md5 = hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()
    tist, obi = int(Path(world.places["journal"]).name.partition(".")[0]), "RePEc:aaa:sss:0"
    with closing(Inspector(world.layout, None, ReadPace(0))) as inspector:
        for told in (md5, ""):
            assert inspector.inspect_one(Entry(tist, obi, sha256, len(data), "", told)) is None
        finding = inspector.inspect_one(Entry(tist, obi, sha256, len(data), "", "0" * 32))
    assert finding is not None
    assert (finding.code, finding.wrong, finding.path) == ("journal-line", True, world.places["template"])
    assert md5 in finding.message


STRANGE: dict[str, tuple[str, str]] = {
    "{template}x": ("unjournalled", "unjournalled"),
    "{template}%zz": ("misnamed", "misnamed"),
    "{template} with blanks": ("misnamed", "misnamed"),
    "{template}ü": ("misnamed", "misnamed"),
    "stray": ("unexpected", "unexpected"),
    "032/stray": ("unexpected", "unexpected"),
    "032/184/x/y": ("unexpected", "unexpected"),
    "runs/1.json": ("", "unexpected"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_nobody_put_there(name: str, world: World) -> None:
    """check --fix sets it aside, with a record of where it lay; what may be an obi of a lost journal stays."""
    relative = name.format(template=world.places["template"])
    path = world.config.store_path / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("something")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    before = tree(world.config.store_path)
    by_verify, by_check = STRANGE[name]
    for (summary, findings), code in ((verified(world), by_verify), (checked(world), by_check)):
        assert codes(findings) == ([code] if code else [])
        assert summary.clean == (not code)
    assert tree(world.config.store_path) == before
    summary, (finding,) = checked(world, fix=True)
    moves = by_check != "unjournalled"
    assert (finding.code, summary.clean, bool(finding.fixed)) == (by_check, moves, moves)
    after = tree(world.config.store_path)
    if not moves:
        assert after == before
        return
    moved = finding.fixed.removeprefix("moved to ")
    assert moved == f"quarantine/{finding.path}"
    assert relative.startswith(finding.path)
    after[relative] = after.pop(f"quarantine/{relative}")
    assert after == before
    lines = (world.config.store_path / "quarantine/moved.jsonl").read_text().splitlines()
    record = [json.loads(line) for line in lines]
    assert [(one["path"], one["moved"], one["finding"]) for one in record] == [(finding.path, moved, by_check)]
    assert checked(world)[1] == []


def test_names_that_are_no_utf8(world: World) -> None:
    folder = os.fsencode(world.path("template").parent)
    Path(os.fsdecode(folder + b"/\xff")).write_text("x")
    os.symlink("x", folder + b"/\xfe")
    assert codes(verified(world)[1]) == ["link-dangling", "misnamed"]
    assert codes(checked(world, fix=True)[1]) == ["link-dangling", "misnamed"]
    assert checked(world)[1] == verified(world)[1] == []


def test_a_link_that_nobody_put_there(world: World) -> None:
    path = world.path("template").with_name("http%3A%2F%2Fh%2F")
    path.symlink_to("/etc/passwd")
    for summary, findings in (verified(world), checked(world)):
        assert codes(findings) == ["link-escapes"]
        assert findings[0].path == str(path.relative_to(world.config.store_path))
        assert not summary.clean
    assert path.is_symlink()
    assert checked(world, fix=True)[0].clean
    assert not path.is_symlink()
    assert checked(world)[1] == []


def test_what_is_not_set_aside(world: World) -> None:
    """Where a journal is missing, where more is missing than there, and where a journal may yet come."""
    before = tree(world.config.store_path)
    stray = world.config.store_path / "stray"
    stray.write_text("something")
    aside = world.path("journal").rename(world.config.base / "aside")
    assert not checked(world, fix=True)[0].clean
    aside.rename(world.path("journal"))
    descriptor = world.config.store_path / "layout.json"
    text = descriptor.read_bytes()
    rewrite(descriptor, text.replace(b'"fanout": 0', b'"fanout": 256'))
    assert "layout.json" in " ".join(str(finding) for finding in checked(world, fix=True)[1])
    rewrite(descriptor, text)
    stray.unlink()
    assert tree(world.config.store_path) == before


def test_obis_that_only_lost_journals_knew_stay(world: World, folder: Path) -> None:
    """Journals and catalogue are those of an older copy: what came later, also at old tists, is named and left."""
    root, database = world.config.store_path, world.config.base / "data" / "catalogue.sqlite"
    shutil.copytree(root / "runs", folder / "runs")
    shutil.copy(database, folder)
    known = tree(root)
    for name in ("RePEc_1999-01-01.tar", "RePEc_2001-01-01.tar"):
        run(world.config, tarball(folder / name, [Member("yyy/sss/1.rdf", template("RePEc:yyy:sss:1", name).encode())]))
    shutil.rmtree(root / "runs")
    shutil.copytree(folder / "runs", root / "runs")
    shutil.copy(folder / "catalogue.sqlite", database)
    newer = sorted(set(tree(root)) - set(known))
    assert len(newer) == 2
    for path in newer:
        os.utime(root / path, (1, 1))  # when they were written does not tell
    for summary, findings in (verified(world), checked(world), checked(world, fix=True)):
        assert [(one.code, one.path) for one in findings] == [("unjournalled", path) for path in newer]
        assert all("older copy" in one.message and "gather that data set again" in one.message for one in findings)
        assert not summary.clean
    assert set(newer) < set(tree(root))
    run(world.config, folder / "RePEc_1999-01-01.tar")
    (finding,) = checked(world)[1]
    assert finding.path == next(path for path in newer if path.startswith(tist_path(978307200))), "the other is adopted"
    assert finding.code == "unjournalled", "also now that the journals have gone on"
    shutil.rmtree(root / "runs")
    shutil.copytree(folder / "runs", root / "runs")
    shutil.copy(folder / "catalogue.sqlite", database)
    done = archec_inline(world.config, "check", "--fix", "--unjournalled")
    assert (done.code, done.out.count(b"moved to quarantine/")) == (0, 2), done
    assert {path: what for path, what in tree(root).items() if not path.startswith("quarantine/")} == known
    assert archec_inline(world.config, "check", "--unjournalled").code == 2


def test_where_a_stopped_run_may_have_left_an_obi() -> None:
    """At its own tist, at that of its data set, and, as hard links, at those of the data sets between them."""
    stopped = Stopped(run=300, data_set=100)
    for linked, tists in ((False, [100, 300]), (True, [100, 200, 300])):
        assert [tist for tist in (50, 100, 200, 300, 400) if stopped.may_have_left(tist, linked=linked)] == tists


def test_checks_go_on_where_they_can_remember_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = memory_path(world.config)
    with monkeypatch.context() as patch:
        patch.setattr("archec.audit.last_checked.unwritable", lambda path: f"no permission to write {path.parent}")
        for summary, (finding,) in (verified(world), checked(world)):
            assert (summary.clean, summary.whole, finding.code, finding.wrong) == (True, True, "memory-damaged", False)
            assert f"no permission to write {path.parent}: change that, or set work" in finding.message
        done = archec_inline(world.config, "check")
        assert (done.code, done.out.count(b"set work_directory")) == (0, 1)
    assert not path.exists()
    path.write_bytes(b"x" * 5000)
    summary, (finding,) = checked(world)
    assert (summary.clean, finding.code) == (True, "memory-damaged")
    assert "set aside as" in finding.fixed
    assert checked(world)[1] == []

    def full(*_: object) -> None:
        raise StorageFull("no space left", hint="free some")

    monkeypatch.setattr("archec.audit.last_checked.Memory.structure_checked", full)
    summary, (finding,) = checked(world)
    assert (summary.clean, finding.code) == (True, "memory-damaged")
    assert finding.message == "nothing of this check is remembered: no space left (free some)"


def test_scratch_space_of_killed_processes_is_removed(world: World) -> None:
    left, empty, new = (world.config.work_path / f"archec-scratch-{name}" for name in ("left", "empty", "new"))
    for path in (empty, new):
        path.mkdir(parents=True)
    os.utime(empty, (0, 0))
    with scratch_folder(world.config) as one:
        for path in (one / "file", left / "folder" / "file"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        with scratch_folder(world.config) as two:
            assert (one.is_dir(), two.is_dir(), left.is_dir()) == (True, True, False), "one of them is in use"
    assert (empty.exists(), new.exists()) == (False, True), "a process that has just made one may not have locked it"
    new.rmdir()
    assert checked(world)[1] == []
    assert list(world.config.work_path.iterdir()) == []


def test_archives_beside_each_other_share_no_memory(folder: Path) -> None:
    """Their work directories have one parent."""
    one, two = (make(folder / name, {"work_directory": f"../work/{name}"}) for name in "ab")
    for config in (one, two):
        write_papers(config, ["http://h/1"])
    assert archec_inline(one, "gather", "--no-fetch").code == 0
    assert archec_inline(one, "verify").code == archec_inline(one, "seal").code == 0
    assert archec_inline(two, "gather", "-f", "/nowhere.tar").code == 1
    assert b"failed before it began" not in archec_inline(one, "status").out
    assert archec_inline(two, "gather", "--no-fetch").code == 0
    assert b"nothing has been checked yet" in archec_inline(two, "status").out
    held = [[path for path in tree(config.store_path) if "%3A" in path] for config in (one, two)]
    assert len(held[0]) == len(held[1]) == 1
    names = {path.name.split(".")[0] for path in (folder / "work").iterdir() if path.is_file()}
    assert names == {"a", "b"}


def test_a_check_without_scratch_space_is_no_clean_bill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("archec.audit.refold.follow_until", failing_disk)
        assert codes(checked(world)[1]) == ["no-scratch-space"]
    shutil.rmtree(world.config.work_path, ignore_errors=True)
    world.config.work_path.symlink_to("/nowhere/at/all")
    done = archec_inline(world.config, "check")
    last = done.out.decode().splitlines()[-1]
    assert (done.code, last) == (1, "The catalogue was not checked completely."), done
    assert json.loads(archec_inline(world.config, "check", "--json").out.splitlines()[-1])["whole"] is False
    assert archec_inline(world.config, "check", "--quick").code == 0
    assert [one.quick for one in fixity(world.config).structures] == [True]
    world.config.work_path.unlink()
    assert checked(world)[0].whole
    assert [one.quick for one in fixity(world.config).structures] == [False]


@pytest.mark.parametrize("by_link", [False, True])
def test_what_the_configuration_keeps_in_the_archive_folder_stays(folder: Path, by_link: bool) -> None:
    """Also where the store is reached by a symbolic link, and the others are not."""
    root = folder / "real" if by_link else folder / "a" / "archive"
    if by_link:
        (folder / "a").mkdir()
        root.mkdir()
        (folder / "a" / "archive").symlink_to(root)
    inside = {"database": f"sqlite:///{root}/catalogue.sqlite", "work_directory": f"{root}/scratch/w"}
    config = make(folder / "a", inside)
    config.data_path.joinpath("aaa").mkdir(parents=True)
    (config.data_path / "aaa" / "a.rdf").write_text(template("RePEc:aaa:sss:1"))
    run(config, fetch=False)
    for _ in range(2):
        done = archec_inline(config, "check", "--fix")
        assert b"the configuration uses it" in done.out
        assert not (root / "quarantine").exists()
    assert archec_inline(config, "status").code == 0


def test_links_files_and_modes_that_were_exchanged(world: World, pristine: World) -> None:
    """A link to the same bytes in place of a file, a file in place of a link, other modes: each is named once."""
    held, link = world.path("pdf"), world.path("link")
    data = link.read_bytes()
    link.unlink()
    link.write_bytes(data)
    link.chmod(0o444)
    early = world.path("early")
    other = world.path("template").with_name("other")
    held.rename(other)
    held.symlink_to("other")
    early.chmod(0o644)
    summary, findings = checked(world)
    assert sorted((finding.code, finding.path) for finding in findings) == sorted([
        ("exchanged", world.places["link"]), ("exchanged", world.places["pdf"]), ("mode", world.places["early"]),
        ("mode", world.places["restated"]), ("unjournalled", str(other.relative_to(world.config.store_path))),
    ])  # fmt: skip
    assert not summary.clean
    assert "mode" not in codes(checked(world, quick=True)[1])


@pytest.mark.parametrize("what", ["pdf", "link", "template"])
def test_a_link_to_bytes_that_no_history_names(world: World, pristine: World, tmp_path: Path, what: str) -> None:
    """What it took the place of is repaired, whatever it leads to."""
    same = Member("zzz/sss/1.rdf", template("RePEc:zzz:sss:1", "Early").encode())
    run(world.config, tarball(tmp_path / "RePEc_2000-01-01.tar", [same]))
    assert parse_when("2001-01-01") not in histories(world.config)["RePEc:zzz:sss:1"], "its bytes stay"
    held = world.path(what)
    held.unlink()
    held.symlink_to(os.path.relpath(world.path("early"), held.parent))
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert (codes(findings, world.places[what]), summary.clean) == (["corrupt"], True)
    assert held.read_bytes() == pristine.path(what).read_bytes()
    assert checked(world)[1] == []


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("audit", ["check", "verify"])
def test_a_catalogue_that_is_being_rebuilt_is_not_compared(world: World, audit: str, locked: bool) -> None:
    """What the rebuild has not filled in yet is not wrong."""
    found: list[Finding] = []
    with opened_for_audit(world.config) as archive, ExitStack() as rebuild:
        if locked:
            rebuild.enter_context(RunLock(world.layout, "rebuild"))
        with closing(open_catalogue(world.config.database, base=world.config.base)) as catalogue:
            catalogue.clear()
        if audit == "check":
            assert check(archive, Meter(), found.append).clean
        else:
            assert verify(archive, Scope(), Meter(), found.append).clean
    assert codes(found) == ["not-compared"]
    assert archec_inline(world.config, "rebuild").code == 0
    assert [*checked(world)[1], *verified(world)[1]] == []


def test_a_directory_that_leads_away(world: World, pristine: World, tmp_path: Path) -> None:
    directory = world.path("template").parent
    shutil.copytree(directory, tmp_path / "elsewhere", symlinks=True)
    shutil.rmtree(directory)
    directory.symlink_to(tmp_path / "elsewhere")
    _, findings = verified(world)
    assert {"directory-link", "missing"} == set(codes(findings))
    _, findings = checked(world)
    assert {"directory-link", "link-dangling"} >= set(codes(findings)), "what lies in it is not told"
    assert codes(findings).count("directory-link") == 1
    assert not checked(world, fix=True)[0].clean, "a copy is needed"
    assert verified(world, copy=pristine.config.store_path)[0].clean
    assert checked(world)[1] == []


def test_what_is_in_the_way_stays_where_the_copy_cannot_help(world: World, pristine: World, tmp_path: Path) -> None:
    copy = clone(pristine, tmp_path / "copy")
    for root in (world.config.store_path, copy.config.store_path):
        shutil.rmtree((root / world.places["pdf"]).parent)
    (world.path("pdf").parent).symlink_to(copy.path("late").parent)
    before = tree(world.config.store_path)
    summary, findings = verified(world, copy=copy.config.store_path)
    assert not summary.clean
    assert "missing" in codes(findings)
    assert tree(world.config.store_path) == before


def test_a_copy_without_end_does_not_fill_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server says is a journal, or a file whose size is not known here, ends somewhere."""

    class Endless(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        descriptor = (world.config.store_path / "layout.json").read_bytes()

        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith("layout.json"):
                self.send_header("Content-Length", str(len(self.descriptor)))
                self.end_headers()
                self.wfile.write(self.descriptor)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nothing to the terminal."""

    monkeypatch.setattr("archec.audit.copies.MOST", 1 << 20)
    world.path("journal").unlink()
    world.path("restated").unlink()
    before = tree(world.config.store_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        summary, findings = verified(world, copy=f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join()
    told = {finding.code: finding.message for finding in findings if finding.wrong}
    assert "larger than 1,048,576 bytes" in told["journal-missing"]
    assert "the copy's file is larger than" in told["missing"]
    assert not summary.clean
    assert tree(world.config.store_path) == before
    assert not list(world.config.work_path.iterdir())


def test_leftovers_are_swept_and_nothing_else(world: World) -> None:
    good = tree(world.config.store_path)
    store = world.config.store_path
    for directory in (store, store / "runs", world.path("pdf").parent, world.path("late").parent):
        (directory / ".+77-1.part").write_text("half")
    structure, findings = checked(world)
    assert structure.clean
    assert codes(findings) == ["leftover"] * 3
    structure, findings = checked(world, fix=True)
    assert all(finding.fixed for finding in findings)
    assert tree(store) == good


def test_layout_and_notice(world: World) -> None:
    flip(world.config.store_path / "0=archec_1.0", 1)
    structure, findings = checked(world)
    assert (structure.clean, codes(findings)) == (True, ["notice"])
    assert check_layout(world.config, lambda finding: None) is None
    (world.config.store_path / "layout.json").chmod(0o644)
    (world.config.store_path / "layout.json").write_text("{}")
    told: list[Finding] = []
    summary = check_layout(world.config, told.append)
    assert summary is not None
    assert not summary.clean
    assert codes(told) == ["layout"]


def test_two_journals_exchanged(world: World, pristine: World) -> None:
    one, two = world.path("journal"), world.path("last journal")
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    structure, findings = checked(world)
    assert not structure.clean
    assert codes(findings).count("journal-misnamed") == 2
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert (summary.clean, codes(findings)) == (True, ["journal-misnamed"] * 2)
    assert checked(world)[1] == verified(world)[1] == []


def test_a_retraction_that_was_killed_is_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the next run completes it, the histories still follow from the data set that counts no more."""
    with opened(world.config) as archive:
        first, second = (item.run for item in sorted(archive.catalogue.data_sets(), key=lambda item: item.key)[:2])
    operator_decisions.retract(world.config, str(second), "misdated")
    with monkeypatch.context() as patch:
        patch.setattr(operator_decisions, "judge_again", killed)
        with pytest.raises(InterruptedError):
            operator_decisions.retract(world.config, str(first), "misdated")
    for _ in range(2):
        assert verified(world)[1] == checked(world)[1] == []
        run(world.config, fetch=False)
    assert list(histories(world.config)["RePEc:zzz:sss:1"]) == [1041379200]


@pytest.mark.parametrize(
    "damage", [Path.unlink, empty, lambda path: rewrite(path, b"{}"), pipe], ids=["gone", "empty", "{}", "a pipe"]
)
def test_what_the_tree_is_is_written_again(
    damage: Callable[[Path], None], world: World, pristine: World, served: str, folder: Path
) -> None:
    """layout.json and 0=archec_1.0 come back; a copy of another layout is refused before a byte is written."""
    root, good = world.config.store_path, tree(pristine.config.store_path)
    damage(root / "layout.json")
    before = tree(root)
    other = make(folder / "other", fanout=256)
    refused = archec_inline(world.config, "verify", "--repair-from", other.store_path)
    assert (refused.code, "fan-out" in refused.err, tree(root)) == (1, True, before)
    damage(root / "0=archec_1.0")
    done = archec_inline(world.config, "verify", "--repair-from", served, "--json")
    told = {value["finding"]: value for value in map(json.loads, done.out.splitlines()) if "finding" in value}
    assert done.code == 0, done
    assert set(told) == {"layout", "notice"}
    assert all(value["fixed"] for value in told.values())
    assert {path: what for path, what in tree(root).items() if not path.startswith("quarantine/")} == good
    damage(root / "0=archec_1.0")
    assert codes(checked(world, fix=True)[1]) == ["notice"]
    assert {path: what for path, what in tree(root).items() if not path.startswith("quarantine/")} == good


# -- copies behind a web server -------------------------------------------------------------------


def test_repair_from_a_url(served: str, world: World, pristine: World) -> None:
    for name in ("flipped bit", "deleted cut name", "deleted link", "torn journal", "truncated"):
        FAULTS[name].damage(world)
    summary, findings = verified(world, copy=served)
    assert summary.clean, [str(finding) for finding in findings]
    assert summary.tally.fixed == 5
    after = {path: what for path, what in tree(world.config.store_path).items() if not path.startswith("quarantine")}
    assert after == tree(pristine.config.store_path)


# -- what cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "depth"), [("list", 0), *itertools.product(("open", "list"), (1, 2, 3))])
def test_a_directory_that_cannot_be_read_is_a_finding(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, depth: int
) -> None:
    """The rest of the archive is checked, and nothing in it is taken for missing."""
    parts = world.places["template"].split("/")[:depth]
    hidden = os.stat(world.config.store_path.joinpath(*parts)).st_ino
    open_file, scan = os.open, os.scandir

    def refuse(fd: int) -> None:
        if os.fstat(fd).st_ino == hidden:
            raise OSError(5, "Input/output error")

    def opening(path: object, flags: int, *arguments: object, **more: object) -> int:
        fd = open_file(path, flags, *arguments, **more)  # type: ignore[arg-type]
        if step == "open" and flags & os.O_DIRECTORY:
            try:
                refuse(fd)
            except OSError:
                os.close(fd)
                raise
        return fd

    def scanning(where: object = ".") -> object:
        if isinstance(where, int):
            refuse(where)
        return scan(where)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        patch.setattr(os, "scandir", scanning)
        summary, findings = checked(world, quick=True)
        assert not summary.clean
        assert ("unreadable", "/".join(parts) or ".") in [(finding.code, finding.path) for finding in findings]
        assert "missing" not in codes(findings)
        assert bool(summary.names) == bool(depth)
        if step == "list":
            verification, findings = verified(world)
            assert verification.files == verified(world)[0].files > 0
            assert "unreadable" in codes(findings)
    assert checked(world)[1] == []


@pytest.mark.parametrize("damage", [b"", b"x" * 5000, "page"], ids=["empty", "no database", "a page"])
def test_a_damaged_memory_stops_nothing(world: World, damage: bytes | str) -> None:
    assert verified(world)[0].clean
    path = memory_path(world.config)
    if isinstance(damage, str):
        data = bytearray(path.read_bytes())
        data[4096:] = b"\xff" * (len(data) - 4096)
        path.write_bytes(data)
    else:
        path.write_bytes(damage)
    for command in ("status", "metrics"):
        done = archec_inline(world.config, command)
        assert done.code == 0, done.err
    if damage:
        assert b"the record of checks is damaged" in archec_inline(world.config, "status").out
    summary, findings = verified(world)
    assert summary.clean
    assert codes(findings) == (["memory-damaged"] if damage else [])
    assert summary.files == verified(world)[0].files
    assert path.with_name(f"{path.name}.damaged").exists() == bool(damage)


@pytest.mark.parametrize(
    "edit",
    [
        "runs SET doc = '{}'", "data_sets SET doc = '[]'", "claims SET doc = '7'", "position SET batch = 'x'",
        "mi SET last = 'x'", "mi SET state = 'x'", "entries SET note = '[]'", "visits SET doc = '7'",
    ],
)
def test_a_damaged_document_stops_nothing(world: World, edit: str) -> None:
    files = verified(world)[0].files
    run_sql(world, f"UPDATE {edit}")
    for command in ("status", "metrics"):
        done = archec_inline(world.config, command)
        assert done.code == 0, done.err
        told = b"DAMAGED" in done.out or b"archec_catalogue_damaged 1.0" in done.out
        assert told == edit.startswith("runs"), "the others are not needed for it"
        assert (b"('archec rebuild' " in done.out) == (told and command == "status"), "what to do"
    for summary, findings in (verified(world), checked(world)):
        assert (summary.clean, codes(findings)) == (False, ["catalogue-unreadable"])
    assert verified(world)[0].files == files
    assert archec_inline(world.config, "rebuild").code == 0
    assert checked(world)[1] == []


def test_a_copy_with_another_layout_is_refused_before_a_byte_is_written(world: World, tmp_path: Path) -> None:
    copy = clone(world, tmp_path / "copy")
    descriptor = world.config.store_path / "layout.json"
    descriptor.chmod(0o644)
    descriptor.write_text(descriptor.read_text().replace('"fanout": 0', '"fanout": 256'))
    before = tree(world.config.store_path)
    done = archec_inline(world.config, "verify", "--repair-from", copy.config.store_path)
    assert (done.code, "it is not a copy of it" in done.err) == (1, True), done
    assert tree(world.config.store_path) == before
