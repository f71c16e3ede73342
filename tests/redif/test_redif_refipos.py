"""Refipos with normalised URLs, and the URLs that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import BadName
from archec.ids import normalise_url
from archec.redif.refipos import Refipo, refipos_of
from archec.redif.template import parse

HEAD = "Template-Type: ReDIF-Paper 1.0\nTitle: x\n"


def test_urls_are_normalised() -> None:
    text = HEAD + "File-URL: HTTP://Example.ORG:80/a/../b c.pdf#x\nFile-Format: application/pdf\nFile-Size: 12\n"
    text += "File-Restriction: none\nHandle: RePEc:aaa:ssssss:1\n"
    found = refipos_of(text.encode())
    assert found.refipos == (Refipo("http://example.org/bc.pdf", "application/pdf", "", "12", "none"),)
    assert found.problems == ()


def test_no_file_url_is_the_quick_way() -> None:
    assert refipos_of(HEAD.encode()) == ((), ())


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
    found = refipos_of(text.encode(), path="aaa/1.rdf", first_line=10, handle="RePEc:aaa:s:1")
    assert [refipo.url for refipo in found.refipos] == ["http://example.org/"]
    [problem] = found.problems
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
    text = (HEAD + f"File-URL: {url}\nHandle: RePEc:aaa:s:1\n").encode()
    assert "sec" not in str(refipos_of(text, handle="RePEc:aaa:s:1"))


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
def test_the_same_as_the_full_parse(pieces: list[str], kind: str) -> None:
    text = "\n".join([f"Template-Type: {kind}", *pieces, "Handle: a:1", ""])
    expected = []
    for raw in parse(text).refipos:
        try:
            expected.append(Refipo(normalise_url(raw.url_raw), *raw[1:]))
        except BadName:
            continue
    assert list(refipos_of(text.encode()).refipos) == expected


@given(st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    refipos_of(b"Template-Type: x\nFile-URL: " + data)
    refipos_of(data + b"file-url")
