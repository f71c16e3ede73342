"""Second copies of an archive, to repair from: a directory, or a web server that serves one as it is.

What comes from a copy is not trusted: it counts where its sha256 fits, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

from archec.errors import ConfigError, NotHeld
from archec.store.durable import failure
from archec.store.journalfile import open_plain
from archec.store.layout import RUNS, Layout, open_layout
from archec.store.reader import open_obi

__all__ = ["Copy", "DirectoryCopy", "open_copy"]

_CHUNK = 1 << 18


class Copy(Protocol):
    """A second copy. ``where`` names it in messages. A context manager."""

    where: str

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """The bytes noted of an obi at ``tist``. Raises NotHeld, or another ArchecError, before or between them."""
        ...

    def journal(self, name: str) -> Iterator[bytes]:
        """The bytes of a journal's file, as they lie there. Raises as :meth:`obi` does."""
        ...

    def close(self) -> None:
        """Lets go of it."""
        ...

    def __enter__(self) -> Copy: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_copy(where: str, layout: Layout) -> Copy:
    """The copy at a path or an http(s) URL of an archive folder.

    ``layout`` is that of the archive to be repaired. Raises :class:`ConfigError` where there is no archive,
    and where it is this very one.
    """
    if where.startswith(("http://", "https://")):
        from archec.audit.copyurl import UrlCopy

        return UrlCopy(where, layout)
    theirs = open_layout(Path(where))
    if theirs.root.resolve() == layout.root.resolve():
        raise ConfigError(f"{where}: is this archive itself, not a second copy of it")
    return DirectoryCopy(theirs)


class DirectoryCopy:
    """An archive folder; it is read as safely as one's own."""

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
        try:
            while data := file.read(_CHUNK):
                yield data
        except OSError as error:
            raise failure(error, self._layout.root / path) from error

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> DirectoryCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
