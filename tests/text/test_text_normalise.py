"""The normal form, in one piece and in many, and the reading of characters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.text.checksum import TextDigest, normalise_text
from archec.text.extract import decoded

LETTERS = st.sampled_from("ab \t\n\u00a0\u0301\u00e9\u0338=\u1100\u1161\u11a8\u3000\u200b\U0001d11e")
WORDS = st.text(LETTERS, max_size=60)


def md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass")).hexdigest()


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""),
        (" \r\n\t\u00a0 ", ""),
        ("  a \r\n b\u00a0c ", "a b c"),
        ("cafe\u0301", "caf\u00e9"),
        ("ﬁ", "ﬁ"),
        ("a\fb", "a b"),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalise_text(text) == normal


@given(WORDS | st.text(max_size=60))
def test_normal_form_is_idempotent(text: str) -> None:
    assert normalise_text(normalise_text(text)) == normalise_text(text)


@given(st.lists(WORDS, max_size=8))
def test_pieces_are_as_good_as_the_whole(parts: list[str]) -> None:
    digest = TextDigest()
    for part in parts:
        digest.feed(part)
    normal = normalise_text("".join(parts))
    assert digest.md5() == (md5(normal) if normal else None)


@given(st.lists(WORDS, max_size=8))
def test_a_cut_is_a_blank(parts: list[str]) -> None:
    digest = TextDigest()
    for part in parts:
        digest.feed(part)
        digest.cut()
    normal = normalise_text(" ".join(parts))
    assert digest.md5() == (md5(normal) if normal else None)


def test_lone_surrogates_have_a_checksum_and_clear_starts_anew() -> None:
    digest = TextDigest()
    digest.feed("\ud800")
    assert digest.md5() == md5("\ud800")
    digest.clear()
    assert digest.md5() is None


def read(data: bytes, declared: str = "", page: bool = False, size: int = 3) -> str:
    def source() -> Iterator[bytes]:
        first = data[:4096] if page else data[:4]
        yield first
        for start in range(len(first), len(data), size):
            yield data[start : start + size]

    for reading in decoded(source, f"text/html; charset={declared}" if declared else "", page):
        try:
            return "".join(reading)
        except UnicodeDecodeError:
            continue
    raise AssertionError("no reading")


@pytest.mark.parametrize(
    ("data", "declared", "page", "text"),
    [
        ("Löhne – €".encode(), "", False, "Löhne – €"),
        ("Löhne – €".encode("cp1252"), "", False, "Löhne – €"),
        ("\ufeffLöhne".encode(), "windows-1251", False, "Löhne"),
        ("\ufeffLöhne".encode("utf-16-le"), "", False, "Löhne"),
        ("\ufeffLöhne".encode("utf-16-be"), "", False, "Löhne"),
        ("труд".encode("cp1251"), "windows-1251", False, "труд"),
        ("труд".encode("koi8-r"), "KOI8-R", False, "труд"),
        ("Löhne – €".encode("cp1252"), "iso-8859-1", False, "Löhne – €"),
        ("Löhne".encode("cp1252"), "utf-8", False, "Löhne"),
        ("труд".encode("koi8-r"), "'KOI8-R'", False, "труд"),
        (
            b'<META http-equiv="Content-Type" content="text/html; charset=ISO-8859-2">\xb1',
            "",
            True,
            '<META http-equiv="Content-Type" content="text/html; charset=ISO-8859-2">ą',
        ),
        ("Löhne".encode("cp1252"), "rot13", False, "Löhne"),
        ("Löhne".encode("cp1252"), "unicode_escape", False, "Löhne"),
        (b"\x81\x8d", "", False, "\x81\x8d"),
        (b"<meta charset=windows-1251>" + "труд".encode("cp1251"), "", True, "<meta charset=windows-1251>труд"),
        (b"<meta charset=windows-1251>\xf2", "koi8-r", True, "<meta charset=windows-1251>Р"),
        (b"<meta charset=utf-16>" + "é".encode(), "", True, "<meta charset=utf-16>é"),
        (b"<meta charset=windows-1251>\xf2", "", False, "<meta charset=windows-1251>ò"),
        (b"", "", False, ""),
    ],
)
def test_readings(data: bytes, declared: str, page: bool, text: str) -> None:
    assert read(data, declared, page) == text


@given(st.binary(max_size=300), st.sampled_from(["", "utf-8", "shift_jis", "utf-16", "euc-kr", "x-y"]), st.booleans())
def test_any_bytes_can_be_read(data: bytes, declared: str, page: bool) -> None:
    read(data, declared, page)
