"""WARC records as streams, from files and from the network.

A record consists of its header, the HTTP header in its block if it has one, and the rest of the block. ARC records are
converted to WARC records. Only headers, and the first SMALL bytes of bodies, are held in memory.
"""

from __future__ import annotations

import asyncio
import re
import uuid
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from anyio import to_thread

from archec.access.errors import NotThere, SourceFailed
from archec.access.stamps import iso_date, of_date
from archec.server.responses import in_pieces, nothing
from archec.warc.framing import BlockDigest

Headers = Sequence[tuple[str, str]]

_MAX_HEAD = 1 << 18
_MAX_START = 64
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
_FILE_PIECE = 1 << 18
_ARC = re.compile(rb"([a-zA-Z][a-zA-Z0-9+.-]*:.*?) (\S+) ([0-9]{12,17}) (\S+ )?.*?([0-9]+)")
_VERSIONS = ("WARC/1.0", "WARC/1.1", "WARC/0.18", "WARC/0.17")
_LINE_END = re.compile(rb"\n")
_EMPTY_LINE = re.compile(rb"\n\r*\n")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_WITH_HTTP = ("response", "request", "revisit")
_HTTP_HEAD = re.compile(rb"\s*(?:[A-Z]+[/ ]|[A-Za-z0-9-]+:)")
"""The beginning of an HTTP header. A response of HTTP/0.9 has none."""
END = b"\r\n\r\n"
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (a token of RFC 9110, section 5.6.2)."""
SMALL = 1 << 16
"""Size in bytes up to which a body is read, and sent, as a whole."""


class TruncatedRecord(SourceFailed):
    """A stream ends before the record does."""

    def __init__(self) -> None:
        super().__init__("it is truncated")


class NoRecord(SourceFailed):
    """A stream does not begin with a record."""

    def __init__(self) -> None:
        super().__init__("it is neither a WARC nor an ARC record")


@dataclass(slots=True)
class Record:
    """A WARC record. ``http`` is the HTTP header of its block including the empty line, or b"". ``size`` is the length
    in bytes of the rest, which ``body`` yields. ``raw`` is the WARC header as it was read, if it can be sent
    unchanged. ``reported`` is what the server that sent it reports of its own sources that failed, or why places that
    were tried before failed."""

    headers: Headers
    http: bytes
    size: int
    body: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]] = nothing
    version: str = "WARC/1.0"
    raw: bytes = b""
    reported: str = ""

    def get(self, name: str) -> str:
        """The first header with this name, or ""."""
        return header(self.headers, name)

    @property
    def type(self) -> str:
        """``response``, ``resource``, ``revisit`` ..."""
        return self.get("WARC-Type")

    @property
    def url(self) -> str:
        """The URL that was captured, or ""."""
        return self.get("WARC-Target-URI").strip("<> ")

    @property
    def timestamp(self) -> str:
        """The time of the capture, or "" if it is not valid."""
        stamp = of_date(self.get("WARC-Date"))
        return stamp if len(stamp) == 14 else ""

    @property
    def head(self) -> bytes:
        """The WARC header including the empty line."""
        lines = [self.version, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return self.raw or "\r\n".join(lines).encode("utf-8", "surrogateescape")

    @property
    def http_status(self) -> str:
        """The status in the HTTP header, or ""."""
        parts = self.http[:40].split(b" ", 2)
        return parts[1][:3].decode("latin-1") if len(parts) > 1 else ""

    @property
    def media_type(self) -> str:
        """The media type of the contents, or "" if it is unknown."""
        if self.http:
            return self.http_header("content-type")
        given = self.get("Content-Type")
        return "" if _is_of_http(given) else given

    async def read_start(self) -> None:
        """Reads the first SMALL bytes of the body, all of a small one, so that an error or a server that sends nothing
        is found before the response begins. Raises SourceFailed."""
        start = b""
        async for piece in self.body:
            start += piece
            if len(start) > SMALL:
                self.body = _resumed(start, self.body)
                return
        self.body = in_pieces(start)

    def http_headers(self) -> list[tuple[str, str]]:
        return parse_headers(self.http.partition(b"\n")[2])

    def http_header(self, name: str) -> str:
        """The first HTTP header with this name, or ""."""
        return header(self.http_headers(), name)


def header(headers: Headers, name: str) -> str:
    """The first of these headers with a name, or ""."""
    wanted = name.lower()
    return next((value for key, value in headers if key.lower() == wanted), "")


def parse_headers(data: bytes) -> list[tuple[str, str]]:
    """Parses header lines. Continuation lines are joined; lines without a colon are skipped."""
    found: list[tuple[str, str]] = []
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        line = line.rstrip("\r")
        if line[:1] in (" ", "\t") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
            continue
        name, colon, value = line.partition(":")
        if colon and name.strip():
            found.append((name.strip(), value.strip()))
    return found


class ChunkReader:
    """Reads from a stream of chunks, up to a delimiter or a number of bytes."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._data = b""

    async def until(self, mark: re.Pattern[bytes], most: int = _MAX_HEAD, *, or_most: bool = False) -> bytes:
        """Reads up to the end of the first match of ``mark``. ``or_most``: if there is none, reads ``most`` bytes.
        Raises SourceFailed."""
        while True:
            found = mark.search(self._data)
            if found is not None or (or_most and len(self._data) >= most):
                end = found.end() if found is not None else most
                taken, self._data = self._data[:end], self._data[end:]
                return taken
            if len(self._data) > most:
                raise SourceFailed("its header is too large")
            piece = await anext(self._pieces, b"")
            if not piece:
                raise TruncatedRecord
            self._data += piece

    async def ahead(self, most: int) -> bytes:
        """The next ``most`` bytes, or fewer at the end, without reading on."""
        while len(self._data) < most and (piece := await anext(self._pieces, b"")):
            self._data += piece
        return self._data[:most]

    def put_back(self, data: bytes) -> None:
        self._data = data + self._data

    async def some(self, most: int) -> bytes:
        """Reads up to ``most`` bytes; b"" at the end."""
        if not self._data:
            self._data = await anext(self._pieces, b"")
        found, self._data = self._data[:most], self._data[most:]
        return found


async def unpacked(source: ChunkReader) -> AsyncGenerator[bytes, None]:
    """Yields the decompressed bytes of one gzip member. Data that is not gzip is passed through. Raises SourceFailed if
    it is damaged."""
    if await source.ahead(len(_GZIP)) != _GZIP:
        while piece := await source.some(_FILE_PIECE):
            yield piece
        return
    decompressor = zlib.decompressobj(31)
    while not decompressor.eof:
        data = decompressor.unconsumed_tail or await source.some(_FILE_PIECE)
        if not data:
            raise TruncatedRecord
        try:
            plain = decompressor.decompress(data, _PIECE)
        except zlib.error as error:
            raise SourceFailed("it is damaged") from error
        if plain:
            yield plain
    source.put_back(decompressor.unused_data)


async def all_unpacked(source: ChunkReader) -> AsyncGenerator[bytes, None]:
    """Yields the decompressed bytes of all gzip members."""
    while True:
        async for piece in unpacked(source):
            yield piece
        if await source.ahead(len(_GZIP)) != _GZIP:
            return
        await asyncio.sleep(0)  # others have their turn: members may be many and empty


class ClosedOnFailure:
    """For ``async with``: awaits ``close`` if the block fails."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            await self._close()


async def read_record(
    pieces: AsyncIterator[bytes],
    close: Callable[[], Awaitable[None]],
    place: str = "",
    *,
    is_stored: bool = False,
    check: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Reads the record at the beginning of a stream. ``place`` goes into the record id of an ARC record. ``is_stored``:
    it is from a file, so that it must match the checksum of gzip or, if there is none, its digest. (Servers may send
    records with the digests of others.) ``check`` may refuse it before its body is read. Raises SourceFailed, and
    NotThere if no record begins in a file there."""
    source = ChunkReader(pieces)
    plain = unpacked(source)

    async def close_all() -> None:
        await plain.aclose()
        await close()

    async with ClosedOnFailure(close_all):
        is_packed = is_stored and await source.ahead(len(_GZIP)) == _GZIP
        reader = ChunkReader(plain)
        raw, version = b"", "WARC/1.0"
        try:
            first = await reader.until(_LINE_END)
            while not first.strip():
                first = await reader.until(_LINE_END)
            headers = arc_headers(first.rstrip(b"\r\n"), place) if not first.startswith(b"WARC/") else []
        except (TruncatedRecord, NoRecord) as error:
            if not is_stored or is_packed:
                raise
            raise NotThere(error.message) from error  # of another file with this name, perhaps
        if not headers:
            raw = first + await reader.until(_EMPTY_LINE)
            headers = parse_headers(raw.partition(b"\n")[2])
            version = first.strip().decode("latin-1")
            if version not in _VERSIONS:
                raise SourceFailed("it has an unknown version of WARC")
        size = _length(headers)
        http = b""
        if _has_http(headers) and size and _HTTP_HEAD.match(await reader.ahead(_MAX_START)):
            most = min(size, _MAX_HEAD)
            http = (await reader.until(_EMPTY_LINE, most, or_most=size == most))[:size]
        if raw and not raw.endswith(END):
            raw = b""
        record = Record(headers, http, size - len(http), in_pieces(b""), close_all, version, raw)
        check(record)
        seen = BlockDigest(record.get("WARC-Block-Digest") if is_stored else "")
        seen.update(http)
        record.body = _body(reader, record.size, seen, is_packed=is_packed)
        await record.read_start()
        return record


async def _resumed(start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for piece in rest:
        yield piece


async def _body(reader: ChunkReader, size: int, seen: BlockDigest, *, is_packed: bool) -> AsyncIterator[bytes]:
    left, piece = size, b""
    while left:
        if piece:
            yield piece
        piece = await reader.some(min(left, _PIECE))
        if not piece:
            raise TruncatedRecord
        left -= len(piece)
        seen.update(piece)
    # the last piece is held back: without it the client knows that something is wrong
    if not (is_packed and await _has_checksum(reader)) and not seen.matches:
        raise SourceFailed("it does not match its digest")
    yield piece


async def _has_checksum(reader: ChunkReader) -> bool:
    """Whether what follows a record is the end of its gzip member, with the right checksum. Raises SourceFailed if it
    is wrong."""
    with suppress(TruncatedRecord):  # the length in the index is wrong
        while after := await reader.some(_PIECE):
            if after.strip(END):
                return False
        return True
    return False


def _length(headers: Headers) -> int:
    found = {value for name, value in headers if name.lower() == "content-length"}
    if len(found) != 1 or not re.fullmatch("[0-9]{1,18}", text := found.pop()):
        raise SourceFailed("it has no valid Content-Length")
    return int(text)


def _has_http(headers: Headers) -> bool:
    values = {name.lower(): value for name, value in headers}
    return values.get("warc-type") in _WITH_HTTP and _is_of_http(values.get("content-type", ""))


def _is_of_http(media_type: str) -> bool:
    return media_type.lower().startswith("application/http")


def arc_headers(line: bytes, place: str) -> Headers:
    """Converts the header line of an ARC record to a WARC header."""
    match = _ARC.fullmatch(line)
    if match is None:
        raise NoRecord
    url, address, stamp, mime, length = (part.decode("utf-8", "replace").strip() for part in match.groups(b""))
    url = url.replace(" ", "%20")
    is_http = url.lower().startswith(("http:", "https:"))
    return [
        ("WARC-Type", "response" if is_http else "resource"),
        ("WARC-Record-ID", f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{place} {line!r}')}>"),
        ("WARC-Target-URI", url),
        ("WARC-Date", iso_date(stamp[:14].ljust(14, "0"))),
        *([("WARC-IP-Address", address)] if address not in ("-", "0.0.0.0") else []),
        ("Content-Type", "application/http; msgtype=response" if is_http else mime),
        ("Content-Length", length),
    ]


async def read_file(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields the rest of a file, read in a thread."""
    while data := await to_thread.run_sync(file.read, _FILE_PIECE):
        yield data


async def exactly(pieces: AsyncIterator[bytes], size: int, skip: int = 0) -> AsyncIterator[bytes]:
    """Yields ``size`` bytes after the first ``skip``. Raises SourceFailed if there are fewer."""
    if not size:
        return
    async for piece in pieces:
        found = piece[skip : skip + size]
        skip -= min(skip, len(piece))
        size -= len(found)
        if found:
            yield found
        if not size:
            return
    raise TruncatedRecord


async def dechunked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the contents of a body in chunked transfer coding. A body that is not chunked, although its header says
    so, is passed through."""
    reader = ChunkReader(pieces)
    first = True
    while True:
        line = b""
        with suppress(SourceFailed):
            line = await reader.until(_LINE_END, 1 << 12)
        match = _CHUNK_SIZE.fullmatch(line.partition(b";")[0].strip())
        if match is None:
            if not first:
                return
            yield line
            while piece := await reader.some(_PIECE):
                yield piece
            return
        size = int(match[0], 16)
        first = False
        if not size:
            return
        while size:
            piece = await reader.some(min(size, _PIECE))
            if not piece:
                return
            size -= len(piece)
            yield piece
        with suppress(SourceFailed):
            await reader.until(_LINE_END, 1 << 12)
