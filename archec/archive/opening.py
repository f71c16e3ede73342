"""An open archive: its configuration, its obi store, its catalogue."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from archec.archive.recovery import catch_up, is_behind, refuse_newer
from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.config import Config
from archec.errors import StorageFailed, storage_errors
from archec.progress import SILENT, Meter
from archec.sqlite import is_full, unwritable
from archec.store.durable import open_directory
from archec.store.journal import tidy
from archec.store.layout import Layout, open_store
from archec.store.lock import holder, run_lock

_SCRATCH = "archec-scratch-"
_LOCKED_AFTER = 3600.0
"""Seconds after which a new directory has been locked, if its process lives."""


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
        """Whether the catalogue is behind although no run is active that would update it; also while it is rebuilt.
        Raises CorruptArchive if it contains a run that has no journal."""
        refuse_newer(self.layout, self.catalogue)
        if not self.is_behind():
            return False
        who = holder(self.layout)
        return (who is None or not who.is_run) and self.is_behind()


def scratch_space(config: Config) -> Path:
    """The directory for scratch files of commands that only read: the archive's work directory, or the system's
    directory for temporary files if that is not writable or full."""
    path = config.work_path / "scratch"
    return Path(tempfile.gettempdir()) if unwritable(path) or is_full(path) else config.work_path


@contextmanager
def scratch_folder(config: Config) -> Iterator[Path]:
    """Creates a directory for scratch files, which is removed at the end of the block."""
    parent = scratch_space(config)
    with ExitStack() as stack:
        with storage_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(temporary_folder(parent, _SCRATCH))
        yield folder


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Creates a directory, which is removed at the end of the block. It is locked, so that those of killed processes
    can be told from it: they are removed first."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError, StorageFailed), open_directory(left) as lock:
            # Refused for one in use, and for all on a file system that locks no directory exclusively.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(lock)
            is_new = found.st_mtime > time.time() - _LOCKED_AFTER and not any(left.iterdir())  # not locked yet, perhaps
            if found.st_uid == os.geteuid() and not is_new:
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name,
        open_directory(name) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield Path(name)


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
