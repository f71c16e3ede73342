"""Loads the records of rows from WARC and ARC files, local and remote."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol
from urllib.parse import quote

from anyio import to_thread

from archec.access.errors import NotInTime, NotThere, SourceFailed
from archec.access.index_files import IndexFile, skip_mark
from archec.access.posts import Asked
from archec.access.query import key_of
from archec.access.record import Record, read_record
from archec.access.remote_records import RangeReader
from archec.access.rows import Row
from archec.errors import UsageError

_INLINE = 1 << 17
"""Records up to this size are read without a thread."""
_PIECE = 1 << 18
_NUMBER = re.compile("[0-9]{1,18}")
_HTTP = re.compile("https?://", re.I)
_POSTED = re.compile(r"[?&]__wb_method=")


class Loader(Protocol):
    """Loads the records of rows."""

    async def load(self, row: Row, asked: Asked) -> Record | None:
        """Returns the record of a row, or None if this loader does not handle the row. ``asked`` is the request to send
        if the record comes from the live web. Raises SourceFailed."""
        ...


class WarcPlace(NamedTuple):
    """A path or URL, and the offset at which a WARC file begins in it."""

    path: str
    begin: int = 0


class WarcResolver(Protocol):
    """Finds a file by its name. It may wait for a server, so it is called in a thread."""

    def places(self, filename: str) -> Sequence[WarcPlace]:
        """The places where the file may be. Raises SourceFailed if the name is refused."""
        ...


class PrefixResolver:
    """Resolves names to files below a directory or URL, never outside of it."""

    def __init__(self, prefix: str) -> None:
        self._is_url = "://" in prefix
        self._prefix = prefix if not self._is_url or prefix.endswith("/") or "?" in prefix else prefix + "/"

    def places(self, filename: str) -> Sequence[WarcPlace]:
        is_refused = not filename or ".." in filename.split("/") or "\x00" in filename
        if self._is_url:
            is_refused |= filename.startswith("/") or "://" in filename
        elif filename.startswith("/"):
            is_refused |= PurePosixPath(self._prefix) not in PurePosixPath(filename).parents
        if is_refused:
            raise NotThere(f"the filename {filename[:100]!r} is refused")
        if self._is_url:
            return [WarcPlace(self._prefix + quote(filename, errors="surrogateescape"))]
        return [WarcPlace(os.path.join(self._prefix, filename))]


class ListResolver:
    """Resolves names by a list: each line has a name and one or more paths, separated by tabs. A sorted list is
    searched by bisection. Relative paths are looked up in the directory of the list and, as in pywb, in the working
    directory."""

    def __init__(self, path: Path) -> None:
        self._file = IndexFile(path, path.name, lambda line: b"\t" in line)
        self._path = path

    def places(self, filename: str) -> Sequence[WarcPlace]:
        if "\t" in filename or "\n" in filename:
            raise SourceFailed(f"the filename {filename[:100]!r} is refused")
        start = filename.encode("utf-8", "surrogateescape") + b"\t"
        try:
            lines, _ = self._file.opened()
            found = list(lines.forward(start, start[:-1] + b"\n"))
        except SourceFailed:
            found = self._scan(start)
        paths = [path for line in found for path in line.decode("utf-8", "surrogateescape").split("\t")[1:]]
        folders = (self._path.parent, Path.cwd())
        return [
            WarcPlace(place)
            for path in paths
            for place in ([path] if "://" in path or os.path.isabs(path) else [str(one / path) for one in folders])
        ]

    def _scan(self, start: bytes) -> list[bytes]:
        try:
            with open(self._path, "rb") as file:
                skip_mark(file)
                return [line.rstrip(b"\r\n") for line in file if line.startswith(start)]
        except OSError as error:
            raise SourceFailed(f"the list of files cannot be read: {error.strerror}") from error


class WarcLoader:
    """Loads records by ``filename``, ``offset`` and ``length``. See :class:`Loader`. With ``source``, only those of
    the rows of that source: WARC files of two sources may have one name."""

    def __init__(self, resolver: WarcResolver, remote: RangeReader, source: str = "") -> None:
        self._resolver, self._remote, self._source = resolver, remote, source

    async def load(self, row: Row, asked: Asked) -> Record | None:
        return await self.load_place(row) if self._source in ("", row.origin.coll) else None

    async def load_place(self, row: Row) -> Record | None:
        """Returns the record at the row's ``filename`` and ``offset``, or None if the row has none. Raises
        SourceFailed."""
        filename, offset, length = row.text("filename"), row.text("offset"), row.text("length")
        if not filename or filename == "-" or not _NUMBER.fullmatch(offset):
            return None
        size = int(length) if _NUMBER.fullmatch(length) else 0

        def check(record: Record) -> None:
            if not _is_of(record.url, row.url):
                raise NotThere("the record there is of another URL")  # in another file with this name

        reasons: list[str] = []
        faults: list[str] = []
        failure: type[SourceFailed] = NotThere
        for place in await self._places(filename):
            try:
                pieces = self._pieces(place, int(offset), size)
                where = f"{filename} {offset}"
                record = await read_record(pieces, pieces.aclose, where, is_stored=True, check=check)
                record.body = _named(record.body, filename)
                record.reported = "; ".join(faults)
                return record
            except SourceFailed as error:
                reasons.append(f"{filename}: {error.message}")
                if not isinstance(error, NotThere):
                    faults.append(reasons[-1])
                    failure = NotInTime if NotInTime in (failure, type(error)) else SourceFailed
        raise failure("; ".join(dict.fromkeys(reasons)) or f"{filename}: not found")

    async def slice(self, filename: str, offset: int, length: int) -> AsyncIterator[bytes]:
        """Returns the bytes of a range of a file. Raises SourceFailed."""
        for place in await self._places(filename):
            if "://" in place.path or os.path.isfile(place.path):
                return self._pieces(place, offset, length)
        raise SourceFailed(f"{filename}: not found")

    async def _places(self, filename: str) -> Sequence[WarcPlace]:
        if isinstance(self._resolver, PrefixResolver):
            return self._resolver.places(filename)
        return await to_thread.run_sync(self._resolver.places, filename)

    def _pieces(self, place: WarcPlace, offset: int, length: int) -> AsyncGenerator[bytes, None]:
        read = self._remote.pieces if "://" in place.path else _pieces
        return read(place.path, place.begin + offset, length)


def _is_of(recorded: str, url: str) -> bool:
    """Whether a record is of the URL of a row, as far as that can be told. Indexers clean URLs in different ways and
    append what a request posted, so keys without that are compared."""
    if recorded == url or not (recorded.isascii() and url.isascii() and _HTTP.match(recorded) and _HTTP.match(url)):
        return True
    try:
        return key_of(recorded) == key_of(_POSTED.split(url, maxsplit=1)[0])
    except UsageError:
        return True


async def _named(body: AsyncIterator[bytes], filename: str) -> AsyncIterator[bytes]:
    """Yields a body; names the file if it fails."""
    try:
        async for piece in body:
            yield piece
    except SourceFailed as error:
        raise SourceFailed(f"{filename}: {error.message}") from error


async def _pieces(path: str, offset: int, length: int) -> AsyncGenerator[bytes, None]:
    """Yields the bytes of a range of a file. A small one is read at once, others in a thread. If ``length`` is 0, the
    range has no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        failure = NotThere if isinstance(error, (FileNotFoundError, NotADirectoryError)) else SourceFailed
        raise failure(f"cannot be read: {error.strerror}") from error
    at, inline = offset, bool(length) and length <= _INLINE
    try:
        while True:
            size = min(length - (at - offset), _PIECE) if length else _PIECE
            if inline or not size:
                data = os.pread(descriptor, size, at)
            else:
                data = await to_thread.run_sync(os.pread, descriptor, size, at)
            if not data:
                return
            at += len(data)
            yield data
    except OSError as error:
        raise SourceFailed(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
