"""Verify: it goes on where it stopped, known bad first; shares, times, rates; active runs; many files."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pymongo
import pytest
from audit_support import World, checked, clone, codes, flip, rewrite, tree, verified
from gather_site import Site, pdf
from gather_support import Member, archec_inline, killing, make, run, start_cli, tarball, template, until
from small_disk import fill, small_disk

from archec.archive.budget import Budget
from archec.archive.opening import opened
from archec.audit import fixity as fixity_module
from archec.audit.copies import UrlCopy
from archec.audit.expected import histories
from archec.audit.journals import size_of
from archec.audit.last_checked import Checked, Memory, fixity, memory_path
from archec.audit.opening import opened_for_audit
from archec.audit.verify import Scope, VerifySummary, verify
from archec.catalogue.engines import open_catalogue
from archec.cli.main import cli
from archec.config import Config
from archec.errors import ArchecError, LockHeld, StorageFailed, UsageError
from archec.progress import Meter
from archec.store.journal import read_batches
from archec.store.layout import DESCRIPTOR, journals, open_layout
from archec.store.lock import RunLock
from archec.web.door import BlockingSender


def remembered(config: Config) -> dict[int, Checked]:
    with Memory(memory_path(config)) as memory:
        return memory.checked()


def test_goes_on_where_it_stopped(world: World) -> None:
    """A share at a time: all is checked once before anything is checked twice."""
    whole = verified(clone(world, world.config.base.with_name("other")))[0].files
    assert fixity(world.config).oldest is None
    checked_files, sessions = 0, 0
    while checked_files < whole:
        summary, findings = verified(world, scope=Scope(share=0.05))  # one at a time: a round ends exactly
        assert (summary.clean, findings, summary.whole) == (True, [], False)
        assert summary.files > 0
        checked_files += summary.files
        sessions += 1
    assert checked_files == whole
    assert sessions > 2
    rows = remembered(world.config)
    assert sorted(rows) == [journal.tist for journal in journals(world.layout)]
    assert all(row.whole and not row.cursor for row in rows.values())
    assert len({row.whole for row in rows.values()}) > 1
    first = min(row.whole for row in rows.values())
    verified(world, scope=Scope(share=0.01))
    again = remembered(world.config)
    assert fixity(world.config).oldest == min(row.oldest for row in again.values()) >= first
    assert max(max(row.whole, row.since) for row in again.values()) > max(row.whole for row in rows.values())
    assert verified(world)[0].whole
    assert {(row.whole, row.cursor) for row in remembered(world.config).values()} == {(fixity(world.config).oldest, 0)}


def test_what_was_checked_and_what_never_is_counted(world: World) -> None:
    """A share is one of objects; check counts what there is, and is remembered itself."""
    assert fixity(world.config).uncounted == 5
    assert checked(world)[0].clean
    assert not checked(world, quick=True)[0].tally.wrong
    begun = fixity(world.config)
    assert (begun.uncounted, begun.never, begun.oldest) == (0, begun.whole, None)
    assert sorted((one.quick, one.wrong) for one in begun.structures) == [(False, 0), (True, 0)]
    whole = begun.whole.objects
    summary, _ = verified(world, scope=Scope(share=0.1))
    tenth = -(-whole // 10)
    assert tenth <= summary.files <= tenth + 1, "not a batch; what is stated again is in one line with what it follows"
    now = max(max(row.whole, row.since) for row in remembered(world.config).values())
    some = fixity(world.config, now)
    assert some.never.objects == whole - tenth
    assert {days: part.objects for days, part in some.within} == {30: tenth, 90: tenth, 365: tenth}
    assert 0 < some.within[0][1].bytes < some.whole.bytes == begun.whole.bytes
    later = fixity(world.config, now + 60 * 86400)
    assert [part.objects for _, part in later.within] == [0, tenth, tenth]
    verified(world)
    assert fixity(world.config).never.objects == 0
    flip(world.path("last journal"), 200)
    assert not checked(world)[0].clean
    assert {one.quick: bool(one.wrong) for one in fixity(world.config).structures} == {False: True}
    done = archec_inline(world.config, "status")
    assert (done.code, b"WRONG" in done.out, b"100.0% within 30 days" in done.out) == (0, True, True), done
    metrics = archec_inline(world.config, "metrics").out.decode()
    assert f'archec_fixity_objects{{checked="all"}} {whole}.0' in metrics
    assert 'archec_last_check_wrong{scope="quick"}' not in metrics, "the whole check takes its place"


def test_a_time_that_is_too_short_still_gets_on(world: World) -> None:
    whole = verified(clone(world, world.config.base.with_name("other")))[0].files
    files = 0
    for _ in range(100):
        files += verified(world, scope=Scope(seconds=1e-9))[0].files
        if files >= whole:
            break
    assert files == whole


def test_what_is_known_to_be_bad_comes_first(world: World) -> None:
    flip(world.path("new page"))
    assert codes(verified(world)[1]) == ["corrupt"]
    summary, findings = verified(world, scope=Scope(share=0.0))
    assert (summary.files, codes(findings), summary.bad) == (1, ["corrupt"], 1)
    assert not summary.clean
    flip(world.path("new page"))
    summary, findings = verified(world, scope=Scope(share=0.0))
    assert (summary.clean, findings, summary.bad) == (True, [], 0)


def test_each_finding_is_told_once(world: World) -> None:
    flip(world.path("pdf"))
    for _ in range(2):
        summary, findings = verified(world)
        assert codes(findings) == ["corrupt"]
        assert summary.tally.wrong == 1


def test_losing_the_memory_only_means_to_start_anew(world: World) -> None:
    verified(world)
    for path in memory_path(world.config).parent.glob("*.fixity.sqlite*"):
        path.unlink()
    assert fixity(world.config).oldest is None
    assert verified(world)[0].clean


def test_what_is_remembered_of_a_run_that_has_gone(world: World) -> None:
    with Memory(memory_path(world.config)) as memory:
        memory.advance(5, 1, 9, 1, end=False)
    verified(world)
    assert 5 not in remembered(world.config)


def test_a_bad_file_is_never_overwritten_twice(world: World, pristine: World) -> None:
    for number in range(3):
        rewrite(world.path("pdf"), b"bad %d" % number)
        summary, findings = verified(world, copy=pristine.config.store_path)
        assert (summary.clean, codes(findings)) == (True, ["corrupt"])
    aside = {path: world.config.store_path / path for path in tree(world.config.store_path) if path.startswith("quar")}
    assert sorted(aside) == sorted(
        f"quarantine/{again}{world.places['pdf']}" for again in ("", "again-2/", "again-3/")
    )
    assert {path.read_bytes() for path in aside.values()} == {b"bad 0", b"bad 1", b"bad 2"}


def test_no_repair_while_a_run_is_at_work(world: World, pristine: World) -> None:
    flip(world.path("pdf"))
    damaged = tree(world.config.store_path)
    with RunLock(world.layout, "gather"), pytest.raises(LockHeld):
        verified(world, copy=pristine.config.store_path)
    assert tree(world.config.store_path) == damaged
    assert codes(verified(world)[1]) == ["corrupt"]


def test_a_run_at_work_is_no_fault(world: World) -> None:
    """Its temporary files, and its files that are not journalled yet, are its own affair."""
    last = journals(world.layout)[-1]
    directory = world.path("new page").parent
    assert world.layout.directory(last.tist, "x") == str(directory.relative_to(world.config.store_path))
    new = directory / "http%3A%2F%2Fh%2Fnew"
    new.write_text("not journalled yet")
    os.utime(new, (last.tist, last.tist))
    (directory / ".+1-1.part").write_text("half")
    with RunLock(world.layout, "gather"):
        assert codes(verified(world)[1]) == []
        summary, findings = checked(world)
        assert (summary.clean, codes(findings)) == (True, ["not-compared"])
    assert codes(verified(world)[1]) == ["unjournalled"], "no run was stopped that may have left it"
    assert codes(checked(world)[1]) == ["leftover", "unjournalled"]


# -- unfinished journals ----------------------------------------------------------------------------


@pytest.fixture
def paused(tmp_path: Path) -> World:
    """An archive whose last run stopped at its budget, and whose catalogue has followed all of it."""
    config = make(tmp_path / "archive")
    folder = config.data_path / "aaa" / "sss"
    folder.mkdir(parents=True)
    with Site() as site:
        site["/1.pdf"], site["/2.pdf"] = pdf("1"), pdf("2")
        text = template("RePEc:aaa:sss:1", "T", [site.url("/1.pdf"), site.url("/2.pdf")])
        (folder / "1.rdf").write_text(text)
        assert run(config, budget=Budget(files=1), fetch=True).state == "budget"
    return World(config, {})


def journal_of(world: World) -> Path:
    (journal,) = journals(world.layout)
    assert not journal.finished
    return journal.path


def test_a_journal_that_is_compressed_while_it_is_looked_at(paused: World) -> None:
    (listed,) = journals(paused.layout)
    assert size_of(listed) > 0
    run(paused.config, fetch=False)
    assert not listed.path.exists()
    assert size_of(listed) == 0
    assert sum(1 for _ in read_batches(listed.path)) > 0


def test_a_torn_tail_is_a_note(paused: World) -> None:
    path = journal_of(paused)
    with path.open("ab") as file:
        file.write(b'{"type":"fobi","id":"http://h/"')
    summary, findings = checked(paused)
    assert (summary.clean, codes(findings)) == (True, ["journal-torn"])
    assert verified(paused)[0].clean


@pytest.mark.parametrize("how", ["torn", "cut", "flipped"])
def test_damage_to_what_the_catalogue_knows_is_none(paused: World, how: str, tmp_path: Path) -> None:
    """The last batch of an unfinished journal is lost, and the catalogue has followed it: damage."""
    copy = clone(paused, tmp_path / "copy")
    path = journal_of(paused)
    data = path.read_bytes()
    start = data.rindex(b"\n", 0, data.rindex(b'{"type":"batch"') - 1) + 1
    while not data[:start].endswith(b'"}\n') or b'{"type":"batch"' not in data[:start].splitlines()[-1]:
        start = data.rindex(b"\n", 0, start - 1) + 1
    if how == "flipped":
        flip(path, start + 20)
    else:
        rewrite(path, data[: start + (20 if how == "torn" else 0)])
    damaged = tree(paused.config.store_path)
    name = f"runs/{path.name}"
    summary, findings = checked(paused)
    assert not summary.clean
    assert "journal-damaged" in codes(findings, name)
    summary, findings = verified(paused)
    assert not summary.clean
    assert "journal-damaged" in codes(findings, name)
    assert tree(paused.config.store_path) == damaged
    summary, findings = verified(paused, copy=copy.config.store_path)
    assert summary.clean, [str(finding) for finding in findings]
    after = {path: what for path, what in tree(paused.config.store_path).items() if "quarantine" not in path}
    assert after == tree(copy.config.store_path)
    assert checked(paused)[0].clean


def test_an_older_journal_does_not_fit(paused: World, tmp_path: Path) -> None:
    copy = clone(paused, tmp_path / "copy")
    theirs = journal_of(copy)
    data = theirs.read_bytes()
    rewrite(theirs, data[: data.index(b"\n", data.index(b'{"type":"batch"')) + 1])
    path = journal_of(paused)
    rewrite(path, path.read_bytes()[:-20])
    summary, findings = verified(paused, copy=copy.config.store_path)
    assert not summary.clean
    assert any("older" in finding.message for finding in findings)


# -- the real command -------------------------------------------------------------------------------


def test_commands(world: World, pristine: World) -> None:
    done = archec_inline(world.config, "verify")
    assert (done.code, b": 0 wrong, 0 fixed, 0 notes." in done.out) == (0, True)
    done = archec_inline(world.config, "check")
    assert done.code == 0
    flip(world.path("pdf"))
    world.path("new page").unlink()
    done = archec_inline(world.config, "verify", "--all", "--json")
    assert done.code == 6
    *findings, summary = map(json.loads, done.out.splitlines())
    assert [(f["finding"], f["path"]) for f in findings] == [
        ("corrupt", world.places["pdf"]),
        ("missing", world.places["new page"]),
    ]
    assert set(findings[0]) == {"finding", "wrong", "path", "tist", "id", "sha256", "found", "message"}
    assert (summary["summary"], summary["wrong"], summary["bad"], summary["clean"]) == ("verify", 2, 2, False)
    again = archec_inline(world.config, "verify")
    assert f"Checked {summary['files']} files".encode() in again.out, "what is known to be bad counts once"
    assert b"'archec verify --repair-from COPY' restores good bytes" in again.out
    assert b"BAD: 2 entries: archec verify --repair-from COPY" in archec_inline(world.config, "status").out
    done = archec_inline(world.config, "check", "--json")
    assert done.code == 6
    assert [json.loads(line).get("finding") for line in done.out.splitlines()] == ["missing", None]
    done = archec_inline(
        world.config, "verify", "--sample", "0%", "--rate", "10MB", "--repair-from", pristine.config.store_path
    )
    assert done.code == 0, done.out
    assert done.out.count(b"repaired from") == 2
    assert archec_inline(world.config, "check", "--fix").code == 0


def copy_handler(world: World) -> type[BaseHTTPRequestHandler]:
    """A server of a copy that has no more than the descriptor."""

    class Copy(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nothing to the terminal."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((world.config.store_path / DESCRIPTOR).read_bytes())

    return Copy


def test_a_copy_may_move_what_it_is_asked_for(world: World, served: str) -> None:
    """Sizes and files; a redirect to another private address is refused."""

    class Moved(copy_handler(world)):  # type: ignore[misc]
        def do_HEAD(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{where}{self.path}")
            self.end_headers()

        def do_GET(self) -> None:
            if self.path.endswith(DESCRIPTOR):
                super().do_GET()
            else:
                self.do_HEAD()

    run = journals(open_layout(world.config.store_path))[0].tist
    with ThreadingHTTPServer(("127.0.0.1", 0), Moved) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        for networks, where in (((), "/again"), ((), served), (("127.0.0.0/8",), served)):
            fetch = replace(world.config.fetch, allow_networks=networks)
            config = replace(world.config, fetch=fetch)
            layout = open_layout(world.config.store_path)
            with BlockingSender(config.fetch, config.agent, "remote") as sender:
                copy = UrlCopy(f"http://127.0.0.1:{server.server_port}", sender)
                if networks:
                    assert copy.has_journal(run)
                    assert copy.runs() == [journal.tist for journal in journals(layout)]
                    name = journals(layout)[0].path.name
                    assert b"".join(copy.journal(name)) == (layout.runs / name).read_bytes()
                else:
                    with pytest.raises(StorageFailed, match="HTTP status 302" if where == "/again" else "not a public"):
                        copy.has_journal(run)
        server.shutdown()


@pytest.mark.parametrize("where", ["", "http://[bad"])
def test_a_copy_with_a_password_that_redirects(world: World, where: str) -> None:
    """On the same host and port the password is used again; a URL that is none is an error like others."""

    class Private(copy_handler(world)):  # type: ignore[misc]
        def do_HEAD(self) -> None:
            if not self.path.startswith("/real"):
                self.send_response(302)
                self.send_header("Location", f"{where or own}/real{self.path}")
            else:
                self.send_response(200 if self.headers["Authorization"] == "Basic bWU6cGFzcw==" else 401)
                self.send_header("Content-Length", "7")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Private) as server:
        own = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with BlockingSender(world.config.fetch, world.config.agent, "remote") as sender:
            copy = UrlCopy(own.replace("//", "//me:pass@"), sender)
            assert copy.where == own
            if where:
                with pytest.raises(StorageFailed, match="redirects to an invalid URL"):
                    copy.has_journal(5)
            else:
                assert copy.has_journal(5)
                assert copy.size(5, "RePEc:aaa:sss:1") == 7
        server.shutdown()


def test_bad_usage(world: World) -> None:
    config = ["--config", str(world.config.base / "config.yaml")]
    for arguments in (["--all", "--sample", "5%"], ["--sample", "200%"], ["--max-time", "soon"], ["--rate", "fast"]):
        with pytest.raises(UsageError):
            cli.main(["verify", *config, *arguments], standalone_mode=False)
    own = archec_inline(world.config, "verify", "--repair-from", world.config.store_path)
    assert (own.code, "this archive itself" in own.err) == (1, True)
    none = archec_inline(world.config, "verify", "--repair-from", world.config.base.parent)
    assert (none.code, "is not an archive" in none.err) == (1, True)
    away = archec_inline(world.config, "verify", "--repair-from", "http://127.0.0.1:1/")
    assert (away.code, "http://127.0.0.1:1" in away.err) == (1, True)
    flip(world.config.store_path / "layout.json", 40)
    assert archec_inline(world.config, "check").code == 6


# -- many files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(memory_folder: Callable[[], Path]) -> World:
    """Some thousand templates, so that worker processes are needed."""
    folder = memory_folder() / "many"
    config = make(folder, {"workers": 2}, fanout=256)
    for day in (1, 2):
        texts = [
            template(f"RePEc:aaa:sss:{n:05}", f"Title {n if n % 50 else (n, day)}") for n in range(9000)
        ]
        member = Member("aaa/sss/papers.rdf", "\n".join(texts).encode())
        run(config, tarball(folder / f"RePEc_2001-01-0{day}.tar", [member]))
    return World(config, {})


def test_workers_find_every_fault(many: World, memory_folder: Callable[[], Path]) -> None:
    world = clone(many, memory_folder() / "copy")
    layout = open_layout(world.config.store_path)
    paths = [layout.path(978307200, f"RePEc:aaa:sss:{n:05}") for n in range(0, 9000, 1000)]
    flip(layout.root / paths[0])
    flip(layout.root / paths[8])
    (layout.root / paths[4]).unlink()
    summary, findings = verified(world)
    assert summary.files == 9180
    assert sorted((f.code, f.path) for f in findings) == sorted(
        [("corrupt", paths[0]), ("corrupt", paths[8]), ("missing", paths[4])]
    )
    summary, findings = verified(world, copy=many.config.store_path)
    assert (summary.clean, summary.tally.fixed, len(findings)) == (True, 3, 3)
    assert checked(world)[0].clean


def test_interrupted_it_remembers(many: World, memory_folder: Callable[[], Path]) -> None:
    world = clone(many, memory_folder() / "copy")
    child = start_cli(world.config, "verify", "--rate", "400kB")
    try:
        path = memory_path(world.config)
        assert until(lambda: path.exists() and bool(remembered(world.config)))
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 130
    (before, *_) = remembered(world.config).values()
    assert before.cursor or before.whole
    summary, findings = verified(world, scope=Scope(share=0.01))
    assert findings == []
    after = remembered(world.config)[before.run]
    assert after.oldest == before.oldest
    assert after.whole or after.cursor > before.cursor


def test_a_worker_that_is_killed_costs_nothing(many: World, memory_folder: Callable[[], Path]) -> None:
    world = clone(many, memory_folder() / "copy")
    with killing(once=True) as killed:
        summary, findings = verified(world)
    assert (summary.files, findings, bool(killed)) == (9180, [], True)


def test_workers_that_die_again_and_again_are_an_error(many: World, memory_folder: Callable[[], Path]) -> None:
    world = clone(many, memory_folder() / "copy")
    with killing(once=False), pytest.raises(ArchecError, match="worker process") as caught:
        verified(world)
    assert "run it again" in caught.value.hint


def test_nothing_changes_between_two_engines_of_the_audit(many: World) -> None:
    """Inline and in workers: the same numbers."""
    summaries: list[VerifySummary] = []
    for inline in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch, opened_for_audit(many.config) as archive:
            patch.setattr(fixity_module, "_INLINE", inline)
            summaries.append(verify(archive, Scope(), Meter(), lambda finding: None))
    one, two = summaries
    assert (one.files, one.bytes, one.tally) == (two.files, two.bytes, two.tally)


def test_with_mongodb(mongodb_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other engine, asked by workers."""
    config = make(tmp_path / "archive", {"database": mongodb_url})
    text = "\n".join(template(f"RePEc:aaa:sss:{n}") for n in range(50))
    run(config, tarball(tmp_path / "RePEc_2001-01-01.tar", [Member("aaa/sss/1.rdf", text.encode())]))
    world = World(config, {})
    monkeypatch.setattr(fixity_module, "_INLINE", 0)
    summary, findings = verified(world)
    assert (summary.files, findings) == (50, [])
    assert checked(world)[1] == []
    flip(config.store_path / world.layout.path(978307200, "RePEc:aaa:sss:7"))
    assert codes(verified(world)[1]) == ["corrupt"]


@pytest.mark.parametrize("damage", ["a bit", "a pipe", "another run"])
def test_a_damaged_plain_form_of_a_journal_is_moved_away(world: World, damage: str) -> None:
    """The compressed form is whole, and counts."""
    packed, *_, other = sorted(world.layout.runs.glob("*.jsonl.gz"))
    plain = packed.with_suffix("")
    data = bytearray(gzip.decompress(packed.read_bytes()))
    data[100] ^= 4
    plain.write_bytes(data if damage == "a bit" else gzip.decompress(other.read_bytes()))
    if damage == "a pipe":
        plain.unlink()
        os.mkfifo(plain)
    done = archec_inline(world.config, "gather", "--no-fetch")
    assert (done.code, "'archec check --fix' moves it to quarantine" in done.err) == (6, True), done
    told = archec_inline(world.config, "check")
    assert (told.code, b"'archec check --fix' moves" in told.out) == (6, True), told
    fixed = archec_inline(world.config, "check", "--fix")
    assert (fixed.code, b"'archec check --fix'" in fixed.out) == (0, False), fixed
    assert os.path.lexists(world.layout.root / "quarantine" / "runs" / plain.name)
    assert archec_inline(world.config, "gather", "--no-fetch").code in (0, 3)


def test_a_catalogue_on_a_full_disk_is_read_by_one_process(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixity_module, "_INLINE", 0)
    monkeypatch.setattr("archec.sqlite._BUSY", 0.1)
    with small_disk(tmp_path / "small", "size=20m") as place:
        full = clone(world, place / "world")
        fill(place)
        summary, findings = verified(full)
        assert (summary.clean, summary.whole, codes(findings)) == (True, True, ["memory-damaged"])
        with open_catalogue(full.config.database, base=full.config.base, read_only=True) as catalogue:
            assert catalogue.counts().tobis_held > 1
            done = archec_inline(full.config, "history", "RePEc:zzz:sss:1")
        assert (done.code, "the disk is full, so only one process" in done.err) == (1, True), done


@pytest.mark.parametrize(("start", "command"), [("RePEc%3A", "verify"), ("703", "verify"), ("703", "check")])
def test_what_this_machine_lacks_is_no_damage(
    world: World, start: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of 002/703/879, the data set of 2001."""
    opens = os.open

    def refused(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and str(path).startswith(start):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)
    done = archec_inline(world.config, command)
    assert (done.code, "ulimit -n" in done.err, b"unreadable" in done.out) == (1, True, False), done


def test_only_the_collections_of_the_ids_are_asked(mongodb_url: str, tmp_path: Path) -> None:
    config = make(tmp_path / "archive", {"database": mongodb_url})
    member = Member("aaa/sss/1.rdf", template("RePEc:aaa:sss:1").encode())
    run(config, tarball(tmp_path / "RePEc_2001-01-01.tar", [member]))
    with pymongo.MongoClient[dict[str, object]](mongodb_url) as client, opened(config) as archive:
        database = client.get_default_database()
        database.command("profile", 2)
        found = histories(archive.catalogue, ["RePEc:aaa:sss:1", "RePEc:aaa:sss:2"])
        asked = database["system.profile"].distinct("ns", {"op": "query"})
        database.command("profile", 0)
    assert list(found) == ["RePEc:aaa:sss:1"]
    assert {str(name).partition(".")[2] for name in asked} == {"mi", "entries", "versions", "claims"}
