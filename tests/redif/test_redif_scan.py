"""Cutting files into raw templates: what is kept, what is reported, what is evidence of absence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.redif.files import Blob
from archec.redif.problems import CODES
from archec.redif.scan import Scan, scan
from archec.redif.template import canonical_text, difference

ONE = b"Template-Type: ReDIF-Paper 1.0\nTitle: One\nHandle: RePEc:aaa:ssssss:1\n"
TWO = b"Template-Type: ReDIF-Paper 1.0\nTitle: Two\nHandle: RePEc:aaa:ssssss:2\n"


def scanned(data: bytes, path: str = "RePEc/aaa/ssssss/1.rdf") -> Scan:
    found = scan(Blob(path, data))
    assert all(problem.code in CODES for problem in found.problems)
    return found


def codes(found: Scan) -> list[str]:
    return [problem.code for problem in found.problems]


def test_a_template_is_kept_as_it_is() -> None:
    found = scanned(ONE)
    assert [tuple(t) for t in found.templates] == [
        ("ReDIF-Paper 1.0", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", ONE, 1, 0)
    ]
    assert (found.problems, found.encoding, found.read) == ([], "ascii", True)


def test_text_ends_at_its_last_line_that_is_neither_blank_nor_a_comment() -> None:
    data = b"junk\n\n" + ONE + b"\n \n# gone\n#Template-Type: x\n\n" + TWO.rstrip() + b" \t"
    found = scanned(data)
    assert [t.text for t in found.templates] == [ONE, TWO.rstrip() + b" \t\n"]
    assert [t.line for t in found.templates] == [3, 11]


def test_comments_and_blank_lines_inside_stay() -> None:
    data = b"Template-Type: ReDIF-Paper 1.0\n# a comment\n\nHandle: RePEc:aaa:ssssss:1\n  \nTitle: x  \n"
    assert scanned(data).templates[0].text == data


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b"\r\r\n"])
def test_every_line_end_becomes_lf(end: bytes) -> None:
    found = scanned((ONE + b"\n" + TWO).replace(b"\n", end))
    assert [t.text for t in found.templates] == [ONE, TWO]
    assert [t.line for t in found.templates] == [1, 5]


def test_mixed_line_ends() -> None:
    data = b"Template-Type: ReDIF-Paper 1.0\r\nTitle: a\rNumber: 1\nHandle: RePEc:aaa:ssssss:1\r\r\r\n"
    assert scanned(data).templates[0].text.count(b"\n") == 4
    assert b"\r" not in scanned(data).templates[0].text


@pytest.mark.parametrize(
    ("written", "raw", "obi"),
    [
        (b"Handle: RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"HANDLE :\tRePEc:AAA:sSssss:X", "RePEc:AAA:sSssss:X", "RePEc:aaa:ssssss:x"),
        (b"handle: repec:aaa:ssssss:1", "repec:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle:\n  RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle:\nRePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle:\n\n RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle:\n RePEc: aaa:ssssss:1", "RePEc: aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:\n  ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:\n2001-05", "RePEc:aaa:ssssss:2001-05", "RePEc:aaa:ssssss:2001-05"),
        (b"Handle: RePEc:aaa:ssssss:1\n# no\n 2", "RePEc:aaa:ssssss:12", "RePEc:aaa:ssssss:12"),
        (b"Handle: RePEc:aaa:i:Special 12:p:8", "RePEc:aaa:i:Special 12:p:8", "RePEc:aaa:i:special12:p:8"),
        (b"Handle: RePEc:aaa:ssssss:1\n\x1a", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:1\x1a", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:1\n-------", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:1\n</pre>", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:1\n\nsome words", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:1\nRePEc:aaa:ssssss:2", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle:\nHandle: RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        (b"Handle: RePEc:aaa:ssssss:a/../b", "RePEc:aaa:ssssss:a/../b", "RePEc:aaa:ssssss:a/../b"),
        ("Handle: RePEc:aaa:ssssss:1–2".encode(), "RePEc:aaa:ssssss:1–2", "RePEc:aaa:ssssss:1–2"),
        (b"Handle: RePEc:aaa:s:" + b"x" * 5000, "RePEc:aaa:s:" + "x" * 5000, "RePEc:aaa:s:" + "x" * 5000),
        (b"Handle: RePEc:a\0a:s:1", "RePEc:a\0a:s:1", "RePEc:a\0a:s:1"),
        (b"Handle: hdl:1234", "hdl:1234", "hdl:1234"),
    ],
)
def test_handles_as_they_are_written(written: bytes, raw: str, obi: str) -> None:
    from archec.redif.template import parse

    data = b"Template-Type: ReDIF-Paper 1.0\n" + written + b"\n"
    template = scanned(data).templates[0]
    assert (template.handle, template.id) == (raw, obi)
    parsed = parse(template.text.decode())
    assert (parsed.handle, parsed.id) == (raw, obi)
    middle = scanned(data + b"Title: after\n").templates[0]
    assert middle.id == obi


@pytest.mark.parametrize(
    "written",
    [
        *(b"", b"Handle:\n", b"Handle: RePEc:\n", b"# Handle: RePEc:aaa\n", b" Handle: x\n"),
        *(b"Handle:\n-------\n", b"Handle:\n\nsome words\n", b"Handle:\n</pre>\n"),
    ],
)
def test_without_handle(written: bytes) -> None:
    found = scanned(b"Template-Type: ReDIF-Paper 1.0\n" + written + b"Title: x\n")
    assert found.templates[0].id == ""
    assert codes(found) == ["no-handle"]
    assert found.read


def test_of_two_handles_the_first_counts() -> None:
    found = scanned(ONE + b"Handle: RePEc:aaa:ssssss:9\n" + TWO)
    assert [t.id for t in found.templates] == ["RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:2"]
    assert codes(found) == ["two-handles"]
    assert found.problems[0].line == 1


def test_templates_start_anywhere_a_line_starts() -> None:
    data = b"TEMPLATE-TYPE :ReDIF-Paper\rHandle: a\r\xef\xbb\xbftemplate-type:x\r"
    data += b"Handle: b\r Template-Type: no\r#template-type: no"
    found = scanned(data)
    assert [(t.kind, t.handle) for t in found.templates] == [("ReDIF-Paper", "a"), ("x", "b")]
    assert found.templates[1].text == b"template-type:x\nHandle: b\n Template-Type: no\n"


def test_a_type_on_the_next_line() -> None:
    assert scanned(b"Template-Type:\n ReDIF-Paper 1.0\nHandle: a\n").templates[0].kind == "ReDIF-Paper 1.0"
    assert scanned(b"Template-Type:\nHandle: a\n").templates[0].kind == ""


def test_conflict_markers_are_reported() -> None:
    found = scanned(ONE + b"File-URL: http://a/\n<<<<<<< HEAD\n=======\n>>>>>>> x\n" + TWO)
    assert [(p.code, p.line) for p in found.problems] == [("conflict-marker", 5)]
    assert len(found.templates) == 2
    assert [(p.code, p.line) for p in scanned(b"<<<<<<< HEAD\n" + ONE).problems] == [("conflict-marker", 1)]


PAGE = b"<!DOCTYPE html><html><body>Down for maintenance</body></html>"


@pytest.mark.parametrize(
    ("path", "data", "read", "code"),
    [
        ("aaa/aaaseri.rdf", b"", False, "empty"),
        ("aaa/aaaseri.RDF", b" \r\n\t\n", False, "empty"),
        ("aaa/a.redif", PAGE, False, "html-page"),
        ("aaa/a.rdf", b"<br />\n<b>Notice</b>: Undefined", False, "html-page"),
        ("aaa/a.rdf", b"%PDF-1.4 ...", False, "binary"),
        ("aaa/a.rdf", b"\0\1\2\3", False, "binary"),
        ("aaa/a.rdf", b"Just text\n", False, "no-template"),
        ("aaa/a.rdf", b"# Template-type: ReDIF-Paper 1.0\n#Handle: x\n\n", True, "commented-out"),
        ("aaa/a.rdf", b"# Template-type: ReDIF-Paper 1.0\nHandle: x\n", False, "no-template"),
        ("aaa/papers", PAGE, False, "html-page"),
        ("aaa/papers.txt", b"\0\1\2\3", False, "binary"),
    ],
)
def test_files_without_templates(path: str, data: bytes, read: bool, code: str) -> None:
    found = scanned(data, path)
    assert found.templates == []
    assert (found.read, codes(found)) == (read, [code] if code else [])


def test_a_web_page_around_templates_does_not_hide_them() -> None:
    found = scanned(b"<html><pre>\n" + ONE + b"</pre></html>\n")
    assert [t.id for t in found.templates] == ["RePEc:aaa:ssssss:1"]


def test_many_trailing_comments_take_no_time() -> None:
    assert scanned(ONE + b"# x\n" * 300_000).templates[0].text == ONE
    assert len(scanned(ONE + b"Handle:\n" * 100_000).templates) == 1


@given(st.binary(max_size=300))
def test_nothing_is_ever_raised(data: bytes) -> None:
    scanned(data)
    found = scanned(b"Template-Type: ReDIF-Paper 1.0\nHandle: x:1\n" + data)
    for template in found.templates:
        template.text.decode("utf-8")
        assert b"\r" not in template.text
        assert template.text.endswith(b"\n")


@given(st.lists(st.sampled_from([ONE, TWO, b"# c\n", b"\n", b"junk\n", b"Template-Type: x\n"]), max_size=8))
def test_scanning_what_was_kept_gives_the_same(pieces: list[bytes]) -> None:
    for template in scanned(b"".join(pieces)).templates:
        again = scanned(template.text).templates
        assert [t._replace(line=0, index=0) for t in again] == [template._replace(line=0, index=0)]


# -- comparing texts --------------------------------------------------------------------------------

PAPER = b"Template-Type: ReDIF-Paper 1.0\nTitle: x\nFile-URL: http://a/1.pdf\nFile-Format: application/pdf\nHandle: a\n"


@pytest.mark.parametrize(
    "other",
    [
        PAPER.replace(b"\n", b"  \n"),
        PAPER.replace(b"\n", b"\r\n"),
        PAPER.replace(b"\n", b"\n\n"),
        b"# x\n" + PAPER + b"# y",
        PAPER.rstrip(),
        PAPER.replace(b"\n", b"\n \t\n"),
    ],
)
def test_cosmetic(other: bytes) -> None:
    assert canonical_text(other) == canonical_text(PAPER) == PAPER
    assert difference(other, PAPER) == "cosmetic"


def test_not_cosmetic() -> None:
    assert canonical_text(PAPER.replace(b"x", b" x")) != PAPER
    assert canonical_text(b"") == b""


@given(st.text(alphabet="a#: \t\r\n\x0b", max_size=40))
def test_idempotent(text: str) -> None:
    once = canonical_text(text.encode())
    assert canonical_text(once) == once
    for line in once.split(b"\n")[:-1]:
        assert line.strip()
        assert line == line.rstrip()
        assert not line.startswith(b"#")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (PAPER, PAPER.replace(b"a/1", b"b/2"), True),
        (PAPER, PAPER.replace(b"a/1", b"b/\n  2").replace(b"File-URL", b"file-url"), True),
        (PAPER, PAPER.replace(b"a/1", b"b/2").replace(b"x", b"y"), False),
        (PAPER, PAPER.replace(b"File-URL: http://a/1.pdf\n", b""), False),
        (PAPER, PAPER.replace(b"application/pdf", b"text/html"), False),
        (PAPER, PAPER, True),
        (b"Book-File-URL: x\nT: y\n", b"Book-File-URL: z\nT: y\n", True),
    ],
)
def test_only_file_urls(a: bytes, b: bytes, expected: bool) -> None:
    assert (difference(a, b) != "changed") is expected
    assert (difference(b, a) != "changed") is expected
