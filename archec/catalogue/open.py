"""From a catalogue's URL to the catalogue: the only place that knows which engines there are."""

from __future__ import annotations

from pathlib import Path

from archec.catalogue.interface import Catalogue, redact
from archec.config import plain_path
from archec.errors import ConfigError

_ALLOWED = (
    "write sqlite:///PATH (relative to the configuration's folder), sqlite:////ABSOLUTE/PATH, "
    "mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE"
)


def open_catalogue(url: str, *, base: Path, create: bool = False, read_only: bool = False) -> Catalogue:
    """The catalogue behind ``url``.

    ``base`` is the directory that ``sqlite:///relative/path`` is relative to. With ``create`` a
    catalogue that is not there yet is made, empty; without it that is an error. A ``read_only``
    catalogue refuses to be written to. Raises :class:`ConfigError` for a URL of another form,
    :class:`archec.errors.CatalogueGone` for a server that does not answer and
    :class:`archec.errors.CatalogueError` for anything else; none of them shows a password.
    """
    scheme, colon, _ = url.partition(":")
    if colon and scheme == "sqlite":
        from archec.catalogue.sqlite import SQLiteCatalogue

        return SQLiteCatalogue(url, sqlite_path(url, base), create=create, read_only=read_only)
    if colon and scheme in ("mongodb", "mongodb+srv"):
        from archec.catalogue.mongo import MongoCatalogue

        return MongoCatalogue(url, create=create, read_only=read_only)
    raise ConfigError(f"{redact(url)!r} is not the URL of a catalogue", hint=_ALLOWED)


def is_read_only(url: str, *, base: Path) -> bool:
    """Whether the catalogue behind ``url`` is there, and this process can read it at most: an SQLite file on a
    read-only file system, or somebody else's. A server says so itself."""
    if url.partition(":")[0] != "sqlite":
        return False
    from archec.sqlite import unwritable

    path = sqlite_path(url, base)
    return path.exists() and bool(unwritable(path))


def sqlite_path(url: str, base: Path) -> Path:
    """The absolute path of a ``sqlite:`` URL; :class:`ConfigError` if it names none."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{redact(url)!r} does not name an SQLite file", hint=_ALLOWED)
    return plain_path(base / path)
