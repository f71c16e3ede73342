"""Refipos with normalised URLs, and the URLs that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.redif.problems import Problem
from archec.redif.template import fobi_of, parse

HEAD = "Template-Type: ReDIF-Paper 1.0\nTitle: x\n"


def fobis(text: str, path: str = "", first_line: int = 1) -> list[str | Problem]:
    """The fobis of a template and what is wrong with its other File-URLs, in order."""
    template = parse(text, path=path, first_line=first_line)
    pairs = zip(template.refipos, template.refipo_lines, strict=True)
    return [fobi_of(refipo, path, line, template.id) for refipo, line in pairs]


def test_urls_are_normalised() -> None:
    text = HEAD + "File-URL: HTTP://Example.ORG:80/a/../b c.pdf#x\nFile-Format: application/pdf\nFile-Size: 12\n"
    text += "File-Restriction: none\nHandle: RePEc:aaa:ssssss:1\n"
    assert fobis(text) == ["http://example.org/bc.pdf"]
    assert [refipo[1:] for refipo in parse(text).refipos] == [("application/pdf", "", "12", "none")]


def test_without_file_urls() -> None:
    assert fobis(HEAD) == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "empty-url"),
        ("file:///C:/x.pdf", "bad-url"),
        ("hhttp://example.org/", "bad-url"),
        ("www.example.org/x.pdf", "bad-url"),
        ("see the author", "bad-url"),
        ("http://", "bad-url"),
        ("mailto:someone@example.org", "bad-url"),
    ],
)
def test_bad_urls_have_handle_and_line(url: str, code: str) -> None:
    text = HEAD + f"File-URL: {url}\nFile-Format: x\nFile-URL: http://example.org/\nHandle: RePEc:aaa:s:1\n"
    problem, url = fobis(text, "aaa/1.rdf", 10)
    assert url == "http://example.org/"
    assert isinstance(problem, Problem)
    assert (problem.path, problem.line, problem.code) == ("aaa/1.rdf", 12, code)
    assert "RePEc:aaa:s:1" in problem.message


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@example.org/x",
        "http://user: secret@example.org/x",
        "http://user:se/cret@example.org:x/",
        "http:user:secret@example.org",
        "hhttp://user:secret@example.org/",
        "user:secret@example.org",
        "ftp://user:sec@ret@exa mple.org/",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    assert "sec" not in str(fobis(HEAD + f"File-URL: {url}\nHandle: RePEc:aaa:s:1\n"))


PIECES = st.lists(
    st.sampled_from(
        [
            "File-URL: http://example.org/1",
            "File-URL:",
            "file-url: http://example.org/",
            "  2.pdf",
            "Purpose: x",
            "https://example.org/",
            "File-Format: application/pdf",
            "File-Size: 1",
            "Book-File-URL: ftp://example.org/",
            "Book-File-Function: f",
            "X-File-URL: http://example.org/local",
            "Abstract: y",
            "# c",
            "<<<<<<< HEAD",
            "",
        ]
    ),
    max_size=10,
)


@given(PIECES, st.sampled_from(["ReDIF-Paper 1.0", "ReDIF-Series 1.0", "Odd"]))
def test_each_file_url_is_a_fobi_or_a_problem_in_its_line(pieces: list[str], kind: str) -> None:
    lines = [f"Template-Type: {kind}", *pieces, "Handle: a:1"]
    template = parse("\n".join([*lines, ""]))
    for refipo, line in zip(template.refipos, template.refipo_lines, strict=True):
        found = fobi_of(refipo, "", line, template.id)
        if isinstance(found, Problem):
            assert (found.code in ("empty-url", "bad-url"), found.line) == (True, line)
        else:
            assert found.startswith(("http", "ftp://"))
        assert "file-url" in lines[line - 1].lower() or line == 1


@given(st.text(max_size=100))
def test_any_text(text: str) -> None:
    fobis("Template-Type: x\nFile-URL: " + text)
    fobis(text + "\nfile-url")
