"""More bad manners for the server of the fetcher's tests: those that only a whole run meets."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from functools import cache

from web_hostile import Asked, Hostile, answer, behaviour

__all__ = ["EVIL", "page_of_300_mb", "pdf_of_500_mb"]

EVIL = "\x1b]0;owned\x07\x9b31m\x08"
"""What would speak to a terminal."""


@behaviour
async def two_lengths(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nhello")
    return False


@behaviour
async def negative_length(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello")
    return False


@behaviour
async def huge_chunk(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nhello")
    return False


@behaviour
async def odd_status(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(b"HTTP/1.1 99999999999 " + b"x" * 1000 + b"\r\n\r\n")
    return False


@behaviour
async def evil_head(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Every header that is kept speaks to the terminal."""
    evil = EVIL.replace("\n", "")
    names = ("Server", "ETag", "Last-Modified", "Content-Language", "Content-Disposition", "Link", "X-Robots-Tag")
    lines = "".join(f"{name}: {evil}\r\n" for name in names)
    answer(writer, 200, b"evil", lines, kind=f"text/{evil}")
    return True


@behaviour
async def evil_reason(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    writer.write(f"HTTP/1.1 500 {EVIL}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
    return True


@behaviour
async def long_location(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 302, b"", f"Location: /ok/{'x' * 20_000}\r\n")
    return True


@cache
def page_of_300_mb() -> bytes:
    """In 300 kB."""
    return gzip.compress(b"<html><body>" + b"<p>words </p>" * 8_000, 9) + gzip.compress(b" words" * 180_000, 9) * 270


@behaviour
async def html_bomb(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 200, page_of_300_mb(), "Content-Encoding: gzip\r\n", kind="text/html")
    return True


@behaviour
async def deep_page(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 200, b"<html><body>" + b"<div><b>" * 120_000 + b"words", kind="text/html")
    return True


@cache
def pdf_of_500_mb() -> bytes:
    """A page whose contents are 500 MB of operators in 500 kB."""
    packer = zlib.compressobj(9)
    stream = b"".join([*(packer.compress(b"q " * 500_000) for _ in range(500)), packer.flush()])
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
    ]  # fmt: skip
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%s\nendobj\n" % (n, part) for n, part in enumerate(parts, 1))
    return body + b"trailer<</Root 1 0 R/Size 5>>\n%%EOF\n"


@behaviour
async def pdf_bomb(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 200, pdf_of_500_mb(), kind="application/pdf")
    return True


@behaviour
async def page_count(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """A PDF that says it has two billion pages, and is its own page tree."""
    body = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>\nendobj\n"
    body += b"2 0 obj<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2147483647>>\nendobj\ntrailer<</Root 1 0 R/Size 3>>\n%%EOF\n"
    answer(writer, 200, body, kind="application/pdf")
    return True


@behaviour
async def endless_postscript(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    answer(writer, 200, b"%!PS\n{ (words) show } loop\n", kind="application/postscript")
    return True
