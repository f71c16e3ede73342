"""The normal form of text under the text checksums, and its md5, in one pass over pieces.

Normal form: NFC, every run of white space one blank, none at either end, UTF-8. Text that is empty
then has no checksum, so that scanned papers do not all look alike.
"""

from __future__ import annotations

import hashlib
import unicodedata

__all__ = ["TextDigest", "normalise_text"]


def normalise_text(text: str) -> str:
    """The normal form of a whole text; idempotent."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class TextDigest:
    """md5 of the normal form of a text that comes in pieces, cut anywhere.

    Equal to ``md5(normalise_text(whole))``: neither white space nor NFC reaches across a blank, so
    pieces are normalised word-wise and only an unfinished last word is carried over.
    """

    __slots__ = ("_carry", "_md5", "_started")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Back to the start."""
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._carry: list[str] = []
        self._started = False

    def feed(self, text: str) -> None:
        """Adds a piece; a word may go on in the next one."""
        if not text:
            return
        last = _last_word(text)
        if last == 0:
            self._carry.append(text)
            return
        self._carry.append(text[:last])
        self._take()
        if last < len(text):
            self._carry.append(text[last:])

    def cut(self) -> None:
        """Ends a word here, as a blank would: between pages, paragraphs, table cells."""
        self._carry.append(" ")

    def md5(self) -> str | None:
        """The checksum of all that was fed, in hex; None where there was no text."""
        self._take()
        return self._md5.hexdigest() if self._started else None

    def _take(self) -> None:
        words = normalise_text("".join(self._carry))
        self._carry.clear()
        if not words:
            return
        if self._started:
            self._md5.update(b" ")
        self._md5.update(words.encode("utf-8", "surrogatepass"))
        self._started = True


def _last_word(text: str) -> int:
    """Where the last, perhaps unfinished, word of ``text`` begins; 0 where it is all one word."""
    if text[-1].isspace():
        return len(text)
    tail = text.rsplit(None, 1)
    return len(text) - len(tail[1]) if len(tail) == 2 else 0
