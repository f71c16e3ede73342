"""Extracts the text of HTML, PDF and PostScript. Only used in worker processes: the parsers are native code, and the
files are untrusted.

Text is fed to a digest in chunks. Failures raise NoText.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pypdfium2
import pypdfium2.raw as pdfium
from lxml import etree

from archec.text.checksum import NoText, TextDigest, TextLimits
from archec.text.sniff import ghostscript

_INVISIBLE = frozenset({"script", "style", "template"})
_INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
    "kbd", "label", "mark", "nobr", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time",
    "tt", "u", "var", "wbr",
})
_DROP = dict.fromkeys([*range(9), 11, *range(14, 28), 0x7F])
"""Control characters without meaning in a page, at which the parser would stop."""

_FAR = 1e6
"""A distance in points that exceeds every page. Text outside the page box is also text of the file."""

_GS_OPTIONS = (
    "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", "-dNOPROMPT", "-sstdout=%stderr", "-sDEVICE=txtwrite", "-sOutputFile=-",
    "-_",
)
_CHUNK = 1 << 16
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
_NO_TEMPORARY = {"TMPDIR": os.devnull, "TEMP": os.devnull, "LC_ALL": "C"}
"""``-dSAFER`` allows programs to read, write and delete in the temporary directory, so they get none."""


class _Visible:
    """Parser target that feeds the digest with the text outside invisible elements. No tree is built."""

    def __init__(self, digest: TextDigest) -> None:
        self._digest = digest
        self._depth = 0
        """Number of open elements, counted from an invisible one; 0 outside."""

    def start(self, tag: str | bytes, attrib: Mapping[Any, Any]) -> None:
        if tag not in _INLINE:
            self._digest.cut()
        if self._depth:
            self._depth += 1
        elif tag in _INVISIBLE:
            self._depth = 1

    def end(self, tag: str | bytes) -> None:
        if self._depth:
            self._depth -= 1
        if tag not in _INLINE:
            self._digest.cut()

    def data(self, data: str | bytes) -> None:
        if not self._depth and isinstance(data, str):
            self._digest.feed(data)

    # Required by the parser, but without visible text.

    def comment(self, text: str | bytes) -> None: ...

    def pi(self, target: str, text: str | None = None) -> None: ...

    def doctype(self, name: str, public: str | None, system: str | None) -> None: ...

    def close(self) -> None: ...


def digest_html(text: Iterable[str], digest: TextDigest) -> None:
    """Feeds the visible text of a page, without what the server may change with each visit.

    Scripts, styles, comments, templates and attributes are left out, including hidden inputs with one-time tokens;
    LOCKSS's hash filters remove the same things. Text that a style sheet may hide is kept: a script may show it, and
    missing a change is worse than noting one too many. Raises NoText: ``damaged``.
    """
    parser = etree.HTMLParser(target=_Visible(digest), encoding="utf-8", huge_tree=True, recover=True)
    fed = False
    try:
        for piece in text:
            clean = piece.translate(_DROP)
            if clean:
                parser.feed(clean.encode("utf-8", "replace"))
                fed = True
        if fed:
            parser.close()
    except etree.LxmlError as error:
        raise NoText("damaged") from error


def digest_pdf(source: Path | bytes, digest: TextDigest) -> None:
    """Feeds the text that PDFium extracts from all pages.

    Raises NoText: ``encrypted``; ``damaged``, if any page is; ``partial``, if some pages have text and others show
    something without text. Such a file, for instance a scan with a cover page, may change while its text does not.
    """
    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as error:
        raise NoText("encrypted" if pdfium.FPDF_GetLastError() == pdfium.FPDF_ERR_PASSWORD else "damaged") from error
    textless = 0
    try:
        for number in range(len(document)):
            textless += not _pdf_page(document, number, digest)
    except pypdfium2.PdfiumError as error:
        raise NoText("damaged") from error
    finally:
        document.close()
    if textless and digest.md5() is not None:
        raise NoText("partial")


def digest_postscript(stream: Iterator[bytes], digest: TextDigest, limits: TextLimits) -> None:
    """Feeds the text that the ``txtwrite`` device of Ghostscript extracts.

    PostScript is a programming language: ``-dSAFER`` denies access to files, and the limits of the worker bound memory,
    time and disk space. The file is passed on standard input, so its name cannot be taken for an option.
    Raises NoText: ``no-gs``, ``damaged``, ``timeout``, ``too-large``.
    """
    program = ghostscript()
    if program is None:
        raise NoText("no-gs")
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as text:
        for piece in stream:
            given.write(piece)
        given.seek(0)
        _run_ghostscript(program, given, text, limits)
        text.seek(0)
        _feed(text, digest, limits)


def _pdf_page(document: pypdfium2.PdfDocument, number: int, digest: TextDigest) -> bool:
    """Feeds the text of a page. Returns False if the page shows something but has no text."""
    page = document[number]
    try:
        layer = page.get_textpage()
        try:
            text = layer.get_text_bounded(-_FAR, -_FAR, _FAR, _FAR)
        finally:
            layer.close()
        digest.feed(text)
        digest.cut()
        return bool(text.strip()) or pdfium.FPDFPage_CountObjects(page) == 0
    finally:
        page.close()


def _run_ghostscript(program: str, given: IO[bytes], text: IO[bytes], limits: TextLimits) -> None:
    try:
        done = subprocess.run(
            (program, *_GS_OPTIONS),
            stdin=given,
            stdout=text,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _NO_TEMPORARY,
            cwd="/",
            timeout=limits.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoText("timeout") from error
    if done.returncode != 0:
        raise NoText("too-large" if done.returncode == -signal.SIGXFSZ else "damaged")


def _feed(text: IO[bytes], digest: TextDigest, limits: TextLimits) -> None:
    decoder = getincrementaldecoder("utf-8")("replace")
    total = 0
    while piece := text.read(_CHUNK):
        total += len(piece)
        if total > limits.max_size:
            raise NoText("too-large")
        digest.feed(decoder.decode(piece))
    digest.feed(decoder.decode(b"", True))
