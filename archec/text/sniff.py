"""Detects the media type of a body from its first bytes, and says for which types text is extracted; the charset that
a server or a page declares.

The type that a server declares is only used if the bytes are not conclusive. Types are lower-case, without parameters.
"""

from __future__ import annotations

import codecs
import re
import shutil
import zlib
from functools import lru_cache

from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding

HEAD = 1024
"""Number of bytes that determine the type; PDF readers search as many for ``%PDF-``."""

UNKNOWN = "application/octet-stream"
PDF = "application/pdf"
POSTSCRIPT = "application/postscript"
HTML = frozenset({"text/html", "application/xhtml+xml"})
GZIP = frozenset({"application/gzip", "application/x-gzip"})

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\1\0", "image/x-icon"),
    (8, b"WEBP", "image/webp"),
    (0, b"AT&TFORM", "image/vnd.djvu"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"\x1f\x9d", "application/x-compress"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\xf7\x02\x01\x83\x92\xc0", "application/x-dvi"),
    (0, b"{\\rtf", "application/rtf"),
    (0, b"\xc5\xd0\xd3\xc6", "application/postscript"),
)
_BEGINNINGS = frozenset(magic[0] for offset, magic, _ in _MAGIC if not offset) | {ord("R")}
"""The first bytes of all magic numbers at offset 0, and the R of RIFF, which contains WEBP."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_TYPES = ("application/msword", "application/vnd.ms-")
_OPC = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
)
_ZIP_MIMETYPE = re.compile(rb"PK\x03\x04.{26}mimetype([\x21-\x7e/]{3,100}?)PK", re.S)
_NOT_PLAIN = frozenset({"text/rtf"})
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LEADING = re.compile(rb"(?:\s+|<!--.*?-->|<\?(?!xml\s)[^>]*>)*", re.S)
_HTML_PAGE = re.compile(rb"<!doctype\s+(?:html|\"?-//(?:w3c|ietf)//dtd\s+x?html)|<html[\s>]", re.I)
_XML = re.compile(rb"<\?xml\s[^>]*>", re.I)
_XML_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")
_HTML_START = re.compile(
    rb"<(?:head|body|title|meta|link|script|style|table|div|span|p|br|h[1-6]|a|b|i|center|font|form|iframe"
    rb"|frameset|img|ul|ol|hr|pre|base|header|main|section|article|nav|noscript)(?:\s|/?>)",
    re.I,
)
_ANY_TAG = re.compile(rb"<(?:!--|/?[a-z][a-z0-9]*[\s/>])", re.I)
_PS_START = re.compile(rb"(?:\x04|\x1b%-12345X[^%]{0,512}|\s)*%!")
_PDF_START = re.compile(rb"(?:\A|[^\w\"'`])%PDF-")
_CONTROL = re.compile(rb"[\x00-\x07\x0e-\x19\x1c-\x1f\x7f]")
_TYPE = re.compile(r"\s*([a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*)\s*(?:;|,|$)", re.I)
_TEXTUAL = frozenset({
    "application/json", "application/x-tex", "application/x-latex", "application/x-bibtex", "application/xml",
    "application/javascript", "application/x-stata-do",
})
_CHARSET = re.compile(
    r"utf-8|utf-16(-[bl]e)?|iso8859-\d+|iso2022_\w+|cp\d+|koi8-\w|mac-\w+|gb18030|big5\w*|euc_\w+|shift_jis\w*|tis-620"
)
"""Python's names of the codecs that are charsets; others, such as ``rot13``, are not."""


@lru_cache(256)
def bare_type(declared: str) -> str:
    """A Content-Type without its parameters, in lower case; ``""`` if it is not valid."""
    match = _TYPE.match(declared[:500])
    return match[1].lower() if match else ""


def sniff(head: bytes, declared: str = "", content_encoding: str = "") -> str:
    """Returns the media type of a body that begins with ``head`` (HEAD bytes are enough).

    ``declared`` is the server's Content-Type, which is used between types that look alike, and if the bytes are not
    conclusive. With a ``content_encoding`` of gzip or deflate the result is the type of the decompressed body.
    """
    head = decoded_head(head, content_encoding)[: HEAD + 512]
    named = bare_type(declared)
    if not head:
        return named or UNKNOWN
    return _binary(head, named) or _textual(head, named) or named or UNKNOWN


def decoded_head(head: bytes, content_encoding: str) -> bytes:
    """Decompresses the first bytes if their Content-Encoding is gzip or deflate; returns ``head`` itself for others."""
    coding = content_encoding.strip().lower()
    if coding not in ("gzip", "x-gzip", "deflate"):
        return head
    for window in (47, -15):
        try:
            inner = zlib.decompressobj(window).decompress(head, 2 * HEAD)
        except zlib.error:
            continue
        return inner or head
    return head


def is_page_instead_of_pdf(before: str, after: str) -> bool:
    """Whether, by the media types, a web page (login page, soft 404) was served instead of the held document.

    Documents are PDF, PostScript, compressed files and those of office programs.
    """
    was, now = bare_type(before), bare_type(after)
    document = was.startswith("application/") and was not in HTML | _TEXTUAL | {UNKNOWN}
    return document and now in HTML


def has_text(media_type: str) -> bool:
    """Whether archec extracts text from files of a type. This includes gzip, because of ``.ps.gz`` files."""
    kind = bare_type(media_type)
    return kind in HTML or kind in (PDF, POSTSCRIPT) or kind in GZIP or is_plain(kind)


def is_plain(kind: str) -> bool:
    """Whether files of a bare type are plain text."""
    return kind.startswith("text/") and kind not in HTML and kind not in _NOT_PLAIN


def ghostscript() -> str | None:
    """The path of Ghostscript, which extracts text from PostScript; None if it is not installed."""
    return shutil.which("gs")


def _binary(head: bytes, named: str) -> str:
    if head[0] in _BEGINNINGS or head.startswith(b"ustar", 257):
        for offset, magic, media_type in _MAGIC:
            if head.startswith(magic, offset):
                return media_type
    if head.startswith(b"PK\x03\x04"):
        return _zip(head)
    if head.startswith((b"PK\x05\x06", b"PK\x07\x08")):
        return "application/zip"
    if head.startswith(_OLE):
        return named if named.startswith(_OLE_TYPES) else "application/x-ole-storage"
    if head.startswith(b"%PDF-") or (b"%PDF-" in head and _PDF_START.search(head, 0, HEAD + 5) and not _is_page(head)):
        return PDF
    if b"%!" in head and _PS_START.match(head):
        return POSTSCRIPT
    return ""


def _is_page(head: bytes) -> bool:
    bare = head.removeprefix(b"\xef\xbb\xbf")
    return _HTML_PAGE.match(bare, _start(bare)) is not None


def _start(text: bytes) -> int:
    """The index of the first byte after white space, comments and processing instructions."""
    match = _LEADING.match(text)
    return match.end() if match else 0


def _zip(head: bytes) -> str:
    """Office formats by the first names in the zip file, or by its ``mimetype`` entry."""
    match = _ZIP_MIMETYPE.match(head)
    if match is not None:
        return bare_type(match[1].decode("ascii")) or "application/zip"
    if b"[Content_Types].xml" in head or b"_rels/.rels" in head:
        for name, media_type in _OPC:
            if name in head:
                return media_type
    return "application/zip"


def _textual(head: bytes, named: str) -> str:
    text = _as_utf8(head)
    if text is None or _CONTROL.search(text):
        return ""
    bare = text[_start(text) :]
    if not bare.strip():
        return named if named.startswith("text/") else "text/plain"
    if _HTML_PAGE.match(bare):
        return "text/html"
    xml = _XML.match(bare)
    if xml is not None:
        return _xml(bare[xml.end() :], named)
    if bare[:4].lower() == b"<svg":
        return "image/svg+xml"
    if _HTML_START.match(bare) or (named in HTML and _ANY_TAG.search(text)):
        return "text/html"
    if named in _TEXTUAL or (named.startswith("text/") and named not in HTML):
        return named
    return "text/plain"


def _xml(rest: bytes, named: str) -> str:
    rest = rest[_start(rest) :]
    if _HTML_PAGE.match(rest):
        return "text/html"
    root = _XML_ROOT.match(rest)
    name = root[1].lower() if root else b""
    if name == b"svg":
        return "image/svg+xml"
    return named if named.endswith("xml") else "application/xml"


def _as_utf8(head: bytes) -> bytes | None:
    """The head as UTF-8 without its byte-order mark; None if it has that of UTF-16 but is not valid UTF-16."""
    for mark, encoding in BOMS:
        if head.startswith(mark):
            body = head[len(mark) :]
            if encoding == "utf-8":
                return body
            try:  # the last character may be truncated; other errors mean binary data that begins like a mark
                return codecs.getincrementaldecoder(encoding)().decode(body).encode("utf-8")
            except UnicodeError:
                return None
    return head


def declared_charset(content_type: str, head: bytes) -> str:
    """The codec of the charset that the server, or else the head of the page, declares; ``""`` if there is none. Names
    are interpreted as browsers do (latin-1 is cp1252)."""
    by_server = http_content_type_encoding(content_type.replace("'", '"')) or ""  # some send charset='utf-8'
    if _CHARSET.fullmatch(by_server):
        return "utf-16-le" if by_server == "utf-16" else by_server
    by_page = html_body_declared_encoding(head) or ""
    if by_page.startswith("utf-16"):
        return "utf-8"  # the declaration was found as ASCII, so the page is not UTF-16
    return by_page if _CHARSET.fullmatch(by_page) else ""
