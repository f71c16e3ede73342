"""The media types that text is taken from."""

from __future__ import annotations

from archec.text.sniff import bare_type

__all__ = ["GZIP", "HTML", "PDF", "POSTSCRIPT", "has_text", "is_plain"]

PDF = "application/pdf"
HTML = frozenset({"text/html", "application/xhtml+xml"})
POSTSCRIPT = "application/postscript"
GZIP = frozenset({"application/gzip", "application/x-gzip"})
_NOT_PLAIN = frozenset({"text/rtf"})


def has_text(media_type: str) -> bool:
    """Whether archec takes text from files of this type; ``.ps.gz`` and the like are looked into."""
    kind = bare_type(media_type)
    return kind in HTML or kind in (PDF, POSTSCRIPT) or kind in GZIP or is_plain(kind)


def is_plain(kind: str) -> bool:
    """Whether files of this bare type are characters and nothing else."""
    return kind.startswith("text/") and kind not in HTML and kind not in _NOT_PLAIN
