"""The lint: each problem with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from archec.errors import DataSetError
from archec.redif.lint import lint_file
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
    found = list(lint_file(path, max_file=10_000_000))
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
        ("ReDIF-Paper", "redif-ppaer", "unknown-type", 1),
        ("Title: T\n", "Title: T\nFile-Title: x\n", "unknown-field", 4),
        ("Title: T\n", "Title: T\nFavourite-Colour: x\n", "unknown-field", 4),
        ("Title: T\n", "Title: T\n<<<<<<< HEAD\n", "conflict-marker", 4),
        ("Author-Name: A\n", "Author-Email: A\nAuthor-Name: A\n", "cluster-without-key", 2),
        ("Template-Type", "hello\nTemplate-Type", "text-before-template", 1),
        ("Handle: ", "Handle: RePEc:aaa:ssssss:0\nHandle: ", "two-handles", 1),
    ],
)
def test_problems(tmp_path: Path, old: str, new: str, code: str, line: int) -> None:
    assert old in GOOD
    _, problems = lint(tmp_path, GOOD.replace(old, new))
    assert (code, line) in [(problem.code, problem.line) for problem in problems]
    assert len({(p.code, p.line, p.message) for p in problems}) == len(problems)


def test_duplicates_in_a_file(tmp_path: Path) -> None:
    _, problems = lint(tmp_path, GOOD + "\n" + GOOD.replace("RePEc:aaa", "RePEc:AAA"))
    assert [(problem.code, problem.line) for problem in problems] == [("duplicate", 8)]
    assert "line 1" in problems[0].message


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
        list(lint_file(tmp_path / "missing", max_file=1))
    assert [p.code for p in lint_file(tmp_path, max_file=1) if isinstance(p, Problem)] == ["bad-member"]


def test_too_large(tmp_path: Path) -> None:
    (tmp_path / "x.rdf").write_text(GOOD)
    assert [p.code for p in lint_file(tmp_path / "x.rdf", max_file=1) if isinstance(p, Problem)] == ["too-large"]
