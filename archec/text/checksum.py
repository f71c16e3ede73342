"""Text checksums of files: the normal form of a text, why a file has no checksum, the limits of extraction, and the
pool of worker processes that compute them, so that a file that crashes a parser does no other harm.

The text of a template (vi) is :func:`archec.redif.template.canonical_text`.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from archec.config import TextConfig
from archec.text.sniff import POSTSCRIPT, bare_type, ghostscript, has_text
from archec.workers.child import Limits
from archec.workers.pool import Done, Pool

REASONS = {
    "": "there is a text checksum",
    "no-text-type": "a type from which archec takes no text",
    "no-gs": "PostScript, and Ghostscript is not installed",
    "empty": "no text in the file, such as scanned pages or an empty page",
    "partial": "a PDF with pages that show something other than text: its text does not stand for it",
    "encrypted": "a PDF that needs a password",
    "damaged": "the file cannot be parsed",
    "too-large": "larger than text.max_size",
    "bomb": "larger than text.max_size after decompression",
    "encoding": "a Content-Encoding that is unknown or does not match the contents",
    "unreadable": "the file cannot be opened or read",
    "timeout": "not finished within text.timeout",
    "memory": "not finished within text.max_memory",
    "crashed": "the parser crashed",
    "internal": "the worker process stopped responding",
    "no-worker": "worker processes cannot be started",
}
"""All reasons of results with their meanings. Without a checksum a changed file is never ``cosmetic``."""
_EXTRACTOR = "archec.text.extract:extractor"


class TextResult(NamedTuple):
    """The MD5 of the normalised text of a file, or None and a key of REASONS."""

    md5: str | None
    reason: str = ""


class TextTask(NamedTuple):
    """A file to extract text from; ``media_type`` as for :func:`archec.text.extract.text_md5`."""

    key: str
    path: Path
    media_type: str
    content_encoding: str = ""


class TextDone(NamedTuple):
    """A TextResult with the key under which the file was submitted."""

    key: str
    md5: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Limits of one extraction: maximum size in bytes, both stored and decompressed; maximum time in seconds."""

    max_size: int = 100_000_000
    timeout: float = 30.0


class NoText(Exception):
    """Ends an extraction; the argument is a key of REASONS. Not raised outside this package."""

    @property
    def reason(self) -> str:
        return str(self.args[0])


def normalise_text(text: str) -> str:
    """Normalises a text: NFC, each run of white space as a single blank, none at either end. Idempotent."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class TextDigest:
    """The MD5 of the normal form (in UTF-8) of a text that is fed in pieces, which may be cut anywhere.

    Normalisation does not reach across a blank, so pieces are normalised one by one, and only an unfinished last word
    is kept for the next one.
    """

    __slots__ = ("_carry", "_md5", "_started")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discards everything that was fed."""
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._carry: list[str] = []
        self._started = False

    def feed(self, text: str) -> None:
        """Adds a piece. A word may continue in the next one."""
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
        """Ends a word, as a blank does; for the ends of pages, paragraphs and table cells."""
        self._carry.append(" ")

    def md5(self) -> str | None:
        """The checksum in hex; None for an empty text, because otherwise all scanned papers would be equal."""
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
    """The index of the last word of ``text``, which may be unfinished; 0 if there is only one word, the length if the
    text ends with white space."""
    if text[-1].isspace():
        return len(text)
    tail = text.rsplit(None, 1)
    return len(text) - len(tail[1]) if len(tail) == 2 else 0


class TextPool(Pool[TextTask, TextResult]):
    """Takes files by ``extract`` and returns results by ``collect``, in any order. A context manager, for one thread.

    Leaving the context kills the workers; results that were not collected are lost. ``function`` replaces
    :func:`archec.text.extract.extractor` in tests.
    """

    def __init__(self, config: TextConfig, function: str = _EXTRACTOR, *, silence: float = 60.0) -> None:
        self._config = config
        super().__init__(
            function,
            (config.max_size, config.timeout),
            TextResult,
            workers=config.workers,
            limits=Limits(config.max_memory, config.max_size, config.timeout),
            silence=silence,
        )

    def wants(self, media_type: str, size: int) -> bool:
        """Whether a file of this type (from ``sniff``) and size can have a text checksum."""
        if not (self._config.enabled and 0 < size <= self._config.max_size and has_text(media_type)):
            return False
        return bare_type(media_type) != POSTSCRIPT or self._postscript

    def extract(self, key: str, path: str, media_type: str, content_encoding: str = "") -> None:
        """Queues a file for which ``wants`` is true. Returns immediately."""
        self.submit(TextTask(key, Path(path), media_type, content_encoding))

    def collect(self, timeout: float = 0.0) -> list[TextDone]:
        """Returns the available results. Waits up to ``timeout`` seconds for the first one, unless nothing is pending.
        """
        if timeout:
            self.wait(timeout)
        return [_text_done(done) for done in self.results()]

    @cached_property
    def _postscript(self) -> bool:
        return ghostscript() is not None


def _text_done(done: Done[TextTask, TextResult]) -> TextDone:
    if done.error is not None:
        return TextDone(done.item.key, None, "damaged")  # an unexpected exception of a parser
    md5, reason = done.answer or TextResult(None, done.fault)
    return TextDone(done.item.key, md5, "" if md5 else reason if reason in REASONS else "crashed")
