"""Decoding: marks, UTF-8, cp1252 line by line, nothing lost."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.redif.files import count_lines, with_lf
from archec.redif.scan import decode

POLISH = "Template-Type: ReDIF-Paper 1.0\nTitle: Łódź €\nHandle: a\n"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (POLISH.encode(), "utf-8"),
        (codecs.BOM_UTF8 + POLISH.encode(), "utf-8-bom"),
        (codecs.BOM_UTF8 * 2 + POLISH.encode(), "utf-8-bom"),
        (codecs.BOM_UTF16_LE + POLISH.encode("utf-16-le"), "utf-16le"),
        (codecs.BOM_UTF16_BE + POLISH.replace("\n", "\r\n").encode("utf-16-be"), "utf-16be"),
    ],
)
def test_one_text_in_each_encoding(data: bytes, encoding: str) -> None:
    assert decode(data) == (POLISH.encode(), encoding, "")


def test_ascii() -> None:
    assert decode(b"a\r\nb") == (b"a\nb", "ascii", "")


def test_not_utf8_is_cp1252_line_by_line() -> None:
    assert decode(b"caf\xe9\n\x80 5\n") == ("café\n€ 5\n".encode(), "cp1252", "")
    mixed = b"caf\xe9\r\n" + "café\r\n".encode() + b"ascii\r\n"
    assert decode(mixed) == (b"caf\xc3\xa9\ncaf\xc3\xa9\nascii\n", "mixed", "mixed-encoding")


def test_a_mark_does_not_make_it_utf8() -> None:
    assert decode(codecs.BOM_UTF8 + b"caf\xe9") == ("café".encode(), "cp1252", "")


def test_what_cp1252_leaves_undefined_becomes_c1_controls() -> None:
    data = bytes(range(0x80, 0x100)) + b"\xff"
    text = decode(data).data.decode()
    back = b"".join(
        char.encode("cp1252") if char not in "\x81\x8d\x8f\x90\x9d" else bytes([ord(char)]) for char in text
    )
    assert back == data


@given(st.binary(max_size=200).filter(lambda data: b"\r" not in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff")))
def test_the_bytes_can_be_had_back_from_the_text(data: bytes) -> None:
    decoded = decode(data)
    while data.startswith(codecs.BOM_UTF8):
        data = data[3:]
    for raw, line in zip(data.split(b"\n"), decoded.data.split(b"\n"), strict=True):
        if raw != line:
            assert (
                b"".join(
                    c.encode("cp1252") if c not in "\x81\x8d\x8f\x90\x9d" else bytes([ord(c)]) for c in line.decode()
                )
                == raw
            )


@pytest.mark.parametrize("broken", [b"a", b"\x00\xd8", b"\x00\xd8a\x00", b"\x00a\x00"])
def test_broken_utf16_is_reported_and_never_raised(broken: bytes) -> None:
    decoded = decode(codecs.BOM_UTF16_LE + "x\n".encode("utf-16-le") + broken)
    assert decoded.trouble == "utf-16-damaged"
    decoded.data.decode("utf-8")


def test_utf16_that_slipped_by_a_byte_is_no_evidence() -> None:
    from archec.redif.files import Blob
    from archec.redif.scan import scan

    good = "Template-Type: ReDIF-Paper 1.0\nHandle: a\n".encode("utf-16-le")
    found = scan(Blob("aaa/1.rdf", codecs.BOM_UTF16_LE + good + b"\n" + good))
    assert [t.handle for t in found.templates] == ["a"]
    assert not found.read
    assert found.problems[0].code == "utf-16-damaged"


@given(st.text(alphabet="\r\na", max_size=30))
def test_line_ends(text: str) -> None:
    data = text.encode()
    tidy = with_lf(data)
    assert b"\r" not in tidy
    assert with_lf(tidy) == tidy
    assert tidy.replace(b"\n", b"") == data.replace(b"\n", b"").replace(b"\r", b"")
    assert count_lines(data) == tidy.count(b"\n")
    assert [line for line in tidy.split(b"\n") if line] == [line for line in data.splitlines() if line]
    import re

    assert tidy == re.sub(rb"\r", b"\n", re.sub(rb"\r+\n", b"\n", data))
