"""The lint: each problem with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from archec.errors import DataSetError
from archec.redif.lint import Lint
from archec.redif.problems import CODES, Problem
from archec.redif.template import Template

GOOD = (
    "Template-Type: ReDIF-Paper 1.0\nAuthor-Name: A\nTitle: T\nFile-URL: http://example.org/1.pdf\n"
    "File-Format: application/pdf\nHandle: RePEc:aaa:ssssss:1\n"
)


def lint(
    tmp_path: Path, data: str | bytes, name: str = "RePEc/aaa/ssssss/1.rdf"
) -> tuple[list[Template], list[Problem]]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = list(Lint(max_file=10_000_000).file(path))
    problems = [item for item in found if isinstance(item, Problem)]
    assert all(problem.code in CODES and problem.path == str(path) for problem in problems)
    return [item for item in found if isinstance(item, Template)], problems


def test_nothing_to_say(tmp_path: Path) -> None:
    templates, problems = lint(tmp_path, GOOD)
    assert [template.id for template in templates] == ["RePEc:aaa:ssssss:1"]
    assert problems == []


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("Title: T\n", "", "missing-field", 1),
        ("Author-Name: A\n", "", "missing-field", 1),
        ("Handle: RePEc:aaa:ssssss:1\n", "", "no-handle", 1),
        ("RePEc:aaa:ssssss:1", "aaa:ssssss:1", "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "repec:aaa:ssssss:1", "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1–2", "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1 2", "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:" + "x" * 200, "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss", "bad-handle", 6),
        ("RePEc:aaa:ssssss:1", "RePEc:bbb:ssssss:1", "misplaced", 6),
        ("http://example.org/1.pdf", "file:///C:/1.pdf", "bad-url", 4),
        ("http://example.org/1.pdf", "", "empty-url", 4),
        ("http://example.org/1.pdf", "http://example.org/1\nFile-URL: x" * 9000, "too-many-files", 1),
        ("ReDIF-Paper", "redif-ppaer", "unknown-type", 1),
        ("Title: T\n", "Title: T\nFile-Title: x\n", "unknown-field", 4),
        ("Title: T\n", "Title: T\nFavourite-Colour: x\n", "unknown-field", 4),
        ("Title: T\n", "Title: T\n<<<<<<< HEAD\n", "conflict-marker", 4),
        ("Author-Name: A\n", "Author-Email: A\nAuthor-Name: A\n", "cluster-without-key", 2),
        ("Template-Type", "hello\nTemplate-Type", "text-before-template", 1),
        ("Handle: ", "Handle: RePEc:aaa:ssssss:0\nHandle: ", "two-handles", 7),
        ("RePEc:aaa:ssssss:1", "http://example.org/1", "bad-handle", 1),
        ("RePEc:aaa:ssssss:1", "ftp:example", "bad-handle", 1),
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1<br />", "bad-handle", 6),
        ("Title: T\n", "Title: T\nTitle: U\n", "repeated-field", 4),
        ("Title: T\n", "Title: T\n  Template-Type: ReDIF-Paper 1.0\n Title: U\n", "indented-template", 4),
        ("Title: T\n", "Title: T\nCreation-Date: 31.5.2009\n", "bad-value", 4),
        ("Title: T\n", "Title: T\nCreation-Date: 2009-02-30\n", "bad-value", 4),
        ("Author-Name: A\n", "Author-Name: A\nAuthor-Email: a at example.org\n", "bad-value", 3),
        ("Title: T\n", "Title: T\nClassification-JEL: C12, monetary\n", "bad-value", 4),
        ("Title: T\n", "Title: T\nPublication-Status: maybe\n", "bad-value", 4),
        ("application/pdf", "PDF", "bad-value", 5),
        ("application/pdf", "aplication/pdf", "bad-value", 5),
        ("Author-Name: A\n", "Author-Name: A\nAuthor-Workplace-Institution: Harvard\n", "bad-value", 3),
        ("ReDIF-Paper 1.0", "ReDIF-Paper", "bad-value", 1),
        ("ReDIF-Paper 1.0", "ReDIF-Paper 2.0", "bad-value", 1),
    ],
)
def test_problems(tmp_path: Path, old: str, new: str, code: str, line: int) -> None:
    assert old in GOOD
    _, problems = lint(tmp_path, GOOD.replace(old, new))
    assert (code, line) in [(problem.code, problem.line) for problem in problems]
    assert code != "no-handle" or len(problems) == 1
    assert len({(p.code, p.line, p.message) for p in problems}) == len(problems)


def test_duplicates_in_a_file(tmp_path: Path) -> None:
    _, problems = lint(tmp_path, GOOD + "\n" + GOOD.replace("RePEc:aaa", "RePEc:AAA"))
    assert [(problem.code, problem.line) for problem in problems] == [("duplicate", 1)]
    assert problems[0].message.endswith("in line 8 as well, which counts")


@pytest.mark.parametrize(
    ("first", "second", "loses"),
    [
        ("RePEc/aaa/ssssss/1.rdf", "RePEc/aaa/ssssss/2.rdf", 0),
        ("RePEc/aaa/ssssss/2.rdf", "RePEc/aaa/ssssss/1.rdf", 1),
        ("RePEc/aaa/ssssss/1.rdf", "RePEc/zzz/ssssss/1.rdf", 1),
        ("1.rdf", "RePEc/aaa/ssssss/1.rdf", 1),
    ],
)
def test_the_duplicate_is_the_one_that_does_not_count(tmp_path: Path, first: str, second: str, loses: int) -> None:
    lints = Lint(max_file=10_000)
    found: list[Problem] = []
    for name in (first, second):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GOOD)
        found += [item for item in lints.file(path) if isinstance(item, Problem) and item.code == "duplicate"]
    ((path, _, _, message),) = [(p.path, p.line, p.code, p.message) for p in found]
    assert path == str(tmp_path / (first, second)[loses])
    assert message.endswith(", which counts") == (first != "1.rdf")


def test_duplicates_in_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.rdf", "2.rdf", "3.rdf"):
        (tmp_path / name).write_text(GOOD)
    lints = Lint(max_file=10_000)
    assert not [item for item in lints.file(tmp_path / "1.rdf") if isinstance(item, Problem)]
    (problem,) = (item for item in lints.file(tmp_path / "2.rdf") if isinstance(item, Problem))
    assert (problem.code, f"{tmp_path}/1.rdf:1" in problem.message, lints.forgot) == ("duplicate", True, False)
    monkeypatch.setattr("archec.redif.lint.MOST_HANDLES", 0)
    assert not [item for item in lints.file(tmp_path / "3.rdf") if isinstance(item, Problem)]
    assert lints.forgot


def test_encodings(tmp_path: Path) -> None:
    assert [p.code for p in lint(tmp_path, GOOD.replace("T\n", "Té\n").encode("cp1252"))[1]] == ["encoding-guess"]
    mixed = GOOD.replace("T\n", "Té\n").encode("cp1252") + "Abstract: é\n".encode()
    assert [p.code for p in lint(tmp_path, mixed)[1]] == ["mixed-encoding"]


def test_no_template_file(tmp_path: Path) -> None:
    assert [p.code for p in lint(tmp_path, "<html></html>")[1]] == ["html-page"]
    assert [p.code for p in lint(tmp_path, "")[1]] == ["empty"]


def test_comments_before_the_first_template_are_fine(tmp_path: Path) -> None:
    assert lint(tmp_path, "# hello\n\n" + GOOD)[1] == []


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataSetError):
        list(Lint(max_file=1).file(tmp_path / "missing"))
    assert [p.code for p in Lint(max_file=1).file(tmp_path) if isinstance(p, Problem)] == ["bad-member", "other-name"]


def test_too_large(tmp_path: Path) -> None:
    (tmp_path / "x.rdf").write_text(GOOD)
    assert [p.code for p in Lint(max_file=1).file(tmp_path / "x.rdf") if isinstance(p, Problem)] == ["too-large"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Titel", "Title"),
        ("titel", "Title"),
        ("Abstrct", "Abstract"),
        ("abstrct", "Abstract"),
        ("AuthorName", "Author-Name"),
        ("Author", "Author-Name"),
        ("keyword", "Keywords"),
        ("File-Ulr", "File-URL"),
        ("Creationdate", "Creation-Date"),
    ],
)
def test_did_you_mean(tmp_path: Path, written: str, meant: str) -> None:
    _, problems = lint(tmp_path, GOOD.replace("Title: T\n", f"Title: T\n{written}: x\n"))
    (problem,) = [p for p in problems if p.code == "unknown-field"]
    assert problem.line == 4
    assert problem.message.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("word", ["Purpose", "Design/methodology", "Results", "https", "http", "Findings", "Method"])
def test_words_of_an_abstract_are_no_fields(tmp_path: Path, word: str) -> None:
    assert lint(tmp_path, GOOD.replace("Title: T\n", f"Title: T\nAbstract: We\n{word}: x\n{word}://x\n"))[1] == []


@pytest.mark.parametrize(
    "line",
    [
        *("Creation-Date: 2009", "Creation-Date: 2009-05", "Creation-Date: 2009-05-31", "Creation-Date:"),
        *("Classification-JEL: C12; D4 E", "Publication-Status: Published in x", "Publication-Status: forthcoming"),
        *("Abstract: A\nAbstract: B", "Creation-Date: 1999-12"),
        "Author-Name: B\nAuthor-Workplace-Name: C\nAuthor-Workplace-Institution: RePEc:edi:deharus",
        "Author-Name: B\nAuthor-Email: a.b-c@example.ac.uk",
    ],
)
def test_good_values(tmp_path: Path, line: str) -> None:
    assert lint(tmp_path, GOOD.replace("Title: T\n", f"Title: T\n{line}\n"))[1] == []


def test_the_type_of_a_series(tmp_path: Path) -> None:
    series = "Template-Type: ReDIF-Series 1.0\nName: S\nMaintainer-Email: a@example.org\nType: {}\n"
    series += "Handle: RePEc:aaa:ssssss\n"
    assert lint(tmp_path, series.format("ReDIF-Paper"), "RePEc/aaa/aaaseri.rdf")[1] == []
    assert [p.code for p in lint(tmp_path, series.format("Papers"), "RePEc/aaa/aaaseri.rdf")[1]] == ["bad-value"]


def test_a_name_that_does_not_count_is_read_and_told(tmp_path: Path) -> None:
    templates, problems = lint(tmp_path, GOOD, "RePEc/aaa/ssssss/1.rdf~")
    assert (len(templates), [p.code for p in problems]) == (1, ["other-name"])


def test_names_that_differ_in_their_unicode_form_only(tmp_path: Path) -> None:
    nfc, nfd = "caf\u00e9", "cafe\u0301"
    lints = Lint(max_file=10_000)
    found: list[Problem] = []
    for name, item in ((f"{nfc}.rdf", nfc), (f"{nfd}.rdf", nfd), ("x.rdf", nfc)):
        path = tmp_path / name
        path.write_text(GOOD.replace("ssssss:1", f"ssssss:{item}"), encoding="utf-8")
        found += [p for p in lints.file(path) if isinstance(p, Problem) and p.code == "unicode-form"]
    assert [(Path(p.path).name.isascii(), p.line) for p in found] == [(False, 1), (False, 0)]
    assert "'RePEc:aaa:ssssss:caf\\xe9'" in found[0].message


def test_form_feeds_between_templates_and_fields(tmp_path: Path) -> None:
    second = GOOD.replace("ssssss:1", "ssssss:2").replace("Handle", "\fHandle")
    templates, problems = lint(tmp_path, f"\f{GOOD}\n\f\f{second}")
    assert [template.id for template in templates] == ["RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:2"]
    assert problems == []
