"""An open archive: its configuration, its obi store, its catalogue."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from archec.archive.recovery import catch_up, is_behind, refuse_newer
from archec.catalogue.interface import Catalogue, redact
from archec.config import Config, plain_path
from archec.errors import ConfigError
from archec.progress import SILENT, Meter
from archec.sqlite import is_full, unwritable
from archec.store.durable import open_directory, storage_errors
from archec.store.journal_writer import tidy
from archec.store.layout import Layout, open_store
from archec.store.lock import holder, run_lock

_ALLOWED = (
    "write sqlite:///PATH (relative to the configuration's directory), sqlite:////ABSOLUTE/PATH, "
    "mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE"
)
_SCRATCH = "scratch-"


@dataclass(frozen=True, slots=True)
class Archive:
    config: Config
    layout: Layout
    catalogue: Catalogue

    @property
    def work(self) -> Path:
        """The directory for scratch space."""
        return self.config.work_path

    def is_behind(self) -> bool:
        """Whether the catalogue may be behind the journals."""
        return is_behind(self.layout, self.catalogue)

    def was_left_behind(self) -> bool:
        """Whether the catalogue is behind although no run is active that would update it. Raises CorruptArchive if it
        contains a run that has no journal."""
        refuse_newer(self.layout, self.catalogue)
        return self.is_behind() and holder(self.layout) is None and self.is_behind()


def scratch_space(config: Config) -> Path:
    """The directory for scratch files of commands that only read: the archive's work directory, or the system's
    directory for temporary files if that is not writable or full."""
    path = config.work_path / "scratch"
    return Path(tempfile.gettempdir()) if unwritable(path) or is_full(path) else config.work_path


@contextmanager
def scratch_folder(config: Config) -> Iterator[Path]:
    """Creates a directory for scratch files, which is removed at the end of the block. Those of killed processes are
    removed when no other process uses one."""
    parent = scratch_space(config)
    with ExitStack() as stack:
        with storage_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            if parent == config.work_path:
                lock = stack.enter_context(open_directory(parent))
                with suppress(OSError):  # held by others, or on a file system that locks no directory exclusively
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for left in parent.glob(f"{_SCRATCH}*"):
                        shutil.rmtree(left, ignore_errors=True)
                fcntl.flock(lock, fcntl.LOCK_SH)
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=parent, ignore_cleanup_errors=True)
            )
        yield Path(folder)


@contextmanager
def locked(config: Config, what: str, meter: Meter = SILENT, *, wait: bool = False) -> Iterator[Archive]:
    """Opens the archive for writing: takes the run lock and updates the catalogue from the journals. Raises
    :class:`archec.errors.LockHeld` if another run is active, unless ``wait`` is set, which waits for its end."""
    layout = open_store(config)
    with (
        run_lock(layout, what, meter, wait=wait),
        open_catalogue(config.database, base=config.base, create=True) as catalogue,
    ):
        tidy(layout)
        catch_up(layout, catalogue)
        yield Archive(config, layout, catalogue)


@contextmanager
def opened(config: Config) -> Iterator[Archive]:
    """Opens the archive for reading. Creates and changes nothing.

    Raises :class:`archec.errors.CatalogueError` if there is no catalogue: only runs and rebuilds create one.
    """
    layout = open_store(config)
    with open_catalogue(config.database, base=config.base, read_only=True) as catalogue:
        yield Archive(config, layout, catalogue)


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
