"""``archec lost``, ``changes`` and ``coverage`` as a shell sees them, over the archive of the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gather_support import Member, archec_inline, make, on_terminal, run, tarball, template

from archec.config import Config
from archec.tist import iso

FIGURES = {
    "works", "with_file", "files", "held", "pdfs", "lost", "gone", "unreachable", "forbidden", "never", "bad_urls",
    "other",
}  # fmt: skip


def told(err: str) -> list[str]:
    """What stands on stderr, but for the note about an archive of which nothing is held."""
    return [line for line in err.splitlines() if not line.startswith("archec: the archive holds nothing of ")]


def values(config: Config, *arguments: str) -> list[dict[str, Any]]:
    done = archec_inline(config, *arguments, "--json")
    assert (done.code, told(done.err)) == (0, []), done
    return [json.loads(line) for line in done.out.splitlines()]


def text(config: Config, *arguments: str) -> str:
    done = archec_inline(config, *arguments)
    assert (done.code, told(done.err)) == (0, []), done
    return done.out.decode()


# -- lost -----------------------------------------------------------------------------------------


def test_lost(demo: Config) -> None:
    (one,) = values(demo, "lost")
    assert one["id"].endswith("/papers/clocks.pdf")
    assert (one["kind"], one["reason"], one["noted_time"]) == ("fobi", "HTTP status 404", iso(one["noted"]))
    assert (demo.store_path / one["path"]).is_file()
    (work,) = one["works"]
    assert (work["handle"], work["names"], work["rendering"]) == ("RePEc:dmo:wpaper:2009-04", True, "")
    shown = text(demo, "lost")
    assert one["path"] in shown
    assert "The Market for Secondhand Clocks" in shown
    (again,) = values(demo, "lost", "--archive", "DMO", "--kind", "fobi", "--reason", "404")
    assert again.pop("seconds") >= one.pop("seconds")  # until now
    assert again == one
    for none in (["--kind", "tobi"], ["--archive", "aaa"], ["--for", "7d"], ["--until", "2001"], ["--reason", "410"]):
        assert values(demo, "lost", *none) == []


def test_returned(demo: Config) -> None:
    (one,) = values(demo, "lost", "--returned")
    assert (one["id"], one["kind"], one["same"]) == ("RePEc:dmo:wpaper:2011-11", "tobi", True)
    assert one["seconds"] == one["returned"] - one["lost"] > 0
    assert one["last_seen"] < one["lost"]
    assert "back " in text(demo, "lost", "--returned", "--archive", "dmo")


# -- changes --------------------------------------------------------------------------------------


def test_changes(demo: Config) -> None:
    found = values(demo, "changes")
    assert [one["tist"] for one in found] == sorted(one["tist"] for one in found)
    assert {one["what"] for one in found} == {"new", "changed", "lost", "returned"}
    assert {one["how"] for one in found if one["what"] == "changed"} >= {"content"}
    assert [one["suspect"] for one in found if one["suspect"]] == ["page instead of PDF"]
    last = max(one["run"] for one in found)
    by_run = values(demo, "changes", "--since", str(last))
    assert by_run == values(demo, "changes", "--since", "last")
    assert {one["run"] for one in by_run} == {last}
    assert values(demo, "changes", "--until", "last") == [one for one in found if one["run"] < last]
    assert values(demo, "changes", "--since", "2999-01-01") == []
    assert len(text(demo, "changes").splitlines()) == len(found)


def test_what_changed_in_a_template(demo: Config, folder: Path) -> None:
    config = make(folder / "archive")
    titles = ["Old", "Newer \x1b[31m", "Newest"]
    for day, title in enumerate(titles, 1):
        member = Member("RePEc/aaa/sss/p.rdf", template("RePEc:aaa:sss:1", title).encode())
        run(config, tarball(folder / f"RePEc_2001-01-{day:02d}.tar", [member]))
    (diff,) = values(config, "changes", "--diff", "repec:AAA:sss:1")
    changed = [line for line in diff["lines"] if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-Title: Newer \x1b[31m", "+Title: Newest"]
    shown = text(config, "changes", "--diff", "RePEc:aaa:sss:1", "--from", "2001-01-01", "--to", "2001-01-02")
    assert "-Title: Old\n+Title: Newer \\x1b[31m\n" in shown
    same = archec_inline(config, "changes", "--diff", "RePEc:aaa:sss:1", "--from", "2001-01-03")
    assert (same.code, same.out) == (0, b"")
    assert "are equal" in same.err
    back = archec_inline(config, "changes", "--diff", "RePEc:aaa:sss:1", "--from", "2001-01-03", "--to", "2001-01-01")
    assert (back.code, back.err.count("\n")) == (2, 1)
    none = archec_inline(config, "changes", "--diff", "RePEc:aaa:sss:1", "--to", "2001-01-01")
    assert (none.code, "nothing to compare with" in none.err) == (7, True)
    (found,) = values(demo, "lost")
    assert archec_inline(demo, "changes", "--diff", found["id"]).code == 2
    (path,) = [one for one in config.store_path.rglob("RePEc*") if b"Newest" in one.read_bytes()]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"Newest", b"newest"))
    damaged = archec_inline(config, "changes", "--diff", "RePEc:aaa:sss:1")
    assert (damaged.code, str(path) in damaged.err) == (6, True)


# -- coverage -------------------------------------------------------------------------------------


def test_coverage(demo: Config) -> None:
    series, archive, everything = values(demo, "coverage")
    assert [one["of"] for one in (series, archive, everything)] == ["series", "archive", "all"]
    assert set(series) == FIGURES | {"of", "archive", "series", "last_seen"}
    assert (series["archive"], series["series"], series["works"]) == ("dmo", "wpaper", 13)
    assert (series["lost"], series["forbidden"]) == (1, 1)
    assert 0 < series["pdfs"] < series["held"] <= series["files"]
    assert {name: everything[name] for name in FIGURES} == {name: series[name] for name in FIGURES}
    assert values(demo, "coverage", "--series", "dmo:wpaper")[0] == series
    assert values(demo, "coverage", "--archive", "dmo", "--series", "wpaper")[0] == series
    head, row, total = text(demo, "coverage").splitlines()
    assert len(head) == len(row) == len(total)
    assert len(values(demo, "coverage", "--archive", "none")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["coverage", "--series", "wpaper"], ["coverage", "--archive", "a", "--series", "b:c"],
        ["lost", "--for", "long"], ["lost", "--kind", "x"], ["lost", "--since", "some day"],
        ["changes", "--since", "some run"], ["changes", "--from", "2001"],
        ["changes", "--diff", "RePEc:dmo", "--since", "2001"], ["lost", "--archive", ""],
    ],
)  # fmt: skip
def test_usage(demo: Config, arguments: list[str]) -> None:
    done = archec_inline(demo, *arguments)
    assert done.code == 2, done
    assert "Traceback" not in done.err


# -- terminals and pipes --------------------------------------------------------------------------


def test_tables_fit_the_terminal_and_are_whole_in_a_pipe(demo: Config, folder: Path) -> None:
    """Lines are folded between words: no word is broken or left out, and a longer one has a line of its own."""
    config = make(folder / "archive")
    handle, title = "RePEc:aaa:" + "s" * 60 + ":1", "A title that is longer than a line of a terminal " * 4
    member = Member("RePEc/aaa/sss/p.rdf", template(handle, title).encode())
    report = run(config, tarball(folder / "RePEc_2001-01-01.tar", [member]), accept=["zzz"])
    (change,) = values(config, "changes")
    listed = [["changes"], ["find", "--sha256", change["sha256"]], ["runs", str(report.run)], ["history", handle]]
    for archive, command in [*((config, command) for command in listed), (demo, ["lost", "--returned"])]:
        shown, _ = on_terminal(archive, *command, columns=80)
        assert [line for line in shown.splitlines() if len(line) > 80 and " " in line.strip()] == []
        assert shown.split() == text(archive, *command).split()
    assert "  no fetch; accept zzz" in on_terminal(config, "runs", str(report.run), columns=80)[0]
    shown, err = on_terminal(config, "coverage", columns=80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" in shown
    assert "…" not in text(config, "coverage")
    assert "forbidden, never tried, bad URL, other, last seen (--json has them)" in err


def test_no_control_character_gets_to_a_terminal(folder: Path) -> None:
    config = make(folder / "archive")
    title = "\x1b[31m red \x9b1m \u202e \x7f"
    member = Member("RePEc/aaa/s/p.rdf", template("RePEc:aaa:s:1\x1b", title).encode())
    run(config, tarball(folder / "RePEc_2001-01-01.tar", [member]))
    run(config, tarball(folder / "RePEc_2001-01-02.tar", [Member("RePEc/aaa/s/p.rdf", b"")]), accept=["all"])
    for arguments in (("changes",), ("lost",), ("changes", "--json"), ("lost", "--json"), ("runs", "last", "--json")):
        out = archec_inline(config, *arguments).out.decode()
        assert not set(out) & {"\x1b", "\x9b", "\u202e", "\x7f"}, out
    assert any(one["title"] == title.strip() for one in values(config, "changes"))
