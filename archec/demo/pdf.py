"""A small PDF writer: pages of plain text in Helvetica, for the papers of the demo and for tests.

The same arguments give the same bytes. The format is that of ISO 32000-1, section 7.
"""

from __future__ import annotations

import hashlib
import textwrap
import zlib
from collections.abc import Sequence

_WIDTH, _HEIGHT, _MARGIN, _LEADING = 595, 842, 72, 15
_LINE, _LINES = 84, 46
"""Characters per line and lines per page, at 11 points on A4."""


def write_pdf(
    pages: Sequence[str], *, title: str = "", created: str = "D:20090101000000Z", compress: bool = True
) -> bytes:
    """A PDF with these pages, each truncated to what fits; an empty page is blank.

    ``created`` is the /CreationDate, from which the /ID is derived: renderings with different dates have different
    bytes and the same text. Characters outside cp1252 become question marks.
    """
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode("ascii"),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title " + _string(title) + b" /Producer (archec demo) /CreationDate " + _string(created) + b" >>",
    ]
    for number, text in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_WIDTH} {_HEIGHT}] /Contents {6 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode("ascii")
        )
        objects.append(_stream(_content(text), compress))
    return write_objects(objects, info=4, identity=created)


def write_objects(objects: Sequence[bytes], *, info: int = 0, identity: str = "", trailer: bytes = b"") -> bytes:
    """A PDF file with the given objects 1, 2, ...; object 1 is the catalogue.

    ``info`` is the number of the information dictionary, 0 for none; the /ID is derived from ``identity``;
    ``trailer`` are further entries of the trailer.
    """
    file = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for offset in offsets:
        file += b"%010d 00000 n \n" % offset
    digest = hashlib.sha256(identity.encode("utf-8")).hexdigest()[:32].encode("ascii")
    file += b"trailer\n<< /Size %d /Root 1 0 R /ID [<%s> <%s>]" % (len(objects) + 1, digest, digest)
    if info:
        file += b" /Info %d 0 R" % info
    file += b" " + trailer + b" >>\nstartxref\n%d\n%%%%EOF\n" % start
    return bytes(file)


def _content(text: str) -> bytes:
    lines = [line for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, _LINE) or [""]]
    if not lines:
        return b""
    top = _HEIGHT - _MARGIN
    shown = b"".join(_string(line) + b" Tj T*\n" for line in lines[:_LINES])
    return b"BT /F1 11 Tf %d TL %d %d Td\n%sET\n" % (_LEADING, _MARGIN, top, shown)


def _stream(content: bytes, compress: bool) -> bytes:
    if not compress:
        return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
    packed = zlib.compress(content, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)


def _string(text: str) -> bytes:
    """A literal string in WinAnsiEncoding."""
    raw = text.encode("cp1252", "replace")
    for special in (b"\\", b"(", b")"):
        raw = raw.replace(special, b"\\" + special)
    return b"(" + raw.replace(b"\r", b"\\r").replace(b"\n", b"\\n") + b")"
