"""Media types from first bytes: a table, and properties."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.demo.papers import write_pdf
from archec.text.sniff import bare_type, is_page_instead_of_pdf, sniff

PDF, HTML, PS, PLAIN = "application/pdf", "text/html", "application/postscript", "text/plain"
OCTETS = "application/octet-stream"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def zipped(*names: str, mimetype: str = "") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        if mimetype:
            archive.writestr("mimetype", mimetype)
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


TABLE = [
    # documents
    (b"%PDF-1.4\n%\xe2\xe3", "", PDF),
    (b"%PDF-1.4\n", "text/html", PDF),
    (b"\xef\xbb\xbf%PDF-1.7", "", PDF),
    (b"\r\n\r\nHTTP junk\n%PDF-1.4", "", PDF),
    (b"x" * 1018 + b"\n%PDF-", "", PDF),
    (b"x" * 1100 + b"\n%PDF-1.4", "", PLAIN),
    (b"<br />\n<b>Warning</b>: mysql_connect()\n%PDF-1.4", "application/pdf", PDF),
    (b"<!DOCTYPE html><p>a file begins with\n%PDF-1.4", "application/pdf", HTML),
    (b"the string `%PDF-1.4` begins a PDF", "", PLAIN),
    (b"%!PS-Adobe-3.0\n", "", PS),
    (b"\x04%!PS-Adobe-2.0", "text/plain", PS),
    (b"\x1b%-12345X@PJL ENTER LANGUAGE=POSTSCRIPT\n%!PS", "", PS),
    (b"\xc5\xd0\xd3\xc6\x1e\0\0\0", "", PS),
    (b"{\\rtf1\\ansi", "text/plain", "application/rtf"),
    (b"\xf7\x02\x01\x83\x92\xc0\x1c\x3b", "", "application/x-dvi"),
    # pages
    (b"<!DOCTYPE html><html>", "", HTML),
    (b"\n\n  <!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">", "", HTML),
    (b"\xef\xbb\xbf<html lang=en>", "application/pdf", HTML),
    (b"<!-- made by x -->\n<!-- and y -->\n<HTML>", "", HTML),
    (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x"><html>', "text/xml", HTML),
    (b'<?xml version="1.0"?><!-- c --><html xmlns="http://www.w3.org/1999/xhtml">', "", HTML),
    (b"<?php echo 1 ?><html>", "", HTML),
    ("﻿<!DOCTYPE html><p>é".encode("utf-16-le"), "", HTML),
    (b"<head><title>x</title>", "", HTML),
    (b"<script>location='/x'</script>", "", HTML),
    (b"Welcome to <b>our</b> series", "text/html; charset=utf-8", HTML),
    (b"Welcome to our series", "text/html", PLAIN),
    (b"<rss version='2.0'>", "application/pdf", PLAIN),
    (b"<?xml version='1.0'?><rss>", "application/rss+xml", "application/rss+xml"),
    (b"<?xml version='1.0'?><rss>", "text/html", "application/xml"),
    (b"<?xml version='1.0'?><svg:svg>", "", "image/svg+xml"),
    (b"<svg xmlns='x'>", "", "image/svg+xml"),
    # text
    (b"Hello world", "", PLAIN),
    (b"Hello world", "application/pdf", PLAIN),
    ("Löhne und Preise".encode("cp1252"), "", PLAIN),
    ("Löhne und Preise".encode(), OCTETS, PLAIN),
    ("﻿Löhne".encode("utf-16-be"), "", PLAIN),
    ("﻿Löhne 😀".encode("utf-16-be")[:-1], "", PLAIN),
    ("﻿Löhne 😀".encode("utf-16-le")[:-2], "", PLAIN),
    (bytes.fromhex("feff4e0763f079ccf7d1dead83e1ea6ae373"), "", OCTETS),
    (b"a,b\n1,2", "text/csv", "text/csv"),
    (b"\\documentclass{article}", "application/x-tex", "application/x-tex"),
    (b"use data\n\x1a", "", PLAIN),
    (b"   \n", "", PLAIN),
    (b"text\0more", "", OCTETS),
    # packed, office, images
    (gzip.compress(b"x", mtime=0), "application/postscript", "application/gzip"),
    (b"\x1f\x9d\x90", "", "application/x-compress"),
    (zipped("a.txt"), "", "application/zip"),
    (b"PK\x05\x06" + bytes(18), "", "application/zip"),
    (zipped("[Content_Types].xml", "_rels/.rels", "word/document.xml"), "application/zip", DOCX),
    (zipped("[Content_Types].xml", "xl/workbook.xml"), "", XLSX),
    (zipped("content.xml", mimetype="application/vnd.oasis.opendocument.text"), "",
     "application/vnd.oasis.opendocument.text"),
    (zipped("x", mimetype="not a type at all"), "", "application/zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "application/msword", "application/msword"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "application/pdf", "application/x-ole-storage"),
    (b"\x89PNG\r\n\x1a\n", "text/html", "image/png"),
    (b"\xff\xd8\xff\xe0", "", "image/jpeg"),
    (b"GIF89a", "", "image/gif"),
    (b"RIFF\x10\0\0\0WEBP", "", "image/webp"),
    (b"AT&TFORM", "", "image/vnd.djvu"),
    # nothing to go by
    (b"", "", OCTETS),
    (b"", "Application/PDF ; x=y", PDF),
    (b"\0\1\2\3", "", OCTETS),
    (b"\0\1\2\3", "application/x-stata-dta", "application/x-stata-dta"),
    (b"\0\1\2\3", "nonsense", OCTETS),
]


@pytest.mark.parametrize(("head", "declared", "expected"), TABLE)
def test_table(head: bytes, declared: str, expected: str) -> None:
    assert sniff(head, declared) == expected


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", " GZIP "])
def test_looks_behind_a_content_encoding(coding: str) -> None:
    pdf = write_pdf(["text"])
    packed = gzip.compress(pdf) if "gz" in coding.lower() else zlib.compress(pdf)
    assert sniff(packed[:200], "", coding) == PDF
    assert sniff(packed, "") != PDF


def test_bare_deflate_and_lies_about_the_encoding() -> None:
    packer = zlib.compressobj(wbits=-15)
    raw = packer.compress(b"<!DOCTYPE html><p>x") + packer.flush()
    assert sniff(raw, "", "deflate") == HTML
    assert sniff(b"%PDF-1.4", "", "gzip") == PDF
    assert sniff(b"%PDF-1.4", "", "br") == PDF


@given(st.binary(max_size=1500), st.text(max_size=40), st.sampled_from(["", "gzip", "deflate", "br"]))
def test_never_fails_and_gives_a_type(head: bytes, declared: str, coding: str) -> None:
    kind = sniff(head, declared, coding)
    assert bare_type(kind) == kind != ""


@pytest.mark.parametrize(
    ("before", "after", "suspect"),
    [
        (PDF, HTML, True),
        ("application/pdf; q=1", "application/xhtml+xml", True),
        (PS, HTML, True),
        ("application/gzip", HTML, True),
        ("application/msword", HTML, True),
        (PDF, PDF, False),
        (PDF, PLAIN, False),
        (HTML, HTML, False),
        ("application/xhtml+xml", HTML, False),
        (HTML, PDF, False),
        (PLAIN, HTML, False),
        (OCTETS, HTML, False),
        ("", HTML, False),
    ],
)
def test_a_page_in_place_of_a_document(before: str, after: str, suspect: bool) -> None:
    assert is_page_instead_of_pdf(before, after) is suspect
