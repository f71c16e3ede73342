"""Texts compared apart from what does not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.redif.scan import canonical_text, only_file_urls_differ

A = b"Template-Type: ReDIF-Paper 1.0\nTitle: x\nFile-URL: http://a/1.pdf\nFile-Format: application/pdf\nHandle: a\n"


@pytest.mark.parametrize(
    "other",
    [
        A.replace(b"\n", b"  \n"),
        A.replace(b"\n", b"\r\n"),
        A.replace(b"\n", b"\n\n"),
        b"# x\n" + A + b"# y",
        A.rstrip(),
        A.replace(b"\n", b"\n \t\n"),
    ],
)
def test_cosmetic(other: bytes) -> None:
    assert canonical_text(other) == canonical_text(A) == A


def test_not_cosmetic() -> None:
    assert canonical_text(A.replace(b"x", b" x")) != A
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
        (A, A.replace(b"a/1", b"b/2"), True),
        (A, A.replace(b"a/1", b"b/\n  2").replace(b"File-URL", b"file-url"), True),
        (A, A.replace(b"a/1", b"b/2").replace(b"x", b"y"), False),
        (A, A.replace(b"File-URL: http://a/1.pdf\n", b""), False),
        (A, A.replace(b"application/pdf", b"text/html"), False),
        (A, A, True),
        (b"Book-File-URL: x\nT: y\n", b"Book-File-URL: z\nT: y\n", True),
    ],
)
def test_only_file_urls(a: bytes, b: bytes, expected: bool) -> None:
    assert only_file_urls_differ(a, b) is expected
    assert only_file_urls_differ(b, a) is expected
