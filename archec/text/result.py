"""What text extraction says of a file, and why there is no text where there is none."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["REASONS", "NoText", "TextDone", "TextResult"]

REASONS = {
    "": "the text checksum is there",
    "off": "text extraction is switched off",
    "no-text-type": "a type that archec takes no text from",
    "no-gs": "PostScript, and Ghostscript is not installed",
    "empty": "no text in the file, such as scanned pages or an empty page",
    "partial": "a PDF of which some pages show something that is not text: its text does not stand for it",
    "encrypted": "a PDF that opens with a password only",
    "damaged": "the file cannot be parsed as what it is",
    "too-large": "larger than text.max_size",
    "bomb": "larger than text.max_size once decompressed",
    "encoding": "a Content-Encoding that archec does not undo, or one that is not what it says",
    "unreadable": "the file cannot be opened or read",
    "timeout": "not done within text.timeout",
    "memory": "not done within text.max_memory",
    "crashed": "the parser crashed",
    "no-worker": "worker processes cannot be started",
}
"""Every reason a result may give, and its meaning. Without a checksum a changed file is never ``cosmetic``."""


class TextResult(NamedTuple):
    """The md5 of a file's normalised text, or None and a key of :data:`REASONS`."""

    md5: str | None
    reason: str = ""


class TextDone(NamedTuple):
    """A :class:`TextResult` with the key under which the file was submitted."""

    key: str
    md5: str | None
    reason: str


class NoText(Exception):
    """Ends an extraction; the message is a key of :data:`REASONS`. Never leaves this package."""

    @property
    def reason(self) -> str:
        return str(self.args[0])
