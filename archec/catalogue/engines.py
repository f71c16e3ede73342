"""Opens a catalogue by its URL. Only this module knows which engines there are."""

from __future__ import annotations

from pathlib import Path

from archec.catalogue.interface import Catalogue, redact
from archec.config import plain_path
from archec.errors import ConfigError
from archec.sqlite import unwritable

_ALLOWED = (
    "write sqlite:///PATH (relative to the configuration's directory), sqlite:////ABSOLUTE/PATH, "
    "mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE"
)


def open_catalogue(url: str, *, base: Path, create: bool = False, read_only: bool = False) -> Catalogue:
    """Opens the catalogue at ``url``.

    ``base`` is the directory to which ``sqlite:///relative/path`` is relative. ``create``: a missing catalogue is
    created; otherwise it is an error. ``read_only``: writing raises an error. Raises :class:`ConfigError` for other
    forms of URLs, :class:`archec.errors.CatalogueGone` if the server does not respond, and
    :class:`archec.errors.CatalogueError` for other errors. No message contains a password.
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
    """Whether the catalogue is an existing SQLite file that this process cannot write to: on a read-only file system,
    or of another user. False for servers, which refuse writes themselves."""
    if url.partition(":")[0] != "sqlite":
        return False
    path = sqlite_path(url, base)
    return path.exists() and bool(unwritable(path))


def sqlite_path(url: str, base: Path) -> Path:
    """The absolute path in a ``sqlite:`` URL. Raises :class:`ConfigError` if there is none."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{redact(url)!r} does not name an SQLite file", hint=_ALLOWED)
    return plain_path(base / path)
