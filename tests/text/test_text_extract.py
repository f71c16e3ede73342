"""Text checksums of real small files: what must not matter, what must, and what is hostile."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.demo.papers import write_objects, write_pdf
from archec.text.checksum import REASONS, TextLimits, TextResult
from archec.text.extract import text_md5
from archec.text.sniff import has_text

PDF, HTML, PS, PLAIN, GZIP = "application/pdf", "text/html", "application/postscript", "text/plain", "application/gzip"
needs_gs = pytest.mark.skipif(shutil.which("gs") is None, reason="Ghostscript (gs) is not installed")


@pytest.fixture
def take(tmp_path: Path):
    def run(data: bytes, kind: str, encoding: str = "", **limits: float) -> TextResult:
        path = tmp_path / "body"
        path.write_bytes(data)
        result = text_md5(str(path), kind, encoding, TextLimits(**limits))
        assert text_md5(str(path), kind, encoding, TextLimits(**limits)) == result
        assert result.reason in REASONS
        assert (result.md5 is None) == bool(result.reason)
        return result

    return run


def of(text: str) -> TextResult:
    return TextResult(hashlib.md5(text.encode()).hexdigest())


# -- PDF ------------------------------------------------------------------------------------------


def test_pdf_text(take) -> None:
    pages = ["Wages (and)\nprices \\ café", "Page – two"]
    assert take(write_pdf(pages), PDF) == of("Wages (and) prices \\ café Page – two")


def test_pdf_renderings_differ_in_bytes_only(take) -> None:
    one = write_pdf(["Same text"], created="D:20090101000000Z")
    two = write_pdf(["Same text"], created="D:20100101000000Z")
    assert one != two
    assert take(one, PDF) == take(two, PDF)
    assert take(one, PDF) != take(write_pdf(["Same next"]), PDF)


def test_pdf_behind_junk_is_one(take) -> None:
    assert take(b"Warning: x\n" + write_pdf(["Text"]), PDF) == of("Text")


def test_pdf_without_text_has_no_checksum(take) -> None:
    assert take(write_pdf(["", ""]), PDF).reason == "empty"


def image_page(text: str) -> bytes:
    """A page of text and a page that shows a rectangle, as a scan would."""
    drawn = b"0 0 100 100 re f"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents %d 0 R "
    page += b"/Resources << /Font << /F1 3 0 R >> >> >>"
    words = b"BT /F1 11 Tf 20 100 Td (%s) Tj ET" % text.encode("ascii")
    return write_objects([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R 5 0 R] /Count 2 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        page % 6,
        page % 7,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(words), words),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn),
    ])


def test_a_scan_behind_a_cover_page_is_not_known_by_its_cover(take) -> None:
    assert take(image_page("Cover page"), PDF).reason == "partial"
    assert take(image_page(""), PDF).reason == "empty"


def test_encrypted_pdf(take) -> None:
    key = b"<" + b"41" * 32 + b">"
    locked = write_objects(
        [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"],
        trailer=b"/Encrypt << /Filter /Standard /V 1 /R 2 /O " + key + b" /U " + key + b" /P -4 >>",
    )
    assert take(locked, PDF).reason == "encrypted"


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.4\n",
        b"%PDF-1.4\n" + os.urandom(64).hex().encode() * 50,
        b"%PDF-1.4\n" + b"[" * 200_000,
        b"%PDF-1.4\ntrailer<</Root 1 0 R>>",
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 1 0 R>>endobj\ntrailer<</Root 1 0 R>>",
    ],
)
def test_broken_pdf(take, data: bytes) -> None:
    assert take(data, PDF).reason in ("damaged", "empty")


def test_truncated_pdf_never_raises(take) -> None:
    whole = write_pdf(["First page", "Second page", "Third page"])
    for cut in range(9, len(whole), 97):
        take(whole[:cut], PDF)


def test_pdf_pages_in_a_circle(take) -> None:
    circle = write_objects([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Pages /Kids [2 0 R] /Count 1 /Parent 2 0 R >>",
    ])
    assert take(circle, PDF).md5 is None


# -- HTML -----------------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html><html><head><title>Paper {n}</title><meta name="csrf-token" content="{token}">
<style>p {{ color: #{token} }}</style><script>var t = "<p>{token}</p>";</script></head>
<body class="{token}"><!-- served in {token} ms --><form><input type="hidden" name="t" value="{token}"></form>
<h1>Wages</h1><p>and <b>pri</b>ces&nbsp;&eacute;</p><td>a</td><td>b</td><template>{token}</template></body></html>"""


def test_html_visible_text(take) -> None:
    assert take(PAGE.format(n=1, token="abc").encode(), HTML) == of("Paper 1 Wages and prices é a b")


def test_html_that_changes_at_each_visit(take) -> None:
    results = {take(PAGE.format(n=1, token=token).encode(), HTML) for token in ("abc", "d9", "0123456")}
    assert len(results) == 1
    assert take(PAGE.format(n=2, token="abc").encode(), HTML) not in results


def test_html_charsets(take) -> None:
    text = "<!DOCTYPE html><p>Löhne – труд"
    expected = of("Löhne – труд")
    assert take(text.encode(), HTML) == expected
    assert take(("\ufeff" + text).encode("utf-16-le"), HTML) == expected
    assert take("<html><meta charset=windows-1251><p>труд".encode("cp1251"), HTML) == of("труд")
    assert take("<html><p>труд".encode("koi8-r"), "text/html; charset=koi8-r") == of("труд")
    assert take("<html><p>Löhne".encode("cp1252"), HTML) == of("Löhne")


def test_html_controls_and_nul_do_not_end_it(take) -> None:
    assert take(b"<html><p>a\0b\x08c</p><p>d", HTML) == of("abc d")


@pytest.mark.parametrize("data", [b"<html><body></body></html>", b"<!-- only -->\n<html>", b"<html><script>x</script>"])
def test_html_without_text_has_no_checksum(take, data: bytes) -> None:
    assert take(data, HTML).reason == "empty"


def test_html_nested_deeply(take) -> None:
    assert take(b"<html>" + b"<div>x" * 200_000, HTML).reason in ("", "damaged")


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["<p>", "</p>", "<script>", "</script>", "<!--", "-->", "<", "&", "x", "\0", "é"])))
def test_html_soup_never_raises(take, parts: list[str]) -> None:
    take(("<html>" + "".join(parts)).encode(), HTML)


# -- plain, packed, encoded -----------------------------------------------------------------------


def test_plain_text_whatever_its_encoding_and_line_ends(take) -> None:
    text = "Löhne – und\n\nPreise\n"
    for encoding in ("utf-8", "utf-8-sig", "cp1252", "utf-16"):
        assert take(text.replace("\n", "\r\n").encode(encoding), PLAIN) == of("Löhne – und Preise")


def test_plain_text_that_is_invalid_late(take) -> None:
    assert take(b"a " * 100_000 + b"caf\xe9", PLAIN) == of("a " * 100_000 + "café")


def test_gzip_files_are_looked_into(take) -> None:
    pdf = write_pdf(["Inside"])
    early, late = gzip.compress(pdf, mtime=1), gzip.compress(pdf, mtime=2)
    assert early != late
    assert take(early, GZIP) == take(late, GZIP) == of("Inside")
    assert take(gzip.compress(b"plain text"), GZIP) == of("plain text")
    assert take(gzip.compress(gzip.compress(b"twice")), GZIP).reason == "no-text-type"
    assert take(early[:-20], GZIP).reason == "damaged"
    assert take(b"\x1f\x8b\x08 not gzip", GZIP).reason == "damaged"


def test_content_encodings(take) -> None:
    text = b"<!DOCTYPE html><p>Some text"
    raw = zlib.compressobj(wbits=-15)
    bare = raw.compress(text) + raw.flush()
    expected = of("Some text")
    assert take(gzip.compress(text), HTML, "gzip") == expected
    assert take(gzip.compress(text) + gzip.compress(b" and more"), HTML, "x-gzip") == of("Some text and more")
    assert take(gzip.compress(text) + b"\0" * 512, HTML, "gzip") == expected
    assert take(zlib.compress(text), HTML, "deflate") == expected
    assert take(bare, HTML, "Deflate") == expected
    assert take(gzip.compress(zlib.compress(text)), HTML, "deflate, gzip") == expected
    assert take(text, HTML, "identity") == expected
    assert take(gzip.compress(write_pdf(["A paper"])), GZIP, "gzip") == of("A paper")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip, gzip", "x" * 1000, "compress"])
def test_content_encodings_that_are_not_undone(take, encoding: str) -> None:
    assert take(b"text", PLAIN, encoding).reason == "encoding"


def test_content_encoding_that_is_not_what_it_says(take) -> None:
    packed = gzip.compress(b"text " * 1000)
    assert take(b"plain text", PLAIN, "gzip").reason == "encoding"
    assert take(packed[:-9], PLAIN, "gzip").reason == "encoding"
    assert take(packed[:20] + b"\xff" * 20 + packed[40:], PLAIN, "gzip").reason == "encoding"
    assert take(b"\xff\xff\xff", PLAIN, "deflate").reason == "encoding"


@pytest.mark.parametrize("kind", [PLAIN, HTML, PDF])
def test_decompression_bombs(take, kind: str) -> None:
    start = {PLAIN: b"a ", HTML: b"<html>", PDF: b"%PDF-1.4\n"}[kind]
    bomb = gzip.compress(start + b" " * 30_000_000)
    assert take(bomb, kind, "gzip", max_size=10_000_000).reason == "bomb"
    assert take(bomb, GZIP, "", max_size=10_000_000).reason == "bomb"
    assert take(gzip.compress(bomb), kind, "gzip, gzip", max_size=10_000_000).reason == "bomb"


def test_large_files_are_not_read(take) -> None:
    assert take(b"12345678901", PLAIN, max_size=10).reason == "too-large"
    assert take(b"1234567890", PLAIN, max_size=10) == of("1234567890")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "absent", tmp_path, pipe, "nul\0"):
        assert text_md5(str(path), PLAIN) == TextResult(None, "unreadable")


def test_bytes_rule_over_the_declared_type(take) -> None:
    assert take(b"\x89PNG\r\n\x1a\n\0\0", PDF).reason == "no-text-type"
    assert take(b"<!DOCTYPE html><p>Log in", PDF) == of("Log in")
    assert take(b"", PLAIN).reason == "empty"


@settings(max_examples=80)
@given(st.binary(max_size=400), st.sampled_from([PLAIN, HTML, GZIP, "image/png", ""]), st.sampled_from(["", "gzip"]))
def test_any_bytes_give_a_result(take, data: bytes, kind: str, encoding: str) -> None:
    take(data, kind, encoding)


def test_types_with_text() -> None:
    assert all(has_text(kind) for kind in (PDF, HTML, PS, PLAIN, GZIP, "text/csv", "Text/HTML; charset=x"))
    assert not any(has_text(kind) for kind in ("image/png", "application/zip", "application/octet-stream", "", "x"))


# -- PostScript -----------------------------------------------------------------------------------

HELLO = b"%!PS\n/Helvetica findfont 12 scalefont setfont 72 700 moveto (Hello PostScript) show showpage\n"


@needs_gs
def test_postscript(take) -> None:
    assert take(HELLO, PS) == of("Hello PostScript")
    assert take(gzip.compress(HELLO), GZIP) == of("Hello PostScript")
    noisy = HELLO.replace(b"%!PS\n", b"%!PS\n%%CreationDate: today\n(printed) print\n")
    assert take(noisy, PS) == of("Hello PostScript")


@needs_gs
def test_hostile_postscript(take, tmp_path: Path) -> None:
    written = tmp_path / "written"
    assert take(b"%!PS\n(" + str(written).encode() + b") (w) file (x) writestring\n", PS).reason == "damaged"
    assert not written.exists()
    assert take(b"%!PS\n(/etc/passwd) (r) file 100 string readline pop show\n", PS).reason == "damaged"
    assert take(b"%!PS\nthis is not a program\n", PS).reason == "damaged"
    assert take(b"%!PS\n{ 1 pop } loop\n", PS, timeout=0.4).reason == "timeout"


def test_postscript_without_gs(take, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert take(HELLO, PS).reason == "no-gs"
