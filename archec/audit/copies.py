"""Second copies of an archive, for repairs: a directory, or a web server that serves one unchanged.

Data from a copy is not trusted: it is used only if its sha256 matches.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote, urljoin

from archec.closing import Closing
from archec.config import Config
from archec.errors import ArchecError, ConfigError, CorruptArchive, NotHeld, StorageFailed, storage_errors
from archec.ids import is_url, slash_variant, without_userinfo
from archec.store.journal import open_plain
from archec.store.layout import DESCRIPTOR, RUNS, Directories, Layout, fanout_of, journals, open_layout
from archec.store.reader import follow, open_obi
from archec.web.door import BlockingSender, Response, WebError, trusted

MOST = 1 << 36
"""Maximum size in bytes of a file from a copy: an endless one must not fill the disk."""
_CHUNK = 1 << 18
_MOST_DESCRIPTOR, _MOST_LISTING = 1 << 16, 1 << 26
_MOST_HOPS = 10
_LISTED = re.compile(rb"""href=["']?(?:\./)?(0|[1-9][0-9]{0,17})\.jsonl(?:\.gz)?["' >]""", re.I)


class Copy(Protocol):
    """A second copy. ``where`` names it in messages, ``layout`` has the relative paths of its obis."""

    where: str
    layout: Layout

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """The bytes noted of an obi at ``tist``. Raises NotHeld, or another ArchecError, before or between them."""

    def size(self, tist: int, id: str) -> int | None:  # noqa: A002
        """The size in bytes of what was noted of an obi at ``tist``, following redirects; None if it does not exist, -1
        if the size is unknown."""

    def journal(self, name: str) -> Iterator[bytes]:
        """The bytes of a journal's file, unchanged. Raises the errors of :meth:`obi`."""

    def has_journal(self, run: int) -> bool:
        """Whether the journal of a run exists."""

    def runs(self) -> list[int] | None:
        """The runs that have journals, in order; None if the journals cannot be listed."""


def fetch_journal(copy: Copy, run: int, folder: Path) -> Path:
    """Saves a copy's journal of a run in ``folder``, compressed if the copy's is, and returns the path. Raises NotHeld
    if the copy has none, and CorruptArchive if it has more than :data:`MOST` bytes."""
    for name in (f"{run}.jsonl.gz", f"{run}.jsonl"):
        path = folder / name
        try:
            with storage_errors(path), path.open("wb") as file:
                for data in copy.journal(name):
                    if file.tell() + len(data) > MOST:
                        raise CorruptArchive(f"{copy.where}: its {name} is larger than {MOST:,} bytes")
                    file.write(data)
            return path
        except NotHeld:
            path.unlink()
    raise NotHeld(f"{copy.where}: has no journal of run {run}")


@contextmanager
def open_copy(where: str, config: Config, layout: Layout | None = None) -> Iterator[Copy]:
    """The copy at a path or an http(s) URL of an archive directory.

    ``config`` has the settings for web access, ``layout`` is that of the archive, if its own is intact. Raises
    :class:`ConfigError` if there is no archive, if it has no journals, or if it is this archive itself.
    """
    with ExitStack() as stack:
        copy: Copy
        if where.startswith(("http://", "https://")):
            copy = UrlCopy(where, stack.enter_context(BlockingSender(config.fetch, config.agent, "remote")))
        else:
            theirs = open_layout(_archive_in(Path(where)))
            if theirs.root.resolve() == config.store_path.resolve():
                raise ConfigError(f"{where}: is this archive itself, not a second copy of it")
            copy = stack.enter_context(DirectoryCopy(theirs))
            if layout is not None and journals(layout):
                need_journals(copy, copy.runs())
        if layout is not None and layout.fanout != copy.layout.fanout:
            raise ConfigError(
                f"{copy.where}: has a fan-out of {copy.layout.fanout}, and {layout.root} one of {layout.fanout}: "
                "it is not a copy of it",
                hint="check whether layout.json was replaced in one of them; nothing was written",
            )
        yield copy


def need_journals(copy: Copy, runs: Sequence[int] | None) -> None:
    """Raises :class:`ConfigError` if a copy has no journals."""
    if not runs:
        raise ConfigError(f"{copy.where}: has no journals ({RUNS}/)", hint="copy them first")


def _archive_in(folder: Path) -> Path:
    """An archive directory, given directly or as the directory that contains it, as created by ``archec init``."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such directory", hint="give the archive directory of the copy, or its URL"
        )
    for one in (folder, folder / "archive"):
        if (one / DESCRIPTOR).exists():
            return one
    raise ConfigError(f"{folder}: is not an archive: it has no {DESCRIPTOR}", hint="give its archive directory")


class DirectoryCopy(Closing):
    """An archive directory, read as carefully as the archive itself. Must be closed."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self._directories = layout, Directories(layout)
        self.where = str(layout.root)

    def close(self) -> None:
        self._directories.close()

    def size(self, tist: int, id: str) -> int | None:  # noqa: A002
        """See :class:`Copy`."""
        chain = follow(self._directories, self.layout.path(tist, id), id)
        if chain.fault is not None:
            return None
        where = self.layout.root / chain.path
        with storage_errors(where):
            return where.lstat().st_size

    def has_journal(self, run: int) -> bool:
        return run in self.runs()

    def runs(self) -> list[int]:
        return [journal.tist for journal in journals(self.layout)]

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """See :class:`Copy`."""
        with open_obi(self.layout, tist, id) as file:
            yield from self._read(file, self.layout.path(tist, id))

    def journal(self, name: str) -> Iterator[bytes]:
        path = self.layout.runs / name
        if not path.is_file() or path.is_symlink():
            raise NotHeld(f"{path}: is not held")
        with open_plain(path, packed=False) as file:
            yield from self._read(file, f"{RUNS}/{name}")

    def _read(self, file: BinaryIO, path: str) -> Iterator[bytes]:
        with storage_errors(self.layout.root / path):
            while data := file.read(_CHUNK):
                yield data


class UrlCopy:
    """An archive directory behind a web server that serves its files unchanged, and follows links."""

    def __init__(self, url: str, sender: BlockingSender) -> None:
        self._sender, self._url = sender, url.rstrip("/")
        self.where = without_userinfo(self._url)
        try:
            descriptor = _at_most(self._get(DESCRIPTOR), _MOST_DESCRIPTOR)
        except ArchecError as error:
            raise ConfigError(
                f"{self.where}: is not the URL of an archive directory: {error.message}",
                hint=f"its {DESCRIPTOR} must exist there",
            ) from error
        self.layout = Layout(Path(), fanout_of(descriptor, f"{self.where}/{DESCRIPTOR}"))

    def size(self, tist: int, id: str) -> int | None:  # noqa: A002
        """See :class:`Copy`."""
        for name in (id, slash_variant(id) if is_url(id) else None):
            if name is not None:
                headers = self._head(self.layout.path(tist, name))
                if headers is not None:
                    length = headers.get("content-length", "")
                    return int(length) if length.isascii() and length.isdigit() else -1
        return None

    def has_journal(self, run: int) -> bool:
        return any(self._head(f"{RUNS}/{run}{end}") is not None for end in (".jsonl.gz", ".jsonl"))

    def runs(self) -> list[int] | None:
        """See :class:`Copy`: the names in the server's directory listing, if it has one."""
        try:
            page = _at_most(self._get(f"{RUNS}/"), _MOST_LISTING)
        except (NotHeld, StorageFailed):
            return None
        return sorted({int(name) for name in _LISTED.findall(page)}) or None

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """See :class:`Copy`."""
        return self._get(self.layout.path(tist, id))

    def journal(self, name: str) -> Iterator[bytes]:
        return self._get(f"{RUNS}/{name}")

    def _head(self, path: str) -> Mapping[str, str] | None:
        """The headers of the response to a HEAD request, None if the path does not exist."""
        try:
            with closing(self._response("HEAD", path)) as response:
                return response.headers
        except NotHeld:
            return None

    def _get(self, path: str) -> Generator[bytes, None, None]:
        """The bytes at a path."""
        response = self._response("GET", path)
        try:
            yield from self._sender.pieces(response)
        except WebError as error:
            raise StorageFailed(f"{self.where}/{quote(path)}: {error.message}") from error

    def _response(self, method: str, path: str) -> Response:
        """The response to a request for a path, after redirects. Raises :class:`NotHeld` if there is no such path, and
        :class:`StorageFailed`."""
        url = f"{self._url}/{quote(path)}"
        try:
            for _ in range(_MOST_HOPS):
                at, named = trusted(url, self._url)
                response = self._sender.send(method, at, named=named)
                if not 300 <= response.status_code < 400 or "location" not in response.headers:
                    break
                response.close()
                url = urljoin(url, response.headers["location"])
        except WebError as error:
            raise StorageFailed(f"{without_userinfo(url)}: {error.message}") from error
        except ValueError as error:
            raise StorageFailed(f"{without_userinfo(url)}: redirects to an invalid URL") from error
        if response.status_code == 200:
            return response
        response.close()
        if response.status_code in (404, 410):
            raise NotHeld(f"{without_userinfo(url)}: is not held")
        raise StorageFailed(f"{without_userinfo(url)}: HTTP status {response.status_code}")


def _at_most(parts: Generator[bytes, None, None], limit: int) -> bytes:
    """The bytes of a response. Raises :class:`StorageFailed` if there are more than ``limit``."""
    data = bytearray()
    with closing(parts):
        for part in parts:
            data += part
            if len(data) > limit:
                raise StorageFailed(f"the answer is larger than {limit:,} bytes")
    return bytes(data)
