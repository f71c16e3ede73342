"""Computes the text checksum of a file: opens, decompresses and decodes it within limits, and extracts the text of
HTML, PDF and PostScript. Only used in worker processes: the parsers are native code, the files untrusted.

The result only depends on bytes, type, encoding and the versions of the parsers. Another version may find another text;
a file that has changed meanwhile then counts as changed, never as cosmetic. Failures raise NoText.
"""

from __future__ import annotations

import codecs
import os
import signal
import stat
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO

import pypdfium2
import pypdfium2.raw as pdfium
from lxml import etree

from archec.text.checksum import NoText, TextDigest, TextLimits, TextResult, TextTask
from archec.text.sniff import BOMS, GZIP, HEAD, HTML, PDF, POSTSCRIPT, declared_charset, ghostscript, is_plain, sniff

_CHUNK = 1 << 16
_MAX_CODINGS = 2
_GZIP = b"\x1f\x8b"
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
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
_NO_TEMPORARY = {"TMPDIR": os.devnull, "TEMP": os.devnull, "LC_ALL": "C"}
"""``-dSAFER`` allows programs to read, write and delete in the temporary directory, so they get none."""


def open_body(path: str, limits: TextLimits) -> BinaryIO:
    """Opens a regular file for reading. Raises NoText: ``too-large`` (before anything is read), ``unreadable``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise NoText("unreadable") from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > limits.max_size:
        os.close(descriptor)
        raise NoText("too-large" if stat.S_ISREG(about.st_mode) else "unreadable")
    return os.fdopen(descriptor, "rb", buffering=0)


def pieces(body: BinaryIO, content_encoding: str, limits: TextLimits) -> Iterator[bytes]:
    """Yields the body in chunks, without its Content-Encoding.

    Raises NoText: ``encoding`` if that is unknown or the data is invalid, ``bomb`` beyond ``max_size``.
    """
    stream = _read(body)
    codings = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in codings if name not in ("", "identity")]
    if len(codings) > _MAX_CODINGS or any(name not in ("gzip", "x-gzip", "deflate") for name in codings):
        raise NoText("encoding")
    for name in reversed(codings):
        stream = _limited(_inflate(stream, raw=name == "deflate"), limits.max_size)
    return stream


def gunzipped(stream: Iterator[bytes], limits: TextLimits) -> Iterator[bytes]:
    """Yields the decompressed contents of a gzip file. Raises NoText: ``damaged``, ``bomb``."""
    try:
        yield from _limited(_inflate(stream, raw=False), limits.max_size)
    except NoText as error:
        raise NoText("damaged" if error.reason == "encoding" else error.reason) from error


def decoded(source: Callable[[], Iterator[bytes]], content_type: str, page: bool) -> Iterator[Iterator[str]]:
    """Yields decodings of a body, to be tried in turn until one does not raise UnicodeDecodeError.

    ``source`` reads the body from its beginning. The charset is that of a byte-order mark, else the one in
    ``content_type``, else, in a ``page``, the one in its ``<meta>``; then invalid bytes are replaced, except that an
    invalid body declared as UTF-8 is cp1252. Without a charset the body is UTF-8 if all of it is valid, else cp1252,
    which decodes anything. Charsets are not guessed, because the results, and thus text checksums, would change with
    the version of the library that guesses.
    """
    stream = source()
    first = next(stream, b"")
    for mark, name in BOMS:
        if first.startswith(mark):
            yield _decode(chain((first[len(mark) :],), stream), name, "replace")
            return
    charset = declared_charset(content_type, first if page else b"")
    if charset == "cp1252":
        yield _cp1252(chain((first,), stream))
        return
    if charset:
        yield _decode(chain((first,), stream), charset, "strict" if charset == "utf-8" else "replace")
        if charset != "utf-8":
            return
    else:
        yield _decode(chain((first,), stream), "utf-8", "strict")
    yield _cp1252(source())


def _read(body: BinaryIO) -> Iterator[bytes]:
    try:
        while piece := body.read(_CHUNK):
            yield piece
    except OSError as error:
        raise NoText("unreadable") from error


def _limited(stream: Iterator[bytes], limit: int) -> Iterator[bytes]:
    total = 0
    for piece in stream:
        total += len(piece)
        if total > limit:
            raise NoText("bomb")
        yield piece


def _inflate(stream: Iterator[bytes], raw: bool) -> Iterator[bytes]:
    """Decompresses gzip (all members) or zlib. ``raw``: also a bare deflate stream, which some servers send.

    Anything after the last gzip member is ignored. Raises NoText: ``encoding``.
    """
    machine: zlib._Decompress | None = zlib.decompressobj(47)
    members, data = 0, b""
    for piece in stream:
        data += piece
        if members and machine is None and len(data) < len(_GZIP):
            continue
        while data:
            if machine is None:
                if not data.startswith(_GZIP):
                    return
                machine = zlib.decompressobj(47)
            try:
                out = machine.decompress(data, _CHUNK)
            except zlib.error as error:
                if not raw:
                    raise NoText("encoding") from error
                machine, raw = zlib.decompressobj(-15), False
                continue
            raw = False
            if out:
                yield out
            data = machine.unconsumed_tail
            if machine.eof:
                data, machine, members = machine.unused_data, None, members + 1
                if len(data) < len(_GZIP):
                    break
    if machine is not None:
        yield machine.flush()
        if not machine.eof:
            raise NoText("encoding")


def _decode(stream: Iterator[bytes], name: str, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(name)(errors)
    for piece in stream:
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _cp1252(stream: Iterator[bytes]) -> Iterator[str]:
    """Decodes cp1252 without errors: its five undefined bytes become C1 control characters."""
    table = "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
    for piece in stream:
        yield codecs.charmap_decode(piece, "strict", table)[0]


def extractor(max_size: int, timeout: float) -> Callable[[TextTask], TextResult]:
    """Prepares this process as a worker of the text pool. Returns the function that processes a file."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # native libraries print to stderr
    os.close(null)
    limits = TextLimits(max_size=max_size, timeout=timeout)

    def extract(task: TextTask) -> TextResult:
        result = text_md5(str(task.path), task.media_type, task.content_encoding, limits)
        if result.reason == "memory":
            raise MemoryError  # the pool replaces this process
        return result

    return extract


def text_md5(path: str, media_type: str, content_encoding: str = "", limits: TextLimits | None = None) -> TextResult:
    """The MD5 of the normalised text of a file, or None with a reason. Never raises because of the contents.

    ``media_type`` is the result of :func:`archec.text.sniff.sniff`, with the ``charset`` parameter that the server
    declared, if any. It is checked against the first bytes after the Content-Encoding is removed.
    """
    limits = limits or TextLimits()
    try:
        with open_body(path, limits) as body:
            digest = TextDigest()
            _digest(_BodySource(body, path, content_encoding, limits), media_type, digest)
            md5 = digest.md5()
    except NoText as error:
        return TextResult(None, error.reason)
    except MemoryError:
        return TextResult(None, "memory")
    return TextResult(md5, "" if md5 else "empty")


class _BodySource:
    """A body that can be read repeatedly from its beginning."""

    def __init__(self, body: BinaryIO, path: str, encoding: str, limits: TextLimits, packed: bool = False) -> None:
        self._body = body
        self._encoding = encoding
        self._packed = packed
        self.path = path
        self.limits = limits

    def __call__(self) -> Iterator[bytes]:
        self._body.seek(0)
        stream = pieces(self._body, self._encoding, self.limits)
        return gunzipped(stream, self.limits) if self._packed else stream

    @property
    def plain_file(self) -> bool:
        """Whether the file contains the bytes without any compression."""
        return not self._packed and self._encoding.strip().lower() in ("", "identity")

    def inside(self) -> _BodySource:
        """The contents of a gzip file."""
        return _BodySource(self._body, self.path, self._encoding, self.limits, packed=True)

    def head(self) -> bytes:
        return next(self(), b"")[: 2 * HEAD]


def _digest(source: _BodySource, media_type: str, digest: TextDigest) -> None:
    kind = sniff(source.head(), media_type)
    if kind in GZIP:
        source = source.inside()
        kind = sniff(source.head())
    if kind == PDF:
        digest_pdf(Path(source.path) if source.plain_file else b"".join(source()), digest)
    elif kind == POSTSCRIPT:
        digest_postscript(source(), digest, source.limits)
    elif kind in HTML or is_plain(kind):
        _digest_characters(source, media_type, kind in HTML, digest)
    else:
        raise NoText("no-text-type")


def _digest_characters(source: _BodySource, content_type: str, page: bool, digest: TextDigest) -> None:
    for reading in decoded(source, content_type, page):
        try:
            if page:
                digest_html(reading, digest)
            else:
                for piece in reading:
                    digest.feed(piece)
            return
        except UnicodeDecodeError:
            digest.clear()


# -- parsers --------------------------------------------------------------------------------------


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
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    total = 0
    while piece := text.read(_CHUNK):
        total += len(piece)
        if total > limits.max_size:
            raise NoText("too-large")
        digest.feed(decoder.decode(piece))
    digest.feed(decoder.decode(b"", True))
