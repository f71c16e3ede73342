"""What a file without templates is, told from its first bytes and its name: pure functions."""

from __future__ import annotations

import re

__all__ = ["BOM_UTF8", "BOM_UTF16", "could_be_template_file", "is_template_name", "looks_binary", "looks_html"]

BOM_UTF8 = b"\xef\xbb\xbf"
BOM_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_MAGIC = (b"%PDF", b"%!PS", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x1f\x8b", b"BZh", b"\x7fELF",
          b"\xd0\xcf\x11\xe0", b"{\\rtf", b"Rar!", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # fmt: skip
_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|title|script|style|meta|iframe|table|div|h[1-3]|br|b|p|pre)[\s/>]", re.I
)
_TEMPLATE = re.compile(rb"template-type[ \t]*:", re.I)


def is_template_name(path: str) -> bool:
    """Whether a name ends as template files' names do: ``.rdf`` or ``.redif``, in any case."""
    return path.lower().endswith((".rdf", ".redif"))


def looks_binary(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is no text: a known format, or NULs without a mark."""
    if head.startswith(BOM_UTF16):
        return False
    return head.startswith(_MAGIC) or b"\0" in head[:4096]


def looks_html(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a web page."""
    return _HTML.search(head, 0, 4096) is not None


def could_be_template_file(path: str, head: bytes) -> bool:
    """Whether the rest of a file is worth reading: by its name, its text or a template in ``head``."""
    return is_template_name(path) or not looks_binary(head) or _TEMPLATE.search(head) is not None
