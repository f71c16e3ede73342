"""Second copies of an archive, to repair from: a directory, or a web server that serves one as it is.

What comes from a copy is not trusted: it counts where its sha256 fits, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from archec.config import Config
from archec.errors import ArchecError, ConfigError, NotHeld, StorageFailed
from archec.store.durable import storage_errors
from archec.store.journal_reader import open_plain
from archec.store.layout import DESCRIPTOR, RUNS, Layout, open_layout
from archec.store.reader import open_obi
from archec.web.door import EXPECTED, BlockingClient, Policy, fault_of, named, open_blocking_client

_CHUNK = 1 << 18


class Copy(Protocol):
    """A second copy. ``where`` names it in messages."""

    where: str

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """The bytes noted of an obi at ``tist``. Raises NotHeld, or another ArchecError, before or between them."""
        ...

    def journal(self, name: str) -> Iterator[bytes]:
        """The bytes of a journal's file, as they lie there. Raises as :meth:`obi` does."""
        ...


@contextmanager
def open_copy(where: str, layout: Layout, config: Config) -> Iterator[Copy]:
    """The copy at a path or an http(s) URL of an archive folder.

    ``layout`` is that of the archive to be repaired, ``config`` says how the web is reached. Raises
    :class:`ConfigError` where there is no archive, and where it is this very one.
    """
    if where.startswith(("http://", "https://")):
        with open_blocking_client(Policy.of(config.fetch, config.agent, "remote")) as client:
            yield UrlCopy(where, layout, client)
        return
    theirs = open_layout(Path(where))
    if theirs.root.resolve() == layout.root.resolve():
        raise ConfigError(f"{where}: is this archive itself, not a second copy of it")
    if theirs.fanout != layout.fanout:
        raise ConfigError(
            f"{where}: has a fan-out of {theirs.fanout}, and {layout.root} one of {layout.fanout}: it is no copy of it",
            hint="was layout.json replaced in one of the two? Nothing was written",
        )
    yield DirectoryCopy(theirs)


class DirectoryCopy:
    """An archive folder; read with the same care as the archive itself."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.where = str(layout.root)

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """See :class:`Copy`."""
        with open_obi(self._layout, tist, id) as file:
            yield from self._read(file, self._layout.path(tist, id))

    def journal(self, name: str) -> Iterator[bytes]:
        """See :class:`Copy`."""
        path = self._layout.runs / name
        if not path.is_file() or path.is_symlink():
            raise NotHeld(f"{path}: is not held")
        with open_plain(path, packed=False) as file:
            yield from self._read(file, f"{RUNS}/{name}")

    def _read(self, file: BinaryIO, path: str) -> Iterator[bytes]:
        with storage_errors(self._layout.root / path):
            while data := file.read(_CHUNK):
                yield data


class UrlCopy:
    """An archive folder behind a web server that serves its files as they are, and follows its links."""

    def __init__(self, url: str, layout: Layout, client: BlockingClient) -> None:
        self._layout, self._client = layout, client
        self.where = url.rstrip("/")
        try:
            b"".join(self._get(DESCRIPTOR))
        except ArchecError as error:
            raise ConfigError(
                f"{self.where}: is not the URL of an archive folder: {error.message}",
                hint=f"its {DESCRIPTOR} must be there to be fetched",
            ) from error

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """See :class:`Copy`."""
        return self._get(self._layout.path(tist, id))

    def journal(self, name: str) -> Iterator[bytes]:
        """See :class:`Copy`."""
        return self._get(f"{RUNS}/{name}")

    def _get(self, path: str) -> Iterator[bytes]:
        url = f"{self.where}/{quote(path)}"
        try:
            with self._client.stream("GET", url, extensions=named(self.where)) as response:
                if response.status_code in (404, 410):
                    raise NotHeld(f"{url}: is not held")
                if response.status_code != 200:
                    raise StorageFailed(f"{url}: HTTP status {response.status_code}")
                yield from response.iter_raw()
        except EXPECTED as error:
            raise StorageFailed(f"{url}: {fault_of(error).message}") from error
