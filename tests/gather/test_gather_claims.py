"""Data sets that are damaged, wrong, or of one date; evidence by place; losses that wait: through whole gathers."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from failpoint import killed_at
from gather_support import (
    Member,
    archec_cli,
    archec_inline,
    check,
    histories,
    lines,
    make,
    run,
    tarball,
    template,
)

from archec.config import Config
from archec.errors import DataSetError
from archec.gather.run import exit_code
from archec.tist import parse_when

T1, T2, T3, T4 = (parse_when(f"2001-01-0{day}") for day in (1, 2, 3, 4))
PAPER = "RePEc:aaa:sss:1"
HTML = b"<!DOCTYPE html><html><body>Not found</body></html>\n"


def papers(path: str, *handles: str, title: str = "A title") -> Member:
    return Member(f"RePEc/{path}", "\n".join(template(handle, title) for handle in handles).encode())


def tar(folder: Path, day: int, *members: Member, name: str = "") -> Path:
    return tarball(folder / f"RePEc_2001-01-{day:02d}{name}.tar", members)


def series(count: int, code: str = "aaa") -> list[str]:
    return [f"RePEc:{code}:sss:{n:03d}" for n in range(count)]


# -- damaged ------------------------------------------------------------------------------------------


def test_no_flip_of_a_bit_is_noted(config: Config, folder: Path) -> None:
    """Whatever a flipped bit does to a tarball: nothing of it is noted, and the whole one is noted later as it is."""
    whole = tar(folder, 1, papers("aaa/sss/p.rdf", *series(40)))
    data = gzip.compress(whole.read_bytes(), mtime=0)
    file = folder / "RePEc_2001-01-01.tar.gz"
    for at in range(20, len(data), len(data) // 15):
        file.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with suppress(DataSetError):  # what begins like no tarball is none, which is another exit code
            report = run(config, file)
            assert (report.state, exit_code(report)) == ("damaged", 8)
            assert str(file) in report.message
        assert histories(config) == {}
    file.write_bytes(data)
    assert run(config, file).tobis["new"] == 40
    check(config)


def test_a_damaged_data_set_is_told_everywhere(config: Config, folder: Path) -> None:
    file = tar(folder, 1, papers("aaa/sss/p.rdf", *series(3)))
    file.write_bytes(file.read_bytes()[:700])
    done = archec_inline(config, "gather", "-f", file)
    assert done.code == 8
    assert str(file) in done.err
    line = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
    assert (line["state"], line["exit"]) == ("damaged", 8)
    assert json.loads(archec_inline(config, "runs", "--json").out)["state"] == "damaged"
    assert b"damaged" in archec_inline(config, "status").out
    assert b'archec_last_run_state{state="damaged"} 1' in archec_inline(config, "metrics").out
    check(config)


def test_a_damaged_data_set_that_has_no_date_is_shown_without_one(config: Config, folder: Path) -> None:
    file = tar(folder, 1, papers("aaa/sss/p.rdf", *series(3)))
    file = file.rename(file.with_name("x.tar"))
    file.write_bytes(file.read_bytes()[:700])
    for done in (archec_inline(config, "gather", "-f", file), archec_inline(config, "runs", "last")):
        assert f"data set    {file}\n" in done.out.decode()


@pytest.mark.parametrize("broken_first", [True, False])
def test_a_whole_data_set_supersedes_what_was_salvaged(config: Config, folder: Path, broken_first: bool) -> None:
    good = tar(folder, 1, papers("aaa/sss/1.rdf", PAPER, title="good"), papers("aaa/sss/2.rdf", "RePEc:aaa:sss:2"))
    third = papers("aaa/sss/3.rdf", "RePEc:aaa:sss:3")
    broken = tar(folder, 1, papers("aaa/sss/1.rdf", PAPER, title="older"), third, name="x")
    data = broken.read_bytes()
    broken.write_bytes(data[: data.index(b"RePEc/aaa/sss/3.rdf") + 520])
    plain = make(folder / "plain")
    run(plain, good)
    for salvage in (broken_first, not broken_first):
        report = run(config, broken if salvage else good, salvage=salvage)
        assert exit_code(report) == 0
    assert lines(config) == lines(plain)
    told = json.loads(archec_inline(config, "history", PAPER, "--all", "--json").out)["data_sets"]
    assert [(row["outcome"], row["whole"]) for row in told] == [("superseded", False)]
    assert b"not whole): " in archec_inline(config, "history", PAPER, "--why").out
    assert b"superseded by" in archec_inline(config, "history", PAPER, "--all").out
    check(config)


def test_what_is_salvaged_as_it_was_has_not_moved(config: Config, folder: Path) -> None:
    """Nor has a template of which the copy that counts is missing for no reason."""
    core, own = papers("all/aaaarch.rdf", "RePEc:aaa"), papers("aaa/aaaarch.rdf", "RePEc:aaa")
    first = papers("aaa/sss/1.rdf", PAPER)
    run(config, tar(folder, 1, first, core, own))
    broken = tar(folder, 2, first, core, own)
    data = broken.read_bytes()
    broken.write_bytes(data[: data.index(b"RePEc/aaa/aaaarch.rdf") + 530])
    report = run(config, broken, salvage=True)
    assert dict(+report.tobis) == {"same": 2}
    assert dict(+run(config, tar(folder, 3, papers("aaa/sss/b.rdf", PAPER), own)).tobis) == {"same": 1, "moved": 1}
    check(config)


def test_salvage_needs_a_date(config: Config, folder: Path) -> None:
    file = tarball(folder / "repec.tar", [papers("aaa/sss/1.rdf", PAPER), papers("aaa/sss/2.rdf", PAPER)])
    file.write_bytes(file.read_bytes()[:1600])
    assert archec_inline(config, "gather", "-f", file, "--salvage", "--no-fetch").code == 2
    assert archec_inline(config, "gather", "-f", file, "--salvage", "--no-fetch", "--as-of", "2001-01-01").code == 0
    assert histories(config)[PAPER].keys() == {T1}


# -- conflicts, retractions ---------------------------------------------------------------------------


def test_both_sides_of_a_conflict_are_held(config: Config, folder: Path) -> None:
    for title in "xy":
        run(config, tar(folder, 1, papers("aaa/sss/1.rdf", PAPER, title=title), name=f"_{title}"))
    (row,) = json.loads(archec_inline(config, "history", PAPER, "--all", "--json").out)["data_sets"]
    assert row["outcome"] == "conflict"
    assert row["state"] < histories(config)[PAPER][T1]
    check(config)


def test_a_retraction_and_its_undoing(config: Config, folder: Path) -> None:
    first = tar(folder, 1, papers("aaa/sss/1.rdf", PAPER, title="one"))
    wrong = tar(folder, 2, papers("aaa/sss/1.rdf", PAPER, "RePEc:aaa:sss:9", title="wrong"))
    last = tar(folder, 3, papers("aaa/sss/1.rdf", PAPER, title="one"))
    _, number, newest = (run(config, file).run for file in (first, wrong, last))
    before = lines(config)
    assert archec_inline(config, "retract", str(number)).code == 2, "a reason is needed"
    refused = archec_inline(config, "retract", "last", "--undo")
    assert (refused.code, f"(run {newest}) is not retracted" in refused.err) == (2, True)
    done = archec_inline(config, "retract", str(number), "--reason", "not RePEc", "--json")
    assert (done.code, json.loads(done.out)["changed"]) == (0, 2)
    shown = archec_inline(config, "runs", str(number)).out.decode()
    assert "retracted   its data set does not count: not RePEc" in shown
    assert "retracted: not RePEc" in archec_inline(config, "history", PAPER, "--all").out.decode()
    for command, hint in (("get", f"'archec retract {number} --undo'"), ("get", "history --all"), ("history", "--all")):
        done = archec_inline(config, command, "RePEc:aaa:sss:9")
        assert (done.code, hint in done.out.decode() + done.err) == (7 if command == "get" else 0, True), done
    plain = make(folder / "plain")
    for file in (last, first):
        run(plain, file)
    assert lines(config) == lines(plain)
    check(config)
    refused = archec_inline(config, "gather", "-f", wrong)
    assert (refused.code, "--undo" in refused.err, "not RePEc" in refused.err) == (2, True, True)
    assert "failed" not in archec_inline(config, "runs").err, "nothing failed"
    assert run(config, wrong, as_of=T4).tobis["new"] == 1, "it may be gathered at another date"
    assert archec_inline(config, "retract", str(number), "--reason", "again").code == 2
    assert archec_inline(config, "retract", "12345678", "--undo").code == 7
    fresh = make(folder / "fresh")
    for file in (first, wrong, last):
        run(fresh, file)
    run(fresh, wrong, as_of=T4)
    assert archec_inline(config, "retract", str(number), "--undo").code == 0
    assert lines(config) == lines(fresh)
    assert before != lines(config)
    check(config)


@pytest.mark.parametrize("undo", [False, True])
def test_a_retraction_that_was_killed_is_completed_by_the_same_command(
    config: Config, folder: Path, undo: bool
) -> None:
    run(config, tar(folder, 1, papers("aaa/sss/1.rdf", PAPER, title="one")))
    number = run(config, tar(folder, 2, papers("aaa/sss/1.rdf", PAPER, title="wrong"))).run
    command = ["retract", str(number), "--reason", "wrong"]
    if undo:
        assert archec_inline(config, *command).code == 0
        command.append("--undo")
    assert archec_cli(config, *command, env=killed_at("journal.after-append")).code == -9
    assert list(histories(config)[PAPER]) == ([T1] if undo else [T1, T2])
    refused = archec_inline(config, *command)
    assert (refused.code, ("is not retracted" if undo else "is retracted: wrong") in refused.err) == (2, True)
    assert list(histories(config)[PAPER]) == ([T1, T2] if undo else [T1])
    check(config)


def test_an_acceptance_that_was_killed_is_completed_by_the_same_command(config: Config, folder: Path) -> None:
    run(config, tar(folder, 1, papers("aaa/p.rdf", *series(30))))
    number = run(config, tar(folder, 2, papers("aaa/p.rdf", *series(2)))).run
    command = ["losses", "accept", str(number)]
    assert archec_cli(config, *command, env=killed_at("journal.after-append")).code == -9
    assert list(histories(config)[series(30)[5]]) == [T1]
    assert archec_inline(config, *command).code == 7, "they are no longer held back"
    assert list(histories(config)[series(30)[5]]) == [T1, T2]
    check(config)


def test_what_only_a_retracted_data_set_names_is_not_due(config: Config, folder: Path) -> None:
    urls = ["http://127.0.0.1:9/a", "http://127.0.0.1:9/b"]
    first = tar(folder, 1, Member("RePEc/aaa/sss/1.rdf", template(PAPER, "one", urls[:1]).encode()))
    wrong = tar(folder, 2, Member("RePEc/aaa/sss/1.rdf", template(PAPER, "wrong", urls).encode()))
    number = [run(config, file).run for file in (first, wrong)][1]

    def due() -> int:
        return int(json.loads(archec_inline(config, "status", "--json").out)["due"]["now"])

    assert due() == 2
    assert archec_inline(config, "retract", number, "--reason", "not RePEc").code == 0
    assert due() == 1
    check(config)
    assert archec_inline(config, "retract", number, "--undo").code == 0
    assert due() == 2
    check(config)


def test_a_template_that_the_database_does_not_take_is_noted_once(config: Config, folder: Path) -> None:
    papers_of = config.data_path / "aaa" / "sss" / "1.rdf"
    papers_of.parent.mkdir(parents=True)
    papers_of.write_text(template("RePEc:aaa:sss:2") + template(PAPER))
    with closing(sqlite3.connect(config.base / "data" / "catalogue.sqlite")) as db:
        run(config, fetch=False)
        db.execute("DELETE FROM mi WHERE id = ?", [PAPER])
        db.execute(
            f"CREATE TRIGGER no BEFORE INSERT ON mi WHEN NEW.id = '{PAPER}' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        db.commit()
    assert [run(config, fetch=False, reread=True).tobis["same"] for _ in range(3)] == [1, 2, 2]
    papers_of.write_text(template("RePEc:aaa:sss:2") + template(PAPER, "Changed"))
    assert [run(config, fetch=False, reread=True).tobis["same"] for _ in range(2)] == [1, 2]
    papers_of.write_text(template("RePEc:aaa:sss:2"))
    lost = run(config, fetch=False, reread=True)
    assert [lost.tobis["lost"], run(config, fetch=False, reread=True).tobis["lost"]] == [1, 0]
    run(config, tar(folder, 1, papers("aaa/sss/1.rdf", PAPER)))
    url = f"sqlite:///{folder}/other.sqlite"
    assert archec_inline(config, "rebuild", "--database", url).code == 0
    states = histories(replace(config, database=url))[PAPER]
    assert (min(states), list(states.values()).count(None), states[lost.run]) == (T1, 1, None), "as any other"
    check(replace(config, database=url))
    with closing(sqlite3.connect(config.base / "data" / "catalogue.sqlite")) as db:
        db.execute("DROP TRIGGER no")
        db.commit()
    papers_of.write_text(template("RePEc:aaa:sss:2") + template(PAPER, "Again"))
    assert [run(config, fetch=False, reread=True).tobis["same"] for _ in range(2)] == [1, 2]
    papers_of.write_text(template("RePEc:aaa:sss:2"))
    assert run(config, fetch=False, reread=True).tobis["lost"] == 1, "as the database has it now"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_malformed_handle_counts_only_where_there_is_no_good_one(
    config: Config, folder: Path, order: tuple[int, ...]
) -> None:
    good, bad = template(PAPER, "good"), template(PAPER, "malformed").replace(PAPER, f"{PAPER}<br />")
    assert hashlib.sha256(good.encode()).hexdigest() < hashlib.sha256(bad.encode()).hexdigest(), "it would win"
    files = [
        tar(folder, 1, Member("RePEc/aaa/sss/1.rdf", good.encode())),
        tar(folder, 1, Member("RePEc/aaa/sss/1.rdf", bad.encode()), name="_b"),
        tar(folder, 2, Member("RePEc/aaa/sss/1.rdf", b"<html>"), Member("RePEc/aaa/sss/2.rdf", bad.encode())),
    ]
    for number in order:
        run(config, files[number])
    assert histories(config) == {PAPER: {T1: hashlib.sha256(good.encode()).hexdigest()}}
    check(config)


# -- evidence by place --------------------------------------------------------------------------------


def test_a_template_away_from_home_is_judged_where_it_was(config: Config, folder: Path) -> None:
    home = papers("aaa/sss/2.rdf", "RePEc:aaa:sss:2")
    run(config, tar(folder, 1, home, papers("bbb/x.rdf", PAPER)))
    run(config, tar(folder, 2, home, Member("RePEc/bbb/x.rdf", HTML)))
    assert list(histories(config)[PAPER]) == [T1], "an HTML page in its place"
    report = run(config, tar(folder, 3, home))
    assert list(histories(config)[PAPER]) == [T1], "no directory"
    assert report.as_value()["not_judged"] == {"aaa": {"not-there": 1}}
    told = json.loads(archec_inline(config, "history", PAPER, "--why", "--json").out)
    assert [(row["outcome"], row["by"]) for row in told["data_sets"]] == [
        ("seen", ""), ("unreadable", "bbb/x.rdf"), ("not-there", "bbb/"),
    ]  # fmt: skip
    assert told["last_seen"] == T1
    assert "1 of aaa: 1 not-there" in archec_inline(config, "runs", report.run).out.decode()
    run(config, tar(folder, 4, home, papers("bbb/y.rdf", "RePEc:bbb:sss:1")), accept=["all"])
    assert histories(config)[PAPER][T4] is None
    check(config)
    (lost,) = (json.loads(line) for line in archec_inline(config, "lost", "--json").out.splitlines())
    assert (lost["id"], lost["last_seen"], lost["noted"], lost["lost"]) == (PAPER, T1, T1, T4)
    rows = [json.loads(line) for line in archec_inline(config, "coverage", "--json").out.splitlines()]
    assert {row["archive"]: row["last_seen"] for row in rows if row["of"] == "archive"} == {"aaa": T4, "bbb": T4}
    assert json.loads(archec_inline(config, "history", "RePEc:aaa:sss:2", "--json").out)["last_seen"] == T4
    run(config, tar(folder, 5, home, papers("bbb/x.rdf", PAPER)))
    told = json.loads(archec_inline(config, "history", PAPER, "--json").out)
    assert [row["last_seen"] for row in told["incidences"]] == [None, T1, None], "of a loss that is over, too"


def test_a_handle_that_archec_does_not_take_any_more(config: Config, folder: Path) -> None:
    """Its file was read whole, and the template that was held is not in it."""
    home = papers("aaa/sss/2.rdf", "RePEc:aaa:sss:2")
    run(config, tar(folder, 1, home, papers("aaa/sss/1.rdf", PAPER)))
    report = run(config, tar(folder, 2, home, papers("aaa/sss/1.rdf", "http://example.org/1")))
    assert (report.problem_counts["bad-handle"], report.tobis["lost"]) == (1, 1)
    assert histories(config)[PAPER][T2] is None
    run(config, tar(folder, 3, home))
    assert list(histories(config)) == ["RePEc:aaa:sss:1", "RePEc:aaa:sss:2"]
    check(config)


def test_a_file_that_is_hopeless_for_years_does_not_keep_others(config: Config, folder: Path) -> None:
    hopeless = Member("RePEc/aaa/bad.rdf", HTML)
    run(config, tar(folder, 1, hopeless, papers("aaa/sss/p.rdf", *series(30))))
    report = run(config, tar(folder, 2, hopeless, papers("aaa/sss/p.rdf", *series(29))))
    assert report.tobis["lost"] == 1
    changed = Member("RePEc/aaa/bad.rdf", HTML + b"<!-- -->")
    report = run(config, tar(folder, 3, changed, papers("aaa/sss/p.rdf", *series(28))))
    assert (report.tobis["lost"], report.as_value()["not_judged"]) == (0, {"aaa": {"disturbed": 1}})
    assert run(config, tar(folder, 4, changed, papers("aaa/sss/p.rdf", *series(28)))).tobis["lost"] == 1
    check(config)


def test_where_the_winner_cannot_be_read_the_other_copy_is_no_news(config: Config, folder: Path) -> None:
    other = papers("bbb/x.rdf", PAPER, title="the copy")
    run(config, tar(folder, 1, papers("aaa/sss/1.rdf", PAPER), other))
    report = run(config, tar(folder, 2, Member("RePEc/aaa/sss/1.rdf", HTML), other))
    assert (list(histories(config)[PAPER]), report.tobis["withheld"]) == ([T1], 1)
    assert run(config, tar(folder, 3, Member("RePEc/aaa/", None), other)).tobis["new"] == 0
    assert list(histories(config)[PAPER]) == [T1, T3], "now it is known that the first copy has gone"
    check(config)


def test_a_move_is_no_incidence_but_is_remembered(config: Config, folder: Path) -> None:
    home = papers("aaa/sss/2.rdf", "RePEc:aaa:sss:2")
    run(config, tar(folder, 1, home, papers("aaa/sss/1.rdf", PAPER)))
    assert run(config, tar(folder, 2, home, papers("bbb/x.rdf", PAPER))).tobis["moved"] == 1
    run(config, tar(folder, 3, home))
    assert list(histories(config)[PAPER]) == [T1], "it was in bbb/, which is not there"
    check(config)


# -- losses that wait ---------------------------------------------------------------------------------


def test_losses_are_listed_and_accepted(config: Config, folder: Path) -> None:
    core = papers("all/s.rdf", *(f"RePEc:bbb:s{n}" for n in range(5)))
    run(config, tar(folder, 1, papers("aaa/p.rdf", *series(30)), core))
    second = tar(folder, 2, papers("aaa/p.rdf", *series(2)), papers("all/s.rdf", "RePEc:bbb:s0"))
    report = run(config, second)
    assert report.held_back == {"aaa": 28, "bbb": 4}
    rows = [json.loads(row) for row in archec_inline(config, "losses", "--json").out.splitlines()]
    assert [row["id"] for row in rows if row["group"] == "aaa"] == series(30)[2:]
    command = f"archec losses accept {report.run} aaa"
    assert command in archec_inline(config, "status").out.decode()
    back = series(30)[7]
    third = run(config, tar(folder, 3, papers("aaa/p.rdf", *series(2), back), papers("all/s.rdf", "RePEc:bbb:s0"))).run
    done = archec_inline(config, *command.split()[1:])
    assert done.code == 0, done.err
    assert f"{back}: a later data set contains it" in done.err
    found = histories(config)
    assert [obi for obi in series(30) if found[obi].get(T2, "") is None] == [*series(30)[2:7], *series(30)[8:]]
    assert all(None not in found[f"RePEc:bbb:s{n}"].values() for n in range(5))
    check(config)
    assert archec_inline(config, "losses", "accept", report.run, "ccc").code == 7
    listed = {row["run"]: row for row in map(json.loads, archec_inline(config, "runs", "--json").out.splitlines())}
    assert (listed[third]["state"], listed[third]["held_back"]) == ("held-back", {"bbb": 4})
    assert (listed[report.run]["state"], listed[report.run]["held_back"]) == ("done", {}), "the third decides again"
    assert len(archec_inline(config, "losses").out.splitlines()) == 4
    assert archec_inline(config, "losses", "accept", report.run, "RePEc:bbb:s3").code == 0
    assert histories(config)["RePEc:bbb:s3"][T2] is None
    check(config)
    assert archec_inline(config, "losses", "accept", report.run).code == 0
    told = json.loads(archec_inline(config, "runs", third, "--json").out)
    assert (told["state"], told["held_back"], told["report"]["tobis"]["held_back"]) == ("done", {}, 0)
    assert histories(config)["RePEc:bbb:s1"][T2] is None
    assert archec_inline(config, "losses").err == "archec: no losses are held back\n"
    assert archec_inline(config, "losses", "--json")[1:] == (b"", "")
    assert archec_inline(config, "losses", 7).code == 7


@pytest.mark.parametrize("order", ["2b3", "3b2", "b23", "32b"])
def test_what_a_data_set_let_through_waits_again_without_it(config: Config, folder: Path, order: str) -> None:
    """It counts from the first data set that held it back, in any order, as long as the one that did not counts; even
    if another one of that date says nothing of it."""
    every, few = papers("aaa/p.rdf", *series(30)), papers("aaa/p.rdf", *series(2))
    run(config, tar(folder, 1, every))
    files = {
        "2": tar(folder, 2, few), "3": tar(folder, 3, few), "b": tar(folder, 2, papers("bbb/x.rdf", ""), name="_b")
    }  # fmt: skip
    runs = {int(day, 16): run(config, files[day], accept=["aaa"] if day == "3" else []).run for day in order}
    assert [list(histories(config)[obi]) for obi in series(30)] == [[T1]] * 2 + [[T1, T2]] * 28
    check(config)
    told = json.loads(archec_inline(config, "history", series(30)[5], "--why", "--json").out)["data_sets"]
    outcomes = {row["run"]: row["outcome"] for row in told}
    assert (outcomes[runs[2]], outcomes[runs[3]]) == ("lost", "absent"), "as the history has it"
    assert archec_inline(config, "retract", runs[3], "--reason", "misdated").code == 0
    assert all(list(found) == [T1] for found in histories(config).values())
    assert len(archec_inline(config, "losses").out.splitlines()) == 28
    assert archec_inline(config, "retract", runs[3], "--undo").code == 0
    assert list(histories(config)[series(30)[5]]) == [T1, T2]
    check(config)


@pytest.mark.parametrize("middle", ["retracted", "never read", "counts"])
def test_a_loss_is_accepted_from_the_first_data_set_without_it(config: Config, folder: Path, middle: str) -> None:
    """What was shown in between counts, unless its data set is retracted, whatever was accepted before."""
    every, few = papers("aaa/p.rdf", *series(30)), papers("aaa/p.rdf", *series(2))
    days = {1: every, 2: few, 3: every, 4: few}
    runs = {
        day: run(config, tar(folder, day, members)).run
        for day, members in days.items() if day != 3 or middle != "never read"
    }  # fmt: skip
    if middle == "retracted":
        assert archec_inline(config, "retract", runs[3], "--reason", "misdated").code == 0
        done = archec_inline(config, "losses", "accept", runs[3])
        assert (done.code, f"'archec retract {runs[3]} --undo'" in done.err) == (2, True)
    assert archec_inline(config, "losses", "accept", runs[4]).code == 0
    lost = [T4] if middle == "counts" else [T2]
    assert [tist for tist, state in histories(config)[series(30)[7]].items() if state is None] == lost
    if middle == "counts":
        assert "0 losses accepted" in archec_inline(config, "losses", "accept", runs[2]).out.decode()
        assert [tist for tist, state in histories(config)[series(30)[7]].items() if state is None] == lost
    check(config)


def test_what_is_no_run(config: Config, folder: Path) -> None:
    run(config, tar(folder, 1, papers("aaa/p.rdf", PAPER)))
    for word in ("\u00b2", "9" * 5000, "9" * 23):
        for command in (["losses"], ["losses", "accept"], ["retract", "--visits", "--reason", "x"]):
            assert archec_inline(config, *command, word).code == 2
        assert archec_inline(config, "retract", "--reason", "x", word).code == 7
    for command in (["losses", "accept"], ["retract", "--visits", "--reason", "x"]):
        done = archec_inline(config, *command, "99")
        assert (done.code, done.err) == (7, "archec: there is no run 99 ('archec runs' lists them)\n")


def test_the_last_data_set_that_could_judge_holds_back(config: Config, folder: Path) -> None:
    """A decision is asked for once, however many nights hold it back, and not where the archive is back."""
    few, bad = papers("aaa/p.rdf", *series(2)), Member("RePEc/aaa/bad.rdf", HTML)
    days = [[papers("aaa/p.rdf", *series(30))], [few], [few, bad], [few, bad], [papers("aaa/p.rdf", *series(30))]]
    runs = [run(config, tar(folder, day, *members)).run for day, members in enumerate(days[:3], 1)]

    def listed() -> dict[int, int]:
        return Counter(int(line.split()[0]) for line in archec_inline(config, "losses").out.splitlines())

    assert listed() == {runs[1]: 28}, "the third is disturbed"
    fourth = run(config, tar(folder, 4, *days[3])).run
    assert listed() == {fourth: 28}
    run(config, tar(folder, 5, *days[4]))
    assert listed() == {}
    assert archec_inline(config, "losses", "accept", fourth, "aaa").code == 0
    assert all(None not in history.values() for history in histories(config).values())
